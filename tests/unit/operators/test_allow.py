"""What an operator lets a session call: tools that ask, in sessions that there are, for so long."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from loguru import logger

from daemon.catalog.loaded import Loaded, SessionRecord
from daemon.clients.grants import Grants
from daemon.errors import InvalidArguments
from daemon.operators.session_changes import AllowParams, allow
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import SESSION, FakeArchive, FakeSession, clients_of, operator_context

PROFILES: dict[str, Any] = {
    "default": {"permissions": [{"match": "alpha/*", "then": "ask"}]},
    "open": {},
}


class Daemon:
    """A connection, sessions with keys, and what each may call."""

    def __init__(self) -> None:
        self.one = FakeSession(attrs.evolve(SESSION, grants=Grants(), number=4, key=None))
        self.open = FakeSession(attrs.evolve(SESSION, grants=Grants(), number=5, key=None, profile="open"))
        self.keyed = FakeSession(attrs.evolve(SESSION, grants=Grants(), number=6, key="12"))
        self.grants = {key: Grants() for key in ("12", "kept")}
        self.stage = Stage(profiles=PROFILES)
        kept, used = (SessionRecord(key=key, loaded=Loaded()) for key in ("kept", "12"))
        self.context = operator_context(
            self.stage,
            archive=FakeArchive([kept]),
            clients=clients_of(self.one, self.open, self.keyed, in_use=[(used, 1)], grants=self.grants),
        )

    async def allow(self, session: str, tool: str | None = None, **more: Any) -> dict[str, Any]:
        return await allow(self.context, AllowParams(session=session, tool=tool, **more))

    def covers(self, grants: Grants, name: str = "echo") -> bool:
        tools = self.stage.catalog.value.servers["alpha"].tools
        assert tools is not None
        return grants.covers(tools[name], trio.current_time())


ECHO = {"tool": "alpha/echo", "by": "an operator", "seconds": None}


@pytest.mark.parametrize("session", ["4", "#4"])
@pytest.mark.parametrize("tool", ["alpha/echo", "echo", "mcp__alpha__echo", "alpha__echo", "alpha/e*", "/^ec/"])
async def test_a_connection_is_allowed_a_tool_in_any_spelling(session: str, tool: str) -> None:
    daemon = Daemon()
    answer = await daemon.allow(session, tool)
    assert answer == {"session": "#4", "changed": ["alpha/echo"], "allowed": [ECHO]}
    assert daemon.covers(daemon.one.facts.grants)
    assert not daemon.covers(daemon.one.facts.grants, "add")


@pytest.mark.parametrize("key", ["12", "kept"])
async def test_a_session_with_a_key_is_allowed_it_in_use_or_not(key: str) -> None:
    daemon = Daemon()
    assert (await daemon.allow(key, "alpha/*"))["session"] == key
    assert daemon.covers(daemon.grants[key])
    assert daemon.covers(daemon.grants[key], "add")
    assert not daemon.one.facts.grants


async def test_it_ends_when_it_was_to_end(mock_clock: trio.testing.MockClock) -> None:
    daemon = Daemon()
    answer = await daemon.allow("4", "alpha/echo", seconds=60.0)
    assert answer["allowed"] == [{**ECHO, "seconds": 60}]
    mock_clock.jump(61)
    assert not daemon.covers(daemon.one.facts.grants)
    assert (await daemon.allow("4"))["allowed"] == []


async def test_what_is_allowed_is_listed_and_revoked() -> None:
    daemon = Daemon()
    await daemon.allow("4", "alpha/*")
    assert [each["tool"] for each in (await daemon.allow("4"))["allowed"]] == ["alpha/echo", "alpha/add"]
    assert (await daemon.allow("4", "echo", revoke=True))["changed"] == ["alpha/echo"]
    assert not daemon.covers(daemon.one.facts.grants)
    assert daemon.covers(daemon.one.facts.grants, "add")
    assert (await daemon.allow("4", revoke=True))["allowed"] == []


@pytest.mark.parametrize(
    ("session", "tool", "more", "said"),
    [
        ("4", "beta/echo", {}, "is no tool that the user of session #4 is asked about"),
        ("4", "alpha/ecko", {}, "alpha/echo"),
        ("5", "alpha/echo", {}, "It asks about none"),
        ("4", "", {}, "an empty pattern"),
        ("4", "/(/", {}, "does not compile"),
        ("4", "alpha/echo", {"seconds": 0.0}, "not between"),
        ("4", "alpha/echo", {"seconds": 1e9}, "not between"),
        ("4", "alpha/echo", {"seconds": float("nan")}, "not between"),
        ("99", "alpha/echo", {}, "`mcpd connect --session KEY` gives a client a name that stays"),
        ("nobody", None, {}, "no session is named 'nobody'"),
    ],
)
async def test_what_cannot_be_allowed_is_refused_with_why(
    session: str, tool: str, more: Any, said: str
) -> None:
    daemon = Daemon()
    with pytest.raises(InvalidArguments) as caught:
        await daemon.allow(session, tool, **more)
    assert said in str(caught.value)
    assert not daemon.one.facts.grants


async def test_who_allowed_what_is_logged() -> None:
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="INFO")
    try:
        await Daemon().allow("4", "alpha/echo")
    finally:
        logger.remove(sink)
    assert lines == ["an operator says: session #4 may call alpha/echo from now on"]
