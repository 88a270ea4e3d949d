"""Servers that all clients share, put to rest when nobody has used them for a while (`idle`)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from daemon.states import SERVING

if TYPE_CHECKING:
    from daemon.upstreams.supervised import SupervisedServer


def rest_if_unused(server: SupervisedServer, now: float) -> float:
    """Put a server to rest if it is due, and return when to look again, both on trio's clock."""
    use = server.use
    if use is None:
        return math.inf
    if use.due > now:
        return use.due
    is_up = server.child.status.value.state in SERVING
    # One that was never used counts from the first look.
    if is_up and use.at > -math.inf and not server.is_busy:
        server.log.say("INFO", f"unused for {use.seconds:g} s (idle): it is ended until the next call")
        server.rest()
    use.note()
    return use.due
