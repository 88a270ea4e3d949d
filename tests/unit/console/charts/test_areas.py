"""Areas: they lie on one another, and end where nothing is known."""

from __future__ import annotations

from daemon.console.charts.areas import areas
from daemon.console.charts.figure import Chart, Quantity
from tests.unit.console.charts.drawn import paths


def chart_of(shown: list[float | None], spared: list[float | None]) -> str:
    return areas(
        Chart(
            id="tokens",
            title="Tokens",
            moments=[3600.0 * at for at in range(len(shown))],
            series=(Quantity(name="shown", values=shown), Quantity(name="not shown", values=spared)),
        )
    )


def test_areas_lie_on_one_another() -> None:
    chart = chart_of([1.0, 1.0], [1.0, 0.0])
    assert paths(chart, "s1") == ["M0.0 100.0L1000.0 100.0L1000.0 200.0L0.0 200.0z"]
    assert paths(chart, "s2") == ["M0.0 0.0L1000.0 100.0L1000.0 100.0L0.0 100.0z"]


def test_gaps_stay_gaps_and_a_single_moment_is_seen() -> None:
    path, _ = paths(chart_of([1.0, None, 1.0, 1.0], [0.0, None, 0.0, 0.0]), "area")
    assert path.count("M") == 2
    assert path.startswith("M0.0 0.0L2.0 0.0L2.0 200.0L0.0 200.0z")


def test_one_that_is_not_known_leaves_the_others() -> None:
    assert len(paths(chart_of([1.0, 1.0], [None, 1.0]), "area")) == 2


def test_nothing_draws_nothing() -> None:
    assert paths(chart_of([], []), "area") == []
