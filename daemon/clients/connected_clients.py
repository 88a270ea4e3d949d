"""All connected clients, as servers reach them outside of calls: notifications, roots and tasks.

mcpd's id of a task cannot be guessed and is good only for the session that made it; the server's may repeat at
another server. Tasks lost with a connection are kept as failed until they would have expired.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio
from msgspec import Raw, Struct

from daemon.clients.server_requests import COMPLETE
from daemon.clients.subscribers import LogLevels, ResourceSubscriptions
from daemon.config.labels import server_of
from daemon.errors import Overloaded
from daemon.history.event import Event, EventKind
from daemon.kit.waiting import Watch
from daemon.model import StandingWishes
from daemon.protocol import LIST_ROOTS, LOG_MESSAGE, RELATED_TASK_KEY, RESOURCE_UPDATED, TASK_STATUS
from daemon.wire.envelope import INVALID_REQUEST, is_utf8
from daemon.wire.requests import NO_CLIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from daemon.catalog.authorship import UnsafeQuestion
    from daemon.clients.notifications import ConnectedClient
    from daemon.clients.server_requests import ServerRequests
    from daemon.ports import TaskOwner
    from daemon.surfaces.surface import View
    from daemon.wire.envelope import Buffer
    from daemon.wire.requests import Exchange, PeerRequest, RemoteError

MAX_OWN_TASKS = 256
"""Tasks of one session: as many as it may have calls in flight."""

MAX_TASKS = 10_000
"""Tasks of all sessions, some 10 MB."""

MAX_TASK_BYTES = 8 * 1024
"""Bytes of a task's state that are kept or sent; a longer state is cut to what MCP requires."""

LONGEST_SECONDS = 24 * 3600.0
"""Seconds until every task is forgotten, also one that its server keeps without end (`ttl`: null)."""

ENDED = frozenset({"completed", "failed", "cancelled"})
"""Final states of a task."""

_REQUIRED = ("taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval")
_RELATED = RELATED_TASK_KEY.encode()

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_ttl = msgspec.json.Decoder(float | None).decode
_encode = msgspec.json.encode


@attrs.define(eq=False, kw_only=True)
class Task:
    """One task of a client at a server."""

    id: str
    server: str
    theirs: str
    owner: Hashable
    """The session that made the task (`owner_in`)."""
    notifier: ConnectedClient
    """The connection of that session that last asked about the task."""
    expires: float
    """On trio's clock."""
    state: dict[str, Raw] = attrs.field(factory=dict, repr=False)
    gone: bool = False
    waiting: TaskOwner | None = None
    """The `tasks/result` that waits for the task and carries the server's requests."""

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        with suppress(msgspec.MsgspecError):
            return self.gone or _decode_text(self.state.get("status", Raw(b'""'))) in ENDED
        return self.gone

    # --- wire.requests.Exchange, as far as servers ask ------------------------------------------------------

    def asked(self, request: PeerRequest) -> None:
        """Relay a server's request to the task's client, on the stream of the waiting `tasks/result`."""
        if self.waiting is not None:
            self.waiting.asked(request)
        else:
            self.notifier.ask(request, self.expires)

    @property
    def asker(self) -> object:
        """The client that made the task."""
        return self.notifier.asker


class ClientTasks:
    """The tasks of all clients."""

    def __init__(self) -> None:
        self._known: dict[str, Task] = {}
        self._theirs: dict[tuple[str, str], Task] = {}

    def __len__(self) -> int:
        return len(self._known)

    def require_room(self, owner: Hashable) -> None:
        """Check that a session may make one more task. Raises Overloaded: there are too many."""
        self._forget_old()
        if len(self.of(owner)) >= MAX_OWN_TASKS or len(self._known) >= MAX_TASKS:
            text = "too many tasks are known. Wait until some of them are forgotten (their ttl)."
            raise Overloaded(text, bound="tasks that are known")

    def made(
        self, server: str, owner: Hashable, notifier: ConnectedClient, members: Mapping[str, Raw]
    ) -> Task | None:
        """Record a task that a server has made for a session; None if the task has no id."""
        try:
            theirs = _decode_text(members["taskId"])
        except (KeyError, msgspec.MsgspecError):
            return None
        if (before := self._theirs.get((server, theirs))) is not None:
            # A server that repeats an id has one task of that id.
            self._forget(before)
        ours = secrets.token_urlsafe(24)
        task = Task(
            id=ours, server=server, theirs=theirs, owner=owner, notifier=notifier, expires=_expiry(members)
        )
        self._known[ours] = self._theirs[server, theirs] = task
        self.note(task, members)
        return task

    def find(self, task_id: str, owner: Hashable) -> Task | None:
        """The task with this id; None if unknown or another session's."""
        self._forget_old()
        task = self._known.get(task_id)
        return task if task is not None and task.owner == owner else None

    def of(self, owner: Hashable) -> list[Task]:
        """The tasks of a session, oldest first."""
        self._forget_old()
        return [task for task in self._known.values() if task.owner == owner]

    def are_open(self, server: str) -> bool:
        """Whether a server works on a task."""
        self._forget_old()
        return any(task.server == server and not task.has_ended for task in self._known.values())

    def note(self, task: Task, members: Mapping[str, Raw]) -> dict[str, Raw]:
        """Record a task's state; returns its members with mcpd's id."""
        named = {**members, "taskId": Raw(_encode(task.id))}
        kept = {key: value for key, value in named.items() if key != "_meta"}
        if sum(map(len, kept.values())) > MAX_TASK_BYTES:
            kept = _required_of(kept)
        if "status" in kept:
            # Copied: a view would keep the whole message in memory.
            task.state = {key: value.copy() for key, value in kept.items()}
        return named

    def leave(self, notifier: ConnectedClient) -> None:
        """Forget the tasks of a disconnected client, unless its session may come back for them."""
        for task in list(self._known.values()):
            if task.owner is notifier.asker:
                self._forget(task)

    def hear(self, server: str, params: Raw) -> None:
        """Pass a server's notification about a task to its client."""
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
            members = _decode_members(params)
            task = self._theirs.get((server, _decode_text(members["taskId"])))
            if task is not None and not task.gone:
                named = renamed(self.note(task, members), task)
                # Kept for a client that reads slowly, one for each task.
                named = named if len(params) <= MAX_TASK_BYTES else _required_of(named)
                task.notifier.enqueue(task, TASK_STATUS, _encode(named))

    def owner_of(self, request: PeerRequest) -> Task | None:
        """The task that a server's request belongs to, renamed in the request to mcpd's id."""
        if request.params is None or _RELATED not in bytes(request.params):
            return None
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
            members = _decode_members(request.params)
            related = _decode_members(_decode_members(members["_meta"])[RELATED_TASK_KEY])
            task = self._theirs.get((request.server, _decode_text(related["taskId"])))
            if task is not None and not task.gone:
                request.params = Raw(_encode(renamed(members, task)))
                return task
        return None

    def lost(self, server: str) -> None:
        """Notify clients that a server's tasks have failed: its connection has ended."""
        for task in list(self._known.values()):
            if task.server == server and not task.gone:
                was_over, task.gone = task.has_ended, True
                self._theirs.pop((server, task.theirs), None)
                if not was_over:
                    text = Raw(_encode(f"the connection to server {server} was lost, and the task with it"))
                    task.state = {**task.state, "status": Raw(b'"failed"'), "statusMessage": text}
                    task.notifier.enqueue(task, TASK_STATUS, _encode(task.state))

    def _forget_old(self) -> None:
        now = trio.current_time()
        for task in [each for each in self._known.values() if each.expires <= now]:
            self._forget(task)

    def _forget(self, task: Task) -> None:
        self._known.pop(task.id, None)
        if self._theirs.get((task.server, task.theirs)) is task:
            del self._theirs[task.server, task.theirs]


def renamed(members: Mapping[str, Raw], task: Task) -> dict[str, Raw]:
    """Members of a message about a task, with mcpd's id in `_meta`."""
    named = dict(members)
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        meta = _decode_members(members["_meta"])
        related = _decode_members(meta[RELATED_TASK_KEY])
        meta[RELATED_TASK_KEY] = Raw(_encode({**related, "taskId": task.id}))
        named["_meta"] = Raw(_encode(meta))
    return named


def renamed_result(result: Buffer, task: Task) -> Buffer:
    """A server's result with mcpd's id in place of the server's, if it names the task."""
    raw = bytes(result)
    if _RELATED not in raw:
        return result
    try:
        return _encode(renamed(_decode_members(raw), task))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return result


def _required_of(members: Mapping[str, Raw]) -> dict[str, Raw]:
    return {key: members[key] for key in _REQUIRED if key in members and len(members[key]) < MAX_TASK_BYTES}


def _expiry(members: Mapping[str, Raw]) -> float:
    seconds: float | None = None
    with suppress(msgspec.MsgspecError):
        milliseconds = _decode_ttl(members.get("ttl", Raw(b"null")))
        seconds = None if milliseconds is None else milliseconds / 1000
    seconds = LONGEST_SECONDS if seconds is None else seconds
    return trio.current_time() + min(max(seconds, 0.0), LONGEST_SECONDS)


class _Execution(Struct):
    taskSupport: str = "forbidden"  # noqa: N815 - the wire's name


_decode_execution = msgspec.json.Decoder(_Execution).decode


def offers_tasks(view: View) -> bool:
    """Whether a server in the view has a tool that can be called as a task."""
    return any(
        _makes_tasks(tool.parts["execution"])
        for entry in view.servers.values()
        for tool in (entry.tools or {}).values()
        if "execution" in tool.parts
    )


def _makes_tasks(execution: bytes) -> bool:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_execution(execution).taskSupport in {"optional", "required"}
    return False


class RootsOfClients:
    """The clients that have roots."""

    def __init__(self) -> None:
        self._clients: dict[ConnectedClient, None] = {}
        self._refused: set[str] = set()

    def ask(self, request: PeerRequest) -> None:
        """Put a request that belongs to no call to the only eligible client, or refuse it."""
        only = self._only(request.server) if request.method == LIST_ROOTS else None
        if only is not None:
            only.ask_roots(request)
            return
        if request.method == LIST_ROOTS:
            self._refused.add(request.server)
        request.refuse(INVALID_REQUEST, NO_CLIENT)

    def join(self, client: ConnectedClient) -> None:
        """Add a client that has roots."""
        self._clients[client] = None
        self._tell_refused()

    def leave(self, client: ConnectedClient) -> None:
        """Remove a client."""
        self._clients.pop(client, None)
        self._tell_refused()

    def gone(self, server: str) -> None:
        """Forget a server that was removed."""
        self._refused.discard(server)

    def _tell_refused(self) -> None:
        for server in list(self._refused):
            only = self._only(server)
            if only is not None:
                self._refused.discard(server)
                only.tell_roots_changed(server)

    def _only(self, server: str) -> ConnectedClient | None:
        found = [client for client in self._clients if client.sees(server)]
        return found[0] if len(found) == 1 else None


class ConnectedClients:
    """The connected clients: `ports.Subscribers`."""

    def __init__(self, gather: Callable[[Event], None] = lambda _event: None) -> None:
        """Begin without clients; `gather` takes refused questions, which may be many."""
        self._gather = gather
        self._wishes: dict[str, Watch[StandingWishes]] = {}
        self.levels = LogLevels(self.refresh_levels)
        self.resources = ResourceSubscriptions(self.refresh_wishes)
        self.tasks = ClientTasks()
        self.roots = RootsOfClients()
        self.sent_to_urls: dict[ServerRequests, None] = {}

    def refresh_levels(self) -> None:
        """Recompute the wanted log levels: a client has come, left or changed servers."""
        for server, watch in self._wishes.items():
            level = self.levels.wished(server)
            # Subscriptions do not depend on this, and may be ten thousand URIs.
            if level != watch.value.level:
                watch.set(attrs.evolve(watch.value, level=level))

    def forget(self, client: ConnectedClient) -> None:
        """Forget a client that has disconnected."""
        self.roots.leave(client)
        # Servers keep the roots that they know: now they ask the remaining client, or the next one.
        client.roots_changed()
        self.levels.leave(client)
        self.resources.leave(client)
        self.tasks.leave(client)

    # --- ports.Subscribers ----------------------------------------------------------------------------------

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        """Deliver a server's notification to its subscribers (`ports.Subscribers.hear`)."""
        if not is_utf8(bytes(params)):
            # Unread: the payload is the client's.
            return
        if method == LOG_MESSAGE:
            self.levels.hear(server, params, cause)
        elif method == RESOURCE_UPDATED:
            self.resources.hear(server, params)
        elif method == TASK_STATUS:
            self.tasks.hear(server, params)
        elif method == COMPLETE:
            for each in list(self.sent_to_urls):
                each.hear(server, params)

    def wishes(self, server: str) -> Watch[StandingWishes]:
        """The subscriptions of all clients at a server (`ports.Subscribers.wishes`)."""
        if server not in self._wishes:
            self._wishes[server] = Watch(StandingWishes())
            self.refresh_wishes(server)
        return self._wishes[server]

    def settled(self, server: str, uri: str, refusal: RemoteError | None) -> None:
        """Record whether a server sends updates of a resource (`ports.Subscribers.settled`)."""
        self.resources.settled(server, uri, refusal)

    def owner_of(self, request: PeerRequest) -> TaskOwner | None:
        """The owner of the task that a server's request belongs to (`ports.Subscribers.owner_of`)."""
        return self.tasks.owner_of(request)

    def ask(self, request: PeerRequest) -> None:
        """Put a request that no call has caused to the only eligible client, or refuse it."""
        self.roots.ask(request)

    def unsafe(self, server: str, why: UnsafeQuestion) -> None:
        """Record a server's question that was withheld from users (`ports.Subscribers.unsafe`)."""
        kind, details = EventKind.QUESTION_REFUSED, {"reason": why.reason}
        self._gather(Event(kind=kind, server=server_of(server), text=str(why), details=details))

    def uses(self, server: str) -> bool:
        """Whether a client needs a server outside of calls (`ports.Subscribers.uses`)."""
        return bool(self.resources.wished(server)) or self.tasks.are_open(server)

    def lost(self, server: str) -> None:
        """Handle the end of a connection to a server (`ports.Subscribers.lost`)."""
        self.resources.lost(server)
        self.tasks.lost(server)

    def gone(self, server: str) -> None:
        """Forget a removed server or an ended instance (`ports.Subscribers.gone`)."""
        self.lost(server)
        self.resources.gone(server)
        self.roots.gone(server)
        self._wishes.pop(server, None)

    def refresh_wishes(self, server: str) -> None:
        """Recompute the subscriptions at a server."""
        watch = self._wishes.get(server)
        if watch is None:
            return
        wished = StandingWishes(level=self.levels.wished(server), uris=self.resources.wished(server))
        if wished != watch.value:
            watch.set(wished)
