"""Parked calls under every order of events: who asks, who answers, who goes, what expires.

Whatever happens, a server is told once what became of each thing that it asked, by the client whose call caused
it or by nobody; a request of a client has one answer; and nothing is left when all have gone.
"""

import json
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from msgspec import Raw
from trio.testing import MockClock

from daemon.clients.client import LOCAL_USER, Principal
from daemon.clients.connection import ClientConnection
from daemon.clients.input_required import MAX_OF_CLIENT, MAX_OF_SERVER, TTL
from daemon.errors import UpstreamLost
from daemon.wire.envelope import Buffer
from daemon.wire.requests import PeerRequest, Requests
from tests.fakes_upstream import Sent, Stage
from tests.unit.clients.inputs import META, Told, asks, raw

PRINCIPALS = (
    LOCAL_USER,
    Principal(owner="token a: ", token="a", keeps=False),
    Principal(owner="token b: ", token="b", keeps=False),
)
"""A client that is its connection, and two over HTTP that may come back by another one."""


class Link:
    """As much of a link as a session looks at."""

    turns = 0
    queued = 0


class Peer:
    """A client that remembers what it is told."""

    def __init__(self) -> None:
        self.link = Link()
        self.last_heard = 0.0
        self.requests = Requests()
        self.answers: dict[bytes, list[Any]] = {}

    def answer(self, request_id: bytes, result: Buffer) -> None:
        self.answers.setdefault(request_id, []).append(json.loads(bytes(result)))

    def refuse(self, request_id: bytes, code: int, message: str, data: Any = None) -> None:
        self.answers.setdefault(request_id, []).append({"code": code, "data": data})

    def notify(self, method: str, params: bytes = b"{}", request_id: bytes | None = None) -> None: ...


@attrs.define(eq=False)
class Guest:
    """One client, over its present connection."""

    principal: Principal
    peer: Peer
    connection: ClientConnection


@attrs.define(eq=False)
class Call:
    """One call, as the server has it."""

    sent: Sent
    guest: Guest
    number: int
    ended: bool = False
    state: str = ""
    """The state that is good now."""
    keys: tuple[str, ...] = ()
    """What that state's round asks for."""
    asked: list[tuple[PeerRequest, Told]] = attrs.field(factory=list)


class Interleaved(RuleBasedStateMachine):
    """Three clients and one server."""

    clock: MockClock
    calls: Bundle[Call] = Bundle("calls")
    states: Bundle[str] = Bundle("states")

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage()
        self.guests = [self._guest(principal) for principal in PRINCIPALS]
        self.count = 0
        self.peers = [guest.peer for guest in self.guests]
        self.all: list[Call] = []

    def _guest(self, principal: Principal) -> Guest:
        peer = Peer()
        self.number = getattr(self, "number", 0) + 1
        connection = ClientConnection(peer, self.number, self.stage.context, principal)  # type: ignore[arg-type]
        return Guest(principal, peer, connection)

    def _begin(self, guest: Guest, arguments: object, **others: Any) -> bytes:
        self.count += 1
        request_id = b"%d" % self.count
        request = guest.connection.attachments.own.request(request_id, 0, modern=True)
        meta = {key: raw(value) for key, value in META.items()}
        given = {"category": "alpha", "name": "echo", "args": arguments}
        members: dict[str, Raw] = {key: raw(value) for key, value in others.items()}
        guest.connection.dispatch.begin(
            request, "call-category-tool", json.dumps(given).encode(), meta, members
        )
        return request_id

    def _round_begun(self, call: Call, request_id: bytes, guest: Guest) -> str | None:
        """Take over the state of a round that has just begun."""
        for answer in guest.peer.answers.get(request_id, ()):
            if answer.get("resultType") == "input_required":
                call.state, call.keys = answer["requestState"], tuple(answer["inputRequests"])
                return call.state
        return None

    @rule(target=calls, which=st.integers(0, 2))
    def call(self, which: int) -> Call:
        guest = self.guests[which]
        self._begin(guest, {"n": self.count})
        call = Call(self.stage.alpha.sent[-1], guest, self.count)
        self.all.append(call)
        return call

    @rule(target=states, call=calls)
    def ask(self, call: Call) -> Any:
        if self._is_over(call):
            return multiple()
        call.asked.append(asks(self.stage, call.sent))
        if call.state:
            return multiple()
        # Asked at once: the client waited for an answer.
        state = self._round_begun(call, b"%d" % call.number, call.guest)
        return multiple() if state is None else state

    @rule(target=states, call=calls, moves=st.booleans(), how=st.sampled_from(["all", "none", "wrong", "more"]))
    def retry(self, call: Call, moves: bool, how: str) -> Any:
        if not call.state:
            return multiple()
        if moves and not call.guest.principal.keeps:
            # Its connection ends with nothing parked ended; it comes back by another one.
            self._leave(call.guest)
        state, before = call.state, len(self.stage.alpha.sent)
        accepted = {"action": "accept", "content": {"call": call.sent.key}}
        ways: dict[str, dict[str, Any]] = {
            "all": dict.fromkeys(call.keys, accepted),
            "none": {},
            "wrong": dict.fromkeys(call.keys, 7),
            "more": {**dict.fromkeys(call.keys, accepted), "else": 1},
        }
        arguments = {"n": self._argument(call)}
        was_over = call.ended
        request_id = self._begin(call.guest, arguments, requestState=state, inputResponses=ways[how])
        assert len(self.stage.alpha.sent) == before, "it is not sent again"
        call.number, call.state, call.keys = int(request_id), "", ()
        if was_over:
            assert len(call.guest.peer.answers[request_id]) == 1, "the answer has waited"
            return multiple()
        new = self._round_begun(call, request_id, call.guest)
        return multiple() if new is None else new

    @rule(state=states, which=st.integers(0, 2), call=calls)
    def retry_with_any_state(self, state: str, which: int, call: Call) -> None:
        """By anybody, with the arguments of any call: only the right one of each is let through."""
        guest, n = self.guests[which], self._argument(call)
        good = [call for call in self.all if call.state == state and call.guest is guest]
        if good and self._argument(good[0]) == n:
            return
        told = [told.count for call in self.all for _, told in call.asked]
        before = len(self.stage.alpha.sent)
        request_id = self._begin(guest, {"n": n}, requestState=state, inputResponses={})
        assert guest.peer.answers[request_id] == [{"code": -32602, "data": {"code": "UnknownRequestState"}}]
        assert [told.count for call in self.all for _, told in call.asked] == told
        assert len(self.stage.alpha.sent) == before

    @rule(target=states, call=calls)
    def replay(self, call: Call) -> Any:
        """The client itself, with a state that it has used."""
        if not call.state:
            return multiple()
        used = call.state
        fresh = self.retry(call, moves=False, how="none")
        if not call.guest.principal.keeps:
            self._leave(call.guest)
        arguments = {"n": self._argument(call)}
        request_id = self._begin(call.guest, arguments, requestState=used, inputResponses={})
        assert [each["code"] for each in call.guest.peer.answers[request_id]] == [-32602]
        return fresh

    @rule(call=calls, lost=st.booleans())
    def answer(self, call: Call, lost: bool) -> None:
        if self._is_over(call):
            return
        call.ended = True
        for request, _ in call.asked:
            # As a connection does (`upstreams.call_admission`).
            request.end("the call has ended")
        if lost:
            self.stage.lose(call.sent, UpstreamLost("gone"))
        else:
            self.stage.answer(call.sent)

    @rule(call=calls)
    def withdraw(self, call: Call) -> None:
        for request, told in call.asked:
            if request.is_open:
                request.withdraw("the server has cancelled it")
                told.errors.append((0, "withdrawn"))
                return

    @rule(call=calls)
    def cancel(self, call: Call) -> None:
        if not call.state:
            call.guest.connection.calls.cancel(b"%d" % call.number)

    @rule(which=st.integers(0, 2))
    def hang_up(self, which: int) -> None:
        self._leave(self.guests[which])

    @rule(seconds=st.sampled_from([1.0, TTL / 2, TTL]))
    def wait(self, seconds: float) -> None:
        self.clock.jump(seconds)
        self.stage.context.states.expire()
        for call in self.all:
            if call.state and self._is_cancelled(call):
                call.state, call.keys = "", ()

    @invariant()
    def each_request_is_told_of_once(self) -> None:
        for call in self.all:
            for request, told in call.asked:
                assert told.count == (not request.is_open)
                # By the client whose call it is.
                assert all(result["content"] == {"call": call.sent.key} for result in told.results)

    @invariant()
    def each_request_of_a_client_has_one_answer(self) -> None:
        for peer in self.peers:
            assert all(len(answers) == 1 for answers in peer.answers.values())

    @invariant()
    def what_is_parked_is_bounded(self) -> None:
        assert len(self.stage.context.states) <= min(MAX_OF_SERVER, 3 * MAX_OF_CLIENT)

    def teardown(self) -> None:
        for guest in self.guests:
            self._leave(guest)
        kept = [call for call in self.all if call.guest.principal.keeps]
        assert all(call.ended or self._is_cancelled(call) for call in kept), "at once"
        self.clock.jump(2 * TTL)
        self.stage.context.states.expire()
        assert not len(self.stage.context.states)
        for call in self.all:
            assert call.ended or self._is_cancelled(call)
            assert all(told.count == 1 for _, told in call.asked)

    def _leave(self, guest: Guest) -> None:
        """A connection ends; its client has another one."""
        guest.connection.calls.abandon_all("the client is gone")
        fresh = self._guest(guest.principal)
        guest.peer, guest.connection = fresh.peer, fresh.connection
        self.peers.append(guest.peer)
        for call in self.all:
            if call.guest is guest and guest.principal.keeps:
                call.state, call.keys = "", ()

    def _argument(self, call: Call) -> int:
        arguments: dict[str, int] = call.sent.arguments
        return arguments["n"]

    def _is_over(self, call: Call) -> bool:
        return call.ended or self._is_cancelled(call)

    def _is_cancelled(self, call: Call) -> bool:
        return any(key == call.sent.key for key, _ in self.stage.alpha.cancelled)


async def test_each_thing_asked_is_answered_once_and_nothing_is_left(mock_clock: MockClock) -> None:
    class Run(Interleaved):
        clock = mock_clock

    run_state_machine_as_test(Run)
