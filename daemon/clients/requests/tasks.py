"""`tasks/get`, `tasks/result`, `tasks/cancel`, `tasks/list`, and calls that become tasks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import Raw

from daemon import protocol
from daemon.clients.calls import ClientCall
from daemon.clients.connected_clients import renamed, renamed_result
from daemon.clients.requests.forwarding import ForwardedRequest, begin, text_in
from daemon.errors import CallError, UpstreamUnavailable
from daemon.ports import OwnCall
from daemon.protocol import TASK_RESULT
from daemon.surfaces.surface import Forward
from daemon.wire import envelope
from daemon.wire.envelope import INTERNAL_ERROR
from daemon.wire.requests import AwaitedAnswer, RemoteError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from daemon.clients.attachment import Request
    from daemon.clients.connected_clients import ClientTasks, Task
    from daemon.clients.connection import ClientConnection
    from daemon.clients.notifications import ConnectedClient
    from daemon.surfaces.surface import View
    from daemon.wire.envelope import Buffer


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.encode


def owner_in(request: Request, notifier: ConnectedClient) -> Hashable:
    """The owner of a task made in this request: the key's session, or the connection if there is no key."""
    return notifier.asker if request.key is None else request.key


class TaskCall(ClientCall, eq=False, kw_only=True):
    """A `tools/call` that asks for a task."""

    maker: ConnectedClient
    tasks: ClientTasks

    def answered(self, result: Buffer) -> None:
        """Answer with the result, in which the task has mcpd's id."""
        self.calls.finish(self, _adopted(self, result), "ok")

    def code_of(self, error: CallError) -> int | None:
        """The code of any error: a client that expects a task cannot use a result."""
        del error
        return INTERNAL_ERROR


def _adopted(call: TaskCall, result: Buffer) -> Buffer:
    try:
        members = _decode_members(bytes(result))
        about = _decode_members(members["task"])
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # The server or its tool has no tasks and has answered at once.
        return result
    if call.upstream is None:
        return result
    task = call.tasks.made(call.upstream.name, owner_in(call.request, call.maker), call.maker, about)
    if task is None:
        return result
    ours = {**renamed(members, task), "task": Raw(_encode({**about, "taskId": task.id}))}
    return _encode(ours)


class TaskRequest(ForwardedRequest, eq=False, kw_only=True):
    """A request about one task, to the server that works on it."""

    task: Task
    tasks: ClientTasks

    def answered(self, result: Buffer) -> None:
        """Answer with the result, in which the task has mcpd's id."""
        _ended(self)
        if self.method == TASK_RESULT:
            self.calls.finish(self, renamed_result(result, self.task), "ok")
            return
        try:
            members = _decode_members(bytes(result))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.calls.finish(self, result, "ok")
            return
        ours = renamed(self.tasks.note(self.task, members), self.task)
        self.calls.finish(self, _encode(ours), "ok")

    def withdraw(self, reason: str) -> None:
        """Stop waiting (`ClientCall.withdraw`)."""
        _ended(self)
        super().withdraw(reason)


def _ended(request: TaskRequest) -> None:
    if request.task.waiting is request:
        request.task.waiting = None


def to_server(task: Task, method: str, _view: View) -> Forward:
    """The decision to ask the server of a task. Raises UpstreamUnavailable: the task was lost."""
    if task.gone:
        text = f"the connection to server {task.server} was lost, and the task with it"
        raise UpstreamUnavailable(text, server=task.server)
    return Forward(
        server=task.server,
        method=method,
        name="",
        head=b'"taskId":',
        arguments=_encode(task.theirs),
        label=f"{task.server} {method}",
    )


FRESH_SECONDS = 2.0
"""Seconds that a list of tasks waits for their servers: clients poll it."""

UNKNOWN = "Failed to retrieve task: Task not found"
"""MCP's wording for an id that is no task of this session."""


def call_as_task(connection: ClientConnection, wanted: protocol.CallParams, request: Request) -> None:
    """Send a `tools/call` that asks for a task."""
    tasks = connection.context.subscribers.tasks
    try:
        tasks.require_room(owner_in(request, connection.notifier))
    except CallError as error:
        connection.peer.refuse(request.id, envelope.INVALID_REQUEST, f"{error.code}: {error.message}")
        return
    make = partial(TaskCall, maker=connection.notifier, tasks=tasks)
    given = bytes(wanted.arguments)
    connection.dispatch.begin(request, wanted.name, given, wanted.meta, wanted.others, make)


def ask_about_task(method: str, connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Send a request about one task to its server. Raises MsgspecError: the params name no task."""
    tasks, notifier = connection.context.subscribers.tasks, connection.notifier
    others = protocol.members_of(params)
    task = tasks.find(text_in(others, "taskId"), owner_in(request, notifier))
    if task is None:
        connection.peer.refuse(request.id, envelope.INVALID_PARAMS, UNKNOWN)
        return
    task.notifier = notifier
    if task.gone and method == protocol.GET_TASK:
        connection.peer.answer(request.id, msgspec.json.encode(task.state))
        return
    del others["taskId"]

    def make(**given: Any) -> TaskRequest:
        made = TaskRequest(task=task, tasks=tasks, **given)
        if method == TASK_RESULT:
            # It carries the server's questions, and may take as long as the server keeps the task.
            task.waiting, made.spared_until = made, task.expires
        return made

    begin(connection, request, method, params, others, partial(to_server, task, method), make=make)


def list_tasks(connection: ClientConnection, _params: Raw | None, request: Request) -> None:
    """Answer `tasks/list` with the session's tasks, refreshed from their servers."""
    connection.serve_later(request.id, "tasks/list", partial(_list_fresh, connection, request))


async def _list_fresh(connection: ClientConnection, request: Request) -> None:
    tasks = connection.context.subscribers.tasks.of(owner_in(request, connection.notifier))
    with trio.move_on_after(FRESH_SECONDS):
        async with trio.open_nursery() as nursery:
            for task in tasks:
                if not task.has_ended:
                    nursery.start_soon(_refresh, connection, task)
    states = [task.state for task in tasks if task.state]
    connection.peer.answer(request.id, msgspec.json.encode({"tasks": states}))


async def _refresh(connection: ClientConnection, task: Task) -> None:
    """Refresh a task's state; without an answer of its server it stays as it was."""
    upstream = connection.context.upstreams.get(task.server)
    if upstream is None:
        return
    answer, key = AwaitedAnswer(), None
    params = (b'"taskId":', msgspec.json.encode(task.theirs))
    try:
        key = upstream.send(OwnCall(method=protocol.GET_TASK, params=params), answer)
        connection.context.outbox.flush()
        connection.context.subscribers.tasks.note(task, _decode_members(await answer.wait()))
    except (CallError, RemoteError, msgspec.MsgspecError):
        return
    finally:
        if key is not None:
            upstream.cancel(key, "no longer wanted")
