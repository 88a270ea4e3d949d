"""All clients, as servers' notifications and questions reach them that belong to no call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from msgspec import Raw

from daemon.catalog.authorship import UnsafeQuestion
from daemon.clients.subscribers import ConnectedClients
from daemon.history.event import Event, EventKind
from tests.unit.clients.asking import question

if TYPE_CHECKING:
    from daemon.wire.requests import Exchange


@attrs.define(eq=False)
class Ear:
    """A client that hears everything, and may leave when it does."""

    clients: ConnectedClients
    heard: list[tuple[str, str]] = attrs.field(factory=list)
    stays: bool = True

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        del params, cause
        self.heard.append((server, method))
        if not self.stays:
            self.clients.leave(self)


def test_all_that_have_joined_hear_until_they_leave() -> None:
    clients = ConnectedClients()
    stays, leaves = Ear(clients), Ear(clients, stays=False)
    for ear in (leaves, stays, stays):
        clients.join(ear)
    for method in ("a", "b"):
        clients.hear("s", method, Raw(b"{}"), None)
    assert stays.heard == [("s", "a"), ("s", "b")]
    assert leaves.heard == [("s", "a")]
    clients.leave(leaves)


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
