"""Controls systemd through `systemctl`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from daemon.bridge.unreachable import is_installed
from daemon.errors import McpdError
from daemon.host.paths import USER_RUNTIME

SERVICE, SOCKET, HTTP_SOCKET = "mcpd.service", "mcpd.socket", "mcpd-http.socket"

SHOW_JOURNAL = f"journalctl --user -u {SERVICE} -n 20"
"""The command that shows the latest log lines of the user's service."""

SCOPES = ("user", "system")

ANSWER_SECONDS = 3.0
"""Seconds for an answer, which takes milliseconds; a hanging bus must not block mcpd."""

JOB_SECONDS = 60.0
"""Seconds for a job: the units allow 30 for a start and 15 for a stop."""

PROPERTIES = (
    "LoadState,ActiveState,SubState,UnitFileState,Result,ExecMainStatus,NRestarts,NeedDaemonReload,MainPID"
)

Unit = dict[str, str]


class SystemdRefused(McpdError):
    """systemd has refused; the text is systemd's."""


class Systemctl:
    """systemctl for the user's or the system's units."""

    def __init__(self, program: str, environ: Mapping[str, str], *, scope: str = "user") -> None:
        self.scope = scope
        self._command = [program, *(["--user"] if scope == "user" else [])]
        # MCP clients start their servers without it, and the user's bus is found by it.
        runtime = str(USER_RUNTIME / str(os.getuid()))
        self._environ = {"XDG_RUNTIME_DIR": runtime, **environ}

    def show(self, unit: str) -> Unit:
        """A unit's properties; empty if the unit is not installed or systemd does not answer."""
        told = self._asked("show", unit, f"--property={PROPERTIES}")
        shown = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
        return {} if shown.get("LoadState", "not-found") == "not-found" else shown

    def pid(self) -> int | None:
        """The pid of the service; None if it is not running."""
        return int(self.show(SERVICE).get("MainPID") or 0) or None

    def answers(self) -> bool:
        """Whether the service manager answers."""
        return bool(self._asked("show", "--property=Version"))

    def version(self) -> str | None:
        """The version of systemd, without asking a service manager."""
        words = self._asked("--version").split()
        return words[1] if words[:1] == ["systemd"] and len(words) > 1 else None

    def tell(self, *words: str) -> None:
        """Run a job and wait for it. Raises SystemdRefused."""
        answer([*self._command, *words], self._environ, JOB_SECONDS)

    def _asked(self, *words: str) -> str:
        try:
            return answer([*self._command, *words], self._environ, ANSWER_SECONDS)
        except SystemdRefused:
            return ""


def answer(command: list[str], environ: Mapping[str, str], seconds: float) -> str:
    """The output of a systemd program. Raises SystemdRefused if it cannot run, times out or fails."""
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
    """The path of systemctl; None without it."""
    program = shutil.which("systemctl", path=environ.get("PATH"))
    return None if program is None else Systemctl(program, environ, scope=scope)


def installed(environ: Mapping[str, str], scope: str = "user") -> Systemctl | None:
    """The user's or the system's service manager, if it has mcpd's socket unit; else None."""
    # A look at the directories of units takes microseconds, systemctl 20 ms, for which a client would wait.
    # Where a client starts the bridge without a home, only systemd knows these directories.
    if scope == "user" and environ.get("HOME", "/") != "/" and not is_installed(SOCKET, environ):
        return None
    manager = systemctl(environ, scope=scope)
    return manager if manager is not None and manager.show(SOCKET) else None
