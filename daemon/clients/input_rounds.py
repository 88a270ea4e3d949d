"""Calls whose server needs input of a client of the other era, which then gets it in its own way.

A server of an earlier revision asks while it works on a call; a client of MCP 2026-07-28 can only be answered.
So its request is answered with what the server asks and a state, while the call stays open at the server: it is
parked. The client's next request brings the state and the answers, and takes the place of the one before.
Whatever is wrong with a state is told in the same words: that it never existed, belongs to somebody else or to
another request, was used or has expired.

A server of MCP 2026-07-28 does not ask while it works: it answers with what it needs, and wants the call again
with the answers. So a client of the handshake era is asked in rounds, as by a server of its own era; its call
is sent again. It is judged before, like every call that has waited, and goes to that server or to none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import UNSET, Raw

from daemon.catalog.authorship import UnsafeQuestion, authored
from daemon.clients.asking import Questions, client_of, owner_of
from daemon.clients.input_required import (
    ASKING,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PREFIX,
    REQUESTS,
    RESPONSES,
    STATE,
    RequestStates,
    Round,
    WaitingCall,
    asking_result,
    fits,
    input_required_by,
    responses_in,
    state_in,
)
from daemon.clients.server_requests import NOTHING, answer_instead, lacking
from daemon.errors import (
    InputRefused,
    InvalidArguments,
    RequestTooLarge,
    UnknownRequestState,
    UpstreamCallError,
    UpstreamTimeout,
)
from daemon.protocol import ASKED_OF_CLIENTS, members_before
from daemon.wire.envelope import INVALID_PARAMS, INVALID_REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.clients.calls import ClientCall
    from daemon.clients.input_required import InputRequest, InputRequired
    from daemon.wire.envelope import Buffer
    from daemon.wire.requests import PeerRequest

MAX_ASKED = 16
"""Requests of one call that are open: as many as a client of an earlier revision may have before it."""

MAX_ROUNDS = 10
"""Rounds of one call, as the SDKs of MCP have it: a server that always needs more is not asked for ever."""

REFUSAL = (
    "Unknown requestState: it was never given out to this client for this request, was used already, or has"
    " expired. Make the request again without it."
)

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


# --- a client of MCP 2026-07-28, a server of the handshake era ----------------------------------------------


def park(call: ClientCall, request: PeerRequest) -> None:
    """Have a call's client asked what its server asks, now or in its next round."""
    if lacks := lacking(call.declared or NOTHING, request):
        answer_instead(request, lacks)
    elif call.method not in ASKING:
        request.refuse(INVALID_REQUEST, f"nothing can be asked about {call.method}")
    else:
        if call.parked is None:
            call.parked = ParkedCall(call)
        call.parked.ask(request)


def resume(call: ClientCall) -> bool:
    """Go on with what waits for the state that a new call brings.

    Returns False if the call is to be judged as any other: it brings no state of ours, or what its client's
    user has said about it (`clients.approvals`).
    """
    state, states = state_in(call.others), call.calls.context.states
    if state is None or not state.startswith(PREFIX):
        return False
    waiting = states.find(state, owner_of(call))
    if waiting is None:
        code = UnknownRequestState.code
        call.calls.refuse(call, INVALID_PARAMS, REFUSAL, {"code": code}, code)
        return True
    try:
        responses = responses_in(call.others)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # The state stays good: nothing was said with it.
        text = "Invalid params: inputResponses must be an object"
        call.calls.refuse(call, INVALID_PARAMS, text, None, InvalidArguments.code)
        return True
    states.use(state)
    return waiting.resume(call, responses)


class ParkedCall:
    """What is remembered of one call beyond the request that began it, round after round."""

    def __init__(self, call: ClientCall) -> None:
        """Begin with a call in flight."""
        assert call.upstream is not None, "only a server asks"
        client = client_of(call.calls, call.request.key)
        self._waiting = WaitingCall(
            owner_of(call), client, self._resume, self._give_up, server=call.upstream.name, parked=call
        )
        self._call = call
        self._states = call.calls.context.states
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

    def _resume(self, retry: ClientCall, responses: Mapping[str, Raw]) -> bool:
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
        answer, self._answer, self._waiting.held = self._answer, None, 0
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
        self._answer, self._waiting.held, self._waiting.parked = answer, size, None
        self._end("the call has ended")

    def _give_up(self, reason: str) -> None:
        """Cancel the call at its server: the client will not come back."""
        self._end(reason)
        self._call.withdraw(reason)

    def _park(self) -> None:
        state = self._states.give(self._waiting)
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
    return [each.parked for each in states.waiting() if each.parked is not None]


# --- a client of the handshake era, a server of MCP 2026-07-28 ----------------------------------------------


def goes_on(call: ClientCall, result: Buffer) -> bool:
    """Deal with a result that asks for input: begin a round if its client cannot be answered so."""
    server, calls = _server(call), call.calls
    try:
        needed = input_required_by(result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        text = f"server {server} needs input for this call, but does not ask as MCP has it: {error}"
        call.lost(UpstreamCallError(text))
        return True
    if needed is None:
        return False
    if not call.request.modern:
        calls.act_after(call, partial(_take_round, call, needed))
        return True
    if call.agreed is not None:
        calls.context.agreed.note(owner_of(call), call.agreed)
    # Not what the call would give: it passes as it is, but for the words that name the server.
    try:
        calls.finish(call, _authored(server, result, needed), "ok")
    except UnsafeQuestion as error:
        calls.server_requests.unsafe(server, error)
        call.lost(InputRefused(f"server {server} asks what no user is shown: {error}"))
    return True


async def _take_round(call: ClientCall, needed: InputRequired) -> None:
    """One round: what the call is sent again with.

    Raises:
        CallError: the client does not give it, or not in time.
    """
    if call.round is None:
        before = len(members_before(call.others))
        call.round = Round(_server(call), bytes(call.params[0])[before:], call.label)
    call.round.number += 1
    if call.round.number > MAX_ROUNDS or call.method not in ASKING:
        text = f"server {_server(call)} has asked for input {call.round.number} times for one call"
        raise UpstreamCallError(f"{text}, which is more than is given.")
    if needed.inputRequests:
        call.round.pause = FIRST_PAUSE
        answers = await _ask(call, needed.inputRequests)
    else:
        await trio.sleep(call.round.pause)
        call.round.pause, answers = min(2 * call.round.pause, LONGEST_PAUSE), {}
    others = {key: call.others[key] for key in call.others if key not in {RESPONSES, STATE}}
    if answers:
        others[RESPONSES] = Raw(msgspec.json.encode(answers))
    if needed.requestState is not UNSET:
        others[STATE] = Raw(bytes(needed.requestState))
    call.others = others


async def _ask(call: ClientCall, requests: Mapping[str, InputRequest]) -> dict[str, Raw]:
    server, context = _server(call), call.calls.context
    configured = context.catalog.value.config.mcp_servers.get(server)
    longest = 0.0 if configured is None else configured.timeouts.call_max
    with Questions(len(requests)) as asked:
        for key, each in requests.items():
            _put(asked, call, key, each)
        context.outbox.flush()
        await asked.wait(call.started + longest)
        if asked.refused is not None:
            method, why = asked.refused
            text = f"server {server} needs {method} of the client for this call, and got none: {why}"
            raise InputRefused(text, server=server, method=method)
        if asked.over.is_set():
            return asked.answers
    text = f"the client has not given in time what server {server} needs for this call"
    raise UpstreamTimeout(f"{text} (timeouts.callMax). The call was not sent again.", server=server)


def _put(asked: Questions, call: ClientCall, key: str, needed: InputRequest) -> None:
    """Ask a call's client for one thing that its server needs."""
    method, server = needed.method, _server(call)
    if method not in ASKED_OF_CLIENTS:
        asked.refuse(method, "no client can be asked that")
        return
    try:
        params = authored(server, method, Raw(bytes(needed.params)))
    except UnsafeQuestion as error:
        call.calls.server_requests.unsafe(server, error)
        asked.refuse(method, f"no user is shown it: {error}")
        return
    request = asked.put(call, key, method, params, server)
    if request is not None:
        call.calls.count_asked(request, parked=False)


def _authored(server: str, result: Buffer, needed: InputRequired) -> bytes:
    """A result that asks a client for input, with the words that name the server."""
    members = _decode_members(result)
    asked = {
        key: {"method": each.method, "params": authored(server, each.method, Raw(bytes(each.params)))}
        for key, each in (needed.inputRequests or {}).items()
    }
    if asked:
        members[REQUESTS] = Raw(msgspec.json.encode(asked))
    return msgspec.json.encode(members)


def _server(call: ClientCall) -> str:
    return "" if call.upstream is None else call.upstream.of
