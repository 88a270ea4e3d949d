"""Calls that are to become tasks, and what clients ask about their tasks (MCP 2025-11-25, tasks).

They go the way of all calls; only the ids in them differ on the two sides, so only these answers are decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon.clients.call import ClientCall
from daemon.clients.forwarded import ForwardedRequest
from daemon.clients.refusals import without_secrets
from daemon.clients.tasks import renamed, renamed_result
from daemon.errors import UpstreamCallError, UpstreamUnavailable
from daemon.protocol import TASK_RESULT
from daemon.surfaces.base import Forward
from daemon.wire.envelope import INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import Hashable

    from daemon.clients.attachment import Request
    from daemon.clients.member import Subscriber
    from daemon.clients.tasks import ClientTasks, Task
    from daemon.errors import CallError
    from daemon.surfaces.base import View
    from daemon.wire.envelope import Buffer

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.encode


def owner_in(request: Request, told: Subscriber) -> Hashable:
    """Who a task belongs to that is made in this request: its session, or its connection if that has no key."""
    return told.asker if request.key is None else request.key


class TaskCall(ClientCall, eq=False, kw_only=True):
    """A `tools/call` that asks for a task."""

    maker: Subscriber
    """The client's connection."""
    tasks: ClientTasks
    """The tasks of all clients."""

    def answered(self, result: Buffer) -> None:
        """Answer with the result; of the task that it tells of, the id becomes one of ours."""
        self.calls.finish(self, self._adopted(result), "ok")

    def refused(self, error: Buffer) -> None:
        """Answer with the server's own error: who has asked for a task can make nothing of a result."""
        assert self.upstream is not None, "only a server refuses"
        code, message, data = without_secrets(error, self.calls.redact.of(self.upstream.of))
        self.calls.refuse(self, code, message, data, UpstreamCallError.code)

    def lost(self, error: CallError) -> None:
        """Answer with why there is no task and what to do."""
        data = {"code": error.code, **error.details}
        self.calls.refuse(self, INTERNAL_ERROR, f"{error.code}: {error.message}", data, error.code)

    def _adopted(self, result: Buffer) -> Buffer:
        try:
            members = _decode_members(bytes(result))
            about = _decode_members(members["task"])
        except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Its server, or its tool, knows no tasks and has answered at once.
            return result
        if self.upstream is None:
            return result
        task = self.tasks.made(self.upstream.name, owner_in(self.request, self.maker), self.maker, about)
        if task is None:
            return result
        told = {**renamed(members, task), "task": Raw(_encode({**about, "taskId": task.id}))}
        return _encode(told)


class TaskRequest(ForwardedRequest, eq=False, kw_only=True):
    """A request about one task, to the server that works on it."""

    task: Task
    tasks: ClientTasks

    def answered(self, result: Buffer) -> None:
        """Answer with the result, in which the task has our id."""
        self._ended()
        if self.method == TASK_RESULT:
            self.calls.finish(self, renamed_result(result, self.task), "ok")
            return
        try:
            members = _decode_members(bytes(result))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.calls.finish(self, result, "ok")
            return
        told = renamed(self.tasks.note(self.task, members), self.task)
        self.calls.finish(self, _encode(told), "ok")

    def withdraw(self, reason: str) -> None:
        """Stop waiting (`ClientCall.withdraw`)."""
        self._ended()
        super().withdraw(reason)

    def _ended(self) -> None:
        if self.task.waiting is self:
            self.task.waiting = None


def to_server(task: Task, method: str, _view: View) -> Forward:
    """The decision to ask the server of a task.

    Raises:
        UpstreamUnavailable: the task was lost with the connection to it.
    """
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
