"""Whose call a server's request belongs to, and how long it lasts."""

import json
from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from msgspec import Raw

from daemon.protocol import ASKED_OF_CLIENTS, RELATED_TASK_KEY
from daemon.upstreams.call_admission import Admitted, Apart, Attribution, names_task
from daemon.wire.requests import GivenUp, PeerRequest
from tests.unit.cases import cases
from tests.unit.clients.asking import Question, question
from tests.unit.upstreams.test_admission import Caller


@attrs.define(eq=False)
class Asked(Caller):
    """A call of a client that keeps what it is asked."""

    asked_of: list[PeerRequest] = attrs.field(factory=list)
    answers: bool = False
    answerable: frozenset[str] = ASKED_OF_CLIENTS

    def asked(self, question: PeerRequest) -> None:
        self.asked_of.append(question)
        if self.answers:
            question.answer(b"{}")


class Scene:
    """Calls in flight, and what has been given up."""

    def __init__(self) -> None:
        self.calls: dict[int, Admitted] = {}
        self.given_up = GivenUp()
        self.given_up.seconds = 60.0
        self.now = 0.0
        self.apart = Apart("s", lambda: self.now)
        self.attribution = Attribution(self.calls, self.given_up, self.apart, lambda: self.now)

    def call(self, asker: object, *, answers: bool = False, can: Iterable[str] = ASKED_OF_CLIENTS) -> Asked:
        """A client calls that can be asked these; tickets and keys differ."""
        caller = Asked(who=asker, answers=answers, answerable=frozenset(can))
        ticket = len(self.calls) + 1
        places: Any = None
        self.calls[ticket] = Admitted(places, ticket, caller, ticket + 100)
        return caller

    def asks(
        self, method: str = "elicitation/create", params: Any = None, carrier: int | None = None
    ) -> Question:
        """The server asks, perhaps in the answer to the call with this ticket."""
        asked = question(method, params)
        self.taken = self.attribution.take(asked.request, None if carrier is None else self.calls[carrier])
        return asked

    def end(self, ticket: int) -> None:
        del self.calls[ticket]
        self.attribution.ended(ticket)


ANNA, BEN = object(), object()


def test_what_the_transport_says_is_believed_whatever_else_is_in_flight() -> None:
    scene = Scene()
    anna, ben = scene.call(ANNA), scene.call(BEN)
    scene.given_up.add(9, object(), 0.0)
    asked = scene.asks(carrier=1)
    assert anna.asked_of == [asked.request]
    assert not ben.asked_of
    assert not scene.apart.is_on


def test_a_call_that_is_none_of_ours_carries_nothing() -> None:
    scene, asked = Scene(), question("roots/list")
    scene.call(ANNA)
    assert scene.attribution.take(asked.request, Asked(who=ANNA))
    assert asked.answers == [("refused", -32600)]


def test_without_a_word_of_the_transport_the_only_client_with_calls_is_asked_over_its_newest() -> None:
    scene = Scene()
    calls = [scene.call(ANNA), scene.call(ANNA)]
    asked = scene.asks()
    assert [call.asked_of for call in calls] == [[], [asked.request]]


def test_where_two_clients_may_be_meant_none_is_asked(said: list[str]) -> None:
    scene = Scene()
    calls = [scene.call(ANNA), scene.call(BEN)]
    asked = scene.asks()
    scene.asks()
    assert scene.taken
    assert [line.startswith("asks a client something") for line in said] == [True], "logged once"
    assert asked.answers == [("refused", -32600)]
    assert "no client gets it" in asked.back.said[0][2]
    assert not any(call.asked_of for call in calls)
    assert scene.apart.is_on


def test_a_call_that_was_given_up_may_be_meant_until_it_has_run_out() -> None:
    scene = Scene()
    scene.given_up.add(7, BEN, 0.0, ASKED_OF_CLIENTS)
    anna = scene.call(ANNA)
    assert scene.asks().answers == [("refused", -32600)]
    scene.now = 60.0
    scene.asks()
    assert len(anna.asked_of) == 1


@pytest.mark.parametrize(("who", "is_late"), [(BEN, True), (ANNA, False)])
def test_an_answer_that_is_late_and_a_client_that_calls_again_leave_no_doubt(
    who: object, *, is_late: bool
) -> None:
    scene = Scene()
    scene.given_up.add(7, who, 0.0)
    if is_late:
        scene.given_up.answered(7)
    anna = scene.call(ANNA)
    scene.asks()
    assert len(anna.asked_of) == 1


def test_for_a_call_that_was_given_up_nobody_is_asked() -> None:
    scene = Scene()
    scene.given_up.add(7, ANNA, 0.0)
    asked = scene.asks()
    assert scene.taken
    assert "cancelled" in asked.back.said[0][2]
    assert not scene.apart.is_on


def test_without_any_call_it_is_somebody_elses_matter() -> None:
    scene = Scene()
    asked = scene.asks()
    assert not scene.taken
    assert asked.request.is_open


def test_a_request_lasts_as_long_as_one_of_the_calls_that_may_have_caused_it() -> None:
    scene = Scene()
    scene.call(ANNA)
    scene.call(ANNA)
    asked = scene.asks()
    scene.call(ANNA)
    assert scene.attribution.alive() == {101, 102}
    scene.end(2)
    assert asked.request.is_open
    assert scene.attribution.alive() == {101}
    scene.end(1)
    assert asked.answers == [("refused", -32600)]
    assert scene.attribution.alive() == set()
    assert not scene.attribution.open


def test_what_none_of_them_can_answer_is_answered_in_their_place_and_sets_nobody_apart() -> None:
    scene = Scene()
    calls = [scene.call(ANNA, can=()), scene.call(BEN, can=("sampling/createMessage",))]
    scene.given_up.add(7, object(), 0.0)
    asked = scene.asks()
    assert [call.asked_of for call in calls] == [[], [asked.request]]
    assert not scene.apart.is_on
    scene.asks("sampling/createMessage")
    # The server may ask for her, too: mcpd declares to it what any client can.
    assert scene.apart.is_on


def test_the_first_request_for_roots_is_the_connections_own_and_the_next_may_be_any_calls() -> None:
    scene = Scene()
    for who in (ANNA, BEN):
        scene.call(who)
    asked = scene.asks("roots/list")
    assert asked.answers == [("refused", -32600)]
    assert "belongs to no call" in asked.back.said[0][2]
    assert not scene.apart.is_on
    scene.attribution.expects_roots = True
    scene.asks("roots/list")
    assert not scene.apart.is_on
    scene.asks("roots/list")
    assert scene.apart.is_on


@cases("params", "named")
def test_a_request_that_names_a_task(params: Any, named: bool) -> None:
    assert names_task(None if params is None else Raw(json.dumps(params).encode())) is named


@pytest.mark.parametrize("carrier", [None, 1])
def test_a_request_of_a_task_is_refused_whatever_carries_it(carrier: int | None) -> None:
    scene = Scene()
    anna = scene.call(ANNA)
    named = {"_meta": {RELATED_TASK_KEY: {"taskId": "t"}}}
    assert scene.asks(params=named, carrier=carrier).answers == [("refused", -32600)]
    assert not anna.asked_of
