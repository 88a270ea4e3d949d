"""The runs of a child as events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from daemon.causes import Cause, Reason
from daemon.config.tuning import Restart
from daemon.errors import ConnectionLost
from daemon.history.event import Event, EventKind
from daemon.supervision.lifecycle import ChildSpec, Lifecycle
from daemon.supervision.supervisor import Supervisor
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


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


async def test_a_run_begins_serves_and_ends_with_its_cause(nursery: trio.Nursery) -> None:
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
    assert "retrySeconds" in ended.details


async def test_who_serves_again_says_how_long_it_was_away(nursery: trio.Nursery) -> None:
    told = Told(crash)
    nursery.start_soon(told.run)

    ended = await told.ended()
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


async def test_one_that_never_served_says_when_it_is_started_next(nursery: trio.Nursery) -> None:
    told = Told(fail)
    nursery.start_soon(told.run)

    second = await told.ended(2)

    assert "seconds" not in second.details
    assert second.details["state"] == "backoff"
    assert float(str(second.details["retrySeconds"])) > 0
    assert second.run == 2


async def test_a_restart_names_who_asked_for_it_before_the_run_ends(nursery: trio.Nursery) -> None:
    told = Told(serve)
    nursery.start_soon(told.run)
    await until(lambda: "ready" in told.kinds(), every=0.25, seconds=3)

    told.child.restart()
    ended = await told.ended()

    assert told.kinds()[2:4] == ["restarted", "ended"]
    assert told.events[2].details == {"by": "operator"}
    assert (ended.cause, ended.details["asked"]) == (None, True)


async def test_a_switch_and_a_stop_end_a_run_too(nursery: trio.Nursery) -> None:
    told = Told(serve)
    nursery.start_soon(told.run)
    await until(lambda: "ready" in told.kinds(), every=0.25, seconds=3)

    told.child.switch_off("switched off by an operator")
    ended = await told.ended()
    assert (ended.text, ended.cause, ended.details["state"]) == ("switched off by an operator", None, "stopped")

    told.child.switch_on()
    await until(lambda: told.kinds().count("ready") == 2, every=0.25, seconds=3)
    told.supervisor.announce_stop()
    told.stop.cancel()
    assert (await told.ended(2)).text == "mcpd has stopped it"


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


async def test_what_is_put_to_rest_ends_as_dormant_and_is_not_blamed(nursery: trio.Nursery) -> None:
    told = Told(serve)
    nursery.start_soon(told.run)
    await until(lambda: "ready" in told.kinds(), every=0.25, seconds=3)

    told.child.go_idle()
    ended = await told.ended()

    assert (ended.details["state"], ended.cause, ended.text) == (
        "dormant",
        None,
        "nobody has used it for a while",
    )


async def test_waiting_in_the_queue_of_starts_is_no_event() -> None:
    events: list[Event] = []
    specs = [ChildSpec(name=f"s{number}", run=serve, policy=Restart()) for number in range(5)]
    supervisor = Supervisor(
        specs, starts=1, on_status=lambda *_: None, rng=lambda: 0.5, wall=trio.current_time, note=events.append
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await until(lambda: sum(event.kind is EventKind.READY for event in events) == 5, every=0.25, seconds=3)
        nursery.cancel_scope.cancel()

    assert {str(event.kind) for event in events} == {"started", "ready", "ended"}
