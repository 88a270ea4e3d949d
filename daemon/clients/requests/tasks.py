"""`tasks/get`, `tasks/result`, `tasks/cancel` and `tasks/list`, and calls that are to become tasks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw, Struct

from daemon import protocol
from daemon.clients.dispatch import MAX_RETURNS
from daemon.clients.task_calls import TaskCall, TaskRequest, owner_in, to_server
from daemon.errors import CallError
from daemon.ports import OwnCall
from daemon.wire import envelope
from daemon.wire.requests import AwaitedAnswer, RemoteError

if TYPE_CHECKING:
    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection
    from daemon.clients.tasks import Task

FRESH_SECONDS = 2.0
"""Seconds that a list of tasks waits for their servers: a client that asks again and again wants an answer."""

UNKNOWN = "Failed to retrieve task: Task not found"
"""The error for an id that is no task of this session, as MCP words it."""


class _TaskParams(Struct):
    taskId: str  # noqa: N815 - the wire's name


_decode = msgspec.json.Decoder(_TaskParams).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def call_as_task(connection: ClientConnection, wanted: protocol.CallParams, request: Request) -> None:
    """Hand a `tools/call` that asks for a task to the call path."""
    tasks = connection.context.audience.tasks
    try:
        tasks.require_room(owner_in(request, connection.told))
    except CallError as error:
        connection.peer.refuse(request.id, envelope.INVALID_REQUEST, f"{error.code}: {error.message}")
        return
    call = TaskCall(
        calls=connection.calls,
        request=request,
        name=wanted.name,
        given=bytes(wanted.arguments),
        started=connection.peer.last_heard,
        label=wanted.name,
        others=wanted.others,
        maker=connection.told,
        tasks=tasks,
    )
    connection.dispatch.accept(call, wanted.meta)


def ask_about_task(method: str, connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Hand a request about one task to its server.

    Raises:
        msgspec.MsgspecError: its params name no task.
    """
    tasks, told = connection.context.audience.tasks, connection.told
    members = _decode_members(params or b"{}")
    task = tasks.find(_decode(params or b"{}").taskId, owner_in(request, told))
    if task is None:
        connection.peer.refuse(request.id, envelope.INVALID_PARAMS, UNKNOWN)
        return
    task.told = told
    if task.gone and method == protocol.GET_TASK:
        connection.peer.answer(request.id, msgspec.json.encode(task.state))
        return
    asked = TaskRequest(
        calls=connection.calls,
        request=request,
        # No tool has an empty name: what was decided for calls of a tool does not count for this.
        name="",
        given=b"{}",
        started=connection.peer.last_heard,
        label=method,
        method=method,
        others={key: value for key, value in members.items() if key not in {"taskId", "_meta"}},
        route=partial(to_server, task, method),
        # The server's list of tools does not matter, so that a new one is not waited for.
        current=True,
        returns=MAX_RETURNS,
        # A result may take as long as its task, of which its server has said how long it keeps it.
        spared_until=task.expires if method == protocol.TASK_RESULT else 0.0,
        task=task,
        tasks=tasks,
    )
    if method == protocol.TASK_RESULT:
        task.waiting = asked
    connection.dispatch.accept(asked, protocol.meta_of(params))


def list_tasks(connection: ClientConnection, _params: Raw | None, request: Request) -> None:
    """Answer `tasks/list` with the session's own tasks, once their servers have told how they are."""
    connection.tasks.later(_list_fresh, connection, request)


async def _list_fresh(connection: ClientConnection, request: Request) -> None:
    try:
        tasks = connection.context.audience.tasks.of(owner_in(request, connection.told))
        with trio.move_on_after(FRESH_SECONDS):
            async with trio.open_nursery() as nursery:
                for task in tasks:
                    if not task.has_ended:
                        nursery.start_soon(_refresh, connection, task)
        states = [task.state for task in tasks if task.state]
        connection.peer.answer(request.id, msgspec.json.encode({"tasks": states}))
    except Exception as error:  # noqa: BLE001 - the boundary of a request that has waited
        connection.fail(request.id, "tasks/list", error)
    connection.context.outbox.flush()


async def _refresh(connection: ClientConnection, task: Task) -> None:
    """Learn how a task is; what its server does not tell stays as it was."""
    upstream = connection.context.upstreams.get(task.server)
    if upstream is None:
        return
    answer, key = AwaitedAnswer(), None
    params = (b'"taskId":', msgspec.json.encode(task.theirs))
    try:
        key = upstream.send(OwnCall(method=protocol.GET_TASK, params=params), answer)
        connection.context.outbox.flush()
        connection.context.audience.tasks.note(task, _decode_members(await answer.wait()))
    except (CallError, RemoteError, msgspec.MsgspecError):
        return
    finally:
        if key is not None:
            upstream.cancel(key, "no longer wanted")
