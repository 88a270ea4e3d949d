"""Measures the delay of one client's small calls while the daemon does large work for others.

The small calls go to their own server, one after the other. A forked process causes the large work now and
then, and notes the times. For each disturbance the slowest small call that overlaps it counts: its excess over
the slowest call in an undisturbed window of the same length is the delay.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import time
from bisect import bisect_left
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import attrs

from bench.calls.daemons import connected, servers
from bench.calls.rounds import MB, quantiles
from bench.calls.targets import FEW_TOOLS
from bench.calls.wires import FIRST_ID, Request, within
from bench.running import Unmeasurable, running
from tests.e2e.harness import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from bench.calls.wires import Wire
    from bench.running import Daemon

    Action = Callable[[], None]
    """Disturbs once: as another client or an operator."""

MANY_TOOLS = 5000
"""Tools of the server whose list changes."""

PAUSE = 0.15
"""Seconds between two disturbances."""

AFTERMATH = 1.0
"""Seconds after a new list in which threads build the index and write the store."""

LIMIT = 120.0
"""Most seconds for one kind of disturbance."""

GRACE = 10.0
"""Seconds that the disturbing process has to end."""

CALM = "nothing"


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of disturbance."""

    name: str
    prepare: Callable[[], Action]
    """Called once, in the disturbing process."""
    tail: float = 0.01
    """Seconds after a disturbance in which it may still delay calls."""
    share: int = 1
    """Divides the number of disturbances: for slow kinds."""


@attrs.frozen(kw_only=True)
class Delay:
    """The delay of the small calls, in milliseconds."""

    kind: str
    times: int
    took: float
    """Median duration of the disturbance."""
    calls: int
    """Small calls that overlap a disturbance."""
    p99: float
    """The 99th percentile of these calls."""
    longest: float
    """The slowest call of each disturbance: their median."""
    worst: float
    """The slowest call of all."""
    added: float
    """The excess of `longest` over its value in undisturbed windows of the same length."""


def delays(times: int, tools: int = MANY_TOOLS) -> list[Delay]:
    """Measure each kind with as many disturbances."""
    port = free_port()
    config = {
        "mcpServers": servers([FEW_TOOLS, FEW_TOOLS, tools, FEW_TOOLS]),
        "metrics": {"enabled": True, "listen": f"127.0.0.1:{port}"},
    }
    with running(config) as daemon, closing(connected(daemon, "category")) as wire:
        # Of its own surface: a client that was shown all tools is told of each change, which is work for it.
        request = Request.of("echo_0", {"text": "x" * 100}, "s0")
        wire.try_out(request)
        return [_measure(wire, request, kind, times) for kind in kinds(daemon, port)]


def kinds(daemon: Daemon, port: int) -> list[Kind]:
    """All kinds of disturbance."""
    return [
        Kind(name=CALM, prepare=lambda: partial(time.sleep, 0.02)),
        Kind(name="a call with an answer of 10 MB", prepare=partial(_large, daemon)),
        Kind(name="a list of 5,000 tools is read again, the same", prepare=partial(_relist, daemon), share=2),
        Kind(
            name="a list of 5,000 tools is read again, a tenth is new",
            prepare=partial(_relist, daemon, change=True),
            tail=AFTERMATH,
            share=4,
        ),
        Kind(name="a search", prepare=partial(_search, daemon)),
        Kind(name="a list of 5,000 tools is given to a client", prepare=partial(_list, daemon)),
        Kind(name="a reload that changes nothing", prepare=partial(_reload, daemon, change=False)),
        Kind(name="a reload that restarts one server", prepare=partial(_reload, daemon, change=True), share=4),
        Kind(name="status", prepare=lambda: partial(_ask, daemon, "status")),
        Kind(name="a scrape of the metrics", prepare=lambda: partial(_scrape, port)),
    ]


def _measure(wire: Wire, request: Request, kind: Kind, times: int) -> Delay:
    times = max(2, times // kind.share)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_disturb, args=(theirs, kind, times), daemon=True)
    child.start()
    theirs.close()
    try:
        with within(LIMIT, f"small calls during {kind.name}"):
            begins, ends, windows = _probe(wire, request, ours)
    except EOFError:
        raise Unmeasurable(f"{kind.name}: it could not be done; see above") from None
    finally:
        ours.close()
        child.join(GRACE)
        if child.is_alive():
            child.kill()
            child.join()
    return summed(kind, begins, ends, windows)


def _probe(
    wire: Wire, request: Request, news: Connection
) -> tuple[list[float], list[float], list[tuple[float, float]]]:
    """Make calls until the disturbing process has finished."""
    begins, ends = [], []
    clock, line = time.monotonic, request.line
    while not news.poll():
        # A look for news costs as much as a call.
        for _ in range(100):
            wire.number += 1
            text = line(wire.number % FIRST_ID)
            begins.append(clock())
            wire.exchange(text)
            ends.append(clock())
    windows: list[tuple[float, float]] = news.recv()
    return begins, ends, windows


def _disturb(news: Connection, kind: Kind, times: int) -> None:
    action = kind.prepare()
    action()
    windows = []
    for _ in range(times):
        time.sleep(PAUSE)
        begun = time.monotonic()
        action()
        windows.append((begun, time.monotonic()))
        time.sleep(kind.tail)
    time.sleep(PAUSE)
    news.send(windows)


def summed(kind: Kind, begins: list[float], ends: list[float], windows: list[tuple[float, float]]) -> Delay:
    """The effect of disturbances (`windows`) on the calls. All times are of one clock, in seconds."""
    touched, longest, calm = [], [], []
    for begun, over in windows:
        during = [end - begin for begin, end in between(begins, ends, begun, over + kind.tail)]
        touched += during
        longest.append(max(during, default=0.0))
        # As long, just before; a call that was under way when it began is its own.
        length = min(over - begun + kind.tail, PAUSE)
        before = [end - begin for begin, end in between(begins, ends, begun - length, begun) if end < begun]
        calm.append(max(before, default=0.0))
    middle = statistics.median(longest)
    return Delay(
        kind=kind.name,
        times=len(windows),
        took=1000 * statistics.median(over - begun for begun, over in windows),
        calls=len(touched),
        p99=1000 * quantiles(touched)[1] if touched else 0.0,
        longest=1000 * middle,
        worst=1000 * max(longest),
        added=1000 * (middle - statistics.median(calm)),
    )


def between(begins: list[float], ends: list[float], first: float, last: float) -> list[tuple[float, float]]:
    """Begin and end of the calls that were in flight at some moment between `first` and `last`."""
    start, stop = bisect_left(ends, first), bisect_left(begins, last)
    return list(zip(begins[start:stop], ends[start:stop], strict=True))


# --- what is done to others, in a process of its own ----------------------------------------------------


def _large(daemon: Daemon) -> Action:
    wire = connected(daemon, "category")
    line = Request.of("answer_1", {"bytes": 10 * MB}, "s1").line(0)
    return lambda: _done(wire.exchange(line))


def _search(daemon: Daemon) -> Action:
    wire = connected(daemon, "search")
    params = {"name": "search_tools", "arguments": {"query": "read a file by its path"}}
    return lambda: _done(wire.ask("tools/call", params))


def _list(daemon: Daemon) -> Action:
    wire = connected(daemon, "full")
    return lambda: _done(wire.ask("tools/list", {}))


def _relist(daemon: Daemon, *, change: bool = False) -> Action:
    wire = connected(daemon, "category")
    arguments = {"category": "s2", "name": "change_2", "args": {"text": "more"}}

    def act() -> None:
        if change:
            wire.ask("tools/call", {"name": "call-category-tool", "arguments": arguments})
        _ask(daemon, "refresh", server="s2")

    return act


def _reload(daemon: Daemon, *, change: bool) -> Action:
    env = daemon.configured["mcpServers"]["s3"].setdefault("env", {})

    def act() -> None:
        if change:
            env["TURN"] = str(time.monotonic())
            daemon.write()
        _ask(daemon, "reload")

    return act


def _ask(daemon: Daemon, method: str, **params: object) -> None:
    daemon.ask(method, **params)


def _scrape(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head = link.recv(65536)
        if b" 200 " not in head[:20]:
            raise Unmeasurable(f"a scrape was answered with {head[:80]!r}")
        while link.recv(65536):
            pass


def _done(_result: object) -> None:
    """Ignore a result, which is not measured."""
