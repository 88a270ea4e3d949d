"""Sessions of clients on real SDKs, as scripts: their steps, and their results (`clients/surfaces.py`)."""

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.e2e.harness import MCP1, NODE, NODE24, ROOT, Daemon
from tests.waiting import WAIT

Json = dict[str, Any]

CLIENTS = Path(__file__).parent / "clients"
PYTHON = (sys.executable, str(CLIENTS / "surfaces.py"))
PYTHON1 = (str(MCP1), str(CLIENTS / "surfaces1.py"))
TYPESCRIPT = ("node", str(CLIENTS / "surfaces.mjs"), str(NODE / "@modelcontextprotocol" / "sdk"))
TYPESCRIPT2 = (NODE24, str(CLIENTS / "surfaces.mjs"), str(NODE / "@modelcontextprotocol" / "client"))

LIST: Json = {"list": True}
"""List all tools."""

CHANGED: Json = {"wait": "list_changed"}
"""Wait until the tools are announced as changed."""


def link(path: Path, to: Path) -> Json:
    """Make a symbolic link, by which a daemon can be found from then on."""
    return {"link": str(path), "to": str(to)}


def call(tool: str, /, **arguments: Any) -> Json:
    """Call a tool."""
    return {"call": tool, "arguments": arguments}


def followed(tool: str, /, **arguments: Any) -> Json:
    """Call a tool, and ask for progress."""
    return {**call(tool, **arguments), "progress": True}


def aborted(tool: str, /, **arguments: Any) -> Json:
    """Call a tool, and cancel at its first progress."""
    return {"abort": tool, "arguments": arguments}


def meanwhile(do: Callable[[], object]) -> Json:
    """Call a function of the test before the next step; the client stays connected."""
    return {"pause": do}


@attrs.frozen
class Outcome:
    """The results of a client's session."""

    instructions: str
    """The instructions that it got when it connected."""
    changes: int
    """The number of announced changes of the tools."""
    results: list[Json]
    """The result of each step."""

    @property
    def last(self) -> Json:
        """The result of the last step."""
        return self.results[-1]


class Clients:
    """A process that runs sessions, one after the other."""

    def __init__(self, argv: tuple[str, ...] = PYTHON) -> None:
        """Start it."""
        self._argv = argv
        self._process = self._started()

    def session(self, daemon: Daemon, *steps: Json, **job: Any) -> Outcome:
        """A session over the daemon's socket; `hello` and `mode` may be given."""
        return self._perform({"socket": str(daemon.socket), "steps": steps, **job})

    def bridged(self, daemon: Daemon, options: list[str], *steps: Json, **job: Any) -> Outcome:
        """A session through `mcpd connect OPTIONS`."""
        words = daemon.command("connect", "--socket", str(daemon.socket), *options)
        return self.spawned(words, *steps, **job)

    def spawned(self, command: list[str], *steps: Json, **job: Any) -> Outcome:
        """A session with a separate server process."""
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        return self._perform({"command": command, "env": environ, "steps": steps, **job})

    def over_http(self, url: str, headers: Mapping[str, str], *steps: Json, **job: Any) -> Outcome:
        """A session over streamable HTTP."""
        return self._perform({"url": url, "headers": headers, "steps": steps, **job})

    def _perform(self, job: Json) -> Outcome:
        pauses = [step["pause"] for step in job["steps"] if "pause" in step]
        self._tell(json.dumps(job, default=lambda _function: True))
        for do in pauses:
            assert self._told() == {"paused": True}
            try:
                do()
            except BaseException:
                # It would wait for the rest of its job when the next one comes.
                self.end()
                self._process = self._started()
                raise
            self._tell("go on")
        return Outcome(**self._told())

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def _told(self) -> Json:
        assert self._process.stdout is not None
        answered, _, _ = select.select([self._process.stdout], [], [], WAIT)
        line = self._process.stdout.readline() if answered else b""
        if not line:
            said = self.end()
            self._process = self._started()
            pytest.fail(said)
        told: Json = json.loads(line)
        return told

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def end(self) -> str:
        """End the process; returns what it wrote on stderr."""
        self._process.kill()
        _, errors = self._process.communicate()
        return errors.decode()


class Processes(dict[tuple[str, ...], Clients]):
    """The process of each SDK, by its command; started when first needed."""

    def __missing__(self, argv: tuple[str, ...]) -> Clients:
        self[argv] = Clients(argv)
        return self[argv]

    def end(self) -> None:
        """End all."""
        for each in self.values():
            each.end()


def names(listing: Json) -> list[str]:
    """The names in the result of `LIST`."""
    return [tool["name"] for tool in listing["tools"]]


def refusal(result: Json) -> Json:
    """The error in the result of a call that must have been refused."""
    assert result["isError"] is True, result
    error: Json = result["structured"]["error"]
    first = re.escape(f"{error['code']}: {error['message']}")
    assert re.fullmatch(rf"{first}(\n(definition|schema|printed): .+)*", result["text"]), result
    return error


def zone(result: Json) -> str:
    """The time zone in mcp-server-time's answer."""
    assert result["isError"] is False, result
    found: str = json.loads(result["text"])["timezone"]
    return found
