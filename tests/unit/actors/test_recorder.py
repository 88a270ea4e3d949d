"""What is written and what is told, with a store that works."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from daemon.actors.recorder import OBSERVE_SECONDS
from daemon.catalog.loaded import LoadedStatus, SessionRecord
from daemon.catalog.tool_results import Observed, Shape
from daemon.config.state_url import of_file, parse
from daemon.facts import Configured, DefinitionsListed, Switched
from daemon.model import Kind
from daemon.safety.redact import Redactor
from daemon.state.sql import StoreCause
from daemon.state.store import Store
from daemon.state.store_access import TrustedSwitches
from daemon.states import ServerState
from tests.unit.actors.recording import DAY, START, Stage, begin, life, session, settled, tools_of
from tests.unit.actors.test_recorder_shared import slack, two, url
from tests.unit.catalog.samples import listed, servers, tool
from tests.unit.config.reading import config_of
from tests.unit.state.postgres import postgres
from tests.unit.state.samples import definition
from tests.unit.state.scripted_store import Disk
from tests.waiting import background, beside, until


async def off(stage: Stage, *names: tuple[str, str]) -> None:
    stage.registry.tell(Switched(off=frozenset(names)))
    await stage.registry.settle()


def statuses(disk: Disk) -> list[LoadedStatus]:
    return [each.verdict.status for each in disk.sessions["key"].loaded.tools.values()]


async def test_everything_that_is_dirty_is_one_transaction(disk: Disk) -> None:
    async with settled(disk) as stage:
        disk.hangs("check")
        stage.recorder.keep(session("first", "read"))
        await until(lambda: disk.asked["check"] > 1)
        await stage.lists("a", "read")
        await stage.lists("b", "write")
        await off(stage, ("b", "write"))
        stage.recorder.keep(session("one", "read"))
        stage.recorder.keep(session("two", "read"))
        before = len(disk.written)
        disk.goes_on()
        await until(lambda: disk.off == {("b", "write")})
        last = disk.written[-1]
        assert len(disk.written) == before + 2
        assert [each.server for each in last.servers] == ["a", "b"]
        assert [each.key for each in last.sessions] == ["one", "two"]


async def test_what_was_counted_goes_on_in_the_next_life_and_is_written_with_the_rest(
    mock_clock: MockClock,
) -> None:
    disk, counted = Disk(), {"loads": 2}
    async with life(begin(disk.open, count=lambda: counted), disk) as stage:
        await stage.written()
        counted["loads"] = 3
        stage.recorder.keep(session("one", "read"))
        await until(lambda: disk.counted == {"loads": 3})
        counted["loads"] = 4
        checks = disk.asked["check"]
        mock_clock.jump(11)
        await until(lambda: disk.asked["check"] > checks)
        assert disk.counted == {"loads": 3}
        mock_clock.jump(61)
        await until(lambda: disk.counted == {"loads": 4})
        written = len(disk.written)
        counted["loads"] = 6
    assert disk.counted == {"loads": 6}
    assert len(disk.written) == written + 1
    async with life(begin(disk.open, count=lambda: {"loads": 1}), disk) as stage:
        assert stage.recorder.totals.known == {"loads": 7}
        await stage.written()
    assert disk.counted == {"loads": 7}


async def test_what_was_recalled_is_not_written_again_nor_taken_back(disk: Disk) -> None:
    async with life(begin(disk.open), disk) as stage:
        await stage.lists("a", "read")
        await off(stage, ("b", ""))
        await stage.written()
    disk.written.clear()
    async with settled(disk) as stage:
        await stage.lists("a", "read")
        stage.recorder.keep(session("key"))
        assert await stage.recorder.kept("key")
    assert not [each for batch in disk.written for each in batch.servers]
    assert disk.off == {("b", "")}


async def test_a_life_that_ends_at_once_takes_nothing_back(disk: Disk) -> None:
    async with life(begin(disk.open), disk) as stage:
        await off(stage, ("b", ""))
        await stage.written()
    stage = begin(disk.open)
    await stage.recorder.open()
    stage.recorder.keep(session("key"))
    await stage.recorder.finish()
    assert disk.off == {("b", "")}
    assert "key" in disk.sessions
    assert disk.open_stores == 0


@pytest.mark.parametrize("early", [True, False])
async def test_a_first_list_is_offered_once_the_store_was_read_whichever_comes_first(
    early: bool, disk: Disk
) -> None:
    stage = begin(disk.open, trust="changes")
    if early:
        stage.registry.tell(listed("a", "read"))
    else:
        disk.fails("open", StoreCause.UNAVAILABLE)
    async with life(stage, disk):
        if not early:
            await stage.lists("a", "read")
            assert list(tools_of(stage.entry())) == []
            disk.works()
            await stage.recorder.open()
            await stage.registry.settle()
        assert list(tools_of(stage.entry())) == ["read"]


async def test_a_server_that_only_comes_and_goes_is_not_written(disk: Disk) -> None:
    async with life(begin(disk.open), disk) as stage:
        await stage.becomes("b", ServerState.FAILED)
        await stage.lists("a", "read")
        await stage.written()
        assert disk.servers.keys() == {"a"}, "who has told nothing leaves no row"
        disk.written.clear()
        await stage.becomes("a", ServerState.BACKOFF)
        await stage.becomes("a", ServerState.READY)
        await stage.lists("a", "read")
        stage.recorder.keep(session("key"))
        assert await stage.recorder.kept("key")
        (batch,) = disk.written
        assert not batch.servers
        assert not batch.judged


async def test_of_what_is_kept_while_it_is_written_only_the_newest_follows(disk: Disk) -> None:
    async with settled(disk) as stage:
        disk.written.clear()
        disk.hangs("keep")
        stage.recorder.keep(session("key", "one"))
        await until(lambda: disk.asked["keep"] > 1)
        stage.recorder.keep(session("key", "one", "two"))
        stage.recorder.keep(session("key", "one", "two", "three"))
        disk.goes_on()
        assert await stage.recorder.kept("key")
        assert [len(each.loaded.tools) for batch in disk.written for each in batch.sessions] == [1, 3]


async def test_kept_is_said_once_it_is_on_disk_and_not_before(disk: Disk) -> None:
    async with life(begin(disk.open), disk) as stage, trio.open_nursery() as nursery:
        await stage.written()
        disk.hangs("keep")
        stage.recorder.keep(session("key", "read"))
        said: list[bool] = []

        async def ask() -> None:
            said.append(await stage.recorder.kept("key"))

        nursery.start_soon(ask)
        await until(lambda: disk.asked["keep"] > 1)
        assert said == []
        disk.goes_on()
        await until(lambda: said == [True])
        assert disk.sessions["key"] == session("key", "read")
        assert await stage.recorder.kept("nobody kept this")


async def test_a_session_is_recalled_as_it_was_kept_last(disk: Disk) -> None:
    disk.sessions["key"] = session("key", "old")
    async with settled(disk) as stage:
        assert await stage.recorder.recall("key") == session("key", "old")
        assert await stage.recorder.recall("unknown") is None
        disk.hangs("check")
        stage.recorder.keep(session("key", "new"))
        assert await stage.recorder.recall("key") == session("key", "new")
        disk.goes_on()


async def test_the_list_of_sessions_has_what_is_not_written_yet(disk: Disk) -> None:
    disk.sessions["old"] = session("old", at=START - 10)
    disk.sessions["key"] = session("key", at=START - 5)
    async with life(begin(disk.open), disk) as stage, trio.open_nursery() as nursery:
        await stage.written()
        disk.hangs("sessions")
        found: list[SessionRecord] = []

        async def ask() -> None:
            found.extend(await stage.recorder.sessions(10))

        nursery.start_soon(ask)
        await until(lambda: disk.asked["sessions"] == 1)
        stage.recorder.keep(session("key", "new", at=START))
        stage.recorder.keep(session("other", at=START - 1))
        stage.recorder.touch("old", START + 1)
        disk.goes_on()
        await until(lambda: bool(found))
        assert [each.key for each in found] == ["old", "key", "other"]
        assert found[1].loaded.tools
        assert [each.key for each in await stage.recorder.sessions(1)] == ["old"]


async def test_times_of_use_wait_for_a_minute_or_for_something_else_to_be_written(
    disk: Disk, mock_clock: MockClock
) -> None:
    disk.sessions["key"] = session("key")
    async with settled(disk) as stage:
        before = len(disk.written)
        stage.recorder.touch("key", START + 5)
        mock_clock.jump(11)
        await until(lambda: disk.asked["check"] > 1)
        assert len(disk.written) == before
        mock_clock.jump(50)
        await until(lambda: disk.sessions["key"].seen_at == START + 5)
        stage.recorder.touch("key", START + 6)
        stage.recorder.keep(session("other"))
        assert await stage.recorder.kept("other")
        assert disk.sessions["key"].seen_at == START + 6
        # A session that is kept and used is written with the later time.
        stage.recorder.touch("key", START + 7)
        stage.recorder.keep(session("key", "read"))
        assert await stage.recorder.kept("key")
        assert disk.sessions["key"].seen_at == START + 7
        assert not disk.written[-1].touched
    assert disk.asked["changes_since"] == 0, "a store of our own is not polled"


async def test_what_sessions_have_loaded_is_marked_when_the_server_changes_or_leaves(
    disk: Disk, logged: list[str]
) -> None:
    async with life(begin(disk.open), disk) as stage:
        await stage.lists("a", "read", "write")
        stage.recorder.keep(session("key", "read", "write"))
        await stage.written()
        await stage.lists("a", "write")
        await until(lambda: disk.servers["a"].epoch == 2)
        assert statuses(disk) == [LoadedStatus.INVALID_DELETED, LoadedStatus.VALID]
        await until(lambda: any("validity of loaded tools" in line for line in logged))
        stage.registry.tell(Configured(config=config_of({"mcpServers": servers("b")}), now=START))
        await until(lambda: set(statuses(disk)) == {LoadedStatus.INVALID_DELETED})
    disk.sessions["key"] = session("key", "read")
    async with life(begin(disk.open, "b"), disk) as stage:
        await stage.written()
        assert statuses(disk) == [LoadedStatus.INVALID_DELETED], "it left while the daemon was down"


async def test_an_epoch_that_the_store_knows_better_reaches_the_catalog(disk: Disk) -> None:
    disk.epochs["a"] = 7
    async with life(begin(disk.open), disk) as stage:
        await stage.lists("a", "read")
        await until(lambda: stage.entry().epoch == 7)
        writes = len(disk.written)
        stage.recorder.keep(session("key"))
        assert await stage.recorder.kept("key")
        assert len(disk.written) == writes + 1
        assert not disk.written[-1].servers


async def test_idle_sessions_are_forgotten_but_never_one_in_use(disk: Disk, mock_clock: MockClock) -> None:
    for key in ("idle", "used", "recent"):
        disk.sessions[key] = session(key, at=START - 31 * DAY)
    async with settled(disk) as stage:
        stage.live.add("used")
        stage.recorder.touch("recent", START)
        mock_clock.jump(601)
        stage.wall += 601
        await until(lambda: "idle" not in disk.sessions)
        assert set(disk.sessions) == {"used", "recent"}
        assert disk.sessions["used"].seen_at == START + 601


async def test_a_clock_that_was_set_ahead_does_not_forget_everything(
    disk: Disk, mock_clock: MockClock, logged: list[str]
) -> None:
    disk.sessions["key"] = session("key")
    async with settled(disk) as stage:
        stage.wall += 365 * DAY
        mock_clock.jump(601)
        await until(lambda: any("the clock was set" in line for line in logged))
        assert "key" in disk.sessions
        mock_clock.jump(601)
        stage.wall += 601
        await until(lambda: "key" not in disk.sessions)


async def test_a_session_that_comes_back_while_it_is_forgotten_is_kept(
    disk: Disk, mock_clock: MockClock
) -> None:
    disk.sessions["key"] = session("key", "read", at=START - 31 * DAY)
    async with settled(disk) as stage:
        assert await stage.recorder.recall("key") is not None
        disk.hangs("forget_sessions")
        mock_clock.jump(601)
        stage.wall += 601
        await until(lambda: disk.asked["forget_sessions"] == 1)
        stage.live.add("key")
        stage.recorder.touch("key", stage.wall)
        disk.goes_on()
        await until(
            lambda: disk.asked["forget_sessions"] == 1 and stage.recorder.persistence.value.waiting == 0
        )
        await stage.recorder.kept("key")
        assert disk.sessions["key"].loaded.tools


async def test_a_store_that_can_be_opened_at_the_end_gets_all_of_it(disk: Disk) -> None:
    disk.fails("open", StoreCause.MISCONFIGURED)
    async with life(begin(disk.open), disk, finish=False) as stage:
        await stage.lists("a", "read")
        await off(stage, ("b", ""))
        stage.recorder.keep(session("key", "read"))
        await until(lambda: stage.degraded)
        disk.works()
        # Whoever opens it just now is told at first that nothing is switched off.
        await stage.recorder.finish()
    assert set(disk.servers) == {"a", "b"}
    assert disk.off == {("b", "")}
    assert "key" in disk.sessions
    assert disk.open_stores == 0


async def test_rows_that_cannot_be_read_are_named_once(disk: Disk, logged: list[str]) -> None:
    disk.unreadable = ("tool a/read: raw is not bytes",)
    async with settled(disk):
        pass
    assert len([line for line in logged if "tool a/read: raw is not bytes" in line]) == 1


__all__ = ["postgres", "slack", "url"]

LISTED = {Kind.PROMPT: ["review"], Kind.RESOURCE: ["mem://1", "mem://2"], Kind.TEMPLATE: ["mem://{n}"]}


async def lists(stage: Stage, kind: Kind, *names: str, server: str = "a") -> None:
    """A server lists these, and the catalog knows."""
    listed = tuple(definition(kind, name, server) for name in names)
    stage.registry.tell(DefinitionsListed(server=server, incarnation=1, kind=kind, definitions=listed))
    await stage.registry.settle()


def known(stage: Stage, server: str = "a") -> dict[Kind, list[str]]:
    """What is known of a server beside its tools."""
    return {
        kind: list(each.definitions)
        for kind, each in stage.entry(server).lists.items()
        if kind is not Kind.TOOL
    }


def a_daemon(path: Path, writer: str, *names: str) -> Stage:
    """A daemon whose store is a file."""
    return begin(lambda: Store.open(of_file(path), writer=writer), *names)


def version_of(path: Path) -> int:
    """How often the store has been written."""
    with closing(Store.open(of_file(path), writer="looker")) as store:
        return store.recall().version


async def test_what_a_server_has_beside_tools_is_known_before_it_is_up(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with life(a_daemon(path, "one")) as stage:
        await stage.lists("a", "read")
        for kind, names in LISTED.items():
            await lists(stage, kind, *names)
            await lists(stage, kind, *(() if kind is Kind.PROMPT else names), server="b")
        off = frozenset({("a", "prompt:review")})
        stage.registry.tell(Switched(off=off))
        await stage.registry.settle()
        await stage.written()
        epoch, uris = stage.entry().epoch, stage.registry.catalog.value.names_of(Kind.RESOURCE)
    async with life(a_daemon(path, "two")) as stage:
        assert known(stage) == LISTED
        without = {**LISTED, Kind.PROMPT: []}
        assert known(stage, "b") == without, "that it has listed no tools yet takes nothing away"
        assert all(each.recalled for each in stage.entry().lists.values())
        assert stage.entry().epoch == epoch
        catalog = stage.registry.catalog.value
        assert catalog.switched == off
        assert "review" not in catalog.lists[Kind.PROMPT]["a"]
        assert catalog.names_of(Kind.RESOURCE).given == uris.given
        await stage.written()
        version = version_of(path)
        for kind, names in LISTED.items():
            await lists(stage, kind, *names)
        await stage.lists("a", "read")
        await stage.written()
        assert stage.entry().epoch == epoch, "nothing has changed"
        assert version_of(path) == version, "nor is it written again"


async def test_of_two_servers_the_one_that_had_a_uri_first_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with life(a_daemon(path, "one", "b")) as stage:
        await stage.lists("b", "read")
        await lists(stage, Kind.RESOURCE, "mem://1", server="b")
        await stage.written()
    async with life(a_daemon(path, "two", "a", "b")) as stage:
        await stage.lists("a", "read")
        await lists(stage, Kind.RESOURCE, "mem://1")
        catalog = stage.registry.catalog.value
        assert catalog.names_of(Kind.RESOURCE).name_of(("b", "mem://1")) == "mem://1"
        assert catalog.names_of(Kind.RESOURCE).name_of(("a", "mem://1")) == "mcpd://a/mem%3A%2F%2F1"


async def test_what_one_daemon_learns_of_lists_the_other_is_told(url: str, mock_clock: MockClock) -> None:
    async with two(url) as (one, other):
        await one.lists("a", "read")
        await lists(one, Kind.PROMPT, "review")
        await until(lambda: known(other).get(Kind.PROMPT) == ["review"])
        await until(lambda: one.entry().epoch == other.entry().epoch)
        one.tell(Switched(off=frozenset({("a", "prompt:review")})))
        await until(lambda: not other.registry.catalog.value.lists[Kind.PROMPT]["a"])


OFF = frozenset({("a", ""), ("b", "write")})


async def switch(stage: Stage, off: frozenset[tuple[str, str]]) -> None:
    """An operator has exactly these switched off."""
    stage.tell(Switched(off=off))
    await stage.registry.settle()
    await stage.written()


async def retried(clock: MockClock, done: Callable[[], bool]) -> None:
    """Until that holds, with the store tried again and again."""

    def holds() -> bool:
        clock.jump(60)
        return done()

    await until(holds)


def on_file(path: Path, trusted: TrustedSwitches) -> Stage:
    """A daemon with its store in a file."""
    return begin(lambda: Store.open(parse(f"sqlite:///{path}"), writer="one"), trusted=trusted)


def switches_in(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as file:
        return set(file.execute("SELECT server, tool FROM switches WHERE switched_off = 1"))


@pytest.mark.parametrize("cause", [StoreCause.UNAVAILABLE, StoreCause.LOST])
async def test_a_store_that_is_edited_behind_a_running_daemon_switches_nothing(
    disk: Disk, mock_clock: MockClock, cause: StoreCause
) -> None:
    async with life(begin(disk.open), disk) as stage:
        await switch(stage, OFF)
        disk.off = {("b", "")}
        disk.fails_once("check", cause)
        mock_clock.jump(10.1)
        await until(lambda: not disk.open_stores or disk.off == OFF)
        await retried(mock_clock, lambda: disk.off == OFF or not stage.entry("a").switched_off)
        assert stage.registry.catalog.value.switched == OFF


async def test_a_file_that_is_edited_between_two_daemons_switches_nothing_where_one_hands_over(
    tmp_path: Path,
) -> None:
    path, handed = tmp_path / "state.db", list[bytes]()
    async with life(on_file(path, TrustedSwitches(hand_over=handed.append))) as stage:
        await switch(stage, OFF)
    assert switches_in(path) == OFF
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE switches SET switched_off = 0 WHERE server = 'a'")
        file.execute("UPDATE switches SET tool = 'read' WHERE server = 'b'")
    async with life(on_file(path, TrustedSwitches(handed[-1]))) as stage:
        assert stage.registry.catalog.value.switched == OFF
        await stage.written()
        assert switches_in(path) == OFF
        await switch(stage, frozenset())
    assert switches_in(path) == set()


async def test_no_store_is_opened_before_the_catalog_has_the_switches_that_were_handed_over(
    autojump_clock: MockClock,
) -> None:
    """Its content would be compared with a catalog that lacks them, and switch everything on."""
    disk, opened = Disk(), list[str]()

    def open_store() -> Store:
        opened.append("opened")
        return disk.open()

    made = begin(open_store, trusted=TrustedSwitches(b'[["a",""]]'), patience=1.0)
    made.settles = False
    async with beside(made.registry.run):
        await made.recorder.open()
        assert opened == []


@pytest.mark.parametrize("with_another", [True, False])
async def test_another_file_or_none_in_its_place_switches_nothing_where_a_daemon_hands_over(
    tmp_path: Path, with_another: bool
) -> None:
    path, handed = tmp_path / "state.db", list[bytes]()
    if with_another:
        async with life(on_file(tmp_path / "other.db", TrustedSwitches())) as stage:
            await stage.written()
    async with life(on_file(path, TrustedSwitches(hand_over=handed.append))) as stage:
        await switch(stage, OFF)
    path.unlink()
    if with_another:
        shutil.move(tmp_path / "other.db", path)
    else:
        path.mkdir()
    async with life(on_file(path, TrustedSwitches(handed[-1]))) as stage:
        assert stage.registry.catalog.value.switched == OFF


async def test_what_an_operator_switches_on_while_no_store_can_be_opened_stays_on(
    disk: Disk, mock_clock: MockClock
) -> None:
    disk.off = {*OFF}
    disk.fails("open", StoreCause.LOCKED)
    async with life(begin(disk.open, trusted=TrustedSwitches(b'[["a",""],["b","write"]]')), disk) as stage:
        assert stage.registry.catalog.value.switched == OFF
        stage.tell(Switched(off=OFF - {("a", "")}))
        await stage.registry.settle()
        disk.works()
        await retried(mock_clock, lambda: disk.off == OFF - {("a", "")})
        assert stage.registry.catalog.value.switched == OFF - {("a", "")}


async def rested(observed: Observed, clock: MockClock) -> None:
    """Until the time between two looks is over, whenever it has begun."""

    def is_over() -> bool:
        clock.jump(OBSERVE_SECONDS)
        return not observed.resting

    await until(is_over)


async def test_results_are_looked_at_once_a_second_and_their_shapes_outlive_the_daemon(
    disk: Disk, mock_clock: MockClock
) -> None:
    known = tool("a", "read")
    row = {"name": known.name, "raw": known.raw, "hash": known.schema_hash}
    disk.tables.change(
        "INSERT INTO tools"
        " (server, name, position, raw, schema_hash, epoch, since, updated_at, version, writer) VALUES"
        " ('a', :name, 0, :raw, :hash, 1, 0, 0, 1, 'one')",
        row,
    )
    found = Shape(b'{"id":"int"}')
    async with life(begin(disk.open), disk) as stage, background() as nursery:
        observed = Observed(lambda: True, lambda _server: Redactor(()))
        nursery.start_soon(stage.recorder.observe, observed)
        for number in range(2):
            observed.take(known, b'{"structuredContent":{"id":%d}}' % number)
            await until(lambda: observed.shape(known.schema_hash) == found and not observed.waiting)
            assert observed.resting == {known.schema_hash}
            await rested(observed, mock_clock)
        assert disk.tables.rows("SELECT shape FROM observed_shapes")[0]["shape"] == found.raw
    async with life(begin(disk.open), disk) as stage, background() as nursery:
        again = Observed(lambda: True, lambda _server: Redactor(()))
        nursery.start_soon(stage.recorder.observe, again)
        await until(lambda: again.shape(known.schema_hash) == found)


async def test_a_fault_while_a_result_is_looked_at_or_stored_costs_only_that(
    disk: Disk, mock_clock: MockClock, logged: list[str]
) -> None:
    redactors = iter([None, Redactor(()), Redactor(())])
    observed = Observed(lambda: True, lambda _server: next(redactors))  # type: ignore[arg-type, return-value]
    async with life(begin(disk.open), disk) as stage, background() as nursery:
        await stage.written()
        disk.fails("write within", StoreCause.FULL)
        nursery.start_soon(stage.recorder.observe, observed)
        for number in range(3):
            observed.take(tool("a", f"t{number}"), b'{"structuredContent":{"id":1}}')
            await until(lambda: not observed.waiting)
            await rested(observed, mock_clock)
    shapes = [observed.shape(tool("a", f"t{number}").schema_hash) for number in range(3)]
    assert shapes == [None, Shape(b'{"id":"int"}'), Shape(b'{"id":"int"}')]
    assert sum("internal error in mcpd while examining results" in line for line in logged) == 1
