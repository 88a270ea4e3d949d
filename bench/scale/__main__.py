"""`python -m bench.scale`: what one daemon carries, where it saturates first, what a second one would win.

    python -m bench.scale [--costs FILE.json] [--measure] [--write]
    python -m bench.scale --writers postgresql://... [--write]

The costs are read from the tables of docs/performance.md, or from what `python -m bench.calls --json` wrote;
what those do not say is read from docs/scale.md, or measured (`--measure`, half a minute). `--write` puts the
tables into docs/scale.md. The same costs give the same numbers. `--writers` measures only how often a file of
SQLite and an empty database of PostgreSQL can be written, the latter by several at once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.calls.daemons import ROOT
from bench.calls.report import machine
from bench.calls.wires import Unmeasurable
from bench.scale import report
from bench.scale.beside import beside
from bench.scale.checking import checks
from bench.scale.costs import fitted
from bench.scale.points import Unreadable, from_document, from_json
from bench.scale.scenarios import SCENARIOS, play, under_load
from bench.scale.writers import writings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.scale.beside import Beside
    from bench.scale.points import Points
    from bench.scale.scenarios import Scenario

MEASURED, DOCUMENT = ROOT / "docs" / "performance.md", ROOT / "docs" / "scale.md"

STEPS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
"""Of what the loop can do at most, the rates of calls that are tried."""

CALLS = 40_000
"""Calls of each try."""


def modelled(
    points: Points, measured: Beside, scenarios: Sequence[Scenario] = SCENARIOS, calls: int = CALLS
) -> report.Model:
    """Everything, from what was measured.

    Raises:
        Unreadable: something was not.
    """
    costs = fitted(points, measured)
    return report.Model(
        points=points,
        beside=measured,
        costs=costs,
        played=[play(scenario, costs, calls=calls) for scenario in scenarios],
        loaded=[under_load(step / costs.wrapped, costs, calls=calls) for step in STEPS],
        checks=list(checks(points, costs, calls // 10)),
    )


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m bench.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--costs", metavar="FILE", type=Path, help="of bench.calls --json; else docs/performance.md"
    )
    made.add_argument("--measure", action="store_true", help="measure anew what bench.calls does not")
    made.add_argument("--write", action="store_true", help="put the tables into docs/scale.md")
    made.add_argument(
        "--writers", metavar="URL", help="measure how often a store can be written, and nothing else"
    )
    return made


def main(argv: list[str]) -> int:
    """Read, reckon, print."""
    options = _parser().parse_args(argv)
    try:
        if options.writers is not None:
            return _writers(options.writers, write=options.write)
        points = from_document(MEASURED) if options.costs is None else from_json(options.costs)
        if options.measure:
            measured, head = beside(), _head("--measure")
        else:
            measured, head = report.beside_from(DOCUMENT)
        model = modelled(points, measured)
        if options.write:
            _write(model, head)
    except (Unreadable, Unmeasurable) as error:
        print(f"no model: {error}", file=sys.stderr)
        return 1
    print(f"From {points.head}\n")
    for found in report.tables(model).values():
        for table in found:
            print(report.text(table), end="\n\n")
    return 0


def _writers(url: str, *, write: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        file = report.writers_table("SQLite", writings(None, Path(directory)))
        title, heads, rows = report.writers_table("PostgreSQL", writings(url, Path(directory)))
    table = (title, heads, [*file[2], *rows])
    print(report.text(table))
    if write:
        report.put(DOCUMENT, "writers", f"{_head('--writers URL')}\n\n{report.markdown(table)}")
    return 0


def _head(option: str) -> str:
    return f"`python -m bench.scale {option}`, {time.strftime('%Y-%m-%d', time.gmtime())}. {machine()}."


def _write(model: report.Model, head: str) -> None:
    for place, found in report.tables(model).items():
        report.put(DOCUMENT, place, "\n\n".join(map(report.markdown, found)))
    report.put(DOCUMENT, "source", f"The costs are those of {model.points.head}")
    report.put(DOCUMENT, report.BESIDE, report.beside_markdown(model.beside, head))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
