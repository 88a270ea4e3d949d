"""What logs leave out, and what is known by its name, its place or its look as a credential."""

import json
import random
import string
from pathlib import Path
from typing import Any

import pytest

from daemon.config import redaction
from daemon.config.expand import MAX_FILE
from daemon.config.redaction import MAX_TOKENS, Redactors, secrets, with_doubts
from daemon.safety.redact import CUT, HIDDEN, MAX_NESTED
from tests.unit.cases import cases
from tests.unit.config.reading import config_of


@cases("entry", "hidden")
def test_every_secret_of_a_server_is_known(entry: dict[str, object], hidden: list[str]) -> None:
    config = config_of({"mcpServers": {"s": entry}}, {"TOKEN": "s3cr3t", "DIRECTORY": "/srv/data"})
    assert secrets(config) == set(hidden)


@cases("value")
def test_a_setting_is_no_secret(value: str) -> None:
    entry = {"command": "x", "env": {"SETTING": value, "OTHER": "${S}"}, "args": ["${S}"]}
    assert secrets(config_of({"mcpServers": {"s": entry}}, {"S": value})) == frozenset()


@cases("value")
def test_what_nobody_would_say_is_a_secret_whatever_its_name(value: str) -> None:
    entry = {"command": "x", "env": {"SETTING": value, "OTHER": f"a {value}"}, "args": ["${S}"]}
    assert value in secrets(config_of({"mcpServers": {"s": entry}}, {"S": value}))


def test_what_a_file_of_credentials_holds_is_a_secret_where_its_name_or_its_look_says_so() -> None:
    key = {
        "type": "service_account",
        "auth": {"token": "ca9ary-5ecre7", "keys": ["another-one", 7, None, "short"]},
    }
    config = config_of({"mcpServers": {"s": {"command": "x", "env": {"CREDENTIALS": json.dumps(key)}}}})
    assert secrets(config) == {json.dumps(key), "ca9ary-5ecre7", "another-one"}


def test_each_string_of_a_file_of_credentials_is_a_secret(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text('{"user": "somebody", "pw": "sunshine", "at": "/srv/data"}')
    entry = {"command": "x", "env": {"SETTINGS": f"${{file:{tmp_path / 'key.json'}}}"}}
    config = config_of({"mcpServers": {"s": entry}})
    assert {"somebody", "sunshine"} < secrets(config)
    assert "/srv/data" not in secrets(config)


def test_of_a_large_document_so_many_strings_are_secrets_and_no_more() -> None:
    written = json.dumps([f"value-{each:06}" for each in range(MAX_NESTED * 2)])
    config = config_of({"mcpServers": {"s": {"command": "x", "env": {"KEYS": written}}}})
    assert len(secrets(config)) == 1 + MAX_NESTED


def test_the_urls_of_mcpd_itself_are_searched_too() -> None:
    summaries = {"baseUrl": "https://u:summarypw@h/v1", "model": "m"}
    config = config_of({"state": {"url": "postgresql://u:statepw1@h/d"}, "summaries": summaries})
    assert secrets(config) == {"summarypw", "statepw1"}


@cases("url", "hidden")
def test_of_the_state_s_url_only_passwords_are_secrets(url: str, hidden: list[str]) -> None:
    assert secrets(config_of({"state": {"url": url}})) == set(hidden)


def test_no_secret_is_in_the_repr_of_a_configuration() -> None:
    entry = {"url": "https://u:hunter2@h", "headers": {"A": "hunter2"}}
    other = {"command": "x", "env": {"A": "${T}"}}
    state = {"url": "postgresql://u:hunter2@h"}
    config = config_of({"mcpServers": {"s": entry, "t": other}, "state": state}, {"T": "hunter2"})
    assert "hunter2" in secrets(config)
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize("character", ["a", "A", "aB", " ", ";", "=", "a=", "a ", "1", ":", "-", "a;b=", "://"])
def test_a_file_s_worth_of_anything_is_looked_through(character: str) -> None:
    value = (character * MAX_FILE)[: MAX_FILE // 4]
    config = config_of({"mcpServers": {"s": {"command": "x", "args": [value], "env": {"TOKEN": value}}}})
    assert value in secrets(config)
    assert value not in with_doubts(config)[1]


@cases("entry", "words")
def test_words_are_in_doubt_and_only_words_are(entry: dict[str, object], words: list[str]) -> None:
    config = config_of({"mcpServers": {"s": entry}}, {"WORDS": "two words"})
    assert with_doubts(config)[1] == set(words)
    assert with_doubts(config)[1] <= secrets(config)


def knowing(**servers: dict[str, Any]) -> Redactors:
    redact = Redactors()
    redact.learn(config_of({"mcpServers": {name: {"command": "x", **each} for name, each in servers.items()}}))
    return redact


def test_a_setting_blinds_nobody() -> None:
    """Found with a real configuration: LOG_LEVEL=WARNING hid the level of every line of every server."""
    redact = knowing(a={"env": {"LOG_LEVEL": "WARNING", "MODE": "project"}}, b={})
    text = "WARNING: no such project"
    assert redact.of("b")(text) == redact.of("a")(text) == redact(text) == text


def test_a_password_that_is_a_word_goes_from_its_own_server_s_texts_and_from_what_the_daemon_says() -> None:
    redact = knowing(a={"env": {"DB_PASSWORD": "postgres"}}, b={"env": {"PGPASSWORD": "sunshine"}})
    assert redact.of("a")("postgres likes sunshine") == f"{HIDDEN} likes sunshine"
    assert redact.of("b")("postgres likes sunshine") == f"postgres likes {HIDDEN}"
    assert redact.of("unknown")("postgres likes sunshine") == "postgres likes sunshine"
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
    assert own("first-1 second-2") == f"{HIDDEN} {HIDDEN}"
    for name in ("a", "a#12", "a@~/src/app", "a@"):
        assert redact.of(name) is own, "its instances have it, too"


def test_the_names_of_a_configuration_stay_although_a_password_is_one() -> None:
    servers = {"postgres": {"env": {"DB_PASSWORD": "postgres"}}, "b": {"env": {"PGPASSWORD": "sunshine"}}}
    redact = knowing(**servers)
    for each in (redact, redact.of("postgres"), redact.of("b")):
        assert each("[server=postgres] postgres/query") == "[server=postgres] postgres/query"
    assert redact("sunshine, postgresql") == f"{HIDDEN}, {HIDDEN}ql"


def test_of_the_tokens_of_a_servers_logins_the_latest_are_hidden() -> None:
    redact = Redactors()
    tokens = [f"token-{number:04}-of-a-login" for number in range(MAX_TOKENS + 1)]
    redact.hide_login("a", tokens[:1])
    redact.hide_login("b", ["another-0123-token"])
    for token in tokens:
        redact.hide_login("a", [token])
    assert redact(tokens[0]) == tokens[0]
    assert [redact(each) for each in (*tokens[1:], "another-0123-token")] == [HIDDEN] * (MAX_TOKENS + 1)


@cases("text", "random")
def test_a_credential_has_another_look_than_words(text: str, random: bool) -> None:
    assert redaction.looks_random(text) is random


@cases("args", "found")
def test_a_credential_is_found_among_arguments_with_its_place(
    args: list[str], found: list[list[object]]
) -> None:
    assert [list(each) for each in redaction.in_arguments(args)] == found


@cases("name")
def test_a_name_says_by_a_word_of_it_that_its_value_is_a_credential(name: str) -> None:
    assert redaction.names_credential(name)


@cases("name")
def test_a_name_that_only_looks_like_it_says_nothing(name: str) -> None:
    assert not redaction.names_credential(name)


@cases("text", "told")
def test_a_credential_is_found_in_what_lists_names_and_values(text: str, told: list[str]) -> None:
    assert list(redaction.in_pairs(text)) == told


@cases("value", "named", "common")
def test_what_may_be_anybodys_word_depends_on_the_name_that_it_stands_under(
    value: str, *, named: bool, common: bool
) -> None:
    assert redaction.may_be_common(value, named=named) is common


DRAWN = 500
"""Passwords of each kind: always the same ones."""

ALNUM = string.ascii_letters + string.digits
FEW = 0.02
"""The share of them that may look like words."""


@cases("value")
def test_what_people_configure_is_a_setting(value: str) -> None:
    assert redaction.is_setting(value)


@cases("value")
def test_what_nobody_can_tell_from_a_password_is_none(value: str) -> None:
    assert not redaction.is_setting(value)


@pytest.mark.parametrize("length", [12, 16, 20, 40])
@pytest.mark.parametrize(
    "characters",
    [
        *(ALNUM + more for more in (string.punctuation, "!@#$%^&*", "", "-_", "+/")),
        *(string.ascii_lowercase, string.ascii_lowercase + string.digits, string.ascii_letters),
        string.hexdigits[:16],
    ],
)
def test_hardly_a_password_that_was_drawn_by_lot_looks_like_a_setting(characters: str, length: int) -> None:
    draw = random.Random(length)
    drawn = ["".join(draw.choices(characters, k=length)) for _ in range(DRAWN)]
    assert sum(map(redaction.is_setting, drawn)) <= FEW * DRAWN
