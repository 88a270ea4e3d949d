"""Calls that a modern server answers with a task (SEP-2663), and the task's state as its client sees it.

For a client without the extension, mcpd polls the task, asks the client its questions, and returns the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import msgspec
import trio
from loguru import logger
from msgspec import Raw, Struct

from daemon import errors, protocol
from daemon.catalog.authorship import UnsafeQuestion
from daemon.clients import asking, input_required
from daemon.clients.calls import ClientCall
from daemon.clients.client import owner_in
from daemon.clients.client_tasks import Task
from daemon.clients.context import SessionContext
from daemon.clients.server_requests import NOTHING, has, lacking, read_refusal, with_author
from daemon.config.labels import server_of
from daemon.ports import OwnCall, Upstream
from daemon.wire.envelope import Buffer, RemoteError, made_error
from daemon.wire.outbox import Outbox
from daemon.wire.requests import AwaitedAnswer

MAX_CREATED = 64 * 1024
"""Bytes of the longest result that may be a new task, which holds a status, times and a message."""

FIRST_POLL = 0.25
"""Seconds before the first poll; pauses double up to `pollIntervalMs`, since most tasks are short."""

USUAL_POLL, LONGEST_POLL = 1.0, 30.0
"""Seconds between polls: the interval if the server names none, and the longest interval."""

_SAYS_TASK = re.compile(rb'"task"')
"""Results without a match, which are nearly all, need not be decoded."""

_decode_asked = msgspec.json.Decoder(dict[str, input_required.InputRequest]).decode
_encode = msgspec.json.encode
ASKED = "input_required"
NO_ANSWERS: Mapping[str, Raw] = {}


class _Polled(Struct):  # SEP-2663, `DetailedTask`
    taskId: str  # noqa: N815 - the wire's name
    resultType: str = ""  # noqa: N815 - the wire's name
    status: str = "working"
    pollIntervalMs: object = None  # noqa: N815 - the wire's name
    result: Raw = Raw(b"{}")
    error: Raw = Raw(b'{"code":-32603,"message":"the task failed"}')
    inputRequests: dict[str, input_required.InputRequest] | None = None  # noqa: N815 - the wire's name


_decode_polled = msgspec.json.Decoder(_Polled).decode


def _final(result: Raw) -> bytes:
    """The task's final result. Raises MsgspecError if the result asks for input or is another task."""
    if input_required.result_type(result) not in {"", "complete"}:
        raise msgspec.ValidationError("its result is not a final one")
    return bytes(result)


def poll_seconds(milliseconds: object) -> float:
    """Seconds between polls of a task, by the server's `pollIntervalMs`."""
    asked = milliseconds if isinstance(milliseconds, int | float) else 1000 * USUAL_POLL
    # Bounded first: a large integer is no float.
    return min(max(asked, 1000 * FIRST_POLL), 1000 * LONGEST_POLL) / 1000


def declares_tasks(capabilities: Raw | None) -> bool:
    """Whether a client has declared the tasks extension."""
    return has(capabilities or NOTHING, "extensions", protocol.TASKS_EXTENSION)


def is_task(result: Buffer) -> bool:
    """Whether a result is a new task."""
    may_be = len(result) <= MAX_CREATED and _SAYS_TASK.search(result) is not None
    return may_be and input_required.result_type(result) == "task"


def goes_on(call: ClientCall, result: Buffer) -> bool:
    """Handle a result that is a task or asks for input. Returns False if the result is a final answer."""
    if is_task(result):
        _take(call, bytes(result))
        return True
    return asking.asks_input(call, result)


def _take(call: ClientCall, result: bytes) -> None:
    context, upstream = call.calls.context, call.upstream
    assert upstream is not None, "only a server makes tasks"
    try:
        if call.method != protocol.CALL_TOOL:
            raise msgspec.ValidationError(f"{call.method} cannot be one")
        created = _decode_polled(result)
    except protocol.UNREADABLE as error:
        call.lost(
            errors.UpstreamCallError(f"server {upstream.of} has made a task that cannot be used: {error}")
        )
        return
    configured = context.catalog.value.config.mcp_servers.get(upstream.of)
    outlives = configured is not None and configured.command is None
    if call.request.modern and declares_tasks(call.declared):
        tasks, owner = context.subscribers.tasks, owner_in(call.request.key, call.calls.client)
        try:
            tasks.require_room(owner)
        except errors.Overloaded as error:
            # Polled instead, for the work has begun.
            call.calls.overloaded(call, error)
        else:
            members = protocol.decode_members(result)
            make = partial(Task, outlives=outlives, convert=call.convert)
            task = tasks.add(make, upstream.name, owner, members)
            assert task is not None, "its id was read"
            call.calls.finish(call, _encode({**members, "taskId": task.id}), "ok")
            return
    PolledTask(upstream, _encode(created.taskId), outlives).follow(call, created)


class PolledTask(Struct, eq=False):
    """A task that mcpd polls for a client without the extension."""

    _upstream: Upstream
    _id: bytes
    _outlives: bool
    _answered: set[str] = msgspec.field(default_factory=set)
    """The keys of answered questions, which a server may repeat for a while."""
    _ended: _Polled | None = None
    """The state in which polling ended: the task's final state, or a question to a modern client."""

    def follow(self, call: ClientCall, state: _Polled, answers: Mapping[str, Raw] = NO_ANSWERS) -> None:
        """Poll the task and answer the call with its result; `answers` are sent to the server first."""
        call.polls = True
        call.calls.act_after(call, partial(self._follow, call, state, answers), self._answer)

    async def _follow(self, call: ClientCall, state: _Polled, answers: Mapping[str, Raw]) -> None:
        if not call.calls.is_open(call):
            # Cancelled in the turn in which the wait began.
            self._cancel(call)
            return
        call.calls.context.subscribers.tasks.polled[self] = self._upstream.name
        server, self._ended = self._upstream.of, None
        late = f"server {server} has not finished the task of this call in time (timeouts.callMax)"
        late += ". mcpd asked it to cancel the task."
        failure: errors.CallError = errors.UpstreamTimeout(late, server=server)
        try:
            with trio.move_on_at(asking.latest(call, server)):
                async with asking.patient(call, f"server {server} works on a task for this call"):
                    try:
                        self._ended = await self._end(call, state, answers)
                    except errors.CallError as error:
                        failure = error
                    except (RemoteError, *protocol.UNREADABLE) as error:
                        failure = _untold(server, error, call.calls.context.redact.of(server))
        finally:
            if self._ended is None:
                self._cancel(call)
            elif self._ended.status != ASKED:
                call.calls.context.subscribers.tasks.polled.pop(self, None)
        if self._ended is None:
            raise failure

    async def _end(self, call: ClientCall, state: _Polled, answers: Mapping[str, Raw]) -> _Polled:
        pause = FIRST_POLL
        while True:
            refused: RemoteError | None = None
            if answers:
                self._answered |= answers.keys()
                given = b',"%b":%b' % (input_required.RESPONSES.encode(), _encode(answers))
                try:
                    await self._ask(call, protocol.UPDATE_TASK, given)
                except RemoteError as error:
                    # The task may have ended while its client was asked.
                    refused = error
            await trio.sleep(min(pause, poll_seconds(state.pollIntervalMs)))
            answers, pause = {}, 2 * pause
            state = _decode_polled(await self._ask(call, protocol.GET_TASK))
            if state.status not in {"working", ASKED}:
                _final(state.result)
                return state
            if refused is not None:
                raise refused
            asked = {
                key: each for key, each in (state.inputRequests or {}).items() if key not in self._answered
            }
            if not asked:
                continue
            if call.request.modern and not asking.asks_workspace(call, input_required.InputRequired(asked)):
                self._put(call, state, asked)
                return state
            answers = await asking.ask_all(call, asked)

    def _answer(self, call: ClientCall) -> None:
        ended = self._ended
        assert ended is not None, "else there was an error"
        if ended.status == "completed":
            # As large as any result, it may be cut.
            call.answered(bytes(ended.result))
        elif ended.status == "failed":
            call.refused(bytes(ended.error))
        else:
            text = f"server {self._upstream.of} has ended the task of this call as {ended.status!r}"
            raise errors.UpstreamCallError(text)

    def _put(
        self, call: ClientCall, state: _Polled, questions: Mapping[str, input_required.InputRequest]
    ) -> None:
        server = self._upstream.of
        try:
            asked = asking.authored_questions(server, questions)
        except UnsafeQuestion as error:
            raise call.calls.server_requests.withheld(server, error) from None
        for each in asked.values():
            is_known = each.method in protocol.ASKED_OF_CLIENTS
            if lacks := lacking(call.declared or NOTHING, each) if is_known else "this method":
                text = f"server {server} needs {each.method} for this call, but the client lacks {lacks}"
                raise errors.InputRefused(text, server=server, method=each.method)

        def resume(retry: ClientCall, responses: Mapping[str, Raw]) -> bool:
            retry.upstream, retry.convert = self._upstream, call.convert
            retry.label, retry.tool, retry.others = call.label, call.tool, call.others
            call.calls.context.subscribers.tasks.polled.pop(self, None)
            self.follow(retry, state, input_required.fitting(responses, asked))
            return True

        client, name = asking.client_of(call), self._upstream.name
        waiting = input_required.WaitingCall(
            asking.owner_of(call), client, resume, lambda _reason: self._cancel(call), server=name
        )
        if not asking.answer_with(call, waiting, asked):
            raise errors.Overloaded("too many calls wait for the input of their clients")

    async def _ask(self, call: ClientCall, method: str, more: bytes = b"") -> bytes:
        """Ask the server, again and again until it answers: repeating a `tasks/update` is harmless.

        Raises UpstreamLost if the task is lost: its call must not be sent again. Raises RemoteError if refused.
        """
        while True:
            upstream = self._present(call)
            try:
                outbox = call.calls.context.outbox
                return await ask_server(outbox, upstream, method, self._id + more, call.envelope)
            except (errors.UpstreamUnavailable, errors.UpstreamLost) as error:
                if not self._outlives or self._present(call).is_gone:
                    text = f"server {self._upstream.name} was lost, and the task of this call with it"
                    raise errors.UpstreamLost(text) from error
            except (errors.Overloaded, errors.UpstreamTimeout) as error:
                logger.debug("a poll of a task is repeated: {}", error.message)
            await trio.sleep(USUAL_POLL)

    def _present(self, call: ClientCall) -> Upstream:
        """The task's server, or the one that replaced it in a reload, if the server keeps the task."""
        present = call.calls.context.upstreams.get(self._upstream.name) if self._outlives else None
        return present or self._upstream

    def _cancel(self, call: ClientCall) -> None:
        context = call.calls.context
        context.subscribers.tasks.polled.pop(self, None)
        _end_task(context.outbox, self._present(call), self._id, call.envelope)


def _end_task(outbox: Outbox, upstream: Upstream, task_id: bytes, envelope: Mapping[str, bytes]) -> None:
    with suppress(errors.CallError):
        ending = OwnCall(method=protocol.CANCEL_TASK, params=(b'"taskId":', task_id), envelope=envelope)
        upstream.send(ending, AwaitedAnswer())
        outbox.flush()


async def ask_server(
    outbox: Outbox,
    upstream: Upstream,
    method: str,
    task_id: bytes,
    envelope: Mapping[str, bytes] | None = None,
) -> bytes:
    """Ask a server about a task by its raw id. Raises CallError or RemoteError."""
    answer, key = AwaitedAnswer(), None
    try:
        about = b'"taskId":', task_id
        key = upstream.send(OwnCall(method=method, params=about, envelope=envelope or {}), answer)
        outbox.flush()
        return await answer.wait()
    finally:
        if key is not None:
            upstream.cancel(key, "no longer wanted")


async def polled(
    outbox: Outbox,
    upstream: Upstream,
    created: bytes,
    call: OwnCall,
    longest: float,
    redact: Callable[[str], str],
) -> bytes:
    """Poll the task that an operator's call has become, for `longest` seconds at most. Raises CallError."""
    if (state := protocol.decoded(_decode_polled, created)) is None:
        raise errors.UpstreamCallError(f"server {upstream.of} has made a task that cannot be read")
    task_id = _encode(state.taskId)
    try:
        with trio.move_on_after(longest):
            while state.status == "working":
                await trio.sleep(poll_seconds(state.pollIntervalMs))
                asked = ask_server(outbox, upstream, protocol.GET_TASK, task_id, call.envelope)
                with suppress(errors.Overloaded, errors.UpstreamTimeout):  # a later poll may be answered
                    state = _decode_polled(await asked)
        if state.status == "completed":
            return _final(state.result)
        if state.status == "failed":
            raise read_refusal(state.error, redact)
        why = {
            "working": "it took longer than timeouts.callMax",
            ASKED: "it asks what only a client can answer",
        }
        raise msgspec.ValidationError(why.get(state.status, f"it has ended as {state.status!r}"))
    except (RemoteError, *protocol.UNREADABLE) as error:
        raise _untold(upstream.of, error, redact) from None
    finally:
        if state.status in {"working", ASKED}:
            _end_task(outbox, upstream, task_id, call.envelope)


def _untold(server: str, why: Exception, redact: Callable[[str], str]) -> errors.UpstreamCallError:
    text = f"server {server} does not tell the result of this call's task: {redact(str(why))}"
    return errors.UpstreamCallError(text)


def noted(context: SessionContext, task: Task, answer: Buffer) -> dict[str, Raw]:
    """Record the state in a server's answer, and return it with mcpd's id. Raises MsgspecError."""
    return context.subscribers.tasks.note(task, protocol.decode_members(bytes(answer)))


def for_client(context: SessionContext, task: Task, members: Mapping[str, Raw]) -> dict[str, Raw]:
    """A task's state for its client, with mcpd's id, questions under the server's name, and a call's result.

    Raises MsgspecError if the state is malformed, and UnsafeQuestion if a question must not be shown.
    """
    server, ours = server_of(task.server), {**members, "taskId": Raw(_encode(task.id))}
    if input_required.REQUESTS in members:
        asked = asking.authored_questions(server, _decode_asked(members[input_required.REQUESTS]))
        ours[input_required.REQUESTS] = Raw(_encode(asked))
    if "result" in members:
        result = _final(members["result"])
        ours["result"] = Raw(result if task.convert is None else task.convert(result))
    if "error" in members:
        told = read_refusal(members["error"], context.redact.of(task.server))
        ours["error"] = Raw(made_error(*with_author(server, told)))
    return ours
