"""Counters as the daemon has them, with its surfaces."""

from collections.abc import Iterable

from daemon.counting.tally import Tally
from daemon.surfaces.table import SURFACES


def new_tally(servers: Iterable[str] = ()) -> Tally:
    """Counters that stand at zero."""
    return Tally(servers, meta_tools={name: surface.meta_tools for name, surface in SURFACES.items()})
