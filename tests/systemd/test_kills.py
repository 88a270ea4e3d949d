"""A daemon that is killed, is stuck, or is stopped with children that do not want to end."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Self

from tests.e2e.harness import RawClient
from tests.systemd.machine import FRONT, PATIENCE, UNIT, ended, greet, scripted, told, watched
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.systemd.machine import Service

KILLS = 5
CALLERS = 4

STUBBORN = ["term", "eof"]
MANY = 50

WATCHDOG_SECONDS = 5
"""Instead of the unit's 30: what is tested is that a stuck daemon is replaced, not patience."""

WAITED = "timed out"
"""What systemd writes when a unit's processes had to be killed because they did not end when told to."""

TREE = [
    {"kind": "plain", "ignore_term": True},
    {"kind": "setsid", "ignore_term": True},
    {"kind": "daemon", "ignore_term": True, "keep_stdout": True},
]


class Caller:
    """Connects, says hello and hangs up, again and again, and counts what becomes of it."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.broken = 0
        self.answered = 0
        self.longest = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                client = RawClient(FRONT, timeout=PATIENCE)
            except OSError as error:
                self.refused.append(repr(error))
                continue
            with client:
                try:
                    greet(client)
                except (OSError, AssertionError):
                    self.broken += 1
                    continue
            self.answered += 1
            self.longest = max(self.longest, time.monotonic() - began)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)


def test_no_connection_is_refused_while_the_daemon_is_killed_again_and_again(service: Service) -> None:
    service.ready()
    pids, took = [service.pid], []
    callers = [Caller() for _ in range(CALLERS)]
    with callers[0], callers[1], callers[2], callers[3]:
        for _ in range(KILLS):
            eventually(lambda: all(caller.answered for caller in callers))
            with watched(pids[-1:]) as held:
                os.kill(pids[-1], signal.SIGKILL)
                ended(held)
            began = time.monotonic()
            with service.client() as client:
                greet(client)
            took.append(time.monotonic() - began)
            pids.append(service.pid)
    assert [refusal for caller in callers for refusal in caller.refused] == []
    assert len(set(pids)) == KILLS + 1
    answered = sum(caller.answered for caller in callers)
    broken = sum(caller.broken for caller in callers)
    # Those that the killed daemon had accepted: at most one a caller and kill.
    assert broken <= KILLS * CALLERS
    told(
        f"kill -9 x {KILLS}: 0 connects refused, {answered} answered, {broken} broken that the old daemon had"
        f" accepted; from the kill to the first reply at most {max(took):.2f} s (promised: 1 s)"
    )


def test_no_child_outlives_a_killed_daemon_whatever_it_ignores(stopped: Service) -> None:
    stopped.begin({"tree": scripted(spawn=TREE, ignore=STUBBORN)})
    old, main = stopped.children(), stopped.pid
    assert len(old) == 1 + len(TREE)
    with watched(old) as held:
        os.kill(main, signal.SIGKILL)
        seconds = ended(held)
    with stopped.client() as client:
        greet(client)
    stopped.ready()
    assert not old & stopped.processes()
    assert stopped.pid != main
    # systemd did not first wait whether they would heed TERM, as it does by default.
    assert WAITED not in stopped.said()
    told(f"kill -9 with {len(old)} children that ignore TERM: all gone after {seconds:.2f} s (promised: 1 s)")


def test_a_stuck_daemon_is_replaced_by_the_watchdog(stopped: Service) -> None:
    assert stopped.show("WatchdogUSec") == "30s"
    stopped.begin({"tree": scripted(spawn=TREE, ignore=STUBBORN)}, f"WatchdogSec={WATCHDOG_SECONDS}")
    main = stopped.pid
    old = stopped.processes()
    with watched(old) as held:
        began = time.monotonic()
        os.kill(main, signal.SIGSTOP)
        with stopped.client() as client:
            greet(client)
        seconds = time.monotonic() - began
        ended(held)
    assert stopped.pid != main
    assert WAITED not in stopped.heard("Watchdog timeout")
    told(f"stuck daemon, WatchdogSec={WATCHDOG_SECONDS}: another one answers after {seconds:.2f} s")


def test_a_daemon_that_works_is_not_taken_for_a_stuck_one(stopped: Service) -> None:
    stopped.begin({"one": scripted()}, f"WatchdogSec={WATCHDOG_SECONDS}")
    main = stopped.pid
    with stopped.client() as client:
        result = client.run("one", "sleep", seconds=1.5 * WATCHDOG_SECONDS)
    assert not result.get("isError")
    assert stopped.pid == main


def test_a_stop_with_fifty_servers_that_ignore_term_is_ours_not_systemds(stopped: Service) -> None:
    stubborn = {f"s{number}": scripted(ignore=STUBBORN, spawn=TREE[:1]) for number in range(MANY)}
    stopped.begin(stubborn)
    assert len(stopped.processes()) > 2 * MANY
    began = time.monotonic()
    stopped.ctl("stop", UNIT)
    seconds = time.monotonic() - began
    assert (stopped.show("Result"), stopped.show("ExecMainStatus")) == ("success", "0")
    assert not stopped.processes()
    assert not [word for word in (WAITED, "Killing process") if word in stopped.said()]
    told(f"stop with {MANY} servers that ignore TERM and EOF: {seconds:.2f} s (promised: 5 s)")


def test_an_idle_daemon_stops_at_once(service: Service) -> None:
    service.ready()
    began = time.monotonic()
    service.ctl("stop", UNIT)
    told(f"stop of an idle daemon: {time.monotonic() - began:.2f} s (promised: 1 s)")
    assert service.show("Result") == "success"
