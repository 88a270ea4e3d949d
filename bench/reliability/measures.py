"""Which measure tells about which promises."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import attrs

from bench.reliability import ages, down, kills, lives, neighbours, odd, unit, volume
from bench.reliability.promise import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from bench.reliability.promise import Scale


@attrs.frozen
class Measure:
    """One measure; it may tell about several promises."""

    names: tuple[str, ...]
    """Which promises."""
    run: Callable[[Scale], Iterable[Finding]]
    """Takes it: one finding for each of the names."""


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
"""All but R25, which takes hours and has an option of its own."""


def take(measure: Measure, scale: Scale, wanted: Collection[str]) -> Iterator[Finding]:
    """Take a measure; whatever goes wrong is a promise that is not kept, and says so.

    Args:
        measure: which.
        scale: how much of it.
        wanted: the promises that were asked for; what it finds about others is left out.
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
