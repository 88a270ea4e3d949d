"""What leaves a session at an operator's word: in use or kept, told to its clients, and stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.catalog.loaded import Loaded, LoadedTool, SessionRecord, Source
from daemon.clients.sessions import Sessions, unload
from tests.fakes_upstream import Stage

if TYPE_CHECKING:
    from daemon.model import ToolKey

ONE, TWO = ("alpha", "one"), ("alpha", "two")


def loaded(*keys: ToolKey) -> Loaded:
    return Loaded(
        {
            key: LoadedTool(key=key, schema_hash="h", epoch=1, source=Source.MANUAL, at=float(place))
            for place, key in enumerate(keys)
        }
    )


@attrs.define
class FakeMemory:
    """Keeps records; what another daemon has written shows with a look."""

    records: dict[str, SessionRecord] = attrs.field(factory=dict)
    elsewhere: dict[str, SessionRecord] = attrs.field(factory=dict)
    shared: bool = True
    works: bool = True

    def keep(self, record: SessionRecord) -> None:
        self.records[record.key] = record

    def touch(self, key: str, at: float) -> None:
        """Nothing depends on it here."""

    async def kept(self, key: str) -> bool:
        return self.works and key in self.records

    async def recall(self, key: str) -> SessionRecord | None:
        return self.records.get(key)

    async def look(self) -> None:
        self.records |= self.elsewhere


def sessions_of(memory: FakeMemory) -> Sessions:
    return Sessions(Stage().catalog, memory, wall=lambda: 1.0)


async def test_a_session_in_use_loses_it_hears_of_it_and_is_stored() -> None:
    memory = FakeMemory({"k": SessionRecord(key="k", loaded=loaded(ONE, TWO))})
    sessions = sessions_of(memory)
    state = await sessions.recall("k")
    sessions.join(state, "client 1")
    heard: list[str] = []
    state.listen(lambda: heard.append("changed"), "owner")
    assert await unload(sessions, memory, "k", [ONE])
    assert ([*state.loaded.tools], heard) == ([TWO], ["changed"])
    assert [*memory.records["k"].loaded.tools] == [TWO]


async def test_a_session_without_a_key_loses_it_and_nothing_is_stored() -> None:
    memory = FakeMemory()
    sessions = sessions_of(memory)
    state, other = sessions.unnamed(), sessions.unnamed()
    for each in (state, other):
        each.become(loaded(ONE))
    assert await unload(sessions, memory, state.identity, [ONE])
    assert ([*state.loaded.tools], [*other.loaded.tools], memory.records) == ([], [ONE], {})


async def test_what_another_daemon_has_stored_is_looked_at_first() -> None:
    memory = FakeMemory(elsewhere={"k": SessionRecord(key="k", loaded=loaded(ONE, TWO))})
    assert await unload(sessions_of(memory), memory, "k", [TWO])
    assert [*memory.records["k"].loaded.tools] == [ONE]


async def test_it_says_when_that_is_not_on_disk() -> None:
    memory = FakeMemory({"k": SessionRecord(key="k", loaded=loaded(ONE))}, works=False)
    assert not await unload(sessions_of(memory), memory, "k", [ONE])


async def test_what_is_not_loaded_changes_nothing_and_nobody_is_told() -> None:
    memory = FakeMemory()
    sessions = sessions_of(memory)
    state = sessions.unnamed()
    state.listen(lambda: (_ for _ in ()).throw(AssertionError("told")), "owner")
    assert await unload(sessions, memory, state.identity, [ONE])
    assert await unload(sessions, memory, "nobody", [ONE])
