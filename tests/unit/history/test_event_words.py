"""Events in words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from daemon.causes import Cause
from daemon.history.event import Event, EventKind
from daemon.history.event_words import phrase, sentence

if TYPE_CHECKING:
    from daemon.history.event import Detail


K = EventKind

CRASHLOOP = " next start in 1m (crashloop)"


@pytest.mark.parametrize(
    ("kind", "text", "details", "said"),
    [
        (K.STARTED, "", {}, "run 3 begins"),
        (K.READY, "", {"seconds": 1.2, "pid": 77}, "ready after 1.2s (pid 77)"),
        (K.READY, "", {"seconds": 0.2, "awaySeconds": 10_800.0}, "ready after 0.2s; was away 3h"),
        (K.READY, "", {"again": True}, "ready again"),
        (K.DEGRADED, "does not answer pings", {}, "degraded: does not answer pings"),
        (
            K.ENDED,
            "killed by SIGKILL",
            {"seconds": 7380.0, "retrySeconds": 1.4, "state": "backoff"},
            "ended: killed by SIGKILL after 2h 3m; next start in 1.4s",
        ),
        (
            K.ENDED,
            "exited with status 1",
            {"retrySeconds": 60.0, "state": "crashloop", "stderr": ["one", "FATAL"]},
            "ended: exited with status 1 before it was ready (its last line: FATAL);" + CRASHLOOP,
        ),
        (
            K.ENDED,
            "for a restart",
            {"asked": True, "seconds": 5.0, "retrySeconds": 0.0},
            "ended for a restart after 5.0s",
        ),
        (
            K.HELD,
            "",
            {
                "definitions": {
                    "log": {"because": "changed", "members": ["title"], "argumentsCame": ["a"]},
                    "prompt:review": {"because": "new"},
                    "more": 2,
                },
                "more": 3,
            },
            (
                "waits for approval (`mcpd approve`): log (it changed: title, argument a added),"
                " prompt:review (nobody approved it yet) and 5 more"
            ),
        ),
        (K.APPROVED, "", {"names": ["log"], "by": "me"}, "me approved log"),
        (K.APPROVED, "", {"names": ["log"], "namesMore": 4, "by": "me"}, "me approved log and 4 more"),
        (
            K.QUESTION_REFUSED,
            "its url is none",
            {"reason": "url", "count": 1},
            "1 question refused, shown to no user: its url is none",
        ),
        (
            K.QUESTION_REFUSED,
            "its url is none",
            {"reason": "url", "count": 1200},
            "1,200 questions refused, shown to no user, the last because: its url is none",
        ),
        (
            K.HOST_REFUSED,
            "",
            {
                "host": "api.x",
                "port": 443,
                "allow": "mcpd allow-host s api.x",
                "count": 1,
            },
            "its sandbox refused api.x:443 (`mcpd allow-host s api.x` allows it)",
        ),
        (
            K.HOST_REFUSED,
            "",
            {"host": "", "port": 443, "reason": "not-allowed", "allow": "", "count": 12},
            "its sandbox refused further hosts 12 times (not allowed)",
        ),
        (K.RESTARTED, "", {"by": "operator"}, "restarted: an operator asked for it"),
        (K.STATE, "switched off", {"state": "disabled"}, "disabled: switched off"),
        (
            K.LISTS_CHANGED,
            "",
            {
                "tools": {"came": ["a", "b"], "went": [], "changed": ["c"]},
                "resourceTemplates": {"went": ["x"]},
                "renamed": {"old": "new"},
                "epoch": 4,
            },
            "tools added a, b; changed c; resource templates removed x; renamed: old to new",
        ),
        (
            K.LISTS_CHANGED,
            "",
            {
                "tools": {"came": ["radar"], "went": ["forecast"], "changed": ["current", "tides", "sun"]},
                "toolsDiffer": {
                    "current": {
                        "members": ["inputSchema"],
                        "argumentsCame": ["place"],
                        "argumentsWent": ["city", "zone"],
                        "argumentsRequired": ["place"],
                    },
                    "tides": {"members": ["description", "inputSchema"]},
                },
            },
            (
                "tools added radar; removed forecast; changed current (argument place added,"
                " arguments city, zone removed, argument place now required),"
                " tides (description, inputSchema), sun"
            ),
        ),
        (
            K.LISTS_CHANGED,
            "",
            {"tools": {"came": [str(n) for n in range(12)], "cameMore": 5}},
            "tools added 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 7 more",
        ),
        (
            K.EPOCH,
            "",
            {"epoch": 4, "before": 3},
            "what models are offered of it is another version now (epoch 4)",
        ),
        (K.LOGIN, "nobody came", {"outcome": "failed"}, "login failed: nobody came"),
        (K.SWITCHED, "", {"what": "tool push", "on": False}, "an operator switched tool push off"),
        (K.RELOADED, "", {"added": ["time"]}, "the configuration was read: added: time"),
        (K.RELOADED, "", {}, "the configuration was read: nothing has changed"),
        (K.RELOADED, "not JSON", {}, "the configuration was refused: not JSON"),
        (K.SIGNAL, "", {"signal": "SIGHUP"}, "mcpd got SIGHUP"),
        (
            K.REFUSED,
            "",
            {"door": "http", "reason": "token_wrong", "count": 3},
            "3 connections refused at http: token wrong",
        ),
        (
            K.REFUSED,
            "only [0] may",
            {"door": "clients", "count": 1, "uid": 7},
            "1 connection of uid 7 refused at clients: only [0] may",
        ),
        (
            K.REFUSED,
            "only [0] may",
            {"door": "clients", "count": 2, "uid": 7},
            "2 connections, the last of uid 7, refused at clients: only [0] may",
        ),
        (K.OVERLOADED, "", {"count": 2}, "2 calls refused, overloaded"),
        (K.OVERLOADED, "", {"bound": "limits.queue"}, "1 call refused, overloaded (limits.queue)"),
        (K.INSTANCE_BEGAN, "", {}, "instance begun"),
        (K.INSTANCE_ENDED, "unused for 60 s", {}, "instance ended: unused for 60 s"),
        (
            K.SESSION_BEGAN,
            "",
            {"client": "vim 9", "profile": "p", "surface": "full"},
            "vim 9 connected (profile p, surface full)",
        ),
        (
            K.SESSION_ENDED,
            "",
            {"client": "vim 9", "calls": 1, "seconds": 61.0},
            "vim 9 left after 1m 1s and 1 call",
        ),
        (K.DAEMON_STARTED, "", {"version": "1.2", "pid": 5}, "mcpd 1.2 starts (pid 5)"),
        (
            K.DAEMON_STARTED,
            "",
            {"version": "1.2", "pid": 5, "unclean": True, "lastAt": 40.0},
            "mcpd 1.2 starts (pid 5); the one before did not stop in order: it was last heard of 1m before",
        ),
        (K.DAEMON_STOPPED, "", {"seconds": 61.0}, "mcpd stops after 1m 1s"),
        (K.LOST, "", {"count": 5}, "5 events are lost: the store took no more"),
    ],
)
def test_each_kind_is_a_sentence(kind: EventKind, text: str, details: dict[str, Detail], said: str) -> None:
    cause = Cause.EXITED if kind is K.ENDED else None
    assert phrase(Event(kind=kind, at=100.0, run=3, text=text, cause=cause, details=details)) == said


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

    assert told("stopped") == "ended: mcpd has stopped it after 2.0s"
    assert told("stopped", Cause.EXITED) == "ended: mcpd has stopped it after 2.0s; stopped"
    assert told("dormant") == "ended: mcpd has stopped it after 2.0s; dormant"


def test_every_kind_has_words_even_without_details() -> None:
    assert all(phrase(Event(kind=kind)) for kind in EventKind if kind is not K.LISTS_CHANGED)


def test_a_sentence_begins_with_whom_it_happened_to() -> None:
    assert sentence(Event(kind=K.STARTED, server="git", run=1)) == "git: run 1 begins"
    assert sentence(Event(kind=K.STARTED, server="git", instance="git#2", run=1)) == "git#2: run 1 begins"
    assert sentence(Event(kind=K.SESSION_ENDED, session="#4")) == "session #4: the client left"


def test_what_programs_sent_in_place_of_details_does_not_fail() -> None:
    odd: dict[str, Detail] = {"seconds": "x", "tools": 7, "renamed": ["a"], "stderr": 1, "count": None}
    assert all(isinstance(phrase(Event(kind=kind, details=odd)), str) for kind in EventKind)


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
