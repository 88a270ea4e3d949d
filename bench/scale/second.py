"""What a second daemon would win: the part of the work that it can take over, by Amdahl's law."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from bench.scale import agents
from bench.scale.limits import LOOP_FULL, SERVER_MB, memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.scale.costs import Costs
    from bench.scale.scenarios import Played

HOP = 0.5
"""Of what a connection costs: what a process pays that reads its first line and passes it on."""


@attrs.frozen(kw_only=True)
class Way:
    """One way to have more than one daemon."""

    name: str
    alone: float
    """Share of today's work of the loop that each process still does for all; 0 to 1."""
    memory: float
    """Megabytes of two daemons, or of the daemon and the other process, with the servers."""
    copies: float
    """Copies of each server when there are two."""

    def gain(self, daemons: int) -> float:
        """How many times as much they carry."""
        return amdahl(self.alone, daemons)


def amdahl(alone: float, workers: int) -> float:
    """How many times as much is done by so many, if a share of the work is done by one or by each."""
    return 1 / (alone + (1 - alone) / workers)


def ways(played: Played, costs: Costs) -> Iterator[Way]:
    """What can be thought of, in the house that was played."""
    clients, servers = played.scenario.clients, played.scenario.servers
    whole, fixed = memory(costs, clients, servers)
    # Every daemon lists every server for itself, and is scraped by itself.
    chores = (servers / agents.REFRESH) * agents.TOOLS * costs.relist + costs.scrape / agents.SCRAPE
    listing = chores / LOOP_FULL
    once = servers * SERVER_MB
    twice = whole + fixed + 2 * once
    yield Way(name="by sessions: each accepts on the same socket", alone=listing, memory=twice, copies=2)
    passed = clients / agents.LIVES * costs.connection * HOP / played.busy
    yield Way(
        name="by sessions: a front process passes the connection on",
        alone=listing + passed,
        memory=twice,
        copies=2,
    )
    for surface, call in (("full", costs.call), ("category", costs.wrapped)):
        yield Way(
            name=f"by servers: a front process passes calls on, surface {surface}",
            alone=min(1.0, 2 * costs.visit / call),
            memory=whole + costs.base_mb + once,
            copies=1,
        )
    yield Way(
        name="no second daemon: searches and loads in a process of their own",
        alone=1 - aside(played, costs),
        memory=whole + fixed + once,
        copies=1,
    )


def aside(played: Played, costs: Costs) -> float:
    """Share of the loop's work that goes to searches and loads."""
    return min(1.0, (played.searches * costs.search + played.loads * costs.load) / played.busy)


def herd(costs: Costs, clients: int) -> float:
    """Seconds from a start until all clients are served, when all come at once."""
    return costs.ready + clients * costs.connection
