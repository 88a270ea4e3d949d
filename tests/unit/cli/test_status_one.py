"""One server, as people are shown it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli.status import STATUS
from daemon.cli.status_view import render_one
from daemon.cli.terminal import Screen
from tests.unit.cli.daemons import diagnosed, down, server
from tests.unit.cli.test_status_servers import instance
from tests.unit.cli.test_status_view import ATTACK, NOW, SPELT

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

CALL = {
    "id": 7, "tool": "git_log", "method": "tools/call", "instance": "", "server": "git", "session": 3,
    "key": None, "client": "claude 2", "since": NOW - 42, "ageSeconds": 42.0, "waitsFor": "answer",
}  # fmt: skip
FAILURE = {"at": NOW - 180, "tool": "git_log", "code": "UpstreamTimeout", "text": "showed no life for 60 s"}
EVENT = {
    "at": NOW - 60, "kind": "degraded", "instance": "", "run": 1, "cause": None, "text": "degraded: silent",
}  # fmt: skip


def answered(of: dict[str, Any] | None = None, **more: Any) -> Any:
    return {
        "name": "git", "server": of or server(), "events": [], "calls": [], "moreCalls": 0, "lastErrors": [],
        **more,
    }  # fmt: skip


def shown(answer: Any, width: int = 80) -> str:
    return render_one(answer, now=NOW, screen=Screen(width=width, colour=False))


def test_a_server_that_is_well_takes_four_lines() -> None:
    assert shown(answered(server(title="Git Tools", restarts=2))).splitlines() == [
        "git (Git Tools): ready for 2h 5m",
        "  stdio, git 1.0, MCP 2025-11-25, pid 4711, 50 MiB, 12 tools, started again 2",
        "  times",
        "  0 calls in flight, 34 in the last 5 minutes, p50 1.2 ms, p95 88 ms, 34 since",
        "  it was configured, 0 of them errors",
        "  last heard 2h ago, its last answer to a ping took 0.4 ms",
    ]


def test_what_goes_on_and_what_went_wrong_is_told() -> None:
    silent = server(
        state="degraded",
        reason="answers no pings while it works on 1 call, last heard 40 s ago",
        cause="unanswered-pings",
        happened="It works on calls.",
        helps="Wait.",
        attempt=0,
        inFlight=1,
        pings={"unanswered": 2, "lastMs": None, "lastHeardAt": NOW - 40},
    )
    text = shown(answered(silent, calls=[CALL], lastErrors=[FAILURE], events=[EVENT], moreCalls=3))
    assert "git: degraded for 2h 5m\n" in text
    assert "last heard 40s ago, 2 pings without an answer since\n" in text
    assert "  answers no pings while it works on 1 call, last heard 40 s ago\n  It works on calls.\n" in text
    assert "What helps: Wait." in text
    assert " 7 42s the answer git/git_log claude 2 #3\nand 3 more: `mcpd calls git`\n" in text
    assert " 3m git_log UpstreamTimeout: showed no life for 60 s\n" in text
    assert "Last events (`mcpd events git` has more)\n" in text
    assert "degraded: silent" in text


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_it_fits_and_what_others_wrote_is_spelt_out(width: int) -> None:
    odd = answered(
        server(title=ATTACK, reason=ATTACK * 30, state="failed", stderr=[ATTACK * 20]),
        calls=[{**CALL, "tool": ATTACK, "client": ATTACK * 9}],
        lastErrors=[{**FAILURE, "text": ATTACK * 30}],
        events=[{**EVENT, "text": ATTACK * 30, "at": NOW - 500_000}],
    )
    text = shown(odd, width)
    assert "\x1b" not in text
    assert all(len(line) <= width for line in text.splitlines())
    assert SPELT in shown(odd, 200)


def test_instances_have_their_table_and_those_that_are_ill_their_reason() -> None:
    of = server(instances=[instance("git#3"), instance("git#7", **down(reason="boom"))], pid=None)
    text = shown(answered(of))
    assert "git#3" in text
    assert "git#7: backoff\n  boom\n" in text


def test_one_is_asked_for_by_name_and_its_state_is_the_exit_status(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = control({"status": answered(diagnosed(down("killed", causeData={"signal": "SIGKILL"})))})
    assert STATUS.main(["git"]) == 1
    out = capsys.readouterr().out
    assert "git: backoff" in out
    assert "What helps: " in out
    assert daemon.asked[0] == ("status", {"server": "git"})


def test_programs_get_the_answer(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"status": answered()})
    assert STATUS.main(["git", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answered()
