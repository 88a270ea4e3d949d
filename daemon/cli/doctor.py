"""`mcpd doctor`, which gathers facts about this machine for the checks, and `mcpd check`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from daemon.checks.advice import warnings
from daemon.checks.examination import examine, worded
from daemon.checks.findings import Level, Running, Scene
from daemon.cli.command import UsageError, drawn, show
from daemon.cli.control import EX_FAULT, CommandFailed, DaemonUnreachable, RemoteFault, ask
from daemon.cli.table import EX_CONFIG
from daemon.config.config_model import Config
from daemon.config.listen import Listen
from daemon.config.parse import load, load_with_notes
from daemon.config.state_url import StateUrl, of_file, resolve
from daemon.errors import ConfigError, Fault
from daemon.host import paths
from daemon.kit.wording import counted
from daemon.processes import proc
from daemon.safety.escape import document, visible
from daemon.surfaces.table import SURFACES

ASK_SECONDS = 3.0
"""Seconds for the daemon's answer, which takes milliseconds."""

UNKNOWN = "unknown"
"""Stands for a variable that the daemon keeps secret and this command does not have."""

Read = tuple["Config | None", "tuple[Fault, ...]", "tuple[Fault, ...]"]


def gather(
    named: Path | None,
    environ: Mapping[str, str],
    *,
    socket: Path | None = None,
    state: Path | None = None,
    end_leftovers: bool = False,
    seconds: float = ASK_SECONDS,
) -> Scene:
    """Gather the facts for the checks. If a path is None, take the running daemon's, or `mcpd run`'s."""
    usual = paths.config_file(environ)
    path = named or usual
    config, faults, notes = _read(path, environ)
    running, silence = _daemon(_asked(config, environ, socket), environ, seconds)
    if running is not None:
        path = named or running.config
        config, faults, notes = _read(path, environ if running.environ is None else running.environ)
    state = state or _state(environ, running)
    listen = Listen() if config is None else config.listen
    front, control = paths.served_sockets(environ, socket, listen.socket, listen.control_socket)
    return Scene(
        environ=environ,
        path=path,
        usual=usual,
        config=config,
        faults=faults,
        notes=notes,
        running=running,
        silence=silence,
        front=front if running is None else _named(running, "socket"),
        control=control if running is None else _named(running, "controlSocket"),
        place=_place(config, state, running),
        state=state,
        end_leftovers=end_leftovers,
    )


def _read(path: Path, environ: Mapping[str, str]) -> Read:
    """Read a configuration, leaving out faulty servers; None if it has other faults."""
    try:
        read = load_with_notes(path, environ, SURFACES)
    except ConfigError as error:
        try:
            config = load(path, environ, SURFACES)
        except ConfigError:
            return None, error.faults, ()
        sound = {name: server for name, server in config.mcp_servers.items() if not server.faults}
        return attrs.evolve(config, mcp_servers=sound), error.faults, ()
    return read.config, (), read.notes


def _asked(config: Config | None, environ: Mapping[str, str], socket: Path | None) -> Path:
    listen = Listen() if config is None else config.listen
    if socket is None and (listen.socket or listen.control_socket):
        _, control = paths.served_sockets(environ, None, listen.socket, listen.control_socket)
        # systemd may have chosen another path.
        if os.path.lexists(control):
            return control
    return paths.control_socket(environ, socket)


def _named(running: Running, key: str) -> Path:
    # Paths of the daemon's command line are relative to its directory.
    return (running.directory or Path.cwd()) / str(running.status["daemon"][key])


def _daemon(control: Path, environ: Mapping[str, str], seconds: float) -> tuple[Running | None, str]:
    """The daemon, or the reason why it does not answer; empty if the socket does not exist."""
    try:
        return _running(ask("status", {}, path=str(control), timeout=seconds), environ), ""
    except DaemonUnreachable as error:
        # Without the advice, which names options that doctor lacks.
        return None, error.problem if os.path.lexists(control) else ""
    except (RemoteFault, KeyError, TypeError, ValueError) as error:
        return None, f"{control} does not answer like a daemon of this version: {error}"


def is_daemon(words: Sequence[str]) -> bool:
    """Whether a command line starts an mcpd daemon: `mcpd run …` or `python -m daemon run …`."""
    return any(
        word == "run" and (Path(before).name == "mcpd" or (option, before) == ("-m", "daemon"))
        for option, before, word in zip(["", *words], words, words[1:], strict=False)
    )


def _running(status: dict[str, Any], environ: Mapping[str, str]) -> Running:
    daemon = status["daemon"]
    pid = int(daemon["pid"])
    # In another pid namespace this pid would be another process.
    ours = is_daemon(proc.command_line(pid))
    directory = proc.directory(pid) if ours else None
    if directory is None and daemon.get("directory"):
        directory = Path(daemon["directory"])
    known = proc.environment(pid) if ours else None
    return Running(
        status=status,
        pid=pid,
        config=(directory or Path.cwd()) / daemon["config"],
        environ=_disclosed(daemon, environ) if known is None else known,
        directory=directory,
        uid=proc.user(pid) if ours else None,
    )


def _disclosed(daemon: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str] | None:
    """The daemon's environment: the values that it discloses, and for others this command's, or `UNKNOWN`."""
    names: list[str] = daemon.get("variables", [])
    return {**{name: environ.get(name, UNKNOWN) for name in names}, **daemon["environment"]} if names else None


def _state(environ: Mapping[str, str], running: Running | None) -> Path:
    if running is not None and (named := running.status["daemon"].get("stateDirectory")):
        return Path(named)
    return paths.state_dir(environ if running is None or running.environ is None else running.environ)


def _place(config: Config | None, state: Path, running: Running | None) -> StateUrl:
    where = running and (running.status["daemon"].get("persistence") or {}).get("where")
    if where and where.startswith("/"):
        return of_file(Path(where))
    return resolve(config.state.url if config else None, state)


def doctor(options: argparse.Namespace) -> int:
    """Run all checks, and print the findings."""
    try:
        scene = gather(
            options.config,
            os.environ,
            socket=options.socket and Path(options.socket),
            state=options.state_dir,
            end_leftovers=options.end_leftovers,
        )
    except OSError as error:
        why = f"{error.filename or 'the system'}: {error.strerror or error}"
        raise CommandFailed(
            f"this user cannot run the checks ({why}). Run this as the daemon's user."
        ) from None
    findings = worded(examine(scene), scene)
    counts = {level.value: sum(each["level"] == level for each in findings) for level in Level}
    report = {"ok": not counts["fault"], "counts": counts, "findings": findings}
    show(options, report, lambda _report: drawn("daemon.cli.views:render_findings")(findings, counts))
    return EX_FAULT if counts["fault"] else 0


# --- check --------------------------------------------------------------------------------------------------


def check(options: argparse.Namespace) -> int:
    """Check a configuration and print the findings."""
    if options.config and options.file:
        raise UsageError("name one configuration, F or --config F")
    path = options.config or options.file or paths.config_file(os.environ)
    try:
        checked = load_with_notes(path, os.environ, SURFACES)
    except ConfigError as error:
        if options.json:
            print(document({"ok": False, "source": str(path), **_data(error.faults)}))
        else:
            _say("", [f"{path}: {counted(len(error.faults), 'fault')}"])
            _say("  ", error.faults)
            _say("", [f"`mcpd doctor --config {shlex.quote(str(path))}` names the commands that help."])
        return EX_CONFIG
    unwise = warnings(checked, path, os.environ)
    servers, categories = len(checked.config.mcp_servers), len(checked.config.categories)
    if options.json:
        counts = {"servers": servers, "categories": categories}
        print(document({"ok": True, "source": str(path), **counts, **_data((), unwise, checked.notes)}))
        return 0
    _say("note: ", checked.notes)
    _say("warning: ", unwise)
    grouped = counted(categories, "category", "categories") if categories else "each a category"
    print(visible(f"OK: {counted(servers, 'server')}, {grouped}: {path}"))
    return 0


def _say(prefix: str, lines: Sequence[object]) -> None:
    for line in lines:
        print(f"{prefix}{visible(str(line))}", file=sys.stderr)


def _data(*found: Sequence[Fault]) -> dict[str, list[dict[str, object]]]:
    lists = dict(zip(("faults", "warnings", "notes"), (*found, (), ()), strict=False))
    members = ("path", "line", "column", "message")
    return {
        name: [{member: getattr(each, member) for member in members} for each in faults]
        for name, faults in lists.items()
    }
