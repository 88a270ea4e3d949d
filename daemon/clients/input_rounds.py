"""Rounds of input: a modern server needs answers that an older client is asked for.

Such a server does not ask while it works: it answers with what it needs, and wants the call again with the
client's answers. So the client is asked as a server of its own revision would, and the call is sent again. It
is judged before, like every call that has waited, and goes to the same server or to none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from daemon.catalog.authorship import UnsafeQuestion, authored
from daemon.clients.input_required import (
    ASKING,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    REQUESTS,
    RESPONSES,
    STATE,
    Round,
    input_required_by,
)
from daemon.clients.parking import owner_of
from daemon.errors import InputRefused, UpstreamCallError, UpstreamTimeout
from daemon.protocol import ASKED_OF_CLIENTS, LIST_ROOTS, members_before
from daemon.wire.requests import PeerRequest, RemoteError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.clients.call import ClientCall
    from daemon.clients.context import SessionContext
    from daemon.clients.input_required import InputRequest, InputRequired
    from daemon.wire.envelope import Buffer


MAX_ROUNDS = 10
"""Rounds of one call, as the SDKs of MCP have it: a server that always needs more is not asked for ever."""


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class InputRounds:
    """The rounds of one client's calls."""

    def __init__(
        self,
        context: SessionContext,
        act_after: Callable[[ClientCall, Callable[[], Awaitable[None]]], None],
    ) -> None:
        """Begin without any.

        Args:
            context: what all sessions share.
            act_after: judges and sends a call again after a wait.
        """
        self._context = context
        self._act_after = act_after

    def goes_on(self, call: ClientCall, result: Buffer) -> bool:
        """Deal with a result that asks for input: begin a round if its client cannot be answered so."""
        try:
            needed = input_required_by(result)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            text = f"server {_server(call)} needs input for this call, but does not ask as MCP has it: {error}"
            call.lost(UpstreamCallError(text))
            return True
        if needed is None:
            return False
        if call.agreed is not None and call.request.modern:
            self._context.agreed.note(owner_of(call), call.agreed)
        if call.request.modern:
            # Not what the call would give: it passes as it is, but for the words that name the server.
            try:
                call.calls.finish(call, _authored(_server(call), result, needed), "ok")
            except UnsafeQuestion as error:
                call.calls.server_requests.unsafe(_server(call), error)
                call.lost(InputRefused(f"server {_server(call)} asks what no user is shown: {error}"))
            return True
        self._act_after(call, partial(self._take, call, needed))
        return True

    async def _take(self, call: ClientCall, needed: InputRequired) -> None:
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
        answers = await self._ask(call, needed.inputRequests or {})
        others = {key: call.others[key] for key in call.others if key not in {RESPONSES, STATE}}
        if answers:
            others[RESPONSES] = Raw(msgspec.json.encode(answers))
        if needed.requestState is not UNSET:
            others[STATE] = Raw(bytes(needed.requestState))
        call.others = others

    async def _ask(self, call: ClientCall, requests: Mapping[str, InputRequest]) -> dict[str, Raw]:
        assert call.round is not None
        if not requests:
            await trio.sleep(call.round.pause)
            call.round.pause = min(2 * call.round.pause, LONGEST_PAUSE)
            return {}
        call.round.pause = FIRST_PAUSE
        answers = _Answers(_server(call), len(requests))
        try:
            for key, each in requests.items():
                params = None if each.params is UNSET else Raw(bytes(each.params))
                answers.ask(call, key, each.method, params)
            self._context.outbox.flush()
            with trio.move_on_at(call.started + self._longest(call)):
                return await answers.wait()
        finally:
            answers.end()
        text = f"the client has not given in time what server {_server(call)} needs for this call"
        raise UpstreamTimeout(f"{text} (timeouts.callMax). The call was not sent again.", server=_server(call))

    def _longest(self, call: ClientCall) -> float:
        server = self._context.catalog.value.config.mcp_servers.get(_server(call))
        return 0.0 if server is None else server.timeouts.call_max


class _Answers:
    """What a client answers in one round."""

    def __init__(self, server: str, count: int) -> None:
        self._server = server
        self._count = count
        self._done = trio.Event()
        self._results: dict[str, Raw] = {}
        self._failure: InputRefused | None = None
        self._requests: list[PeerRequest] = []

    def ask(self, call: ClientCall, key: str, method: str, params: Raw | None) -> None:
        """Ask a call's client for one of them."""
        if method not in ASKED_OF_CLIENTS:
            self.failed(method, "no client can be asked that")
        try:
            params = authored(self._server, method, params)
        except UnsafeQuestion as error:
            call.calls.server_requests.unsafe(self._server, error)
            self.failed(method, f"no user is shown it: {error}")
        if self._failure is None:
            request = PeerRequest(method, params, _Answer(self, key, method))
            request.server = self._server
            if method == LIST_ROOTS and call.upstream is not None:
                request.otherwise = call.upstream.roots
            self._requests.append(request)
            call.asked(request)

    def end(self) -> None:
        """Take back what is still before the client."""
        for each in self._requests:
            each.end("the call has ended")

    async def wait(self) -> dict[str, Raw]:
        """Wait for all of them.

        Raises:
            InputRefused: the client refuses one.
        """
        await self._done.wait()
        if self._failure is not None:
            raise self._failure
        return self._results

    def given(self, key: str, result: Buffer) -> None:
        self._results[key] = Raw(bytes(result))
        if len(self._results) == self._count:
            self._done.set()

    def failed(self, method: str, why: str) -> None:
        if self._failure is None:
            text = f"server {self._server} needs {method} of the client for this call, and got none: {why}"
            self._failure = InputRefused(text, server=self._server, method=method)
        self._done.set()


@attrs.frozen(eq=False)
class _Answer:
    """`wire.peer_requests.Responder` for one request of a round."""

    _answers: _Answers
    _key: str
    _method: str

    def answer(self, result: Buffer) -> None:
        self._answers.given(self._key, result)

    def refuse(self, code: int, message: str, data: object = None) -> None:
        self._answers.failed(self._method, f"{message} ({code})")

    def refuse_as(self, error: Buffer) -> None:
        told = RemoteError.from_wire(error)
        self._answers.failed(self._method, f"{told.message} ({told.code})")

    def report(self, params: dict[str, Raw]) -> None:
        """Nothing: a server of this era cannot be told before it is called again."""


def _authored(server: str, result: Buffer, needed: InputRequired) -> bytes:
    """A result that asks a client for input, with the words that name the server."""
    members = _decode_members(result)
    asked = {
        key: {
            "method": each.method,
            "params": Raw(b"{}")
            if each.params is UNSET
            else authored(server, each.method, Raw(bytes(each.params))),
        }
        for key, each in (needed.inputRequests or {}).items()
    }
    if asked:
        members[REQUESTS] = Raw(msgspec.json.encode(asked))
    return msgspec.json.encode(members)


def _server(call: ClientCall) -> str:
    return "" if call.upstream is None else call.upstream.of
