"""`mcpd events`: what happened, as people and programs are shown it."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli.events import EVENTS, moment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Controls


def event(message: str, at: float | None = None, kind: str = "ready", **changed: Any) -> Any:
    """An event as the daemon tells it."""
    told = {"kind": kind, "at": time.time() if at is None else at, "message": message, "text": ""}
    return {**told, "server": "git", "cause": None, "isBad": False, "details": {}, **changed}


def answer(*events: Any) -> Any:
    return {"events": list(events), "next": {"at": 1.0, "lives": {}}, "more": False}


def test_each_event_is_a_line_with_its_local_time(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    at = time.time()
    daemon = control({"events": answer(event("git: ready", at), event("git: ended\x1b[2J", at, "ended"))})
    assert EVENTS.main(["git", "--kind", "ended", "--session", "#4", "-n", "7"]) == 0
    clock = time.strftime("%H:%M:%S", time.localtime(at))
    assert capsys.readouterr() == (f"{clock}  git: ready\n{clock}  git: ended\\x1b[2J\n", "")
    [(method, asked)] = daemon.asked
    assert method == "events"
    assert asked == {
        "server": "git",
        "session": "#4",
        "since": 0.0,
        "kinds": ["ended"],
        "people": True,
        "limit": 7,
    }


def test_another_day_is_said_where_it_begins(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    old = time.mktime((2025, 3, 4, 23, 0, 0, 0, 0, -1))
    control({"events": answer(event("one", old), event("two", old + 60), event("three", old + 7200))})
    assert EVENTS.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Tuesday, 2025-03-04",
        "23:00:00  one",
        "23:01:00  two",
        "Wednesday, 2025-03-05",
        "01:00:00  three",
    ]


@pytest.mark.parametrize(("said", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("2d", 172_800)])
def test_a_length_of_time_is_before_now(said: str, seconds: float) -> None:
    assert moment(said) == pytest.approx(time.time() - seconds, abs=30)


def test_a_local_time_is_understood() -> None:
    assert moment("2025-03-04T22:00") == time.mktime((2025, 3, 4, 22, 0, 0, 0, 0, -1))
    today = time.strftime("%Y-%m-%d")
    assert time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment("today"))) == f"{today} 00:00:00"
    assert 0 < moment("today") - moment("yesterday") <= 25 * 3600
    for clock in ("00:00", "9:05", "23:59:59"):
        assert 0 <= time.time() - moment(clock) <= 25 * 3600
    assert moment("2025-03-04") == time.mktime((2025, 3, 4, 0, 0, 0, 0, 0, -1))


@pytest.mark.parametrize("said", ["", "tomorrow", "25:00", "1y", "-1h", "99999999999999d", "2025-13-01"])
def test_what_is_no_time_is_refused_with_how_to_write_one(said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 90s"):
        moment(said)


def test_an_unknown_kind_is_one_and_no_daemon_three(
    control: Controls, sockets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control({"events": {"error": {"code": -32602, "message": "there is no kind of events 'x'"}}})
    assert EVENTS.main(["--kind", "x"]) == 1
    assert "no kind" in capsys.readouterr().err
    assert EVENTS.main(["--control", str(sockets / "none")]) == 3
