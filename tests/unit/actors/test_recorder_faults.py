"""A store that fails, hangs or is taken away costs time, and nothing else."""

import attrs
import pytest
import trio
from trio.testing import MockClock

from daemon.actors.recorder import FINISH_SECONDS, OPERATION_SECONDS
from daemon.catalog.loaded import Loaded, SessionRecord
from daemon.facts import ServerRecord, Switched
from daemon.history.event import Event, EventKind
from daemon.history.journal import History
from daemon.state import notes
from daemon.state.health import Condition
from daemon.state.sql import StoreCause, StoreFault
from tests.pairwise import each_once
from tests.unit.actors.recording import START, Stage, begin, life, session, settled, tools_of
from tests.unit.state.scripted_store import Disk, calm
from tests.waiting import until

LONG = 400.0
"""Seconds after which every try is due, however slowly it is repeated."""


async def try_until_written(stage: Stage, clock: MockClock) -> None:
    recorder = stage.recorder
    while stage.degraded:
        await until(lambda: not stage.degraded or (recorder._retry_at or 0.0) > trio.current_time())
        if stage.degraded:
            failures = recorder._health.failures
            clock.jump(LONG)
            await until(lambda: not stage.degraded or recorder._health.failures > failures)  # noqa: B023
    await stage.written()


async def another_try(stage: Stage, clock: MockClock, seconds: float) -> None:
    """After so many seconds another try is due, which fails, too."""
    before = stage.recorder._health.failures
    clock.jump(seconds)
    await until(lambda: stage.recorder._health.failures > before)


WRITING = [kind for kind in StoreCause if kind is not StoreCause.CORRUPT]


@pytest.mark.parametrize(("operation", "kind"), each_once(["check", "keep"], WRITING))
async def test_nothing_is_lost_when_writing_fails_and_status_says_why(
    disk: Disk, operation: str, kind: StoreCause, mock_clock: MockClock
) -> None:
    async with settled(disk) as stage:
        await stage.lists("a", "one")
        await stage.written()
        disk.fails(operation, kind)
        stage.recorder.keep(session("key", "one"))
        await stage.lists("a", "one", "two")
        stage.tell(Switched(off=frozenset({("b", "")})))
        await until(lambda: stage.degraded)
        assert not await stage.recorder.kept("key")
        shown = stage.recorder.persistence.value
        assert shown.cause is kind
        assert f"the test says so ({kind})" in shown.reason
        assert shown.waiting > 0
        stage.recorder.keep(session("key", "one", "two"))
        assert await stage.recorder.recall("key") == session("key", "one", "two")
        disk.works()
        await try_until_written(stage, mock_clock)
        assert disk.sessions["key"] == session("key", "one", "two")
        assert disk.servers["a"].epoch == 2
        assert disk.off == {("b", "")}
        assert stage.recorder.persistence.value.waiting == 0
    assert disk.open_stores == 0


@pytest.mark.parametrize(("operation", "kind"), each_once(["open", "recall"], list(StoreCause)))
async def test_a_store_that_does_not_open_is_said_and_opened_later(
    disk: Disk, operation: str, kind: StoreCause, mock_clock: MockClock
) -> None:
    async with life(begin(disk.open), disk) as stage:
        await stage.lists("a", "read")
        await stage.written()
    disk.fails(operation, kind)
    async with life(begin(disk.open), disk) as stage:
        assert stage.degraded
        assert f"the test says so ({kind})" in stage.reason
        stage.recorder.keep(session("key", "read"))
        assert not await stage.recorder.kept("key")
        with pytest.raises(StoreFault, match="the test says so"):
            await stage.recorder.recall("other")
        assert [each.key for each in await stage.recorder.sessions(10)] == ["key"]
        disk.works()
        await try_until_written(stage, mock_clock)
        assert list(tools_of(stage.entry())) == ["read"]
        assert stage.entry().epoch == 1
        assert [fact.by_another for fact in stage.told if isinstance(fact, ServerRecord)] == [False]
        assert disk.sessions["key"] == session("key", "read")


async def test_what_servers_list_while_no_store_was_ever_opened_is_counted_at_once(disk: Disk) -> None:
    disk.fails("open", StoreCause.MISCONFIGURED)
    async with life(begin(disk.open), disk, finish=False) as stage:
        # The server, and the name that its tool was given.
        await stage.lists("a", "one")
        await until(lambda: stage.recorder.persistence.value.waiting == 2)
        await stage.lists("b", "two")
        await until(lambda: stage.recorder.persistence.value.waiting == 4)


async def test_tries_are_repeated_more_and_more_slowly_and_logged_once(
    disk: Disk, mock_clock: MockClock, logged: list[str]
) -> None:
    async with life(begin(disk.open, rng=lambda: 1.0), disk) as stage:
        await stage.written()
        disk.fails("keep", StoreCause.FULL)
        stage.recorder.keep(session("key"))
        await until(lambda: stage.degraded)
        for delay in (1, 2, 4, 8, 16, 30, 30):
            tries = disk.asked["keep"]
            mock_clock.jump(delay - 0.01)
            await trio.testing.wait_all_tasks_blocked()
            assert disk.asked["keep"] == tries
            await another_try(stage, mock_clock, 0.011)
            assert disk.asked["keep"] == tries + 1
        disk.works()
        await try_until_written(stage, mock_clock)
    for said in ("the test says so", "works again"):
        assert len([line for line in logged if said in line]) == 1


@pytest.mark.parametrize("kind", [StoreCause.NEWER_SCHEMA, StoreCause.MISCONFIGURED])
async def test_what_only_an_operator_can_mend_is_tried_slowly(
    disk: Disk, kind: StoreCause, mock_clock: MockClock
) -> None:
    disk.fails("open", kind)
    async with life(begin(disk.open), disk) as stage:
        assert stage.degraded
        mock_clock.jump(140)
        await trio.testing.wait_all_tasks_blocked()
        assert disk.asked["open"] == 1
        disk.works()
        mock_clock.jump(20)
        await stage.written()


async def test_what_is_kept_open_can_still_be_read(disk: Disk) -> None:
    disk.sessions["old"] = session("old", "read")
    async with settled(disk) as stage:
        disk.fails("keep", StoreCause.FULL)
        stage.recorder.keep(session("key"))
        await until(lambda: stage.degraded)
        assert await stage.recorder.recall("old") == session("old", "read")
        assert {each.key for each in await stage.recorder.sessions(10)} == {"old", "key"}


async def test_while_a_shared_store_is_away_what_is_known_of_a_session_is_said_and_nothing_is_lost(
    disk: Disk, mock_clock: MockClock
) -> None:
    disk.sessions["k"] = session("k", "read")
    async with life(begin(disk.open, shared=True), disk) as stage:
        await stage.written()
        assert await stage.recorder.recall("k") == session("k", "read")
        disk.fails("session", StoreCause.UNAVAILABLE)
        disk.fails("changes_since", StoreCause.UNAVAILABLE)
        disk.fails("open", StoreCause.UNAVAILABLE)
        # Another daemon may have written it since: what comes of this is joined with what is stored.
        found = await stage.recorder.recall("k")
        assert found == attrs.evolve(session("k", "read"), partial=True)
        stage.recorder.keep(attrs.evolve(session("k", "read", "write"), partial=True))
        assert await stage.recorder.recall("k") == attrs.evolve(session("k", "read", "write"), partial=True)
        with pytest.raises(StoreFault):
            await stage.recorder.recall("other")
        disk.sessions["k"] = session("k", "read", "third")
        await until(lambda: stage.degraded)
        disk.works()
        mock_clock.jump(60)
        await stage.written()
        assert {tool for _server, tool in disk.sessions["k"].loaded.tools} == {"read", "write", "third"}


async def test_a_store_that_was_removed_is_begun_anew_with_everything_that_is_known(
    disk: Disk, logged: list[str]
) -> None:
    disk.sessions["recalled"] = session("recalled", "read")
    async with life(begin(disk.open), disk) as stage:
        await stage.lists("a", "read")
        stage.recorder.keep(session("kept", "read"))
        stage.tell(Switched(off=frozenset({("b", "x")})))
        await stage.registry.settle()
        await stage.written()
        await stage.recorder.recall("recalled")
        disk.wipe()
        disk.fails_once("check", StoreCause.LOST)
        stage.recorder.keep(session("new", "read"))
        assert await stage.recorder.kept("new")
        await stage.written()
        assert set(disk.sessions) == {"recalled", "kept", "new"}
        assert disk.servers["a"].epoch == 1
        assert disk.off == {("b", "x")}
        shown = stage.recorder.persistence.value
        assert shown.state is Condition.OK
        assert "gone" in shown.reason
        assert stage.registry.catalog.value.switched == {("b", "x")}
    assert any("is gone" in line for line in logged)
    assert disk.open_stores == 0


@pytest.mark.parametrize("cause", [StoreCause.LOST, StoreCause.UNAVAILABLE], ids=["removed", "knows less"])
async def test_another_store_is_noticed_while_nothing_is_written(
    disk: Disk, cause: StoreCause, mock_clock: MockClock
) -> None:
    async with life(begin(disk.open), disk) as stage:
        await stage.lists("a", "read")
        stage.recorder.keep(session("key", "read"))
        await stage.written()
        disk.wipe()
        disk.fails_once("check", cause)
        mock_clock.jump(10.1)
        await until(lambda: stage.degraded or "a" in disk.servers)
        await try_until_written(stage, mock_clock)
        assert "a" in disk.servers
        assert "key" in disk.sessions


async def test_a_corrupt_store_is_set_aside_at_the_start(disk: Disk, logged: list[str]) -> None:
    disk.fails("open", StoreCause.CORRUPT)
    async with life(begin(disk.open, set_aside=disk.set_aside), disk) as stage:
        shown = stage.recorder.persistence.value
        assert shown.state is Condition.OK
        assert "renamed it to disk.corrupt-1" in shown.reason
        await stage.lists("a", "read")
        await until(lambda: "a" in disk.servers)
        await stage.written()
        assert "renamed it to disk.corrupt-1" in stage.reason
    assert any("renamed it to disk.corrupt-1" in line for line in logged)


@pytest.mark.parametrize("operation", ["check", "keep", "session"])
async def test_a_store_found_corrupt_in_use_is_set_aside_and_all_that_is_known_is_written(
    disk: Disk, operation: str
) -> None:
    async with life(begin(disk.open, set_aside=disk.set_aside), disk) as stage:
        await stage.lists("a", "read")
        stage.recorder.keep(session("kept", "read"))
        await stage.written()
        disk.fails(operation, StoreCause.CORRUPT)
        if operation == "session":
            with pytest.raises(StoreFault):
                await stage.recorder.recall("other")
            await until(lambda: disk.asides == 1)
        stage.recorder.keep(session("new", "read"))
        assert await stage.recorder.kept("new")
        await stage.written()
        assert set(disk.sessions) == {"kept", "new"}
        assert "a" in disk.servers
        assert disk.asides == 1
        assert "renamed it" in stage.reason
    assert disk.open_stores == 0


async def test_only_one_store_is_set_aside_in_a_life(disk: Disk, mock_clock: MockClock) -> None:
    async with life(begin(disk.open, set_aside=disk.set_aside), disk) as stage:
        await stage.written()
        disk.fails("keep", StoreCause.CORRUPT)
        stage.recorder.keep(session("key"))
        await until(lambda: disk.asides == 1)
        # Into the new one: what is being written cannot fail any more.
        await stage.written()
        disk.fails("keep", StoreCause.CORRUPT)
        stage.recorder.keep(session("key", "read"))
        await until(lambda: stage.degraded)
        for _ in range(3):
            await another_try(stage, mock_clock, LONG)
        assert disk.asides == 1
        assert "corrupt" in stage.reason


@pytest.mark.parametrize("error", [StoreCause.READ_ONLY, OSError("no room for a name")])
async def test_a_corrupt_store_that_cannot_be_set_aside_is_said(
    disk: Disk, error: StoreCause | Exception
) -> None:
    disk.fails("open", StoreCause.CORRUPT)
    disk.fails("set_aside", error)
    async with life(begin(disk.open, set_aside=disk.set_aside), disk) as stage:
        assert stage.degraded
        assert "cannot be set aside" in stage.reason


async def test_a_store_that_hangs_at_the_start_does_not_hold_the_daemon(
    disk: Disk, mock_clock: MockClock
) -> None:
    async with life(begin(disk.open), disk) as stage:
        await stage.lists("a", "read")
        await stage.written()
    disk.hangs("open")
    stage = begin(disk.open, patience=OPERATION_SECONDS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.recorder.open)
        await until(lambda: disk.asked["open"] == 2)
        mock_clock.jump(1.6)
    assert stage.degraded
    assert "has not answered" in stage.reason
    async with life(stage, disk, opened=True):
        with pytest.raises(StoreFault, match="has not answered"):
            await stage.recorder.recall("key")
        disk.goes_on()
        await stage.written()
        assert disk.asked["open"] == 2
        assert list(tools_of(stage.entry())) == ["read"]
        assert [fact.by_another for fact in stage.told if isinstance(fact, ServerRecord)] == [False]


async def test_who_waits_for_an_operation_that_hangs_waits_no_longer_than_the_bound(
    disk: Disk, mock_clock: MockClock
) -> None:
    async with (
        life(begin(disk.open, patience=OPERATION_SECONDS), disk) as stage,
        trio.open_nursery() as nursery,
    ):
        await stage.written()
        disk.hangs("keep")
        stage.recorder.keep(session("key", "read"))
        await until(lambda: disk.asked["keep"] > 1)
        answers: list[object] = []

        async def wait_kept() -> None:
            answers.append(await stage.recorder.kept("key"))

        async def wait_recalled() -> None:
            with pytest.raises(StoreFault, match="has not answered"):
                await stage.recorder.recall("other")
            answers.append("refused")

        nursery.start_soon(wait_kept)
        nursery.start_soon(wait_recalled)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(1.6)
        await until(lambda: len(answers) == 2)
        assert sorted(map(str, answers)) == ["False", "refused"]
        assert stage.degraded
        begun = disk.asked.total()
        for _ in range(5):
            mock_clock.jump(LONG)
            await trio.testing.wait_all_tasks_blocked()
        assert disk.asked.total() == begun, "a second operation was started beside the one that hangs"
        disk.goes_on()
        await stage.written()
        assert disk.sessions["key"] == session("key", "read")
        assert disk.asked["session"] == 0, "nobody waits for that answer any more"


async def test_a_store_that_hangs_does_not_keep_the_daemon_from_ending(
    disk: Disk, mock_clock: MockClock, logged: list[str]
) -> None:
    async with life(begin(disk.open, patience=OPERATION_SECONDS), disk, finish=False) as stage:
        await stage.written()
        disk.hangs("check")
        stage.recorder.keep(session("key", "read"))
        await until(lambda: disk.asked["check"] > 0)
        disk.hangs("keep")
        stuck, disk_hangs = stage, disk._hanging["check"]
        del disk._hanging["check"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stuck.recorder.finish)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(FINISH_SECONDS)
        disk_hangs.set()
    assert any("1 change could not be written to the store" in line for line in logged)


async def test_a_store_that_is_slow_gets_all_while_servers_stop(
    mock_clock: MockClock, logged: list[str]
) -> None:
    disk, stopped = Disk(), trio.Event()
    async with life(begin(disk.open, patience=OPERATION_SECONDS), finish=False) as slow:
        await slow.written()
    disk.hangs("keep")
    slow.recorder.keep(session("key", "read"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.recorder.finish, stopped.wait)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(FINISH_SECONDS - 0.5)
        disk.goes_on()
        await until(lambda: "key" in disk.sessions)
        stopped.set()
    assert disk.open_stores == 0
    assert not any("lost" in line for line in logged)


async def test_what_happened_and_is_not_written_is_counted_at_the_end(logged: list[str]) -> None:
    disk, history = Disk(), History(lambda: START)
    async with life(begin(disk.open, history=history), finish=False) as full:
        await full.written()
    disk.fails("keep", StoreCause.FULL)
    for _ in range(3):
        history.note(Event(kind=EventKind.READY, server="a"))
    full.recorder.keep(session("key", "read"))
    await full.recorder.finish()
    assert any("1 change and 3 events could not be written to the store" in line for line in logged)


async def test_many_new_events_are_a_reason_to_forget_old_ones_at_once(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "CROWD", 3)
    disk, history = Disk(), History(lambda: START)
    async with life(begin(disk.open, history=history), disk) as stage:
        await stage.written()
        for _ in range(3):
            history.note(Event(kind=EventKind.READY, server="a"))
        await calm()
        mock_clock.jump(notes.GATHER_SECONDS)
        await until(lambda: disk.asked["forget_sessions"])


@pytest.mark.parametrize("operation", ["open", "check", "keep", "session"])
async def test_a_fault_of_our_own_is_contained(
    disk: Disk, operation: str, mock_clock: MockClock, logged: list[str]
) -> None:
    if operation == "open":
        disk.fails("open", ZeroDivisionError())
    async with life(begin(disk.open), disk) as stage:
        if operation != "open":
            await stage.written()
            disk.fails(operation, ZeroDivisionError())
        if operation == "session":
            with pytest.raises(StoreFault, match="in mcpd"):
                await stage.recorder.recall("key")
        else:
            stage.recorder.keep(session("key", "read"))
            await until(lambda: stage.degraded)
            assert "in mcpd" in stage.reason
        disk.works()
        stage.recorder.keep(session("key", "read"))
        await try_until_written(stage, mock_clock)
        assert "key" in disk.sessions
    assert any("internal error in mcpd" in line for line in logged)


async def test_a_registry_that_does_not_answer_holds_writing_and_nothing_else(
    disk: Disk, mock_clock: MockClock
) -> None:
    disk.off = {("a", "")}
    stage = begin(disk.open, patience=OPERATION_SECONDS)
    stage.settles = False
    async with life(stage, disk):
        await calm()
        mock_clock.jump(1.6)
        await until(lambda: stage.degraded)
        stage.settles = True
        await try_until_written(stage, mock_clock)
        assert disk.off == {("a", "")}


async def test_words_said_while_the_store_was_away_are_joined_with_those_in_it(
    disk: Disk, mock_clock: MockClock
) -> None:
    disk.off = {("a", "x")}
    disk.fails("open", StoreCause.LOCKED)
    async with life(begin(disk.open), disk) as stage:
        stage.tell(Switched(off=frozenset({("b", "y")})))
        await stage.registry.settle()
        disk.works()
        await try_until_written(stage, mock_clock)
        both = {("a", "x"), ("b", "y")}
        await until(lambda: disk.off == both)
        assert stage.registry.catalog.value.switched == both


async def test_a_session_of_this_life_is_known_while_the_store_is_away(
    disk: Disk, mock_clock: MockClock
) -> None:
    async with settled(disk) as stage:
        stage.recorder.keep(session("key", "read"))
        await stage.written()
        disk.fails("check", StoreCause.UNAVAILABLE)
        disk.fails("open", StoreCause.UNAVAILABLE)
        mock_clock.jump(10.1)
        await until(lambda: stage.degraded)
        assert await stage.recorder.recall("key") == session("key", "read")
        with pytest.raises(StoreFault):
            await stage.recorder.recall("other")


async def test_what_waits_is_bounded_and_what_is_dropped_is_counted(disk: Disk) -> None:
    disk.fails("open", StoreCause.LOCKED)
    async with life(begin(disk.open), disk) as stage:
        for number in range(notes.MAX_SESSIONS + 3):
            stage.recorder.keep(SessionRecord(key=str(number), loaded=Loaded(), seen_at=START))
        shown = stage.recorder.persistence.value
        assert shown.waiting == notes.MAX_SESSIONS
        disk.works()
    assert "3 changes of sessions were dropped" in stage.reason
    assert len(disk.sessions) == notes.MAX_SESSIONS
    assert "2" not in disk.sessions
