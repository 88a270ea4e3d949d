"""Somebody for whom no daemon runs yet, and the windows of their clients."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from daemon.bridge.stand_in import STATUS
from daemon.processes import proc
from tests.e2e.forking import FORKS
from tests.scripted_server import command
from tests.unit.cli.daemons import ROOT
from tests.waiting import PATIENCE, WAIT, eventually, run_to_end

Json = dict[str, Any]

PROGRAM, *ARGS = command(tools=["echo"])
GOOD: Json = {"mcpServers": {"one": {"command": PROGRAM, "args": ARGS}}, "lazy": False}
FAULTY: Json = {"mcpServers": {}, "limits": {"starts": "many"}}


@attrs.frozen
class User:
    """Somebody with a home and a runtime directory of their own, for whom no daemon runs."""

    home: Path

    @property
    def environ(self) -> dict[str, str]:
        own = {"HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.home / "r")}
        return {**own, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}

    @property
    def front(self) -> Path:
        return self.home / "r" / "mcpd" / "mcpd.sock"

    @property
    def log(self) -> Path:
        return self.home / ".local" / "state" / "mcpd" / "daemon.log"

    def configure(self, config: Json) -> None:
        path = self.home / ".config" / "mcpd" / "mcpd.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(config))

    @property
    def code(self) -> Path:
        """The directory in which commands are given."""
        return self.home

    def command(self, *words: str) -> list[str]:
        """`mcpd WORDS`."""
        return [sys.executable, "-P", "-m", "daemon", *words]

    def mcpd(
        self, *words: str, cwd: Path | None = None, path: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; forked, where the tests of a module are (`forking`)."""
        environ = self.environ | ({"PATH": str(path)} if path else {})
        if FORKS.is_running:
            return FORKS.run([*words], environ, cwd or self.home)
        return run_to_end(self.command(*words), env=environ, cwd=cwd or self.home)

    def status_without_reader(self, *words: str) -> int:
        """The exit status of a command whose output is read to the end of the first line, and no further."""
        command = self.command(*words)
        with subprocess.Popen(command, env=self.environ, cwd=self.home, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            process.stdout.close()
            try:
                return process.wait(WAIT)
            finally:
                process.kill()

    def start(self, *words: str) -> Json:
        done = self.mcpd("start", "--json", *words)
        assert done.returncode == 0, done.stderr
        answer: Json = json.loads(done.stdout)
        return answer

    @contextmanager
    def window(self, *words: str, cwd: Path | None = None) -> "Iterator[Window]":
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "daemon", "connect", *words],
            env=self.environ,
            cwd=cwd or self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Window(process)
        finally:
            process.kill()
            process.communicate(timeout=PATIENCE)


@attrs.define
class Window:
    """A client behind `mcpd connect`."""

    process: subprocess.Popen[str]
    last: int = 0

    def send(self, method: str, **params: Any) -> int:
        assert self.process.stdin is not None
        self.last += 1
        request = {"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.last

    def receive(self, request: int) -> Json:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: Json = json.loads(line)
            if message.get("id") == request:
                return message
        raise AssertionError("the bridge has ended")

    def ask(self, method: str, **params: Any) -> Json:
        return self.receive(self.send(method, **params))

    def greet(self) -> None:
        self.receive(self.hail())
        self.notify("notifications/initialized")

    def hail(self) -> int:
        info = {"name": "window", "version": "1"}
        return self.send("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)

    def notify(self, method: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method}) + "\n")
        self.process.stdin.flush()

    def hear(self, text: str) -> None:
        """Wait until the bridge says something on its stderr."""
        assert self.process.stderr is not None
        assert any(text in line for line in self.process.stderr)

    def tools(self) -> list[str]:
        """The tools of the daemon, once there is one."""

        def look() -> list[str]:
            names = [tool["name"] for tool in self.ask("tools/list")["result"]["tools"]]
            return [] if names == [STATUS] else names

        return eventually(look)

    def status(self) -> str:
        """What the tool says that stands in for those of a daemon."""
        result = self.ask("tools/call", name=STATUS, arguments={})["result"]
        text: str = result["content"][0]["text"]
        return text


@pytest.fixture
def user(sockets: Path) -> Iterator[User]:
    found = User(sockets)
    (sockets / "r").mkdir(mode=0o700)
    found.configure(GOOD)
    yield found
    found.mcpd("stop")


def pid_of(user: User) -> int:
    return int(user.front.with_name("mcpd.sock.lock").read_text())


def ended(pid: int) -> bool:
    # Not every machine's first process reaps orphans at once.
    found = proc.read(pid)
    return found is None or found.is_dead
