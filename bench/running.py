"""Runs the daemon for measurements with the tests' harness, and has an error for failed ones."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs

from daemon.cli.control import DaemonUnreachable
from tests.e2e import harness
from tests.e2e.harness import ROOT, own_directory
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

INTRODUCTION = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}
"""The params of `initialize`."""

LOG_LINES = 20
"""Lines of the log to show after a failure: a short traceback."""


class Unmeasurable(Exception):
    """Something did not start, did not answer, or gave an unexpected answer."""


class Daemon(harness.Daemon):
    """`mcpd run` in a temporary directory, from any checkout; other processes may read its memory."""

    def __init__(self, directory: Path, config: Mapping[str, Any], code: Path = ROOT) -> None:
        """Write the configuration; `start` starts it."""
        super().__init__(directory, config, {"MCPD_DUMPABLE": "1"}, code)
        self.configured: dict[str, Any] = dict(config)

    @property
    def pid(self) -> int:
        """The daemon's pid."""
        assert self.process is not None
        return self.process.pid

    def write(self) -> None:
        """Write `configured` to the file atomically."""
        fresh = self.config.with_suffix(".new")
        fresh.write_text(json.dumps(self.configured))
        fresh.replace(self.config)

    def wait_listed(self, expected: Mapping[str, int] | None = None) -> None:
        """Wait until all servers are up with their lists, or with these numbers of tools, usable or not."""
        wanted = expected or dict.fromkeys(self.configured["mcpServers"])

        def listed() -> bool:
            with suppress(DaemonUnreachable):
                known = self.ask("status")["servers"]
                return all(_has_listed(known[name], count) for name, count in wanted.items())
            return False

        eventually(listed, lambda: f"not all of {', '.join([*wanted][:5])} have listed")

    def quit(self) -> None:
        """End the daemon in any state."""
        if self.process is not None and self.process.poll() is None:
            self.stop()


def _has_listed(server: Mapping[str, Any], count: int | None) -> bool:
    tools = server["tools"] + len(server["quarantined"])
    return bool(server["state"] == "ready" and (tools > 0 if count is None else tools == count))


@contextmanager
def prepared(config: Mapping[str, Any], code: Path = ROOT) -> Iterator[Daemon]:
    """A daemon that is not started; in the end it is stopped and its directory removed.

    Raises:
        Unmeasurable: raised in the block, with the end of the log.
    """
    daemon = Daemon(own_directory(), config, code)
    try:
        yield daemon
    except (Unmeasurable, AssertionError, OSError) as error:
        # Not the lines of calls: there is one for each.
        lines = daemon.said().splitlines() if daemon.log.exists() else []
        said = "\n".join([line for line in lines if "] call " not in line][-LOG_LINES:])
        raise Unmeasurable(f"{error}. The daemon's log ends with:\n{said}") from None
    finally:
        daemon.quit()
        shutil.rmtree(daemon.directory, ignore_errors=True)


@contextmanager
def running(
    config: Mapping[str, Any], expected: Mapping[str, int] | None = None, code: Path = ROOT
) -> Iterator[Daemon]:
    """A started daemon whose servers are up.

    Args:
        config: the configuration.
        expected: the number of tools of servers; for others, any number.
        code: the checkout of the daemon.
    """
    with prepared(config, code) as daemon:
        daemon.start()
        daemon.wait_listed(expected)
        yield daemon


@attrs.frozen
class Answer:
    """One answer."""

    line: bytes = attrs.field(repr=False)
    """The message on the wire, without its newline."""
    result: dict[str, Any]
    """Its result, decoded."""


class Client(harness.RawClient):
    """A connection that keeps the bytes of the last answer."""

    def __init__(self, daemon: Daemon, surface: str, **hello: Any) -> None:
        """Connect and ask for a surface, as `mcpd connect` does; `hello` has its other members."""
        super().__init__(daemon.socket)
        self._line = b""
        self.hello(surface=surface, **hello)

    def receive(self) -> dict[str, Any]:
        """The next message."""
        self._line = self._file.readline()
        if not self._line:
            raise Unmeasurable("the daemon closed the connection")
        message: dict[str, Any] = json.loads(self._line)
        return message

    def introduce(self) -> str:
        """Make the handshake. Returns the instructions."""
        answer = self.result_of("initialize", INTRODUCTION)
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        text: str = answer.result.get("instructions", "")
        return text

    def result_of(self, method: str, params: dict[str, Any]) -> Answer:
        """Send a request and wait for its result; notifications are skipped.

        Raises:
            Unmeasurable: the answer is a JSON-RPC error.
        """
        message = self.ask(method, params)
        if "error" in message:
            raise Unmeasurable(f"{method}: {message['error']}")
        return Answer(self._line.rstrip(b"\n"), message["result"])
