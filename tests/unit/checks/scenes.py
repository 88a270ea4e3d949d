"""A small house to look at: a configuration, directories, a PATH; and stand-ins for what may run there."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from daemon import version
from daemon.checks.findings import Finding, Level, Scene
from daemon.cli.doctor import gather
from tests.unit.cli.daemons import fake_control, status_of
from tests.waiting import PATIENCE

NOBODY = 65534
"""A user who owns nothing."""


class House:
    """A directory with all that belongs to one daemon."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "mcpd.json"
        self.bin = root / "bin"
        self.run = root / "run" / "mcpd"
        self.state = root / "state" / "mcpd"
        for directory in (self.bin, self.run, self.state):
            directory.mkdir(parents=True)
        self.run.chmod(0o700)
        self.environ = {
            "HOME": str(root),
            "PATH": str(self.bin),
            "XDG_RUNTIME_DIR": str(root / "run"),
            "XDG_STATE_HOME": str(root / "state"),
            "MCPD_CONFIG": str(self.config),
        }
        self.write({})

    def write(self, config: Mapping[str, Any] | str, mode: int = 0o600) -> None:
        """Write the configuration."""
        self.config.write_text(config if isinstance(config, str) else json.dumps(config))
        self.config.chmod(mode)

    def servers(self, **servers: Any) -> None:
        """Write a configuration with these servers."""
        self.write({"mcpServers": servers})

    def program(self, name: str, text: str | bytes = "#!/bin/sh\n", mode: int = 0o755) -> Path:
        """Put a program on the PATH."""
        path = self.bin / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return path

    def look(self, named: Path | None = None, **more: str) -> Scene:
        """The scene, with more in the environment."""
        return gather(named, {**self.environ, **more})

    @contextlib.contextmanager
    def daemon(
        self, servers: Mapping[str, Any] | None = None, *, pid: int | None = None, **changed: Any
    ) -> Iterator[dict[str, Any]]:
        """A daemon that answers `status` as scripted; yields the answer, which can be changed."""
        status = status_of(servers or {})
        status["daemon"] |= {
            "version": version(),
            "pid": os.getpid() if pid is None else pid,
            "config": str(self.config),
            "socket": str(self.run / "mcpd.sock"),
            "controlSocket": str(self.run / "control.sock"),
            **changed,
        }
        with fake_control(self.run / "control.sock", {"status": status}):
            yield status


SLEEPER = "import sys; print(flush=True); sys.stdin.read()"


@contextlib.contextmanager
def process(cwd: Path, **environ: str) -> Iterator[int]:
    """A process that is taken for a daemon, with an environment and a directory of its own; yields its pid."""
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER, "mcpd", "run"],
        cwd=cwd,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        try:
            yield child.pid
        finally:
            child.stdin.close()
            child.wait(PATIENCE)


@contextlib.contextmanager
def listening(address: Path | tuple[str, int]) -> Iterator[socket.socket]:
    """A socket that somebody listens on."""
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(str(address) if isinstance(address, Path) else address)
        listener.listen()
        yield listener


@contextlib.contextmanager
def as_somebody_else() -> Iterator[None]:
    """Without the rights of root, who may do anything; for others nothing changes."""
    if os.geteuid():
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def only(findings: Iterable[Finding], level: Level) -> str:
    """What one finding of a level says, all of it; there must be no other of that level."""
    found = [finding for finding in findings if finding.level is level]
    assert len(found) == 1, found
    return f"{found[0].what}\n{found[0].why}\n{found[0].do}"


def levels(findings: Iterable[Finding]) -> list[str]:
    """The levels, in order."""
    return [str(finding.level) for finding in findings]
