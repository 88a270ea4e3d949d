"""Runs models' scripts, each in a worker process with limits; tool calls are a script's only way out.

One more process owns the workers and their threads (`runner`): threads of the daemon would hold the interpreter
lock, for which the calls of others would wait. A script's calls are made in turns of the poll that no client
needs (`wire.outbox`).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from weakref import WeakValueDictionary

import msgspec
import trio
from msgspec import Raw

from daemon.config.tuning import ScriptLimits
from daemon.errors import ConnectionLost
from daemon.processes.children import Helper, start_helper
from daemon.scripting.runner import CRASHED, LIMIT, MADE, ScriptOutcome, line
from daemon.wire.envelope import Envelope, Line
from daemon.wire.link import FdLink
from daemon.wire.outbox import Outbox

Answer = Callable[[str, Raw], None]
"""Takes the error of a call, as its code and text, or an empty text and the JSON of the result."""
Call = Callable[[str, bytes, Answer], None]
"""Calls a tool by name, with a JSON object of arguments; answers once, unless the script ends first."""
Asking = Callable[[], bool]
"""Returns whether a user is being asked, which does not count as the script's time."""

PROGRAM = (sys.executable, "-P", "-m", "daemon.scripting.runner")
IDLE_SECONDS = 600.0
"""Seconds without a script after which the process that runs scripts ends: it takes 30 MB."""
START_SECONDS = 10.0
"""Most seconds for a worker to start, which do not count as the script's time."""
END_SECONDS = 5.0
"""Most seconds for a worker, and for the process that runs scripts, to end."""
WORKERS = 8
"""Most concurrent scripts, half of them for one owner. A worker takes 10 MB, besides its script's values."""
MOST_WORKERS = 32
"""Most concurrent scripts, including those whose users are asked: a user may take minutes."""
ASKED_SECONDS = 1800.0
"""Most seconds that a script's users may be asked in total: three of the longest questions (`approvals`)."""
CLOCK_SECONDS = 0.25
"""Seconds between checks whether a user is being asked."""
RESULT_BYTES = 8 * 1024 * 1024
"""Longest result of a call, as JSON. For the values of a script, prelude.txt has the limit."""
MAX_LINE = 16 * 1024 * 1024
"""Bytes of the longest message: results, and values of a million characters, are shorter."""

_decode = msgspec.json.Decoder(tuple[int, str, str] | ScriptOutcome | None).decode


class ScriptProcess:
    """The process that runs scripts: it starts with the first script and ends after ten idle minutes."""

    def __init__(self) -> None:
        self._running: Helper | None = None
        """The process, with the socket that hands it connections."""
        self._starting, self._used = trio.Lock(), 0.0

    async def keep(self) -> None:
        """End the process when it is idle, and when cancelled."""
        try:
            while True:
                await trio.sleep(IDLE_SECONDS / 10)
                if trio.current_time() > self._used + IDLE_SECONDS:
                    await self._end()
        finally:
            with trio.move_on_after(END_SECONDS, shield=True):
                await self._end()

    async def connect(self) -> socket.socket:
        """A connection for one script. Raises OSError: the system lacks a resource."""
        async with self._starting:
            self._used = trio.current_time()
            if self._running is not None and self._running.process.poll() is not None:
                await self._end()
            if self._running is None:
                self._running = await _started()
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    if not self._hand(theirs):
                        self._running = await _started()
                        self._hand(theirs)  # else it was killed just now, and the connection ends
                except BaseException:
                    ours.close()
                    raise
        return ours

    def _hand(self, connection: socket.socket) -> bool:
        """Hand a connection over; False if the process takes none: it is forgotten, and may yet run scripts."""
        assert self._running is not None
        running = self._running
        try:
            socket.send_fds(running.connection, [b"."], [connection.fileno()])
        except BrokenPipeError:
            self._running = None
            trio.lowlevel.spawn_system_task(_ended, running)
            return False
        return True

    async def _end(self) -> None:
        """Have the process end after its last script, and wait for the end."""
        if self._running is not None:
            running, self._running = self._running, None
            await _ended(running)


async def _ended(running: Helper) -> None:
    running.connection.close()
    await trio.to_thread.run_sync(running.wait, abandon_on_cancel=True)


async def _started() -> Helper:
    started = await trio.to_thread.run_sync(start_helper, PROGRAM)
    started.connection.setblocking(False)
    return started


class Interpreter:
    """Runs scripts concurrently, each in a separate worker that ends with it."""

    def __init__(self, process: ScriptProcess, workers: int = WORKERS) -> None:
        self.unavailable = (
            "" if find_spec("pydantic_monty") else "scripts need: pip install 'mcpd-supervisor[code]'"
        )
        """Why scripts cannot run; empty if they can."""
        self._host = process
        self._share, self.places = max(1, workers // 2), trio.CapacityLimiter(workers)
        self._shares = WeakValueDictionary[str, trio.CapacityLimiter]()

    async def run(
        self,
        code: str,
        inputs: bytes,
        call: Call,
        limits: ScriptLimits,
        asking: Asking,
        outbox: Outbox,
        owner: str = "",
    ) -> ScriptOutcome:
        """Run an owner's script, given inputs as a JSON object, to its end; cancelling it ends its worker."""
        share = self._shares.setdefault(owner, trio.CapacityLimiter(self._share))
        async with share, self.places:
            with await self._host.connect() as connection:
                script = _RunningScript(call, connection, outbox)
                return await script.run(line((code, Raw(inputs), limits)), limits.seconds, asking, self.places)


class _RunningScript:
    """A script that the other process runs; its calls are made in turns of the poll that no client needs."""

    def __init__(self, call: Call, connection: socket.socket, outbox: Outbox) -> None:
        self._call, self._connection, self._outbox = call, connection, outbox
        fd, most = os.dup(connection.fileno()), MAX_LINE
        os.set_blocking(fd, False)
        self._link = FdLink(fd, fd, outbox=outbox, max_line=most, max_queue=most, is_guest=True)
        self._started, self._outcome = trio.Event(), ScriptOutcome(error=CRASHED)
        self._late, self._has_ended = "", False
        self._ending = trio.CancelScope(shield=True)

    async def run(
        self, task: bytes, seconds: float, asking: Asking, places: trio.CapacityLimiter
    ) -> ScriptOutcome:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._guard, seconds, asking, places)
                self._link.send((task,))
                self._outbox.flush()
                with self._ending, suppress(ConnectionLost):
                    await self._link.run(self)
                nursery.cancel_scope.cancel()
        finally:
            self._link.close()
        if self._late:
            return ScriptOutcome(printed=self._outcome.printed, error=self._late, limit="seconds")
        return self._outcome

    async def _guard(self, seconds: float, asking: Asking, places: trio.CapacityLimiter) -> None:
        """End the script when its time or its questions' time is over, or when cancelled."""
        left, asked, lent = seconds, ASKED_SECONDS, False
        try:
            with trio.move_on_after(START_SECONDS):
                await self._started.wait()
            while left > 0 and asked > 0:
                await trio.sleep(step := min(left, CLOCK_SECONDS))
                is_asking = asking()
                left, asked = (left, asked - step) if is_asking else (left - step, asked)
                if is_asking != lent and (lent or places.total_tokens < MOST_WORKERS):
                    lent = is_asking
                    places.total_tokens += 1 if lent else -1
            self._late = f"it took longer than {seconds:g} s{LIMIT}"
            if left > 0:
                self._late = f"its users were asked for longer than {ASKED_SECONDS:g} s in all{MADE}"
        finally:
            places.total_tokens -= lent
            self._end()

    def _end(self) -> None:
        """Have the worker killed, after which the connection ends."""
        self._has_ended = True
        self._ending.deadline = trio.current_time() + END_SECONDS
        with suppress(OSError):  # it has ended already
            self._connection.shutdown(socket.SHUT_WR)

    def on_lines(self, lines: list[Line]) -> None:
        """Take the script's start, its calls, and its outcome."""
        for each in lines:
            message = _decode(each)
            if message is None:
                self._started.set()
            elif isinstance(message, ScriptOutcome):
                self._outcome = message
                if not self._has_ended:
                    self._ending.cancel()  # the worker may take its time, on a busy machine
                self._end()
            else:
                self._outbox.poll.guests.soon(partial(self._make, *message))

    def on_oversized(self, head: bytes) -> None:
        """Do nothing: the other process cuts names and measures values."""

    def on_message(self, message: Envelope, line: Line) -> None:
        """Do nothing: messages are lines."""

    def _make(self, number: int, name: str, arguments: str) -> None:
        if not self._has_ended:
            self._call(name, arguments.encode(), partial(self._answer, number))

    def _answer(self, number: int, error: str, result: Raw) -> None:
        if (size := memoryview(result).nbytes) > RESULT_BYTES:
            error = f"too_large: the result has {size:,} bytes, more than {RESULT_BYTES:,}"
        self._link.send((line((number, error, None if error else result)),))
