"""Who may come in over HTTP: what may be written, and what must be."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.config.listen import DEFAULT_HTTP_ADDRESS, AccessToken, HttpListen, is_loopback, numeric
from daemon.config.parse import parse
from daemon.config.redaction import Redactors, secrets
from daemon.safety.redact import HIDDEN, Redactor
from tests.unit.cases import cases
from tests.unit.config.reading import config_of, faults_in

GOOD = "0123456789abcdef-of-ci"
OTHER = "fedcba9876543210-of-ann"
OPEN = "0.0.0.0:7337"
CLOSED: dict[str, Any] = {"tokens": GOOD, "tls": {"cert": "c.pem", "key": "k.pem"}}


def written(http: object, **more: Any) -> dict[str, Any]:
    return {"listen": {"http": http}, **more}


def faults(http: object, **more: Any) -> list[tuple[str, str]]:
    """Path below `listen.http` and message of each fault."""
    found = faults_in(written(http, **more), {"TOKEN": GOOD, "SHORT": "short"})
    assert all(Redactor(())(message) == message for _, message in found), "it must not look like a credential"
    return [(path.removeprefix("$.listen.http").removeprefix("."), message) for path, message in found]


def read(http: object, **more: Any) -> HttpListen:
    http = config_of(written(http, **more), {"TOKEN": GOOD}).listen.http
    assert http is not None
    return http


def token(**changed: Any) -> dict[str, Any]:
    return {"name": "ci", "value": GOOD, **changed}


def test_without_anything_it_is_a_loopback_address_without_configured_tokens() -> None:
    http = read({})
    assert (http.address, http.tokens, http.tls) == (DEFAULT_HTTP_ADDRESS, None, None)
    assert config_of({}).listen.http is None


@cases("http")
def test_what_makes_sense_is_taken(http: dict[str, Any]) -> None:
    assert faults(http, profiles={"review": {}}) == []


def test_an_address_has_a_host_and_a_port_and_a_name_is_none() -> None:
    for address in ("", "7337", ":7337", "127.0.0.1", "127.0.0.1:65536", "http://127.0.0.1:1"):
        ((path, message),) = faults({"address": address})
        assert (path, DEFAULT_HTTP_ADDRESS in message) == ("address", True), address
    for name in ("example.org:7337", "127.1:7337", "0177.0.0.1:1", "*:80"):
        assert "is a name: write an address" in dict(faults({"address": name, **CLOSED}))["address"], name


@pytest.mark.parametrize("address", [OPEN, "[::]:1", "10.0.0.1:7337", "[::ffff:127.0.0.1]:1"])
def test_an_address_that_others_reach_needs_tokens_and_tls(address: str) -> None:
    found = dict(faults({"address": address}))
    assert found.keys() == {"tokens", "tls"}
    assert "other machines can reach" in found["tokens"]
    assert "trustedProxies" in found["tls"]


def test_no_token_is_no_lock() -> None:
    empty: tuple[object, ...] = (None, [], "")
    for tokens in empty:
        assert {path for path, _ in faults({"address": OPEN, **CLOSED, "tokens": tokens})} == {"tokens"}


def test_what_is_misspelt_is_not_missing() -> None:
    assert faults({"address": OPEN, "token": GOOD, "tls": CLOSED["tls"]}) == [
        ("token", "unknown key 'token': write \"tokens\"")
    ]


@cases("tokens", "path", "message")
def test_a_token_that_cannot_work_is_a_fault_that_does_not_repeat_it(
    tokens: object, path: str, message: str
) -> None:
    ((place, said),) = faults({"tokens": tokens}, profiles={"review": {}})
    assert place == path
    assert said.startswith(message)
    assert not any(value in said for value in (GOOD, OTHER, "short-secret", "two words"))


@cases("http", "path", "message")
def test_what_cannot_be_meant_is_a_fault_at_its_place(http: dict[str, Any], path: str, message: str) -> None:
    ((place, said),) = faults(http)
    assert place == path
    assert message in said


def test_the_content_of_a_key_is_not_repeated_where_its_path_belongs() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----"
    ((path, message),) = faults({"tls": {"cert": "c.pem", "key": pem}})
    assert path == "tls.key"
    assert "MIGH" not in message


@cases("address", "metrics")
def test_metrics_are_not_served_twice_on_one_address(address: str, metrics: str) -> None:
    config = written({"address": address, **CLOSED}, metrics={"listen": metrics})
    ((path, message),) = faults_in(config)
    assert path == "$.metrics.listen"
    assert message.startswith("listen.http serves /metrics on")


def test_metrics_may_have_an_address_of_their_own() -> None:
    for metrics in ("127.0.0.1:7338", "127.0.0.2:7337", "[::1]:7337"):
        assert faults_in(written({}, metrics={"listen": metrics})) == [], metrics


def test_tokens_and_paths_of_tls_may_be_references(tmp_path: Path) -> None:
    (tmp_path / "ci.token").write_text(f"{OTHER}\n")
    tokens = [token(value="${TOKEN}"), token(name="ann", value="${file:ci.token}")]
    text = json.dumps(written({"tokens": tokens, "tls": {"cert": "tls/c.pem", "key": "${KEYS}/k.pem"}}))
    environ = {"TOKEN": GOOD, "KEYS": "/run/keys"}
    http = parse(text, source=str(tmp_path / "mcpd.json"), environ=environ).listen.http
    assert http is not None
    assert http.tokens == (AccessToken(name="ci", value=GOOD), AccessToken(name="ann", value=OTHER))
    assert http.substituted == {GOOD, OTHER, "/run/keys"}
    assert http.tls is not None
    assert (http.tls.cert, http.tls.key) == (str(tmp_path / "tls/c.pem"), "/run/keys/k.pem")


def test_a_reference_that_leads_nowhere_is_the_only_fault() -> None:
    ((path, message),) = faults({"address": OPEN, "tokens": "${UNSET}", "tls": CLOSED["tls"]})
    assert path == "tokens"
    assert "UNSET is not set" in message


@pytest.mark.parametrize("tokens", [GOOD, [{"name": "ci", "value": GOOD}]])
def test_a_token_is_shown_nowhere(tokens: object) -> None:
    config = config_of(written({"tokens": tokens}))
    assert GOOD not in repr(config)
    assert GOOD in secrets(config)
    redact = Redactors()
    redact.learn(config)
    assert redact(f"Authorization: Bearer {GOOD} came") == f"Authorization: Bearer {HIDDEN} came"
    assert redact.of("git")(f"he said {GOOD}") == f"he said {HIDDEN}", "not by what a server says, either"


def test_only_names_that_cannot_be_made_to_mean_another_machine_are_loopback() -> None:
    hosts = ("localhost", "::1", "rebound.example.com", "::1%lo")
    assert [*map(is_loopback, hosts)] == [True, True, False, False]


def test_an_address_of_ipv4_is_the_same_within_one_of_ipv6_and_a_name_is_none() -> None:
    assert numeric("::ffff:10.0.0.1") == numeric("10.0.0.1") is not None
    assert [str(numeric(each)) for each in ("2001:db8::1", "localhost", "")] == ["2001:db8::1", "None", "None"]
