"""Questions to a call's client before the call continues, in either era.

A client of the handshake era gets requests while a task waits (`Questions`). A client of MCP 2026-07-28 gets
the questions and a state as its result, and repeats its request with both (`hold`). Where client and server are
of different eras, the call is parked while its client answers in rounds, or sent again with the answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from daemon import errors, protocol
from daemon.catalog.authorship import UnsafeQuestion, authored
from daemon.clients import input_required
from daemon.clients.calls import ClientCall
from daemon.clients.server_requests import NOTHING, answer_instead, has, lacking
from daemon.clients.waits import keep_reporting, reporting
from daemon.counting.tally import CANCELLED
from daemon.wire.envelope import INVALID_PARAMS, INVALID_REQUEST, Buffer, RemoteError
from daemon.wire.requests import PeerRequest

ELICIT = "elicitation/create"

MAX_COMPARED = 64 * 1024
"""Bytes of the longest arguments that two rounds compare by value. Longer ones are compared byte by byte:
decoding them would hold up the loop, and a client that repeats a request repeats its bytes."""

_OF_ROUNDS = frozenset({"_meta", input_required.RESPONSES, input_required.STATE})


def can_elicit(call: ClientCall, mode: str) -> bool:
    """Whether a call's client supports elicitation in this mode: `form` or `url`."""
    declared = call.declared if call.request.modern else call.calls.server_requests.capabilities
    return has(declared or NOTHING, "elicitation", mode)


# --- the handshake era --------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Questions:
    """Questions put to one client together; leaving the context withdraws the unanswered ones."""

    count: int = 1
    answers: dict[str, Raw] = attrs.field(factory=dict, init=False)
    refused: tuple[str, str] | None = attrs.field(default=None, init=False)
    """The method and reason of the first refusal, which ends all questions."""
    over: trio.Event = attrs.field(factory=trio.Event, init=False)
    _put: list[PeerRequest] = attrs.field(factory=list, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.over.set()
        for each in self._put:
            each.end("the call has ended")

    def put(
        self, call: ClientCall, key: str, method: str, params: Raw | None, server: str = ""
    ) -> PeerRequest | None:
        """Ask a question and return it; None after a refusal. `server` is empty for mcpd's own questions."""
        if self.over.is_set():
            return None
        request = self.made(key, method, params)
        request.server = server
        if method == protocol.LIST_ROOTS and call.upstream is not None:
            request.otherwise = call.upstream.roots
        call.calls.server_requests.ask(request, call.request.id)
        return request

    def made(self, key: str, method: str, params: Raw | None) -> PeerRequest:
        """Make a question for the caller to send."""
        request = PeerRequest(method, params, _Answer(self, key, method))
        self._put.append(request)
        return request

    def refuse(self, method: str, why: str) -> None:
        """End all questions, because one of them gets no answer for the reason `why`."""
        if not self.over.is_set():
            self.refused = method, why
            self.over.set()

    async def wait(self, until: float) -> None:
        """Return once all questions are answered or one is refused, or at the time `until` on trio's clock."""
        with trio.move_on_at(until):
            await self.over.wait()


class _Answer(msgspec.Struct, frozen=True, eq=False):
    _questions: Questions
    _key: str
    _method: str

    def answer(self, result: Buffer) -> None:
        asked = self._questions
        if not asked.over.is_set():
            asked.answers[self._key] = Raw(bytes(result))
            if len(asked.answers) == asked.count:
                asked.over.set()

    def refuse(self, code: int, message: str, data: object = None) -> None:
        self._questions.refuse(self._method, f"{message} ({code})")

    def refuse_as(self, error: Buffer) -> None:
        told = RemoteError.from_wire(error)
        self.refuse(told.code, told.message)

    def report(self, params: dict[str, Raw]) -> None:
        """Ignore progress: nothing waits for it."""


@asynccontextmanager
async def patient(call: ClientCall, what: str) -> AsyncIterator[trio.Nursery]:
    """Report progress to the client while its call waits. To end the wait, cancel the nursery's scope."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_reporting, reporting(call, call.calls.context.outbox.flush), lambda: what)
        yield nursery
        nursery.cancel_scope.cancel()


# --- MCP 2026-07-28 -----------------------------------------------------------------------------------------


def hold(
    call: ClientCall,
    key: str,
    params: Raw,
    go_on: Callable[[ClientCall, Raw | None], bool],
    leave: Callable[[], None] = lambda: None,
) -> bool:
    """Answer a call's client with an elicitation. Returns False if too many calls wait for their users.

    `go_on` gets the client's retry and the answer (None if unusable), and returns True if the retry needs no
    further check. `leave` is called if the client never retries.
    """
    given, others = call.given, call.others

    def resume(retry: ClientCall, responses: Mapping[str, Raw]) -> bool:
        # The retry is sent with the arguments that the user was shown, however it spells them.
        retry.given, retry.others = given, others
        response = responses.get(key)
        return go_on(
            retry, response if response is not None and input_required.fits(ELICIT, response) else None
        )

    client = client_of(call)
    waiting = input_required.WaitingCall(
        owner_of(call), client, resume, lambda _reason: leave(), held=len(given)
    )
    return answer_with(call, waiting, {key: input_required.InputRequest(ELICIT, params)})


def answer_with(
    call: ClientCall,
    waiting: input_required.WaitingCall[ClientCall],
    questions: Mapping[str, PeerRequest | input_required.InputRequest],
) -> bool:
    """Answer a call's client with questions and a new state. Returns False if too many calls wait."""
    states = call.calls.context.states
    state = states.give(waiting) if states.may_hold(waiting.held) else None
    if state is not None:
        call.calls.interrupt(call, input_required.asking_result(questions, state))
    return state is not None


def client_of(call: ClientCall) -> Hashable:
    """The client that made a call, as far as clients can be told apart."""
    client, principal = call.calls.client, call.calls.client.principal
    return client.number if principal.keeps else (principal.owner, principal.token, call.request.key)


def owner_of(call: ClientCall) -> bytes:
    """A digest of the caller, the tool and the arguments."""
    request, principal, method = call.request, call.calls.client.principal, call.client_method
    said = msgspec.json.encode(
        (
            (client_of(call), principal.owner, principal.token, request.key),
            (request.profile.name, request.surface.name, request.session.selection.servers, method, call.name),
        )
    )
    given = _of_tool(call.given) if method == protocol.CALL_TOOL else _of_request(call.given)
    return hashlib.sha256(b"%d %b%b" % (len(said), said, given)).digest()


def _of_tool(arguments: bytes) -> bytes:
    found = None if len(arguments) > MAX_COMPARED else protocol.decoded(msgspec.json.decode, arguments)
    return arguments if found is None else msgspec.json.encode(found, order="deterministic")


def _of_request(params: bytes) -> bytes:
    members = protocol.decoded(protocol.decode_members, params)
    if members is None:
        return params
    same = {key: Raw(_of_tool(bytes(members[key]))) for key in members if key not in _OF_ROUNDS}
    return msgspec.json.encode(same, order="deterministic")


MAX_ASKED = 16
"""Open requests of one call: as many as a client of an earlier revision may have open."""

MAX_ROUNDS = 10
"""Rounds of one call, at most, as in the MCP SDKs: a call ends if its server keeps asking."""

REFUSAL = (
    "Unknown requestState: it was never given out to this client for this request, was used already, or has"
    " expired. Make the request again without it."
)


# --- a client of MCP 2026-07-28, a server of the handshake era ----------------------------------------------


def park(call: ClientCall, request: PeerRequest) -> None:
    """Relay a server's request to the call's client, now or in the client's next round."""
    if lacks := lacking(call.declared or NOTHING, request):
        answer_instead(request, lacks)
    elif call.method not in input_required.ASKING:
        request.refuse(INVALID_REQUEST, f"a server cannot ask its client anything during {call.method}")
    else:
        if call.parked is None:
            call.parked = ParkedCall(call)
        call.parked.ask(request)


def resume(call: ClientCall) -> bool:
    """Continue the waiting call whose state a retry brings; False if the retry is judged like a new call."""
    state, states = input_required.state_in(call.others), call.calls.context.states
    if state is None or not state.startswith(input_required.PREFIX):
        return False
    waiting = states.find(state, owner_of(call))
    if waiting is None:
        code = errors.UnknownRequestState.code
        call.calls.refuse(call, INVALID_PARAMS, REFUSAL, {"code": code}, code)
        return True
    try:
        responses = input_required.responses_in(call.others)
    except protocol.UNREADABLE:
        # The state remains valid: it was not answered.
        text = "Invalid params: inputResponses must be an object"
        call.calls.refuse(call, INVALID_PARAMS, text, None, errors.InvalidArguments.code)
        return True
    states.use(state)
    return waiting.resume(call, responses)


class ParkedCall(input_required.WaitingCall[ClientCall]):
    """A call parked at its server while its client answers in rounds."""

    def __init__(self, call: ClientCall) -> None:
        # A script asks, too.
        server = None if call.upstream is None else call.upstream.name
        super().__init__(owner_of(call), client_of(call), self._resume, self._give_up, server, parked=call)
        self._call = call
        self._states = call.calls.context.states
        self._asked: dict[str, PeerRequest] = {}
        self._count = 0
        self._answer: Callable[[], None] | None = None

    def __repr__(self) -> str:
        """Leaves the questions out: they may hold secrets."""
        return f"<ParkedCall {self._call.label}, {len(self._asked)} requests open>"

    def ask(self, request: PeerRequest) -> None:
        """Relay a server's request to the client, now or in the client's next round."""
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
        call = self._call
        retry.calls.take_over(call, retry)
        for key, response in input_required.fitting(responses, self._asked).items():
            self._asked.pop(key).answer(bytes(response))
        answer, self._answer, self.held = self._answer, None, 0
        if answer is not None:
            answer()
        elif self._asked and call.calls.is_open(call):
            self._park()
        return True

    def hold(self, answer: Callable[[], None], size: int) -> None:
        """Keep an answer of `size` bytes until the client returns."""
        if not self._states.may_hold(size):
            error = errors.RequestTooLarge("too many answers wait for absent clients. The call ran.")
            answer, size = partial(self._call.lost, error), 0
        self._answer, self.held, self.parked = answer, size, None
        self._end("the call has ended")

    def _give_up(self, reason: str) -> None:
        self._end(reason)
        call, calls = self._call, self._call.calls
        calls.note_end(call, CANCELLED, trio.current_time() - call.started, calls.context.wall(), 0)
        call.withdraw(reason)

    def _park(self) -> None:
        if not answer_with(self._call, self, self._asked):
            self._end("too many calls wait for the input of their clients")

    def _end(self, reason: str) -> None:
        asked, self._asked = self._asked, {}
        for each in asked.values():
            each.end(reason)

    def _withdraw(self, key: str, _reason: str) -> None:
        self._asked.pop(key, None)


def parked_calls(states: input_required.RequestStates) -> list[ClientCall]:
    """The parked calls whose clients were asked and have not answered yet."""
    return [each.parked for each in states.waiting() if each.parked is not None]


# --- a client of the handshake era, a server of MCP 2026-07-28 ----------------------------------------------


def asks_input(call: ClientCall, result: Buffer) -> bool:
    """Handle a result that asks the client for input. Returns False if the result is a final answer."""
    server, calls = _server(call), call.calls
    try:
        needed = input_required.input_required_by(result)
    except protocol.UNREADABLE as error:
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


def asks_workspace(call: ClientCall, needed: input_required.InputRequired) -> bool:
    """Whether an instance asks for the roots of a client without roots: mcpd answers with the workspace."""
    if call.upstream is None or call.upstream.roots is None or has(call.declared or NOTHING, "roots"):
        return False
    questions = needed.inputRequests or {}
    return bool(questions) and all(each.method == protocol.LIST_ROOTS for each in questions.values())


async def _take_round(call: ClientCall, needed: input_required.InputRequired) -> None:
    if call.round is None:
        before = len(protocol.members_before(call.others))
        call.round = input_required.Round(_server(call), bytes(call.params[0])[before:], call.label)
    call.round.number += 1
    if call.round.number > MAX_ROUNDS or call.method not in input_required.ASKING:
        text = f"server {_server(call)} has asked for input {call.round.number} times for one call"
        raise errors.UpstreamCallError(f"{text}, more than mcpd relays.")
    if needed.inputRequests:
        call.round.pause = input_required.FIRST_PAUSE
        answers = await ask_all(call, needed.inputRequests)
    else:
        await trio.sleep(call.round.pause)
        call.round.pause, answers = min(2 * call.round.pause, input_required.LONGEST_PAUSE), {}
    others = {
        key: call.others[key]
        for key in call.others
        if key not in {input_required.RESPONSES, input_required.STATE}
    }
    if answers:
        others[input_required.RESPONSES] = Raw(msgspec.json.encode(answers))
    if needed.requestState is not UNSET:
        others[input_required.STATE] = Raw(bytes(needed.requestState))
    call.others = others


def latest(call: ClientCall, server: str) -> float:
    """The time on trio's clock by which a call, or its last retry, must end (`timeouts.callMax`)."""
    configured = call.calls.context.catalog.value.config.mcp_servers.get(server)
    return call.started + (0.0 if configured is None else configured.timeouts.call_max)


async def ask_all(call: ClientCall, requests: Mapping[str, input_required.InputRequest]) -> dict[str, Raw]:
    """Ask a client a server's questions, and return the answers. Raises InputRefused, UpstreamTimeout."""
    server, context = _server(call), call.calls.context
    with Questions(len(requests)) as asked:
        for key, each in requests.items():
            _put(asked, call, key, each)
        context.outbox.flush()
        await asked.wait(latest(call, server))
        if asked.refused is not None:
            method, why = asked.refused
            text = f"server {server} needs {method} from the client for this call, and got none: {why}"
            raise errors.InputRefused(text, server=server, method=method)
        if asked.over.is_set():
            return asked.answers
    text = f"the client has not answered server {server} in time"
    raise errors.UpstreamTimeout(f"{text} (timeouts.callMax). The call was not sent again.", server=server)


def _put(asked: Questions, call: ClientCall, key: str, needed: input_required.InputRequest) -> None:
    method, server = needed.method, _server(call)
    if method not in protocol.ASKED_OF_CLIENTS:
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


def _authored(server: str, result: Buffer, needed: input_required.InputRequired) -> bytes:
    members = protocol.decode_members(result)
    if asked := authored_questions(server, needed.inputRequests or {}):
        members[input_required.REQUESTS] = Raw(msgspec.json.encode(asked))
    return msgspec.json.encode(members)


def authored_questions(
    server: str, questions: Mapping[str, input_required.InputRequest]
) -> dict[str, input_required.InputRequest]:
    """Put the server's name before its questions. Raises `UnsafeQuestion`."""
    return {
        key: input_required.InputRequest(
            each.method, authored(server, each.method, Raw(bytes(each.params))) or Raw(b"{}")
        )
        for key, each in questions.items()
    }


def _server(call: ClientCall) -> str:
    return "" if call.upstream is None else call.upstream.of
