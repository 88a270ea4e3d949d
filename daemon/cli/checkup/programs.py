"""Whether a server's command can be started: looked for as execvp(3) does, on the PATH that the child gets."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from daemon import paths
from daemon.cli.checkup import kernel
from daemon.cli.checkup.scene import fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daemon.cli.checkup.scene import Finding, Scene
    from daemon.config.model import Server

HEAD = 256
"""Bytes of a program that are read: the kernel itself reads no more of a first line (BINPRM_BUF_SIZE)."""

ELF = b"\x7fELF"

INTERPRETERS = re.compile(r"(?:python|node|ruby|perl|php|bash|sh|deno|bun|tsx)[\d.]*")
"""Commands whose first argument is the script to run, if it is no option."""

SCRIPT = re.compile(r".+\.(?:py|js|mjs|cjs|ts|rb|pl|php|sh)")


class Found(NamedTuple):
    """A program, or why there is none."""

    path: Path | None
    """The file that would be started."""
    blocked: Path | None = None
    """A file of that name that is not executable, where there is no other."""


def check(server: Server, scene: Scene) -> Iterator[Finding]:
    """Everything that can be said about a command without starting it."""
    base = base_of(server, scene)
    if server.cwd and (problem := _unusable(base)):
        yield fault(f"{server.name}: its directory {base} {problem}.", do="Make it, or correct `cwd`.")
        return
    path = path_of(server, scene.inherited)
    found = find(server.command or "", path, base)
    if found.path is not None:
        yield from _startable(server.name, found.path, path)
        yield from _script(server, base)
    elif found.blocked is not None:
        yield fault(f"{server.name}: {found.blocked} is not executable.", do=f"`chmod +x {found.blocked}`")
    else:
        yield _missing(server, path, base, scene)


def base_of(server: Server, scene: Scene) -> Path:
    """The directory that a server is started in."""
    return Path(server.cwd or paths.home(scene.inherited))


def path_of(server: Server, inherited: Mapping[str, str]) -> str:
    """The PATH that a server's command is looked for on."""
    return server.env.get("PATH", inherited.get("PATH", os.defpath))


def find(command: str, path: str, base: Path) -> Found:
    """The program that a command means, started in the directory `base`."""
    directories = [""] if "/" in command else path.split(os.pathsep)
    places = [base / directory / command for directory in directories]
    files = [place for place in places if _is_file(place)]
    started = next((place for place in files if kernel.may(place, os.X_OK)), None)
    return Found(started, None if started or not files else files[0])


def _is_file(path: Path) -> bool:
    """As execvp(3) goes on with the next directory, whatever is wrong with one."""
    try:
        return path.is_file()
    except OSError:
        return False


def _unusable(directory: Path) -> str:
    if not os.path.lexists(directory):
        return "is not there"
    if not os.path.isdir(directory):  # noqa: PTH112 - never raises, whatever is closed to us
        return "is no directory"
    return "" if kernel.may(directory, os.X_OK) else "cannot be entered by this user"


def _missing(server: Server, path: str, base: Path, scene: Scene) -> Finding:
    command = server.command or ""
    if "/" in command:
        return _no_file(server, "program", base / command, "Install it, or correct `command`.")
    elsewhere = shutil.which(command, path=scene.environ.get("PATH"))
    if elsewhere:
        return fault(
            f"{server.name}: {command} is on the PATH of this shell ({elsewhere}), not on the server's.",
            f"That is {path}",
            f'Write "command": "{elsewhere}", or add its directory to Environment=PATH= of the unit.',
        )
    return fault(
        f"{server.name}: {command} is not on the PATH.",
        f"That is {path}" if scene.running else f"That is, for a daemon started in this shell, {path}",
        "Install it, or write its absolute path.",
    )


def _no_file(server: Server, kind: str, path: Path, do: str) -> Finding:
    """A file that is not there; `path` is what a relative one came to."""
    why = ""
    if not server.cwd and str(path) not in {server.command, *server.args}:
        why = "It is named by a relative path, which begins in the home directory where there is no `cwd`."
        do = f'{do} "cwd": "." begins beside the configuration.'
    return fault(f"{server.name}: there is no {kind} {path}.", why, do)


def _startable(name: str, program: Path, path: str) -> Iterator[Finding]:
    """What the kernel would say to a file that is executable."""
    try:
        with program.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        # Executable but not readable is fine for a binary.
        return
    if head.startswith(ELF):
        return
    first = head.partition(b"\n")[0]
    if not first.startswith(b"#!"):
        yield fault(
            f"{name}: {program} is no program: neither a binary nor a script that begins with #!",
            do="Put its interpreter into `command` and the file into `args`.",
        )
    elif first.endswith(b"\r"):
        yield fault(
            f"{name}: {program} has the line ends of Windows.",
            "The kernel takes the carriage return for a part of the interpreter's name.",
            f"`sed -i 's/\\r$//' {program}`",
        )
    else:
        yield from _interpreter(name, program, first[2:].decode(errors="replace").split(), path)


def _interpreter(name: str, program: Path, words: list[str], path: str) -> Iterator[Finding]:
    interpreter = words[0] if words else ""
    if not _is_file(Path(interpreter)):
        yield fault(
            f"{name}: the interpreter of {program} is not there: {interpreter or 'its first line names none'}",
            "An environment that was moved or whose Python was removed is the usual cause.",
            f"Install what {program} belongs to anew.",
        )
    elif PurePath(interpreter).name == "env":
        wanted = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        if wanted and find(wanted, path, program.parent).path is None:
            yield fault(
                f"{name}: {program} wants {wanted}, which is not on the PATH that the server gets.",
                f"That is {path}",
                f'Install {wanted}, or give the server a PATH that has it: "env": {{"PATH": "..."}}',
            )


def _script(server: Server, base: Path) -> Iterator[Finding]:
    """The file that an interpreter is told to run."""
    first = server.args[0] if server.args else ""
    if not INTERPRETERS.fullmatch(PurePath(server.command or "").name) or not SCRIPT.fullmatch(first):
        return
    if not _is_file(base / first):
        yield _no_file(server, "file", base / first, "Correct `args`, or set `cwd`.")
