"""Measures every promise of reliability with a daemon.

    python -m bench.reliability                       all of them: half an hour
    python -m bench.reliability --quick               with a fiftieth of the numbers: three minutes
    python -m bench.reliability --only R1,R8 --write  some, and their lines in docs/reliability.md
    python -m bench.reliability --soak 24             R25: so many hours

R6 and R7 run in virtual time. The exit status is 1 if a promise was not kept.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from bench.reliability import ages, down, kills, lives, neighbours, odd, unit, volume
from bench.reliability.promise import PROMISES, Finding, Scale, chosen
from bench.reliability.soak import soak
from bench.reliability.table import BEGIN, END, load, run_of, shown, write
from bench.tables import place_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

ROOT = Path(__file__).parents[2]

QUICK = 0.02
"""The share of the full numbers that `--quick` uses."""

ELSEWHERE = {"R25": "`python -m bench.reliability --soak 24`"}
"""Promises that take hours, with the command that measures them."""


@attrs.frozen
class Measure:
    """A measurement of one or more promises."""

    names: tuple[str, ...]
    """The names of the promises."""
    run: Callable[[Scale], Iterable[Finding]]
    """Measures; returns a finding for each name."""


MEASURES = (
    Measure(("R1", "R2", "R8"), kills.kills),
    Measure(("R3",), neighbours.nemesis),
    Measure(("R4",), down.refusals),
    Measure(("R5",), down.visibility),
    Measure(("R6",), ages.never_gives_up),
    Measure(("R7",), ages.no_herd),
    Measure(("R9", "R20"), volume.flood),
    Measure(("R10",), odd.malformed),
    Measure(("R11",), odd.enormous),
    Measure(("R12",), lives.state),
    Measure(("R13", "R14", "R15", "R16"), unit.service),
    Measure(("R17",), lives.ends),
    Measure(("R18",), lives.ready),
    Measure(("R19",), lives.reloads),
    Measure(("R21",), volume.control),
    Measure(("R22",), kills.effects),
    Measure(("R23",), neighbours.deaf_client),
    Measure(("R24",), kills.trees),
)
"""All measurements but R25, which takes hours and has a separate option."""


def take(measure: Measure, scale: Scale, wanted: Collection[str]) -> Iterator[Finding]:
    """Take a measurement; any failure becomes a finding that the promise was not kept.

    Args:
        measure: the measurement.
        scale: its extent.
        wanted: the promises to report; findings about others are dropped.
    """
    left = [name for name in measure.names if name in wanted]
    try:
        for finding in measure.run(scale):
            if finding.name in left:
                left.remove(finding.name)
                yield finding
    except Exception as error:  # noqa: BLE001 - one measure that fails must not hide all the others
        traceback.print_exc()
        said = " ".join(str(error).split())[:200].replace("|", "/")
        for name in left:
            yield Finding(name=name, measured=f"measuring failed: {type(error).__name__}: {said}", kept=False)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m bench.reliability",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--quick", action="store_const", const=QUICK, dest="share", help="a fiftieth of the numbers"
    )
    made.add_argument("--share", type=_share, metavar="F", help="another share of the numbers, e.g. 0.1")
    made.add_argument("--only", type=_names, metavar="NAMES", help="R1,R8: only these promises")
    made.add_argument("--write", action="store_true", help="put what was found into the documentation")
    made.add_argument(
        "--doc", type=Path, default=ROOT / "docs" / "reliability.md", metavar="FILE", help="which file"
    )
    made.add_argument("--soak", type=_share, metavar="HOURS", help="R25, and nothing else")
    made.add_argument("--seed", type=int, metavar="N", help="of the soak (default: any)")
    return made


def understood(argv: list[str]) -> argparse.Namespace:
    """Parse the command line before measuring; ends the program if it is wrong."""
    made = parser()
    options = made.parse_args(argv)
    if options.write:
        try:
            place_in(options.doc, BEGIN, END)
        except (OSError, ValueError) as error:
            made.error(str(error))
    return options


def _share(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise ValueError(text)
    return number


def _names(text: str) -> list[str]:
    try:
        return chosen(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def found(options: argparse.Namespace) -> Iterator[Finding]:
    """Take the requested measurements."""
    if options.soak is not None:
        seed = random.randrange(2**32) if options.seed is None else options.seed
        yield from take(Measure(("R25",), lambda _scale: soak(options.soak, seed)), Scale(), ["R25"])
        return
    wanted = options.only or [promise.name for promise in PROMISES]
    for measure in MEASURES:
        if set(measure.names) & set(wanted):
            yield from take(measure, Scale(options.share or 1.0), wanted)
    for name in sorted(set(wanted) & set(ELSEWHERE)):
        yield Finding(name=name, measured=f"not in this run: {ELSEWHERE[name]}", kept=None)


def main(argv: list[str]) -> int:
    """Measure. Returns 1 if a promise was not kept."""
    options = understood(argv)
    before = load()
    findings: list[Finding] = []
    try:
        for finding in found(options):
            findings.append(finding)
            print(shown(finding), flush=True)
    except KeyboardInterrupt:
        # Half an hour of measuring is not thrown away.
        print("\ninterrupted: what follows is about what was measured until now")
    run = run_of(" ".join(["python -m bench.reliability", *argv]), before)
    print(f"\n{run}")
    if options.write:
        write(options.doc, findings, run)
    broken = [finding.name for finding in findings if finding.kept is False]
    print(f"not kept: {', '.join(broken)}" if broken else "all that was measured is kept")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
