"""Checks what a known server keeps for its clients, or cannot bear, against what its entry says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.doctor.findings import found
from daemon.config.known_servers import advice
from daemon.config.model import Share
from daemon.config.sharing import WRITTEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daemon.cli.doctor.findings import Finding
    from daemon.config.model import Server


def most_instances(server: Server) -> int:
    """How many instances of a server may run at the same time."""
    return 1 if server.shared_by is Share.ALL else server.limits.instances


def check(server: Server) -> Iterator[Finding]:
    """Findings about one server, each with the `key` of its entry that it is about."""
    for each in advice(server):
        name, key, why = server.name, each.key, each.why
        match each.value:
            case Share() as share:
                yield found("server-shared", server=name, key=key, why=why, share=share)
            case int(most):
                yield found("server-limit-too-high", server=name, key=key, why=why, most=most)
            case words if WRITTEN not in words:
                yield found("server-instances-meet", server=name, key=key, why=why, words=_listed(words))
            case words:
                yield found(
                    "server-bound-to-a-mount" if each.in_container else "server-bound-to-a-directory",
                    server=name,
                    key=key,
                    why=why,
                    words=_listed(words),
                )


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
