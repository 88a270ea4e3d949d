"""Events in words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from daemon.causes import Cause
from daemon.history.event import Event, EventKind
from daemon.history.event_words import phrase, sentence
from tests.unit.cases import cases

if TYPE_CHECKING:
    from daemon.history.event import Detail


K = EventKind


@cases("kind", "text", "details", "said")
def test_each_kind_is_a_sentence(kind: str, text: str, details: dict[str, Detail], said: str) -> None:
    cause = Cause.EXITED if kind == K.ENDED else None
    said = said.replace("CLOCK", time.strftime("%H:%M", time.localtime(99.0)))
    assert phrase(Event(kind=EventKind(kind), at=100.0, run=3, text=text, cause=cause, details=details)) == said


def test_an_outage_is_told_with_its_beginning_and_whether_mcpd_was_restarted_meanwhile() -> None:
    night, morning = (time.mktime((2026, 11, day, hour, 30, 0, 0, 0, -1)) for day, hour in ((22, 23), (23, 6)))

    def told(since: float, **more: Detail) -> str:
        details: dict[str, Detail] = {"awaySeconds": morning - since, "awaySince": since, **more}
        return phrase(Event(kind=K.READY, at=morning, details=details))

    assert told(morning - 300) == "ready; was away 5m, since 06:25"
    assert (
        told(night, awayOverRestart=True)
        == "ready; was away 7h, since 2026-11-22 23:30, over a restart of mcpd"
    )
    assert told(1e300) == "ready; was away 0.0s"


def test_that_a_run_which_mcpd_has_stopped_rests_is_not_said_twice() -> None:
    def told(state: str, cause: Cause | None = None) -> str:
        details: dict[str, Detail] = {"state": state, "seconds": 2.0}
        return phrase(Event(kind=K.ENDED, text="mcpd has stopped it", cause=cause, details=details))

    assert told("stopped") == "ended after 2.0s: mcpd has stopped it"
    assert told("stopped", Cause.EXITED) == "ended after 2.0s (stopped): mcpd has stopped it"
    assert told("dormant") == "ended after 2.0s (dormant): mcpd has stopped it"


def test_a_sentence_begins_with_whom_it_happened_to_and_every_kind_has_words_whatever_its_details() -> None:
    assert sentence(Event(kind=K.STARTED, server="git", run=1)) == "git: run 1 begins"
    assert sentence(Event(kind=K.STARTED, server="git", instance="git#2", run=1)) == "git#2: run 1 begins"
    assert sentence(Event(kind=K.SESSION_ENDED, session="#4")) == "session #4: the client left"
    assert all(kind == kind.lower().replace("_", "-") for kind in EventKind)
    assert all(phrase(Event(kind=kind)) for kind in EventKind if kind is not K.LISTS_CHANGED)
    odd: dict[str, Detail] = {"seconds": "x", "tools": 7, "renamed": ["a"], "stderr": 1, "count": None}
    assert all(isinstance(phrase(Event(kind=kind, details=odd)), str) for kind in EventKind)


def test_what_ended_unasked_or_does_not_work_is_bad() -> None:
    bad = (
        Event(kind=K.DEGRADED),
        Event(kind=K.ENDED, cause=Cause.KILLED),
        Event(kind=K.RELOADED, text="line 3 is not JSON"),
        Event(kind=K.DAEMON_STARTED, details={"unclean": True}),
    )
    fine = Event(kind=K.READY), Event(kind=K.ENDED, text="for a restart"), Event(kind=K.RELOADED)
    assert [each.is_bad for each in (*bad, *fine)] == [True] * 4 + [False] * 3
