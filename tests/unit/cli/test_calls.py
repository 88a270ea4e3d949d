"""`mcpd calls -f`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation

if TYPE_CHECKING:
    from daemon.operators.reports import EndedCall
    from tests.unit.cli.conftest import Controls

main = implementation("calls").main

ENDED: EndedCall = {
    "number": 3, "at": 1_800_000_000.0, "session": 4, "key": "project", "client": "agent 1", "token": "",
    "server": "git", "tool": "git_log", "ms": 12.5, "outcome": "ok",
}  # fmt: skip


def answer(*waiting: object, ended: tuple[object, ...] = (), **more: object) -> Any:
    """An answer to `calls`."""
    known = {"inFlight": list(waiting), "inFlightMore": 0, "recent": list(ended), "next": 3, "source": "7"}
    return {**known, **more}


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
