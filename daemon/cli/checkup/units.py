"""systemd: is there a unit, does it start at a boot, how did it end. `systemctl show` changes nothing."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli.checkup.scene import fault, fine, note, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daemon.cli.checkup.scene import Finding, Scene

SECONDS = 3.0
"""For an answer of systemd's, which comes in milliseconds; a bus that hangs must not hang us."""

SERVICE, SOCKET = "mcpd.service", "mcpd.socket"

PROPERTIES = (
    "LoadState,ActiveState,SubState,UnitFileState,Result,ExecMainStatus,NRestarts,NeedDaemonReload,MainPID"
)

LINGER = Path("/var/lib/systemd/linger")
"""Holds a file by the name of each user whose units run without a login (loginctl(1), enable-linger)."""

ENDS = {
    "78": ("the configuration is faulty", "`mcpd check`"),
    "69": ("a socket was taken, or another daemon runs", "`mcpd status`; end the other one"),
    "70": ("mcpd itself made a mistake", "please report it, with its log"),
    "203": ("the program in ExecStart= is not there (203/EXEC)", "correct ExecStart=, or install mcpd there"),
    "217": (
        "the user of the unit does not exist, or its group has the unit's name (217/USER)",
        "see mcpd.sysusers",
    ),
    "226": (
        "a directory of the unit's sandbox is missing (226/NAMESPACE)",
        "make it, or correct ReadWritePaths=",
    ),
    "238": ("its state directory cannot be made (238/STATE_DIRECTORY)", "look at /var/lib/private/mcpd"),
}
"""Exit statuses of ours (`cli.run`) and of systemd's (systemd.exec(5)): what they mean, what to do."""

Unit = dict[str, str]


def check(scene: Scene, linger: Path = LINGER) -> Iterator[Finding]:
    """The user's units and the system's."""
    program = shutil.which("systemctl", path=scene.environ.get("PATH"))
    if program is None:
        yield note("There is no systemctl here: nothing starts the daemon but you, or another supervisor.")
        return
    found = False
    for scope, options in (("user", ("--user",)), ("system", ())):
        units = {name: _show(program, options, name, scene.environ) for name in (SERVICE, SOCKET)}
        service = units[SERVICE]
        if service is None or service.get("LoadState", "not-found") == "not-found":
            continue
        found = True
        yield from _service(scope, service, units[SOCKET] or {}, scene)
        if scope == "user":
            yield from _lingering(linger)
    if not found:
        yield note(
            "No unit of mcpd's is installed, or systemd does not answer.",
            do="Copy systemd/user/mcpd.service and mcpd.socket to ~/.config/systemd/user and `systemctl --user"
            " enable --now mcpd.socket` to have the daemon started with the first client.",
        )


def _show(program: str, options: tuple[str, ...], unit: str, environ: Mapping[str, str]) -> Unit | None:
    """The properties of a unit; None where systemd does not answer."""
    try:
        answer = subprocess.run(
            [program, *options, "show", unit, f"--property={PROPERTIES}", "--no-pager"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0:
        return None
    return dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)


def _service(scope: str, service: Unit, socket: Unit, scene: Scene) -> Iterator[Finding]:
    ctl = "systemctl --user" if scope == "user" else "systemctl"
    if service.get("LoadState") != "loaded":
        yield warning(
            f"The {scope}'s {SERVICE} is {service.get('LoadState')}.",
            do=f"`{ctl} status {SERVICE}` says why; `{ctl} unmask {SERVICE}` if it is masked.",
        )
        return
    if service.get("NeedDaemonReload") == "yes":
        yield warning(
            f"The {scope}'s {SERVICE} was changed since systemd read it.", do=f"`{ctl} daemon-reload`"
        )
    yield _activity(scope, ctl, service, socket)
    if service.get("ActiveState") != "failed" and service.get("NRestarts", "0") not in {"", "0"}:
        yield note(
            f"systemd has restarted the {scope}'s {SERVICE} {service['NRestarts']} times.",
            do=f"`{_journal(ctl)}` says why it ended.",
        )
    if "enabled" not in {service.get("UnitFileState"), socket.get("UnitFileState")}:
        yield note(
            f"The {scope}'s units are not enabled: nothing starts mcpd at the next boot.",
            do=f"`{ctl} enable {SOCKET}`",
        )
    pid = service.get("MainPID", "0")
    if scene.running is not None and pid not in {"", "0", str(scene.running.pid)}:
        yield warning(
            f"Two daemons run: the {scope}'s {SERVICE} is pid {pid}, the one that answers here is pid"
            f" {scene.running.pid}.",
            do="End the one that is not meant.",
        )


def _activity(scope: str, ctl: str, service: Unit, socket: Unit) -> Finding:
    state, end = service.get("ActiveState", "unknown"), service.get("ExecMainStatus", "0")
    if state == "active":
        return fine(f"The {scope}'s {SERVICE} is active.")
    meaning, remedy = ENDS.get(end, (f"exit status {end}" if end not in {"", "0"} else "", ""))
    why = meaning or f"systemd says: {service.get('Result') or 'nothing'}"
    if state == "failed" or service.get("SubState") == "auto-restart":
        do = f"{remedy}; `{_journal(ctl)}` has its last words." if remedy else f"`{_journal(ctl)}`"
        return fault(f"The {scope}'s {SERVICE} does not run ({state}): {why}.", do=do)
    if socket.get("ActiveState") == "active":
        return fine(f"The {scope}'s {SERVICE} is {state}; {SOCKET} starts it with the first client.")
    return note(f"The {scope}'s {SERVICE} is {state}.", do=f"`{ctl} start {SOCKET}`")


def _journal(ctl: str) -> str:
    return f"journalctl {'--user ' if '--user' in ctl else ''}-u {SERVICE} -n 50"


def _lingering(linger: Path) -> Iterator[Finding]:
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return
    if linger.is_dir() and not (linger / name).exists():
        yield note(
            f"The user's units of {name} end with the last logout.",
            do=f"`loginctl enable-linger {name}` if they are to run without a login.",
        )
