"""Measures the cost of sandboxes, as ratios and differences within one run: `python -m bench.sandboxes`.

A start is measured from its preparation to the first byte of a program that does nothing else, in turns without
a sandbox, in `strict` and in `home`, whose home directory has 120 entries and some secrets; after a pause, in
which the kernel removes the last namespaces. Then daemons with and without sandboxes start in turns: READY, all
servers up, a warm call, and the daemon's memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio

from bench.calls.daemons import ECHO
from bench.running import Client
from bench.running import prepared as prepared_daemon
from daemon.config.config_model import Server
from daemon.config.sandbox_keys import SandboxMode, sandbox_in_force
from daemon.processes import proc
from daemon.processes.children import ChildProcess, Children
from daemon.sandbox.launch import Sandboxes
from daemon.sandbox.policy import DaemonPlaces

BARS = {SandboxMode.STRICT: 10.0, SandboxMode.HOME: 30.0}
"""Milliseconds by which the median start may be slower."""

RATIO = 1.03
"""The bar for READY, a warm call and memory, relative to no sandboxes."""

ENTRIES = 120
"""Entries of the home directory: as many as in a used one."""

SECRETS = (".ssh", ".aws", ".gnupg", ".config/gh", ".config/google-chrome", ".claude", ".mozilla", ".docker")
UNCOUNTED = 3
"""Uncounted first starts of each kind, which read programs from the disk."""

PAUSE = 0.05
"""Seconds before each start: the kernel frees a network after its last program's end, under a global lock."""

CALLS = 500
"""Calls for the median."""


def furnished(home: Path) -> dict[str, str]:
    """Fill a home directory; returns the environment."""
    for number in range(ENTRIES):
        (home / f"entry-{number}").mkdir()
    for each in SECRETS:
        (home / each).mkdir(parents=True)
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


async def start(
    mode: SandboxMode, home: Path, environ: dict[str, str], children: Children, sandboxes: Sandboxes
) -> float:
    """Milliseconds of one start."""
    server = Server(name="s", command="echo", args=("up",), confined=sandbox_in_force(mode))
    await trio.sleep(PAUSE)
    began = time.perf_counter()
    if server.confined is None:
        child = await children.start("/bin/echo", ["up"], environ, str(home))
        await _first(child)
    else:
        async with sandboxes.prepared(server, environ) as ready:
            with ready.given:
                words = ready.words
                child = await children.start(words[0], words[1:], ready.env, str(home), passed=ready.passed)
            if (listener := await ready.listener()) is not None:
                await listener.aclose()
            await _first(child)
    took = (time.perf_counter() - began) * 1000
    await child.process.wait()
    for descriptor in (child.stdin, child.stdout, child.stderr):
        os.close(descriptor)
    return took


async def _first(child: ChildProcess) -> None:
    await trio.lowlevel.wait_readable(child.stdout)
    assert os.read(child.stdout, 64) == b"up\n"


async def starts(home: Path, rounds: int) -> dict[SandboxMode, float]:
    """Median milliseconds of a start by mode; the modes take turns."""
    times: dict[SandboxMode, list[float]] = {mode: [] for mode in (SandboxMode.OFF, *BARS)}
    environ, children = furnished(home), Children()
    async with Sandboxes(children, DaemonPlaces(environ=environ)).serving() as sandboxes:
        for _ in range(UNCOUNTED + rounds):
            for mode, taken in times.items():
                taken.append(await start(mode, home, environ, children, sandboxes))
    return {mode: statistics.median(taken[UNCOUNTED:]) for mode, taken in times.items()}


def daemon(mode: SandboxMode) -> tuple[float, ...]:
    """READY and all servers up in milliseconds, a warm call in microseconds, and the daemon's MiB."""
    servers: dict[str, Any] = {
        f"s{number}": {"command": ECHO[0], "args": [*ECHO[1:], str(number), "3"]} for number in range(4)
    }
    config = {"mcpServers": servers, "sandbox": str(mode), "profiles": {"default": {"surface": "full"}}}
    with prepared_daemon(config) as run:
        began = time.perf_counter()
        run.start()
        ready = (time.perf_counter() - began) * 1000
        run.wait_listed()
        up = (time.perf_counter() - began) * 1000
        with Client(run, "full") as client:
            client.introduce()
            name = client.result_of("tools/list", {}).result["tools"][0]["name"]
            times = []
            for _ in range(CALLS):
                at = time.perf_counter()
                client.result_of("tools/call", {"name": name, "arguments": {}})
                times.append(time.perf_counter() - at)
        return ready, up, statistics.median(times) * 1e6, proc.resident(run.pid) / 2**20


def main() -> None:
    """Measure, print, and fail where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="starts of each kind")
    parser.add_argument("--daemons", type=int, default=5, help="daemons of each kind")
    asked = parser.parse_args()
    with TemporaryDirectory() as made:
        medians = trio.run(starts, Path(made).resolve(), asked.rounds)
    missed = []
    print(f"{'start':<8}{'ms':>8}{'more ms':>9}{'bar':>6}{'ratio':>7}")
    for mode, median in medians.items():
        more, bar = median - medians[SandboxMode.OFF], BARS.get(mode)
        print(f"{mode:<8}{median:>8.1f}{more:>9.1f}{bar or '':>6}{median / medians[SandboxMode.OFF]:>7.1f}")
        missed += [f"a start in {mode}"] if bar is not None and more > bar else []
    found: dict[SandboxMode, list[tuple[float, ...]]] = {SandboxMode.OFF: [], SandboxMode.HOME: []}
    for _ in range(asked.daemons):
        for mode, seen in found.items():
            seen.append(daemon(mode))
    columns = ("READY, ms", "all servers up, ms", "a warm call, µs", "memory, MiB")
    for number, column in enumerate(columns):
        off, home = (statistics.median(each[number] for each in seen) for seen in found.values())
        print(f"{column:<20}{off:>9.1f} without{home:>9.1f} with{home / off:>7.3f}")
        missed += [column] if column != columns[1] and home / off > RATIO else []
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
