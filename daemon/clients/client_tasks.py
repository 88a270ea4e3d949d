"""The tasks that servers run for clients: those of MCP 2025-11-25 and of the extension SEP-2663.

mcpd's id of a task cannot be guessed, and works only in the session of the task. A lost task stays, as failed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import TypeVar

import attrs
import msgspec
import trio
from msgspec import Raw

from daemon.catalog.naming import renamed_at
from daemon.clients.notifications import ConnectedClient
from daemon.errors import Overloaded
from daemon.kit.later import pattern
from daemon.ports import TaskOwner
from daemon.protocol import RELATED_TASK_KEY, TASK_STATUS, UNREADABLE, decode_members, decode_text, decoded
from daemon.surfaces.surface import View
from daemon.wire.envelope import INTERNAL_ERROR, Buffer
from daemon.wire.requests import PeerRequest

MAX_OWN_TASKS = 256
"""Tasks of one session: as many as it may have calls in flight."""

MAX_TASKS = 10_000
"""Tasks of all sessions, some 10 MB."""

MAX_TASK_BYTES = 8 * 1024
"""Bytes of a task's state that are kept or sent; a longer state keeps only the members that MCP requires."""

LONGEST_SECONDS = 24 * 3600.0
"""Seconds after which mcpd forgets any task, even one that its server keeps without end (`ttl`: null)."""

ENDED = frozenset({"completed", "failed", "cancelled"})

_REQUIRED = ("taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval", "ttlMs", "pollIntervalMs")
_RELATED, _PATH = RELATED_TASK_KEY.encode(), (RELATED_TASK_KEY, "taskId")

_decode_ttl = msgspec.json.Decoder(float | None).decode
_encode = msgspec.json.encode


ID_BYTES = 32
"""Random bytes of mcpd's id of a task: 256 bits cannot be guessed."""


@attrs.define(eq=False, kw_only=True)
class Task:
    """One task of a client at a server."""

    id: str
    server: str
    theirs: str
    owner: Hashable
    """The session that made the task (`client.owner_in`)."""
    expires: float
    """A time on trio's clock."""
    state: dict[str, Raw] = attrs.field(factory=dict, repr=False)
    made: float = attrs.field(factory=trio.current_time, init=False)
    gone: bool = False
    unwanted: bool = False
    """Whether the client has cancelled the task, so that it need not poll again."""
    outlives: bool = False
    """Whether the task may survive the end of its connection: its server is not a child process of mcpd."""
    convert: Callable[[Buffer], bytes] | None = attrs.field(default=None, repr=False)
    """Converts the result of the call for its surface (`surfaces.surface.Forward`)."""

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self.gone or decoded(decode_text, self.state.get("status", Raw(b'""'))) in ENDED

    @property
    def is_known_to_end(self) -> bool:
        """Whether the final state and the result are known here; a very large result is not kept."""
        return self.has_ended and ("result" in self.state or bytes(self.state["status"]) != b'"completed"')

    def note_lost(self, text: str) -> None:
        """Record that the task failed when its server's connection ended."""
        error = {"code": INTERNAL_ERROR, "message": text}
        failed = {"status": "failed", "statusMessage": text, "error": error}
        self.state |= {key: Raw(_encode(value)) for key, value in failed.items()}
        self.state.pop("inputRequests", None)


@attrs.define(eq=False, kw_only=True)
class RequestedTask(Task):
    """A task requested by its client, which mcpd notifies of the task's changes (MCP 2025-11-25)."""

    notifier: ConnectedClient
    """The connection of the session that last asked about the task."""
    waiting: TaskOwner | None = None
    """The pending `tasks/result` request, on whose stream the server's requests reach the client."""

    @property
    def is_known_to_end(self) -> bool:
        """Whether the state is final; the client asks for the result in another request."""
        return self.has_ended

    def note_lost(self, text: str) -> None:
        """Record that the task has failed, and notify the client."""
        super().note_lost(text)
        del self.state["error"]
        self.notifier.enqueue(self, TASK_STATUS, _encode(self.state))

    # --- wire.requests.Exchange, as far as servers ask ------------------------------------------------------

    def asked(self, request: PeerRequest) -> None:
        """Relay a server's request to the task's client, on the stream of the pending `tasks/result`."""
        if self.waiting is not None:
            self.waiting.asked(request)
        else:
            self.notifier.ask(request, self.expires)

    @property
    def asker(self) -> object:
        """The client that made the task."""
        return self.notifier.asker


T = TypeVar("T", bound=Task)


class ClientTasks:
    """The tasks of all clients."""

    def __init__(self) -> None:
        self._known: dict[str, Task] = {}
        self._theirs: dict[tuple[str, str], Task] = {}
        self.polled: dict[object, str] = {}
        """The servers of the tasks that mcpd polls (`task_results.PolledTask`)."""

    def __len__(self) -> int:
        return len(self._known)

    def require_room(self, owner: Hashable) -> None:
        """Raise Overloaded if a session has too many tasks to make another."""
        if len(self.tasks_of(owner)) >= MAX_OWN_TASKS or len(self._known) >= MAX_TASKS:
            text = "mcpd keeps too many tasks. Wait until some of them expire (their ttl)."
            raise Overloaded(text, bound="tasks that are known")

    def add(self, make: Callable[..., T], server: str, owner: Hashable, members: Mapping[str, Raw]) -> T | None:
        """Record a task that a server has made; None if the task has no id."""
        try:
            theirs = decode_text(members["taskId"])
        except (KeyError, msgspec.MsgspecError):
            return None
        if (before := self._theirs.get((server, theirs))) is not None:
            # A server that repeats an id has one task of that id.
            self.forget(before)
        ours = secrets.token_urlsafe(ID_BYTES)
        expires = trio.current_time() + _lifetime(members)
        task = make(id=ours, server=server, theirs=theirs, owner=owner, expires=expires)
        self._known[ours] = self._theirs[server, theirs] = task
        self.note(task, members)
        return task

    def find(self, task_id: str, owner: Hashable) -> Task | None:
        """The task with this id; None if unknown or another session's."""
        task = self._known.get(task_id)
        # Only this one's time is looked at: clients poll.
        is_theirs = task is not None and task.owner == owner and task.expires > trio.current_time()
        return task if is_theirs else None

    def tasks_of(self, owner: Hashable) -> list[Task]:
        """The tasks of a session under both revisions, oldest first."""
        self._forget_old()
        return [task for task in self._known.values() if task.owner == owner]

    def are_open(self, server: str) -> bool:
        """Whether a server has a task whose end and result only the server can tell."""
        self._forget_old()
        return server in self.polled.values() or any(
            task.server == server and not (task.unwanted or task.is_known_to_end)
            for task in self._known.values()
        )

    def note(self, task: Task, members: Mapping[str, Raw]) -> dict[str, Raw]:
        """Record a task's state, and return its members with mcpd's id."""
        named = {**members, "taskId": Raw(_encode(task.id))}
        kept = {key: value for key, value in named.items() if key not in {"_meta", "resultType"}}
        if sum(map(len, kept.values())) > MAX_TASK_BYTES:
            kept = _required_of(kept)
        if "status" in kept:
            # Copied: a view would keep the whole message in memory.
            task.state = {key: value.copy() for key, value in kept.items()}
        if "ttlMs" in members:
            # It may change, and counts from the creation.
            task.expires = task.made + _lifetime(members)
        return named

    def leave(self, client: object) -> None:
        """Forget the tasks of a disconnected client, unless its session may come back for them."""
        for task in list(self._known.values()):
            if task.owner is client:
                self.forget(task)

    def hear(self, server: str, params: Raw) -> None:
        """Pass a server's notification about a task to its client."""
        with suppress(*UNREADABLE, KeyError):
            members = decode_members(params)
            task = self._theirs.get((server, decode_text(members["taskId"])))
            if isinstance(task, RequestedTask):
                named = renamed(self.note(task, members), task)
                # Kept for a client that reads slowly, one for each task.
                named = named if len(params) <= MAX_TASK_BYTES else _required_of(named)
                task.notifier.enqueue(task, TASK_STATUS, _encode(named))

    def owner_of(self, request: PeerRequest) -> RequestedTask | None:
        """The task that a server's request belongs to; the request then names the task by mcpd's id."""
        if request.params is None or _RELATED not in bytes(request.params):
            return None
        with suppress(*UNREADABLE, KeyError):
            members = decode_members(request.params)
            related = decode_members(decode_members(members["_meta"])[RELATED_TASK_KEY])
            task = self._theirs.get((request.server, decode_text(related["taskId"])))
            if isinstance(task, RequestedTask):
                request.params = Raw(_encode(renamed(members, task)))
                return task
        return None

    def lost(self, server: str, *, wholly: bool = False) -> None:
        """Record that a server's tasks have failed: its connection ended, or (`wholly`) it was removed."""
        for task in list(self._known.values()):
            if task.server == server and not task.gone and (wholly or not task.outlives):
                was_over, task.gone = task.is_known_to_end, True
                self._theirs.pop((server, task.theirs), None)
                if not was_over:
                    task.note_lost(f"the connection to server {server} was lost, and the task with it")

    def _forget_old(self) -> None:
        now = trio.current_time()
        for task in [each for each in self._known.values() if each.expires <= now]:
            self.forget(task)

    def forget(self, task: Task) -> None:
        """Forget a task that has expired or that its server does not know."""
        self._known.pop(task.id, None)
        if self._theirs.get((task.server, task.theirs)) is task:
            del self._theirs[task.server, task.theirs]


def renamed(members: Mapping[str, Raw], task: Task) -> dict[str, Raw]:
    """Put mcpd's id into the `_meta` of a message about a task."""
    named = renamed_at(bytes(members.get("_meta", b"")), _PATH, lambda _: task.id)
    return {**members, "_meta": Raw(named)} if named else {**members}


def renamed_result(result: Buffer, task: Task) -> Buffer:
    """Replace the server's task id in a result by mcpd's, if the result names the task."""
    raw = bytes(result)
    return renamed_at(raw, ("_meta", *_PATH), lambda _: task.id) if _RELATED in raw else result


def _required_of(members: Mapping[str, Raw]) -> dict[str, Raw]:
    return {key: members[key] for key in _REQUIRED if key in members and len(members[key]) < MAX_TASK_BYTES}


def _lifetime(members: Mapping[str, Raw]) -> float:
    milliseconds = decoded(_decode_ttl, members.get("ttlMs", members.get("ttl", Raw(b"null"))))
    seconds = LONGEST_SECONDS if milliseconds is None else milliseconds / 1000
    return min(max(seconds, 0.0), LONGEST_SECONDS)


_MAKES_TASKS = pattern(rb'"taskSupport"\s*:\s*"(?:optional|required)"')


def offers_tasks(view: View) -> bool:
    """Whether the view has a tool that can be called as a task."""
    tools = (tool for entry in view.servers.values() for tool in (entry.tools or {}).values())
    return any(_MAKES_TASKS.search(tool.parts.get("execution", b"")) for tool in tools)
