"""Houses of several sizes, played on the loop: what it is busy with, what it adds to calls."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import attrs

from bench.calls.rounds import quantiles
from bench.scale import agents
from bench.scale.loop import Clock, Loop, Message, waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.scale.agents import Upstream
    from bench.scale.costs import Costs

SEED = 6
"""All dice are thrown from it: the same costs give the same numbers."""

CALLS = 40_000
"""A run is about as long as so many calls take: a 99th percentile then stands on hundreds of them."""

LEAST, MOST = 20.0, 900.0
"""Seconds of the shortest and longest run, on the clock of the model."""

WARM = 0.2
"""Share of a run after which it counts: queues have then found their length."""

PACE = 0.2
"""Calls a second of a window, about: only the length of a run is taken from it."""


@attrs.frozen(kw_only=True)
class Scenario:
    """One house."""

    name: str
    clients: int
    servers: int


SCENARIOS = (
    Scenario(name="one developer", clients=5, servers=20),
    Scenario(name="a heavy one", clients=50, servers=50),
    Scenario(name="a shared host", clients=500, servers=50),
    Scenario(name="1,000 clients", clients=1_000, servers=100),
    Scenario(name="5,000 clients", clients=5_000, servers=100),
    Scenario(name="10,000 clients", clients=10_000, servers=100),
)


@attrs.frozen(kw_only=True)
class Played:
    """What came of a house; times in seconds."""

    scenario: Scenario
    rate: float
    """Calls a second that were answered."""
    busy: float
    """Share of its time that the loop worked."""
    chores: float
    """Share of its time that went to lists, searches, loads, connections and scrapes."""
    p50: float
    p99: float
    """What the loop added to a call, the call's own cost included."""
    refused: float
    """Share of calls that a server had no place for."""
    slowest: float
    """How busy the workers of the busiest server were, 0 to 1."""
    places: float
    """Calls that the fullest server held, on average."""
    loads: float
    searches: float
    """A second."""


def play(scenario: Scenario, costs: Costs, *, calls: int = CALLS, seed: int = SEED) -> Played:
    """Let a house live for a while."""
    clock, dice = Clock(), random.Random(seed)
    loop = Loop(clock, costs.visit, costs.slice)
    upstreams = agents.upstreams_of(clock, dice, scenario.servers)
    shares = agents.weights(upstreams)
    clients = [agents.Client(clock, loop, dice, costs, upstreams, shares) for _ in range(scenario.clients)]
    spent = _chores(scenario, clock, loop, dice, costs)
    until = min(MOST, max(LEAST * calls / CALLS, calls / (scenario.clients * PACE)))
    begun = until * WARM
    clock.run(begun)
    _forget(clients, upstreams)
    spent.clear()
    busy = loop.busy
    clock.run(begun + until)
    return _summed(scenario, until, loop.busy - busy, clients, upstreams, sum(spent))


def _chores(scenario: Scenario, clock: Clock, loop: Loop, dice: random.Random, costs: Costs) -> list[float]:
    """Begin what happens by itself. Returns where the seconds of each time will stand."""
    spent: list[float] = []
    tools = agents.TOOLS
    same = (1 - agents.CHANGED) * costs.relist + agents.CHANGED * costs.changed
    listed = costs.connection + costs.listing * tools * scenario.servers
    for every, work in (
        (agents.REFRESH / scenario.servers, same * tools),
        (agents.LIVES / scenario.clients, listed),
        (agents.SCRAPE, costs.scrape),
    ):
        _again(clock, loop, dice, every, work, spent)
    return spent


def _again(
    clock: Clock, loop: Loop, dice: random.Random, every: float, work: float, spent: list[float]
) -> None:
    """Have the loop do something now and then, at no regular times."""

    def act() -> None:
        spent.append(work)
        loop.arrive(act, Message(work, _nothing))
        clock.at(clock.now + dice.expovariate(1 / every), act)

    clock.at(dice.expovariate(1 / every), act)


def _nothing() -> None:
    """What comes of it is nobody's."""


def _forget(clients: Sequence[agents.Client], upstreams: Sequence[Upstream]) -> None:
    for client in clients:
        client.added.clear()
        client.searches = client.loads = 0
    for upstream in upstreams:
        upstream.worked = upstream.held = 0.0
        upstream.refused = 0


def _summed(
    scenario: Scenario,
    seconds: float,
    busy: float,
    clients: Sequence[agents.Client],
    upstreams: Sequence[Upstream],
    spent: float,
) -> Played:
    added = [each for client in clients for each in client.added]
    p50, p99 = quantiles(added)
    refused = sum(upstream.refused for upstream in upstreams)
    slowest = max(upstreams, key=_used)
    loads, searches = sum(client.loads for client in clients), sum(client.searches for client in clients)
    costs = clients[0].costs
    return Played(
        scenario=scenario,
        rate=len(added) / seconds,
        busy=busy / seconds,
        chores=(spent + loads * costs.load + searches * costs.search) / seconds,
        p50=p50,
        p99=p99,
        refused=refused / (refused + len(added)),
        slowest=min(1.0, _used(slowest) / seconds),
        places=max(upstream.held for upstream in upstreams) / seconds,
        loads=loads / seconds,
        searches=searches / seconds,
    )


def _used(upstream: Upstream) -> float:
    return upstream.worked / upstream.kind.at_once


@attrs.frozen(kw_only=True)
class Loaded:
    """What a rate of calls does; times in seconds."""

    rate: float
    """Calls a second, at random times, each from a client and to a server that has no other at the moment."""
    busy: float
    p50: float
    p99: float
    wait: float
    """For the loop, on average, each of the two times."""
    formula: float
    """The same by Pollaczek and Khinchine."""


def under_load(rate: float, costs: Costs, *, calls: int = CALLS, seed: int = SEED) -> Loaded:
    """Let calls come at a rate, whatever becomes of them; the server takes 1 to 100 ms."""
    clock, dice, added = Clock(), random.Random(seed), list[float]()
    loop = Loop(clock, costs.visit, costs.slice)
    work = (costs.message + costs.wrapper) / 2

    def come() -> None:
        came = clock.now
        loop.arrive(object(), Message(work, partial(ask, came)))
        clock.at(came + dice.expovariate(rate), come)

    def ask(came: float) -> None:
        spent = clock.now - came
        clock.at(clock.now + dice.uniform(0.001, 0.1), partial(answer, spent))

    def answer(spent: float) -> None:
        came = clock.now
        loop.arrive(object(), Message(work, lambda: added.append(spent + clock.now - came)))

    clock.at(0.0, come)
    clock.run(calls / rate)
    p50, p99 = quantiles(added)
    each = costs.visit + work
    return Loaded(
        rate=rate,
        busy=loop.busy / clock.now,
        p50=p50,
        p99=p99,
        wait=sum(loop.waits) / len(loop.waits),
        formula=waiting(2 * rate, each, each * each),
    )
