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
    ticket: int = 0

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

    @property
    def kinds(self) -> list[type]:
        return [type(each) for each in self.ended]


class Scene:
    """A server, which may work for one client at a time from the beginning, and the calls that it is sent."""

    def __init__(self, in_flight: int = 1, queue: int = 20, *, apart: bool = False, **limits: int) -> None:
        self.server = Server()
        self.apart = Apart("s", lambda: self.server.now)
        self.limits = ServerLimits(in_flight=in_flight, queue=queue, **limits)
        if apart:
            self.apart.begin()
        self.connect()

    def connect(self) -> None:
        self.admission = Admission("s", self.server, self.limits, lambda: self.server.now, self.apart)

    def call(self, tool: str, client: int = 0, who: object = None, **more: Any) -> Caller:
        caller = Caller(who=who)
        call = OwnCall(method=tool, params=(), **more)
        caller.ticket = self.admission.admit(call, caller, client)
        return caller

    def end(self) -> Any:
        """The exchange of the oldest call in flight, which is about to end."""
        return self.server.open.pop(next(iter(self.server.open)))[1]

    @property
    def sent(self) -> list[str]:
        return self.server.sent


def test_a_call_beyond_the_line_is_refused_and_was_not_sent() -> None:
    scene = Scene(queue=1)
    for tool in "ab":
        scene.call(tool)
    with pytest.raises(Overloaded, match="works on 1 calls, 1 are in line") as refused:
        scene.call("c")
    told = {"server": "s", "bound": "limits.queue", "inFlight": 1, "queued": 1, "yours": 1}
    assert refused.value.details == {**told, "retryAfterMs": RETRY_LEAST * 1000}
    assert scene.sent == ["a"]
    scene.server.answer("a")
    assert scene.sent == ["a", "b"]


def test_a_call_that_is_given_up_is_cancelled_in_flight_and_never_sent_from_the_line() -> None:
    scene, other = Scene(), Scene()
    first, second, _ = (scene.call(tool) for tool in "abc")
    scene.admission.cancel(second.ticket, "the client is gone")
    assert (scene.sent, scene.server.cancelled) == (["a"], [])
    for reason in ("the client is gone", "again"):
        scene.admission.cancel(first.ticket, reason)
    assert (scene.sent, scene.server.cancelled) == (["a", "c"], [1])
    # Tickets of two connections are never the same.
    other.call("x")
    other.admission.cancel(first.ticket, "late")
    assert other.server.cancelled == []


def test_what_is_refused_or_taken_back_as_it_leaves_a_long_line_makes_room_for_the_next() -> None:
    scene = Scene(queue=2002)

    def check() -> bool:
        raise CallError("it is another tool by now")

    scene.call("a")
    refused = [scene.call("b", check=check) for _ in range(2000)]
    taken_back = scene.call("b", check=lambda: False)
    scene.call("c")
    scene.server.answer("a")
    assert {len(caller.ended) for caller in refused} == {1}
    assert (scene.sent, taken_back.ended, len(scene.admission)) == (["a", "c"], [], 1)


def test_each_ending_of_a_call_frees_its_place_and_reaches_its_caller() -> None:
    scene, lost = Scene(), UpstreamLost("gone")
    callers = [scene.call(tool) for tool in "abcd"]
    scene.end().answered(b"1")
    scene.server.open[2][1].progressed({})
    scene.end().refused(b"2")
    scene.end().lost(lost)
    assert scene.sent == ["a", "b", "c", "d"]
    assert [caller.ended for caller in callers] == [[b"1"], [b"2"], [lost], []]
    assert callers[1].progress == 1


def test_when_the_connection_ends_the_line_is_told_that_nothing_was_sent() -> None:
    scene = Scene()
    first, second = scene.call("a"), scene.call("b")
    scene.admission.close()
    scene.end().lost(UpstreamLost("gone"))
    assert (first.kinds, second.kinds, scene.sent) == ([UpstreamLost], [UpstreamUnavailable], ["a"])
    with pytest.raises(UpstreamUnavailable, match="was not sent"):
        scene.call("c")


def test_a_server_that_does_not_read_refuses_the_line_too() -> None:
    scene = Scene()
    scene.call("a")
    waiting = scene.call("b")
    scene.server.refuses = True
    scene.server.answer("a")
    assert (waiting.kinds, len(scene.admission)) == ([Overloaded], 0)


def test_a_call_that_waits_too_long_in_line_is_refused_as_not_sent() -> None:
    scene = Scene()
    scene.call("a")
    early = scene.call("b")
    scene.server.now = 30.0
    late = scene.call("c")
    scene.server.now = 60.0
    scene.admission.expire(60.0)
    (ended,) = early.ended
    assert isinstance(ended, Overloaded)
    assert (ended.details["bound"], late.ended) == ("timeouts.queue", [])
    scene.server.answer("a")
    assert scene.sent == ["a", "c"]


# --- turns --------------------------------------------------------------------------------------------------


def test_a_place_goes_to_the_next_client_and_one_whose_calls_have_left_the_line_begins_at_its_end() -> None:
    scene = Scene()
    for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
        scene.call(name, ord(name[0]))
    for _ in range(7):
        scene.server.answer(scene.sent[-1])
    assert scene.sent == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
    scene.sent.clear()
    _, given_up, _ = (scene.call(name, ord(name[0])) for name in ("a1", "a2", "b1"))
    scene.admission.cancel(given_up.ticket, "given up")
    scene.call("a3", ord("a"))
    for name in ("a1", "b1"):
        scene.server.answer(name)
    assert scene.sent == ["a1", "b1", "a3"]


def test_in_a_flood_of_one_client_anothers_call_is_in_the_next_round() -> None:
    scene, flood = Scene(64, 64), list[Caller]()
    for number in range(10_000):
        with contextlib.suppress(Overloaded):
            flood.append(scene.call(f"flood{number}", 1))
    assert len(flood) == 128
    scene.call("mine", 2)
    (error,) = flood[127].ended
    assert isinstance(error, Overloaded)
    assert "your call had to leave the full queue: most calls were yours" in str(error)
    assert "The call was not sent; try again in about" in str(error)
    for number in range(2):
        scene.server.answer(f"flood{number}")
    assert "mine" in scene.sent
    assert len(scene.admission) == 64 + 64 - 2


def test_a_full_line_is_shared_evenly_by_those_who_want_in() -> None:
    scene = Scene(queue=12)
    callers: dict[int, list[Caller]] = {client: [] for client in (1, 2, 3)}
    scene.call("x", 9)
    for client, own in callers.items():
        for _ in range(50):
            try:
                own.append(scene.call("x", client))
            except Overloaded as error:
                assert error.details["yours"] == scene.admission.queued // client  # noqa: PT017 - of each refusal
    assert [sum(not caller.ended for caller in own) for own in callers.values()] == [4, 4, 4]
    assert {kind for own in callers.values() for caller in own for kind in caller.kinds} == {Overloaded}


@given(st.lists(st.tuples(st.sampled_from("aaadcx"), st.integers(1, 4)), max_size=120))
def test_whatever_happens_each_call_ends_once_and_the_limits_hold(steps: list[tuple[str, int]]) -> None:
    """a: a client calls; d: a call in flight is answered; c: one is given up; x: time passes."""
    scene, callers = Scene(2, 5), list[Caller]()
    server, admission = scene.server, scene.admission
    for step, client in steps:
        if step == "a":
            with contextlib.suppress(Overloaded):
                callers.append(scene.call("x", client))
        elif step == "d" and server.open:
            scene.end().answered(b"{}")
        elif step == "c" and len(callers) >= client:
            admission.cancel(callers.pop(-client).ticket, "given up")
        elif step == "x":
            server.now += client
            admission.expire(10)
        assert len(server.open) <= 2
        assert admission.queued <= 5
        assert len(server.open) == 2 or not admission.queued
    admission.close()
    while server.open:
        scene.end().lost(UpstreamLost("gone"))
    assert {len(caller.ended) for caller in callers} <= {1}
    assert len(admission) == 0


# --- hints --------------------------------------------------------------------------------------------------


def hint(scene: Scene) -> float:
    with pytest.raises(Overloaded) as refused:
        scene.call("x", 1)
    wait = refused.value.details["retryAfterMs"]
    assert isinstance(wait, int)
    assert f"try again in about {wait / 1000:.2g} s" in refused.value.message
    return wait / 1000


def full(queue: int) -> Scene:
    scene = Scene(queue=queue)
    for number in range(1 + queue):
        scene.call(f"x{number}", 1)
    return scene


def test_the_hint_is_the_time_in_which_the_line_is_worked_off_at_its_pace_of_late() -> None:
    scene = full(10)
    for number in range(4):
        scene.server.now += 0.5
        scene.server.answer(f"x{number}")
        scene.call("more", 1)
    assert hint(scene) == 5.0
    scene.server.now += 2.0
    assert hint(scene) == 10.0
    scene = full(1)
    scene.server.now = 50.0
    for name in ("x0", "x1"):
        scene.server.answer(name)
    for _ in range(2):
        scene.call("x", 1)
    scene.server.now = 53.0
    assert hint(scene) == 3.0, "the pace of an earlier line is forgotten"


def test_before_the_first_end_it_may_last_as_long_again_and_the_hint_is_bounded() -> None:
    scene = full(10)
    assert hint(scene) == RETRY_LEAST
    assert hint(full(0)) == RETRY_UNKNOWN, "without a line"
    for now, told in ((7.0, 7.0), (10_000.0, RETRY_MOST)):
        scene.server.now = now
        assert hint(scene) == told


# --- how large an answer may be -----------------------------------------------------------------------------


def test_an_answer_over_the_limit_is_lost_with_both_numbers_and_its_place_is_freed() -> None:
    scene = Scene(output_bytes=10)
    callers = [scene.call(tool) for tool in "abcd"]
    scene.end().answered(b"x" * 11)
    scene.end().refused(b"x" * 12)
    scene.end().answered(b"x" * 10)
    scene.end().refused(b"x" * 10)
    (large,) = callers[0].ended
    assert isinstance(large, RequestTooLarge)
    assert "has 11 bytes, over the limit of 10 for server s (limits.outputBytes). The call ran" in large.message
    assert large.details == {"server": "s", "bytes": 11, "limit": 10}
    assert callers[1].kinds == [RequestTooLarge]
    assert [caller.ended for caller in callers[2:]] == [[b"x" * 10]] * 2
    assert len(scene.admission) == 0


# --- servers that serve one client at a time -----------------------------------------------------------------

ANNA, BEN, CARL = "anna", "ben", "carl"


def test_one_client_at_a_time_is_served_over_the_next_connection_too() -> None:
    scene = Scene(3)
    for who in (ANNA, BEN):
        scene.call(who, who=who)
    scene.admission.attribution.take(question("sampling/createMessage").request, None)
    scene.admission.close()
    scene.server = Server()
    scene.connect()
    for who in (ANNA, BEN):
        scene.call(who, who=who)
    assert scene.sent == ["anna"]


def test_clients_that_share_a_connection_are_told_apart_and_a_call_given_up_frees_the_server() -> None:
    scene = Scene(3, apart=True)
    first, *_ = (scene.call(who, 1, who) for who in (ANNA, BEN, BEN, CARL))
    assert scene.sent == ["anna"]
    scene.admission.cancel(first.ticket, "not wanted")
    assert scene.sent == ["anna", "ben", "ben"]
    for _ in range(2):
        scene.server.answer("ben")
    assert scene.sent[3:] == ["carl"]


@pytest.mark.parametrize("ends", [True, False], ids=["a call ends", "another comes"])
def test_after_a_minute_without_a_request_all_clients_are_served_at_once_again(*, ends: bool) -> None:
    scene = Scene(3, apart=True)
    for who in (ANNA, BEN, CARL)[: 2 + ends]:
        scene.call(who, who=who)
    assert scene.sent == ["anna"]
    scene.server.now = 60.0
    if ends:
        scene.server.answer("anna")
    else:
        scene.call(CARL, who=CARL)
    assert scene.sent == ["anna", "ben", "carl"]


def test_the_limits_of_the_line_hold_and_the_refusal_says_why() -> None:
    scene = Scene(3, 1, apart=True)
    for who in (ANNA, BEN):
        scene.call(who, who=who)
    with pytest.raises(Overloaded, match="one client at a time"):
        scene.call(CARL, who=CARL)
    scene.server.now = 60.0
    scene.admission.expire(60.0)
    assert scene.admission.queued == 0


def test_what_a_call_was_asked_for_ends_before_its_answer_is_passed_on() -> None:
    scene, order, asked = Scene(), list[str](), question("roots/list")

    class Asked(Caller):
        def asked(self, question: object) -> None: ...

        def answered(self, result: object) -> None:
            order.append("answered")

    scene.admission.admit(OwnCall(method="a", params=()), Asked(), 1)
    asked.request.on_withdrawn = order.append
    scene.admission.attribution.take(asked.request, None)
    assert scene.admission.asked
    scene.server.answer("a")
    assert order == ["the call that it belongs to has ended", "answered"]
    assert asked.answers == [("refused", -32600)]
