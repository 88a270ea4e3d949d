"""The model against what was measured: the same crowd of clients on the modelled loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from bench.calls.targets import among
from bench.scale.costs import ALONE, FEW, PIPELINED, SOCKET
from bench.scale.loop import Clock, Loop, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.scale.costs import Costs
    from bench.scale.points import Points

DIRECT = "direct"

ROUNDS = 4_000
"""Calls of a run, at least: in a closed house nothing is random, so few will do."""

CROWD = "1000 clients, 100 B"

SHAPES = {ALONE: (1, 1), PIPELINED: (1, 32), FEW: (32, 1), CROWD: (1000, 1)}
"""Clients, and calls in flight on each."""

SERVERS = (1, 25, 100)


@attrs.frozen(kw_only=True)
class Check:
    """A row of `bench.calls` beside what the model says of it."""

    case: str
    target: str
    fitted: bool
    """Whether the model was made from it."""
    cpu_us: float
    """Measured, of a call."""
    model_us: float
    rate: float
    """Measured, calls a second."""
    model_rate: float


class Others:
    """A process at the other side: it looks after its links one by one, and answers all that one holds."""

    def __init__(self, clock: Clock, hop: float, each: float) -> None:
        """Seconds to wake for a link and answer it, and beside that for each message."""
        self._clock = clock
        self._hop = hop
        self._each = each
        self._free = 0.0
        self._held: dict[object, list[Message]] = {}

    def take(self, link: object, answer: Message, loop: Loop) -> None:
        """Answer on the same link, after a while."""
        held = self._held.setdefault(link, [])
        held.append(answer)
        if len(held) == 1:
            # What leaves the loop together comes together.
            self._clock.at(self._clock.now, lambda: self._answer(link, loop))

    def _answer(self, link: object, loop: Loop) -> None:
        for answer in self._held.pop(link):
            self._free = max(self._free, self._clock.now + self._hop) + self._each
            self._clock.at(self._free, lambda answer=answer: loop.arrive(link, answer))  # type: ignore[misc]


def played(
    costs: Costs, clients: int, window: int, servers: int, hop: float, each: float, least: int = ROUNDS
) -> tuple[float, float]:
    """Let clients call without a pause. Returns calls a second, and seconds of the loop for each.

    Args:
        costs: of the loop.
        clients: connections.
        window: calls in flight on each.
        servers: which the clients take in turn.
        hop: seconds that the other side needs to wake for a link.
        each: seconds that it needs for a message beside that.
        least: calls of the run; many clients make five each.
    """
    clock = Clock()
    loop = Loop(clock, costs.visit, costs.slice)
    theirs = Others(clock, hop, each)
    upstreams = [Others(clock, hop, each) for _ in range(servers)]
    work, answered = costs.message / 2, [0]

    def ask(client: int) -> Message:
        server = client % servers
        return Message(work, lambda: upstreams[server].take(("server", server), answer(client), loop))

    def answer(client: int) -> Message:
        def back() -> None:
            answered[0] += 1
            theirs.take(client, ask(client), loop)

        return Message(work, back)

    for client in range(clients):
        for _ in range(window):
            theirs.take(client, ask(client), loop)
    calls = max(least, 5 * clients * window)
    clock.run(calls * costs.call)
    return answered[0] / clock.now, loop.busy / answered[0]


def checks(points: Points, costs: Costs, least: int = ROUNDS) -> Iterator[Check]:
    """Each row of calls of 100 bytes through the socket."""
    direct = points.call(ALONE, DIRECT)
    hop = (direct.p50_us or 0) / 2e6
    each = 1 / points.call(PIPELINED, DIRECT).rate
    for case, (clients, window) in SHAPES.items():
        for servers in SERVERS:
            target = SOCKET if servers == 1 else among(servers)
            found = points.calls.get((case, target))
            if found is None or found.cpu_us is None:
                continue
            rate, cpu = played(costs, clients, window, servers, hop, each, least)
            yield Check(
                case=case,
                target=target,
                fitted=servers == 1,
                cpu_us=found.cpu_us,
                model_us=1e6 * cpu,
                rate=found.rate,
                model_rate=rate,
            )
