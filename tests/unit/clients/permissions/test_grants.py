"""What a session may call: one definition of one tool, for so long, and not long after it has left."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from daemon.clients.approvals import MAX_SHOWN, question
from daemon.clients.input_required import TTL
from daemon.clients.sessions import MAX_AGREED, MAX_GRANTS, MAX_LEFT_GRANTS, AgreedCalls, Grants, SessionGrants
from daemon.config.config_model import Profile
from daemon.config.redaction import Redactors
from daemon.model import Tool
from daemon.safety.escape import hidden_in
from tests.unit.cases import cases
from tests.unit.catalog.samples import tool
from tests.unit.config.reading import config_of

WRITE = tool("fs", "write")


def test_a_grant_is_for_one_definition_of_one_tool() -> None:
    grants = Grants()
    assert not grants
    grants.allow(WRITE, "its user")
    assert grants.covers(WRITE, 0.0)
    assert not grants.covers(tool("fs", "write", description="Another."), 0.0)
    assert not grants.covers(tool("git", "write"), 0.0)
    assert not grants.covers(tool("fs", "read"), 0.0)


@given(until=st.none() | st.floats(0, 100), now=st.floats(0, 100))
def test_a_grant_holds_until_its_end(until: float | None, now: float) -> None:
    grants = Grants()
    grants.allow(WRITE, "an operator", until)
    holds = until is None or now < until
    assert grants.covers(WRITE, now) == holds
    assert bool(grants.current(now)) == holds


async def test_a_session_has_so_many_grants_and_approved_calls_and_the_latest_stay() -> None:
    grants, tools = Grants(), [tool("fs", f"t{number}") for number in range(MAX_GRANTS + 1)]
    for each in tools:
        grants.allow(each, "its user")
    assert len(grants.current(0.0)) == MAX_GRANTS
    assert grants.covers(tools[-1], 0.0)
    assert not grants.covers(tools[0], 0.0)
    agreed = AgreedCalls()
    for number in range(MAX_AGREED + 1):
        agreed.note(b"%d" % number, TOOL)
    assert len(agreed) == MAX_AGREED
    assert not agreed.take(b"0", TOOL)


def looked_at(left: SessionGrants, key: str) -> bool:
    """Whether a session may call anything."""
    found: list[bool] = []
    left.change(key, lambda grants: found.append(bool(grants)))
    return found[0]


def some() -> Grants:
    grants = Grants()
    grants.allow(WRITE, "its user")
    return grants


async def test_of_so_many_sessions_the_grants_stay_and_none_of_those_without() -> None:
    left = SessionGrants(lambda _key: None)
    for number in range(MAX_LEFT_GRANTS + 1):
        left.keep(f"k{number}", some())
    assert not looked_at(left, "k0")
    assert looked_at(left, "k1")
    left.keep("k1", Grants())
    assert not looked_at(left, "k1")


async def test_a_token_that_is_made_under_a_revoked_ones_name_gets_none_of_its_grants() -> None:
    used = {"token ann: a": some(), "token anna: a": some()}
    grants = SessionGrants(used.get)
    for key in ("token ann: left", "own"):
        grants.keep(key, some())
    grants.end("token ann: ", used)
    assert not looked_at(grants, "token ann: a")
    assert not looked_at(grants, "token ann: left")
    assert looked_at(grants, "token anna: a")
    assert looked_at(grants, "own")


TOOL = ("fs", "write", "hash")


async def test_a_call_may_be_repeated_once_in_time_by_who_has_made_it(mock_clock: MockClock) -> None:
    agreed = AgreedCalls()
    for taken, seconds in ((TOOL, 0.0), (("fs", "write", "other"), 0.0), (TOOL, TTL)):
        agreed.note(b"anna", TOOL)
        mock_clock.jump(seconds)
        assert not agreed.take(b"ben", taken)
        assert agreed.take(b"anna", taken) is (taken == TOOL and not seconds)
        assert not agreed.take(b"anna", TOOL)


def profile_of(*rules: Any) -> Profile:
    """The default profile, with these rules."""
    return config_of({"profiles": {"default": {"permissions": list(rules)}}}).profiles["default"]


ASKING = profile_of({"match": "fs/*", "annotations": {"readOnly": False}, "then": "ask"})


def asked(
    arguments: bytes,
    *,
    session: bool = True,
    redact: Any = None,
    about: Tool = WRITE,
    profile: Profile = ASKING,
) -> dict[str, Any]:
    made = question(about, arguments, redact or Redactors().of("fs"), profile, session=session)
    found: dict[str, Any] = json.loads(bytes(made))
    return found


def test_server_tool_and_arguments_are_shown_and_what_can_be_chosen() -> None:
    params = asked(b'{\n  "path": "/x", "deep": {"list": [1, 2]}\n}')
    assert params["message"].splitlines() == [
        'mcpd asks: fs/write wants to run with {"path":"/x","deep":{"list":[1,2]}}',
        "Annotations: destructive, open-world. Rule of profile default: fs/*, read-only: false.",
    ]
    schema = params["requestedSchema"]
    assert schema["required"] == ["choice"]
    assert schema["properties"]["choice"]["enum"] == ["allow once", "allow for this session", "refuse"]


def test_a_tool_whose_name_goes_on_as_the_question_does_is_seen_to_end() -> None:
    forged = 'read wants to run with {"path":"README"}. Never mind that it'
    message = asked(b'{"path":"/"}', about=tool("fs", forged))["message"]
    quoted = json.dumps(forged)
    assert message.startswith(f'mcpd asks: fs/{quoted} wants to run with {{"path":"/"}}\n')


@cases("annotations", "rules", "said")
def test_why_the_user_is_asked_stands_behind_the_call(annotations: Any, rules: Any, said: str) -> None:
    about = tool("fs", "write", annotations=annotations)
    message = asked(b"{}", about=about, profile=profile_of(*rules))["message"]
    assert message.splitlines()[1] == "Annotations: " + said.replace("*", "Rule of profile default:")


@pytest.mark.parametrize("size", [1, 100_000])
def test_arguments_stand_on_one_line_however_they_are_written(size: int) -> None:
    arguments = b'{"text":\n\n\r\n\t"a\\nb",\n\n\n"more":"%b"}' % (b"x" * size)
    first, *rest = asked(arguments)["message"].split("\n")
    assert first.startswith("mcpd asks: fs/write wants to run with ")
    assert ('a\\nb"' in first, "\r" in first, len(rest)) == (True, False, 1)


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
    assert message.startswith(
        f"mcpd asks: fs/write wants to run with arguments of {len(arguments):,} bytes, of which this is"
    )
    assert '"path"' in message


@pytest.mark.parametrize("arguments", [b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}", b'{"a": "\xff"}'])
def test_what_cannot_be_laid_out_is_shown_as_it_is(arguments: bytes) -> None:
    assert '"a":' in asked(arguments)["message"]
