"""Runs the official conformance suite, and reads its summary."""

import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from tests.e2e.harness import NODE, NODE24, ROOT
from tests.e2e.raw_http import HttpDoor
from tests.waiting import WAIT, background

BASELINES = Path(__file__).parent / "conformance"
"""Scenarios and checks that are expected to fail, in a file for each revision."""
SUITE = NODE / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
REVISIONS = ("2025-11-25", "2026-07-28")
SDK = ROOT / ".cache" / "sdk"
"""Parts of the Python SDK's source distribution that no wheel has (scripts/sdist)."""
FIXTURE = SDK / "examples" / "servers" / "everything-server"
"""The suite's server on the Python SDK: it has each tool, prompt and resource that a scenario asks for."""
SUITE_SECONDS = 3 * WAIT
"""Real seconds for a run of the suite: seconds on an idle machine, minutes on a busy one."""


@attrs.frozen
class Scenario:
    """The result of one scenario."""

    name: str
    passed: int
    failed: int

    @property
    def is_good(self) -> bool:
        """Whether no check failed; the suite skipped scenarios without checks."""
        return not self.failed


@attrs.frozen
class Report:
    """The summary of a run of the suite."""

    status: int
    said: str
    scenarios: tuple[Scenario, ...]
    unscored: frozenset[str]
    """Scenarios that the suite runs but does not count for the revision."""

    @property
    def scored(self) -> list[Scenario]:
        """Scenarios that count for the revision."""
        return [each for each in self.scenarios if each.name not in self.unscored]

    @property
    def failed(self) -> list[str]:
        """The names of scenarios with a failed check, scored or not."""
        return [each.name for each in self.scenarios if not each.is_good]

    @property
    def checks(self) -> tuple[int, int]:
        """The number of passed checks, and of all checks."""
        passed = sum(each.passed for each in self.scenarios)
        return passed, passed + sum(each.failed for each in self.scenarios)


async def run_suite(*words: str, environ: Mapping[str, str] | None = None) -> Report:
    """Run the suite to its end."""
    given: dict[str, Any] = {} if environ is None else {"env": dict(environ)}
    with trio.fail_after(SUITE_SECONDS):
        done = await trio.run_process(
            [NODE24, str(SUITE), *words], capture_stdout=True, capture_stderr=True, check=False, **given
        )
    return read(done.returncode, done.stdout.decode() + done.stderr.decode())


def read(status: int, said: str) -> Report:
    """The summary at the end of a run."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
    scenarios = re.findall(r"^[✓✗] ([\w/-]+): (\d+) passed, (\d+) failed", plain, re.MULTILINE)
    assert scenarios, plain
    unscored = re.findall(r"^  [✓✗] ([\w/-]+) \(", plain, re.MULTILINE)
    return Report(
        status,
        plain,
        tuple(Scenario(name, int(passed), int(failed)) for name, passed, failed in scenarios),
        frozenset(unscored),
    )


@asynccontextmanager
async def opened(door: HttpDoor, *place: str) -> AsyncIterator[str]:
    """The URL of a profile and surface, for clients that cannot send a token."""
    async with carrying(f"Authorization: {door.headers()['Authorization']}", door.port) as port:
        yield "/".join((f"http://127.0.0.1:{port}/mcp", *place))


def fixture_over_stdio() -> dict[str, Any]:
    """The `mcpServers` entry of the suite's server, as a child."""
    program = "from mcp_everything_server.server import mcp; mcp.run()"
    return {"command": sys.executable, "args": ["-c", program], "env": {"PYTHONPATH": str(FIXTURE)}}


def fixture_command(port: int) -> list[str]:
    """The same server, listening at `/mcp` on this port; it finds its modules in `FIXTURE`."""
    return [sys.executable, "-m", "mcp_everything_server", "--port", str(port), "--log-level", "WARNING"]


def documented(document: Path, first: str) -> list[int]:
    """The numbers in the table row that begins with this cell: each `A of B` gives two."""
    row = re.search(rf"^\| {re.escape(first)} \|(.*)\|$", document.read_text(), re.MULTILINE)
    assert row is not None, f"{document.name} has no row {first!r}"
    return [int(number) for pair in re.findall(r"(\d+) of (\d+)", row[1]) for number in pair]


# --- A reverse proxy that adds a header to each request, for clients that cannot be told to sen --------------


CHUNK = 65536
END_OF_HEAD = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)


@asynccontextmanager
async def carrying(header: str, port: int) -> AsyncIterator[int]:
    """Yields a port of this machine whose requests go to `port` with one more header."""
    async with background() as nursery:
        carry = partial(_carry, f"\r\n{header}".encode(), port)
        listeners = await nursery.start(partial(trio.serve_tcp, carry, 0, host="127.0.0.1"))
        yield listeners[0].socket.getsockname()[1]


async def _carry(header: bytes, port: int, client: trio.SocketStream) -> None:
    """Forward one connection until one side ends it."""
    daemon = await trio.open_tcp_stream("127.0.0.1", port)
    async with client, daemon, trio.open_nursery() as nursery:

        async def ended(carried: Callable[[], Awaitable[None]]) -> None:
            with suppress(trio.BrokenResourceError):
                await carried()
            nursery.cancel_scope.cancel()

        nursery.start_soon(ended, partial(_requests, client, daemon, header))
        nursery.start_soon(ended, partial(_bytes, daemon, client))


async def _requests(client: trio.SocketStream, daemon: trio.SocketStream, header: bytes) -> None:
    buffer = b""
    while True:
        while END_OF_HEAD not in buffer:
            chunk = await client.receive_some(CHUNK)
            if not chunk:
                return
            buffer += chunk
        head, _, buffer = buffer.partition(END_OF_HEAD)
        assert not CHUNKED.search(head), head
        length = LENGTH.search(head)
        left = int(length[1]) if length else 0
        await daemon.send_all(head + header + END_OF_HEAD)
        while left:
            body, buffer = buffer[:left], buffer[left:]
            await daemon.send_all(body)
            left -= len(body)
            if left:
                buffer = await client.receive_some(CHUNK)
                if not buffer:
                    return


async def _bytes(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    while chunk := await source.receive_some(CHUNK):
        await sink.send_all(chunk)
