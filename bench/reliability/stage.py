"""A daemon to measure, and a client that records the time of each answer."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from bench.calls.wires import kilobytes
from tests.e2e.harness import Daemon, RawClient, own_directory, scripted, started
from tests.waiting import WAIT, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Json = dict[str, Any]

FREE: Json = {"base": 0.01, "cap": 0.01, "floor": 0, "freeAfter": 0, "stableAfter": 0.001}
"""Restart settings without pauses: the daemon's speed is measured, not its backoff."""

LOOK_SECONDS = 0.002
"""Seconds between checks for an event in another process: short in comparison with every bar."""

SETTLE_SECONDS = 15.0
"""Seconds that idle resources may take to go: trio keeps an idle thread for 10 s."""


def server(restart: Mapping[str, Any] | None = None, **script: Any) -> Json:
    """The `mcpServers` entry of a scripted server."""
    more: Json = {key: script.pop(key) for key in ("timeouts", "limits") if key in script}
    return {**scripted(**script), **({"restart": dict(restart)} if restart else {}), **more}


class Watched(Daemon):
    """A daemon with instrumentation (`watched.py`)."""

    def command(self, *words: str) -> list[str]:
        """The usual command, but `run` with instrumentation."""
        if words[0] != "run":
            return super().command(*words)
        program = Path(__file__).with_name("watched.py")
        return [sys.executable, str(program), str(self.directory / "window"), *words]

    @property
    def pid(self) -> int:
        """The daemon's pid."""
        assert self.process is not None
        return self.process.pid

    def look(self) -> Json:
        """The number of its `tasks`, and the loop's longest `stall` in seconds since the last report."""
        report = self.directory / "window"
        number = json.loads(report.read_text())["number"] if report.exists() else 0
        os.kill(self.pid, signal.SIGUSR2)

        def told() -> Json | None:
            found: Json | None = json.loads(report.read_text()) if report.exists() else None
            return found if found and found["number"] > number else None

        return eventually(told, self.said) or {}

    def holdings(self) -> Holdings:
        """The resources that the daemon holds of the kernel and of trio."""
        return Holdings.of(self.pid, tasks=self.look()["tasks"])

    def settled(self, before: Holdings) -> Holdings:
        """Its holdings, once they are no larger than before, or after a while."""
        until = time.monotonic() + SETTLE_SECONDS
        while (now := self.holdings()).exceeds(before) and time.monotonic() < until:
            time.sleep(0.1)
        return now

    def client(self, **kwargs: Any) -> Line:
        """A client on its socket."""
        return Line(self.socket, **kwargs)

    def server(self, name: str) -> Json:
        """One server, as in the status."""
        found: Json = self.ask("status")["servers"][name]
        return found


@attrs.frozen(kw_only=True)
class Holdings:
    """The resources that a process holds."""

    fds: int
    threads: int
    zombies: int
    tasks: int
    memory: int
    """Resident bytes."""

    @classmethod
    def of(cls, pid: int, *, tasks: int = 0) -> Holdings:
        """Count the resources of a process."""
        place = Path(f"/proc/{pid}")
        return cls(
            fds=sum(1 for _ in (place / "fd").iterdir()),
            threads=sum(1 for _ in (place / "task").iterdir()),
            zombies=sum(is_zombie(child) for child in children_of(pid)),
            tasks=tasks,
            memory=memory_of(pid),
        )

    def exceeds(self, before: Holdings) -> bool:
        """Whether any count other than memory has grown."""
        return any(getattr(self, name) > getattr(before, name) for name in COUNTED)

    def growth(self, before: Holdings) -> dict[str, float]:
        """The growth of each count."""
        return {name: getattr(self, name) - getattr(before, name) for name in (*COUNTED, "memory")}


COUNTED = ("fds", "threads", "zombies", "tasks")


def status_of(pid: int) -> dict[str, str]:
    """`/proc/PID/status`; empty if there is no such process."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return {}


def memory_of(pid: int, *, peak: bool = False) -> int:
    """Resident bytes of a process, or their peak since its last reset."""
    return kilobytes(pid, "VmHWM" if peak else "VmRSS") * 1024


def children_of(pid: int) -> list[int]:
    """Direct children of a process, dead ones included."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def is_zombie(pid: int) -> bool:
    """Whether a process has ended but was not waited for."""
    return status_of(pid).get("State", "").startswith("Z")


class Line(RawClient):
    """A client with many calls in flight, on the surface of categories."""

    def __init__(self, path: Path, *, timeout: float = WAIT) -> None:
        """Connect."""
        super().__init__(path, timeout=timeout)
        self.begun: dict[int, float] = {}
        """Send times of calls whose answers were not taken yet."""
        self._came: dict[int, tuple[float, Json]] = {}

    def begin(self, category: str, tool: str, _meta: Json | None = None, **arguments: Any) -> int:
        """Send a call; returns its id."""
        self._last += 1
        params: Json = {
            "name": "call-category-tool",
            "arguments": {"category": category, "name": tool, "args": arguments},
            **({"_meta": _meta} if _meta else {}),
        }
        request = {"jsonrpc": "2.0", "id": self._last, "method": "tools/call", "params": params}
        line = json.dumps(request).encode()
        self.begun[self._last] = time.perf_counter()
        self.send(line)
        return self._last

    def end(self, number: int) -> tuple[float, Json]:
        """The time of a call's answer, on `time.perf_counter`, and the answer."""
        while number not in self._came:
            message = self.receive()
            if message.get("id") in self.begun and "method" not in message:
                assert message["id"] not in self._came, f"answered twice: {message}"
                self._came[message["id"]] = (time.perf_counter(), message)
            else:
                self.notices.append(message)
        del self.begun[number]
        return self._came.pop(number)

    def took(self, category: str, tool: str, **arguments: Any) -> tuple[float, Json]:
        """Call and wait: the seconds, and the answer."""
        number = self.begin(category, tool, **arguments)
        sent = self.begun[number]
        at, message = self.end(number)
        return at - sent, message

    def succeeds(self, category: str, tool: str = "echo", **arguments: Any) -> Json:
        """Call until it succeeds, ignoring refusals of unsent calls. Returns the answer."""
        until = time.monotonic() + WAIT
        while (code := code_of(message := self.took(category, tool, **arguments)[1])) != "":
            assert code in {"UpstreamUnavailable", "UpstreamLost"}, message
            assert time.monotonic() < until, message
        return message


def code_of(message: Json) -> str:
    """The error code of an answer; empty for a result."""
    if "error" in message:
        return f"rpc {message['error']['code']}"
    result = message["result"]
    if not result.get("isError"):
        return ""
    structured = result.get("structuredContent") or {}
    return str((structured.get("error") or {}).get("code", "tool"))


def text_of(message: Json) -> str:
    """The text of a result."""
    found: str = message["result"]["content"][0]["text"]
    return found


@contextmanager
def at_work(
    servers: Mapping[str, Json] | Callable[[Path], Mapping[str, Json]], *, ready: bool = True, **config: Any
) -> Iterator[Watched]:
    """Run a daemon with these servers, all ready unless `ready` is false; nothing of it remains in the end.

    Args:
        servers: the entries, or a function that makes them from the daemon's directory.
        ready: whether to wait for the servers.
        config: other configuration.
    """
    directory = own_directory()
    made = servers(directory) if callable(servers) else servers
    daemon = Watched(directory, {"mcpServers": dict(made), **config}, {})
    with started(daemon):
        if ready:
            daemon.ready()
        yield daemon


def when(look: Any, *, seconds: float = WAIT) -> float:
    """Repeat a check until it is true. Returns the time, on `time.perf_counter`.

    Raises:
        AssertionError: it was not true within `seconds`.
    """
    until = time.perf_counter() + seconds
    while not look():
        assert time.perf_counter() < until, f"not within {seconds:g} s"
        time.sleep(LOOK_SECONDS)
    return time.perf_counter()
