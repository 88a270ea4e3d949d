"""`python -m bench.console`: times and sizes of the console's pages, and the cost of open pages for calls.

    python -m bench.console [--rounds N] [--watch PAGE] [--tiny]

The daemon has 50 servers with 100 tools each. Calls are made with and without twenty live pages, in pairs of
turns, so that a busy moment hits both; less than five minutes in all. Calls at a fixed pace leave the daemon
idle time: its CPU time then shows the cost of the pages, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import http.client
import select
import socket
import statistics
import threading
import time
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import attrs

from bench.calls.daemons import servers
from bench.calls.rounds import Case, ratio, stage
from bench.calls.targets import SOCKET, Mcpd
from bench.running import Unmeasurable, running
from bench.tables import number, text
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.calls.rounds import Stage, Turn
    from bench.running import Daemon
    from bench.tables import Table

PAGES = (
    *("servers", "servers/s0", "tools", "tools?server=s1", "tools?q=echo", "tools/s0/echo_0"),
    *("servers/s0?tab=tools", "servers/s0?tab=history", "servers/s0?tab=settings", "find?q=echo"),
    *("approvals", "sessions", "clients", "calls", "events", "audit", "savings", "settings"),
)
CONSOLES = 20
PACE = 100
"""Calls a second: enough to change the page of calls before each update."""
FLOWS = {"one at a time": 1, "32 in flight": 32, f"{PACE} a second": 0}
"""The flows of calls, with the number in flight; 0: calls at the pace."""


@attrs.frozen(kw_only=True)
class Scope:
    """The extent of the measurement."""

    servers: int = 50
    tools: int = 100
    """Of each server."""
    times: int = 15
    """Requests for each page."""
    rounds: int = 3
    """Pairs of turns."""
    seconds: float = 10.5
    """Seconds of each turn: longer than the longest time between two updates of a page while calls flow."""


TINY = Scope(servers=2, tools=5, times=2, rounds=1, seconds=0.05)


class Principal:
    """A browser that has followed the console's link."""

    def __init__(self, daemon: Daemon) -> None:
        """Log in."""
        link = urlsplit(str(daemon.ask("ui")["link"]))
        self._where = str(link.hostname), link.port or 0
        self._connection = http.client.HTTPConnection(*self._where, timeout=WAIT)
        self._connection.request("GET", f"{link.path}?{link.query}")
        answer = self._connection.getresponse()
        answer.read()
        self._cookie = answer.headers["set-cookie"].split(";")[0]

    def page(self, path: str) -> tuple[float, int]:
        """Seconds to the last byte of a page, and its bytes.

        Raises:
            Unmeasurable: the page was refused.
        """
        begun = time.perf_counter()
        self._connection.request("GET", f"/ui/{path}", headers={"cookie": self._cookie})
        answer = self._connection.getresponse()
        body = answer.read()
        took = time.perf_counter() - begun
        if answer.status != http.client.OK:
            raise Unmeasurable(f"/ui/{path}: {answer.status}")
        return took, len(body)

    def leave(self) -> None:
        """Close the connection."""
        self._connection.close()

    def stream(self, path: str) -> socket.socket:
        """An open stream of a page's changes."""
        link = socket.create_connection(self._where, timeout=WAIT)
        host, port = self._where
        lines = (
            f"GET /ui/live?at={quote(f'/ui/{path}', safe='')}&since= HTTP/1.1",
            f"host: {host}:{port}",
            f"cookie: {self._cookie}",
        )
        link.sendall("\r\n".join([*lines, "", ""]).encode())
        # The whole page comes first: opening twenty at once is not what is measured.
        begun = b""
        while b"data: " not in begun:
            got = link.recv(1 << 20)
            begun += got
            if not got or not begun.startswith(b"HTTP/1.1 200"[: len(begun)]):
                raise Unmeasurable(f"/ui/{path} is not kept up to date: {begun[:200]!r}")
        return link


@contextmanager
def watching(visitor: Principal, paths: Sequence[str]) -> Iterator[list[int]]:
    """Open consoles that read until the end; gives the count of received bytes, which grows."""
    links = [visitor.stream(paths[each % len(paths)]) for each in range(CONSOLES)]
    ours, theirs = socket.socketpair()
    got = [0]
    # The reader closes nothing, and what it reads is closed when it has ended: nobody reads what is closed.
    reader = threading.Thread(target=_read, args=(links, theirs, got))
    reader.start()
    try:
        yield got
    finally:
        ours.close()
        reader.join()
        for link in (*links, theirs):
            link.close()


def _read(links: Sequence[socket.socket], until: socket.socket, got: list[int]) -> None:
    poll = select.poll()
    by_descriptor = {link.fileno(): link for link in (*links, until)}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _events in poll.poll():
            if descriptor == until.fileno():
                return
            data = by_descriptor[descriptor].recv(1 << 20)
            got[0] += len(data)
            if not data:
                poll.unregister(descriptor)


def pages(visitor: Principal, times: int) -> Iterator[list[str]]:
    """A row for each page."""
    for path in PAGES:
        found = [visitor.page(path) for _ in range(times)]
        took = sorted(1000 * seconds for seconds, _ in found)
        size = max(each for _, each in found) / 1000
        yield [f"/ui/{path}", number(statistics.median(took)), number(took[-1]), number(size)]


def calls(
    daemon: Daemon, visitor: Principal, scope: Scope, paths: Sequence[str] = PAGES
) -> Iterator[list[str]]:
    """A row for each flow of calls: its loss while these pages are open, and the daemon's additional CPU."""
    with stage([Mcpd(SOCKET, daemon)]) as connected:
        for flow, window in FLOWS.items():
            pairs = []
            for each in range(scope.rounds):
                turns: dict[bool, Turn] = {}
                for watched in (each % 2 == 0, each % 2 == 1):
                    with watching(visitor, paths) if watched else nullcontext():
                        turns[watched] = _turn(connected, flow, window, scope.seconds)
                pairs.append((turns[True], turns[False]))
            rate = ratio([(ours.rate, alone.rate) for ours, alone in pairs]) or 0
            cpu = ratio([(ours.cpu, alone.cpu) for ours, alone in pairs]) or 0
            more = statistics.median(_share(ours) - _share(alone) for ours, alone in pairs)
            # Calls without a pause take all the CPU that there is, with pages or without.
            share = "-" if window else f"{more:.1f} %"
            yield [flow, f"{100 * (1 - rate):.1f} %", f"{100 * (cpu - 1):.1f} %", share]


def _turn(connected: Stage, flow: str, window: int, seconds: float) -> Turn:
    case = Case(name=flow, targets=(SOCKET,), window=window or 1)
    return connected.turn(case, SOCKET, seconds, 0 if window else 1 / PACE)


def _share(turn: Turn) -> float:
    """The daemon's CPU, in percent of one."""
    return 100 * (turn.cpu or 0) * turn.rate


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=Scope().rounds)
    parser.add_argument("--watch", action="append", metavar="PAGE", help="all in turn, if none is named")
    parser.add_argument("--tiny", action="store_true", help="everything once: to see whether it runs")
    asked = parser.parse_args()
    scope = TINY if asked.tiny else attrs.evolve(Scope(), rounds=asked.rounds)
    with running({"mcpServers": servers([scope.tools] * scope.servers)}) as daemon, ExitStack() as stack:
        visitor = Principal(daemon)
        stack.callback(visitor.leave)
        whose = f"{scope.servers} servers, {scope.servers * scope.tools:,} tools"
        found: list[Table] = [
            (f"Pages ({whose})", ["page", "median ms", "worst ms", "KB"], list(pages(visitor, scope.times))),
            (
                f"The cost of {CONSOLES} open consoles for calls",
                ["calls", "calls/s less", "CPU a call more", "CPU of the daemon more, of one"],
                list(calls(daemon, visitor, scope, asked.watch or PAGES)),
            ),
        ]
    print("\n\n".join(map(text, found)))


if __name__ == "__main__":
    main()
