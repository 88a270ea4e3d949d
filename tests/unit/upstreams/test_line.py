"""The line at one server: turns between clients, order within one."""

from __future__ import annotations

from typing import Any

from daemon.upstreams.call_admission import Admitted, InLine, Line
from tests.unit.upstreams.test_admission import call
from tests.unit.upstreams.test_admission_apart import CallerOf


def line_of(*clients: tuple[int, str]) -> Line:
    """Calls in line, numbered from 1: the number of their client, and who it is."""
    line, places = Line(), None
    for ticket, (client, who) in enumerate(clients, 1):
        admitted = Admitted(_any(places), ticket, CallerOf(who=who))
        line.join(InLine(ticket, client, call(who), admitted, 0.0))
    return line


def _any(value: Any) -> Any:
    return value


def tickets(found: list[InLine]) -> list[int]:
    return [place.ticket for place in found]


def test_clients_take_turns() -> None:
    line = line_of((1, "a"), (1, "a"), (2, "b"), (1, "a"))
    assert [tickets(line.next()) for _ in range(4)] == [[1], [3], [2], [4]]
    assert not line.clients


def test_a_turn_may_have_several_calls_of_one_client() -> None:
    line = line_of((1, "a"), (2, "b"), (1, "a"), (1, "a"))
    assert [tickets(line.next(2)) for _ in range(3)] == [[1, 3], [2], [4]]


def test_clients_that_share_a_connection_have_turns_of_their_own() -> None:
    line = line_of((1, "a"), (1, "a"), (1, "b"))
    assert [tickets(line.next(9)) for _ in range(2)] == [[1, 2], [3]]


def test_it_is_known_whether_only_one_waits() -> None:
    line = line_of((1, "a"), (1, "a"))
    assert line.is_all_of("a")
    assert not line.is_all_of("b")
    line = line_of((1, "a"), (2, "b"))
    assert not line.is_all_of("a")


def test_a_call_can_leave_and_the_newest_of_the_longest_is_crowded_out() -> None:
    line = line_of((1, "a"), (1, "a"), (1, "a"), (2, "b"))
    assert line.crowd_out(1) is None
    crowded_out = line.crowd_out(2)
    assert crowded_out is not None
    assert crowded_out.ticket == 3
    assert line.leave(3) is None
    assert line.leave(1) is not None
    assert (line.places_of(1), line.places_of(2), line.places_of(3)) == (1, 1, 0)
    assert tickets(line.all()) == [2, 4]
