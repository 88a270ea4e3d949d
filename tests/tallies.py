"""Counters as the daemon has them, with its surfaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.counting.tally import Tally
from daemon.surfaces.table import SURFACES

if TYPE_CHECKING:
    from collections.abc import Iterable


def new_tally(servers: Iterable[str] = ()) -> Tally:
    """Counters that stand at zero."""
    return Tally(servers, meta_tools={name: surface.meta_tools for name, surface in SURFACES.items()})
