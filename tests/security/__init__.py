"""The promises S1 to S12, as `docs/security.md` lists them and `promises.toml` names them."""
