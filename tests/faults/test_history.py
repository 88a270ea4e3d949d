"""The checker is checked: each kind of violation is found in a history made for it, and in no sound one."""

from __future__ import annotations

from functools import partial
from typing import Any

from attrs import evolve

from tests.faults import history as h
from tests.faults.history import History

ASKED = h.Asked(client=1, id="1", server="s", nonce="n1")
ANSWERED = h.Answered(client=1, id="1", text='{"n":"n1"}')
REFUSED = evolve(ANSWERED, code="UpstreamLost", text="gone")
TOOK = h.Took(server="s", nonce="n1")
WITHDRAWN, HUNG_UP = h.Withdrawn(client=1, id="1"), h.HungUp(client=1)
READY = h.Seen(server="s", state="ready", since=5.0, epoch=2, pid=7)
DOWN = h.Seen(server="s", state="backoff", since=6.0, epoch=2, restarts=1, reason="killed")
ECHO = frozenset({"echo"})
FITTING = h.Described(
    server="s", before=DOWN, after=DOWN, epoch=2, tools=ECHO, unavailable=ECHO, entry=("backoff", "killed")
)
UP = partial(evolve, FITTING, before=READY, after=READY)
CANARY = evolve(READY, server="canary")
OF_CANARY = evolve(ASKED, server="canary")

SOUND: dict[str, tuple[h.Event, ...]] = {
    "an ordinary call": (ASKED, TOOK, ANSWERED),
    "a call that fails once": (ASKED, REFUSED),
    "a call that was withdrawn": (ASKED, WITHDRAWN),
    "a withdrawal that came too late": (ASKED, WITHDRAWN, ANSWERED),
    "a client that is gone": (ASKED, HUNG_UP),
    "one id used twice": (ASKED, ANSWERED, ASKED, ANSWERED),
    "the same id of two clients": (ASKED, evolve(ASKED, client=2), evolve(ANSWERED, client=2), ANSWERED),
    "a start after an end": (h.Born(server="s", pid=1), h.Born(server="s", pid=2)),
    "one connection": (h.Connections(server="s", live=1), h.Connections(server="s", live=0)),
    "a neighbour that is well": (OF_CANARY, ANSWERED, CANARY, CANARY),
    "nothing left": (h.Left(what="children", before=1, after=1),),
    "a secret that a server itself told": (ASKED, evolve(ANSWERED, text="n1 hunter2")),
    "an epoch that rises": (READY, evolve(READY, epoch=3)),
    "a server that is up": (UP(unavailable=frozenset(), entry=None),),
    "a server that is down": (FITTING,),
    "a server that comes up meanwhile": (evolve(FITTING, after=READY, unavailable=frozenset(), entry=None),),
}

BROKEN: dict[str, tuple[Any, ...]] = {
    "a call without an answer": ("I1", ASKED),
    "a call with two answers": ("I1", ASKED, ANSWERED, ANSWERED),
    "an answer to nobody": ("I1", ANSWERED),
    "a withdrawn call with two answers": ("I1", ASKED, WITHDRAWN, ANSWERED, ANSWERED),
    "another client's hanging up": ("I1", ASKED, evolve(HUNG_UP, client=2)),
    "an id that came back as another": ("I1", ASKED, evolve(ANSWERED, id='"1"')),
    "two processes": ("I2", h.Born(server="s", pid=2, others=(1,))),
    "two connections": ("I2", h.Connections(server="s", live=2)),
    "a neighbour's call that fails": ("I3", OF_CANARY, REFUSED),
    "a neighbour that is restarted": ("I3", CANARY, evolve(CANARY, pid=4)),
    "a neighbour that goes down": ("I3", evolve(CANARY, state="backoff")),
    "a child left behind": ("I4", h.Left(what="children", before=(1,), after=(1, 2))),
    "a secret in a log": ("I5", h.Said(where="the log", text="password hunter2")),
    "a secret in an error": ("I5", ASKED, evolve(REFUSED, text="hunter2")),
    "a secret in a reason": ("I5", evolve(DOWN, reason="no hunter2")),
    "a secret in a description": ("I5", evolve(FITTING, entry=("backoff", "hunter2"))),
    "an epoch that falls": ("I6", READY, evolve(READY, epoch=1)),
    "an epoch that falls in a description": ("I6", READY, evolve(FITTING, epoch=1)),
    "a server that is down and not listed": ("I7", evolve(FITTING, entry=None)),
    "a server that is down without a reason": ("I7", evolve(FITTING, entry=("backoff", ""))),
    "a server that is listed in another state": ("I7", evolve(FITTING, entry=("failed", "killed"))),
    "tools of a server that is down": ("I7", evolve(FITTING, unavailable=frozenset())),
    "a server that is up and listed": ("I7", UP(unavailable=frozenset())),
    "tools that are listed although they can be called": ("I7", UP(entry=None)),
    "another's answer": ("R20", ASKED, evolve(ANSWERED, text="n2")),
    "a call that was repeated": ("R22", TOOK, TOOK),
}


def found(*events: h.Event) -> list[str]:
    """What is wrong with a history."""
    return History(neighbours=frozenset({"canary"}), secrets=("hunter2",), events=list(events)).violations()


def test_a_sound_history_is_sound_and_each_kind_of_violation_is_found() -> None:
    for what, events in SOUND.items():
        assert found(*events) == [], what
    for what, (invariant, *broken) in BROKEN.items():
        assert {violation.partition(":")[0] for violation in found(*broken)} == {invariant}, what
    every = {*(f"I{number}" for number in range(1, 8)), "R20", "R22"}
    assert {invariant for invariant, *_ in BROKEN.values()} == every


def test_a_violation_does_not_repeat_the_secret() -> None:
    told = found(h.Said(where="the log", text="password hunter2!"))
    assert told == ["I5: secret 0 stands in the log: 'password *****!'"]
