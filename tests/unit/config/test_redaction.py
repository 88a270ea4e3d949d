"""What logs leave out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.config.expand import MAX_FILE
from daemon.config.redaction import MAX_TOKENS, Redactors, doubtful, secrets
from daemon.safety.redact import CUT, HIDDEN
from daemon.safety.shapes import MAX_NESTED
from tests.unit.config.reading import config_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("entry", "hidden"),
    [
        ({"command": "x", "env": {"KEY": "literal-key"}}, {"literal-key"}),
        ({"command": "x", "env": {"KEY": "pre-${TOKEN}"}}, {"pre-s3cr3t", "s3cr3t"}),
        ({"command": "x", "args": ["--key=${TOKEN}", "--open"]}, {"s3cr3t"}),
        (
            {"command": "x", "env": {"TOKEN": "first line\nsecond line"}},
            {"first line\nsecond line", "first line", "second line"},
        ),
        ({"command": "x", "env": {"PORT": "8080"}}, set()),
        ({"command": "x", "env": {"KEY": "${workspace}:literal-key"}}, {":literal-key"}),
        ({"command": "x", "args": ["--token=${workspace}-s3cr3t-9", "${workspace}"]}, {"-s3cr3t-9"}),
        ({"command": "x", "env": {"KEY_FILE": "${workspace}/.key", "ROOT": "${workspace}"}}, set()),
        ({"command": "x", "env": {"DB": "postgres://u:passw0rd@h/d"}}, {"passw0rd"}),
        ({"url": "https://h", "headers": {"A": "Bearer abcdefgh"}}, {"Bearer abcdefgh", "abcdefgh"}),
        ({"url": "https://user:p%40ssword@h/x"}, {"p%40ssword", "p@ssword"}),
        ({"url": "https://lonelytoken@h/x"}, {"lonelytoken"}),
        ({"url": "https://h/x?api_key=q%20ueryvalue&v=1"}, {"q%20ueryvalue", "q ueryvalue"}),
        (
            {"url": "https://h/headers", "headers": {"Authorization": "Basic dG9rZW4xMjM6cGFzc3dvcmQx"}},
            {
                *("Basic dG9rZW4xMjM6cGFzc3dvcmQx", "dG9rZW4xMjM6cGFzc3dvcmQx"),
                *("token123:password1", "token123", "password1"),
            },
        ),
        # A name that is a word stands in many a log.
        (
            {"command": "x", "args": ["--header=X-Auth-Token: Basic cG9zdGdyZXM6cGFzc3dvcmQx"]},
            {
                *("Basic cG9zdGdyZXM6cGFzc3dvcmQx", "cG9zdGdyZXM6cGFzc3dvcmQx"),
                *("postgres:password1", "password1"),
            },
        ),
        ({"url": "https://h", "headers": {"A": "Basic not/base64!"}}, {"Basic not/base64!", "not/base64!"}),
        (
            {"url": "https://mcp.example.org/api/s/ZmFrZS10b2tlbi0xMjM%3D/mcp-server-2025-11-25"},
            {"ZmFrZS10b2tlbi0xMjM%3D", "ZmFrZS10b2tlbi0xMjM="},
        ),
        (
            {"command": "npx", "args": ["mcp-remote", "https://h/0b1f6a2c-5d3e-4f70-8a91-b2c3d4e5f607/mcp"]},
            {"0b1f6a2c-5d3e-4f70-8a91-b2c3d4e5f607"},
        ),
        (
            {"command": "x", "args": ["--api-key", "literal", "-e", "DB_PASSWORD=open sesame"]},
            {"literal", "open sesame"},
        ),
        ({"command": "x", "args": ["${API_KEY:-fallback}", "${PLACE:-/some/where}"]}, {"fallback"}),
        ({"command": "x", "args": ["${ID:-0b1f6a2c5d3e4f708a91}"]}, {"0b1f6a2c5d3e4f708a91"}),
        ({"command": "x", "env": {"LOG_LEVEL": "WARNING", "NODE_ENV": "production"}}, set()),
        ({"command": "x", "env": {"ROOT": "/home/somebody/my projects"}, "args": ["${DIRECTORY}"]}, set()),
        ({"command": "x", "env": {"P": "/run/0b1f6a2c5d3e4f708a91/x"}}, {"0b1f6a2c5d3e4f708a91"}),
        ({"command": "x", "args": ["--password=abc123;xyz789"]}, {"abc123;xyz789", "abc123"}),
        ({"command": "x", "args": ["--db=postgres://u:hunter22@h/d"]}, {"hunter22"}),
        (
            {"command": "x", "args": ["--connection-string", "Server=h;Password=hunter22;"]},
            {"Server=h;Password=hunter22;", "hunter22"},
        ),
        ({"command": "x", "env": {"DB": "Server=h;Password=hunter22;"}}, {"hunter22"}),
        (
            {
                "command": "x",
                "args": ["--max-tokens", "100000", "--keyspace", "orders", "--tokenizer", "llama3"],
            },
            set(),
        ),
        ({"command": "x", "args": ["--auth", "enabled", "--api-key", "default"]}, set()),
        (
            {"command": "x", "env": {"SMTP_PW": "sunshine", "MNEMONIC": "legal winner thank year"}},
            {"sunshine", "legal winner thank year"},
        ),
        ({"command": "x", "env": {"PLACE": "a:7fK2mQ9xVb4Z"}}, {"a:7fK2mQ9xVb4Z", "7fK2mQ9xVb4Z"}),
        ({"command": "plain-command", "args": ["plain-argument"], "cwd": "/plain/dir"}, set()),
    ],
)
def test_every_secret_of_a_server_is_known(entry: dict[str, object], hidden: set[str]) -> None:
    config = config_of({"mcpServers": {"s": entry}}, {"TOKEN": "s3cr3t", "DIRECTORY": "/srv/data"})
    assert secrets(config) == hidden


@pytest.mark.parametrize(
    "value",
    [
        *(
            "WARNING",
            "debug",
            "production",
            "true",
            "300000",
            "1.5",
            "2026-11-22",
            "en_US.UTF-8",
            "Europe/Vienna",
        ),
        *(
            "/home/me/My Notes",
            "db-prod-1.internal.example.com",
            "redis://cache:6379/0",
            "https://h:8443/api/v1",
        ),
        *(
            "gpt-4o-2024-08-06",
            "--max-old-space-size=4096",
            "a sentence of words",
            "me@example.com",
            "streaming",
        ),
        *("application/json", "repos,issues,pull_requests", "us-east-1", "1,2,3", "claude-opus-4-5-20251101"),
    ],
)
def test_a_setting_is_no_secret(value: str) -> None:
    entry = {"command": "x", "env": {"SETTING": value, "OTHER": "${S}"}, "args": ["${S}"]}
    assert secrets(config_of({"mcpServers": {"s": entry}}, {"S": value})) == frozenset()


@pytest.mark.parametrize(
    "value",
    [
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "sk-proj-abcdefghij0123456789",
        "xoxb-1234567890-abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "0b1f6a2c-5d3e-4f70-8a91-b2c3d4e5f607",
        "7fK2mQ9xVb4Z",
        "Xk9$mQ2!vL7#pR",
        "xkqzvbwmtrpl",
        "3f9a1c0b7e2d",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----",
    ],
)
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


@pytest.mark.parametrize(
    ("url", "hidden"),
    [
        ("postgresql://postgres@/mcpd?host=/var/run/postgresql&sslmode=require", set()),
        ("postgresql://postgres:p%40ssword@dbhost1/mcpd", {"p%40ssword", "p@ssword"}),
        (
            "postgresql://postgres@dbhost1/mcpd?password=p%40ss+word&sslpassword=another1",
            {*("p%40ss+word", "p@ss+word", "p@ss word", "another1")},
        ),
        ("sqlite:////var/lib/mcpd/state.db", set()),
    ],
)
def test_of_the_state_s_url_only_passwords_are_secrets(url: str, hidden: set[str]) -> None:
    assert secrets(config_of({"state": {"url": url}})) == hidden


def test_no_secret_is_in_the_repr_of_a_configuration() -> None:
    entry = {"url": "https://u:hunter2@h", "headers": {"A": "hunter2"}}
    other = {"command": "x", "env": {"A": "${T}"}}
    state = {"url": "postgresql://u:hunter2@h"}
    config = config_of({"mcpServers": {"s": entry, "t": other}, "state": state}, {"T": "hunter2"})
    assert "hunter2" in secrets(config)
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize("character", ["a", "A", "aB", " ", ";", "=", "a=", "a ", "1", ":", "-", "a;b=", "://"])
def test_a_file_s_worth_of_anything_is_looked_through(character: str) -> None:
    value = (character * MAX_FILE)[:MAX_FILE]
    config = config_of({"mcpServers": {"s": {"command": "x", "args": [value], "env": {"TOKEN": value}}}})
    assert value in secrets(config)
    assert value not in doubtful(config)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"command": "x", "env": {"AWS_REGION": "us-east-1", "TOOLSETS": "repos,issues"}}, set()),
        ({"command": "x", "env": {"MODEL": "gpt-4o-2024-08-06"}, "args": ["${WORDS}"]}, set()),
        ({"command": "x", "env": {"DB_PASS": "sunshine", "API_KEY": "two words"}}, {"sunshine"}),
        ({"command": "x", "env": {"DB_PASSWORD": "sunshine1", "MODE": "sunshine1"}}, set()),
        (
            {"command": "x", "env": {"PASSPHRASE": "correct horse battery", "AUTH": "open sesame forever"}},
            set(),
        ),
        ({"command": "x", "args": ["--pwd", "sunshine", "--passphrase", "correct horse"]}, {"sunshine"}),
        (
            {"command": "x", "env": {"DB": "postgresql://postgres:postgres@h/d?schema=public&sslmode=require"}},
            {"postgres"},
        ),
        ({"url": "https://h?format=object&project=p1q2r3s4"}, set()),
        ({"url": "https://h?project=0b1f6a2c5d3e4f708a91&key=a1b2c3d4"}, set()),
        (
            {"command": "x", "env": {"CREDENTIALS": '{"type":"service_account","private_key":"a1b2c3d4"}'}},
            set(),
        ),
        ({"command": "x", "env": {"HIDDEN": "s3cr3t-0b1f6a"}}, set()),
        (
            {"url": "https://h?q=plainly", "headers": {"X-Region": "europe", "Authorization": "plainly"}},
            {"plainly"},
        ),
        ({"command": "x", "args": ["--api-key", "plainly"]}, {"plainly"}),
    ],
)
def test_words_are_in_doubt_and_only_words_are(entry: dict[str, object], words: set[str]) -> None:
    config = config_of({"mcpServers": {"s": entry}}, {"WORDS": "two words"})
    assert doubtful(config) == words
    assert doubtful(config) <= secrets(config)


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


def test_what_is_hidden_of_a_server_is_hidden_of_its_instances() -> None:
    redact = knowing(a={"env": {"TOKEN": "first-1"}})
    for name in ("a#12", "a@~/src/app", "a@"):
        assert redact.of(name) is redact.of("a")
        assert redact.of(name)("first-1") == HIDDEN


def test_of_the_tokens_of_a_servers_logins_the_latest_are_hidden() -> None:
    redact = Redactors()
    tokens = [f"token-{number:04}-of-a-login" for number in range(MAX_TOKENS + 1)]
    redact.hide_login("a", tokens[:1])
    redact.hide_login("b", ["another-0123-token"])
    for token in tokens:
        redact.hide_login("a", [token])
    assert redact(tokens[0]) == tokens[0]
    assert [redact(each) for each in (*tokens[1:], "another-0123-token")] == [HIDDEN] * (MAX_TOKENS + 1)
