"""What the model says, as tables: on a terminal, and in the named places of `docs/scale.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from bench.calls.report import number
from bench.scale import agents, points
from bench.scale.beside import Beside
from bench.scale.limits import descriptors, machine, memory, uses
from bench.scale.second import aside, herd, ways

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.scale.checking import Check
    from bench.scale.costs import Costs
    from bench.scale.limits import Use
    from bench.scale.points import Points
    from bench.scale.scenarios import Loaded, Played
    from bench.scale.writers import Writing

BESIDE = "beside"
"""The place whose numbers are measured, not modelled."""

WORDS = {
    "base_mb": ("memory of a daemon with nothing in it", "MB"),
    "server_kb": ("memory for each server, its own process not counted", "KB"),
    "tool_kb": ("memory for each tool", "KB"),
    "base_descriptors": ("descriptors of a daemon with nothing in it", ""),
    "server_descriptors": ("descriptors for each server", ""),
    "client_descriptors": ("descriptors for each client", ""),
    "connection_us": ("CPU for each client that connects, shakes hands, lists and hangs up", "us"),
    "load_ms": ("a load under a key, until it is on disk and answered", "ms"),
    "load_us": ("CPU for it", "us"),
    "loads": ("loads, 32 sessions at once", "a second"),
    "idle_share": ("two idle daemons on one socket: of 200 connections, the first took", "%"),
    "busy_share": ("the same while the first was busy without a pause", "%"),
}
"""What is measured beside, in words, and its unit."""

FULL = 1.05
"""Room for so few more is no room."""

Table = tuple[str, list[str], list[list[str]]]
"""Its title, its heads, its cells."""


@attrs.frozen(kw_only=True)
class Model:
    """All that the model says."""

    points: Points
    beside: Beside
    costs: Costs
    played: Sequence[Played]
    loaded: Sequence[Loaded]
    checks: Sequence[Check]


def tables(model: Model) -> Mapping[str, Sequence[Table]]:
    """What there is to show, by its place."""
    return {
        "carries": [_carries(model), _loads(model)],
        "first": [_first(model)],
        "second": [_shares(model), _second(model), _herds(model)],
        "proof": [_costs(model), _proof(model)],
    }


def _carries(model: Model) -> Table:
    heads = [
        "house",
        "servers",
        "calls/s",
        "loop busy",
        "adds p50",
        "adds p99",
        "refused",
        "memory",
        "with bridges and servers",
        "descriptors",
    ]
    return "What one daemon carries", heads, [_house(played, model) for played in model.played]


def _house(played: Played, model: Model) -> list[str]:
    scenario = played.scenario
    house = (scenario.clients, scenario.servers)
    return [
        f"{scenario.name}{'' if 'clients' in scenario.name else f': {scenario.clients} clients'}",
        str(scenario.servers),
        number(played.rate),
        percent(played.busy),
        time(played.p50),
        time(played.p99),
        percent(played.refused),
        f"{number(memory(model.costs, *house)[0])} MB",
        f"{machine(model.costs, *house)[0] / 1024:.1f} GB",
        f"{descriptors(model.beside, *house)[0]:,.0f}",
    ]


def _loads(model: Model) -> Table:
    heads = ["calls/s", "loop busy", "adds p50", "adds p99", "a message waits", "by the formula"]
    rows = [
        [
            f"{loaded.rate:,.0f}",
            percent(loaded.busy),
            time(loaded.p50),
            time(loaded.p99),
            time(loaded.wait),
            time(loaded.formula),
        ]
        for loaded in model.loaded
    ]
    return "What the loop carries", heads, rows


def _first(model: Model) -> Table:
    found = [uses(played, model.costs, model.beside) for played in model.played]
    rows = [[played.scenario.name, *_rooms(each)] for played, each in zip(model.played, found, strict=True)]
    title = "How many times as many clients there is room for"
    return title, ["house", *(use.name for use in found[0])], rows


def _rooms(found: Sequence[Use]) -> Iterator[str]:
    least = min(use.room for use in found)
    for use in found:
        # What is used up already is told apart from what will be.
        words = times(use.room) if use.room > FULL else f"full ({times(use.room)})"
        yield f"**{words}**" if use.room == least else words


def _shares(model: Model) -> Table:
    house = _large(model)
    asides, chores = aside(house, model.costs), house.chores / house.busy
    rows = [
        ["calls", percent(1 - chores)],
        ["searches and loads", percent(asides)],
        ["lists that are read again, clients that come, scrapes", percent(max(0.0, chores - asides))],
    ]
    return f"What the loop works at: {house.scenario.name}", ["at", "share of its work"], rows


def _large(model: Model) -> Played:
    """The house that more processes are looked at in."""
    return next(played for played in model.played if played.scenario.clients >= 1000)


def _second(model: Model) -> Table:
    house = _large(model)
    rows = [
        [
            way.name,
            percent(way.alone),
            times(way.gain(2)),
            times(way.gain(4)),
            f"{way.memory / 1024:.1f} GB",
            number(way.copies),
        ]
        for way in ways(house, model.costs)
    ]
    title = (
        f"What the loop carries when its work is split: {house.scenario.name}, {house.scenario.servers} servers"
    )
    heads = [
        "split",
        "work that each still does",
        "two carry",
        "four carry",
        "memory of both",
        "copies of a server",
    ]
    return title, heads, rows


def _herds(model: Model) -> Table:
    rows = [
        [f"{played.scenario.clients:,}", time(herd(model.costs, played.scenario.clients))]
        for played in model.played
    ]
    return "After a restart", ["clients that come back at once", "all are served after"], rows


def _costs(model: Model) -> Table:
    costs = model.costs
    rows = [
        ["a visit of a link, twice for a call", time(costs.visit)],
        ["a call beside its visits", time(costs.message)],
        ["what call-category-tool adds", time(costs.wrapper)],
        [
            "so: a call that shares its visits with none",
            f"{time(costs.call)}, in a category {time(costs.wrapped)}",
        ],
        ["10 KB of request or answer", time(10_000 * costs.byte)],
        ["a large message keeps the loop for", time(costs.slice)],
        ["a search", time(costs.search)],
        ["a load under a key", time(costs.load)],
        [f"a list of {agents.TOOLS} tools is read again", time(agents.TOOLS * costs.relist)],
        ["the same, and a tenth has changed", time(agents.TOOLS * costs.changed)],
        ["a client connects and shakes hands", time(costs.connection)],
        ["an idle client: memory", f"{number(costs.client_kb)} KB"],
        ["a start with 50 servers and 5,000 tools in the store", time(costs.ready)],
    ]
    return "What things cost", ["what", "cost"], rows


def _proof(model: Model) -> Table:
    heads = ["case", "target", "fitted", "CPU measured", "model", "calls/s measured", "model", "off"]
    rows = [
        [
            check.case,
            check.target,
            "yes" if check.fitted and "1000" not in check.case else "no",
            f"{number(check.cpu_us)} us",
            f"{number(check.model_us)} us",
            number(check.rate),
            number(check.model_rate),
            f"{100 * (check.model_rate / check.rate - 1):+.0f} %",
        ]
        for check in model.checks
    ]
    return "The model against what was measured", heads, rows


def times(value: float) -> str:
    """How many times."""
    return "without end" if value == float("inf") else f"{number(value)} x"


def percent(share: float) -> str:
    """A share of 1; one that is not seen is none."""
    return f"{number(100 * min(1.0, share))} %" if share >= 1e-5 else "0 %"


def time(seconds: float) -> str:
    """In the unit that suits it."""
    if seconds == float("inf"):
        return "without end"
    for least, factor, unit in ((1, 1, "s"), (1e-3, 1e3, "ms")):
        if seconds >= least:
            return f"{number(seconds * factor)} {unit}"
    return f"{number(seconds * 1e6)} us"


# --- places in the document ----------------------------------------------------------------------------


def marks(place: str) -> tuple[str, str]:
    """What stands before and after a place."""
    return f"<!-- scale: {place} begins -->", f"<!-- scale: {place} ends -->"


def put(path: Path, place: str, text: str) -> None:
    """Replace what stands in a place of the document.

    Raises:
        Unreadable: it has no such place.
    """
    begin, end = marks(place)
    old = f"{begin}{points.between(path, begin, end)}{end}"
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(old, f"{begin}\n\n{text}\n\n{end}"), encoding="utf-8")


def writers_table(name: str, found: Sequence[Writing]) -> Table:
    """How often a store was written."""
    rows = [[name, str(each.writers), f"{each.rate:,.0f}", time(each.p50), time(each.p99)] for each in found]
    return "Writers of one store", ["store", "writers", "commits/s, all together", "p50", "p99"], rows


def beside_markdown(beside: Beside, head: str) -> str:
    """What was measured beside, as a table that `beside_from` reads again."""
    rows = [[words, f"{number(getattr(beside, name))} {unit}".strip()] for name, (words, unit) in WORDS.items()]
    return f"{head}\n\n{markdown(('Measured beside', ['what', 'measured'], rows))}"


def beside_from(path: Path) -> tuple[Beside, str]:
    """What was measured beside, from the document, and which run it was.

    Raises:
        Unreadable: it is not there.
    """
    part = points.between(path, *marks(BESIDE))
    found = {row["what"]: points.number(row["measured"]) for row in points.rows(part, "Measured beside")}
    values = {name: found.get(words) for name, (words, _) in WORDS.items()}
    if missing := [WORDS[name][0] for name, value in values.items() if value is None]:
        raise points.Unreadable(f"{path} does not say '{missing[0]}': run `python -m bench.scale --measure`")
    known = {name: value for name, value in values.items() if value is not None}
    return Beside(**known), next((line for line in part.splitlines() if line.startswith("`")), "?")


def markdown(table: Table) -> str:
    """For a document."""
    title, heads, rows = table
    return "\n".join([f"### {title}\n", *map(_cells, [heads, ["---"] * len(heads), *rows])])


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def text(table: Table) -> str:
    """For a terminal."""
    title, heads, rows = table
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return "\n".join([title, *_lines([heads, *rows], widths)])


def _lines(rows: Iterable[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
