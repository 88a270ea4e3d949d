"""What a server was given goes from its own texts, and what could be nobody's word from all."""

from __future__ import annotations

from typing import Any

from daemon.config.redaction import Redactors
from daemon.safety.redact import CUT, HIDDEN
from tests.unit.config.reading import config_of


def knowing(**servers: dict[str, Any]) -> Redactors:
    redact = Redactors()
    redact.learn(config_of({"mcpServers": {name: {"command": "x", **each} for name, each in servers.items()}}))
    return redact


def test_a_setting_blinds_nobody() -> None:
    """Found with a real configuration: LOG_LEVEL=WARNING hid the level of every line of every server."""
    redact = knowing(a={"env": {"LOG_LEVEL": "WARNING", "MODE": "project"}}, b={})
    text = "WARNING: no such project"
    assert redact.of("b")(text) == redact.of("a")(text) == redact(text) == text


def test_a_password_that_is_a_word_goes_from_its_own_server_s_texts_only() -> None:
    redact = knowing(a={"env": {"DB_PASSWORD": "postgres"}}, b={"env": {"PGPASSWORD": "sunshine"}})
    assert redact.of("a")("postgres likes sunshine") == f"{HIDDEN} likes sunshine"
    assert redact.of("b")("postgres likes sunshine") == f"postgres likes {HIDDEN}"
    assert redact.of("unknown")("postgres likes sunshine") == "postgres likes sunshine"


def test_what_the_daemon_says_itself_loses_all() -> None:
    redact = knowing(a={"env": {"DB_PASSWORD": "postgres"}}, b={"env": {"PGPASSWORD": "sunshine"}})
    assert redact("postgres likes sunshine") == f"{HIDDEN} likes {HIDDEN}"
    assert redact("x" * 10 + "sunshine", most=12) == "x" * 10 + CUT


def test_what_could_be_nobody_s_word_goes_from_all_texts() -> None:
    token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    redact = knowing(a={"env": {"GITHUB_TOKEN": token, "PASSPHRASE": "correct horse battery"}}, b={})
    for server in ("a", "b", "unknown"):
        assert redact.of(server)(f"with {token}, correct horse battery") == f"with {HIDDEN}, {HIDDEN}"


def test_what_was_known_before_stays_hidden_and_one_server_s_redactor_is_one_object() -> None:
    redact = knowing(a={"env": {"TOKEN": "first-1"}})
    own = redact.of("a")
    redact.learn(config_of({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "second-2"}}}}))
    assert redact.of("a") is own
    assert own("first-1 second-2") == f"{HIDDEN} {HIDDEN}"


def test_the_names_of_a_configuration_stay_although_a_password_is_one() -> None:
    servers = {"postgres": {"env": {"DB_PASSWORD": "postgres"}}, "b": {"env": {"PGPASSWORD": "sunshine"}}}
    redact = knowing(**servers)
    for each in (redact, redact.of("postgres"), redact.of("b")):
        assert each("[server=postgres] postgres/query") == "[server=postgres] postgres/query"
    assert redact("sunshine, postgresql") == f"{HIDDEN}, {HIDDEN}ql"
