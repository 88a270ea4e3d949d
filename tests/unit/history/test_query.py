"""Which events somebody asks for."""

import pytest

from daemon.history.event import Event, EventKind
from daemon.history.journal import EventQuery

ENDED = Event(kind=EventKind.ENDED, at=100.0, server="git", instance="git#2", session="key", number=7, life="a")


@pytest.mark.parametrize(
    "query",
    [
        EventQuery(),
        EventQuery(server="git"),
        EventQuery(server="git", instance="git#2"),
        EventQuery(session="key"),
        EventQuery(kinds=frozenset({EventKind.ENDED})),
        EventQuery(since=100.0),
        EventQuery(seen={"a": 6, "b": 9}),
        EventQuery(fresh=100.0),
        EventQuery(fresh=200.0, seen={"a": 6}),
    ],
)
def test_what_is_empty_does_not_restrict(query: EventQuery) -> None:
    assert query.matches(ENDED)


@pytest.mark.parametrize(
    "query",
    [
        EventQuery(server="time"),
        EventQuery(server="git", instance="git#1"),
        EventQuery(session="#4"),
        EventQuery(kinds=frozenset({EventKind.READY})),
        EventQuery(since=100.1),
        EventQuery(seen={"a": 7}),
        EventQuery(fresh=100.1, seen={"b": 6}),
        EventQuery(since=100.1, seen={"a": 6}),
    ],
)
def test_each_restriction_counts(query: EventQuery) -> None:
    assert not query.matches(ENDED)
