"""Measures the tokens of each surface, and of one call on it, relative to a list of every tool.

The daemon serves recorded tool lists, each from its own child; a client counts bytes on the wire. Tokens are
bytes / 4, rounded up.

A surface's fixed text does not depend on the servers: it is measured on a second daemon with one server, so it
includes one line of the index. The index is the first daemon's text beyond that.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from bench.costs import Aim, First, Way, first_sight, name_in, names, walk
from bench.running import Client, Unmeasurable, running
from bench.tables import aligned
from tests.scripted_server import command

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.running import Daemon

LAZY = ("category", "browse", "search", "load")
SURFACES = (*LAZY, "full")

BYTES_PER_TOKEN = 4
"""The rule of thumb for English and JSON, as in `mcpd status`."""

FIXED_TOKENS = 600
"""Goal: most tokens of a lazy surface's fixed text."""

SAVED_PERCENT = 99.0
"""Goal: percent of `full`'s first sight that a lazy surface saves."""

INDEX_SLACK = 1.1
"""Factor for an index: `limits.indexCharacters` limits its text, to which JSON's escapes add, and a last line
with the number of omitted servers."""

STARTS = 8
"""Servers started at once: more than the default, since nothing else runs."""


@attrs.frozen(kw_only=True)
class Upstream:
    """One recorded server."""

    name: str
    """Its name in the configuration."""
    path: Path
    """The file with its list."""
    tools: int
    """The count of its tools."""


@attrs.frozen(kw_only=True)
class Measured:
    """One surface."""

    name: str
    first: First
    fixed: First
    """The first sight with one server."""
    way: Way


def main(argv: Sequence[str]) -> int:
    """Measure and print.

    Returns:
        0: the goals are met; 1: they are not; 2: usage; 3: nothing could be measured.
    """
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        upstreams = upstreams_in(options.lists, options.copies)
        server, _, tool = options.tool.partition("/")
        if server not in {each.name for each in upstreams}:
            raise ValueError(f"--tool {options.tool}: no list is named {server}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(str(error))
    try:
        measured = _measure(upstreams, server, tool, options)
    except (Unmeasurable, OSError) as error:
        print(f"bench.tokens: {error}", file=sys.stderr)
        return 3
    return _report(measured, upstreams, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.tokens",
        description="What each surface costs a model's context, against listing every tool.",
        epilog="example:\n  python -m bench.tokens recorded-lists --copies 4 --descriptions 80\n\n"
        "exit status: 0 the goals are met, 1 they are not, 2 usage, 3 nothing could be measured",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("lists", type=Path, metavar="DIR", help='JSON files {"tools": [...]}, a server each')
    parser.add_argument("--copies", type=_count, default=1, metavar="N", help="serve each list N times")
    parser.add_argument(
        "--descriptions", type=_count, default=0, metavar="N", help="pad servers' descriptions to N characters"
    )
    parser.add_argument(
        "--undescribed", action="store_true", help="describe no server, as in a configuration that was pasted"
    )
    parser.add_argument(
        "--index-characters",
        type=_count,
        default=6000,
        metavar="N",
        help="limits.indexCharacters (%(default)s)",
    )
    parser.add_argument(
        "--tool", default="py-git/git_log", metavar="SERVER/TOOL", help="the call to reach (%(default)s)"
    )
    parser.add_argument("--need", default="show the git commit log", help="what is searched for (%(default)s)")
    parser.add_argument(
        "--arguments", type=_object, default={"repo_path": "."}, metavar="JSON", help="the call's arguments"
    )
    return parser


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number over 0")
    return int(text)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object")
    return value


# --- servers -------------------------------------------------------------------------------------------------


def upstreams_in(directory: Path, copies: int) -> list[Upstream]:
    """The recorded servers: all originals, then copies.

    Raises:
        ValueError: there is no list, or a file is not a list of tools.
    """
    originals = [
        Upstream(
            name=_sanitised(path.stem), path=path.resolve(), tools=len(json.loads(path.read_bytes())["tools"])
        )
        for path in sorted(directory.glob("*.json"))
    ]
    if not originals:
        raise ValueError(f"{directory} has no *.json")
    return [
        attrs.evolve(each, name=f"{each.name}-{copy}" if copy > 1 else each.name)
        for copy in range(1, copies + 1)
        for each in originals
    ]


def _sanitised(name: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower())


def config_of(upstreams: Iterable[Upstream]) -> dict[str, Any]:
    """A configuration with these servers, without descriptions."""
    program, *words = command()
    servers = {each.name: {"command": program, "args": [*words[:-1], f"@{each.path}"]} for each in upstreams}
    return {"mcpServers": servers, "limits": {"starts": STARTS}}


def _config(upstreams: Iterable[Upstream], options: argparse.Namespace) -> dict[str, Any]:
    config = config_of(upstreams)
    for name, server in config["mcpServers"].items():
        server["description"] = "" if options.undescribed else _description(name, options.descriptions)
    config["limits"]["indexCharacters"] = options.index_characters
    return config


def _description(name: str, characters: int) -> str:
    text = f"Tools of {name}."
    return text + (" and what belongs to them" * characters)[: max(0, characters - len(text))]


# --- measuring -----------------------------------------------------------------------------------------------


def _measure(
    upstreams: list[Upstream], server: str, tool: str, options: argparse.Namespace
) -> dict[str, Measured]:
    alone = [each for each in upstreams if each.name == server]
    with running(_config(alone, options), {each.name: each.tools for each in alone}) as daemon:
        fixed = {surface: _first(daemon, surface) for surface in SURFACES}
    with running(_config(upstreams, options), {each.name: each.tools for each in upstreams}) as daemon:
        name = name_in(_first(daemon, "full").tools, server, tool)
        aim = Aim(server=server, tool=name, need=options.need, arguments=options.arguments)
        return {surface: _surface(daemon, surface, fixed[surface], aim) for surface in SURFACES}


def _first(daemon: Daemon, surface: str) -> First:
    with Client(daemon, surface) as client:
        return first_sight(client)


def _surface(daemon: Daemon, surface: str, fixed: First, aim: Aim) -> Measured:
    with Client(daemon, surface) as client:
        first = first_sight(client)
        way = walk(client, aim, surface, len(first.tools))
        return Measured(name=surface, first=first, fixed=fixed, way=way)


# --- reporting -----------------------------------------------------------------------------------------------


def _report(measured: dict[str, Measured], upstreams: Sequence[Upstream], options: argparse.Namespace) -> int:
    listed, usable = sum(each.tools for each in upstreams), len(names(measured["full"].first.tools))
    print(
        f"{len(upstreams)} servers list {listed:,} tools, {usable:,} of them usable;"
        f" limits.indexCharacters is {options.index_characters:,}\n"
    )
    print("First sight: instructions and tools/list")
    print(_first_table(measured))
    print(f"\nThe way to one call of {options.tool}, in tokens")
    print(_way_table(measured))
    goals = list(_goals(measured, options.index_characters))
    print("\nGoals")
    rows = [(*goal[:3], "PASS" if goal[3] else "FAIL") for goal in goals]
    print(aligned([("surface", "goal", "measured", ""), *rows]))
    for each in measured.values():
        for fault in each.way.faults:
            print(f"FAIL {each.name}: {fault}")
    return 0 if all(goal[3] for goal in goals) else 1


def _first_table(measured: dict[str, Measured]) -> str:
    full = measured["full"].first.size
    rows = [
        (
            each.name,
            f"{len(each.first.instructions):,}",
            f"{len(each.first.tools):,}",
            f"{each.first.size:,}",
            f"{tokens_in(each.first.size):,}",
            f"{each.first.size / full:.4f}",
            f"{_saved(each, full):.2f} %",
            f"{tokens_in(each.fixed.size):,}" if each.name in LAZY else "-",
            f"{tokens_in(_index(each)):,}" if each.name in LAZY else "-",
        )
        for each in measured.values()
    ]
    head = ("surface", "instructions B", "tools/list B", "sum B", "tokens")
    return aligned([(*head, "of full", "saved", "fixed tokens", "index tokens"), *rows])


def _way_table(measured: dict[str, Measured]) -> str:
    full = measured["full"]
    most = full.first.size + full.way.size
    rows: list[tuple[str, ...]] = []
    for each in measured.values():
        rows += [
            (
                each.name,
                step.name,
                *(
                    f"{tokens_in(size):,}"
                    for size in (step.request, step.wire, step.read, step.listed, step.size)
                ),
                "",
            )
            for step in each.way.steps
        ]
        total = each.first.size + each.way.size
        sizes = (f"{tokens_in(each.way.size):,}", f"{tokens_in(total):,} = {total / most:.2%} of full")
        rows.append((each.name, "total", "", "", "", "", *sizes))
    head = ("surface", "step", "request", "answer on the wire", "read", "listed anew", "context")
    return aligned([(*head, "with first sight"), *rows])


def _goals(measured: dict[str, Measured], index_characters: int) -> Iterable[tuple[str, str, str, bool]]:
    full = measured["full"].first.size
    for name in LAZY:
        each = measured[name]
        fixed, saved, index = tokens_in(each.fixed.size), _saved(each, full), _index(each)
        yield name, f"fixed text under {FIXED_TOKENS} tokens", f"{fixed}", fixed < FIXED_TOKENS
        yield name, f"{SAVED_PERCENT:g} % less than full", f"{saved:.2f} %", saved >= SAVED_PERCENT
        bound = round(index_characters * INDEX_SLACK)
        yield name, f"index within {bound:,} bytes", f"{index:,}", index <= bound
        told = len(each.way.faults)
        yield name, "every answer leads on", f"{told} do not", told == 0


def _index(each: Measured) -> int:
    return each.first.size - each.fixed.size


def _saved(each: Measured, full: int) -> float:
    return 100 * (1 - each.first.size / full)


def tokens_in(size: int) -> int:
    """Tokens of a number of bytes, by the rule of thumb, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
