"""`mcpd allow`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from daemon.cli import implementation
from daemon.cli.options import seconds_of

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("allow").main

ALLOWED = {
    "session": "#4",
    "changed": ["fs/write"],
    "allowed": [
        {"tool": "fs/write", "by": "an operator", "seconds": 3600},
        {"tool": "fs/\x1bmove", "by": "its user", "seconds": None},
    ],
}


def test_a_tool_is_allowed_for_a_while(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"allow": ALLOWED})
    assert main(["4", "fs/write", "--for", "1h"]) == 0
    params = {"session": "4", "tool": "fs/write", "seconds": 3600.0, "revoke": False}
    assert daemon.asked == [("allow", params)]
    assert capsys.readouterr().out.splitlines() == [
        "session #4 may call, unasked:",
        "  fs/write  for 1h, says an operator",
        "  fs/\\x1bmove  as long as it is in use, says its user",
    ]


def test_nothing_may_be_allowed(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"allow": {"session": "k", "changed": [], "allowed": []}})
    assert main(["k", "--revoke"]) == 0
    assert daemon.asked == [("allow", {"session": "k", "tool": None, "seconds": None, "revoke": True})]
    assert capsys.readouterr().out == "session k: nothing is allowed beyond its profile\n"


@pytest.mark.parametrize(
    "argv",
    [[], ["4", "x", "--for", "soon"], ["4", "--for", "1h"], ["4", "x", "--revoke", "--for", "1h"]],
)
def test_what_makes_no_sense_is_a_fault_of_usage(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("2d", 172_800)])
def test_a_time_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "0h", "1", "1y", "-1h", "1h30m", "9999999d", "\u0661h"])
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        seconds_of(text)
