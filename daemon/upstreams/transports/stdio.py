"""Runs a server as a child process, over its stdin and stdout (MCP, stdio transport).

Exit or the end of stdout ends the connection: one can come without the other, for a grandchild that holds
stdout delays EOF, and a child may close stdout and live on. stderr is drained, since a full pipe would block.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import trio

from daemon.causes import Cause
from daemon.config.config_model import Server
from daemon.errors import CannotStart, ConnectionLost, RunError, leaf
from daemon.host import paths
from daemon.kit.wording import bytes_in_words
from daemon.processes.children import ChildProcess
from daemon.sandbox.launch import SandboxedStart
from daemon.upstreams.transports.server_connection import UPSTREAM_QUEUE_BYTES, OpenContext, RawConnection
from daemon.wire.link import FdLink

INHERITED = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),
    *("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
)
"""Variables that a child inherits: the MCP SDKs' list, and the places of certificates, for downloads behind a
proxy. All others must be in the server's `env`."""

LAST_WORDS = 0.05
"""Seconds to wait for exit after EOF, or the reverse: an answer may still be in the pipe, and an exit status
says more than EOF. Short, because callers wait meanwhile."""

STDERR_CHUNK = 64 * 1024
"""Bytes at which a line is passed on unfinished: the size of one read."""

LINES_AT_ONCE = 1000
"""Most lines passed on from one chunk: as many as are kept. A flood of short lines must not block the loop."""

EXIT_MEANINGS = {
    78: ": configuration error (EX_CONFIG)",
    126: ": found but not executable",
    127: ": command not found",
}
"""Meanings of some exit statuses (sysexits.h, and the shell's own)."""


def child_environment(environ: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: inherited variables, then the configured ones."""
    allowed = {name: environ[name] for name in INHERITED if name in environ}
    return {**allowed, **configured}


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[StdioConnection]:
    """Start the child and connect to it; on exit, end it with all its descendants.

    Raises CannotStart: the command can never run; ConnectionLost: it could not be run this time.
    """
    server = context.server
    await trio.to_thread.run_sync(_refuse_exchanged, server)
    async with AsyncExitStack() as held:
        start, env = None, child_environment(os.environ, server.env)
        lesson = context.lessons.get(server.name)
        if server.confined is not None or lesson is not None:
            start = await held.enter_async_context(context.sandboxes.prepared(server, env, lesson))
        yield await held.enter_async_context(_opened(context, env, start))


def _refuse_exchanged(server: Server) -> None:
    """Raise CannotStart if a link has taken the place of the workspace, which was allowed without any link."""
    workspace = server.instance and server.instance.workspace
    if workspace and os.path.realpath(workspace) != workspace:
        data = {"directory": workspace, "error": "a link has taken its place"}
        text = f"cannot start {server.command}: its directory {workspace}: {data['error']}"
        raise CannotStart(text, Cause.DIRECTORY_UNUSABLE, command=str(server.command), **data)


@asynccontextmanager
async def _opened(
    context: OpenContext, env: Mapping[str, str], start: SandboxedStart | None
) -> AsyncIterator[StdioConnection]:
    server = context.server
    child = await _started(context, env, start)
    link = FdLink(
        child.stdout,
        child.stdin,
        outbox=context.outbox,
        max_line=server.limits.message_bytes,
        max_queue=UPSTREAM_QUEUE_BYTES,
    )
    connection, stderr = StdioConnection(link, child, context, start), trio.lowlevel.FdStream(child.stderr)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain, stderr, connection.take_stderr)
            try:
                if start is not None and (listener := await start.listener()) is not None:
                    egress = start.lesson.egress if start.lesson else context.egress
                    assert egress is not None
                    await nursery.start(egress.serve, listener)
                context.events.on_child(child.pid, child.mark)
                yield connection
            finally:
                link.close_write()
                await context.children.stop(child, eof=server.timeouts.stop_eof, term=server.timeouts.stop_term)
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise leaf(group) from None
    finally:
        link.close()
        stderr.close()


async def _started(context: OpenContext, env: Mapping[str, str], start: SandboxedStart | None) -> ChildProcess:
    server = context.server
    assert server.command is not None
    directory = server.cwd or str(paths.home(os.environ))
    begin = partial(context.children.start, cwd=directory, server=server.label, limits=server.limits)
    if start is None:
        return await begin(server.command, server.args, env)
    with start.given:
        return await begin(start.words[0], start.words[1:], start.env, passed=start.passed)


class StdioConnection(RawConnection):
    """A `RawConnection` to a child process, which can also exit."""

    def __init__(
        self, link: FdLink, child: ChildProcess, context: OpenContext, start: SandboxedStart | None
    ) -> None:
        super().__init__(link, outbox=context.outbox, events=context.events)
        self._child, self._start = child, start
        self._on_log, self._complaint = context.events.on_log, b""
        self._ended: RunError | None = None

    def take_stderr(self, line: bytes) -> None:
        """Pass a line of stderr on."""
        if line.startswith((b"bwrap: ", b"nsenter: ")):
            self._complaint = line
        self._on_log(line)

    async def run(self) -> None:
        """Receive until the child closes its stdout or exits, whichever comes first."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_exit)
                await super().run()
        except BaseExceptionGroup as group:
            error = leaf(group)
            raise (await self._with_exit(error) if isinstance(error, ConnectionLost) else error) from None

    async def _watch_exit(self) -> None:
        await self._child.process.wait()
        await trio.sleep(LAST_WORDS)
        raise self._exit()

    async def _with_exit(self, lost: ConnectionLost) -> RunError:
        """Wait a moment for the exit status: EOF usually means that the child is about to exit."""
        with trio.move_on_after(LAST_WORDS):
            await self._child.process.wait()
            return self._exit()
        return lost

    def _exit(self) -> RunError:
        if self._ended is None:
            status = self._child.process.returncode
            assert status is not None
            over = self._child.leaf and self._child.leaf.outgrown()
            unmade = self._start and self._start.failure(status, self._complaint.decode(errors="replace"))
            self._ended = outgrown(*over) if over else unmade or exited(status)
        return self._ended


def exited(status: int) -> ConnectionLost:
    """The error for an exit status; negative numbers are signals, as in `subprocess`."""
    if status == 0:
        return ConnectionLost("exited with status 0", Cause.ENDED)
    if status > 0:
        text = f"exited with status {status}{EXIT_MEANINGS.get(status, '')}"
        return ConnectionLost(text, Cause.EXITED, status=status)
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return ConnectionLost(f"killed by {name}", Cause.KILLED, signal=name)


def outgrown(used: int, limit: int) -> ConnectionLost:
    """The error for a server that the kernel killed at its memory limit."""
    text = f"used {bytes_in_words(used)} of memory, its limit (limits.memoryBytes): the kernel killed it"
    return ConnectionLost(text, Cause.MEMORY_CEILING, used=used, limit=limit)


async def drain(stderr: trio.lowlevel.FdStream, on_line: Callable[[bytes], None]) -> None:
    """Read a stream to its end, line by line; overlong lines are split."""
    rest, told = b"", False
    async for chunk in stderr:
        *lines, rest = (rest + chunk).split(b"\n")
        if told and lines:
            del lines[0]
            told = False
        for line in lines[-LINES_AT_ONCE:]:
            on_line(line)
        if len(rest) > STDERR_CHUNK and not told:
            on_line(rest)
            told = True
        if told:
            rest = b""
    if rest:
        on_line(rest)
