"""Servers in containers: which image they run, whether it stands still, and what it is given of the machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from daemon.cli.commands import behind_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
"""Commands that run images."""

_VALUED = frozenset((
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

_GLOBAL = frozenset((
    "--config", "-c", "--context", "-H", "--host", "-l", "--log-level", "--tlscacert", "--tlscert", "--tlskey",
    "--connection", "--url", "--identity", "--root", "--runroot", "--namespace", "-n", "--address", "-a",
))  # fmt: skip
"""Options before the subcommand that take the next word as their value."""

_BOUND = re.compile(r"(?:.*,)?(?:src|source)=([^,]+).*")
_WHOLE = re.compile(r"/+|(?:/var)?/run/(?:docker|podman/podman|containerd/containerd)\.sock")
"""What gives a container the whole machine: its files, or the socket of who runs containers."""


class Image(NamedTuple):
    """An image of a container."""

    name: str
    """As it is written."""
    pinned: bool
    """Whether it names one digest, or at least one release."""


class _Run(NamedTuple):
    image: str
    options: list[tuple[str, str]]
    """Each with its value."""


def warnings(words: Sequence[str]) -> Iterator[str]:
    """What is unwise about a command that runs a container; nothing about any other."""
    run = _read(words)
    if run is None:
        return
    if not _image(run.image).pinned:
        yield (
            f"the image '{run.image}' has no version: whoever may push it decides what runs here at the next"
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
    """The image that a command line runs; None if that cannot be told."""
    run = _read(words)
    return run and _image(run.image)


def _read(words: Sequence[str]) -> _Run | None:
    if not words or words[0] not in CONTAINERS:
        return None
    behind = behind_options(words[1:], _GLOBAL)
    behind = behind[1:] if behind and behind[0] == "container" else behind
    # What `docker compose run` names is a service.
    if not behind or behind[0] != "run":
        return None
    options: list[tuple[str, str]] = []
    rest = iter(behind[1:])
    for word in rest:
        if not word.startswith("-"):
            return _Run(word, options)
        option, equals, value = word.partition("=")
        options.append((option, value if equals or option not in _VALUED else next(rest, "")))
    return None


def _image(written: str) -> Image:
    # A registry's port has a colon as well: only what follows the last slash can be a tag.
    last = written.rpartition("/")[2]
    name, _, digest = last.partition("@")
    tag = name.partition(":")[2]
    return Image(written, bool(digest) or tag not in {"", "latest"})


def _whole(value: str) -> str | None:
    """The source of a mount, if that is the whole machine."""
    named = _BOUND.fullmatch(value)
    source = named[1] if named else value.partition(":")[0]
    return source if _WHOLE.fullmatch(source) else None
