"""`python -m bench.trace`: counts the Python calls in `daemon/` of one warm call, for each surface.

It starts `mcpd run` with one stdio server, and one client calls one tool over the socket: first to warm up,
then a few times while `sys.setprofile` counts calls of functions in `daemon/` in the daemon's main thread, from
reading the request to the line in the log of calls. SIGUSR2 turns the counting on and off; a pipe reports that
it is on, and the result. Both happen between two steps of the loop, so that no step is counted in part. The I/O
loop itself (`wire/outbox.py`) counts as one file and no call: its number of polls depends on the server's
speed. Of several counted calls, the one with the fewest Python calls counts, since timers of the daemon may add
some.

    python -m bench.trace [--order SURFACE]

Columns: Python calls, their files, and the number of switches from one file to another. `--order` prints a
surface's files in the order in which they are entered.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from bench.calls.daemons import servers
from bench.calls.targets import FEW_TOOLS
from bench.running import Client, Daemon, Unmeasurable
from daemon.cli import main as mcpd
from tests.e2e.harness import ROOT, own_directory, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

SURFACES = ("category", "browse", "search", "load", "full")

WARM_CALLS = 5
"""Calls before the first counted one: they fill the caches."""

COUNTED_CALLS = 15
"""Counted calls, of which the one with the fewest Python calls counts."""

CALL_ID = 1000
"""The id of the calls: beyond the ids of a client's other requests."""

_LOOP = "wire/outbox.py"
"""The I/O loop."""

_GENERATED = "<attrs generated methods daemon."
"""Methods that attrs generated for our classes count as calls, but have no file."""


@attrs.frozen(kw_only=True)
class Trace:
    """The Python calls of one tool call."""

    calls: int
    """Python calls of functions in daemon/."""
    order: tuple[str, ...]
    """Their files; a file appears again after each switch."""

    @property
    def files(self) -> int:
        """The number of different files."""
        return len(set(self.order))

    @property
    def switches(self) -> int:
        """The number of switches between files."""
        return len(self.order) - 1


class _Counter:
    """Counts calls in the daemon's main thread; a signal turns it on and off, and a pipe gets the result."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._on = False
        self._calls = 0
        self._order: list[str] = []
        self._daemon = str(ROOT / "daemon") + os.sep

    def toggle(self, _number: int, _frame: FrameType | None) -> None:
        # Once the step that the signal interrupts has ended: the answer is out before the call is in the log.
        trio.lowlevel.current_trio_token().run_sync_soon(self._toggle)

    def _toggle(self) -> None:
        self._on = not self._on
        if self._on:
            self._calls, self._order = 0, []
            self._tell("on")
            sys.setprofile(self._count)
        else:
            sys.setprofile(None)
            self._tell({"calls": self._calls, "order": self._order})

    def _count(self, frame: FrameType, event: str, _argument: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith((self._daemon, _GENERATED)):
            return
        short = file.removeprefix(self._daemon)
        if short != _LOOP:
            self._calls += 1
        elif self._order:
            return
        if short != file and (not self._order or self._order[-1] != short):
            self._order.append(short)

    def _tell(self, what: object) -> None:
        os.write(self._pipe, json.dumps(what).encode() + b"\n")


def _daemon(pipe: str, words: list[str]) -> None:
    """Run the counted daemon."""
    signal.signal(signal.SIGUSR2, _Counter(os.open(pipe, os.O_WRONLY)).toggle)
    sys.argv[1:] = words
    mcpd()


class Traced(Daemon):
    """A daemon that counts its calls on demand, and reports them through a pipe."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Write the configuration and make the pipe."""
        super().__init__(own_directory(), config)
        self.forked = False
        self._pipe = self.directory / "pipe"
        os.mkfifo(self._pipe)
        # Both ends are open here, so that neither side waits for the other to open the pipe.
        self.told = open(os.open(self._pipe, os.O_RDWR), "rb")  # noqa: PTH123, SIM115 - closed by `tracing`

    def command(self, *words: str) -> list[str]:
        """`mcpd WORDS` with the counter."""
        return [sys.executable, "-m", "bench.trace", "--daemon", str(self._pipe), *words]

    def traced(self, act: Callable[[], object]) -> Trace:
        """The daemon's Python calls during an action."""
        os.kill(self.pid, signal.SIGUSR2)
        self.told.readline()
        act()
        os.kill(self.pid, signal.SIGUSR2)
        found = json.loads(self.told.readline())
        return Trace(calls=found["calls"], order=tuple(found["order"]))


@contextmanager
def tracing(config: Mapping[str, Any]) -> Iterator[Traced]:
    """Run a counted daemon whose servers are up."""
    daemon = Traced(config)
    with daemon.told, started(daemon):
        daemon.wait_listed()
        yield daemon


def _call_of(surface: str) -> dict[str, Any]:
    """The params of a call of an echo server's tool in the surface's form."""
    arguments = {"text": "hello"}
    if surface == "category":
        wrapped = {"category": "s0", "name": "echo_0", "args": arguments}
        return {"name": "call-category-tool", "arguments": wrapped}
    if surface in {"browse", "search"}:
        return {"name": "call_tool", "arguments": {"tool_name": "echo_0", "arguments": arguments}}
    return {"name": "echo_0", "arguments": arguments}


def _call(client: Client, surface: str) -> None:
    # Without white space, as the SDKs write it.
    request = {"jsonrpc": "2.0", "id": CALL_ID, "method": "tools/call", "params": _call_of(surface)}
    client.send(json.dumps(request, separators=(",", ":")).encode())
    while (message := client.receive()).get("id") != CALL_ID:
        pass
    if "error" in message or message["result"].get("isError"):
        raise Unmeasurable(f"{surface}: {message}")


def _prepare(client: Client, surface: str) -> None:
    """Prepare a client for calls: handshake, list, and a load if the surface needs it."""
    client.introduce()
    client.result_of("tools/list", {})
    if surface == "load":
        client.result_of("tools/call", {"name": "load_mcp_tool", "arguments": {"names": ["echo_0"]}})
    for _ in range(WARM_CALLS):
        _call(client, surface)


def traces(*surfaces: str) -> dict[str, Trace]:
    """A warm call on each surface.

    Raises:
        Unmeasurable: a call was refused.
    """
    found = {}
    with tracing({"mcpServers": servers([FEW_TOOLS])}) as daemon:
        for surface in surfaces:
            with Client(daemon, surface) as client:
                _prepare(client, surface)
                runs = [daemon.traced(partial(_call, client, surface)) for _ in range(COUNTED_CALLS)]
                found[surface] = min(runs, key=lambda run: run.calls)
    return found


def main(words: list[str]) -> int:
    """Print a line per surface."""
    if words[:1] == ["--daemon"]:
        _daemon(words[1], words[2:])
        return 0
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description=__doc__.splitlines()[0])
    parser.add_argument("--order", choices=SURFACES, help="the files of one surface, as they are entered")
    asked = parser.parse_args(words)
    if asked.order:
        print("\n".join(traces(asked.order)[asked.order].order))
        return 0
    print(f"{'surface':<10}{'calls':>7}{'files':>7}{'switches':>10}")
    for surface, trace in traces(*SURFACES).items():
        print(f"{surface:<10}{trace.calls:>7}{trace.files:>7}{trace.switches:>10}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
