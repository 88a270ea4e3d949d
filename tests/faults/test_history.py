"""The checker is checked: each kind of violation is found in a history made for it, and in no sound one."""

from __future__ import annotations

import pytest

from tests.faults.history import (
    Answered,
    Asked,
    Born,
    Connections,
    Described,
    Event,
    History,
    HungUp,
    Left,
    Said,
    Seen,
    Took,
    Withdrawn,
)

ASKED = Asked(client=1, id="1", server="s", nonce="n1")
ANSWERED = Answered(client=1, id="1", text='{"n":"n1"}')
READY = Seen(server="s", state="ready", since=5.0, epoch=2, pid=7)
DOWN = Seen(server="s", state="backoff", since=6.0, epoch=2, restarts=1, reason="killed")
FITTING = Described(
    server="s",
    before=DOWN,
    after=DOWN,
    epoch=2,
    tools=frozenset({"echo"}),
    unavailable=frozenset({"echo"}),
    entry=("backoff", "killed"),
)


def described(before: Seen = DOWN, after: Seen | None = None, **fields: object) -> Described:
    """A description in which something is as it should not be."""
    given = {"epoch": 2, "tools": FITTING.tools, "unavailable": FITTING.unavailable, "entry": FITTING.entry}
    return Described(server="s", before=before, after=after or before, **{**given, **fields})  # type: ignore[arg-type]


def found(*events: Event) -> list[str]:
    """The invariants that a history violates, each as often as it is told."""
    history = History(neighbours=frozenset({"canary"}), secrets=("hunter2",))
    for event in events:
        history.note(event)
    return [violation.partition(":")[0] for violation in history.violations()]


SOUND: dict[str, tuple[Event, ...]] = {
    "an ordinary call": (ASKED, Took(server="s", nonce="n1"), ANSWERED),
    "a call that fails once": (ASKED, Answered(client=1, id="1", code="UpstreamLost", text="gone")),
    "a call that was withdrawn": (ASKED, Withdrawn(client=1, id="1")),
    "a withdrawal that came too late": (ASKED, Withdrawn(client=1, id="1"), ANSWERED),
    "a client that is gone": (ASKED, HungUp(client=1)),
    "one id used twice": (ASKED, ANSWERED, ASKED, ANSWERED),
    "the same id of two clients": (
        *(ASKED, Asked(client=2, id="1", nonce="n2")),
        *(Answered(client=2, id="1", text="n2"), ANSWERED),
    ),
    "a start after an end": (Born(server="s", pid=1), Born(server="s", pid=2)),
    "one connection": (Connections(server="s", live=1), Connections(server="s", live=0)),
    "a neighbour that is well": (
        Asked(client=1, id="1", server="canary", nonce="n1"),
        ANSWERED,
        *(Seen(server="canary", state="ready", pid=3), Seen(server="canary", state="ready", pid=3)),
    ),
    "nothing left": (Left(what="children", before=1, after=1),),
    "a secret that a server itself told": (ASKED, Answered(client=1, id="1", text="n1 hunter2")),
    "an epoch that rises": (READY, Seen(server="s", state="ready", epoch=3, pid=7)),
    "a server that is up": (described(READY, unavailable=frozenset(), entry=None),),
    "a server that is down": (FITTING,),
    "a server that comes up meanwhile": (described(DOWN, READY, unavailable=frozenset(), entry=None),),
}

BROKEN: dict[str, tuple[str, tuple[Event, ...]]] = {
    "a call without an answer": ("I1", (ASKED,)),
    "a call with two answers": ("I1", (ASKED, ANSWERED, ANSWERED)),
    "an answer to nobody": ("I1", (ANSWERED,)),
    "a withdrawn call with two answers": (
        "I1",
        (ASKED, Withdrawn(client=1, id="1"), ANSWERED, ANSWERED),
    ),
    "another client's hanging up": ("I1", (ASKED, HungUp(client=2))),
    "an id that came back as another": ("I1", (ASKED, Answered(client=1, id='"1"', text="n1"))),
    "two processes": ("I2", (Born(server="s", pid=2, others=(1,)),)),
    "two connections": ("I2", (Connections(server="s", live=2),)),
    "a neighbour's call that fails": (
        "I3",
        (Asked(client=1, id="1", server="canary"), Answered(client=1, id="1", code="UpstreamLost")),
    ),
    "a neighbour that is restarted": (
        "I3",
        (Seen(server="canary", state="ready", pid=3), Seen(server="canary", state="ready", pid=4)),
    ),
    "a neighbour that goes down": ("I3", (Seen(server="canary", state="backoff"),)),
    "a child left behind": ("I4", (Left(what="children", before=(1,), after=(1, 2)),)),
    "a descriptor left behind": ("I4", (Left(what="descriptors", before=9, after=10),)),
    "a secret in a log": ("I5", (Said(where="the log", text="password hunter2"),)),
    "a secret in an error": (
        "I5",
        (ASKED, Answered(client=1, id="1", code="UpstreamUnavailable", text="hunter2")),
    ),
    "a secret in a reason": ("I5", (Seen(server="s", state="failed", reason="no hunter2"),)),
    "a secret in a description": ("I5", (described(entry=("backoff", "hunter2")),)),
    "an epoch that falls": ("I6", (READY, Seen(server="s", state="ready", epoch=1, pid=7))),
    "an epoch that falls in a description": ("I6", (READY, described(epoch=1))),
    "a server that is down and not listed": ("I7", (described(entry=None),)),
    "a server that is down without a reason": ("I7", (described(entry=("backoff", "")),)),
    "a server that is listed in another state": ("I7", (described(entry=("failed", "killed")),)),
    "tools of a server that is down": ("I7", (described(unavailable=frozenset()),)),
    "a server that is up and listed": ("I7", (described(READY, unavailable=frozenset()),)),
    "tools that are listed although they can be called": ("I7", (described(READY, entry=None),)),
    "another's answer": ("R20", (ASKED, Answered(client=1, id="1", text="n2"))),
    "a call that was repeated": (
        "R22",
        (Took(server="s", nonce="n1"), Took(server="s", nonce="n1")),
    ),
}


@pytest.mark.parametrize("case", SOUND)
def test_a_sound_history_is_sound(case: str) -> None:
    assert found(*SOUND[case]) == []


@pytest.mark.parametrize("case", BROKEN)
def test_each_kind_of_violation_is_found(case: str) -> None:
    invariant, events = BROKEN[case]
    assert set(found(*events)) == {invariant}


def test_every_invariant_has_a_violation_that_is_found() -> None:
    assert {invariant for invariant, _ in BROKEN.values()} == {
        *(f"I{number}" for number in range(1, 8)),
        *("R20", "R22"),
    }


def test_a_violation_does_not_repeat_the_secret() -> None:
    history = History(secrets=("hunter2",))
    history.note(Said(where="the log", text="password hunter2!"))
    assert history.violations() == ["I5: secret 0 stands in the log: 'password *****!'"]
