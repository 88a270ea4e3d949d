"""The checker is checked: each kind of violation is found in a history made for it.

That it finds none in a sound one is seen by each case of `test_matrix`.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
import trio.testing
from attrs import evolve
from trio.testing import MockClock

from tests.faults import history as h
from tests.faults.history import History
from tests.faults.test_matrix import CASES, ROWS
from tests.faults.wire import HARMLESS, Direction, Fate, Toxic, join
from tests.modules import functions_in
from tests.waiting import beside

Memory = trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]

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


def test_each_kind_of_violation_is_found() -> None:
    for what, (invariant, *broken) in BROKEN.items():
        assert {violation.partition(":")[0] for violation in found(*broken)} == {invariant}, what
    every = {*(f"I{number}" for number in range(1, 8)), "R20", "R22"}
    assert {invariant for invariant, *_ in BROKEN.values()} == every


def test_a_violation_does_not_repeat_the_secret() -> None:
    told = found(h.Said(where="the log", text="password hunter2!"))
    assert told == ["I5: secret 0 stands in the log: 'password *****!'"]


# --- what the cases cannot tell of the faulty line -----------------------------------------------------------


@asynccontextmanager
async def joined(down: Toxic) -> AsyncIterator[tuple[Memory, Memory]]:
    """Two ends in memory with a line between them."""
    near, near_inside = trio.testing.memory_stream_pair()
    far, far_inside = trio.testing.memory_stream_pair()
    directions = {"up": Direction(HARMLESS), "down": Direction(down)}
    async with beside(partial(join, near_inside, far_inside, **directions, rng=random.Random(7))):
        yield near, far


async def pieces(end: Memory, size: int) -> list[bytes]:
    """So many bytes, as they arrive."""
    found: list[bytes] = []
    while sum(map(len, found)) < size:
        found.append(bytes(await end.receive_some(65536)))
    return found


async def test_slices_are_those_of_the_seed(autojump_clock: MockClock) -> None:
    found = []
    for _ in range(2):
        async with joined(Toxic(slice=5, latency=0.1)) as (near, far):
            await far.send_all(bytes(range(100)))
            found.append(await pieces(near, 100))
    assert found[0] == found[1]
    assert b"".join(found[0]) == bytes(range(100))
    assert {len(piece) for piece in found[0][:-1]} == {1, 2, 3, 4, 5}


async def test_garbled_bytes_are_as_many_and_lines_stay_lines() -> None:
    async with joined(Toxic(spare=10, fate=Fate.GARBLE)) as (near, far):
        sent = b"0123456789" + b"abcdefghijklmno\n" * 200
        await far.send_all(sent)
        got = b"".join(await pieces(near, len(sent)))
        assert got != sent
        assert (got[:10], len(got), got.count(b"\n")) == (sent[:10], len(sent), sent.count(b"\n"))


# --- the list of what catches which failure is whole, and each test that it names exists ---------------------


def exists(test: str) -> bool:
    """Whether there is a test, or a case of the matrix, of this name."""
    path, separator, name = test.partition("::")
    return name in functions_in(path) if separator else test in CASES


def test_each_named_test_exists_and_a_row_without_one_has_a_note() -> None:
    rows = [row for table in ROWS.values() for row in table]
    assert [test for row in rows for test in row.get("tests", ()) if not exists(test)] == []
    assert [row["what"] for row in rows if not (row.get("tests") or row.get("note"))] == []


def test_the_fifty_are_fifty() -> None:
    assert [int(row["what"].split()[0]) for row in ROWS["fifty"]] == list(range(1, 51))


def test_a_name_that_does_not_exist_is_found() -> None:
    assert exists("tests/faults/test_history.py::test_the_fifty_are_fifty")
    assert not exists("tests/faults/test_history.py::test_nobody")
    assert not exists("tests/nobody.py::test_the_fifty_are_fifty")
    assert exists("stdio: killed while idle")
    assert not exists("stdio: nobody")
