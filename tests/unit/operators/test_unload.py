"""What an operator takes away from which session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from daemon.catalog.loaded import Loaded, LoadedTool, SessionRecord, Source
from daemon.errors import InvalidArguments
from daemon.operators.session_changes import UnloadParams, unload
from daemon.state.health import Condition, Persistence
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import SESSION, FakeArchive, FakeSession, clients_of, operator_context

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from daemon.model import ToolKey

ONE, SLASHED = ("alpha", "one"), ("alpha", "a/b")
LOADED = Loaded(
    {key: LoadedTool(key=key, schema_hash="h", epoch=1, source=Source.MANUAL, at=0.0) for key in (ONE, SLASHED)}
)


class Daemon:
    """A stored session `kept`, and connection 3, which has a session of its own."""

    def __init__(self) -> None:
        self.unloaded: list[tuple[Hashable, list[ToolKey]]] = []
        self.works = True
        live = FakeSession(attrs.evolve(SESSION, key=None, own=LOADED, identity="the third's"))
        self.archive = FakeArchive([SessionRecord(key="kept", loaded=LOADED)])
        self.context = operator_context(
            Stage(), archive=self.archive, clients=clients_of(live, unload=self._unload)
        )

    async def _unload(self, identity: Hashable, keys: Collection[ToolKey]) -> bool:
        self.unloaded.append((identity, [*keys]))
        return self.works


@pytest.mark.parametrize("word", ["alpha/one", "mcp__alpha__one"])
async def test_a_tool_leaves_a_session(word: str) -> None:
    daemon = Daemon()
    answer = await unload(daemon.context, UnloadParams("kept", word))
    assert answer == {"session": "kept", "unloaded": ["alpha/one"], "note": ""}
    assert daemon.unloaded == [("kept", [ONE])]


@pytest.mark.parametrize("session", ["3", "#3"])
async def test_a_connection_is_named_by_its_number(session: str) -> None:
    daemon = Daemon()
    answer = await unload(daemon.context, UnloadParams(session, "alpha/a/b"))
    assert (answer["session"], daemon.unloaded) == ("#3", [("the third's", [SLASHED])])


async def test_everything_leaves_a_session() -> None:
    daemon = Daemon()
    answer = await unload(daemon.context, UnloadParams("3"))
    assert answer["unloaded"] == ["alpha/one", "alpha/a/b"]


async def test_it_is_said_when_the_store_does_not_take_it() -> None:
    daemon = Daemon()
    daemon.works = False
    daemon.archive.persistence.set(Persistence(state=Condition.DEGRADED, reason="the disk is full"))
    answer = await unload(daemon.context, UnloadParams("3"))
    assert answer["note"] == "it is back if mcpd ends now: the disk is full"


@pytest.mark.parametrize(
    ("session", "tool", "reason"),
    [
        ("kept", "alpha/oen", "has not loaded 'alpha/oen'. Did you mean alpha/one"),
        ("nobody", None, "no session is named 'nobody'"),
    ],
)
async def test_what_is_not_there_is_refused(session: str, tool: str | None, reason: str) -> None:
    daemon = Daemon()
    with pytest.raises(InvalidArguments, match=reason):
        await unload(daemon.context, UnloadParams(session, tool))
    assert daemon.unloaded == []
