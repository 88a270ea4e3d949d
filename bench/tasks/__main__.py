"""Four tasks over recorded tools, done by scripted models on each surface: tokens, round trips, seconds.

The real daemon serves five recorded lists of tools; stand-ins make up the answers, in the shapes and sizes of
the real servers. Each task is a conversation of its own. Counted are the instructions and the list of tools,
each call that the model writes, and each answer that it reads, once; tokens are bytes / 4. Models think in no
time, and call one tool a turn.

`code, first time` looks at one answer of each kind before it writes a script; `code` has been told the shapes,
which mcpd has observed by then. `--code-mode PYTHON` adds FastMCP's CodeMode in front of the same servers; it
is a Python that has it:

    python3 -m venv .cache/codemode; .cache/codemode/bin/pip install 'fastmcp[code-mode]==4.2.3'
    python -m bench.tasks DIR --code-mode .cache/codemode/bin/python
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from bench.running import Client, Unmeasurable, running
from bench.tables import aligned
from bench.tasks.seats import CODE, CODE_MODE, Child, Context, Seat, by_calls, by_scripts
from bench.tasks.work import TASKS
from bench.tokens import tokens_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.running import Daemon
    from bench.tasks.work import Task

SERVERS = {
    "github": "github",
    "hubspot": "hubspot",
    "notion": "notion",
    "filesystem": "filesystem",
    "fetch": "py-fetch",
}
"""The recorded list of each server."""
GOAL = 0.15
"""The most that surface `code` may use of `full`'s tokens, over all tasks."""
FULL, FIRST, CODE_MODE_NAME = "full", "code, first time", "FastMCP CodeMode"
HERE = Path(__file__).parent


@attrs.frozen(kw_only=True)
class Way:
    """A kind of model."""

    name: str
    client: Callable[[], Client]
    does: Callable[[Seat, Task], Any]


def main(argv: Sequence[str]) -> int:
    """Measure and print.

    Returns:
        0: the goal is met; 1: it is not; 2: usage; 3: nothing could be measured.
    """
    parser = argparse.ArgumentParser(
        prog="python -m bench.tasks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "lists", type=Path, metavar="DIR", help="recorded lists: github.json, hubspot.json, ..."
    )
    parser.add_argument("--seconds", type=float, default=0.02, help="of each answer of a server (%(default)s)")
    parser.add_argument("--code-mode", metavar="PYTHON", help="measure FastMCP's CodeMode as well")
    options = parser.parse_args(argv)
    config = _config(options.lists, options.seconds)
    if missing := [
        each["args"][-2] for each in config["mcpServers"].values() if not Path(each["args"][-2]).exists()
    ]:
        parser.error(f"there is no {', '.join(missing)}")
    try:
        with running(config) as daemon, tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"mcpServers": config["mcpServers"]}, file)
            file.flush()
            used = _measured(list(_ways(daemon, options.code_mode, file.name)))
    except (Unmeasurable, OSError) as error:
        print(f"bench.tasks: {error}", file=sys.stderr)
        return 3
    return _report(used)


def _config(lists: Path, seconds: float) -> dict[str, Any]:
    words = ["-S", "-E", str(HERE / "stand_in.py")]
    return {
        "mcpServers": {
            name: {
                "command": sys.executable,
                "args": [*words, name, str((lists / f"{file}.json").resolve()), str(seconds)],
            }
            for name, file in SERVERS.items()
        }
    }


def _ways(daemon: Daemon, python: str | None, config: str) -> Iterator[Way]:
    def at(surface: str) -> Callable[[], Client]:
        return lambda: Client(daemon, surface)

    yield Way(name=FIRST, client=at("code"), does=partial(by_scripts, attrs.evolve(CODE, looks=True)))
    for surface in (FULL, "category", "load"):
        yield Way(
            name=surface,
            client=at(surface),
            does=partial(by_calls, surface),
        )
    yield Way(name="code", client=at("code"), does=partial(by_scripts, CODE))
    if python:
        yield Way(
            name=CODE_MODE_NAME,
            client=lambda: Child([python, str(HERE / "code_mode.py"), config]),
            does=partial(by_scripts, CODE_MODE),
        )


def _measured(ways: Sequence[Way]) -> dict[str, dict[str, Context]]:
    """The contexts by way and task.

    Raises:
        Unmeasurable: a task failed, or its answer differs between ways.
    """
    used: dict[str, dict[str, Context]] = {}
    answers: dict[str, Any] = {}
    for way in ways:
        for task in TASKS:
            with closing(way.client()) as client:
                seat = Seat(client)
                began = time.monotonic()
                answer = way.does(seat, task)
                seat.used.seconds = time.monotonic() - began
            if answer != answers.setdefault(task.name, answer):
                raise Unmeasurable(f"{task.name}: {way.name} says {answer}, others {answers[task.name]}")
            used.setdefault(way.name, {})[task.name] = seat.used
    return used


def _report(used: Mapping[str, Mapping[str, Context]]) -> int:
    rows: list[tuple[str, ...]] = []
    sums = {name: sum(each.values(), Context()) for name, each in used.items()}
    order = sorted(used, key=lambda name: -sums[name].tokens)
    for task in [task.name for task in TASKS] + ["all four"]:
        per = sums if task == "all four" else {name: each[task] for name, each in used.items()}
        rows += [_row(task, name, per[name], per[FULL]) for name in order]
    head = ("task", "on", "tools listed", "calls written", "answers read", "tokens", "of full", "without lists")
    print(aligned([(*head, "round trips", "seconds"), *rows]))
    share = sums[FIRST].tokens / sums[FULL].tokens
    met, goal = share <= GOAL, f"goal: {GOAL:.0%}"
    print(f"\n{'PASS' if met else 'FAIL'} the first time, code takes {share:.1%} of full's tokens ({goal})")
    return 0 if met else 1


def _row(task: str, name: str, used: Context, full: Context) -> tuple[str, ...]:
    talk, most = used.written + used.read, full.written + full.read
    counts = [used.listed, used.written, used.read, used.listed + talk]
    shares = [used.tokens / full.tokens, talk / most]
    return (
        *(task, name),
        *(f"{tokens_in(each):,}" for each in counts),
        *(f"{each:.1%}" for each in shares),
        *(f"{used.trips:,}", f"{used.seconds:.1f}"),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
