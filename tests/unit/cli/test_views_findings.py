"""The findings for people."""

from __future__ import annotations

from daemon.checks.findings import Level
from daemon.cli.terminal import Screen
from daemon.cli.views import LEVEL_STYLES, render_findings

COUNTS = {"ok": 1, "note": 0, "warning": 2, "fault": 1}


def said(check: str, level: str, what: str, why: str = "", do: str = "") -> dict[str, str]:
    return {"check": check, "level": level, "what": what, "why": why, "do": do}


def shown(width: int = 80, *, colour: bool = False) -> str:
    told = [
        said("sockets", "ok", "a listens"),
        said("sockets", "fault", "b \x1b[2J does not", "it is gone", "start it " * 20),
        said("systemd", "note", "no unit"),
    ]
    return render_findings(told, COUNTS, Screen(width=width, colour=colour))


def test_findings_stand_below_what_was_looked_at_with_reason_and_remedy() -> None:
    lines = shown().splitlines()
    assert lines[:4] == [
        "sockets",
        "    ok       a listens",
        "    fault    b \\x1b[2J does not",
        "             it is gone",
    ]
    assert lines[4].startswith("             -> start it start it")
    assert max(map(len, lines)) <= 80
    assert "systemd" in lines
    assert lines[-1] == "1 fault, 2 warnings, 0 notes."


def test_every_level_has_a_colour_and_its_name() -> None:
    assert set(LEVEL_STYLES) == set(Level)
    assert "\x1b[1;31mfault" in shown(colour=True)
