"""What a user is shown before a call: all of it, as it would be sent, with nothing hidden and no secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.clients.permissions.questions import MAX_SHOWN, UserChoice, choice_in, question
from daemon.config.redaction import Redactors
from daemon.safety.escape import hidden_in
from tests.unit.catalog.samples import tool
from tests.unit.config.reading import config_of

WRITE = tool("fs", "write")


def asked(arguments: bytes, *, session: bool = True, redact: Any = None) -> dict[str, Any]:
    made = question(WRITE, arguments, redact or Redactors().of("fs"), session=session)
    found: dict[str, Any] = json.loads(bytes(made))
    return found


def test_server_tool_and_arguments_are_shown_and_what_can_be_chosen() -> None:
    params = asked(b'{"path":"/x","deep":{"list":[1,2]}}')
    assert params["message"].startswith("The tool write of the MCP server fs is to be called. Arguments:\n{\n")
    assert '"path": "/x",\n' in params["message"]
    schema = params["requestedSchema"]
    assert schema["required"] == ["choice"]
    assert schema["properties"]["choice"]["enum"] == ["allow once", "allow for this session", "refuse"]


def test_who_has_no_session_cannot_choose_one() -> None:
    schema = asked(b"{}", session=False)["requestedSchema"]
    assert schema["properties"]["choice"]["enum"] == ["allow once", "refuse"]


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_nothing_is_hidden_in_what_is_shown(arguments: dict[str, Any]) -> None:
    for written in (json.dumps(arguments), json.dumps(arguments, ensure_ascii=False)):
        message = asked(written.encode(errors="replace"))["message"]
        assert not hidden_in(message)


def test_a_member_that_stands_there_twice_is_shown_twice() -> None:
    message = asked(b'{"path":"/good","path":"/bad"}')["message"]
    assert "/good" in message
    assert "/bad" in message


def test_secrets_of_the_configuration_are_not_shown() -> None:
    redact, secret = Redactors(), "Xk9$mQ2!vL7#pR"
    redact.learn(config_of({"mcpServers": {"fs": {"command": "x", "env": {"API_KEY": secret}}}}))
    message = asked(json.dumps({"key": secret}).encode(), redact=redact.of("fs"))["message"]
    assert secret not in message
    assert "[redacted]" in message


@pytest.mark.parametrize("length", [MAX_SHOWN, 70_000, 3_000_000])
def test_long_arguments_are_cut_and_it_is_said_how_long_they_are(length: int) -> None:
    arguments = json.dumps({"path": "/x", "text": "y" * length}).encode()
    message = asked(arguments)["message"]
    assert len(message) < MAX_SHOWN + 300
    assert f"these are {len(arguments):,} bytes" in message
    assert '"path"' in message


@pytest.mark.parametrize("arguments", [b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}", b'{"a": "\xff"}'])
def test_what_cannot_be_laid_out_is_shown_as_it_is(arguments: bytes) -> None:
    assert '"a":' in asked(arguments)["message"]


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ({"action": "accept", "content": {"choice": "allow once"}}, UserChoice.ONCE),
        ({"action": "accept", "content": {"choice": "allow for this session"}}, UserChoice.SESSION),
        ({"action": "accept", "content": {"choice": "refuse"}}, UserChoice.REFUSE),
        ({"action": "decline"}, UserChoice.REFUSE),
        ({"action": "cancel", "content": {"choice": "allow once"}}, UserChoice.REFUSE),
        ({"action": "accept", "content": {"choice": "Allow once"}}, None),
        ({"action": "accept", "content": {"choice": 1}}, None),
        ({"action": "accept", "content": None}, None),
        ({"action": "accept"}, None),
        ({"content": {"choice": "allow once"}}, None),
        ([], None),
    ],
)
def test_only_what_was_offered_counts_as_chosen(answer: Any, choice: UserChoice | None) -> None:
    assert choice_in(json.dumps(answer).encode()) is choice
