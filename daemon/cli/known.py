"""Servers that are known to need something of a configuration, by the packages that they come in.

Only what was seen to go wrong stands here, with what was seen to help.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from daemon.cli import runners
from daemon.cli.commands import started
from daemon.cli.containers import image_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daemon.config.model import Server


class Known(NamedTuple):
    """A server, and what it needs."""

    packages: frozenset[str]
    """What it is called in npm, PyPI and the registries of images, without a version."""
    why: str
    """What goes wrong otherwise, after its name."""
    limits: Mapping[str, int]
    """The most that each of its `limits` may be (`config.tuning.ServerLimits`)."""


KNOWN = (
    Known(
        frozenset({"@modelcontextprotocol/server-memory", "mcp-server-memory", "mcp/memory"}),
        "reads its file and writes it anew for each call: calls at the same time lose each other's changes",
        {"in_flight": 1},
    ),
)
"""All of them."""

_VERSION = re.compile(r"(?<=.)(?:@|==)[^/@]*$")
_TAG = re.compile(r"(?::[^/@]*)?(?:@.*)?$")
_DEFAULT_REGISTRY = "docker.io/"
_INTERPRETERS = frozenset({"bun", "deno", "node"})


def known(server: Server) -> Known | None:
    """What is known of the server that a command line starts; None if nothing is."""
    for words in started((server.command or "", *server.args)):
        for name in _names(words):
            for each in KNOWN:
                if name in each.packages or _stands_in(name, each.packages):
                    return each
    return None


def _names(words: Sequence[str]) -> Iterator[str]:
    """What a command starts, without a version: not what it is told, which may be the name of anything."""
    if (image := image_of(words)) is not None:
        yield _TAG.sub("", image.name.removeprefix(_DEFAULT_REGISTRY))
    elif packages := runners.started(words):
        yield from (_VERSION.sub("", package) for package in packages)
    elif words[0] in _INTERPRETERS:
        yield from [word for word in words[1:] if not word.startswith("-")][:1]
    else:
        yield words[0]


def _stands_in(word: str, packages: frozenset[str]) -> bool:
    """Whether a word is the path of a program in a package, as npm installs it."""
    return any(f"node_modules/{package}/" in word for package in packages)
