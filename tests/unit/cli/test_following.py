"""Following what the daemon tells."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from daemon.cli.control import DaemonUnreachable
from daemon.cli.events import AWAY_SECONDS, GATHER_SECONDS, WAIT_SECONDS, follow, news

if TYPE_CHECKING:
    import pytest

    from tests.unit.cli.conftest import Controls


def test_each_answer_is_shown_and_a_daemon_that_is_away_is_told_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("daemon.cli.events.time.sleep", waits.append)
    monkeypatch.setattr("daemon.cli.events.end_without_reader", lambda: None)
    gone = DaemonUnreachable("nobody listens\x1b[2J")
    coming: list[dict[str, Any] | BaseException] = [{"next": 1}, gone, gone, {"next": 2}, KeyboardInterrupt()]
    asked, shown = list[dict[str, Any]](), list[dict[str, Any]]()

    def after(seen: dict[str, Any]) -> dict[str, Any]:
        asked.append(seen)
        came = coming.pop(0)
        if isinstance(came, BaseException):
            raise came
        return came

    assert follow({"next": 0}, after, shown.append) == 0
    assert shown == [{"next": 0}, {"next": 1}, {"next": 2}]
    assert [each["next"] for each in asked] == [0, 1, 1, 1, 2]
    assert waits == [GATHER_SECONDS, GATHER_SECONDS, AWAY_SECONDS, AWAY_SECONDS, GATHER_SECONDS]
    told = ["mcpd: nobody listens\\x1b[2J. Waiting for it.", "mcpd: the daemon is back."]
    assert capsys.readouterr().err.splitlines() == told


def test_the_daemon_is_asked_to_wait_and_given_the_time(control: Controls) -> None:
    daemon = control({"events": {"events": []}})
    options = argparse.Namespace(control=None, socket=None, timeout=0.001)
    assert news(options, "events", {"after": 3}) == {"events": []}
    assert daemon.asked == [("events", {"after": 3, "wait": WAIT_SECONDS})]
