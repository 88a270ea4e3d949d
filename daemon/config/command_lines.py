"""What a server's command line really starts: behind `env`, `exec` and the like, and inside `sh -c`.

For containers also: which image they run, whether it is pinned, and what it is given of the machine.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

Words: TypeAlias = tuple[str, ...]
"""A command without its directory, and its arguments."""

MAX_DEPTH = 4
"""How deeply nested wrappers are looked into: nobody writes more, and a script could nest any number."""

SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh"})
WRAPPERS: dict[str, frozenset[str]] = {
    # With either of its two, what follows is only looked up.
    "command": frozenset({"-v", "-V"}),
    "doas": frozenset({"-u", "-C"}),
    "exec": frozenset({"-a"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "stdbuf": frozenset({"-i", "--input", "-o", "--output", "-e", "--error"}),
    "sudo": frozenset((
        "-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "--close-from", "-D",
        "--chdir", "-R", "--chroot", "-T", "--command-timeout", "-r", "--role", "-t", "--type",
    )),
    "timeout": frozenset({"-k", "--kill-after", "-s", "--signal"}),
    "xargs": frozenset((
        "-a", "--arg-file", "-d", "--delimiter", "-E", "-I", "-L", "--max-lines", "-n", "--max-args", "-P",
        "--max-procs", "-s", "--max-chars",
    )),
}  # fmt: skip
"""Commands that start the one after them, each with those of its options that take the next word as a value."""

OPERANDS = {"timeout": 1}
"""Number of words between a wrapper's options and the command that it starts."""

_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)
_COMMAND_OPTION = re.compile(r"-[a-z]*c", re.ASCII)
_SHELL_VALUED = re.compile(r"[-+][a-zA-Z]*[oO]|--rcfile|--init-file", re.ASCII)
_WINDOWS = re.compile(r"\.(?:cmd|exe|ps1)$", re.IGNORECASE)
_OPERATOR = re.compile(r"[;&|()<>]+")
_ENV_VALUED = frozenset({"-u", "--unset", "-C", "--chdir"})
_ENV_SPLIT = re.compile(r"-S|--split-string")

CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
"""Commands that run images."""

_RUN_VALUED = frozenset((
    "-a", "--add-host", "--annotation", "--attach", "--blkio-weight", "--cap-add", "--cap-drop",
    "--cgroup-parent", "--cgroupns", "--cidfile", "-c", "--cpu-shares", "--cpus", "--cpuset-cpus",
    "--device", "--dns", "--dns-search", "--domainname", "-e", "--env", "--env-file", "--entrypoint",
    "--expose", "--gpus", "--group-add", "-h", "--hostname", "--ip", "--ipc", "-l", "--label",
    "--label-file", "--link", "--log-driver", "--log-opt", "--mac-address", "-m", "--memory",
    "--memory-swap", "--mount", "--name", "--net", "--network", "--network-alias", "--oom-score-adj",
    "--pid", "--pids-limit", "--platform", "-p", "--publish", "--pull", "--restart", "--runtime",
    "--security-opt", "--shm-size", "--stop-signal", "--stop-timeout", "--storage-opt", "--sysctl",
    "--tmpfs", "-u", "--user", "--ulimit", "--userns", "--uts", "-v", "--volume", "--volume-driver",
    "--volumes-from", "-w", "--workdir",
))  # fmt: skip
"""Options of `docker run` that take the next word as their value (docker-run(1))."""

_RUN_GLOBAL = frozenset((
    "--config", "-c", "--context", "-H", "--host", "-l", "--log-level", "--tlscacert", "--tlscert", "--tlskey",
    "--connection", "--url", "--identity", "--root", "--runroot", "--namespace", "-n", "--address", "-a",
))  # fmt: skip
"""Options before the subcommand that take the next word as their value."""

_MOUNTED = re.compile(r"(?:.*,)?(?:src|source)=([^,]+).*")
_WHOLE = re.compile(r"/+|(?:/var)?/run/(?:docker|podman/podman|containerd/containerd)\.sock")
"""Mounts that give a container the whole machine: its files, or the socket of the container engine."""


class Image(NamedTuple):
    """An image of a container."""

    name: str
    """As written."""
    pinned: bool
    """Whether it names a digest, or at least a release."""


class _Run(NamedTuple):
    image: str
    options: list[tuple[str, str]]
    """Each option with its value."""


def started(words: Sequence[str], depth: int = 0) -> Iterator[Words]:
    """Each command that a command line starts; the command itself if it is not a wrapper."""
    if not words or depth > MAX_DEPTH:
        return
    name, rest = _WINDOWS.sub("", PurePath(words[0]).name), words[1:]
    inner: list[Sequence[str]]
    if name in WRAPPERS:
        inner = [behind_options(rest, WRAPPERS[name])[OPERANDS.get(name, 0) :]]
    elif name == "env":
        inner = [_behind_env(rest)]
    elif name in SHELLS and (script := _script(rest)) is not None:
        inner = _commands(script)
    else:
        yield (name, *rest)
        return
    for each in inner:
        yield from started(_behind_assignments(each), depth + 1)


def behind_options(words: Sequence[str], valued: Collection[str]) -> Sequence[str]:
    """What follows the options at the start of a command line; `valued` take the next word as their value."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            return words[at + 1 :]
        at += 2 if words[at] in valued else 1
    return words[at:]


def _behind_assignments(words: Sequence[str]) -> Sequence[str]:
    first = next((at for at, word in enumerate(words) if not _ASSIGNED.fullmatch(word)), len(words))
    return words[first:]


def _behind_env(words: Sequence[str]) -> Sequence[str]:
    for at, word in enumerate(words):
        if _ENV_SPLIT.fullmatch(word):
            return (*_split(" ".join(words[at + 1 : at + 2])), *words[at + 2 :])
        if not word.startswith("-") and (at == 0 or words[at - 1] not in _ENV_VALUED):
            return words[at:]
    return ()


def _script(words: Sequence[str]) -> str | None:
    """The script that a shell is given with `-c`; None if there is none."""
    valued = False
    for at, word in enumerate(words[:-1]):
        if valued:
            valued = False
        elif _COMMAND_OPTION.fullmatch(word):
            return words[at + 1]
        elif _SHELL_VALUED.fullmatch(word):
            valued = True
        elif not word.startswith(("-", "+")):
            return None
    return None


def _commands(script: str) -> list[Sequence[str]]:
    found: list[list[str]] = [[]]
    for token in _split(script.replace("\n", ";")):
        if _OPERATOR.fullmatch(token):
            found.append([])
        else:
            found[-1].append(token)
    return [each for each in found if each]


def _split(text: str) -> list[str]:
    """The words and operators of a shell's command line; empty if it cannot be parsed."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        return []


def warnings(words: Sequence[str]) -> Iterator[str]:
    """What is unwise about a command that runs a container; nothing for any other command."""
    run = _run_of(words)
    if run is None:
        return
    if not _image(run.image).pinned:
        yield (
            f"the image '{run.image}' has no version: anyone who may push it decides what runs here at the next"
            " pull. Name a release, or better its digest: image@sha256:..."
        )
    for option, value in run.options:
        if option == "--privileged" and value != "false":
            yield "--privileged lets the container do all that root can. Leave it out, or give it one --cap-add"
        elif option == "--pid" and value == "host":
            yield "--pid=host shows the container every process of the machine. Leave it out"
        elif option in {"-v", "--volume", "--mount"} and (whole := _whole(value)):
            yield f"the container is given {whole}, and so the whole machine. Give it what it needs"


def image_of(words: Sequence[str]) -> Image | None:
    """The image that a command line runs; None if there is none or it cannot be found."""
    run = _run_of(words)
    return run and _image(run.image)


def _run_of(words: Sequence[str]) -> _Run | None:
    if not words or words[0] not in CONTAINERS:
        return None
    behind = behind_options(words[1:], _RUN_GLOBAL)
    behind = behind[1:] if behind and behind[0] == "container" else behind
    # `docker compose run` names a service, not an image.
    if not behind or behind[0] != "run":
        return None
    options: list[tuple[str, str]] = []
    rest = iter(behind[1:])
    for word in rest:
        if not word.startswith("-"):
            return _Run(word, options)
        option, equals, value = word.partition("=")
        options.append((option, value if equals or option not in _RUN_VALUED else next(rest, "")))
    return None


def _image(written: str) -> Image:
    # A registry's port has a colon as well: only what follows the last slash can be a tag.
    last = written.rpartition("/")[2]
    name, _, digest = last.partition("@")
    tag = name.partition(":")[2]
    return Image(written, bool(digest) or tag not in {"", "latest"})


def _whole(value: str) -> str | None:
    """The source of a mount that gives the whole machine away; None for any other."""
    named = _MOUNTED.fullmatch(value)
    source = named[1] if named else value.partition(":")[0]
    return source if _WHOLE.fullmatch(source) else None
