"""Modules that are loaded when something of them is used first."""

from __future__ import annotations

import subprocess
import sys

import pytest

from daemon.kit.later import later


def test_nothing_is_loaded_before_it_is_used() -> None:
    script = (
        "import sys\n"
        "from daemon.kit.later import later\n"
        "colors, fraction = later('colorsys'), later('fractions', 'Fraction')\n"
        "assert not {'colorsys', 'fractions'} & sys.modules.keys()\n"
        "assert colors.rgb_to_hsv(0, 0, 0) == (0, 0, 0)\n"
        "assert 'colorsys' in sys.modules and 'fractions' not in sys.modules\n"
        "assert fraction(1, 2) == 0.5\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_what_was_used_once_is_asked_for_no_more() -> None:
    colors = later("colorsys")
    first = colors.rgb_to_hsv
    assert vars(colors)["rgb_to_hsv"] is first is colors.rgb_to_hsv


def test_what_is_due_is_loaded_when_it_is_time_and_nothing_else() -> None:
    script = (
        "import sys\n"
        "from daemon.kit.later import later, load_due\n"
        "later('colorsys', due=True), later('fractions')\n"
        "assert 'colorsys' not in sys.modules\n"
        "load_due()\n"
        "assert 'colorsys' in sys.modules and 'fractions' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_what_is_not_there_is_an_error_where_it_is_used() -> None:
    with pytest.raises(AttributeError, match="no_such"):
        _ = later("colorsys").no_such
    with pytest.raises(ModuleNotFoundError, match="no_such"):
        later("no_such", "Thing")()


@pytest.mark.parametrize(
    "needless",
    [
        *("rapidfuzz", "jsonschema_rs", "h11", "daemon.clients.doors.http", "daemon.actors.summarizer"),
        *("psycopg", "mcp", "pydantic"),
    ],
)
def test_a_daemon_with_an_ordinary_configuration_does_not_begin_by_loading(
    needless: str, loaded: frozenset[str]
) -> None:
    assert needless not in loaded


@pytest.fixture(scope="module")
def loaded() -> frozenset[str]:
    """What is loaded once the daemon is wired."""
    modules = "daemon.cli.run, daemon.cli.lifetime, daemon.host.logs, daemon.state.store"
    script = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=60, capture_output=True, text=True
    )
    return frozenset(done.stdout.split())
