"""Asks and tells the user's service manager, systemd, by way of `systemctl --user`."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from daemon.bridge.unreachable import is_installed
from daemon.errors import McpdError
from daemon.host.paths import USER_RUNTIME

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE, SOCKET, HTTP_SOCKET = "mcpd.service", "mcpd.socket", "mcpd-http.socket"
"""The units, as they are named for users and for the system."""

SHOW_JOURNAL = f"journalctl --user -u {SERVICE} -n 20"
"""How what the user's service wrote last is shown."""

SCOPES = ("user", "system")
"""Whose units: `systemctl --user`, and `systemctl`."""

ANSWER_SECONDS = 3.0
"""Timeout of an answer, which comes in milliseconds; a bus that hangs must not hang us."""

JOB_SECONDS = 60.0
"""Timeout of a start or a stop: the units have 30 s for the one and 15 s for the other."""

PROPERTIES = (
    "LoadState,ActiveState,SubState,UnitFileState,Result,ExecMainStatus,NRestarts,NeedDaemonReload,MainPID"
)

Unit = dict[str, str]
"""The properties of a unit."""


class SystemdRefused(McpdError):
    """systemd did not do what it was told; the text is what it said."""


class Systemctl:
    """systemctl for the user's units or the system's."""

    def __init__(self, program: str, environ: Mapping[str, str], *, scope: str = "user") -> None:
        """Name the program; nothing is asked yet.

        Args:
            program: the path of systemctl.
            environ: the environment that it is given.
            scope: `user` or `system`.
        """
        self.scope = scope
        self._command = [program, *(["--user"] if scope == "user" else [])]
        # MCP clients start their servers without it, and the user's bus is found by it.
        runtime = str(USER_RUNTIME / str(os.getuid()))
        self._environ = {"XDG_RUNTIME_DIR": runtime, **environ}

    def show(self, unit: str) -> Unit:
        """The properties of a unit; none if it is not installed, or systemd does not answer."""
        try:
            done = self._run("show", unit, f"--property={PROPERTIES}", seconds=ANSWER_SECONDS)
        except SystemdRefused:
            return {}
        shown = dict(line.split("=", 1) for line in done.splitlines() if "=" in line)
        return {} if shown.get("LoadState", "not-found") == "not-found" else shown

    def pid(self) -> int | None:
        """The daemon's process, as its service has it; None if it does not run."""
        return int(self.show(SERVICE).get("MainPID") or 0) or None

    def answers(self) -> bool:
        """Whether the service manager is there."""
        try:
            self._run("show", "--property=Version", seconds=ANSWER_SECONDS)
        except SystemdRefused:
            return False
        return True

    def version(self) -> str | None:
        """The version of systemd, which asks no service manager; None if the program does not tell."""
        try:
            words = self._run("--version", seconds=ANSWER_SECONDS).split()
        except SystemdRefused:
            return None
        return words[1] if words[:1] == ["systemd"] and len(words) > 1 else None

    def tell(self, *words: str) -> None:
        """Have something done, and wait until it is.

        Raises:
            SystemdRefused: it was not done.
        """
        self._run(*words, seconds=JOB_SECONDS)

    def _run(self, *words: str, seconds: float) -> str:
        return answer([*self._command, *words], self._environ, seconds)


def answer(command: list[str], environ: Mapping[str, str], seconds: float) -> str:
    """What a program of systemd's prints.

    Raises:
        SystemdRefused: it cannot be run, takes longer, or fails.
    """
    called = " ".join([os.path.basename(command[0]), *command[1:]])  # noqa: PTH119 - a word, no path
    try:
        done = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemdRefused(f"`{called}`: {error}") from None
    if done.returncode != 0:
        raise SystemdRefused(done.stderr.strip() or f"`{called}`: status {done.returncode}")
    return done.stdout


def systemctl(environ: Mapping[str, str], *, scope: str = "user") -> Systemctl | None:
    """The service manager's command; None if there is none on the PATH."""
    program = shutil.which("systemctl", path=environ.get("PATH"))
    return None if program is None else Systemctl(program, environ, scope=scope)


def installed(environ: Mapping[str, str], scope: str = "user") -> Systemctl | None:
    """The user's service manager, or the system's, if it is there and has mcpd's socket unit; else None."""
    # A look at the directories of units takes microseconds, systemctl 20 ms, for which a client would wait.
    # Where a client starts the bridge without a home, only systemd knows these directories.
    if scope == "user" and environ.get("HOME", "/") != "/" and not is_installed(SOCKET, environ):
        return None
    manager = systemctl(environ, scope=scope)
    return manager if manager is not None and manager.show(SOCKET) else None
