"""`mcpd lock`: stores a team's approvals in a file (docs/trust.md)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from daemon.cli.control import EX_FAULT, CommandFailed, DaemonUnreachable, Message, ask, ask_with, note, say
from daemon.cli.table import ANSWER_SECONDS, EX_CONFIG, SERVE_SECONDS, STOP_SECONDS, implementation
from daemon.config.config_files import read_lock
from daemon.config.config_model import Server
from daemon.config.lock_file import LOCK as LOCK_FILE
from daemon.config.lock_file import LockedPackage
from daemon.config.parse import load
from daemon.history.event_words import of_held
from daemon.host import paths
from daemon.kit.wording import counted, suggestion
from daemon.safety.escape import document
from daemon.setup.adding import packages_of
from daemon.setup.running.starting import NotStarted, end, launch
from daemon.surfaces.table import SURFACES

if TYPE_CHECKING:
    import argparse

EX_UNAVAILABLE = 69  # sysexits.h

_WORDS = {"new": "not in the lock", "gone": "only in the lock", "edited": "another command, args or url"}


def lock(options: argparse.Namespace) -> int:
    """Write the lock file, or compare it with the servers."""
    path = (options.config or paths.config_file(os.environ)).absolute()
    beside, present = path.with_name(LOCK_FILE), read_lock(path)
    if present is not None and present.problem:
        note(f"{beside} cannot be used: {present.problem}")
        return EX_CONFIG
    if present is None and options.check:
        raise CommandFailed(f"there is no {beside} to check: `mcpd lock` writes it")
    known = load(path, os.environ, SURFACES).mcp_servers
    off = {name for name, server in known.items() if not (options.servers or server.enabled)}
    names = options.servers or [name for name in known if name not in off]
    if unknown := next((name for name in names if name not in known), ""):
        raise CommandFailed(f"there is no server '{unknown}' in {path}{suggestion(unknown, known)}")
    with ThreadPoolExecutor() as pool:
        found = pool.map(_packages, [known[name] for name in names])
        servers = msgspec.to_builtins(dict(zip(names, found, strict=True)))
    params = {"check": options.check, "approve": options.approve, "are_all": not options.servers}
    params |= {"servers": servers, "seconds": options.timeout, "directory": str(Path.cwd())}
    try:
        with _daemon(options, path) as control:
            answer = ask("lock", params, path=control, timeout=options.timeout + ANSWER_SECONDS)
    except (NotStarted, DaemonUnreachable) as error:
        note(str(error), lines=True)
        return EX_UNAVAILABLE
    if options.json:
        print(document(answer))
    else:
        say(*(_compared if options.check else _written)(answer, str(beside)))
    for name, problem in {**dict.fromkeys(off, "it is switched off"), **answer["failed"]}.items():
        note(f"{name} is not {'checked' if options.check else 'locked'}: {problem}", lines=True)
    return EX_FAULT if answer.get("drift") else EX_UNAVAILABLE if answer["failed"] else 0


def _packages(server: Server) -> dict[str, LockedPackage]:
    found = packages_of(server, os.environ)
    for name, each in found.items():
        if each.version and not each.hashes:
            note(f"{server.name}: no hashes of {name} {each.version} were found; those in the lock stay")
    return found


def _compared(answer: Message, file: str) -> Iterator[str]:
    for each in answer["drift"]:
        subject = f"{each['server']}/{each['name']}" if each["name"] else each["server"]
        yield f"{subject}: {of_held(_WORDS.get(each['what'], each['what']), each['change'])}"
    yield f"{counted(len(answer['drift']), 'difference')} from {file}"
    if answer["drift"]:
        yield "To agree, run `mcpd approve` or `mcpd lock --approve`, and commit the file."


def _written(answer: Message, file: str) -> Iterator[str]:
    yield f"{file} {'is written' if answer['written'] else 'stays as it was'}"
    yield from (f"{name} is no longer configured, and was removed from {file}" for name in answer["removed"])
    for name, number in answer["waiting"].items():
        yield f"{name}: {number} left out until `mcpd approve {name}` or `mcpd lock --approve {name}`"


@contextmanager
def _daemon(options: argparse.Namespace, path: Path) -> Iterator[str]:
    """The control socket of the daemon that serves a configuration, or of one started for this command."""
    running = None
    with suppress(DaemonUnreachable):
        running = ask_with(options, "status", {}, timeout=ANSWER_SECONDS)["daemon"]
    if running is not None and Path(running["config"]).resolve() == path.resolve():
        ask_with(options, "reload", {})
        yield running["controlSocket"]
        return
    if not options.check:
        note(f"no daemon serves {path}, so approvals given to a daemon are not known here")
    with TemporaryDirectory(prefix="mcpd-lock-", ignore_cleanup_errors=True) as directory:
        front = Path(directory, "mcpd.sock")
        words = ["--config", str(path), "--socket", str(front), "--state-dir", directory, "--detached"]
        run = partial(implementation("run").main, [*words, "--for-lock", str(os.getpid())])
        pid = launch(front, run, os.environ, time.monotonic() + SERVE_SECONDS)
        try:
            yield str(paths.control_beside(front))
        finally:
            end(pid, STOP_SECONDS)
