"""What a status tells of the night: from the events, what is over by now."""

from __future__ import annotations

from typing import Any

from daemon.history.event import Event, EventKind
from daemon.operators.status_commands import LATELY_SECONDS, lately, summed
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import operator_context


def ready(server: str, at: float = 1.0, **details: Any) -> Event:
    return Event(kind=EventKind.READY, at=at, server=server, details=details)


def changed(server: str, **tools: Any) -> Event:
    return Event(kind=EventKind.LISTS_CHANGED, at=1.0, server=server, details={"tools": tools})


def test_outages_and_changed_tools_are_told_by_server() -> None:
    told = summed(
        [
            ready("quiet", seconds=0.4),
            ready("notes", awaySeconds=10_800.0),
            ready("notes", awaySeconds=60.04),
            changed("weather", changed=["now"], came=["tides", "wind"], went=["old"]),
        ]
    )
    assert told == {
        "notes": {"outages": 2, "awaySeconds": 10_860.0, "changed": [], "came": [], "went": []},
        "weather": {
            "outages": 0,
            "awaySeconds": 0,
            "changed": ["now"],
            "came": ["tides", "wind"],
            "went": ["old"],
        },
    }


def test_of_a_tool_that_changed_more_than_once_what_is_left_of_it_is_told() -> None:
    steps = (
        {"came": ["fleeting", "new"], "went": ["back", "gone"], "changed": ["touched", "lost"]},
        {"went": ["fleeting", "lost"], "came": ["back"], "changed": ["new", "touched"]},
    )
    told = summed([changed("weather", **step) for step in steps])["weather"]
    assert told["came"] == ["new"]
    assert told["went"] == ["gone", "lost"]
    assert told["changed"] == ["back", "touched"]
    assert summed([changed("a", came=["x"]), changed("a", went=["x"])]) == {}


async def test_only_the_last_hours_are_told() -> None:
    context = operator_context(Stage())
    now = context.history.now()
    context.history.note(ready("alpha", now - LATELY_SECONDS - 60, awaySeconds=5.0))
    context.history.note(ready("alpha", now - LATELY_SECONDS + 60, awaySeconds=5.0))
    # Whoever took it out of the configuration needs to hear no more of it.
    context.history.note(ready("removed", now - LATELY_SECONDS + 60, awaySeconds=5.0))
    told: Any = await lately(context)
    assert told["seconds"] == LATELY_SECONDS
    assert list(told["servers"]) == ["alpha"]
