"""What an instance is told of its client: capabilities in the handshake, roots where the client has none."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from daemon.protocol import CLIENT_CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.config.model import Server

ROOTS: Mapping[str, object] = {"listChanged": True}
"""The capability to tell roots, as it is declared for a client that has declared none but has a workspace."""


def capabilities_of(server: Server) -> Mapping[str, object]:
    """The capabilities (MCP, `ClientCapabilities`) that a server is told.

    Those that some client may have; for an instance that one client has to itself, that client's. With a
    workspace there are roots, whoever the client is (`roots_of`).
    """
    instance = server.instance
    if instance is None or instance.capabilities is None:
        return CLIENT_CAPABILITIES
    # Only what mcpd can pass on: a client may declare more, and would never be asked.
    declared = {key: instance.capabilities[key] for key in CLIENT_CAPABILITIES if key in instance.capabilities}
    return declared if instance.workspace is None else {"roots": ROOTS, **declared}


def roots_of(server: Server) -> bytes | None:
    """What an instance is answered that asks for roots and whose client has none; None without a workspace."""
    if server.instance is None or server.instance.workspace is None:
        return None
    directory = PurePosixPath(server.instance.workspace)
    return msgspec.json.encode({"roots": [{"uri": directory.as_uri(), "name": directory.name}]})
