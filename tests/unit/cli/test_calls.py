"""`mcpd calls`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation
from daemon.cli.calls import _line

if TYPE_CHECKING:
    from daemon.operators.reports import CallInFlight, EndedCall
    from tests.unit.cli.conftest import Controls

main = implementation("calls").main

WAITING: CallInFlight = {
    "id": 17, "session": 4, "key": None, "client": "agent 1", "token": "", "server": "git", "instance": "",
    "method": "tools/call", "tool": "git_log", "since": 1_800_000_000.0, "ageSeconds": 46.2,
    "waitsFor": "answer", "sent": True,
}  # fmt: skip
ENDED: EndedCall = {
    "number": 3, "at": 1_800_000_000.0, "session": 4, "key": "project", "client": "agent 1", "token": "",
    "server": "git", "tool": "git_log", "ms": 12.5, "outcome": "ok",
}  # fmt: skip


def answer(*waiting: object, ended: tuple[object, ...] = (), **more: object) -> Any:
    """An answer to `calls`."""
    known = {"inFlight": list(waiting), "inFlightMore": 0, "recent": list(ended), "next": 3, "source": "7"}
    return {**known, **more}


def test_calls_are_shown_with_what_they_wait_for(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"calls": answer(WAITING, ended=(ENDED,))})
    assert main([]) == 0
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines()[:2]] == [
        ["call", "age", "waits", "for", "tool", "client"],
        ["17", "46s", "the", "answer", "git/git_log", "agent", "1", "#4"],
    ]
    assert "git/git_log" in out.splitlines()[-1]
    assert daemon.asked == [("calls", {"server": None, "session": None, "errorsOnly": False})]


def test_what_is_asked_for_is_handed_on(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"calls": answer()})
    assert main(["git", "--errors", "--session", "#4", "-n", "5000"]) == 0
    wanted = {"server": "git", "session": "#4", "errorsOnly": True, "limit": 1000}
    assert daemon.asked == [("calls", wanted)]
    assert capsys.readouterr().out == "No call has ended with an error since the daemon began.\n"


def test_a_line_says_who_called_what_and_how_it_ended() -> None:
    line = _line({**ENDED, "client": "a\x1b[2J", "outcome": "UpstreamLost"})
    assert line[8:] == "      12.5 ms  git/git_log  UpstreamLost  a\\x1b[2J (session project)"
    own = _line({**ENDED, "session": None, "key": None, "client": "operator", "server": ""})
    assert own.endswith("  git_log  ok  operator")


@pytest.mark.parametrize("as_json", [True, False])
def test_following_asks_for_what_comes_after(
    as_json: bool, control: Controls, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = control({"calls": answer(ended=(ENDED,))})
    asked: list[dict[str, Any]] = []

    def news(_options: object, _method: str, params: dict[str, Any]) -> Any:
        asked.append(params)
        if len(asked) > 1:
            raise KeyboardInterrupt
        return answer(ended=({**ENDED, "number": 4},), next=4)

    monkeypatch.setattr("daemon.cli.calls.news", news)
    monkeypatch.setattr("daemon.cli.events.end_without_reader", lambda: None)
    assert main(["-f", *(["--json"] if as_json else [])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    if as_json:
        assert [json.loads(line)["number"] for line in lines] == [3, 4]
    assert len(daemon.asked) == 1
    assert [(each["after"], each["source"]) for each in asked] == [(3, "7"), (4, "7")]
