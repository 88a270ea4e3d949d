"""All clients, as servers' notifications and questions reach them that belong to no call."""

from __future__ import annotations

from daemon.catalog.authorship import UnsafeQuestion
from daemon.clients.connected_clients import ConnectedClients
from daemon.history.event import Event, EventKind
from tests.unit.clients.asking import question


def test_a_question_that_no_user_is_shown_is_an_event_of_its_server() -> None:
    events: list[Event] = []
    ConnectedClients(events.append).unsafe("fs#12", UnsafeQuestion("url", "its url is none"))
    details = {"reason": "url"}
    assert events == [
        Event(kind=EventKind.QUESTION_REFUSED, server="fs", text="its url is none", details=details)
    ]


def test_what_belongs_to_no_call_is_refused_where_nobody_can_be_meant() -> None:
    asked = question("roots/list")
    ConnectedClients().ask(asked.request)
    assert asked.answers == [("refused", -32600)]
