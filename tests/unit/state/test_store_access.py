"""Who uses the store, and how long anybody waits for it."""

import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.catalog.loaded import anonymous_key
from daemon.catalog.snapshot import fold
from daemon.facts import Fact, ServerRecord
from daemon.kit.waiting import ActorGone, Watch
from daemon.state import poll
from daemon.state.notes import SessionNotes
from daemon.state.server_notes import ServerNotes
from daemon.state.sql import Notification, StoreCause, StoreFault
from daemon.state.store_access import Opener, StoreAccess, TrustedSwitches, Worker, opener_of
from daemon.state.sync import ANONYMOUS_SECONDS, CLOCK_JUMP, Expiry
from tests.unit.actors.recording import START, session
from tests.unit.catalog.samples import catalog_of, listed, servers
from tests.unit.state.places import Sqlite
from tests.unit.state.samples import with_lists
from tests.unit.state.scripted_store import WHERE, Disk, calm, fault
from tests.waiting import PATIENCE, beside, until


def access(disk: Disk, overdue: list[StoreFault] | None = None) -> StoreAccess:
    heard = [] if overdue is None else overdue
    return StoreAccess(Opener(disk.open, where=WHERE), patience=1.5, on_overdue=heard.append)


async def test_who_asks_before_it_is_open_waits_for_it(mock_clock: MockClock) -> None:
    it = access(Disk())
    answers: list[object] = []

    async def ask() -> None:
        answers.append(await it.ask(lambda store: store.session("key")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        await it.open()
    assert answers == [None]


async def test_who_asks_when_it_was_given_up_hears_why_at_once(mock_clock: MockClock) -> None:
    it = access(Disk())
    it.give_up(StoreFault(StoreCause.LOCKED, WHERE, "somebody has it"))
    with pytest.raises(StoreFault, match="somebody has it"):
        await it.ask(lambda store: store.session("key"))


async def test_a_reader_that_meets_a_fault_leaves_word_of_it_if_it_costs_the_store(
    mock_clock: MockClock,
) -> None:
    disk = Disk()
    it = access(disk)
    await it.open()
    for kind, suspected in (
        (StoreCause.LOCKED, False),
        (StoreCause.FULL, False),
        (StoreCause.CORRUPT, True),
        (StoreCause.LOST, True),
    ):
        disk.fails("session", kind)
        it.suspicion = None
        with pytest.raises(StoreFault):
            await it.ask(lambda store: store.session("key"))
        assert (it.suspicion is not None) == suspected


async def test_its_owner_waits_and_everybody_else_is_told_that_it_does_not_answer(
    mock_clock: MockClock,
) -> None:
    disk, overdue = Disk(), list[StoreFault]()
    it = access(disk, overdue)
    await it.open()
    disk.hangs("check")
    done: list[str] = []

    async def use() -> None:
        await it.use(lambda store: store.check())
        done.append("used")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        await until(lambda: disk.asked["check"] == 1)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(1.6)
        await until(lambda: len(overdue) == 1)
        with pytest.raises(StoreFault, match=r"has not answered for 1\.5 s"):
            await it.ask(lambda store: store.session("key"))
        assert done == []
        disk.goes_on()
    assert done == ["used"]
    assert await it.ask(lambda store: store.session("key")) is None


async def test_who_is_cancelled_while_the_store_works_hears_what_came_of_it(mock_clock: MockClock) -> None:
    disk = Disk()
    it = access(disk)
    await it.open()
    disk.hangs("check")
    done: list[str] = []

    async def write() -> None:
        await it.use(lambda store: store.check())
        done.append("written")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await until(lambda: disk.asked["check"] == 1)
        nursery.cancel_scope.cancel()
        disk.goes_on()
    assert done == ["written"]


def test_a_store_that_cannot_be_read_is_closed_again() -> None:
    disk = Disk()
    disk.fails("recall", StoreCause.UNAVAILABLE)
    with pytest.raises(StoreFault):
        Opener(disk.open, where=WHERE, set_aside=disk.set_aside)()
    assert disk.open_stores == 0
    assert disk.asides == 0


@pytest.mark.parametrize("operation", ["open", "recall"])
def test_a_corrupt_one_is_set_aside_and_said_with_the_new_one(operation: str) -> None:
    disk = Disk()
    disk.fails(operation, StoreCause.CORRUPT)
    opener = Opener(disk.open, where=WHERE, set_aside=disk.set_aside)
    assert opener().replaces
    assert opener.aside == "disk.corrupt-1"
    assert not opener().replaces


def test_one_that_was_found_corrupt_in_use_is_set_aside_unseen() -> None:
    disk = Disk()
    opener = Opener(disk.open, where=WHERE, set_aside=disk.set_aside)
    opener()
    opener.mark_corrupt(fault(StoreCause.CORRUPT))
    assert opener().replaces
    assert disk.asides == 1
    opener.mark_corrupt(fault(StoreCause.CORRUPT))
    with pytest.raises(StoreFault, match="corrupt"):
        opener()
    assert disk.asides == 1


def test_a_corrupt_one_that_cannot_be_set_aside_stays_corrupt() -> None:
    disk = Disk()
    disk.fails("open", StoreCause.CORRUPT)
    with pytest.raises(StoreFault, match="the test says so"):
        Opener(disk.open, where=WHERE)()
    disk.fails("set_aside", OSError("no such directory"))
    with pytest.raises(StoreFault, match="cannot be set aside: no such directory") as raised:
        Opener(disk.open, where=WHERE, set_aside=disk.set_aside)()
    assert raised.value.cause is StoreCause.CORRUPT


def test_a_file_that_is_no_store_is_set_aside_under_the_time_of_the_daemon(sqlite_place: Sqlite) -> None:
    opener = opener_of(sqlite_place.url, writer="one", wall=lambda: 0.0, trusted=TrustedSwitches())
    opener().store.close()
    sqlite_place.path.write_bytes(b"no store" * 1000)
    opened = opener()
    opened.store.close()
    assert opened.replaces
    assert "1970" in opener.aside
    assert not opener.shared
    assert opener.listen is None


async def test_worker_are_done_in_their_order_and_never_side_by_side() -> None:
    worker, order, at_once, most = Worker("test"), list[int](), list[int](), list[int]()

    def work(number: int) -> None:
        at_once.append(number)
        most.append(len(at_once))
        order.append(number)
        at_once.remove(number)

    sent = [worker.send(lambda number=number: work(number)) for number in range(50)]  # type: ignore[misc]
    await until(lambda: all(job.done.is_set() for job in sent))
    assert order == list(range(50))
    assert max(most) == 1


async def test_one_that_is_withdrawn_is_not_begun() -> None:
    worker, release, begun = Worker("test"), threading.Event(), list[str]()
    hanging = worker.send(lambda: release.wait(PATIENCE))
    unwanted = worker.send(lambda: begun.append("unwanted"))
    wanted = worker.send(lambda: begun.append("wanted"))
    worker.withdraw(unwanted)
    worker.withdraw(hanging)
    release.set()
    await until(wanted.done.is_set)
    assert begun == ["wanted"]
    assert hanging.done.is_set()


# --- a connection that tells when others have written --------------------------------------------------------


OWN, THEIRS = Notification(own=True, version=7), Notification(own=False, version=8)


class Line:
    """One connection, whose far end the test holds."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._told: list[Notification] = []
        self.closed = False

    def tell(self, *told: Notification) -> None:
        """The database says this."""
        self._told += told
        self._far.send(b".")

    def breaks(self) -> None:
        """The database ends it."""
        self._far.close()

    def fileno(self) -> int:
        return self._near.fileno()

    def heard(self) -> list[Notification]:
        if not self._near.recv(100):
            raise fault(StoreCause.UNAVAILABLE)
        heard, self._told = self._told, []
        return heard

    def close(self) -> None:
        self.closed = True
        self._near.close()
        self._far.close()


class Exchange:
    """Makes connections, or refuses to."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.refused = 0
        self.refuses = False
        self.holds: threading.Event | None = None
        self.disk = Disk()
        opener = Opener(self.disk.open, where=WHERE, shared=True, listen=self.listen)
        self.access = StoreAccess(opener, patience=1.5, on_overdue=lambda _fault: None)
        self.listening = poll.Listening(self.access, opener.listen, lambda: 0.0)

    def listen(self) -> Any:
        """Called in a worker thread."""
        if self.holds is not None:
            self.holds.wait(30)
        if self.refuses:
            self.refused += 1
            raise fault(StoreCause.UNAVAILABLE)
        self.lines.append(Line())
        return self.lines[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[poll.Listening]:
        """Listen while the store is open."""
        async with beside(self.listening.run):
            await self.access.open()
            await calm()
            yield self.listening


def take_news(listening: poll.Listening) -> bool:
    """As whoever looks does."""
    news, listening.news = listening.news, False
    return news


async def test_a_connection_is_believed_once_the_daemon_has_heard_itself(mock_clock: MockClock) -> None:
    exchange = Exchange()
    async with exchange.running() as listening:
        # What was written before it listened was told to nobody.
        assert take_news(listening)
        assert not listening.works
        assert listening.wants_heartbeat()
        exchange.lines[0].tell(OWN)
        await until(lambda: listening.works)
        assert not listening.wants_heartbeat()
        assert not listening.news
    assert exchange.lines[0].closed


async def test_what_others_write_is_news_and_what_is_known_is_not(mock_clock: MockClock) -> None:
    exchange = Exchange()
    async with exchange.running() as listening:
        take_news(listening)
        listening.seen = THEIRS.version
        exchange.lines[0].tell(THEIRS, OWN)
        await until(lambda: listening.works)
        assert not take_news(listening)
        moved = exchange.access.moved
        async with trio.open_nursery() as nursery:
            nursery.start_soon(moved.park)
            await calm()
            exchange.lines[0].tell(Notification(own=False, version=9))
        assert take_news(listening)


async def test_a_connection_that_does_not_pass_on_what_is_said_is_made_anew(mock_clock: MockClock) -> None:
    exchange = Exchange()
    async with exchange.running() as listening:
        assert listening.wants_heartbeat()
        mock_clock.jump(poll.DEAF_SECONDS)
        assert not listening.wants_heartbeat()
        await until(lambda: exchange.lines[0].closed)
        await calm()
        mock_clock.jump(poll.BACKOFF_SECONDS)
        await until(lambda: len(exchange.lines) == 2)
        await calm()
        assert listening.wants_heartbeat()


async def test_a_lost_connection_is_news_and_is_made_anew_later_and_later(mock_clock: MockClock) -> None:
    exchange = Exchange()
    async with exchange.running() as listening:
        exchange.lines[0].tell(OWN)
        await until(lambda: listening.works)
        take_news(listening)
        exchange.refuses = True
        exchange.lines[0].breaks()
        await until(lambda: exchange.lines[0].closed)
        assert take_news(listening)
        assert not listening.works
        await calm()
        waits = []
        for number in range(9):
            begun = trio.current_time()
            while exchange.refused == number:
                mock_clock.jump(0.25)
                await calm()
            waits.append(trio.current_time() - begun)
        assert waits == sorted(waits)
        assert poll.BACKOFF_CAP / 2 <= waits[-1] <= poll.BACKOFF_CAP
        exchange.refuses = False
        mock_clock.jump(poll.BACKOFF_CAP)
        await until(lambda: len(exchange.lines) == 2)
        await calm()
        assert take_news(listening)


async def test_a_connection_that_is_made_after_the_end_is_closed() -> None:
    exchange = Exchange()
    exchange.holds = threading.Event()
    async with beside(exchange.listening.run):
        await exchange.access.open()
        await trio.testing.wait_all_tasks_blocked()
    assert not exchange.lines
    exchange.holds.set()
    await until(lambda: exchange.lines and exchange.lines[0].closed)


# --- what the store holds is told once -----------------------------------------------------------------------


CONFIG = {"mcpServers": servers("a", "b")}


class Bench:
    def __init__(self) -> None:
        self.told: list[Fact] = []
        self.settled = 0
        self.settling: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.catalog = Watch(catalog_of(CONFIG))
        self.recalling = poll.Recalling(
            ServerNotes(),
            catalog=self.catalog,
            tell=self.told.append,
            settle=self.settle,
            where="disk",
            wall=lambda: 0.0,
        )

    async def settle(self) -> None:
        self.settled += 1
        await self.settling()


def record() -> ServerRecord:
    (found,) = ServerNotes().difference(fold(catalog_of(CONFIG), listed("a", "read"))).batch.servers
    return with_lists(found, prompt=["review"])


async def test_at_the_end_nobody_waits_for_a_catalog_that_does_not_settle(autojump_clock: MockClock) -> None:
    bench = Bench()
    bench.recalling.switches(frozenset(), certainly=True)
    bench.settling = trio.sleep_forever
    await bench.recalling.settle_at_last()
    assert trio.current_time() == poll.LAST_SETTLE_SECONDS
    bench.settling = gone
    await bench.recalling.settle_at_last()
    assert bench.recalling.untaken
    bench.settling = trio.lowlevel.checkpoint
    await bench.recalling.settle_at_last()
    assert not bench.recalling.untaken


async def gone() -> None:
    raise ActorGone


async def test_it_waits_for_the_catalog_only_after_something_was_told() -> None:
    bench = Bench()
    await bench.recalling.settle()
    assert bench.settled == 0
    bench.recalling.servers([record()], ())
    assert bench.recalling.untaken
    await bench.recalling.settle()
    await bench.recalling.settle()
    assert bench.settled == 1
    assert not bench.recalling.untaken


class ExpiryBench:
    def __init__(self, *, idle: float, shared: bool = False) -> None:
        self.disk = Disk()
        self.live: list[str] = []
        self.wall = START
        self.notes = SessionNotes()
        opener = Opener(self.disk.open, where=WHERE, shared=shared)
        self.access = StoreAccess(opener, patience=60, on_overdue=lambda _fault: None)
        self.expiry = Expiry(self.notes, self.access, idle=idle, wall=lambda: self.wall)

    async def sweep(self) -> set[str]:
        """What is left on the disk after a look, and in memory, if all of it was read."""
        for each in self.disk.sessions.values():
            self.notes.read(each)
        before = {*self.disk.sessions}
        await self.expiry.sweep(lambda: self.live, self.write)
        assert {key for key in before if self.notes.known(key)} == {*self.disk.sessions}
        return {*self.disk.sessions}

    async def write(self) -> None:
        self.notes.were_written(*self.notes.next_batch())


@pytest.mark.parametrize(("idle", "shared", "ages"), [(100, False, (99, 101)), (1, True, (1100, 1300))])
async def test_those_idle_for_longer_than_the_bound_go_and_others_of_the_store_have_time_to_say_so(
    mock_clock: MockClock, idle: int, shared: bool, ages: tuple[int, int]
) -> None:
    bench = ExpiryBench(idle=idle, shared=shared)
    bench.disk.sessions = {str(age): session(str(age), at=START - age) for age in ages}
    await bench.access.open()
    bench.expiry.start()
    assert await bench.sweep() == {str(ages[0])}


async def test_those_that_nobody_has_named_go_after_minutes(mock_clock: MockClock) -> None:
    bench = ExpiryBench(idle=30 * 24 * 3600)
    ages = {anonymous_key(letter * 32) or "": age for letter, age in (("a", 1), ("b", -1), ("c", 1))}
    now = START - ANONYMOUS_SECONDS
    bench.disk.sessions = {key: session(key, at=now - age) for key, age in {**ages, "named": 1}.items()}
    bench.live = [list(ages)[2]]
    await bench.access.open()
    bench.expiry.start()
    assert await bench.sweep() == {"named", *list(ages)[1:]}


async def test_those_in_use_stay_and_say_so(mock_clock: MockClock) -> None:
    bench = ExpiryBench(idle=100)
    bench.disk.sessions = {"used": session("used", at=START - 101)}
    bench.live = ["used"]
    await bench.access.open()
    bench.expiry.start()
    assert await bench.sweep() == {"used"}
    known = bench.notes.known("used")
    assert known is not None
    assert known.seen_at == START


async def test_one_whose_client_came_back_while_it_was_deleted_is_written_again(mock_clock: MockClock) -> None:
    bench = ExpiryBench(idle=100)
    old = bench.disk.sessions["old"] = session("old", at=START - 101)
    await bench.access.open()
    bench.expiry.start()

    async def comes_back() -> None:
        bench.live = ["old"]
        bench.notes.read(old)
        bench.notes.touch("old", START)

    await bench.expiry.sweep(lambda: bench.live, comes_back)
    assert not bench.disk.sessions
    assert [*bench.notes.waiting.values()] == [old]


@pytest.mark.parametrize("jump", [CLOCK_JUMP + 1, -CLOCK_JUMP - 1])
async def test_a_clock_that_was_set_puts_it_off_until_the_next_look(jump: float, mock_clock: MockClock) -> None:
    bench = ExpiryBench(idle=100)
    bench.disk.sessions = {"old": session("old", at=START - 1000)}
    await bench.access.open()
    bench.expiry.start()
    bench.wall += jump
    assert await bench.sweep() == {"old"}
    assert await bench.sweep() == set()


async def test_letting_go_closes_it_after_what_is_under_way(mock_clock: MockClock) -> None:
    disk = Disk()
    it = access(disk)
    await it.open()
    assert disk.open_stores == 1
    closing = it.close()
    assert closing is not None
    await until(closing.done.is_set)
    assert disk.open_stores == 0
    assert it.close() is None
