"""Runs models' scripts. A script's calls are calls of the session: permissions, limits and audit apply."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import cast

import msgspec
import trio
from msgspec import Raw

from daemon.catalog.tool_results import json_in, text_in
from daemon.clients.calls import ClientCall
from daemon.clients.client import Client
from daemon.clients.dispatch import Dispatch
from daemon.clients.server_requests import NOTHING, ServerRequests
from daemon.counting.tally import IS_ERROR
from daemon.errors import InvalidArguments, ScriptFailed, ScriptsUnavailable, ToolChanged
from daemon.kit.wording import BYTES_PER_TOKEN
from daemon.protocol import UNREADABLE, decoded, is_error
from daemon.scripting.interpreter import Answer, Interpreter, ScriptProcess
from daemon.surfaces.code import RUN, RUN_READ_ONLY, called, script_answer
from daemon.surfaces.explaining import check_arguments
from daemon.surfaces.surface import Action, RunScript, View
from daemon.wire.envelope import Buffer
from daemon.wire.requests import Peer, PeerRequest

ENDED = "the script has ended"  # why a server's call is cancelled

CHANGED = (
    "{} has changed since this session saw it; nothing was sent. End the script, look at it again"
    " (describe_tools), and call it in another script, with arguments that fit."
)
"""Replaces the text of ToolChanged, which refers to a definition that a script does not get."""

MAX_NAME = 1024
"""Characters of the longest tool name that a script may call: logs and progress reports hold the name."""

MAX_INPUTS = 256 * 1024
"""Bytes of a script's inputs, which are decoded on the loop."""

PRINTED = 4
"""A failed script's output takes at most a fourth of the answer."""

CALLS, READS = f"{RUN}\ud800", f"{RUN_READ_ONLY}\ud800"
"""The names of scripts' calls. JSON has no half of a character, so no client can call by them."""

NULL = Raw(b"null")

_decode_raw = msgspec.json.Decoder(Raw).decode


class ScriptCall(ClientCall, eq=False, kw_only=True):
    """A call that a script makes."""

    cuts = False
    answer: Answer
    result: bytes = b""
    fault: str = ""

    def decide(self, view: View, *, patient: bool) -> Action:
        """Decide about the call by its tool's name. Raises CallError if the call is refused."""
        return called(view, self.given, patient=patient, read_only=self.name == READS)


class _ScriptPeer:
    def __init__(self, ended: Callable[[ScriptCall], None]) -> None:
        self.calls: dict[bytes, ScriptCall] = {}
        self.link, self._ended = self, ended

    @property
    def last_heard(self) -> float:
        return trio.current_time()

    def waiting(self, _request_id: bytes) -> int:
        return 0

    def answer(self, request_id: bytes, result: Buffer) -> None:
        call = self.calls.pop(request_id)
        call.result = bytes(result)
        self._ended(call)

    def refuse(self, request_id: bytes, code: int, message: str, _data: object = None) -> None:
        call = self.calls.pop(request_id)
        call.fault = f"{message} ({code})"
        self._ended(call)

    def notify(self, method: str, params: bytes = b"", request_id: bytes | None = None) -> None:
        """Drop notifications, which only a client could show."""


class _ScriptQuestions(ServerRequests):
    def __init__(self, script: ClientCall, peer: Peer) -> None:
        subscribers, capabilities = script.calls.context.subscribers, script.declared or NOTHING
        if not script.request.modern:
            capabilities = script.calls.server_requests.capabilities
        super().__init__(peer, (), subscribers.sent_to_urls, subscribers.unsafe, capabilities)
        self._script = script
        self._put: list[PeerRequest] = []

    def ask(self, request: PeerRequest, request_id: bytes | None) -> None:
        del request_id  # the client does not know the script's calls
        self._put = [*(each for each in self._put if each.is_open), request]
        script = self._script
        if script.request.modern:
            script.calls.park(script, request)
        else:
            script.calls.server_requests.ask(request, script.request.id)

    def is_asking(self) -> bool:
        return any(each.is_open for each in self._put)


class _Script:
    def __init__(self, dispatch: Dispatch, call: ClientCall, asked: RunScript, nursery: trio.Nursery) -> None:
        self._call = call
        """The client's call, which is answered with the script's value."""
        self._asked = asked
        self._peer = _ScriptPeer(self._call_ended)
        peer = cast("Peer", self._peer)
        self._dispatch = dispatch.answering(peer, nursery.start_soon)
        call.makes = self._dispatch.calls
        self._questions = call.makes.server_requests = _ScriptQuestions(call, peer)
        self._count = self._ended = self._taken = 0

    async def answer(self, interpreter: Interpreter) -> bytes:
        """Run the script and return the result for the client. Raises ScriptFailed, InvalidArguments."""
        request, asked = self._call.request, self._asked
        room = request.profile.answer_tokens * BYTES_PER_TOKEN
        try:
            msgspec.json.decode(asked.inputs)
        except UNREADABLE as error:  # 1e400, for one
            raise InvalidArguments(f"the inputs cannot be read: {error}. Nothing was run.") from None
        try:
            outcome = await interpreter.run(
                asked.code,
                asked.inputs,
                self._make_call,
                request.profile.script_limits,
                self._questions.is_asking,
                self._call.calls.context.outbox,
                _owner(self._call.calls.client),
            )
        finally:
            for each in list(self._peer.calls.values()):
                each.abandon(ENDED)
            self._questions.leave()
        if outcome.error:
            printed, limit = outcome.printed[: room // PRINTED], outcome.limit
            told = {"calls": self._count, "printed": printed, "limit": limit}
            raise ScriptFailed(outcome.error, **{key: value for key, value in told.items() if value})
        make = partial(script_answer, outcome.value, outcome.printed, self._count, room)
        try:
            result = await trio.to_thread.run_sync(make)
        except RecursionError:
            raise ScriptFailed("its value is nested too deeply: return less", calls=self._count) from None
        self._dispatch.spared(self._call, self._taken - len(result))
        return result

    def _make_call(self, name: str, arguments: bytes, answer: Answer) -> None:
        script = self._call
        if len(name) > MAX_NAME:
            answer(f"UnknownTool: no tool has a name of more than {MAX_NAME:,} characters", NULL)
            return
        if decoded(_decode_raw, arguments) is None:
            answer(f"InvalidArguments: the arguments of {name} are not JSON (NaN is not JSON)", NULL)
            return
        self._count += 1
        # No client has an id that is not JSON.
        request = msgspec.structs.replace(script.request, id=b"script %d" % self._count, modern=False)
        call = ScriptCall(
            calls=self._dispatch.calls,
            request=request,
            name=READS if self._asked.read_only else CALLS,
            given=b'{"tool":%b,"arguments":%b}' % (msgspec.json.encode(name), arguments),
            started=trio.current_time(),
            label=name,
            meta=script.meta,
            script=script.script,
            made_by=script,
            answer=answer,
        )
        self._peer.calls[request.id] = call
        self._dispatch.accept(call, None)

    def _call_ended(self, call: ScriptCall) -> None:
        self._ended += 1
        self._taken += len(call.result)
        if self._call.token is not None:
            message = Raw(msgspec.json.encode(f"{call.label} has answered"))
            self._call.progressed({"progress": Raw(b"%d" % self._ended), "message": message})
        error, refusal = "", call.refusal
        if isinstance(refusal, ToolChanged):
            error = f"{refusal.code}: {CHANGED.format(call.label)}"
        elif refusal is not None:
            error = f"{refusal.code}: {refusal.message}"
        elif call.fault:
            error = f"UpstreamCallError: {call.fault}"
        elif is_error(call.result, most := len(call.result)):
            error = f"{IS_ERROR}: {text_in(call.result, most)}"
        call.answer(error, NULL if error else json_in(call.result))


def _owner(client: Client) -> str:
    """The owner that a script counts for: a token, over all its sessions, or one local connection."""
    of_daemons_user = client.principal.uid is not None and not client.principal.owner
    return f"#{client.number}" if of_daemons_user else client.principal.owner


class Scripts:
    """Runs the scripts of all clients. A script may outlive the connection of a modern client."""

    def __init__(self) -> None:
        self._process = ScriptProcess()
        self.interpreter, self.staying = Interpreter(self._process), Interpreter(self._process)
        """Two interpreters: a script that calls a script tool must not wait for its own place."""
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Run scripts until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await self._process.keep()

    def begin(self, dispatch: Dispatch, call: ClientCall, asked: RunScript) -> None:
        """Run a script and answer its call. Raises ScriptsUnavailable, or InvalidArguments for long inputs."""
        if self.interpreter.unavailable or self._nursery is None:
            raise ScriptsUnavailable(self.interpreter.unavailable or "mcpd is about to stop")
        if len(asked.inputs) > MAX_INPUTS:
            text = f"the inputs have more than {MAX_INPUTS:,} bytes. Nothing was run: send less."
            raise InvalidArguments(text, limit=MAX_INPUTS)
        if call.upstream is not None and call.forward is not None:
            check_arguments(call.forward.tool, call.label, bytes(call.params[-1]))
        call.script = hashlib.sha256(asked.code.encode()).hexdigest()
        call.waiting = trio.CancelScope()
        interpreter = self.interpreter if call.upstream is None else self.staying
        self._nursery.start_soon(_run, interpreter, dispatch, call, asked, call.waiting)


async def _run(
    interpreter: Interpreter, dispatch: Dispatch, call: ClientCall, asked: RunScript, scope: trio.CancelScope
) -> None:
    context = call.calls.context
    try:
        with scope:
            async with trio.open_nursery() as nursery:
                script = _Script(dispatch, call, asked, nursery)
                try:
                    end = partial(call.answered, await script.answer(interpreter))
                except Exception as error:  # noqa: BLE001 - the boundary of a script
                    end = partial(dispatch.fail, call, error)
                nursery.cancel_scope.cancel()
            call.waiting = None
            end()
    except Exception as error:  # noqa: BLE001 - what failed while the script was cancelled, or in a call's task
        call.waiting = None
        dispatch.fail(call, error)
    context.outbox.flush()
