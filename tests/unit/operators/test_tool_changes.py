"""When a tool last changed, told of a tool and of what a session has loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.history.event import Event, EventKind
from daemon.operators.tool_reports import explain, last_change
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import operator_context

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


def changed(at: float, server: str = "alpha", **details: Any) -> Event:
    return Event(kind=EventKind.LISTS_CHANGED, at=at, server=server, details=details)


def night() -> OperatorContext:
    context = operator_context(Stage())
    for event in (
        changed(1.0, tools={"came": ["echo", "gone"]}),
        changed(2.0, tools={"changed": ["echo"]}, toolsDiffer={"echo": {"members": ["description"]}}),
        changed(3.0, tools={"went": ["gone", "old"], "came": ["new"]}, renamed={"old": "new"}),
        changed(4.0, "beta", tools={"went": ["echo"]}),
        changed(5.0, prompts={"changed": ["echo"]}),
        Event(kind=EventKind.EPOCH, at=6.0, server="alpha"),
    ):
        context.history.note(event)
    return context


async def test_the_newest_change_of_a_tool_is_found_with_what_of_it_has_changed() -> None:
    context = night()
    assert await last_change(context, "alpha", "echo") == {"at": 2.0, "what": "changed (description)"}
    assert await last_change(context, "alpha", "gone") == {"at": 3.0, "what": "removed"}
    assert await last_change(context, "alpha", "old") == {"at": 3.0, "what": "renamed to new"}
    assert await last_change(context, "beta", "echo") == {"at": 4.0, "what": "removed"}
    assert await last_change(context, "alpha", "other") is None


async def test_what_a_session_has_lost_is_explained_by_what_happened_after_it_was_loaded() -> None:
    def loaded(name: str, status: str, at: float) -> Any:
        return {"server": "alpha", "name": name, "status": status, "loadedAt": at}

    tools = [
        loaded("echo", "invalid_changed", 1.5),
        loaded("gone", "invalid_deleted", 3.5),
        loaded("new", "valid", 0.0),
        loaded("old", "invalid_disabled", 0.0),
    ]
    await explain(night(), tools)
    assert [tool.get("changed") for tool in tools] == [
        {"at": 2.0, "what": "changed (description)"},
        *(None, None, None),
    ]
