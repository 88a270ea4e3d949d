"""The first five minutes on a bare Debian, with real agents: run by `scripts/bare-debian`."""
