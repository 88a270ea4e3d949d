"""Checks each server's command, URL, downloads and state; connects only to loopback and unix sockets."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from daemon.checks.findings import Finding, Level, Running, Scene, found
from daemon.config import command_lines
from daemon.config.command_lines import warnings as container_warnings
from daemon.config.config_model import PORTS, WRITTEN, Server, Share, TransportType
from daemon.config.listen import is_loopback
from daemon.host import paths
from daemon.kit.wording import counted
from daemon.processes import proc
from daemon.states import COMING, WELL

Environ: TypeAlias = Mapping[str, str]

CONNECT_SECONDS = 1.0
"""Seconds for a local connection, which takes microseconds."""

LOCAL = ("127.0.0.1", "::1")
"""Addresses of `localhost` (RFC 6761), whatever a name server says."""

NAMED = 10  # definitions that wait for approval, in a finding

HEAD = 256
"""Bytes of a script's first line that the kernel reads (BINPRM_BUF_SIZE)."""

ELF = b"\x7fELF"

INTERPRETERS = re.compile(r"(?:python|node|ruby|perl|php|bash|sh|deno|bun|tsx)[\d.]*")
"""Matches commands whose first argument, apart from options, is a script."""

SCRIPT = re.compile(r"(?!-).+\.(?:py|js|mjs|cjs|ts|rb|pl|php|sh)")

# --- commands ---------------------------------------------------------------------------------------------


class Program(NamedTuple):
    """The program that a command names."""

    path: Path | None
    blocked: Path | None = None
    """A file of the command's name that cannot be executed."""


def command(server: Server, inherited: Environ, shell: Environ, *, running: bool = False) -> Iterator[Finding]:
    """Findings on a server's command, with the entry's `key`; starts nothing.

    `inherited`, the environment of servers, differs from this command's (`shell`) if the daemon is `running`.
    """
    server = server.written
    base = base_of(server, inherited)
    search = path_of(server, inherited)
    command, cwd = server.command or "", server.cwd or ""
    relative = "/" in command and not command.startswith("/")
    of_a_workspace = found("program-of-a-workspace", server=server.name, command=command)
    if WRITTEN in command or (relative and WRITTEN in cwd):
        yield of_a_workspace
        return
    if cwd and base == Path(cwd) and (problem := _unusable(base)):
        yield found("server-directory", server=server.name, path=base, problem=problem)
        return
    program = find(command, search, base)
    if program.path is not None:
        yield from _startable(server.name, program.path, search)
        yield from _script(server, base)
    elif WRITTEN in search:
        yield of_a_workspace
    elif program.blocked is not None:
        yield found("program-not-executable", server=server.name, path=program.blocked)
    else:
        yield _with_arguments(server, search, base) or _missing(server, search, base, shell, running=running)


def named(server: Server, inherited: Environ) -> str:
    """A valid server's program, as far as it is known without a client."""
    shown = server.written
    found = find(shown.command or "", path_of(shown, inherited), base_of(shown, inherited)).path
    return str(found or shown.command)


def unwise(server: Server) -> Iterator[tuple[str, bool]]:
    """Warnings about downloads and privileges of containers, each with whether `mcpd pin` helps."""
    server = server.written
    loose = [f"'{each.written}'" for each in command_lines.pinnable(server.command or "", server.args)]
    for words in command_lines.started((server.command or "", *server.args)):
        for message in (*command_lines.moving(words), *container_warnings(words)):
            yield message, any(each in message for each in loose)


def packages(server: Server) -> Iterator[Finding]:
    """Findings on unpinned versions, and on starts that need a network."""
    advised = [*unwise(server)]
    if any(pins for _, pins in advised):
        yield found("package-loose", server=server.name)
    for message in (message for message, pins in advised if not pins):
        yield found("package-unpinned", server=server.name, advice=message)
    shown = server.written
    for words in command_lines.started((shown.command or "", *shown.args)):
        if command_lines.runs_a_container(words):
            never = "never" in words or any(word.startswith("--pull") and "never" in word for word in words)
            if command_lines.image_of(words) is not None and not never:
                yield found("image-downloaded", server=server.name, runner=words[0])
        elif not advised and command_lines.fetches(words):
            name, runner = server.name, words[0]
            if runner == "npx":
                yield found("package-asks-registry", server=name)
            else:
                yield found(
                    "package-cached" if runner == "uvx" else "package-downloaded", server=name, runner=runner
                )


def base_of(server: Server, inherited: Environ) -> Path:
    """The server's working directory; the home directory if each client has its own."""
    fixed = None if WRITTEN in (server.cwd or "") else server.cwd
    return Path(fixed or paths.home(inherited))


def path_of(server: Server, inherited: Environ) -> str:
    """The PATH in which the server's command is looked up."""
    return server.env.get("PATH", inherited.get("PATH", os.defpath))


def find(command: str, path: str, base: Path) -> Program:
    """Find the program of a command that is started in the directory `base`."""
    directories = [""] if "/" in command else path.split(os.pathsep)
    places = [base / directory / command for directory in directories]
    files = [place for place in places if _is_file(place)]
    first = next((place for place in files if proc.may(place, os.X_OK)), None)
    return Program(first, None if first or not files else files[0])


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _unusable(directory: Path) -> str:
    if not os.path.lexists(directory):
        return "does not exist"
    if not os.path.isdir(directory):  # noqa: PTH112 - never raises, whatever we may not read
        return "is not a directory"
    return "" if proc.may(directory, os.X_OK) else "cannot be entered by this user"


def _with_arguments(server: Server, search: str, base: Path) -> Finding | None:
    try:
        command, *args = shlex.split(server.command or "")
    except ValueError:
        return None
    if not args or find(command, search, base).path is None:
        return None
    settings = shlex.join([f"command={command}", f"args={json.dumps([*args, *server.args])}"])
    return found("program-with-arguments", server=server.name, path=server.command, settings=settings)


def _missing(server: Server, search: str, base: Path, shell: Environ, *, running: bool) -> Finding:
    command, name = server.command or "", server.name
    if "/" in command:
        path = base / command
        astray = _begins_at_home(server, path)
        return found("program-absent-at-home" if astray else "program-absent", server=name, path=path)
    if other := shutil.which(command, path=shell.get("PATH")):
        return found("program-on-other-path", server=name, command=command, search=search, elsewhere=other)
    if running:
        return found("program-not-on-path", server=name, command=command, search=search)
    return found("program-not-on-path-of-shell", server=name, command=command, search=search)


def _begins_at_home(server: Server, path: Path) -> bool:
    """Whether a relative path starts at the home directory because there is no `cwd`."""
    return not server.cwd and str(path) not in {server.command, *server.args}


def _startable(name: str, program: Path, search: str) -> Iterator[Finding]:
    try:
        with program.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        # A binary may be executable without being readable.
        return
    if head.startswith(ELF):
        return
    first = head.partition(b"\n")[0]
    if not first.startswith(b"#!"):
        yield found("program-is-none", server=name, path=program)
    elif first.endswith(b"\r"):
        yield found("program-from-windows", server=name, path=program)
    else:
        yield from _interpreter(name, program, first[2:].decode(errors="replace").split(), search)


def _interpreter(name: str, program: Path, words: list[str], search: str) -> Iterator[Finding]:
    interpreter = words[0] if words else ""
    if not _is_file(Path(interpreter)):
        named = interpreter or "its first line names no interpreter"
        yield found("interpreter-absent", server=name, path=program, interpreter=named)
    elif PurePath(interpreter).name == "env":
        wanted = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        if wanted and find(wanted, search, program.parent).path is None:
            yield found("interpreter-not-on-path", server=name, path=program, interpreter=wanted, search=search)


def _script(server: Server, base: Path) -> Iterator[Finding]:
    first = server.args[0] if server.args else ""
    if WRITTEN in first or (WRITTEN in (server.cwd or "") and not first.startswith("/")):
        return
    if not INTERPRETERS.fullmatch(PurePath(server.command or "").name) or not SCRIPT.fullmatch(first):
        return
    path = base / first
    if not _is_file(path):
        astray = _begins_at_home(server, path)
        yield found("script-absent-at-home" if astray else "script-absent", server=server.name, path=path)


# --- urls -------------------------------------------------------------------------------------------------


def endpoint(server: Server, *, connect: bool) -> Iterator[Finding]:
    """Findings on a server's URL; `connect` tries local URLs, unless the daemon knows their state."""
    if server.type in {TransportType.UNIX, TransportType.SCRIPT}:
        path = unix_path(server.url or "")
        if connect and server.url and (problem := _refusal(path)):
            yield found("endpoint-socket-silent", server=server.name, address=path, problem=problem)
        return
    parts = urlsplit(server.url or "")
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    addresses = loopback(host)
    if addresses:
        problems = [_refusal(address, port) for address in addresses] if connect else [""]
        if all(problems):
            yield found("endpoint-silent", server=server.name, address=f"{host}:{port}", problem=problems[0])
    elif (scheme := parts.scheme) in {"http", "ws"}:
        carried = "its headers and all calls" if server.headers else "all calls"
        yield found("endpoint-unencrypted", server=server.name, host=host, scheme=scheme, carried=carried)
    else:
        yield found("endpoint-remote", server=server.name, host=host)


def loopback(host: str) -> tuple[str, ...]:
    """The loopback addresses of a host; none for other hosts."""
    if host == "localhost" or host.endswith(".localhost"):
        return LOCAL
    return (host,) if is_loopback(host) else ()


def unix_path(url: str) -> str:
    """The path in a unix URL, or a bare path."""
    return url if url.startswith("/") else unquote(urlsplit(url).path)


def _refusal(address: str, port: int | None = None) -> str:
    family = socket.AF_UNIX if port is None else socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(CONNECT_SECONDS)
            probe.connect(address if port is None else (address, port))
    except OSError as error:
        return error.strerror or str(error)
    return ""


# --- servers ----------------------------------------------------------------------------------------------


def check(scene: Scene) -> Iterator[Finding]:
    """Findings on every server, in the configuration's order."""
    if scene.config is None:
        yield found("servers-unread")
        return
    for name, server in scene.config.mcp_servers.items():
        if not server.enabled:
            yield found("server-off", server=name)
            continue
        what = [*_server(server, scene), *_held(name, scene), *sharing(server)]
        yield from what
        if all(each.level is Level.NOTE for each in what):
            yield found("server-sound", server=name, reached=_reached(server, scene))


def _server(server: Server, scene: Scene) -> Iterator[Finding]:
    now = None if scene.running is None else _now(server.name, scene.running)
    if server.type is not TransportType.STDIO:
        yield from [] if now is None else [now]
        yield from endpoint(server, connect=now is None)
        return
    running = scene.running is not None
    what = list(command(server, scene.inherited, scene.environ, running=running))
    # What is wrong with the command causes the server's state, and is more exact.
    if now is not None and all(each.level is not Level.FAULT for each in what):
        yield now
    yield from what
    yield from packages(server)


def _held(name: str, scene: Scene) -> Iterator[Finding]:
    seen = scene.running.status["servers"].get(name, {}) if scene.running is not None else {}
    is_approvable = scene.config is None or scene.config.lock is None or not scene.config.lock.problem
    if is_approvable and (held := list(seen.get("held", ()))):
        count, names = counted(len(held), "definition"), ", ".join(held[:NAMED])
        yield found("definitions-held", server=name, count=count, names=names)


def _now(name: str, running: Running) -> Finding | None:
    seen = running.status["servers"].get(name)
    if seen is None or seen["state"] in WELL | COMING:
        return None
    return found(
        "server-down",
        server=name,
        state=seen["state"],
        reason=seen["reason"] or "no reason is known",
        happened=seen.get("happened", ""),
        helps=seen.get("helps") or f"`mcpd status` and `mcpd logs {name}` tell more.",
    )


def _reached(server: Server, scene: Scene) -> str:
    what = f"type {server.type}"
    if server.type is TransportType.STDIO:
        what = named(server, scene.inherited)
    if server.shared_by is Share.ALL:
        return what
    return f"{what}, one for each {server.shared_by}, at most {most_instances(server)} at a time"


def most_instances(server: Server) -> int:
    """The number of a server's instances that may run at once."""
    return 1 if server.shared_by is Share.ALL else server.limits.instances


def sharing(server: Server) -> Iterator[Finding]:
    """Findings on how clients share a server, each with its `key`."""
    for each in command_lines.advice(server):
        name, key, why = server.name, each.key, each.why
        if isinstance(each.value, Share):
            yield found("server-shared", server=name, key=key, why=why, share=each.value)
        elif isinstance(each.value, int):
            yield found("server-limit-too-high", server=name, key=key, why=why, most=each.value)
        else:
            words = ", ".join(f'"{word}"' for word in each.value)
            if each.in_script:
                yield found("server-instances-meet-in-script", server=name, key=key, why=why, words=words)
            elif WRITTEN not in each.value:
                setting = f"'args[{len(server.args)}]={each.value[0]}'"
                yield found(
                    "server-instances-meet", server=name, key=key, why=why, words=words, setting=setting
                )
            elif each.in_container:
                yield found("server-bound-to-a-mount", server=name, key=key, why=why, words=words)
            else:
                yield found("server-bound-to-a-directory", server=name, key=key, why=why, words=words)
