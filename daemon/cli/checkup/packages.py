"""What a server's command fetches before it runs: which version, and whether it needs the network for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.checkup.scene import note, warning
from daemon.cli.commands import started
from daemon.cli.containers import CONTAINERS, image_of
from daemon.cli.runners import fetches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daemon.cli.checkup.scene import Finding
    from daemon.config.model import Server
    from daemon.errors import Fault

ANEW = {
    "npx": "npx asks its registry at each start: without a network it waits for over a minute",
    "uvx": "uvx takes what it has; what is not in its cache it downloads",
}
"""What a runner does at a start, where more is known than that it may fetch."""


def check(server: Server, advised: Sequence[Fault]) -> Iterator[Finding]:
    """Versions and the network.

    Args:
        server: its configuration.
        advised: what `advice` says about its arguments.
    """
    for each in advised:
        yield warning(
            f"{server.name}: {each.message}.",
            "What nobody here has looked at can bring other tools, or none, and do more (MCP03).",
        )
    for words in started((server.command or "", *server.args)):
        if words[0] in CONTAINERS:
            yield from _container(server.name, words)
        elif not advised and fetches(words):
            known = ANEW.get(words[0], f"{words[0]} downloads what it does not have")
            yield note(
                f"{server.name}: {known}.",
                do="Install the package and start its program, or add --offline once it was fetched.",
            )


def _container(name: str, words: Sequence[str]) -> Iterator[Finding]:
    never = "never" in words or any(word.startswith("--pull") and "never" in word for word in words)
    if image_of(words) is not None and not never:
        yield note(
            f"{name}: {words[0]} downloads its image at the first start.",
            do=f"`{words[0]} pull` does it before.",
        )
