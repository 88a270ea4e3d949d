"""Measures the size of meta-tools' answers, and of what a search adds to the list of tools.

The daemon serves recorded tool lists, each from its own child, under two profiles: one has the default limit,
the other the largest possible limit and searches for 20 tools, as mcpd had before there was a limit. Every
server is described on every surface, and every page is followed. Tokens are bytes / 4.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from bench.costs import listing, read_of
from bench.running import Client, Unmeasurable, running
from bench.tokens import BYTES_PER_TOKEN, config_of, tokens_in, upstreams_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.running import Daemon
    from bench.tokens import Upstream

LIMIT = 8000
"""The default of a profile's `answerTokens`."""

PROFILES: dict[str, dict[str, Any]] = {"before": {"answerTokens": 65_536}, "after": {}}
SEARCHED = {"before": 20, "after": 5}

NEEDS = (
    "read a file",
    "list issues of a repository",
    "take a screenshot of the page",
    "show the git commit log",
    "send a message to a channel",
)

Call = tuple[str, str, dict[str, Any]]
"""A surface, a meta-tool and its arguments."""


@attrs.define
class Largest:
    """The largest answer of one meta-tool."""

    size: int = 0
    """The answer's bytes."""
    asked: str = ""
    """The request that got it."""
    calls: int = 0
    """The count of answers."""
    alone: int = 0
    """Answers above the limit with a single definition, which is never cut."""


def main(argv: Sequence[str]) -> int:
    """Measure and print.

    Returns:
        0: no answer is above the limit; 1: one is; 2: usage; 3: nothing could be measured.
    """
    parser = argparse.ArgumentParser(
        prog="python -m bench.answers",
        description="The largest answer of each meta-tool, with and without the limit.",
        epilog="example:\n  python -m bench.answers recorded-lists",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("lists", type=Path, metavar="DIR", help='JSON files {"tools": [...]}, a server each')
    options = parser.parse_args(argv)
    try:
        upstreams = upstreams_in(options.lists, 1)
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(str(error))
    try:
        config, expected = config_of(upstreams), {each.name: each.tools for each in upstreams}
        with running({**config, "profiles": PROFILES}, expected) as daemon:
            found = {profile: _measure(daemon, profile, upstreams) for profile in PROFILES}
            added = {profile: _added(daemon, profile) for profile in PROFILES}
    except (Unmeasurable, OSError) as error:
        print(f"bench.answers: {error}", file=sys.stderr)
        return 3
    return _report(upstreams, found, added)


def _calls(upstreams: Sequence[Upstream], profile: str) -> Iterator[Call]:
    yield "browse", "list_categories", {}
    for each in upstreams:
        yield "category", "get-category-tools", {"category": each.name}
        yield "browse", "get_tools", {"category": each.name}
        yield "load", "load_mcp_server", {"name": each.name}
        names = [tool["name"] for tool in json.loads(each.path.read_bytes())["tools"]]
        yield "category", "get-category-tools", {"category": each.name, "toolNames": names}
        for start in range(0, len(names), 50):
            wanted = [f"{each.name}/{name}" for name in names[start : start + 50]]
            yield "load", "load_mcp_tool", {"names": wanted}
    for need in NEEDS:
        yield "search", "search_tools", {"query": need, "max_results": SEARCHED[profile]}
        yield "search", "search_tools", {"query": need, "max_results": 100}
        yield "load", "load_mcp_server", {"name": need}


def _measure(daemon: Daemon, profile: str, upstreams: Sequence[Upstream]) -> dict[str, Largest]:
    found: dict[str, Largest] = {}
    for surface, name, arguments in _calls(upstreams, profile):
        with Client(daemon, surface, profile=profile) as client:
            client.introduce()
            _walk(client, name, arguments, found.setdefault(name, Largest()))
    return found


def _walk(client: Client, name: str, arguments: dict[str, Any], largest: Largest) -> None:
    """Call a tool, and follow the answer's pages to the end."""
    step: dict[str, Any] | None = {"name": name, "arguments": arguments}
    while step:
        answer = client.result_of("tools/call", step)
        size = read_of(answer)
        structured = answer.result.get("structuredContent", {})
        alone = size > LIMIT * BYTES_PER_TOKEN and len(structured.get("tools", ())) == 1
        largest.calls += 1
        largest.alone += alone
        if size > largest.size and not alone:
            largest.size, largest.asked = size, json.dumps(arguments)[:60]
        step = structured.get("meta", {}).get("next")


def _added(daemon: Daemon, profile: str) -> list[int]:
    """Bytes that each need adds to a client's list and to the model's context."""
    sizes = []
    for need in NEEDS:
        with Client(daemon, "search", profile=profile) as client:
            client.introduce()
            before = len(listing(client))
            asked = {"query": need, "max_results": SEARCHED[profile]}
            answer = client.result_of("tools/call", {"name": "search_tools", "arguments": asked})
            sizes.append(read_of(answer) + len(listing(client)) - before)
    return sizes


def _report(
    upstreams: Sequence[Upstream], found: dict[str, dict[str, Largest]], added: dict[str, list[int]]
) -> int:
    print(f"{len(upstreams)} servers list {sum(each.tools for each in upstreams):,} tools\n")
    print(f"{'meta-tool':20} {'before':>8} {'after':>8} {'answers':>8} {'alone':>6}  largest before")
    for name, before in found["before"].items():
        after = found["after"][name]
        sizes = f"{tokens_in(before.size):8,} {tokens_in(after.size):8,}"
        print(f"{name:20} {sizes} {after.calls:8} {after.alone:6}  {before.asked}")
    means = {profile: sum(sizes) // len(sizes) for profile, sizes in added.items()}
    print(f"\na search and what it lists, mean of {len(NEEDS)} needs:", end=" ")
    print(f"{tokens_in(means['before']):,} tokens before, {tokens_in(means['after']):,} after")
    met = all(tokens_in(each.size) <= LIMIT for each in found["after"].values())
    print(f"{'PASS' if met else 'FAIL'}  no answer above {LIMIT:,} tokens")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
