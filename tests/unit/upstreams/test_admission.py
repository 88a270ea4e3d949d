"""Calls at a server: some in flight, some in line, the rest refused."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config.tuning import ServerLimits
from daemon.errors import CallError, Overloaded, RequestTooLarge, UpstreamLost, UpstreamUnavailable
from daemon.ports import CallToSend, OwnCall
from daemon.protocol import ASKED_OF_CLIENTS, CLIENT_CAPABILITIES
from daemon.upstreams.call_admission import RETRY_LEAST, RETRY_MOST, RETRY_UNKNOWN, Admission
from daemon.wire.requests import GivenUp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from msgspec import Raw

    from daemon.model import Era
    from daemon.wire.envelope import Buffer
    from daemon.wire.requests import Exchange, PeerRequest


@attrs.define(eq=False)
class Server:
    """A connection that keeps what it is sent."""

    last_heard: float = 0.0
    given_up: GivenUp = attrs.field(factory=GivenUp)
    capabilities = CLIENT_CAPABILITIES
    open: dict[int, tuple[str, Exchange]] = attrs.field(factory=dict)
    cancelled: list[int] = attrs.field(factory=list)
    sent: list[str] = attrs.field(factory=list)
    refuses: bool = False
    now: float = 0.0

    @property
    def in_flight(self) -> int:
        return len(self.open)

    def adopt(self, era: Era, version: str) -> None:
        raise AssertionError("no handshake here")

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109
        raise AssertionError("no requests here")

    def notify(self, method: str, params: dict[str, object] | None = None) -> None:
        raise AssertionError("no notifications here")

    def call(self, call: CallToSend, exchange: Exchange) -> int:
        if self.refuses:
            raise Overloaded("the server does not read")
        key = len(self.sent) + 1
        self.sent.append(call.method)
        self.open[key] = (call.method, exchange)
        return key

    def cancel(self, key: int, reason: str) -> None:
        self.cancelled.append(key)
        del self.open[key]

    async def wait_answered(self) -> None:
        """Nothing is asked."""

    def expire(self, *, idle: float, total: float, alive: Iterable[int] = ()) -> Iterator[tuple[int, Exchange]]:
        raise AssertionError("no time passes here")

    async def run(self) -> None:
        raise AssertionError("nothing is received here")

    def answer(self, tool: str) -> None:
        key = next(key for key, (name, _) in self.open.items() if name == tool)
        self.open.pop(key)[1].answered(b"{}")


@attrs.define(eq=False)
class Caller:
    """An exchange that keeps how it ended."""

    spared_until = 0.0
    answerable = ASKED_OF_CLIENTS

    ended: list[object] = attrs.field(factory=list)
    progress: int = 0

    def answered(self, result: Buffer) -> None:
        self.ended.append(result)

    def refused(self, error: Buffer) -> None:
        self.ended.append(error)

    def lost(self, error: CallError) -> None:
        self.ended.append(error)

    def progressed(self, params: dict[str, Raw]) -> None:
        self.progress += 1

    def asked(self, question: PeerRequest) -> None:
        question.refuse(-32600, "nobody is here")

    def notified(self, method: str, params: Raw) -> None:
        raise AssertionError(method)

    @property
    def asker(self) -> object:
        return self


def place(in_flight: int = 2, queue: int = 2) -> tuple[Admission, Server]:
    server = Server()
    return Admission("s", server, ServerLimits(in_flight=in_flight, queue=queue), lambda: server.now), server


def call(tool: str, **more: Any) -> OwnCall:
    return OwnCall(method=tool, params=(), **more)


def test_calls_beyond_the_limit_wait_in_line_and_go_out_in_order() -> None:
    admission, server = place()
    for tool in "abcd":
        admission.admit(call(tool), Caller())
    assert server.sent == ["a", "b"]
    assert len(admission) == 4

    server.answer("b")
    assert server.sent == ["a", "b", "c"]
    server.answer("a")
    assert server.sent == ["a", "b", "c", "d"]
    server.answer("c")
    server.answer("d")
    assert len(admission) == 0


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


def test_a_call_in_line_that_is_given_up_is_never_sent() -> None:
    admission, server = place(in_flight=1, queue=2)
    admission.admit(call("a"), Caller())
    ticket = admission.admit(call("b"), Caller())
    admission.admit(call("c"), Caller())
    admission.cancel(ticket, "the client is gone")
    server.answer("a")
    assert server.sent == ["a", "c"]
    assert server.cancelled == []


def test_a_call_in_flight_that_is_given_up_is_cancelled_there_and_makes_room() -> None:
    admission, server = place(in_flight=1, queue=1)
    ticket = admission.admit(call("a"), Caller())
    admission.admit(call("b"), Caller())
    admission.cancel(ticket, "the client is gone")
    assert server.cancelled == [1]
    assert server.sent == ["a", "b"]
    admission.cancel(ticket, "again")
    admission.cancel(10**9, "never given out")
    assert server.cancelled == [1]


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


def test_tickets_of_two_connections_are_never_the_same() -> None:
    (one, _), (two, server) = place(), place()
    old = one.admit(call("a"), Caller())
    new = two.admit(call("b"), Caller())
    assert old != new
    two.cancel(old, "late")
    assert server.cancelled == []


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


def test_a_long_line_that_is_all_refused_is_refused_one_by_one() -> None:
    admission, server = place(in_flight=1, queue=2000)

    def check() -> bool:
        raise CallError("it is another tool by now")

    admission.admit(call("a"), Caller())
    callers = [Caller() for _ in range(2000)]
    for caller in callers:
        admission.admit(attrs.evolve(call("b"), check=check), caller)
    server.answer("a")
    assert {len(caller.ended) for caller in callers} == {1}
    assert (server.sent, len(admission)) == (["a"], 0)


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
    assert "another client's turn has come: you had the most places in line" in str(error)
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


def test_who_is_alone_may_have_the_whole_line() -> None:
    admission, _ = place(in_flight=1, queue=5)
    for _ in range(6):
        admission.admit(call("x"), Caller(), 1)
    assert admission.queued == 5


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


def test_a_server_without_a_line_has_a_hint_too() -> None:
    admission, _ = full(1, 0)
    assert hint(admission) == RETRY_UNKNOWN


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
