"""Servers that are known to need something of a configuration, by the packages that they come in.

Only what was seen to go wrong stands here, with what was seen to help.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from daemon.cli.commands import started

if TYPE_CHECKING:
    from collections.abc import Mapping

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

_VERSION = re.compile(r"(?<=.)(?:@|:|==)[^/@:]*$")


def known(server: Server) -> Known | None:
    """What is known of the server that a command line starts; None if nothing is."""
    for words in started((server.command or "", *server.args)):
        for word in words:
            for each in KNOWN:
                if _VERSION.sub("", word) in each.packages or _stands_in(word, each.packages):
                    return each
    return None


def _stands_in(word: str, packages: frozenset[str]) -> bool:
    """Whether a word is the path of a program in a package, as npm installs it."""
    return any(f"node_modules/{package}/" in word for package in packages)
