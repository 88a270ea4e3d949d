"""Checks systemd's units, the limit of open files, and processes that killed daemons have left."""

from __future__ import annotations

import contextlib
import os
import pwd
import time
from collections.abc import Iterator
from pathlib import Path

from daemon.checks.entries import most_instances
from daemon.checks.findings import TABLE, Finding, Scene, found
from daemon.config.config_model import TransportType
from daemon.errors import McpdError
from daemon.kit.wording import short_size, span
from daemon.processes import cgroups, leftovers, proc
from daemon.processes.leftovers import Leftover
from daemon.processes.proc import Process
from daemon.sandbox import launch
from daemon.setup.running.service import LINGER, written_by_us
from daemon.setup.running.systemctl import SCOPES, SERVICE, SOCKET, Unit, systemctl
from daemon.supervision.lifecycle import mending

OWN_FILES = 64
"""Descriptors that the daemon needs itself: loop, sockets, locks, database, log, reader threads."""

CHILD_FILES = 8
"""Descriptors for each child: three pipes, a pidfd, and during a start the pipes' other ends."""

REMOTE_FILES = 24
"""Descriptors for each remote server: the pool (`upstreams.transports.http_client.POOL`), some in transit."""

FEW_CLIENTS = 64
"""Clients below which to warn: a machine with several agents has more."""


def units(scene: Scene, linger: Path = LINGER) -> Iterator[Finding]:
    """Findings on systemd's units: whether they start at boot, and how they last ended."""
    installed = False
    for scope in SCOPES:
        manager = systemctl(scene.environ, scope=scope)
        if manager is None:
            yield found("systemd-absent")
            return
        service = manager.show(SERVICE)
        if not service:
            continue
        installed = True
        yield from _service(scope, service, manager.show(SOCKET), scene)
        if scope == "user":
            yield from _written(scene)
            yield from _lingering(linger)
    if not installed:
        yield found("unit-absent")


def limits(scene: Scene) -> Iterator[Finding]:
    """Findings on the limit of open files for the configuration, and on servers' limits without effect."""
    yield from _void(scene)
    pid = scene.running.pid if scene.running and scene.running.uid is not None else None
    allowed = proc.open_files("self" if pid is None else pid)
    if scene.config is None or allowed is None:
        return
    most = allowed[1]  # The daemon raises its soft limit to the hard one.
    wanted, servers = scene.config.limits.connections, OWN_FILES
    for server in scene.config.mcp_servers.values():
        each = CHILD_FILES if server.type is TransportType.STDIO else REMOTE_FILES
        servers += most_instances(server) * each * server.enabled
    whose = "this shell" if pid is None else "the daemon"
    room = max(0, most - servers)
    if most >= servers + wanted:
        yield found("open-files-enough", whose=whose, most=most, room=room, wanted=wanted)
        return
    enough = 1 << (servers + wanted - 1).bit_length()
    yield found(
        "open-files-scarce" if most < servers + min(wanted, FEW_CLIENTS) else "open-files-few",
        whose=whose,
        most=most,
        room=room,
        wanted=wanted,
        enough=enough,
    )


def sandboxes(scene: Scene) -> Iterator[Finding]:
    """Findings on sandboxes; impossible sandboxes are a fault only if a server asks for one."""
    problem = launch.trial(scene.inherited)
    if problem is None:
        yield found("sandboxes-work")
        return
    servers = {} if scene.config is None else scene.config.mcp_servers
    asking = [name for name, server in servers.items() if server.enabled and server.confined]
    error, helps = problem.reason.data["error"], mending(problem) or 'Write "sandbox": "off"'
    if asking:
        yield found("sandboxes-needed", names=", ".join(asking), error=error, helps=helps)
    else:
        yield found("sandboxes-missing", error=error, helps=helps)


def leavings(scene: Scene) -> Iterator[Finding]:
    """Findings on processes left by killed daemons; ends them if asked to."""
    folder = scene.state / leftovers.FOLDER
    if folder.exists() and folder.stat().st_uid != os.geteuid():
        yield found("leftovers-unknown", uid=folder.stat().st_uid)
        return
    what = list(_end(scene) if scene.end_leftovers else _look(scene))
    yield from what or [found("leftovers-none")]


def _void(scene: Scene) -> Iterator[Finding]:
    """Findings on servers' limits that need control groups, if the running daemon has none."""
    if scene.config is None or scene.running is None:
        return
    groups = cgroups.find(SERVICE, Path(f"/proc/{scene.running.pid}/cgroup"))
    for name, server in scene.config.mcp_servers.items():
        if server.enabled and (keys := cgroups.void(server.limits, groups)):
            yield found("limits-void", server=name, keys=" and ".join(keys), remedy=cgroups.REMEDY)


def _service(scope: str, service: Unit, socket: Unit, scene: Scene) -> Iterator[Finding]:
    ctl = "systemctl --user" if scope == "user" else "systemctl"
    journal = f"journalctl {'--user ' if scope == 'user' else ''}-u {SERVICE} -n 50"
    if service.get("LoadState") != "loaded":
        yield found("unit-not-loaded", scope=scope, ctl=ctl, state=service.get("LoadState"))
        return
    if service.get("NeedDaemonReload") == "yes":
        yield found("unit-changed", scope=scope, ctl=ctl)
    yield _activity(scope, ctl, journal, service, socket)
    restarts = service.get("NRestarts", "0")
    if service.get("ActiveState") != "failed" and restarts not in {"", "0"}:
        yield found("unit-restarted", scope=scope, count=restarts, journal=journal)
    if "enabled" not in {service.get("UnitFileState"), socket.get("UnitFileState")}:
        yield found("unit-not-enabled", scope=scope, ctl=ctl)
    pid = service.get("MainPID", "0")
    if scene.running is not None and pid not in {"", "0", str(scene.running.pid)}:
        yield found("unit-of-another-daemon", scope=scope, pid=pid, own=scene.running.pid)


def _activity(scope: str, ctl: str, journal: str, service: Unit, socket: Unit) -> Finding:
    state, status = service.get("ActiveState", "unknown"), service.get("ExecMainStatus", "0")
    if state == "active":
        return found("unit-active", scope=scope)
    if state != "failed" and service.get("SubState") != "auto-restart":
        if socket.get("ActiveState") == "active":
            return found("unit-waits-for-client", scope=scope, state=state)
        return found("unit-inactive", scope=scope, state=state, ctl=ctl)
    if status in {"", "0"}:
        result = service.get("Result") or "nothing"
        return found("unit-failed", scope=scope, state=state, journal=journal, result=result)
    if f"unit-exit-{status}" in TABLE:
        return found(f"unit-exit-{status}", scope=scope, state=state, journal=journal)
    return found("unit-exit", scope=scope, state=state, journal=journal, status=status)


def _written(scene: Scene) -> Iterator[Finding]:
    """Findings on units that `mcpd service` has written; other units are not mcpd's business."""
    with contextlib.suppress(McpdError):
        if written := written_by_us(scene.environ):
            path, outdated = written
            if outdated:
                yield found("unit-outdated", names=", ".join(outdated))
            if missing := [each for each in path.split(":") if each and not Path(each).is_dir()]:
                yield found("unit-path-outdated", missing=", ".join(missing))


def _lingering(linger: Path) -> Iterator[Finding]:
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return
    if linger.is_dir() and not (linger / user).exists():
        yield found("unit-does-not-linger", user=user)


def _look(scene: Scene) -> Iterator[Finding]:
    for each in leftovers.look(scene.state):
        yield found("leftover", whose=_owner(each), daemon=each.daemon, processes=_processes(each))


def _end(scene: Scene) -> Iterator[Finding]:
    ended, left = leftovers.end(scene.state)
    for each in ended:
        pids = ", ".join(str(process.pid) for process in each.processes)
        yield found("leftover-ended", whose=_owner(each), daemon=each.daemon, pids=pids)
    for each in left:
        yield found("leftover-survives", whose=_owner(each), daemon=each.daemon, processes=_processes(each))


def _owner(each: Leftover) -> str:
    return f"server {each.server}" if each.server else "a server"


def _processes(each: Leftover) -> str:
    return "; ".join(map(_process, each.processes))


def _process(process: Process) -> str:
    # Not its arguments: they may hold a secret that no configuration names now.
    program = Path(proc.command_line(process.pid)[0]).name or "?"
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - process.started / proc.TICKS
    return f"pid {process.pid} ({program}, {span(age)} old, {short_size(proc.resident(process.pid))})"
