"""What became of a changed configuration, in words."""

from __future__ import annotations

from daemon.cli.taking_effect import TOOL_LINES, WIDTH, Effect, in_lines
from tests.unit.cli.daemons import server


def test_a_server_that_is_up_is_told_in_three_lines_however_many_tools_it_has() -> None:
    names = tuple(f"a_tool_with_a_name_{number}" for number in range(100))
    told = in_lines("x", Effect(asked=True, problem="", seen=server(tools=100), tools=names)).split("\n")
    assert told[0] == "x is ready: 100 tools"
    assert len(told) == 1 + TOOL_LINES
    assert all(len(line) <= WIDTH + 2 for line in told)
    shown = sum(line.count("a_tool") for line in told)
    assert told[-1].endswith(f", and {100 - shown} more")


def test_a_server_that_starts_when_it_is_needed_is_well() -> None:
    effect = Effect(asked=True, problem="", seen=server(state="dormant", tools=1), tools=("t\x1b[2J",))
    assert effect.is_well
    assert in_lines("x", effect) == "x is dormant, and is started when it is needed: 1 tool\n  t\\x1b[2J"


def test_without_a_server_nothing_is_well() -> None:
    assert not Effect(asked=False, problem="no daemon").is_well
