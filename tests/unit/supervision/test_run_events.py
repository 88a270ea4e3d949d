"""The runs of a child as events."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from daemon.causes import Cause, Reason
from daemon.config.tuning import Restart
from daemon.errors import ConnectionLost
from daemon.history.event import Event, EventKind
from daemon.supervision.lifecycle import ChildSpec, Lifecycle
from daemon.supervision.supervisor import Supervisor
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("autojump_clock")


class Told:
    """A supervisor of one child, and the events that it has made."""

    def __init__(self, run: Callable[[Lifecycle], Awaitable[None]], **spec: object) -> None:
        self.events: list[Event] = []
        made = ChildSpec(name="git", run=run, policy=Restart(), **spec)  # type: ignore[arg-type]
        self.supervisor = Supervisor(
            [made],
            starts=1,
            on_status=lambda *_: None,
            rng=lambda: 0.5,
            wall=trio.current_time,
            note=self.events.append,
        )
        self.child = self.supervisor.children["git"]
        self.stop = trio.CancelScope()

    async def run(self) -> None:
        with self.stop:
            await self.supervisor.run()

    def kinds(self) -> list[str]:
        return [str(event.kind) for event in self.events]

    async def ended(self, times: int = 1) -> Event:
        await until(lambda: self.kinds().count("ended") >= times, every=0.25, seconds=3)
        return [event for event in self.events if event.kind is EventKind.ENDED][times - 1]


async def serve(life: Lifecycle) -> None:
    await trio.sleep(1)
    life.ready()
    await trio.sleep_forever()


async def crash(life: Lifecycle) -> None:
    await trio.sleep(1)
    life.ready()
    await trio.sleep(100)
    raise ConnectionLost("killed by SIGKILL", Cause.KILLED, signal="SIGKILL")


async def test_a_run_begins_serves_and_ends_with_its_cause_and_the_next_tells_the_pause(
    nursery: trio.Nursery,
) -> None:
    told = Told(crash, event_details=lambda: {"pid": 77}, last_lines=lambda run: [f"last words of run {run}"])
    nursery.start_soon(told.run)

    ended = await told.ended()

    assert told.kinds()[:3] == ["started", "ready", "ended"]
    assert [(event.server, event.run) for event in told.events[:3]] == [("git", 1)] * 3
    assert told.events[1].details == {"seconds": pytest.approx(1), "pid": 77}
    assert (ended.text, ended.cause, ended.cause_data) == (
        "killed by SIGKILL",
        Cause.KILLED,
        {"signal": "SIGKILL"},
    )
    assert ended.details["seconds"] == pytest.approx(100)
    assert ended.details["stderr"] == ["last words of run 1"]
    assert "(SIGKILL)" in str(ended.details["happened"])
    assert "attempt" not in ended.details
    await until(lambda: told.kinds().count("ready") == 2, every=0.25, seconds=60)
    first, again = [event for event in told.events if event.kind is EventKind.READY]
    assert "awaySeconds" not in first.details
    pause = ended.details["retrySeconds"]
    assert isinstance(pause, float)
    assert again.details["awaySeconds"] == pytest.approx(pause + 1)
    assert again.details["awaySince"] == ended.details["awaySince"] == pytest.approx(101)
    assert "awayOverRestart" not in again.details


async def fail(_life: Lifecycle) -> None:
    raise ConnectionLost("exited with status 1", Cause.EXITED, status=1)


async def test_an_outage_that_began_under_the_daemon_before_is_told_as_one(nursery: trio.Nursery) -> None:
    tries = iter((fail, crash, crash))

    async def run(life: Lifecycle) -> None:
        await next(tries)(life)

    told = Told(run)
    told.child.events.was_away(-500.0)
    nursery.start_soon(told.run)

    first, second = await told.ended(), await told.ended(2)
    await until(lambda: told.kinds().count("ready") == 2, every=0.25, seconds=60)

    ready, again = [event.details for event in told.events if event.kind is EventKind.READY]
    assert "seconds" not in first.details
    assert (first.details["attempt"], "journalctl" in str(second.details["helps"])) == (1, True)
    assert first.details["state"] == "backoff"
    assert first.details["retrySeconds"] == pytest.approx(0.75)
    assert (first.details["awaySince"], ready["awaySince"], ready["awayOverRestart"]) == (-500, -500, True)
    assert float(str(ready["awaySeconds"])) > 501
    assert again["awaySince"] == second.details["awaySince"]
    assert "awayOverRestart" not in again


async def test_an_outage_goes_on_when_mcpd_stops_and_ends_when_the_server_is_switched_off(
    nursery: trio.Nursery,
) -> None:
    async def hang(_life: Lifecycle) -> None:
        await trio.sleep_forever()

    async def ended_while_it_starts(off: str) -> Event:
        told = Told(hang)
        told.child.events.was_away(-500.0)
        nursery.start_soon(told.run)
        await until(lambda: "started" in told.kinds(), every=0.25, seconds=3)
        if off:
            told.child.switch_off(off)
        else:
            told.supervisor.announce_stop()
        told.stop.cancel()
        return await told.ended()

    assert (await ended_while_it_starts("")).details["awaySince"] == -500
    assert "awaySince" not in (await ended_while_it_starts("switched off by an operator")).details


async def test_what_is_degraded_says_why_once_and_when_it_is_well_again(nursery: trio.Nursery) -> None:
    silent = Reason("does not answer pings", Cause.NOISE)

    async def limp(life: Lifecycle) -> None:
        life.ready()
        life.degraded(silent)
        life.degraded(silent.after("still: "))
        life.ready()
        await trio.sleep_forever()

    told = Told(limp)
    nursery.start_soon(told.run)
    await until(lambda: len(told.events) == 4, every=0.25, seconds=3)

    assert told.kinds() == ["started", "ready", "degraded", "ready"]
    assert (told.events[2].text, told.events[2].cause) == (silent.text, Cause.NOISE)
    assert told.events[3].details == {"again": True}


async def test_a_run_that_somebody_ends_says_who_did_and_is_not_blamed(nursery: trio.Nursery) -> None:
    told = Told(serve)
    nursery.start_soon(told.run)

    off = "switched off by an operator"

    def stop() -> None:
        told.supervisor.announce_stop()
        told.stop.cancel()

    deeds: list[tuple[Callable[[], object], str, str]] = [
        (told.child.restart, "", "backoff"),
        (lambda: told.child.switch_off(off), off, "stopped"),
        (told.child.go_idle, "nobody has used it for a while", "dormant"),
        (stop, "mcpd has stopped it", "stopped"),
    ]
    for times, (deed, text, state) in enumerate(deeds, start=1):
        told.child.switch_on()
        told.child.wake()
        await until(lambda: told.kinds().count("ready") == times, every=0.25, seconds=3)  # noqa: B023
        deed()
        ended = await told.ended(times)
        assert (ended.cause, ended.details["state"]) == (None, state)
        assert ended.text == text or times == 1

    assert told.kinds()[2:4] == ["restarted", "ended"]
    assert (told.events[2].details, told.events[3].details["asked"]) == ({"by": "operator"}, True)
