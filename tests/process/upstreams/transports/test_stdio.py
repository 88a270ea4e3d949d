"""A server behind two pipes: what ends the connection, what is drained, what is left."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from daemon.causes import Cause, Reason
from daemon.errors import CannotStart, ConnectionLost, UpstreamLost
from daemon.processes.children import Children
from daemon.upstreams.transports import stdio
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.wire.outbox import Outbox
from tests.faults.stage import Recorder, is_alive, leaving_nothing, recording, scripted
from tests.unit.cases import cases
from tests.unit.upstreams.transports.listening import Listener
from tests.waiting import PATIENCE, background, in_time

HELLO: dict[str, object] = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}


class Line:
    """A connection under test."""

    def __init__(self, connection: stdio.StdioConnection, listener: Listener, recorder: Recorder) -> None:
        self.connection = connection
        self.listener = listener
        self.recorder = recorder
        self.end: BaseException | None = None
        self.ended = trio.Event()

    async def run(self) -> None:
        try:
            await self.connection.run()
        except (ConnectionLost, CannotStart) as error:
            self.end = error
            self.ended.set()

    async def greet(self) -> bytes:
        return await self.connection.request("initialize", HELLO, timeout=PATIENCE)

    async def act(self, **action: Any) -> bytes:
        params: dict[str, object] = {"name": "act", "arguments": action}
        return await self.connection.request("tools/call", params, timeout=PATIENCE)

    async def over(self) -> str:
        """Wait for the end; its text."""
        await in_time(self.ended.wait())
        return str(self.end)


@asynccontextmanager
async def connected(path: Path, **script: Any) -> AsyncIterator[Line]:
    """A connection to a scripted child; nothing is left of it afterwards."""
    async with recording(path) as recorder, leaving_nothing(recorder), trio.open_nursery() as nursery:
        listener, children = Listener(), Children()
        nursery.start_soon(children.reap_orphans)
        server = scripted(record=recorder.path, **script)
        context = OpenContext(server=server, events=listener, outbox=Outbox(), children=children)
        try:
            async with stdio.open_connection(context) as connection, background() as inner:
                line = Line(connection, listener, recorder)
                inner.start_soon(line.run)
                yield line
        finally:
            with trio.move_on_after(PATIENCE):  # adopted orphans are reaped in their own time
                while any(_exists(pid) for pid in recorder.pids):  # noqa: ASYNC110
                    await trio.sleep(0.005)
            nursery.cancel_scope.cancel()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# --- directory and environment ------------------------------------------------------------------------------


def test_a_child_sees_the_allow_list_and_what_is_configured_for_it() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/home/me",
        "TOKEN": "canary",
        "NOTIFY_SOCKET": "/run/n",
        "LISTEN_FDS": "1",
    }
    found = stdio.child_environment(environ, {"KEY": "1", "HOME": "/elsewhere"})
    assert found == {"PATH": "/bin", "HOME": "/elsewhere", "KEY": "1"}


async def test_a_real_child_sees_nothing_else(tmp_path: Path) -> None:
    async with connected(tmp_path, env={"KEY": "1", "LC_CTYPE": "C.UTF-8"}) as line:
        found = await line.recorder.wait("start")
    inherited = {name: os.environ[name] for name in stdio.INHERITED if name in os.environ}
    assert found["env"] == {**inherited, "KEY": "1", "LC_CTYPE": "C.UTF-8"}
    assert found["fds"] == [0, 1, 2]
    assert found["pdeathsig"] == 0


# --- the end, of which there are two kinds -------------------------------------------------------------------


async def test_a_closed_stdout_ends_the_connection_although_the_child_lives(tmp_path: Path) -> None:
    async with connected(tmp_path, ignore=["eof", "term"]) as line:
        await line.greet()
        with pytest.raises(UpstreamLost):
            await line.act(close_stdout=True, never=True)
        assert "closed the connection" in await line.over()
        assert is_alive(line.listener.children[0][0])


async def test_a_closed_stdout_right_before_an_exit_is_told_as_the_exit(tmp_path: Path) -> None:
    async with connected(tmp_path, on={"ping": {"close_stdout": True, "delay": 0, "exit": 3}}) as line:
        await line.greet()
        with suppress(UpstreamLost):
            await line.connection.request("ping", {}, timeout=PATIENCE)
        assert await line.over() == "exited with status 3"


async def test_an_answer_written_right_before_the_exit_arrives(tmp_path: Path) -> None:
    """The exit may be noticed before the pipe has been read."""
    answer = '{"jsonrpc":"2.0","id":2,"result":{"content":[]}}\n'
    for _ in range(5):
        async with connected(tmp_path, on={"tools/call": {"write": answer, "exit": 0}}) as line:
            await line.greet()
            assert await line.act() == b'{"content":[]}'
            await line.over()


# --- output -------------------------------------------------------------------------------------------------


async def test_last_words_on_stderr_are_kept(tmp_path: Path) -> None:
    async with connected(tmp_path, stderr="one\nFATAL: no licence", on={"start": {"exit": 1}}) as line:
        await line.over()
    assert line.listener.logged == ["one", "FATAL: no licence"]


# --- leaving ------------------------------------------------------------------------------------------------


async def test_a_cancelled_connection_leaves_nothing(tmp_path: Path) -> None:
    for steps in (0, 1, 2, 3, 5, 8, 13, 21):
        with trio.CancelScope() as scope:
            async with recording(tmp_path) as recorder, leaving_nothing(recorder):
                server = scripted(record=recorder.path, ignore=["term"])
                context = OpenContext(server=server, events=Listener(), outbox=Outbox(), children=Children())
                with trio.CancelScope() as inner:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(_live, context)
                        for _ in range(steps):
                            await trio.lowlevel.checkpoint()
                        inner.cancel()
        assert not scope.cancelled_caught


async def _live(context: OpenContext) -> None:
    async with stdio.open_connection(context) as connection:
        await connection.run()


# --- small parts --------------------------------------------------------------------------------------------


@cases("status", "text", "cause", "data")
def test_an_exit_status_is_told_in_words_and_as_a_cause(
    status: int, text: str, cause: str, data: dict[str, Any]
) -> None:
    assert stdio.exited(status).reason == Reason(text, Cause(cause), data)


ENDLESS = b"x" * (stdio.STDERR_CHUNK + 1)
"""A line that is told before it ends."""


async def drained(*chunks: bytes) -> list[str]:
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    stderr, lines = trio.lowlevel.FdStream(read), list[str]()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stdio.drain, stderr, lambda line: lines.append(line.decode(errors="replace")))
            for chunk in chunks:
                os.write(write, chunk)
                await trio.testing.wait_all_tasks_blocked()
            os.close(write)
    stderr.close()
    return lines


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([], []),
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"o", b"ne\nt", b"wo"], ["one", "two"]),
        ([b"\n\n"], ["", ""]),
        ([b"\xff\n"], ["\ufffd"]),
        ([ENDLESS[:100], ENDLESS[100:], b"y\nz\n"], [ENDLESS.decode(), "z"]),
        ([ENDLESS[:100], ENDLESS[100:], b"y" * 50_000, b"y"], [ENDLESS.decode()]),
    ],
)
async def test_a_stream_is_drained_line_by_line(chunks: list[bytes], lines: list[str]) -> None:
    assert await drained(*chunks) == lines
