"""Calls of a client of MCP 2026-07-28 that wait, at a server of an earlier revision, for its input.

Such a server asks while it works on a call; such a client can only be answered. So its request is answered with
what the server asks and a state, while the call stays open at the server: it is parked. The client's next
request brings the state and the answers, and takes the place of the one before.

Whatever is wrong with a state is told in the same words: that it never existed, belongs to somebody else or to
another request, was used or has expired.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon.clients.call import ForwardedRequest
from daemon.clients.identity import NOTHING, answer_instead, lacking
from daemon.clients.input_required import ASKING, RESPONSES, STATE, asking_result, fits, responses_in, state_in
from daemon.clients.request_states import PREFIX, RequestStates
from daemon.errors import InvalidArguments, RequestTooLarge, UnknownRequestState
from daemon.protocol import CALL_TOOL
from daemon.wire.envelope import INVALID_PARAMS, INVALID_REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from daemon.clients.call import Calls, ClientCall
    from daemon.wire.requests import PeerRequest


MAX_ASKED = 16
"""Requests of one call that are open: as many as a client of an earlier revision may have before it."""

MAX_COMPARED = 64 * 1024
"""Bytes of the longest arguments that may be written differently in the next request: beyond, decoding them
would hold up the loop, and a client that repeats a request repeats its bytes."""

_OF_ROUNDS = frozenset({"_meta", RESPONSES, STATE})

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode

REFUSAL = (
    "Unknown requestState: it was never given out to this client for this request, was used already, or has"
    " expired. Make the request again without it."
)


class Parking:
    """Parks the calls of one client, and goes on with them."""

    def __init__(self, states: RequestStates, calls: Calls) -> None:
        """Begin without any.

        Args:
            states: the states of all clients.
            calls: the calls of the client.
        """
        self._states = states
        self._calls = calls

    def ask(self, call: ClientCall, request: PeerRequest) -> None:
        """Have a call's client asked what its server asks, now or in its next round."""
        if lacks := lacking(call.declared or NOTHING, request):
            answer_instead(request, lacks)
        elif call.method not in ASKING:
            request.refuse(INVALID_REQUEST, f"nothing can be asked about {call.method}")
        else:
            if call.parked is None:
                call.parked = ParkedCall(self._states, call)
            call.parked.ask(request)

    def resume(self, call: ClientCall) -> bool:
        """Go on with what waits for the state that a new call brings.

        Returns False if the call is to be judged as any other: it brings no state of ours, or what its client's
        user has said about it (`clients.permissions`).
        """
        state = state_in(call.others)
        if state is None or not state.startswith(PREFIX):
            return False
        parked = self._states.find(state, owner_of(call))
        if parked is None:
            code = UnknownRequestState.code
            self._calls.refuse(call, INVALID_PARAMS, REFUSAL, {"code": code}, code)
            return True
        try:
            responses = responses_in(call.others)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # The state stays good: nothing was said with it.
            text = "Invalid params: inputResponses must be an object"
            self._calls.refuse(call, INVALID_PARAMS, text, None, InvalidArguments.code)
            return True
        self._states.use(state)
        return parked.resume(call, responses)

    def leave(self) -> None:
        """End the parked calls: the client is gone, unless it may come back over another connection."""
        if self._calls.client.visitor.keeps:
            self._states.leave(client_of(self._calls, None))


class ParkedCall:
    """What is remembered of one call beyond the request that began it, round after round."""

    def __init__(self, states: RequestStates, call: ClientCall) -> None:
        """Begin with a call in flight."""
        assert call.upstream is not None, "only a server asks"
        self.owner = owner_of(call)
        self.client = client_of(call.calls, call.request.key)
        self.server: str | None = call.upstream.name
        self.held = 0
        self.call: ClientCall | None = call
        """The call, as long as it has no answer."""
        self._call = call
        self._states = states
        self._asked: dict[str, PeerRequest] = {}
        self._count = 0
        self._answer: Callable[[], None] | None = None

    def __repr__(self) -> str:
        """Without what was asked."""
        return f"<ParkedCall {self._call.label}, {len(self._asked)} requests open>"

    def ask(self, request: PeerRequest) -> None:
        """Ask the client: at once if it waits for an answer, else in its next round."""
        if len(self._asked) >= MAX_ASKED:
            request.refuse(INVALID_REQUEST, f"{MAX_ASKED} requests are before this client already")
            return
        self._count += 1
        key = f"{request.method.rpartition('/')[2]}-{self._count}"
        self._asked[key] = request
        request.on_withdrawn = partial(self._withdraw, key)
        if self._call.calls.is_open(self._call):
            self._park()

    def resume(self, retry: ClientCall, responses: Mapping[str, Raw]) -> bool:
        """Go on: the client's new request waits for the answer, and what it brings goes to the server.

        Answers to what was not asked are ignored. What is not answered, or not as MCP has it, is asked again.
        """
        call = self._call
        retry.calls.take_over(call, retry)
        answered = {
            key: response
            for key, response in responses.items()
            if key in self._asked and fits(self._asked[key].method, response)
        }
        for key, response in answered.items():
            self._asked.pop(key).answer(bytes(response))
        answer, self._answer, self.held = self._answer, None, 0
        if answer is not None:
            answer()
        elif self._asked and call.calls.is_open(call):
            self._park()
        return True

    def hold(self, answer: Callable[[], None], size: int) -> None:
        """Keep the answer to the call until its client is back."""
        if not self._states.may_hold(size):
            error = RequestTooLarge("too much waits for clients that have not come back. The call ran.")
            answer, size = partial(self._call.lost, error), 0
        self._answer, self.held, self.call = answer, size, None
        self._end("the call has ended")

    def give_up(self, reason: str) -> None:
        """Cancel the call at its server: the client will not come back."""
        self._end(reason)
        self._call.withdraw(reason)

    def _park(self) -> None:
        state = self._states.give(self)
        if state is None:
            self._end("too many calls wait for the input of their clients")
        else:
            self._call.calls.interrupt(self._call, asking_result(self._asked, state))

    def _end(self, reason: str) -> None:
        """Tell the server that nobody answers any more."""
        asked, self._asked = self._asked, {}
        for each in asked.values():
            each.end(reason)

    def _withdraw(self, key: str, _reason: str) -> None:
        self._asked.pop(key, None)


def parked_calls(states: RequestStates) -> list[ClientCall]:
    """The calls whose clients were asked something and have not come back, and that have no answer yet."""
    found = [each.call for each in states.waiting() if isinstance(each, ParkedCall)]
    return [each for each in found if each is not None]


def client_of(calls: Calls, key: str | None) -> Hashable:
    """Who has made a call, as far as anything tells clients apart."""
    visitor = calls.client.visitor
    return calls.number if visitor.keeps else (visitor.owner, visitor.token, key)


def owner_of(call: ClientCall) -> bytes:
    """A digest of who has made a call, and of what was called with what."""
    request, visitor = call.request, call.calls.client.visitor
    # What the client has asked for, whatever is asked of the server for it.
    method = call.method if isinstance(call, ForwardedRequest) else CALL_TOOL
    said = msgspec.json.encode(
        (
            (client_of(call.calls, request.key), visitor.owner, visitor.token, request.key),
            (request.profile.name, request.surface.name, request.session.selection.servers, method, call.name),
        )
    )
    given = _of_tool(call.given) if method == CALL_TOOL else _of_request(call.given)
    return hashlib.sha256(b"%d %b%b" % (len(said), said, given)).digest()


def _of_tool(arguments: bytes) -> bytes:
    """Arguments in one of the ways in which they can be written."""
    if len(arguments) > MAX_COMPARED:
        return arguments
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return arguments


def _of_request(params: bytes) -> bytes:
    """The params of a request without what differs from one round to the next."""
    try:
        members = _decode_members(params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return params
    same = {key: Raw(_of_tool(bytes(members[key]))) for key in members if key not in _OF_ROUNDS}
    return msgspec.json.encode(same, order="deterministic")
