"""How a server's entry says how to log in."""

from typing import Any

from daemon.config.config_model import LoginPlace, OAuth
from daemon.config.redaction import secrets
from tests.unit.cases import cases
from tests.unit.config.reading import config_of, faults_in, server_of

URL = "https://mcp.example.com/mcp"


def test_a_server_over_http_may_be_logged_in_to_unless_its_entry_says_otherwise() -> None:
    assert server_of({"url": URL}).login == OAuth()
    assert server_of({"url": URL, "oauth": True}).login == OAuth()
    assert server_of({"url": "wss://mcp.example.com"}).login == OAuth()
    assert server_of({"url": URL, "oauth": False}).login is None
    assert server_of({"command": "x"}).login is None


def test_a_configured_token_counts_more_than_a_login() -> None:
    assert server_of({"url": URL, "headers": {"authorization": "Bearer x"}}).login is None
    assert server_of({"url": URL, "headers": {"X-Team": "a"}}).login == OAuth()


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
def test_what_makes_no_sense_is_a_fault(entry: dict[str, Any], path: str, words: str) -> None:
    [(where, message)] = faults_in({"mcpServers": {"s": entry}})
    assert where == f"$.mcpServers.s.oauth{path}"
    assert words in message


def test_where_logins_are_kept_can_be_chosen() -> None:
    assert config_of({}).state.logins is LoginPlace.FILES
    assert config_of({"state": {"logins": "secret-service"}}).state.logins is LoginPlace.KEYRING
