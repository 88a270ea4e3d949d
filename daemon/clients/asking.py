"""Questions to a call's client before the call continues, in either era.

A client of the handshake era gets requests while a task waits (`Questions`). A client of MCP 2026-07-28 gets
the questions and a state as its result, and repeats its request with both (`hold`).
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import attrs
import msgspec
import trio
from msgspec import Raw

from daemon.clients.input_required import RESPONSES, STATE, InputRequest, WaitingCall, asking_result, fits
from daemon.clients.server_requests import NOTHING, has
from daemon.clients.waits import keep_reporting, reporting
from daemon.protocol import CALL_TOOL, LIST_ROOTS
from daemon.wire.requests import PeerRequest, RemoteError

if TYPE_CHECKING:
    from types import TracebackType

    from daemon.clients.calls import CallsInFlight, ClientCall
    from daemon.wire.envelope import Buffer

ELICIT = "elicitation/create"

MAX_COMPARED = 64 * 1024
"""Bytes of the longest arguments compared by value between two rounds: decoding more would hold up the loop,
and a client that repeats a request repeats its bytes."""

_OF_ROUNDS = frozenset({"_meta", RESPONSES, STATE})

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def can_elicit(call: ClientCall, mode: str) -> bool:
    """Whether a call's client supports elicitation in this mode: `form` or `url`."""
    declared = call.declared if call.request.modern else call.calls.server_requests.capabilities
    return has(declared or NOTHING, "elicitation", mode)


# --- the handshake era --------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Questions:
    """Questions put to one client together; the unanswered ones are withdrawn at the end."""

    count: int = 1
    answers: dict[str, Raw] = attrs.field(factory=dict, init=False)
    """The client's results, raw, by question key."""
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
        """Put a question and return it; None after a refusal. `server` is empty for mcpd's own."""
        if self.over.is_set():
            return None
        request = PeerRequest(method, params, _Answer(self, key, method))
        request.server = server
        if method == LIST_ROOTS and call.upstream is not None:
            request.otherwise = call.upstream.roots
        self._put.append(request)
        call.calls.server_requests.ask(request, call.request.id)
        return request

    def refuse(self, method: str, why: str) -> None:
        """Record that a question gets no answer."""
        if not self.over.is_set():
            self.refused = method, why
            self.over.set()

    async def wait(self, until: float) -> None:
        """Return once the questions are over, at the latest at that time on trio's clock."""
        with trio.move_on_at(until):
            await self.over.wait()


class _Answer(msgspec.Struct, frozen=True, eq=False):
    """`wire.requests.Responder` for one question."""

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
    """Report progress to the client while its call waits. Cancelling the nursery's scope ends the wait."""
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

    `go_on` takes the client's retry and its answer (None: an unusable answer); it returns True if the retry
    needs no further check. `leave` is called if the client never retries.
    """
    given, others = call.given, call.others

    def resume(retry: ClientCall, responses: Mapping[str, Raw]) -> bool:
        # The retry is sent with the arguments that the user was shown, however it spells them.
        retry.given, retry.others = given, others
        response = responses.get(key)
        return go_on(retry, response if response is not None and fits(ELICIT, response) else None)

    client = client_of(call.calls, call.request.key)
    waiting = WaitingCall(owner_of(call), client, resume, lambda _reason: leave(), held=len(given))
    return answer_with(call, waiting, {key: InputRequest(ELICIT, params)})


def answer_with(
    call: ClientCall, waiting: WaitingCall[ClientCall], questions: Mapping[str, PeerRequest | InputRequest]
) -> bool:
    """Answer a call's client with questions and a state. Returns False if too many calls wait."""
    states = call.calls.context.states
    state = states.give(waiting) if states.may_hold(waiting.held) else None
    if state is not None:
        call.calls.interrupt(call, asking_result(questions, state))
    return state is not None


def client_of(calls: CallsInFlight, key: str | None) -> Hashable:
    """The client that made a call, as far as clients can be told apart."""
    principal = calls.client.principal
    return calls.client.number if principal.keeps else (principal.owner, principal.token, key)


def owner_of(call: ClientCall) -> bytes:
    """A digest of the caller, the tool and the arguments."""
    request, principal, method = call.request, call.calls.client.principal, call.client_method
    said = msgspec.json.encode(
        (
            (client_of(call.calls, request.key), principal.owner, principal.token, request.key),
            (request.profile.name, request.surface.name, request.session.selection.servers, method, call.name),
        )
    )
    given = _of_tool(call.given) if method == CALL_TOOL else _of_request(call.given)
    return hashlib.sha256(b"%d %b%b" % (len(said), said, given)).digest()


def _of_tool(arguments: bytes) -> bytes:
    if len(arguments) > MAX_COMPARED:
        return arguments
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return arguments


def _of_request(params: bytes) -> bytes:
    """Request params without the members that differ from round to round."""
    try:
        members = _decode_members(params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return params
    same = {key: Raw(_of_tool(bytes(members[key]))) for key in members if key not in _OF_ROUNDS}
    return msgspec.json.encode(same, order="deterministic")
