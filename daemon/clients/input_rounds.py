"""Input that a server needs from a client of the other era.

A call at a server of the handshake era stays open (parked) while its client of MCP 2026-07-28 answers in
rounds. A call to a server of MCP 2026-07-28 is judged and sent again with the answers of its handshake-era
client, to the same server or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import trio
from msgspec import UNSET, Raw

from daemon import errors
from daemon.catalog.authorship import UnsafeQuestion, authored
from daemon.clients.asking import Questions, answer_with, client_of, owner_of
from daemon.clients.calls import ClientCall
from daemon.clients.input_required import (
    ASKING,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PREFIX,
    REQUESTS,
    RESPONSES,
    STATE,
    InputRequest,
    InputRequired,
    RequestStates,
    Round,
    WaitingCall,
    fits,
    input_required_by,
    responses_in,
    state_in,
)
from daemon.clients.server_requests import NOTHING, answer_instead, has, lacking
from daemon.protocol import ASKED_OF_CLIENTS, LIST_ROOTS, UNREADABLE, decode_members, members_before
from daemon.wire.envelope import INVALID_PARAMS, INVALID_REQUEST, Buffer
from daemon.wire.requests import PeerRequest

MAX_ASKED = 16
"""Open requests of one call: as many as a client of an earlier revision may have open."""

MAX_ROUNDS = 10
"""Rounds of one call, as in the MCP SDKs: bounds a server that never has enough."""

REFUSAL = (
    "Unknown requestState: it was never given out to this client for this request, was used already, or has"
    " expired. Make the request again without it."
)


# --- a client of MCP 2026-07-28, a server of the handshake era ----------------------------------------------


def park(call: ClientCall, request: PeerRequest) -> None:
    """Relay a server's request to the call's client, now or in its next round."""
    if lacks := lacking(call.declared or NOTHING, request):
        answer_instead(request, lacks)
    elif call.method not in ASKING:
        request.refuse(INVALID_REQUEST, f"nothing can be asked about {call.method}")
    else:
        if call.parked is None:
            call.parked = ParkedCall(call).waiting
        call.parked.ask(request)


def resume(call: ClientCall) -> bool:
    """Continue the call whose state a retry brings; False without such a state, or with the user's approval."""
    state, states = state_in(call.others), call.calls.context.states
    if state is None or not state.startswith(PREFIX):
        return False
    waiting = states.find(state, owner_of(call))
    if waiting is None:
        code = errors.UnknownRequestState.code
        call.calls.refuse(call, INVALID_PARAMS, REFUSAL, {"code": code}, code)
        return True
    try:
        responses = responses_in(call.others)
    except UNREADABLE:
        # The state remains valid: it was not answered.
        text = "Invalid params: inputResponses must be an object"
        call.calls.refuse(call, INVALID_PARAMS, text, None, errors.InvalidArguments.code)
        return True
    states.use(state)
    return waiting.resume(call, responses)


class ParkedCall:
    """A call parked at its server while its client answers in rounds."""

    def __init__(self, call: ClientCall) -> None:
        assert call.upstream is not None, "only a server asks"
        client = client_of(call.calls, call.request.key)
        self.waiting = WaitingCall(
            owner_of(call),
            client,
            self._resume,
            self._give_up,
            server=call.upstream.name,
            parked=call,
            ask=self._ask,
            hold=self._hold,
        )
        self._call = call
        self._states = call.calls.context.states
        self._asked: dict[str, PeerRequest] = {}
        self._count = 0
        self._answer: Callable[[], None] | None = None

    def __repr__(self) -> str:
        """Without the questions: they may hold secrets."""
        return f"<ParkedCall {self._call.label}, {len(self._asked)} requests open>"

    def _ask(self, request: PeerRequest) -> None:
        if len(self._asked) >= MAX_ASKED:
            request.refuse(INVALID_REQUEST, f"{MAX_ASKED} requests are open at this client already")
            return
        self._count += 1
        key = f"{request.method.rpartition('/')[2]}-{self._count}"
        self._asked[key] = request
        request.on_withdrawn = partial(self._withdraw, key)
        if self._call.calls.is_open(self._call):
            self._park()

    def _resume(self, retry: ClientCall, responses: Mapping[str, Raw]) -> bool:
        """Pass valid answers to the server, repeat the other questions, and wait for the result."""
        call = self._call
        retry.calls.take_over(call, retry)
        answered = {
            key: response
            for key, response in responses.items()
            if key in self._asked and fits(self._asked[key].method, response)
        }
        for key, response in answered.items():
            self._asked.pop(key).answer(bytes(response))
        answer, self._answer, self.waiting.held = self._answer, None, 0
        if answer is not None:
            answer()
        elif self._asked and call.calls.is_open(call):
            self._park()
        return True

    def _hold(self, answer: Callable[[], None], size: int) -> None:
        if not self._states.may_hold(size):
            error = errors.RequestTooLarge("too much waits for clients that have not come back. The call ran.")
            answer, size = partial(self._call.lost, error), 0
        self._answer, self.waiting.held, self.waiting.parked = answer, size, None
        self._end("the call has ended")

    def _give_up(self, reason: str) -> None:
        self._end(reason)
        self._call.withdraw(reason)

    def _park(self) -> None:
        if not answer_with(self._call, self.waiting, self._asked):
            self._end("too many calls wait for the input of their clients")

    def _end(self, reason: str) -> None:
        asked, self._asked = self._asked, {}
        for each in asked.values():
            each.end(reason)

    def _withdraw(self, key: str, _reason: str) -> None:
        self._asked.pop(key, None)


def parked_calls(states: RequestStates) -> list[ClientCall]:
    """The calls without an answer whose clients were asked and have not come back."""
    return [each.parked for each in states.waiting() if each.parked is not None]


# --- a client of the handshake era, a server of MCP 2026-07-28 ----------------------------------------------


def goes_on(call: ClientCall, result: Buffer) -> bool:
    """Handle a result that asks for input. Returns False if the result is an answer."""
    server, calls = _server(call), call.calls
    try:
        needed = input_required_by(result)
    except UNREADABLE as error:
        text = f"server {server} needs input for this call, but its request for input is malformed: {error}"
        call.lost(errors.UpstreamCallError(text))
        return True
    if needed is None:
        return False
    if not call.request.modern or asks_workspace(call, needed):
        calls.act_after(call, partial(_take_round, call, needed))
        return True
    if call.agreed is not None:
        calls.context.agreed.note(owner_of(call), call.agreed)
    # Passed on as it is, except for the author's name in the questions.
    try:
        calls.finish(call, _authored(server, result, needed), "ok")
    except UnsafeQuestion as error:
        call.lost(calls.server_requests.withheld(server, error))
    return True


def asks_workspace(call: ClientCall, needed: InputRequired) -> bool:
    """Whether an instance asks for the roots of a client that has none: its workspace is the answer."""
    if call.upstream is None or call.upstream.roots is None or has(call.declared or NOTHING, "roots"):
        return False
    questions = needed.inputRequests or {}
    return bool(questions) and all(each.method == LIST_ROOTS for each in questions.values())


async def _take_round(call: ClientCall, needed: InputRequired) -> None:
    """Get the input for one round and add it to the call."""
    if call.round is None:
        before = len(members_before(call.others))
        call.round = Round(_server(call), bytes(call.params[0])[before:], call.label)
    call.round.number += 1
    if call.round.number > MAX_ROUNDS or call.method not in ASKING:
        text = f"server {_server(call)} has asked for input {call.round.number} times for one call"
        raise errors.UpstreamCallError(f"{text}, more than mcpd relays.")
    if needed.inputRequests:
        call.round.pause = FIRST_PAUSE
        answers = await ask_all(call, needed.inputRequests)
    else:
        await trio.sleep(call.round.pause)
        call.round.pause, answers = min(2 * call.round.pause, LONGEST_PAUSE), {}
    others = {key: call.others[key] for key in call.others if key not in {RESPONSES, STATE}}
    if answers:
        others[RESPONSES] = Raw(msgspec.json.encode(answers))
    if needed.requestState is not UNSET:
        others[STATE] = Raw(bytes(needed.requestState))
    call.others = others


async def ask_all(call: ClientCall, requests: Mapping[str, InputRequest]) -> dict[str, Raw]:
    """The answers of a call's client to a server's questions. Raises InputRefused, UpstreamTimeout."""
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
            raise errors.InputRefused(text, server=server, method=method)
        if asked.over.is_set():
            return asked.answers
    text = f"the client has not answered server {server} in time"
    raise errors.UpstreamTimeout(f"{text} (timeouts.callMax). The call was not sent again.", server=server)


def _put(asked: Questions, call: ClientCall, key: str, needed: InputRequest) -> None:
    method, server = needed.method, _server(call)
    if method not in ASKED_OF_CLIENTS:
        asked.refuse(method, "no client can be asked that")
        return
    try:
        params = authored(server, method, Raw(bytes(needed.params)))
    except UnsafeQuestion as error:
        call.calls.server_requests.unsafe(server, error)
        asked.refuse(method, f"mcpd does not show it to users: {error}")
        return
    request = asked.put(call, key, method, params, server)
    if request is not None:
        call.calls.count_asked(request, parked=False)


def _authored(server: str, result: Buffer, needed: InputRequired) -> bytes:
    """A result that asks for input, with the server's name in the questions."""
    members = decode_members(result)
    if asked := authored_questions(server, needed.inputRequests or {}):
        members[REQUESTS] = Raw(msgspec.json.encode(asked))
    return msgspec.json.encode(members)


def authored_questions(server: str, questions: Mapping[str, InputRequest]) -> dict[str, InputRequest]:
    """A server's questions under the server's name. Raises `UnsafeQuestion`."""
    return {
        key: InputRequest(each.method, authored(server, each.method, Raw(bytes(each.params))) or Raw(b"{}"))
        for key, each in questions.items()
    }


def _server(call: ClientCall) -> str:
    return "" if call.upstream is None else call.upstream.of
