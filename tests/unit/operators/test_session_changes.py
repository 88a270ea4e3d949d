"""What an operator lets a session call: tools that ask, in sessions that there are, for so long."""

from collections.abc import Collection, Hashable
from typing import Any

import attrs
import pytest
import trio

from daemon.catalog.loaded import Loaded, LoadedTool, SessionRecord, Source
from daemon.clients.sessions import Grants, SessionState
from daemon.errors import InvalidArguments
from daemon.model import ToolKey
from daemon.operators import session_commands
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.operators.stage import SESSION, FakeArchive, FakeSession, clients_of, operator_context

ASKS: dict[str, Any] = {"permissions": [{"match": "alpha/*", "then": "ask"}]}
PROFILES = {"default": ASKS, "open": {}, "review": {"surface": "search"}}


ONE, SLASHED = ("alpha", "one"), ("alpha", "a/b")
LOADED = Loaded(
    {key: LoadedTool(key=key, schema_hash="h", epoch=1, source=Source.MANUAL, at=0.0) for key in (ONE, SLASHED)}
)


def connection(number: int, key: str | None = None, **more: Any) -> FakeSession:
    return FakeSession(attrs.evolve(SESSION, number=number, key=key, **{"own": SessionState(None), **more}))


class Daemon:
    """Connections, sessions that are kept or in use, and what an operator changes of them."""

    def __init__(self, *live: FakeSession) -> None:
        self.one, self.open = connection(4), connection(5, profile="open")
        third = connection(3, own=SessionState("the third's", LOADED))
        self.grants = {key: Grants() for key in ("12", "kept")}
        self.moves: dict[str, str] = {}
        self.unloaded: list[tuple[Hashable, list[ToolKey]]] = []
        self.stage = Stage(profiles=PROFILES)
        self.archive = FakeArchive([SessionRecord(key="kept", loaded=LOADED)])
        clients = clients_of(
            *(self.one, self.open, third, connection(6, "12"), *live),
            in_use=[(SessionRecord(key=key, loaded=Loaded()), 1) for key in ("12", "shared")],
            moves=self.moves,
            grants=self.grants,
            unload=self._unload,
        )
        self.context = operator_context(self.stage, archive=self.archive, clients=clients)

    async def _unload(self, identity: Hashable, keys: Collection[ToolKey]) -> bool:
        self.unloaded.append((identity, [*keys]))
        return await self.archive.kept()

    async def allow(self, session: str, tool: str | None = None, **more: Any) -> dict[str, Any]:
        params = session_commands.AllowParams(session=session, tool=tool, **more)
        return await session_commands.allow(self.context, params)

    async def move(self, key: str, profile: str) -> dict[str, object]:
        return await session_commands.move(self.context, session_commands.MoveParams(key, profile))

    async def unload(self, key: str, tool: str | None = None) -> dict[str, Any]:
        return await session_commands.unload(self.context, session_commands.UnloadParams(key, tool))

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
    assert daemon.covers(daemon.one.facts.own.grants)
    assert not daemon.covers(daemon.one.facts.own.grants, "add")


@pytest.mark.parametrize("key", ["12", "kept"])
async def test_a_session_with_a_key_is_allowed_it_in_use_or_not(key: str) -> None:
    daemon = Daemon()
    assert (await daemon.allow(key, "alpha/*"))["session"] == key
    assert daemon.covers(daemon.grants[key])
    assert daemon.covers(daemon.grants[key], "add")
    assert not daemon.one.facts.own.grants


async def test_it_ends_when_it_was_to_end(mock_clock: trio.testing.MockClock) -> None:
    daemon = Daemon()
    answer = await daemon.allow("4", "alpha/echo", seconds=60.0)
    assert answer["allowed"] == [{**ECHO, "seconds": 60}]
    mock_clock.jump(61)
    assert not daemon.covers(daemon.one.facts.own.grants)
    assert (await daemon.allow("4"))["allowed"] == []


async def test_what_is_allowed_is_listed_and_revoked() -> None:
    daemon = Daemon()
    await daemon.allow("4", "alpha/*")
    assert [each["tool"] for each in (await daemon.allow("4"))["allowed"]] == ["alpha/echo", "alpha/add"]
    assert (await daemon.allow("4", "echo", revoke=True))["changed"] == ["alpha/echo"]
    assert not daemon.covers(daemon.one.facts.own.grants)
    assert daemon.covers(daemon.one.facts.own.grants, "add")
    assert (await daemon.allow("4", revoke=True))["allowed"] == []


@cases("session", "tool", "more", "said")
async def test_what_cannot_be_allowed_is_refused_with_why(
    session: str, tool: str, more: dict[str, float], said: str
) -> None:
    daemon = Daemon()
    with pytest.raises(InvalidArguments) as caught:
        await daemon.allow(session, tool, **more)
    assert said in str(caught.value)
    assert not daemon.one.facts.own.grants


async def test_who_allowed_what_is_logged(logged: list[str]) -> None:
    await Daemon().allow("4", "alpha/echo")
    assert logged == ["an operator says: session #4 may call alpha/echo from now on"]


async def test_all_connections_of_a_key_are_moved_and_later_ones_find_out() -> None:
    live = connection(21, "a"), connection(22, "b"), connection(23, "a"), connection(24)
    daemon = Daemon(*live)
    assert await daemon.move("a", "review") == {"key": "a", "number": None, "profile": "review", "moved": 2}
    assert [each.profiles for each in live] == [["review"], [], ["review"], []]
    assert (daemon.moves.get("a"), daemon.moves.get("b")) == ("review", None)
    await daemon.move("#24", "review")
    assert [each.profiles for each in live] == [["review"], [], ["review"], ["review"]]
    assert (await daemon.move("kept", "review"))["moved"] == 0
    assert daemon.moves.get("kept") == "review"


async def test_no_more_moves_are_remembered_than_anybody_makes_and_the_last_of_a_session_counts() -> None:
    daemon = Daemon()
    daemon.moves |= {f"k{number}": "default" for number in range(session_commands.MAX_MOVED)}
    for profile in ("default", "review"):
        await daemon.move("kept", profile)
    assert len(daemon.moves) == session_commands.MAX_MOVED
    assert [daemon.moves.get(key) for key in ("k0", "k1", "kept")] == [None, "default", "review"]


@cases("key", "profile", "reason")
async def test_what_does_not_exist_moves_nobody(key: str, profile: str, reason: str) -> None:
    live = connection(21, "a")
    daemon = Daemon(live)
    with pytest.raises(InvalidArguments, match=reason):
        await daemon.move(key, profile)
    assert (live.profiles, daemon.moves.get(key)) == ([], None)


@pytest.mark.parametrize("word", ["alpha/one", "mcp__alpha__one"])
async def test_tools_leave_a_session_and_it_is_said_when_the_store_does_not_take_that(word: str) -> None:
    daemon = Daemon()
    answer = await daemon.unload("kept", word)
    assert answer == {"session": "kept", "unloaded": ["alpha/one"], "note": ""}
    assert daemon.unloaded == [("kept", [ONE])]
    daemon.archive.degrade("the disk is full")
    answer = await daemon.unload("3")
    assert answer["note"] == "this is undone if mcpd ends now: the disk is full"
    assert answer["unloaded"] == ["alpha/one", "alpha/a/b"]
    answer = await daemon.unload("#3", "alpha/a/b")
    assert (answer["session"], daemon.unloaded[-1]) == ("#3", ("the third's", [SLASHED]))


@cases("session", "tool", "reason")
async def test_what_is_not_there_is_refused(session: str, tool: str | None, reason: str) -> None:
    daemon = Daemon()
    with pytest.raises(InvalidArguments, match=reason):
        await daemon.unload(session, tool)
    assert daemon.unloaded == []
