"""Faults that are a matter of time, on a clock that leaps: hours of outage, promises with a number of seconds.

A server on a socket, a faulty line to it, and the real upstream under the real supervisor, all in this process.
The clock leaps whenever everybody waits, worker threads included, so a bound in seconds depends on no machine.
"""

import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.config.config_model import Server, TransportType
from daemon.config.tuning import Restart, Timeouts
from daemon.errors import CallError, UpstreamLost, UpstreamTimeout, UpstreamUnavailable
from daemon.facts import ServerStatus
from daemon.states import SERVING, ServerState
from daemon.wire.websocket_link import GOODBYE_SECONDS
from tests.faults.arena import fresh_nonce
from tests.faults.history import Connections, History
from tests.faults.stage import Answer, Stage, at_work, leaving_nothing
from tests.faults.upstreams import SERVERS, Upstream
from tests.faults.wire import DRIP, HARMLESS, Fate, Toxic, Wire
from tests.waiting import background, in_time

AGES = 1e6
"""Seconds that nothing may take."""

HOUR, DAY = 3600.0, 24 * 3600.0
BLACK_HOLE = Toxic(fate=Fate.SWALLOW)
Remotes = Callable[..., AbstractAsyncContextManager["Remote"]]


@attrs.frozen
class Remote:
    """A server behind a line, and what supervises it."""

    stage: Stage
    server: Upstream
    wire: Wire
    history: History

    @property
    def status(self) -> ServerStatus:
        """How it is."""
        return self.stage.supervisor.children["s"].status.value

    async def until(self, holds: Callable[[ServerStatus], object]) -> float:
        """Wait until something holds of its status. Returns the seconds that it took."""
        began = trio.current_time()
        with trio.fail_after(AGES):
            await self.stage.supervisor.children["s"].status.wait_until(lambda status: bool(holds(status)))
        return trio.current_time() - began

    async def ready(self) -> float:
        """Wait until it is ready. Returns the seconds that it took."""
        return await self.until(lambda status: status.state is ServerState.READY)

    async def outcome(self, tool: str = "echo", **arguments: Any) -> CallError | None:
        """Call, and wait for the end of it; what it ended with instead of a result."""
        try:
            answer: Answer = self.stage.call(tool, nonce=fresh_nonce(), **arguments)
        except CallError as error:
            return error
        with trio.fail_after(AGES):
            while not answer.done:  # noqa: ASYNC110 - on a clock that leaps
                await trio.sleep(0.5)
        assert answer.error is None or isinstance(answer.error, CallError)
        return answer.error


@pytest.fixture
def remote(sockets: Path, rng: random.Random, autojump_clock: MockClock) -> Remotes:
    """Puts a server behind a line, while a block runs on a clock that leaps."""
    return partial(behind_a_line, sockets, rng)


@asynccontextmanager
async def behind_a_line(
    directory: Path,
    rng: random.Random,
    kind: str = "unix",
    *,
    listens: bool = True,
    down: Toxic = HARMLESS,
    **entry: Any,
) -> AsyncIterator[Remote]:
    """A server behind a line, with mcpd's own defaults but for these keys."""
    history = History()
    async with leaving_nothing(), background() as nursery:
        server = SERVERS[kind]("s", history)
        server.attend(nursery)
        async with Wire(server.connect, rng=rng, down=down).running() as wire:
            if kind == "unix":
                url = f"unix://{directory}/s"
                wire.name_path(f"{directory}/s")
            else:
                url = f"{kind}://127.0.0.1:{wire.reserve_port()}/mcp"
            if listens:
                wire.answer()
            configured = Server(name="s", type=TransportType(kind), url=url, **entry)
            async with at_work(configured, rng=rng.random) as found:
                yield Remote(found, server, wire, history)
    assert history.violations() == []


# --- what takes its time --------------------------------------------------------------------------------------


async def test_a_server_that_goes_silent_is_not_called_ready_for_longer_than_a_minute(remote: Remotes) -> None:
    async with remote() as it:
        await it.ready()
        it.wire.down.toxic = BLACK_HOLE
        took = await it.until(lambda status: status.state not in SERVING)
        assert took <= 61
        assert it.status.reason == "no answer to 3 pings of 10 s"


@pytest.mark.parametrize("toxic", [BLACK_HOLE, DRIP])
async def test_an_answer_that_drips_does_not_keep_its_call_alive(toxic: Toxic, remote: Remotes) -> None:
    """A byte a second is no more a sign of life than none: a call has 60 s, and the answer needs minutes."""
    async with remote() as it:
        await it.ready()
        it.wire.down.toxic = toxic
        began = trio.current_time()
        assert isinstance(await it.outcome(x="x" * 500), UpstreamLost | UpstreamTimeout)
        assert 59 <= trio.current_time() - began <= 62


async def test_what_drips_arrives_if_there_is_time(remote: Remotes) -> None:
    timeouts = Timeouts(call=HOUR, call_max=HOUR, ping_interval=HOUR, refresh=DAY)
    async with remote(timeouts=timeouts) as it:
        await it.ready()
        it.wire.down.toxic = DRIP
        assert await it.outcome(x="x" * 500) is None


@pytest.mark.parametrize("spare", [1, 100, 400])
async def test_a_line_that_is_cut_at_any_byte_of_the_handshake_is_tried_again(
    spare: int, remote: Remotes
) -> None:
    async with remote(down=Toxic(spare=spare, fate=Fate.CUT)) as it:
        await it.until(lambda status: status.attempt >= 2)
        it.wire.down.toxic = HARMLESS
        assert await it.ready() <= 61
        assert await it.outcome() is None


async def test_a_server_that_is_silent_from_the_start_is_tried_again_later_and_later(remote: Remotes) -> None:
    async with remote(down=BLACK_HOLE) as it:
        await it.until(lambda status: status.attempt >= 1 and status.next_retry_at is not None)
        assert it.status.reason == "no answer to initialize within 30 s"
        ten = await it.until(lambda status: status.attempt >= 11)
        # Ten tries, each with twice the time up to 300 s; waits of 1, 2, 4, ... 60 s, half of each by chance.
        tries = 10 * 3 + 60 + 120 + 240 + 7 * 300
        assert tries + 150 <= ten <= tries + 400


async def test_a_server_may_install_its_package_again_for_a_lesson(remote: Remotes) -> None:
    async with remote(down=BLACK_HOLE) as it:
        await it.until(lambda status: status.attempt >= 1)
        it.stage.lessons["s"] = "watched"
        await it.until(lambda status: status.attempt >= 2)
        assert it.status.reason == "no answer to initialize within 240 s"  # twice `firstInitialize`


async def test_npx_may_install_again_after_a_failure(remote: Remotes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.actors.upstream.INSTALLERS", {""})
    async with remote() as it:
        await it.ready()
        it.wire.down.toxic = BLACK_HOLE
        await it.until(lambda status: "initialize" in status.reason)
        assert it.status.reason == "no answer to initialize within 120 s"


async def test_hours_of_outage_are_neither_given_up_nor_hammered(remote: Remotes) -> None:
    async with remote(listens=False) as it:
        await it.until(lambda status: status.attempt >= 1)
        await trio.sleep(DAY / 8)
        assert 24 * 60 / 8 <= it.status.attempt <= 3000 / 8
        it.wire.answer()
        assert await it.ready() <= 61
        assert await it.outcome() is None


async def test_a_black_hole_costs_fewer_than_1500_attempts_a_day(remote: Remotes) -> None:
    async with remote(down=BLACK_HOLE) as it:
        await it.until(lambda status: status.attempt >= 1)
        await trio.sleep(DAY / 24)
        assert it.status.attempt <= 1500 / 24
        it.wire.down.toxic = HARMLESS
        # It may be in the middle of a try into the hole: 33 s, or 300 s where a handshake took too long before.
        assert await it.ready() <= 61 + 33 + 300


@pytest.mark.parametrize("after", [0.0, 0.4, 20.0])
async def test_a_call_to_a_server_that_is_back_does_not_wait_for_the_next_try(
    after: float, remote: Remotes
) -> None:
    """However short the time since the last try: tries are a second apart, and a call waits for two."""
    async with remote(listens=False) as it:
        await it.until(lambda status: status.attempt >= 12)
        await trio.sleep(after)
        assert isinstance(await it.outcome(), UpstreamUnavailable)
        it.wire.answer()
        assert await in_time(it.stage.one.wake(), AGES)
        assert await it.outcome() is None


async def test_one_that_comes_and_goes_is_forgiven_after_two_minutes_of_health(remote: Remotes) -> None:
    async with remote() as it:
        for _ in range(5):
            await it.ready()
            await trio.sleep(121)
            it.wire.end_lines()
            # Healthy for ten seconds: the first restart is immediate, each time.
            assert await it.until(lambda status: status.state is not ServerState.READY) < 1
            assert await it.ready() < 1
        assert it.status.attempt <= 1


async def test_a_machine_that_slept_finds_a_live_line_alive_and_a_dead_one_within_a_minute(
    remote: Remotes, autojump_clock: MockClock
) -> None:
    """Even if the loop's clock had gone on meanwhile, which Linux spares it."""
    async with remote() as it:
        await it.ready()
        autojump_clock.jump(8 * HOUR)
        assert await it.outcome() is None
        await trio.sleep(120)
        assert (it.status.state, it.status.restarts) == (ServerState.READY, 0)
        it.wire.down.toxic = BLACK_HOLE
        autojump_clock.jump(8 * HOUR)
        assert await it.until(lambda status: status.state not in SERVING) <= 61


class _Resolver(trio.abc.HostnameResolver):
    """Knows nobody; at first it does not even say so."""

    answers = False

    async def getaddrinfo(self, *args: object, **more: object) -> Any:
        if not self.answers:
            await trio.sleep_forever()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def getnameinfo(self, *args: object, **more: object) -> Any:
        raise NotImplementedError


async def test_a_name_that_nobody_resolves_is_given_up_and_tried_again(
    rng: random.Random, autojump_clock: MockClock
) -> None:
    resolver = _Resolver()
    trio.socket.set_custom_hostname_resolver(resolver)
    configured = Server(name="s", type=TransportType.WS, url="ws://nobody.test:9/mcp")
    async with leaving_nothing(), at_work(configured, rng=rng.random) as it:
        with trio.fail_after(AGES):
            watch = it.supervisor.children["s"].status
            status = await watch.wait_until(lambda now: now.attempt >= 3)
            assert "within 20 s" in status.reason
            resolver.answers = True
            status = await watch.wait_until(lambda now: now.attempt >= 5)
            assert "Name or service not known" in status.reason


async def test_a_websocket_says_goodbye_and_does_not_wait_for_an_answer_that_nobody_would_hear(
    remote: Remotes,
) -> None:
    async with remote("ws") as it:
        await it.ready()
        began = trio.current_time()
        await in_time(it.stage.supervisor.remove("s", "taken out"), AGES)
        assert trio.current_time() - began < GOODBYE_SECONDS / 2
        del it.stage.supervisor


# --- chance ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(4))
async def test_whatever_happens_in_whatever_order_there_is_one_connection_and_it_comes_back(
    number: int, remote: Remotes, rng: random.Random
) -> None:
    """Lines end, holes open, operators and calls come in between: ways to a new connection must not race."""
    timeouts = Timeouts(probe=1, initialize=3, list=3, call=5, ping_interval=5, ping=2, missed_pings=2)
    async with remote(timeouts=timeouts, restart=Restart(cap=4)) as it:
        child = it.stage.supervisor.children["s"]
        deeds: list[Callable[[], object]] = [
            it.wire.end_lines,
            partial(it.wire.end_lines, reset=True),
            partial(setattr, it.wire.down, "toxic", BLACK_HOLE),
            partial(setattr, it.wire.down, "toxic", Toxic(spare=rng.randint(0, 400), fate=Fate.CUT)),
            partial(setattr, it.wire.down, "toxic", HARMLESS),
            child.wake,
            child.restart,
            partial(_try, it.stage),
        ]
        for _ in range(40):
            rng.choice(deeds)()
            await trio.sleep(rng.choice((0, 0.001, 0.1, 1, 3, 10)))
            await trio.testing.wait_all_tasks_blocked()
            it.history.note(Connections(server="s", live=len(it.server.live)))
        it.wire.down.toxic = HARMLESS
        await it.ready()
        await trio.sleep(300)
        assert it.status.state is ServerState.READY
        assert await it.outcome() is None


def _try(it: Stage) -> None:
    """A call, whatever comes of it."""
    try:
        it.call("echo", nonce=fresh_nonce())
    except CallError:
        return
