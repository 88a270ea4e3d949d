"""Requests that were given up and may still run: whose they are, and for how long."""

from __future__ import annotations

from daemon.wire.requests import MAX_GIVEN_UP, GivenUp

ANNA, BEN = object(), object()


def given_up(seconds: float = 60.0) -> GivenUp:
    found = GivenUp()
    found.seconds = seconds
    return found


def test_whose_request_was_given_up_is_known_until_its_late_answer() -> None:
    requests = given_up()
    requests.add(1, ANNA, 0.0)
    requests.add(2, BEN, 0.0)
    assert requests.askers(1.0) == [ANNA, BEN]
    requests.answered(1)
    requests.answered(99)
    assert requests.askers(1.0) == [BEN]


def test_a_request_that_is_never_answered_is_forgotten_in_time() -> None:
    requests = given_up()
    requests.add(1, ANNA, 0.0)
    requests.add(2, BEN, 30.0)
    assert requests.askers(59.9) == [ANNA, BEN]
    assert requests.askers(60.0) == [BEN]
    assert requests.askers(90.0) == []
    assert len(requests) == 0


def test_of_too_many_it_is_known_that_there_are_some() -> None:
    requests = given_up()
    requests.add(0, ANNA, 0.0)
    for uid in range(1, MAX_GIVEN_UP + 1):
        requests.add(uid, BEN, 1.0)
    assert len(requests) == MAX_GIVEN_UP
    for uid in range(MAX_GIVEN_UP + 1):
        requests.answered(uid)
    assert requests.askers(59.9) == [requests]
    assert requests.askers(60.0) == []
