"""Requests about tasks of both revisions, and calls that ask for a task (MCP 2025-11-25)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import trio
from msgspec import Raw

from daemon import protocol
from daemon.catalog.authorship import UnsafeQuestion
from daemon.clients.attachment import Request
from daemon.clients.calls import ClientCall
from daemon.clients.client import owner_in
from daemon.clients.client_tasks import RequestedTask, Task, renamed, renamed_result
from daemon.clients.connection import ClientConnection
from daemon.clients.notifications import PENDING, ConnectedClient
from daemon.clients.requests.forwarding import ForwardedRequest, begin, text_in
from daemon.clients.server_requests import MISSING_CAPABILITY
from daemon.clients.task_results import ask_server, declares_tasks, for_client, noted, poll_seconds
from daemon.errors import CallError, UpstreamCallError, UpstreamUnavailable
from daemon.protocol import TASK_RESULT, UNREADABLE, decode_members
from daemon.surfaces.surface import Forward, View
from daemon.wire import envelope

_encode = msgspec.json.encode


class TaskCall(ClientCall, eq=False, kw_only=True):
    """A `tools/call` that asks for a task."""

    maker: ConnectedClient

    def answered(self, result: envelope.Buffer) -> None:
        """Answer with a result that names the task by mcpd's id; tasks of a modern server are polled."""
        if self.upstream is not None and self.upstream.is_modern:
            super().answered(result)
        else:
            self.calls.finish(self, _adopted(self, result), "ok")

    def code_of(self, error: CallError) -> int | None:
        """Any error's code: a client that expects a task cannot use an error as a result."""
        del error
        return envelope.INTERNAL_ERROR


def _adopted(call: TaskCall, result: envelope.Buffer) -> envelope.Buffer:
    try:
        members = decode_members(bytes(result))
        about = decode_members(members["task"])
    except (KeyError, *UNREADABLE):
        # The server or its tool has no tasks and has answered at once.
        return result
    if call.upstream is None:
        return result
    make, owner = partial(RequestedTask, notifier=call.maker), owner_in(call.request.key, call.calls.client)
    task = call.calls.context.subscribers.tasks.add(make, call.upstream.name, owner, about)
    if task is None:
        return result
    ours = {**renamed(members, task), "task": Raw(_encode({**about, "taskId": task.id}))}
    return _encode(ours)


class PolledTaskRequest(ForwardedRequest, eq=False, kw_only=True):
    """A request about a task of the extension (SEP-2663), sent to the task's server."""

    task: Task

    def answered(self, result: envelope.Buffer) -> None:
        """Answer with the task's state as its client knows it; only answers to `tasks/get` are changed."""
        if self.method != protocol.GET_TASK:
            self.task.unwanted |= self.method == protocol.CANCEL_TASK
            self.calls.finish(self, result, "ok")
            return
        context, server = self.calls.context, self.task.server
        try:
            state = _encode(for_client(context, self.task, noted(context, self.task, result)))
        except UNREADABLE as error:
            self.lost(UpstreamCallError(f"server {server} sent a task state that cannot be read: {error}"))
        except UnsafeQuestion as error:
            self.lost(self.calls.server_requests.withheld(server, error))
        else:
            self.calls.finish(self, state, "ok")

    def refused(self, error: envelope.Buffer) -> None:
        """Answer with the server's error; forget a task that the server does not know."""
        # With `tasks/update`, the answers may be what the server refuses.
        is_unknown = envelope.read_error(error)[0] == envelope.INVALID_PARAMS
        if is_unknown and self.method != protocol.UPDATE_TASK:
            self.calls.context.subscribers.tasks.forget(self.task)
            self.calls.refuse(self, envelope.INVALID_PARAMS, UNKNOWN, None, UpstreamCallError.code)
        else:
            super().refused(error)


class TaskRequest(ForwardedRequest, eq=False, kw_only=True):
    """A request about a task of MCP 2025-11-25, sent to the task's server."""

    task: RequestedTask

    def answered(self, result: envelope.Buffer) -> None:
        """Answer with a result that names the task by mcpd's id."""
        _ended(self)
        if self.method == TASK_RESULT:
            result = renamed_result(result, self.task)
        else:
            with suppress(*UNREADABLE):
                result = _encode(renamed(noted(self.calls.context, self.task, result), self.task))
        self.calls.finish(self, result, "ok")

    def withdraw(self, reason: str) -> None:
        """Stop waiting for the server (`ClientCall.withdraw`)."""
        _ended(self)
        super().withdraw(reason)


def _ended(request: TaskRequest) -> None:
    if request.task.waiting is request:
        request.task.waiting = None


def to_server(task: Task, method: str, _view: View) -> Forward:
    """Make the decision to ask a task's server. Raises UpstreamUnavailable if the task was lost."""
    if task.gone:
        text = f"the connection to server {task.server} was lost, and the task with it"
        raise UpstreamUnavailable(text, server=task.server)
    return Forward.about(task.server, method, f"{task.server} {method}", "taskId", task.theirs)


FRESH_SECONDS = 2.0
"""Seconds that a list of tasks waits for their servers: clients request it often."""

UNKNOWN = "Failed to retrieve task: Task not found"
"""MCP's words for an id that names no task of the session: it is unknown, expired, or another session's."""


def call_as_task(connection: ClientConnection, wanted: protocol.CallParams, request: Request) -> None:
    """Send a `tools/call` that asks for a task."""
    try:
        connection.context.subscribers.tasks.require_room(owner_in(request.key, connection.client))
    except CallError as error:
        connection.peer.refuse(request.id, envelope.INVALID_REQUEST, f"{error.code}: {error.message}")
        return
    make = partial(TaskCall, maker=connection.notifier)
    given = bytes(wanted.arguments)
    connection.dispatch.begin(request, wanted.name, given, wanted.meta, wanted.others, make)


def ask_about_task(method: str, connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Send a request about one task to its server. Raises MsgspecError: the params name no task."""
    if request.modern and lacks_tasks(connection, params, request):
        return
    others, known = protocol.members_of(params), connection.context.subscribers.tasks
    task = known.find(text_in(others, "taskId"), owner_in(request.key, connection.client))
    # Of MCP 2025-11-25 a task has no update; of the extension, no request for its result.
    missing = protocol.UPDATE_TASK if isinstance(task, RequestedTask) else TASK_RESULT
    if task is None or method == missing:
        connection.peer.refuse(request.id, envelope.INVALID_PARAMS, UNKNOWN)
        return
    if isinstance(task, RequestedTask):
        task.notifier = connection.notifier
    if task.gone and method == protocol.GET_TASK:
        state = _encode(for_client(connection.context, task, task.state))
        connection.peer.answer(request.id, protocol.completed(state) if request.modern else state)
        return
    del others["taskId"]

    def make(**given: Any) -> TaskRequest | PolledTaskRequest:
        if not isinstance(task, RequestedTask):
            return PolledTaskRequest(task=task, **given)
        made = TaskRequest(task=task, **given)
        if method == TASK_RESULT:
            # It carries the server's questions, and may take as long as the server keeps the task.
            task.waiting, made.spared_until = made, task.expires
        return made

    begin(connection, request, method, params, others, partial(to_server, task, method), make=make)


def lacks_tasks(connection: ClientConnection, params: Raw | None, request: Request) -> bool:
    """Refuse a request that does not declare the tasks extension (SEP-2663); returns whether it was refused."""
    declared = declares_tasks(protocol.meta_of(params).get(protocol.CAPABILITIES_KEY))
    if not declared:
        text = "Missing required client capability"
        connection.peer.refuse(request.id, MISSING_CAPABILITY, text, _NEEDS_TASKS)
    return not declared


_NEEDS_TASKS: Mapping[str, object] = {"requiredCapabilities": {"extensions": {protocol.TASKS_EXTENSION: {}}}}


def list_tasks(connection: ClientConnection, _params: Raw | None, request: Request) -> None:
    """Answer `tasks/list` with the session's tasks, after asking their servers for the present states."""
    connection.serve_later(request.id, "tasks/list", partial(_list_fresh, connection, request))


async def _list_fresh(connection: ClientConnection, request: Request) -> None:
    known = connection.context.subscribers.tasks.tasks_of(owner_in(request.key, connection.client))
    tasks = [task for task in known if isinstance(task, RequestedTask)]
    with trio.move_on_after(FRESH_SECONDS):
        async with trio.open_nursery() as nursery:
            for task in tasks:
                if not task.has_ended:
                    nursery.start_soon(_refresh, connection, task)
    states = [task.state for task in tasks if task.state]
    connection.peer.answer(request.id, msgspec.json.encode({"tasks": states}))


async def _refresh(connection: ClientConnection, task: Task) -> None:
    upstream = connection.context.upstreams.get(task.server)
    if upstream is None:
        return
    with suppress(CallError, envelope.RemoteError, msgspec.MsgspecError):
        state = await ask_server(connection.context.outbox, upstream, protocol.GET_TASK, _encode(task.theirs))
        noted(connection.context, task, state)


async def watch_task(
    connection: ClientConnection, listen: bytes, task: Task, honoured: object, declared: Raw
) -> None:
    """Poll a client's task and notify it of changes while its `subscriptions/listen` is open (SEP-2663)."""
    shown: dict[str, Raw] = {}
    opened, known = connection.lists.open, connection.context.subscribers.tasks
    while known.find(task.id, task.owner) and (opened.get(listen) is honoured or opened.get(listen) is PENDING):
        state: dict[str, Raw] | None = {}
        if opened[listen] is honoured:
            state = await _present_state(connection, task, declared)
            if state and state != shown and opened.get(listen) is honoured:
                shown = state
                about = _encode({**state, "_meta": {protocol.SUBSCRIPTION_KEY: Raw(listen)}})
                connection.notifier.enqueue((listen, task), protocol.TASK_CHANGED, about, listen)
                connection.context.outbox.flush()
            if state is None or task.has_ended:
                return
        await trio.sleep(poll_seconds(msgspec.json.decode((state or {}).get("pollIntervalMs", b"null"))))


async def _present_state(connection: ClientConnection, task: Task, declared: Raw) -> dict[str, Raw] | None:
    """A task's present state for its client; empty while the server is down, None if the task is gone."""
    context, known = connection.context, connection.context.subscribers.tasks
    upstream, state = context.upstreams.get(task.server), task.state
    try:
        if not task.gone:
            if upstream is None:
                return None
            declaring = {protocol.CAPABILITIES_KEY: bytes(declared)}
            theirs = _encode(task.theirs)
            answer = await ask_server(context.outbox, upstream, protocol.GET_TASK, theirs, declaring)
            if known.find(task.id, task.owner) is None:
                # The server may have given its id to another client's task meanwhile.
                return None
            state = noted(context, task, answer)
        return for_client(context, task, state)
    except CallError:
        return {}
    except UnsafeQuestion as error:
        connection.calls.server_requests.unsafe(task.server, error)
    except (envelope.RemoteError, *UNREADABLE):
        pass
    return None
