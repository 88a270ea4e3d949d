"""Calls at a server: some in flight, some in line, the rest refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from daemon.admission import Admission
from daemon.config.model import ServerLimits
from daemon.errors import CallError, Overloaded, UpstreamLost, UpstreamUnavailable
from daemon.ports import ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msgspec import Raw

    from daemon.model import Era
    from daemon.wire.envelope import Buffer
    from daemon.wire.peer import Exchange


@attrs.define(eq=False)
class Server:
    """A connection that keeps what it is sent."""

    last_heard: float = 0.0
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

    def call(self, call: ToolCall, exchange: Exchange) -> int:
        if self.refuses:
            raise Overloaded("the server does not read")
        key = len(self.sent) + 1
        self.sent.append(call.tool)
        self.open[key] = (call.tool, exchange)
        return key

    def cancel(self, key: int, reason: str) -> None:
        self.cancelled.append(key)
        del self.open[key]

    def expire(self, *, idle: float, total: float) -> Iterator[tuple[int, Exchange]]:
        raise AssertionError("no time passes here")

    async def run(self) -> None:
        raise AssertionError("nothing is received here")

    def answer(self, tool: str) -> None:
        key = next(key for key, (name, _) in self.open.items() if name == tool)
        self.open.pop(key)[1].answered(b"{}")


@attrs.define(eq=False)
class Caller:
    """An exchange that keeps how it ended."""

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


def place(in_flight: int = 2, queue: int = 2) -> tuple[Admission, Server]:
    server = Server()
    return Admission("s", server, ServerLimits(in_flight=in_flight, queue=queue), lambda: server.now), server


def call(tool: str) -> ToolCall:
    return ToolCall(tool=tool, arguments=b"{}")


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
    assert refused.value.details == {"server": "s"}
    assert server.sent == ["a"]
    server.answer("a")
    assert server.sent == ["a", "b"]


def test_a_call_that_its_caller_has_taken_back_makes_room_for_the_next() -> None:
    admission, server = place(in_flight=1, queue=3)
    caller = Caller()
    admission.admit(call("a"), Caller())
    admission.admit(ToolCall(tool="b", arguments=b"{}", check=lambda: False), caller)
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
    assert [type(ending) for ending in early.ended] == [Overloaded]
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
