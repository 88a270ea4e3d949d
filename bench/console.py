"""`python -m bench.console`: how long the console's pages take, their size, and what open ones cost calls.

    python -m bench.console [--rounds N] [--tiny] [--write]

A daemon with 50 servers of 100 tools each. Rounds of calls with and without twenty pages that are kept up to
date, in turn, so that a busy moment hits both. `--write` puts the tables into docs/performance.md.
"""

from __future__ import annotations

import argparse
import http.client
import os
import select
import socket
import statistics
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import attrs

from bench.calls.daemons import servers
from bench.calls.rounds import Case, Stage
from bench.calls.targets import SOCKET, Mcpd
from bench.calls.wires import cpu_of
from bench.running import Unmeasurable, running
from bench.tables import machine, markdown, number, put, text
from tests.e2e.harness import ROOT
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.calls.rounds import Turn
    from bench.calls.wires import Request, Wire
    from bench.running import Daemon
    from bench.tables import Table

BEGIN, END = "<!-- console: begin -->", "<!-- console: end -->"
PAGES = (
    *("servers", "servers/s0", "tools", "tools?server=s1", "tools?q=echo", "tools/s0/echo_0"),
    *("sessions", "calls", "savings", "settings"),
)
WATCHED = {"the servers": ("servers",), "the calls": ("calls",), "all pages in turn": PAGES}
CONSOLES = 20
PACE = 100
"""Calls a second, at most: enough for every look to find another page of calls."""


@attrs.frozen(kw_only=True)
class Scope:
    """How much is measured."""

    servers: int = 50
    tools: int = 100
    """Of each server."""
    times: int = 15
    """How often each page is asked for."""
    rounds: int = 3
    """Pairs of turns."""
    seconds: float = 20.0
    """Of each turn: twice the longest time between two computations of a page while calls flow."""


TINY = Scope(servers=2, tools=5, times=2, rounds=1, seconds=0.05)


class Visitor:
    """A browser that has followed a link."""

    def __init__(self, daemon: Daemon) -> None:
        """Come in."""
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
            Unmeasurable: it was refused.
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
        """Hang up."""
        self._connection.close()

    def stream(self, path: str) -> socket.socket:
        """The stream of what changes of a page, open."""
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
def watching(visitor: Visitor, paths: Sequence[str]) -> Iterator[list[int]]:
    """So many consoles, which read what comes until the end; gives the bytes that came, as they come."""
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


def pages(visitor: Visitor, times: int) -> Iterator[list[str]]:
    """A row for each page."""
    for path in PAGES:
        found = [visitor.page(path) for _ in range(times)]
        took = sorted(1000 * seconds for seconds, _ in found)
        size = max(each for _, each in found) / 1000
        yield [f"/ui/{path}", number(statistics.median(took)), number(took[-1]), number(size)]


def calls(daemon: Daemon, visitor: Visitor, scope: Scope) -> Iterator[list[str]]:
    """A row for calls one at a time and in a burst, and what is watched meanwhile."""
    stage = Stage([Mcpd(SOCKET, daemon)])
    try:
        for watched, paths in WATCHED.items():
            for window in (1, 32):
                case = Case(name=f"{window} in flight", targets=(SOCKET,), window=window)
                yield [watched, case.name, *_compared(stage, case, visitor, paths, scope)]
    finally:
        stage.close()


def share(daemon: Daemon, visitor: Visitor, scope: Scope) -> Iterator[list[str]]:
    """The CPU of the daemon in percent of one: with calls that leave it time, so that nothing else moves it."""
    target = Mcpd(SOCKET, daemon)
    wire = target.connect(0)
    request = target.request(0, {"text": "x"}, "echo")
    try:
        for watched, paths in WATCHED.items():
            alone, looked_at = [], []
            for _ in range(scope.rounds):
                alone.append(_paced(daemon, wire, request, scope.seconds))
                with watching(visitor, paths):
                    looked_at.append(_paced(daemon, wire, request, scope.seconds))
            without, with_them = statistics.median(alone), statistics.median(looked_at)
            yield [watched, *(f"{each:.1f} %" for each in (without, with_them, with_them - without))]
    finally:
        wire.close()


def _paced(daemon: Daemon, wire: Wire, request: Request, seconds: float) -> float:
    used, begun = cpu_of(daemon.pid), time.perf_counter()
    while time.perf_counter() < begun + seconds:
        wire.exchange(request.line(wire.number))
        wire.number += 1
        time.sleep(1 / PACE)
    return 100 * (cpu_of(daemon.pid) - used) / (time.perf_counter() - begun)


def _compared(stage: Stage, case: Case, visitor: Visitor, paths: Sequence[str], scope: Scope) -> list[str]:
    rates, cpu = [], []
    for each in range(scope.rounds):
        turns: dict[bool, Turn] = {}
        for watched in (each % 2 == 0, each % 2 == 1):
            if watched:
                with watching(visitor, paths):
                    turns[watched] = stage.turn(case, case.targets[0], scope.seconds)
            else:
                turns[watched] = stage.turn(case, case.targets[0], scope.seconds)
        rates.append(turns[True].rate / turns[False].rate)
        cpu.append((turns[True].cpu or 0) / (turns[False].cpu or 1))
    return [f"{100 * (1 - statistics.median(rates)):.1f} %", f"{100 * (statistics.median(cpu) - 1):.1f} %"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=Scope().rounds)
    parser.add_argument("--tiny", action="store_true", help="everything once: to see whether it runs")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    asked = parser.parse_args()
    scope = TINY if asked.tiny else attrs.evolve(Scope(), rounds=asked.rounds)
    load = os.getloadavg()[0]
    with running({"mcpServers": servers([scope.tools] * scope.servers)}) as daemon, ExitStack() as stack:
        visitor = Visitor(daemon)
        stack.callback(visitor.leave)
        whose = f"{scope.servers} servers, {scope.servers * scope.tools:,} tools"
        found: list[Table] = [
            (f"Pages ({whose})", ["page", "median ms", "worst ms", "KB"], list(pages(visitor, scope.times))),
            (
                f"What {CONSOLES} open consoles cost calls",
                ["they watch", "calls", "calls/s less", "CPU a call more"],
                list(calls(daemon, visitor, scope)),
            ),
            (
                f"CPU of the daemon at {PACE} calls a second",
                ["they watch", "nobody watches", f"{CONSOLES} consoles", "more"],
                list(share(daemon, visitor, scope)),
            ),
        ]
    print("\n\n".join(map(text, found)))
    if asked.write:
        date = time.strftime("%Y-%m-%d", time.gmtime())
        head = f"`python -m bench.console`, {date}. {machine()}. Load average {load:.1f} at the beginning."
        put(ROOT / "docs" / "performance.md", BEGIN, END, "\n\n".join([head, *map(markdown, found)]))


if __name__ == "__main__":
    main()
