"""What other clients write for a server is understood, and whatever is not is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config import client_keys
from daemon.config.config_model import Server
from daemon.config.structure import keys
from daemon.config.translation import translated


def entry_of(**entry: Any) -> dict[str, Any]:
    return dict(translated(entry).entry)


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"command": "x", "disabled": True}, {"command": "x", "enabled": False}),
        ({"command": "x", "isActive": True}, {"command": "x", "enabled": True}),
        ({"serverUrl": "https://h"}, {"url": "https://h"}),
        ({"server_url": "https://h"}, {"url": "https://h"}),
        ({"httpUrl": "https://h"}, {"url": "https://h", "type": "http"}),
        ({"type": "sse", "httpUrl": "https://h"}, {"url": "https://h", "type": "sse"}),
        ({"url": "https://h", "transport": "sse"}, {"url": "https://h", "type": "sse"}),
        ({"transport": {"type": "sse", "uri": "https://h"}}, {"type": "sse", "url": "https://h"}),
        ({"type": "remote", "url": "https://h"}, {"url": "https://h"}),
        (
            {"type": "local", "command": ["npx", "-y", "x"], "environment": {"A": "1"}},
            {"type": "stdio", "command": "npx", "args": ["-y", "x"], "env": {"A": "1"}},
        ),
        (
            {"command": {"path": "x", "args": ["a"], "env": {"A": "1"}}},
            {"command": "x", "args": ["a"], "env": {"A": "1"}},
        ),
        ({"cmd": "uvx", "envs": {}, "env_keys": ["K"]}, {"command": "uvx", "env": {"K": "${K}"}}),
        ({"command": "npx -y 'a b'", "args": ["c"]}, {"command": "npx", "args": ["-y", "a b", "c"]}),
        ({"command": "/opt/my server/run"}, {"command": "/opt/my server/run"}),
        ({"command": "x", "env": ["A=1=2"]}, {"command": "x", "env": {"A": "1=2"}}),
        (
            {"command": "x", "args": [1, True, "a"], "env": {"PORT": 3000, "DEBUG": False}},
            {"command": "x", "args": ["1", "true", "a"], "env": {"PORT": "3000", "DEBUG": "false"}},
        ),
        (
            {"http_headers": {"A": "1"}, "env_http_headers": {"B": "V"}, "bearer_token_env_var": "T"},
            {"headers": {"A": "1", "B": "${V}", "Authorization": "Bearer ${T}"}},
        ),
        ({"url": "u", "requestInit": {"headers": {"A": "1"}}}, {"url": "u", "headers": {"A": "1"}}),
        ({"url": "u", "apiKey": "${K}"}, {"url": "u", "headers": {"Authorization": "Bearer ${K}"}}),
        (
            {"url": "u", "oauth": {"clientId": "c", "callbackPort": 1, "scope": "a b"}},
            {"url": "u", "oauth": {"clientId": "c", "redirectPort": 1, "scopes": ["a", "b"]}},
        ),
        (
            {"url": "u", "auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "${S}", "scopes": ["a"]}},
            {"url": "u", "oauth": {"clientId": "c", "clientSecret": "${S}", "scopes": ["a"]}},
        ),
        ({"url": "u", "oauth": False}, {"url": "u", "oauth": False}),
        (
            {"headers": {"A": "$MY_TOKEN", "B": "{env:C}", "D": "{file:~/k}", "E": "a$B", "F": "${G}"}},
            {"headers": {"A": "${MY_TOKEN}", "B": "${C}", "D": "${file:~/k}", "E": "a$B", "F": "${G}"}},
        ),
    ],
)  # fmt: skip
def test_a_clients_entry_becomes_ours(entry: dict[str, Any], found: dict[str, Any]) -> None:
    made = translated(entry)
    assert made.entry == found
    assert not any(note.lost for note in made.notes)


@pytest.mark.parametrize(
    ("entry", "milliseconds", "timeouts"),
    [
        ({"timeout": 30}, None, {"call": 30}),
        ({"timeout": "30"}, None, {"call": 30}),
        ({"timeout": 30_000}, None, {"call": 30}),
        ({"timeout": 1800}, False, {"call": 1800, "callMax": 1800}),
        ({"timeout": 500}, True, {"call": 0.5}),
        ({"timeout": "5m"}, None, {"call": "5m"}),
        ({"type": "remote", "timeout": 5000}, None, {"list": 5}),
        ({"tool_timeout_sec": 1200}, True, {"call": 1200, "callMax": 1200}),
        ({"startup_timeout_ms": 20_000, "timeouts": {"call": 5}}, None, {"initialize": 20, "call": 5}),
        ({"initTimeout": 300}, None, {"initialize": 300, "firstInitialize": 300}),
    ],
)
def test_a_time_limit_has_its_clients_unit(
    entry: dict[str, Any], milliseconds: bool | None, timeouts: dict[str, Any]
) -> None:
    assert translated(entry, milliseconds=milliseconds).entry == {"timeouts": timeouts}


@pytest.mark.parametrize(
    ("entry", "key", "message"),
    [
        ({"disabled": True}, "disabled", 'understood as "enabled": false'),
        ({"autoApprove": []}, "autoApprove", "ignored: it says nothing"),
        ({"timeout": 30_000}, "timeout", "understood as `timeouts.call` of 30000 milliseconds"),
        ({"timeout": 30}, "timeout", "understood as `timeouts.call` of 30 seconds"),
        ({"env": {"PORT": 1, "KEY": "s3cr3t"}}, "env", "taken as text: PORT"),
        ({"args": [8, "a"]}, "args", "taken as text: number 1"),
        ({"headers": {"A": "{env:K}"}}, "headers", "understood as references: ${K}"),
        ({"_comment": "s3cr3t"}, "_comment", "ignored: a comment"),
    ],
)
def test_what_was_understood_is_said_in_a_line(entry: dict[str, Any], key: str, message: str) -> None:
    (note,) = translated(entry).notes
    assert (note.key, note.message, note.lost) == (key, message, False)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"alwaysAllow": ["a"]}, '"permissions" of a profile'),
        ({"disabledTools": ["a"]}, "mcpd chooses tools by category"),
        ({"url": "a", "serverUrl": "b"}, "ignored: `url` stands there, too, and counts more"),
        ({"timeout": 0}, "it must be more than 0"),
        ({"timeout": 5, "timeouts": {"call": 7}}, "`timeouts.call` counts more"),
        ({"envFile": "${workspaceFolder}/.env"}, "before a client is there"),
        ({"requestInit": {"headers": {}, "mode": "cors"}}, "mcpd has nothing for it"),
    ],
)
def test_what_could_not_be_taken_is_said_to_be_lost(entry: dict[str, Any], message: str) -> None:
    (note,) = [note for note in translated(entry).notes if note.lost]
    assert message in note.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
ENTRIES = st.dictionaries(
    st.sampled_from(
        [*(key for meant in client_keys.table().server for key in meant.keys), *keys(Server), "oauth"]
    )
    | st.text(max_size=6),
    JSON,
    max_size=8,
)


@given(ENTRIES, st.none() | st.booleans())
def test_no_entry_is_too_odd_and_no_key_is_lost_silently(
    entry: dict[str, Any], milliseconds: bool | None
) -> None:
    before = json.dumps(entry)
    made = translated(entry, milliseconds=milliseconds)
    assert json.dumps(entry) == before
    noted = {note.key for note in made.notes}
    for key, value in entry.items():
        if key not in noted and not any(each.startswith((f"{key}.", f"{key}[")) for each in noted):
            kept = made.entry[key]
            # `null` says nothing, and an object may have been added to.
            assert kept == value or value is None or isinstance(value, dict)
    json.dumps(dict(made.entry))
