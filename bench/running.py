"""The real daemon for measuring: the tests' own harness, and an error that says why there is no number."""

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
"""Of the log, shown when something went wrong: a traceback in short."""


class Unmeasurable(Exception):
    """Something did not start, did not answer, or answered something else."""


class Daemon(harness.Daemon):
    """`mcpd run` in a directory of its own, from any checkout; its memory may be read from outside."""

    def __init__(self, directory: Path, config: Mapping[str, Any], code: Path = ROOT) -> None:
        """Write the configuration; `start` does the rest."""
        super().__init__(directory, config, {"MCPD_DUMPABLE": "1"}, code)
        self.configured: dict[str, Any] = dict(config)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self.process is not None
        return self.process.pid

    def write(self) -> None:
        """Write `configured` as it is now, whole or not at all."""
        fresh = self.config.with_suffix(".new")
        fresh.write_text(json.dumps(self.configured))
        fresh.replace(self.config)

    def wait_listed(self, expected: Mapping[str, int] | None = None) -> None:
        """Wait until all servers are up and have listed, or have listed so many tools each, usable or not."""
        wanted = expected or dict.fromkeys(self.configured["mcpServers"])

        def listed() -> bool:
            with suppress(DaemonUnreachable):
                known = self.ask("status")["servers"]
                return all(_has_listed(known[name], count) for name, count in wanted.items())
            return False

        eventually(listed, lambda: f"not all of {', '.join([*wanted][:5])} have listed")

    def quit(self) -> None:
        """End it, whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.stop()


def _has_listed(server: Mapping[str, Any], count: int | None) -> bool:
    tools = server["tools"] + len(server["quarantined"])
    return bool(server["state"] == "ready" and (tools > 0 if count is None else tools == count))


@contextmanager
def prepared(config: Mapping[str, Any], code: Path = ROOT) -> Iterator[Daemon]:
    """A daemon that is not started; in the end it is stopped and its directory is gone.

    Raises:
        Unmeasurable: from within, with the end of its log.
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
    """The same, started, its servers up.

    Args:
        config: the configuration.
        expected: server to the number of tools that it is going to list; any number where it is not said.
        code: the checkout whose daemon it is.
    """
    with prepared(config, code) as daemon:
        daemon.start()
        daemon.wait_listed(expected)
        yield daemon


@attrs.frozen
class Answer:
    """One answer as it came."""

    line: bytes = attrs.field(repr=False)
    """The message on the wire, without its newline."""
    result: dict[str, Any]
    """Its result, decoded."""


class Client(harness.RawClient):
    """A connection that keeps the bytes of each answer."""

    def __init__(self, daemon: Daemon, surface: str, **hello: Any) -> None:
        """Connect and say which surface is wanted, as `mcpd connect` does; `hello` is what else it wants."""
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
        """The handshake. Returns the instructions."""
        answer = self.result_of("initialize", INTRODUCTION)
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        text: str = answer.result.get("instructions", "")
        return text

    def result_of(self, method: str, params: dict[str, Any]) -> Answer:
        """Send a request and wait for its result, past notifications.

        Raises:
            Unmeasurable: it is a JSON-RPC error.
        """
        message = self.ask(method, params)
        if "error" in message:
            raise Unmeasurable(f"{method}: {message['error']}")
        return Answer(self._line.rstrip(b"\n"), message["result"])
