"""Calls at a server: some in flight, some in line, the rest refused."""

import contextlib
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.config.tuning import ServerLimits
from daemon.errors import CallError, Overloaded, RequestTooLarge, UpstreamLost, UpstreamUnavailable
from daemon.ports import OwnCall
from daemon.protocol import ASKED_OF_CLIENTS
from daemon.upstreams.call_admission import RETRY_LEAST, RETRY_MOST, RETRY_UNKNOWN, Admission, Apart
from daemon.wire.envelope import Buffer
from daemon.wire.requests import OwnExchange
from tests.unit.clients.asking import question
from tests.unit.upstreams.transports.replies import TableConnection


class Server(TableConnection):
    """A connection that keeps what it is sent, and the time at which."""

    now = 0.0


@attrs.define(eq=False)
class Caller(OwnExchange):
    """An exchange that keeps how it ended."""

    answerable = ASKED_OF_CLIENTS

    ended: list[object] = attrs.field(factory=list)
    progress: int = 0
    who: object = None
    """The client that calls; this call itself if nothing else is said."""

    def answered(self, result: Buffer) -> None:
        self.ended.append(result)

    def refused(self, error: Buffer) -> None:
        self.ended.append(error)

    def lost(self, error: CallError) -> None:
        self.ended.append(error)

    def progressed(self, params: dict[str, Raw]) -> None:
        self.progress += 1

    @property
    def asker(self) -> object:
        return self if self.who is None else self.who


def place(in_flight: int = 2, queue: int = 2) -> tuple[Admission, Server]:
    server = Server()
    return Admission("s", server, ServerLimits(in_flight=in_flight, queue=queue), lambda: server.now), server


def call(tool: str, **more: Any) -> OwnCall:
    return OwnCall(method=tool, params=(), **more)


def test_a_call_beyond_the_line_is_refused_and_was_not_sent() -> None:
    admission, server = place(in_flight=1, queue=1)
    admission.admit(call("a"), Caller())
    admission.admit(call("b"), Caller())
    with pytest.raises(Overloaded, match="works on 1 calls, 1 are in line") as refused:
        admission.admit(call("c"), Caller())
    assert refused.value.details == {
        "server": "s",
        "bound": "limits.queue",
        "inFlight": 1,
        "queued": 1,
        "yours": 1,
        "retryAfterMs": RETRY_LEAST * 1000,
    }
    assert server.sent == ["a"]
    server.answer("a")
    assert server.sent == ["a", "b"]


def test_a_call_that_is_given_up_is_cancelled_in_flight_and_never_sent_from_the_line() -> None:
    admission, server = place(in_flight=1, queue=2)
    first, second, _ = (admission.admit(call(tool), Caller()) for tool in "abc")
    admission.cancel(second, "the client is gone")
    assert (server.sent, server.cancelled) == (["a"], [])
    for reason in ("the client is gone", "again"):
        admission.cancel(first, reason)
    assert (server.sent, server.cancelled) == (["a", "c"], [1])
    # Tickets of two connections are never the same.
    other, at_other = place()
    other.admit(call("x"), Caller())
    other.cancel(first, "late")
    assert at_other.cancelled == []


def test_a_long_line_that_is_all_refused_is_refused_one_by_one() -> None:
    admission, server = place(in_flight=1, queue=2000)

    def check() -> bool:
        raise CallError("it is another tool by now")

    admission.admit(call("a"), Caller())
    callers = [Caller() for _ in range(2000)]
    for caller in callers:
        admission.admit(call("b", check=check), caller)
    server.answer("a")
    assert {len(caller.ended) for caller in callers} == {1}
    assert (server.sent, len(admission)) == (["a"], 0)


def test_a_call_that_its_caller_has_taken_back_makes_room_for_the_next() -> None:
    admission, server = place(in_flight=1, queue=3)
    caller = Caller()
    admission.admit(call("a"), Caller())
    admission.admit(call("b", check=lambda: False), caller)
    admission.admit(call("c"), Caller())
    server.answer("a")
    assert server.sent == ["a", "c"]
    assert (caller.ended, len(admission)) == ([], 1)


def test_each_ending_of_a_call_frees_its_place_and_reaches_its_caller() -> None:
    admission, server = place(in_flight=1, queue=3)
    callers = [Caller() for _ in range(4)]
    for tool, caller in zip("abcd", callers, strict=True):
        admission.admit(call(tool), caller)
    server.open.pop(1)[1].answered(b"1")
    server.open[2][1].progressed({})
    server.open.pop(2)[1].refused(b"2")
    lost = UpstreamLost("gone")
    server.open.pop(3)[1].lost(lost)
    assert server.sent == ["a", "b", "c", "d"]
    assert [caller.ended for caller in callers] == [[b"1"], [b"2"], [lost], []]
    assert callers[1].progress == 1


def test_when_the_connection_ends_the_line_is_told_that_nothing_was_sent() -> None:
    admission, server = place(in_flight=1, queue=2)
    first, second = Caller(), Caller()
    admission.admit(call("a"), first)
    admission.admit(call("b"), second)
    admission.close()
    server.open.pop(1)[1].lost(UpstreamLost("gone"))
    assert [type(ending) for ending in second.ended] == [UpstreamUnavailable]
    assert [type(ending) for ending in first.ended] == [UpstreamLost]
    assert server.sent == ["a"]
    with pytest.raises(UpstreamUnavailable, match="was not sent"):
        admission.admit(call("c"), Caller())


def test_a_server_that_does_not_read_refuses_the_line_too() -> None:
    admission, server = place(in_flight=1, queue=1)
    waiting = Caller()
    admission.admit(call("a"), Caller())
    admission.admit(call("b"), waiting)
    server.refuses = True
    server.answer("a")
    assert [type(ending) for ending in waiting.ended] == [Overloaded]
    assert len(admission) == 0


def test_a_call_that_waits_too_long_in_line_is_refused_as_not_sent() -> None:
    admission, server = place(in_flight=1, queue=2)
    early, late = Caller(), Caller()
    admission.admit(call("a"), Caller())
    admission.admit(call("b"), early)
    server.now = 30.0
    admission.admit(call("c"), late)
    server.now = 60.0
    admission.expire(60.0)
    [ended] = early.ended
    assert isinstance(ended, Overloaded)
    assert ended.details["bound"] == "timeouts.queue"
    assert late.ended == []
    server.answer("a")
    assert server.sent == ["a", "c"]


# --- turns --------------------------------------------------------------------------------------------------


def test_a_place_goes_to_the_next_client_not_to_the_next_call() -> None:
    admission, server = place(in_flight=1, queue=20)
    for tool in ("a1", "a2", "a3", "a4"):
        admission.admit(call(tool), Caller(), 1)
    for tool in ("b1", "b2"):
        admission.admit(call(tool), Caller(), 2)
    admission.admit(call("c1"), Caller(), 3)
    for _ in range(7):
        server.answer(server.sent[-1])
    assert server.sent == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
    assert len(admission) == 0


def test_in_a_flood_of_one_client_anothers_call_is_in_the_next_round() -> None:
    admission, server = place(in_flight=64, queue=64)
    refused = 0
    crowded_out = Caller()
    for number in range(10_000):
        try:
            admission.admit(call(f"flood{number}"), crowded_out if number == 127 else Caller(), 1)
        except Overloaded:
            refused += 1
    assert refused == 10_000 - 128
    admission.admit(call("mine"), Caller(), 2)
    (error,) = crowded_out.ended
    assert isinstance(error, Overloaded)
    assert "your call had to leave the full queue, where you had most calls" in str(error)
    assert "The call was not sent; try again in about" in str(error)
    for number in range(2):
        server.answer(f"flood{number}")
    assert "mine" in server.sent
    assert len(admission) == 64 + 64 - 2


def test_a_full_line_is_shared_evenly_by_those_who_want_in() -> None:
    admission, _ = place(in_flight=1, queue=12)
    callers: dict[int, list[Caller]] = {client: [] for client in (1, 2, 3)}
    admission.admit(call("x"), Caller(), 9)
    for client, own in callers.items():
        for _ in range(50):
            caller = Caller()
            try:
                admission.admit(call("x"), caller, client)
            except Overloaded as error:
                assert error.details["yours"] == admission.queued // client  # noqa: PT017 - of each refusal
            else:
                own.append(caller)
    waiting = {client: sum(not caller.ended for caller in own) for client, own in callers.items()}
    assert waiting == {1: 4, 2: 4, 3: 4}
    assert {type(e) for own in callers.values() for caller in own for e in caller.ended} == {Overloaded}


def test_a_client_whose_calls_have_left_the_line_begins_anew_at_its_end() -> None:
    admission, server = place(in_flight=1, queue=9)
    admission.admit(call("a1"), Caller(), 1)
    ticket = admission.admit(call("a2"), Caller(), 1)
    admission.admit(call("b1"), Caller(), 2)
    admission.cancel(ticket, "given up")
    admission.admit(call("a3"), Caller(), 1)
    server.answer("a1")
    server.answer("b1")
    assert server.sent == ["a1", "b1", "a3"]


@given(st.lists(st.tuples(st.sampled_from("aaadcx"), st.integers(1, 4)), max_size=120))
def test_whatever_happens_each_call_ends_once_and_the_limits_hold(steps: list[tuple[str, int]]) -> None:
    """a: a client calls; d: a call in flight is answered; c: one is given up; x: time passes."""
    admission, server = place(in_flight=2, queue=5)
    callers: dict[int, Caller] = {}
    for step, client in steps:
        if step == "a":
            caller = Caller()
            with contextlib.suppress(Overloaded):
                callers[admission.admit(call("x"), caller, client)] = caller
        elif step == "d" and server.open:
            server.open.pop(next(iter(server.open)))[1].answered(b"{}")
        elif step == "c" and len(callers) >= client:
            admission.cancel(list(callers)[-client], "given up")
            callers.pop(list(callers)[-client])
        elif step == "x":
            server.now += client
            admission.expire(10)
        assert len(server.open) <= 2
        assert admission.queued <= 5
        assert len(server.open) == 2 or not admission.queued
    admission.close()
    for _, exchange in list(server.open.values()):
        exchange.lost(UpstreamLost("gone"))
    assert {len(caller.ended) for caller in callers.values()} <= {1}
    assert len(admission) == 0


# --- hints --------------------------------------------------------------------------------------------------


def hint(admission: Admission) -> float:
    with pytest.raises(Overloaded) as refused:
        admission.admit(call("x"), Caller(), 1)
    wait = refused.value.details["retryAfterMs"]
    assert isinstance(wait, int)
    assert f"try again in about {wait / 1000:.2g} s" in refused.value.message
    return wait / 1000


def full(in_flight: int, queue: int) -> tuple[Admission, Server]:
    admission, server = place(in_flight, queue)
    for number in range(in_flight + queue):
        admission.admit(call(f"x{number}"), Caller(), 1)
    return admission, server


def test_the_hint_is_the_time_in_which_the_line_is_worked_off_at_the_pace_of_late() -> None:
    admission, server = full(1, 10)
    for number in range(4):
        server.now += 0.5
        server.answer(f"x{number}")
        admission.admit(call("more"), Caller(), 1)
    assert hint(admission) == 5.0
    server.now += 2.0
    assert hint(admission) == 10.0


def test_before_the_first_end_it_may_last_as_long_again_and_the_hint_is_bounded() -> None:
    admission, server = full(1, 10)
    assert hint(admission) == RETRY_LEAST
    assert hint(full(1, 0)[0]) == RETRY_UNKNOWN, "without a line"
    server.now = 7.0
    assert hint(admission) == 7.0
    server.now = 10_000.0
    assert hint(admission) == RETRY_MOST


def test_the_pace_of_an_earlier_line_is_forgotten() -> None:
    admission, server = full(1, 1)
    server.now = 50.0
    server.answer("x0")
    server.answer("x1")
    for _ in range(2):
        admission.admit(call("x"), Caller(), 1)
    server.now = 53.0
    assert hint(admission) == 3.0


# --- how large an answer may be -----------------------------------------------------------------------------


def test_an_answer_over_the_limit_is_lost_with_both_numbers_and_its_place_is_freed() -> None:
    server = Server()
    admission = Admission("s", server, ServerLimits(in_flight=1, output_bytes=10), lambda: 0.0)
    callers = [Caller() for _ in range(4)]
    for tool, caller in zip("abcd", callers, strict=True):
        admission.admit(call(tool), caller)
    server.open.pop(1)[1].answered(b"x" * 11)
    server.open.pop(2)[1].refused(b"x" * 12)
    server.open.pop(3)[1].answered(b"x" * 10)
    server.open.pop(4)[1].refused(b"x" * 10)
    large, refusal = callers[0].ended[0], callers[1].ended[0]
    assert isinstance(large, RequestTooLarge)
    assert "has 11 bytes, over the limit of 10 for server s (limits.outputBytes). The call ran" in large.message
    assert large.details == {"server": "s", "bytes": 11, "limit": 10}
    assert isinstance(refusal, RequestTooLarge)
    assert [caller.ended for caller in callers[2:]] == [[b"x" * 10]] * 2
    assert len(admission) == 0


# --- servers that serve one client at a time -----------------------------------------------------------------


ANNA, BEN, CARL = "anna", "ben", "carl"


class Scene:
    """A server that works for one client at a time, from the beginning or from the first doubt."""

    def __init__(self, *, in_flight: int = 3, queue: int = 10, on: bool = True) -> None:
        self.server = Server()
        self.apart = Apart("s", lambda: self.server.now)
        self.limits = ServerLimits(in_flight=in_flight, queue=queue)
        if on:
            self.apart.begin()
        self.connect()

    def connect(self) -> None:
        self.admission = Admission("s", self.server, self.limits, lambda: self.server.now, self.apart)

    def call(self, who: str, name: str) -> Caller:
        caller = Caller(who=who)
        self.admission.admit(call(f"{who}-{name}"), caller, hash(who))
        return caller

    @property
    def sent(self) -> list[str]:
        return self.server.sent


def test_it_outlives_the_connection() -> None:
    scene = Scene(on=False)
    scene.call(ANNA, "1")
    scene.call(BEN, "1")
    scene.admission.attribution.take(question("sampling/createMessage").request, None)
    scene.admission.close()
    scene.server = Server()
    scene.connect()
    scene.call(ANNA, "2")
    scene.call(BEN, "2")
    assert scene.sent == ["anna-2"]


def test_clients_that_share_a_connection_are_told_apart_and_a_call_given_up_frees_the_server() -> None:
    scene = Scene()
    first, *_ = (scene.admission.admit(call(who), Caller(who=who), 1) for who in (ANNA, BEN, BEN, CARL))
    assert scene.sent == ["anna"]
    scene.admission.cancel(first, "not wanted")
    assert scene.sent == ["anna", "ben", "ben"]
    for _ in range(2):
        scene.server.answer("ben")
    assert scene.sent[3:] == ["carl"]


@pytest.mark.parametrize("ends", [True, False], ids=["a call ends", "another comes"])
def test_after_a_minute_without_a_request_all_clients_are_served_at_once_again(*, ends: bool) -> None:
    scene = Scene()
    for who in (ANNA, BEN, CARL)[: 2 + ends]:
        scene.call(who, "1")
    assert scene.sent == ["anna-1"]
    scene.server.now = 60.0
    if ends:
        scene.server.answer("anna-1")
    else:
        scene.call(CARL, "1")
    assert scene.sent == ["anna-1", "ben-1", "carl-1"]


def test_the_limits_of_the_line_hold_and_the_refusal_says_why() -> None:
    scene = Scene(queue=1)
    scene.call(ANNA, "1")
    scene.call(BEN, "1")
    with pytest.raises(Overloaded, match="one client at a time"):
        scene.call(CARL, "1")
    scene.server.now = 60.0
    scene.admission.expire(60.0)
    assert scene.admission.queued == 0


def test_what_a_call_was_asked_for_ends_before_its_answer_is_passed_on() -> None:
    scene, order = Scene(on=False), list[str]()

    class Asked(Caller):
        def asked(self, question: object) -> None: ...

        def answered(self, result: object) -> None:
            order.append("answered")

    scene.admission.admit(call("a"), Asked(who=ANNA), 1)
    asked = question("roots/list")
    asked.request.on_withdrawn = order.append
    scene.admission.attribution.take(asked.request, None)
    assert scene.admission.asked
    scene.server.answer("a")
    assert order == ["the call that it belongs to has ended", "answered"]
    assert asked.answers == [("refused", -32600)]
