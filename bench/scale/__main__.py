"""`python -m bench.scale`: the numbers of docs/scale.md that `bench.calls` does not measure.

    python -m bench.scale --measure       memory, descriptors, connections, loads: half a minute
    python -m bench.scale --writers URL   writes per second to a store
    python -m bench.scale --told URL      time until a daemon knows another one's writes
    python -m bench.scale --balanced      calls over HTTP, through HAProxy, to one and two daemons

URL is an empty PostgreSQL database, which several daemons write at once; an SQLite file, which has one writer,
is measured for comparison. docs/scale.md has the numbers that matter.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.calls.rounds import quantiles
from bench.running import Unmeasurable
from bench.scale.balanced import balancing
from bench.scale.beside import beside
from bench.scale.told import tellings
from bench.scale.writers import writings
from bench.tables import number, text

if TYPE_CHECKING:
    from bench.scale.balanced import Way
    from bench.scale.beside import Beside
    from bench.tables import Table


def beside_table(found: Beside) -> Table:
    """A table of the costs that `bench.calls` does not measure."""
    rows = [[words, f"{number(value)} {unit}".rstrip()] for words, (value, unit) in found.items()]
    return "Costs of one of each", ["what", "measured"], rows


def writers_table(url: str) -> Table:
    """A table of the write rates of both stores.

    Raises:
        Unmeasurable: one cannot be opened or written.
    """
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        for store, place in (("SQLite", None), ("PostgreSQL", url)):
            for each in writings(place, Path(directory)):
                times = (f"{number(1e3 * each.p50)} ms", f"{number(1e3 * each.p99)} ms")
                rows.append([store, str(each.writers), f"{each.rate:,.0f}", *times])
    return "Writers of one store", ["store", "writers", "commits/s, all together", "p50", "p99"], rows


def told_table(url: str) -> Table:
    """A table of the times until a daemon knows another one's writes.

    Raises:
        Unmeasurable: something did not start or answer.
    """
    rows = [
        [what, *(f"{number(1e3 * each)} ms" for each in quantiles(seconds))]
        for what, seconds in tellings(url).items()
    ]
    return "Two daemons on one PostgreSQL", ["what", "p50", "p99"], rows


def balanced_table(ways: list[Way]) -> Table:
    """A table of calls by way."""
    rows = []
    for way in ways:
        used = (way.median("daemons_us"), way.median("balancer_us"))
        spent = [f"{number(each)} us" if each else "-" for each in used]
        rows.append([way.words, way.era, f"{way.median('rate'):,.0f}", *spent])
    return "Calls over HTTP", ["way", "era", "calls/s", "CPU a call: daemons", "CPU a call: HAProxy"], rows


def main(argv: list[str]) -> int:
    """Measure and print. Returns 1 if it could not be measured."""
    made = argparse.ArgumentParser(
        prog="python -m bench.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = made.add_mutually_exclusive_group(required=True)
    what.add_argument("--measure", action="store_true", help="what one of everything costs")
    what.add_argument("--writers", metavar="URL", help="how often a store can be written")
    what.add_argument("--told", metavar="URL", help="how soon a daemon knows what another one has written")
    what.add_argument("--balanced", action="store_true", help="what a balancer costs, and a second daemon wins")
    options = made.parse_args(argv)
    try:
        if options.measure:
            table = beside_table(beside())
        elif options.told:
            table = told_table(options.told)
        elif options.balanced:
            table = balanced_table(balancing())
        else:
            table = writers_table(options.writers)
    except Unmeasurable as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 1
    print(text(table))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
