"""The tasks that servers work on for clients (MCP 2025-11-25, SEP-2663), and results too large for a context.

mcpd's id of a task or result cannot be guessed and is good only for the session that made it; a server's may
repeat at another server. Tasks lost with a connection are kept as failed until they would have expired. Results
are files. One thread at a time works on them, never the loop; one that cannot be written passes whole.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired, run
from typing import Any, TypeVar

import attrs
import msgspec
import trio
from loguru import logger
from msgspec import Raw, Struct

from daemon.catalog.tool_results import END, MEMORY, SECONDS
from daemon.clients.client import owner_in
from daemon.clients.notifications import ConnectedClient
from daemon.errors import InvalidArguments, Overloaded, ResultExpired
from daemon.ports import TaskOwner
from daemon.processes import marks
from daemon.protocol import RELATED_TASK_KEY, TASK_STATUS, UNREADABLE, decode_members, decode_text, decoded
from daemon.surfaces.additions import FRAME, answer, cut_result, read_from, start_of, taken_apart
from daemon.surfaces.surface import ReadResult, View
from daemon.wire.envelope import INTERNAL_ERROR, Buffer
from daemon.wire.requests import PeerRequest

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

_REQUIRED = ("taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval", "ttlMs", "pollIntervalMs")
_RELATED = RELATED_TASK_KEY.encode()

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
    """On trio's clock."""
    state: dict[str, Raw] = attrs.field(factory=dict, repr=False)
    made: float = attrs.field(factory=trio.current_time, init=False)
    gone: bool = False
    unwanted: bool = False
    """Whether its client has cancelled it, and need not poll it any more."""
    outlives: bool = False
    """Whether the server may keep the task when its connection ends: the server is no child of mcpd's."""
    convert: Callable[[Buffer], bytes] | None = attrs.field(default=None, repr=False)
    """Converts the result of the call for its surface (`surfaces.surface.Forward`)."""

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self.gone or decoded(decode_text, self.state.get("status", Raw(b'""'))) in ENDED

    @property
    def is_known_to_end(self) -> bool:
        """Whether the final state is here with its result, which may have been too large to keep."""
        return self.has_ended and ("result" in self.state or bytes(self.state["status"]) != b'"completed"')

    def note_lost(self, text: str) -> None:
        """Record that the task has failed with its server's connection."""
        error = {"code": INTERNAL_ERROR, "message": text}
        failed = {"status": "failed", "statusMessage": text, "error": error}
        self.state |= {key: Raw(_encode(value)) for key, value in failed.items()}
        self.state.pop("inputRequests", None)


@attrs.define(eq=False, kw_only=True)
class RequestedTask(Task):
    """A task that its client has asked for and is notified of (MCP 2025-11-25, tasks)."""

    notifier: ConnectedClient
    """The connection of the session that last asked about the task."""
    waiting: TaskOwner | None = None
    """The `tasks/result` that waits for the task and carries the server's requests."""

    @property
    def is_known_to_end(self) -> bool:
        """Whether the state is final: the result has a request of its own."""
        return self.has_ended

    def note_lost(self, text: str) -> None:
        """Record that the task has failed, and notify its client."""
        super().note_lost(text)
        del self.state["error"]
        self.notifier.enqueue(self, TASK_STATUS, _encode(self.state))

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


T = TypeVar("T", bound=Task)


class ClientTasks:
    """The tasks of all clients."""

    def __init__(self) -> None:
        self._known: dict[str, Task] = {}
        self._theirs: dict[tuple[str, str], Task] = {}
        self.polled: dict[object, str] = {}
        """The servers of tasks that mcpd polls itself (`task_results.PolledTask`)."""

    def __len__(self) -> int:
        return len(self._known)

    def require_room(self, owner: Hashable) -> None:
        """Check that a session may make one more task. Raises Overloaded: there are too many."""
        if len(self.of(owner)) >= MAX_OWN_TASKS or len(self._known) >= MAX_TASKS:
            text = "too many tasks are known. Wait until some of them are forgotten (their ttl)."
            raise Overloaded(text, bound="tasks that are known")

    def made(
        self, server: str, owner: Hashable, notifier: ConnectedClient, members: Mapping[str, Raw]
    ) -> RequestedTask | None:
        """Record a task that a client has asked for; None if the task has no id."""
        return self._added(partial(RequestedTask, notifier=notifier), server, owner, members)

    def handed_out(
        self,
        server: str,
        owner: Hashable,
        members: Mapping[str, Raw],
        *,
        outlives: bool,
        convert: Callable[[Buffer], bytes] | None,
    ) -> Task | None:
        """Record a task that a server has made of a call (SEP-2663); None if the task has no id."""
        return self._added(partial(Task, outlives=outlives, convert=convert), server, owner, members)

    def _added(
        self, make: Callable[..., T], server: str, owner: Hashable, members: Mapping[str, Raw]
    ) -> T | None:
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

    def of(self, owner: Hashable) -> list[Task]:
        """The tasks of a session, of both revisions, oldest first."""
        self._forget_old()
        return [task for task in self._known.values() if task.owner == owner]

    def are_open(self, server: str) -> bool:
        """Whether a server works on a task."""
        self._forget_old()
        return server in self.polled.values() or any(
            task.server == server and not (task.unwanted or task.has_ended) for task in self._known.values()
        )

    def note(self, task: Task, members: Mapping[str, Raw]) -> dict[str, Raw]:
        """Record a task's state; returns its members with mcpd's id."""
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
            if isinstance(task, RequestedTask) and not task.gone:
                named = renamed(self.note(task, members), task)
                # Kept for a client that reads slowly, one for each task.
                named = named if len(params) <= MAX_TASK_BYTES else _required_of(named)
                task.notifier.enqueue(task, TASK_STATUS, _encode(named))

    def owner_of(self, request: PeerRequest) -> RequestedTask | None:
        """The task that a server's request belongs to, renamed in the request to mcpd's id."""
        if request.params is None or _RELATED not in bytes(request.params):
            return None
        with suppress(*UNREADABLE, KeyError):
            members = decode_members(request.params)
            related = decode_members(decode_members(members["_meta"])[RELATED_TASK_KEY])
            task = self._theirs.get((request.server, decode_text(related["taskId"])))
            if isinstance(task, RequestedTask) and not task.gone:
                request.params = Raw(_encode(renamed(members, task)))
                return task
        return None

    def lost(self, server: str, *, wholly: bool = False) -> None:
        """Record that a server's tasks have failed: its connection has ended, or it is gone (`wholly`)."""
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
        """Forget a task: it has expired, or its server does not know it."""
        self._known.pop(task.id, None)
        if self._theirs.get((task.server, task.theirs)) is task:
            del self._theirs[task.server, task.theirs]


def renamed(members: Mapping[str, Raw], task: Task) -> dict[str, Raw]:
    """Members of a message about a task, with mcpd's id in `_meta`."""
    named = dict(members)
    with suppress(*UNREADABLE, KeyError):
        meta = decode_members(members["_meta"])
        related = decode_members(meta[RELATED_TASK_KEY])
        meta[RELATED_TASK_KEY] = Raw(_encode({**related, "taskId": task.id}))
        named["_meta"] = Raw(_encode(meta))
    return named


def renamed_result(result: Buffer, task: Task) -> Buffer:
    """A server's result with mcpd's id in place of the server's, if it names the task."""
    raw = bytes(result)
    if _RELATED not in raw:
        return result
    members = decoded(decode_members, raw)
    return result if members is None else _encode(renamed(members, task))


def _required_of(members: Mapping[str, Raw]) -> dict[str, Raw]:
    return {key: members[key] for key in _REQUIRED if key in members and len(members[key]) < MAX_TASK_BYTES}


def _lifetime(members: Mapping[str, Raw]) -> float:
    milliseconds = decoded(_decode_ttl, members.get("ttlMs", members.get("ttl", Raw(b"null"))))
    seconds = LONGEST_SECONDS if milliseconds is None else milliseconds / 1000
    return min(max(seconds, 0.0), LONGEST_SECONDS)


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
    said = decoded(_decode_execution, execution)
    return said is not None and said.taskSupport in {"optional", "required"}


# --- results too large for a context -------------------------------------------------------------------------


MAX_BYTES = 64 * 2**20  # kept for one session; the oldest results leave first

MAX_AGE, SWEEP_SECONDS = 3600.0, 60.0  # after its last use a result is removed, and how often they are

DISK_SECONDS = 10.0
"""Seconds that an answer waits for the disk; a result that is not written by then passes whole."""

SEARCH_SECONDS, SEARCHES = 20.0, 2  # of a search, with its wait for others; and searches at once

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

Key = tuple[object, str, str]  # a session (`client.owner_in`), its profile, and the id of a result


PROGRAM = (sys.executable, "-P", "-m", "daemon.catalog.tool_results")
MISSING = "jq needs an extra of mcpd (tell the user: pip install 'mcpd-supervisor[code]')"


class KeptResults:
    """The kept results of all sessions."""

    def __init__(self, root: Path = Path(os.devnull, "results")) -> None:
        self._root, self._told = root, False
        self._kept: dict[Key, tuple[int, float]] = {}
        """Size and last use on trio's clock, which is before all times until the file is written."""
        self._searches = trio.CapacityLimiter(SEARCHES)
        self._disk = partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(1), abandon_on_cancel=True)

    async def run(self) -> None:
        """Remove what earlier daemons have left, then what expires, until cancelled."""
        await self._disk(partial(shutil.rmtree, self._root, ignore_errors=True))
        while True:
            await trio.sleep(SWEEP_SECONDS)
            await self._disk(self._expire, trio.current_time())

    def take(self, call: Any, result: Buffer) -> bool:
        """Keep the result of a call (`calls.ClientCall`), and answer it then. False: it is answered already."""
        if call.upstream is None or call.finished is not None or not call.calls.is_open(call):
            return False
        call.finished, call.convert = bytes(result), None
        keep = partial(self.keep, call, call.finished)
        call.calls.act_after(call, keep, lambda call: call.calls.finish(call, call.finished, "ok"))
        return True

    async def keep(self, call: Any, whole: bytes) -> None:
        """Set what a client gets of a result; the whole result if it cannot be kept."""
        key, room = _key(call, secrets.token_hex(16)), call.calls.client.selection.most_bytes
        try:
            with trio.fail_after(DISK_SECONDS):
                call.finished = await self._disk(self._keep, key, whole, room, trio.current_time())
        except (OSError, RuntimeError, trio.TooSlowError, *UNREADABLE) as error:
            if not self._told:
                logger.warning("a large result is passed on whole, since it cannot be kept: {!r}", error)
            self._told = True

    async def read(self, call: Any, asked: ReadResult) -> None:
        """Set the answer to `read_result`, or the contents of a resource. Raises CallError."""
        try:
            with trio.fail_after(DISK_SECONDS):
                whole = await self._disk(self._read, _key(call, asked.id), trio.current_time())
        except (KeyError, OSError, trio.TooSlowError):
            text = (
                "it is not kept any more: results are kept for an hour, in their session. Call the tool again."
            )
            raise ResultExpired(text) from None
        if asked.grep or asked.jq:
            found = await self._search((await self._disk(taken_apart, whole))[0], asked)
            shown = start_of(found, asked.room - FRAME)
            call.finished = answer(shown, f"{len(shown.encode())} of {len(found)} bytes found")
        else:
            call.finished = await self._disk(read_from, whole, asked)

    async def _search(self, text: bytes, asked: ReadResult) -> bytes:
        told = msgspec.json.encode((asked.room, asked.grep, asked.jq)) + b"\n" + text
        fault = f"it took more than {SECONDS} s or {MEMORY >> 20} MiB: search for less"
        with trio.move_on_after(SEARCH_SECONDS), suppress(TimeoutExpired):
            done = await trio.to_thread.run_sync(search, told, limiter=self._searches, abandon_on_cancel=True)
            if done.stdout.endswith(END):
                return done.stdout.removesuffix(END)
            fault = done.stderr.decode().partition("Error: ")[2] or fault
        raise InvalidArguments(fault.replace("No module named 'jq'", MISSING))

    def _expire(self, now: float) -> None:
        for key, (_size, used) in list(self._kept.items()):
            if used <= now - MAX_AGE or getattr(key[0], "left", False):
                del self._kept[key]
                with suppress(OSError):
                    (self._root / key[-1]).unlink()

    def _keep(self, key: Key, whole: bytes, room: int, now: float) -> bytes:
        shorter = cut_result(whole, room, key[-1])
        mine = {each: size for each, (size, _used) in self._kept.items() if each[:-1] == key[:-1]}
        while mine and sum(mine.values()) + len(whole) > MAX_BYTES:
            oldest = next(iter(mine))
            self._kept[oldest] = mine.pop(oldest), -MAX_AGE
        self._expire(now)
        self._kept[key] = len(whole), -MAX_AGE
        self._root.mkdir(0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(self._root / key[-1], NEW, 0o600), "wb") as file:
            file.write(whole)
        self._kept[key] = len(whole), now
        return shorter

    def _read(self, key: Key, now: float) -> bytes:
        self._expire(now)
        self._kept[key] = self._kept[key][0], now
        return (self._root / key[-1]).read_bytes()


def _key(call: Any, result_id: str) -> Key:
    return owner_in(call.request.key, call.calls.client), call.request.profile.name, result_id


def search(told: bytes) -> CompletedProcess[bytes]:
    """Run such a process to its end, in this thread. Raises TimeoutExpired."""
    mark = marks.new()
    marks.started(mark, marks.ELSEWHERE)
    try:
        return run(PROGRAM, input=told, capture_output=True, timeout=2 * SECONDS, env={}, check=False)
    finally:
        marks.forget(mark)
