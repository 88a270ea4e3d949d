"""What a server's command fetches before it runs: which version, and whether it needs the network for it."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from daemon.cli.advice import RUNNERS
from daemon.cli.checkup.scene import note, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daemon.cli.checkup.scene import Finding
    from daemon.config.model import Server
    from daemon.errors import Fault

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

ANEW = {
    "npx": "npx asks its registry at each start: without a network it waits for over a minute",
    "uvx": "uvx takes what it has; what is not in its cache it downloads",
}
"""What a runner does at a start, where more is known than that it may fetch."""


class Image(NamedTuple):
    """An image of a container."""

    name: str
    """As it is written."""
    pinned: bool
    """Whether it names one digest, or at least one release."""


def check(server: Server, advised: Sequence[Fault]) -> Iterator[Finding]:
    """Versions and the network.

    Args:
        server: its configuration.
        advised: what `advice` says about its arguments.
    """
    for each in advised:
        yield warning(
            f"{server.name}: {each.message}.",
            "A release that nobody here has looked at can bring other tools, or none (MCP03).",
        )
    words = (PurePath(server.command or "").name, *server.args)
    if words[0] in CONTAINERS:
        yield from _container(server.name, words)
    elif not advised and _fetches(words):
        known = ANEW.get(words[0], f"{words[0]} downloads what it does not have")
        yield note(
            f"{server.name}: {known}.",
            do="Install the package and start its program, or add --offline once it was fetched.",
        )


def _fetches(words: Sequence[str]) -> bool:
    is_runner = any(words[: len(runner.words)] == runner.words for runner in RUNNERS)
    return is_runner and not {"--offline", "--no-install"} & set(words)


def _container(name: str, words: Sequence[str]) -> Iterator[Finding]:
    image = image_of(words)
    if image is None:
        return
    if not image.pinned:
        yield warning(
            f"{name}: the image {image.name} has no version.",
            "Whoever may push it decides what runs here at the next pull.",
            "Name a release, or better its digest: image@sha256:...",
        )
    if not any(word.startswith("--pull") and "never" in word for word in words) and "never" not in words:
        yield note(
            f"{name}: {words[0]} downloads its image at the first start.",
            do=f"`{words[0]} pull` does it before.",
        )


def image_of(words: Sequence[str]) -> Image | None:
    """The image that a command line runs; None if that cannot be told."""
    if "run" not in words:
        return None
    rest = iter(words[words.index("run") + 1 :])
    for word in rest:
        if not word.startswith("-"):
            return _image(word)
        if word in _VALUED:
            next(rest, None)
    return None


def _image(written: str) -> Image:
    # A registry's port has a colon as well: only what follows the last slash can be a tag.
    last = written.rpartition("/")[2]
    name, _, digest = last.partition("@")
    tag = name.partition(":")[2]
    return Image(written, bool(digest) or tag not in {"", "latest"})
