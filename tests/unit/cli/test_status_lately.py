"""The line of the status that tells of the night: short, and of the worst first."""

from __future__ import annotations

from typing import Any

from daemon.cli.status_view import lately_in_words


def one(outages: int = 0, away: float = 0.0, **tools: list[str]) -> dict[str, Any]:
    return {"outages": outages, "awaySeconds": away, "changed": [], "came": [], "went": [], **tools}


def told(servers: dict[str, Any], width: int = 80, lines: int = 2) -> list[str]:
    return lately_in_words({"seconds": 43_200.0, "servers": servers}, width, lines)


def test_an_outage_and_changed_tools_are_two_lines_at_eighty_columns() -> None:
    night = {"weather": one(changed=["a"], came=["b"], went=["c"]), "notes": one(1, 10_800.0)}
    assert told(night) == [
        "In the last 12h: notes was away 3h; weather changed 1 tool, added 1, removed 1",
        "(mcpd events --since 12h)",
    ]


def test_of_a_single_server_its_own_events_are_named() -> None:
    assert told({"notes": one(2, 90.0, came=["a", "b"])}) == [
        "In the last 12h: notes was away 2 times, 1m 30s, added 2 tools (mcpd events",
        "notes)",
    ]
    # A name is no word of the line's own, whatever it is.
    assert "added 1 tool" in told({"tools": one(came=["a"])})[0]


def test_what_has_no_room_is_counted() -> None:
    many = {f"server-{number}": one(1, 60.0 * (number + 1)) for number in range(20)}
    lines = told(many)
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert "server-19 was away 20m" in lines[0]
    assert "others (mcpd events --since 12h)" in " ".join(lines)
    assert told(many, width=60, lines=1) == ["In the last 12h: 20 servers (mcpd events --since 12h)"]
    assert told(many, width=20, lines=1) == []


def test_of_a_quiet_night_nothing_is_said() -> None:
    assert told({}) == []
