"""The keys `oauth` and `auth`: a user logs in to a server, or mcpd does by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from daemon.config.config_model import OAuth
from daemon.config.login_keys import Auth, AuthType, IdentityProvider
from daemon.config.parse import load, plan
from daemon.config.redaction import secrets
from daemon.config.translation import Translated
from daemon.safety.redact import HIDDEN
from tests.unit.cases import cases
from tests.unit.config.reading import config_of, faults_in, server_of

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://mcp.example.com/mcp"
BASE = {"type": "client-credentials", "issuer": "https://as.example", "clientId": "me"}
KEYS = (
    rsa.generate_private_key(65537, 2048),
    ec.generate_private_key(ec.SECP256R1()),
    ed25519.Ed25519PrivateKey.generate(),
)


def pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8, encryption: Any = None) -> str:
    text: bytes = key.private_bytes(Encoding.PEM, form, encryption or NoEncryption())
    return text.decode()


def entry(**auth: Any) -> dict[str, Any]:
    return {"url": URL, "auth": {**BASE, **auth}}


def faults(found: dict[str, Any]) -> list[tuple[str, str]]:
    return faults_in({"mcpServers": {"s": found}})


def test_mcpd_logs_in_with_a_secret_that_a_variable_holds_and_no_user_is_asked() -> None:
    secret = "canary-7Zk3-long"
    server = server_of(entry(clientSecret="${S}", scopes=["a", "b"]), {"S": secret})
    made = Auth(type=AuthType.CLIENT_CREDENTIALS, issuer=BASE["issuer"], client_id="me", client_secret=secret)
    assert server.auth == attrs.evolve(made, scopes=("a", "b"))
    assert server.login is None
    assert "canary" not in repr(server)


def test_keys_and_secrets_are_hidden_however_they_are_written() -> None:
    key = pem(KEYS[1])
    idp = {"tokenEndpoint": "https://idp.example/token", "clientId": "c", "clientSecret": "canary-of-idp-9x"}
    with_key = config_of({"mcpServers": {"s": entry(privateKey=key)}})
    company = entry(type="enterprise-managed", clientSecret="canary-literal-8q", tokenFile="t", idp=idp)
    hidden = secrets(with_key) | secrets(config_of({"mcpServers": {"s": company}}))
    assert {"canary-literal-8q", "canary-of-idp-9x", key.splitlines()[1]} <= hidden
    assert HIDDEN not in hidden


def test_the_file_of_a_token_is_beside_the_configuration(tmp_path: Path) -> None:
    idp = {"tokenEndpoint": "https://idp.example/token", "clientId": "c"}
    written = entry(type="enterprise-managed", clientSecret="x", tokenFile="token", idp=idp)
    (tmp_path / "mcpd.json").write_text(json.dumps({"mcpServers": {"s": written}}))
    (tmp_path / "mcpd.json").chmod(0o600)
    config = load(tmp_path / "mcpd.json", {})
    auth = config.mcp_servers["s"].auth
    assert auth is not None
    assert auth.token_file == str(tmp_path / "token")
    assert auth.idp == IdentityProvider(token_endpoint="https://idp.example/token", client_id="c")
    changed = attrs.evolve(config.mcp_servers["s"], auth=attrs.evolve(auth, client_secret="y"))
    assert plan(config, attrs.evolve(config, mcp_servers={"s": changed})).restarted == ("s",)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_private_keys_as_programs_write_them_are_taken(key: Any, form: PrivateFormat) -> None:
    if form is PrivateFormat.TraditionalOpenSSL and isinstance(key, ed25519.Ed25519PrivateKey):
        form = PrivateFormat.PKCS8
    assert faults(entry(privateKey=pem(key, form))) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "not a key",
        pem(KEYS[1]).replace("\n", "\\n"),
        pem(KEYS[1], encryption=BestAvailableEncryption(b"word")),
        pem(KEYS[1]).replace("PRIVATE", "PUBLIC"),
        "-----BEGIN PRIVATE KEY-----\n-----END EC PRIVATE KEY-----",
    ],
)
def test_what_is_no_readable_key_is_a_fault_at_its_place_that_quotes_nothing(wrong: str) -> None:
    [(where, message)] = faults(entry(privateKey=wrong))
    assert where == "$.mcpServers.s.auth.privateKey"
    assert "not an unencrypted private key in PEM" in message
    assert wrong not in message


@cases("found", "path", "words")
def test_what_makes_no_sense_is_a_fault(found: dict[str, Any], path: str, words: str) -> None:
    written = {"url": URL, **found} if "command" not in found else found
    if isinstance(written.get("auth"), dict):
        written = {**written, "auth": {**BASE, **written["auth"]}}
        written["auth"] = {key: value for key, value in written["auth"].items() if value is not None}
    problems = dict(faults(written))
    assert words in problems[f"$.mcpServers.s{path}"], problems


def test_an_entry_that_is_switched_off_may_refer_to_what_is_not_there_yet() -> None:
    written = {**entry(privateKey="${file:/nowhere}", issuer="${ISSUER}"), "enabled": False}
    assert faults(written) == []
    assert [path for path, _ in faults({**written, "enabled": True})] == [
        "$.mcpServers.s.auth.issuer",
        "$.mcpServers.s.auth.privateKey",
    ]


def test_what_other_clients_write_under_this_key_means_what_it_did() -> None:
    assert Translated({"url": URL, "auth": "oauth"}).entry == {"url": URL, "oauth": {}}
    assert Translated({"url": URL, "auth": {"CLIENT_ID": "c"}}).entry == {
        "url": URL,
        "oauth": {"clientId": "c"},
    }
    ours = entry(clientSecret="${S}")
    assert Translated(ours).entry == ours
    assert not Translated(ours).notes


def test_a_server_over_http_may_be_logged_in_to_unless_its_entry_says_otherwise() -> None:
    for entry in ({}, {"oauth": True}, {"url": "wss://mcp.example.com"}, {"headers": {"X-Team": "a"}}):
        assert server_of({"url": URL, **entry}).login == OAuth(), entry
    for entry in ({"oauth": False}, {"headers": {"authorization": "Bearer x"}}):
        assert server_of({"url": URL, **entry}).login is None, entry
    assert server_of({"command": "x"}).login is None


def test_a_client_that_was_registered_by_hand_and_its_secret_are_read_and_the_secret_is_hidden() -> None:
    entry = {
        "url": URL,
        "oauth": {"clientId": "me", "clientSecret": "${S}", "scopes": ["a", "b:c"], "redirectPort": 8765},
    }
    environ = {"S": "Zk3-something-long-91"}
    login = server_of(entry, environ).login
    assert login == OAuth(client_id="me", client_secret=environ["S"], scopes=("a", "b:c"), redirect_port=8765)
    assert environ["S"] not in repr(login)
    assert environ["S"] in secrets(config_of({"mcpServers": {"s": entry}}, environ))


@cases("entry", "path", "words")
def test_what_makes_no_sense_of_a_users_login_is_a_fault(entry: dict[str, Any], path: str, words: str) -> None:
    [(where, message)] = faults_in({"mcpServers": {"s": entry}})
    assert where == f"$.mcpServers.s.oauth{path}"
    assert words in message
