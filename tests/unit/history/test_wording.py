"""Events in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.causes import Cause
from daemon.history.event import Event, EventKind
from daemon.history.wording import phrase, sentence, span

if TYPE_CHECKING:
    from daemon.history.event import Detail

K = EventKind

CRASHLOOP = " next start in 1m (crashloop)"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (1.44, "1.4 s"),
        (42.0, "42 s"),
        (60.0, "1m"),
        (125.0, "2m 5s"),
        (7380.0, "2h 3m"),
        (7200.0, "2h"),
        (781_200.0, "9d 1h"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(seconds: float, said: str) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize(
    ("kind", "text", "details", "said"),
    [
        (K.STARTED, "", {}, "run 3 begins"),
        (K.READY, "", {"seconds": 1.2, "pid": 77}, "ready after 1.2 s (pid 77)"),
        (K.READY, "", {"seconds": 0.2, "awaySeconds": 10_800.0}, "ready after 0.2 s; was away 3h"),
        (K.READY, "", {"again": True}, "ready again"),
        (K.DEGRADED, "does not answer pings", {}, "degraded: does not answer pings"),
        (
            K.ENDED,
            "killed by SIGKILL",
            {"seconds": 7380.0, "retrySeconds": 1.4, "state": "backoff"},
            "ended: killed by SIGKILL after 2h 3m; next start in 1.4 s",
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
            "ended for a restart after 5.0 s",
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
            {"door": "clients", "count": 1},
            "1 connection refused at clients: only [0] may",
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


def test_every_kind_has_words_even_without_details() -> None:
    assert all(phrase(Event(kind=kind)) for kind in EventKind if kind is not K.LISTS_CHANGED)


def test_a_sentence_begins_with_whom_it_happened_to() -> None:
    assert sentence(Event(kind=K.STARTED, server="git", run=1)) == "git: run 1 begins"
    assert sentence(Event(kind=K.STARTED, server="git", instance="git#2", run=1)) == "git#2: run 1 begins"
    assert sentence(Event(kind=K.SESSION_ENDED, session="#4")) == "session #4: the client left"


def test_what_programs_sent_in_place_of_details_does_not_fail() -> None:
    odd: dict[str, Detail] = {"seconds": "x", "tools": 7, "renamed": ["a"], "stderr": 1, "count": None}
    assert all(isinstance(phrase(Event(kind=kind, details=odd)), str) for kind in EventKind)
