"""What there is of everything, what a house uses of it, and what is used up first when the house grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from bench.scale import agents
from daemon.config.tuning import Limits, ServerLimits

if TYPE_CHECKING:
    from bench.scale.beside import Beside
    from bench.scale.costs import Costs
    from bench.scale.scenarios import Played

LOOP_FULL = 0.7
"""Of the loop's time: beyond, every further call waits longer than it takes, and each large answer is felt."""

DESCRIPTORS = 65_536
"""`LimitNOFILE=` of the units; a shell gives 1,024, and `mcpd doctor` says when that is too few."""

MEMORY_MB = 1024.0
"""What the daemon itself may take before somebody asks why; its servers are not in it."""

MACHINE_MB = 16 * 1024.0
"""Of a machine with everything on it: the daemon, a bridge for each window, the servers."""

SERVER_MB = 100.0
"""Of a server's own process: 48 real ones took 4.8 GB."""

STORE_FULL = 0.7
"""Of the loads that the store took in a second, all sessions at once."""


@attrs.frozen(kw_only=True)
class Use:
    """One resource in one house."""

    name: str
    used: float
    limit: float
    fixed: float = 0.0
    """What of it does not grow with the clients."""

    @property
    def room(self) -> float:
        """How many times as many clients it would carry."""
        growing = self.used - self.fixed
        return float("inf") if growing <= 0 else (self.limit - self.fixed) / growing


def memory(costs: Costs, clients: int, servers: int) -> tuple[float, float]:
    """Megabytes of the daemon: all of it, and what of it is there without clients."""
    fixed = costs.base_mb + servers * (costs.server_kb + agents.TOOLS * costs.tool_kb) / 1024
    return fixed + clients * costs.client_kb / 1024, fixed


def machine(costs: Costs, clients: int, servers: int) -> tuple[float, float]:
    """Megabytes of the daemon, its servers and the clients' bridges: all, and what is there without clients."""
    whole, fixed = memory(costs, clients, servers)
    copies = servers * SERVER_MB
    return whole + copies + clients * costs.bridge_mb, fixed + copies


def descriptors(beside: Beside, clients: int, servers: int) -> tuple[float, float]:
    """Of the daemon: all, and those that are open without clients."""
    fixed = beside.base_descriptors + servers * beside.server_descriptors
    return fixed + clients * beside.client_descriptors, fixed


def uses(played: Played, costs: Costs, beside: Beside) -> list[Use]:
    """What a house uses of everything."""
    clients, servers = played.scenario.clients, played.scenario.servers
    all_memory, fixed_memory = memory(costs, clients, servers)
    house, empty = machine(costs, clients, servers)
    opened, fixed = descriptors(beside, clients, servers)
    places = ServerLimits()
    return [
        Use(name="the loop", used=played.busy, limit=LOOP_FULL),
        Use(name="the busiest server", used=played.slowest, limit=1.0),
        Use(name="places at one server", used=played.places, limit=places.in_flight + places.queue),
        Use(name="`limits.connections`", used=clients, limit=Limits().connections),
        Use(name="descriptors", used=opened, limit=DESCRIPTORS, fixed=fixed),
        Use(name="1 GB for the daemon", used=all_memory, limit=MEMORY_MB, fixed=fixed_memory),
        Use(name="16 GB for all", used=house, limit=MACHINE_MB, fixed=empty),
        Use(name="the store's writer", used=played.loads, limit=costs.loads * STORE_FULL),
    ]
