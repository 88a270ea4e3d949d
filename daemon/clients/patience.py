"""How long a client may be kept waiting for its handshake or a list: no longer than it waits for any.

A client that gives up has no tools at all; one that is answered in time lacks those of the slow servers, and
most are told of them later (`notifications/tools/list_changed`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daemon.surfaces.fitting import ClientInfo

PATIENCE = {
    # It gives a server 10 s (`startup_timeout_sec`), asks once, and does not listen to changes.
    "codex": 8.0,
    # It gives up after 5 s.
    "opencode": 4.0,
}
"""Seconds that clients wait who wait less long than others, by their name or how it begins, up to a hyphen."""

OTHERS = 25.0
"""Seconds that others wait: Claude Code gives a server 30 s (`MCP_TIMEOUT`), who uses an SDK as it is 60 s."""


def patience_of(client: ClientInfo) -> float:
    """Seconds that one request of a client may wait for the starts of servers."""
    return PATIENCE.get(client.name.partition("-")[0], OTHERS)
