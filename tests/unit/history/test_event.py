"""The kinds of events are names that programs and stores keep, and say whether somebody should look."""

from __future__ import annotations

import pytest

from daemon.causes import Cause
from daemon.history.event import Event, EventKind


def test_kinds_are_spelt_alike() -> None:
    assert all(kind == kind.lower().replace("_", "-") for kind in EventKind)


@pytest.mark.parametrize(
    ("event", "is_bad"),
    [
        (Event(kind=EventKind.READY), False),
        (Event(kind=EventKind.DEGRADED), True),
        (Event(kind=EventKind.ENDED, text="for a restart"), False),
        (Event(kind=EventKind.ENDED, cause=Cause.KILLED), True),
        (Event(kind=EventKind.RELOADED), False),
        (Event(kind=EventKind.RELOADED, text="line 3 is no JSON"), True),
        (Event(kind=EventKind.DAEMON_STARTED, details={"unclean": True}), True),
    ],
)
def test_what_ended_unasked_or_does_not_work_is_bad(event: Event, is_bad: bool) -> None:
    assert event.is_bad is is_bad
