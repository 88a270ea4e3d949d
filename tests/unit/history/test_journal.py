"""The events of one life of a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.history.event import Event, EventKind
from daemon.history.journal import DETAIL, KEPT, KEPT_BYTES, History

if TYPE_CHECKING:
    from daemon.history.event import Detail


def test_events_are_numbered_and_dated_and_read_in_order() -> None:
    history = History(lambda: 5.0, life="w")
    history.note(Event(kind=EventKind.STARTED, server="git", run=1))
    history.note(Event(kind=EventKind.READY, server="git", run=1, at=7.0))

    found = history.after(0)

    assert [(event.number, event.at, event.life) for event in found] == [(1, 5.0, "w"), (2, 7.0, "w")]
    assert [event.kind for event in history.after(1)] == [EventKind.READY]
    assert history.newest.value is found[-1]


def test_only_the_newest_are_kept() -> None:
    history = History(lambda: 1.0)
    for _ in range(KEPT + 2):
        history.note(Event(kind=EventKind.SIGNAL))

    assert history.after(0)[0].number == 3


def test_large_events_are_kept_only_as_far_as_there_is_room() -> None:
    history = History(lambda: 1.0)
    large: dict[str, Detail] = {f"{number}": "x" * DETAIL for number in range(50)}
    for _ in range(KEPT_BYTES // (50 * DETAIL)):
        history.note(Event(kind=EventKind.SIGNAL, details=large))
    kept = history.after(0)
    assert kept[-1].number == history.number
    assert 1 < len(kept) < history.number
    history.note(Event(kind=EventKind.SIGNAL, text="small"))
    assert history.after(0)[-1].text == "small"
