"""The system's mcpd, as its administrator sees it: systemctl, the journal, the control groups, the sockets."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from daemon.cli import control
from tests.e2e.harness import RawClient
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Json = dict[str, Any]

PATIENCE = 60.0
"""Seconds that anything may take; what is promised to be quicker is measured and told."""

UNIT = "mcpd.service"
MCPD = "/usr/lib/mcpd/bin/mcpd"
FRONT = Path("/run/mcpd.sock")
CONTROL = Path("/run/mcpd/control.sock")
CONFIG = Path("/etc/mcpd/mcpd.json")
AS_INSTALLED = Path(__file__).with_name("mcpd.json")
DROP_INS = Path("/run/systemd/system/mcpd.service.d")
STATE = Path("/var/lib/private/mcpd")
"""The state directory, from outside; the service and its children see it as /var/lib/mcpd."""
HIERARCHIES = [Path("/sys/fs/cgroup", name) for name in ("unified", "systemd", "")]
"""Where systemd keeps the control groups: beside those of cgroup v1, in one of them, or alone."""

LISTED, MEMBER, OTHER, OWN, SERVED = 59001, 59002, 59003, 59004, 59005
"""Users of users.conf."""

PROGRAM = ["/usr/bin/python3", "-S", "-E"]
SCRIPTED = "/usr/lib/mcpd-tests/scripted_server.py"


KNOCK = """
import json, socket, sys
door = socket.socket(socket.AF_UNIX)
door.settimeout(60)
try:
    door.connect(sys.argv[1])
    door.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode() + b"\\n")
    print(json.dumps(door.recv(1000).decode()))
except OSError as error:
    print(json.dumps(type(error).__name__))
"""
"""Connects to a socket and pings; prints the answer, nothing if it was hung up on, or the error."""


def run(*words: str | Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, **options)
    assert not check or done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
    return done


def scripted(**script: Any) -> Json:
    """The `mcpServers` entry of a scripted server."""
    return {"command": PROGRAM[0], "args": [*PROGRAM[1:], SCRIPTED, json.dumps(script)]}


def as_user(uid: int) -> list[str]:
    """What runs a command as a user, with the groups that a login would give."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--init-groups"]


def knock(uid: int, door: Path) -> str:
    """What a user hears who connects, with the groups that a login would give them."""
    answer: str = json.loads(run(*as_user(uid), "/usr/bin/python3", "-c", KNOCK, str(door)).stdout)
    return answer


class Bridge(RawClient):
    """A bare client of `mcpd connect`, which a user runs with the environment that MCP clients give."""

    def __init__(self, uid: int) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(PATIENCE)
        command = [*as_user(uid), "env", "-i", "HOME=/", "PATH=/usr/bin", MCPD, "connect"]
        with theirs:
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno())
        self._file = self._socket.makefile("rb")
        self._last = 0
        self.notices: list[Json] = []

    def ask_later(self, method: str, params: Json) -> int:
        """Send a request, wait for nothing; returns its id."""
        self._last += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}).encode())
        return self._last

    def answer_to(self, request: int) -> Json:
        """The answer to an earlier request, past notifications."""
        while (message := self.receive()).get("id") != request:
            self.notices.append(message)
        return message

    def close(self) -> None:
        """Hang up; the bridge ends."""
        super().close()
        self._process.wait(PATIENCE)


class Service:
    """mcpd.service."""

    told: ClassVar[list[str]] = []
    """Lines for the end of the run."""

    def __init__(self) -> None:
        self._cursor = ""
        self.forget()

    def forget(self) -> None:
        """Let `said` begin here."""
        self._cursor = run("journalctl", "-n0", "--show-cursor").stdout.rpartition("-- cursor: ")[2].strip()

    # --- systemd --------------------------------------------------------------------------------------------

    def ctl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`systemctl WORDS`."""
        return run("systemctl", *words, check=check)

    def show(self, key: str, unit: str = UNIT) -> str:
        """One property of a unit."""
        return self.ctl("show", "--value", f"--property={key}", unit).stdout.strip()

    @property
    def pid(self) -> int:
        """The daemon's own process; 0 if there is none."""
        return int(self.show("MainPID"))

    def reset(self) -> None:
        """Everything as installed: units, configuration, state; the socket listens, the daemon is stopped."""
        self.ctl("stop", UNIT)
        self.restore()
        self.ctl("reset-failed")
        self.ctl("start", "mcpd.socket")
        self.forget()

    def restore(self) -> None:
        """Units and configuration as installed; nothing is started or stopped."""
        shutil.copy(AS_INSTALLED, CONFIG)
        if DROP_INS.exists():
            shutil.rmtree(DROP_INS)
            self.ctl("daemon-reload")

    def configure(self, servers: Json, *unit: str, files: Json | None = None) -> None:
        """Write a configuration, and lines for a drop-in of the unit's [Service]; nothing is started anew."""
        config = {"mcpServers": servers, "listen": {"uids": [LISTED]}, **(files or {})}
        CONFIG.write_text(json.dumps(config))
        if unit:
            DROP_INS.mkdir(parents=True, exist_ok=True)
            (DROP_INS / "test.conf").write_text("\n".join(["[Service]", *unit, ""]))
            self.ctl("daemon-reload")

    def begin(self, servers: Json, *unit: str, **files: Any) -> None:
        """Run with these servers, every one ready, under a unit with these lines."""
        self.configure(servers, *unit, files=files)
        self.ctl("restart", UNIT)
        self.ready()

    def said(self) -> str:
        """What the journal has of the unit, since the test began."""
        return run("journalctl", "-o", "cat", "-u", UNIT, f"--after-cursor={self._cursor}").stdout

    def heard(self, text: str) -> str:
        """Wait until the journal has a text; returns all that it has."""
        return eventually(lambda: said if text in (said := self.said()) else "", self.said)

    # --- the daemon -----------------------------------------------------------------------------------------

    def client(self) -> RawClient:
        """A connection to the front, as root."""
        return RawClient(FRONT, timeout=PATIENCE)

    def ask(self, method: str, **params: Any) -> Json:
        """Ask over the control socket."""
        return control.ask(method, params, path=str(CONTROL), timeout=PATIENCE)

    def servers(self) -> dict[str, Json]:
        """Servers, as in the status."""
        found: dict[str, Json] = self.ask("status")["servers"]
        return found

    def ready(self, *names: str) -> dict[str, Json]:
        """Wait until these servers, or all, are ready."""

        def look() -> dict[str, Json]:
            found = self.servers()
            return found if all(found[name]["state"] == "ready" for name in names or found) else {}

        return eventually(look, self.said)

    # --- processes ------------------------------------------------------------------------------------------

    def processes(self, unit: str = UNIT) -> set[int]:
        """Every process in the unit's control group."""
        group = self.show("ControlGroup", unit).lstrip("/")
        if not group:
            return set()
        root = next(each for each in HIERARCHIES if (each / "cgroup.procs").exists())
        return {int(pid) for file in (root / group).rglob("cgroup.procs") for pid in file.read_text().split()}

    def children(self) -> set[int]:
        """Every process of the unit but the daemon."""
        return self.processes() - {self.pid}


def greet(client: RawClient) -> Json:
    """The handshake; returns what the daemon said of itself."""
    asked = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    answer = client.ask("initialize", asked)
    result: Json = answer["result"]
    return result


@contextmanager
def watched(pids: Iterable[int]) -> Iterator[dict[int, int]]:
    """Descriptors of processes, by pid, which cannot come to mean other processes."""
    held: dict[int, int] = {}
    try:
        for pid in pids:
            held[pid] = os.pidfd_open(pid)
        yield held
    finally:
        for fd in held.values():
            os.close(fd)


def ended(held: dict[int, int]) -> float:
    """Wait until all these processes have ended; returns the seconds that it took."""
    began = time.monotonic()
    left = dict(held)
    while left:
        patience = PATIENCE - (time.monotonic() - began)
        ready, _, _ = select.select(left.values(), [], [], max(0, patience))
        assert ready, f"still alive after {PATIENCE} s: {sorted(left)}"
        left = {pid: fd for pid, fd in left.items() if fd not in ready}
    return time.monotonic() - began


def told(line: str) -> None:
    """Have a line printed at the end of the run."""
    Service.told.append(line)


def hierarchy_of(controller: str) -> Path | None:
    """Where a controller of the kernel's can limit units; None if it cannot."""
    alone, legacy = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup", controller)
    if (legacy / "system.slice").exists():
        return legacy
    listed = alone / "system.slice" / "cgroup.controllers"
    return alone if listed.exists() and controller in listed.read_text().split() else None
