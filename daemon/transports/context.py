"""What every transport is given by the actor that opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from daemon.config.model import Server
    from daemon.ports import ConnectionEvents
    from daemon.transports.children import Children
    from daemon.wire.outbox import Outbox


@attrs.frozen(kw_only=True)
class OpenContext:
    """One server, and the parts of the daemon that a connection to it needs."""

    server: Server
    """Its configuration."""
    events: ConnectionEvents
    """The actor that owns the connection."""
    outbox: Outbox
    """The daemon's outbox."""
    children: Children
    """The daemon's child processes."""
