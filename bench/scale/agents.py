"""How agents call, how servers answer: what is assumed, each with its reason, and the parts that play it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from bench.scale.loop import Message
from daemon.config.tuning import ServerLimits

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from bench.scale.costs import Costs
    from bench.scale.loop import Clock, Loop

THINK, THINK_SPREAD = 4.0, 0.9
"""Seconds between an answer and the next step of an agent: the median, and the spread (sigma) around it. A
model writes a few hundred tokens in between, at 50 to 100 a second."""

SIZES, OFTEN = (1, 2, 3, 4, 8), (0.70, 0.15, 0.08, 0.04, 0.03)
"""Calls that a step makes at once, and how often. Most steps make one; the busiest real agent made 32."""

ANSWER, ANSWER_SPREAD = 2_000, 1.6
"""Bytes of an answer: the median, and its spread: one in a hundred is over 80 KB. The lists of tools of 29
recorded servers have 0.1 to 76 KB, 8 KB at the median; clients cut off longer answers themselves."""

ASKED = 300
"""Bytes of a request, as JSON-RPC."""

HUGE = 1 / 20_000
"""Of all answers, those of 10 MB: pictures and dumps."""

HUGE_BYTES = 10_000_000

SEARCHED = 1 / 20
"""Steps that search for a tool instead of calling one: an agent does so a few times in a task."""

LOADED = 1 / 40
"""Steps that load a tool under a key: half as often."""

REFRESH = 600.0
"""Seconds after which a server's list is read again (`timeouts.refresh`)."""

TOOLS = 33
"""Of a server: 46 real ones list 1,519."""

SCRAPE = 15.0
"""Seconds between two scrapes of the metrics: Prometheus' usual one."""

LIVES = 3600.0
"""Seconds that a window stays connected."""

CHANGED = 1 / 50
"""Of the lists that are read again, those that differ."""


@attrs.frozen(kw_only=True)
class Kind:
    """Servers of one kind."""

    share: float
    """Of all servers."""
    called: float
    """Share of the calls that go to them."""
    takes: float
    """Seconds for a call, the median."""
    spread: float
    at_once: int
    """Calls that it works on at the same time."""


QUICK = Kind(share=0.5, called=0.60, takes=0.005, spread=1.0, at_once=1)
"""Files, git, memory: one call after the other, 8 ms on average."""
REMOTE = Kind(share=0.35, called=0.35, takes=0.3, spread=0.8, at_once=1000)
"""Services over the network: as many at once as are asked."""
SLOW = Kind(share=0.15, called=0.05, takes=3.0, spread=1.0, at_once=8)
"""Browsers, builds, queries: seconds to minutes, a few at once."""
KINDS = (QUICK, REMOTE, SLOW)


class Upstream:
    """A server, and the line that mcpd keeps before it (`limits.inFlight`, `limits.queue`)."""

    def __init__(self, clock: Clock, dice: random.Random, kind: Kind, limits: ServerLimits) -> None:
        """Make one that nobody has called."""
        self.refused = 0
        self.worked = 0.0
        """Seconds of its workers so far."""
        self.crowd = 0
        """The most calls that it had at once, in line or sent."""
        self.held = 0.0
        """Seconds that calls spent with it, in line, waiting or worked at: what its places are needed for."""
        self.kind = kind
        self._clock = clock
        self._dice = dice
        self._limits = limits
        self._calls = 0
        self._busy = 0
        self._inside: deque[Call] = deque()
        self._line: deque[Call] = deque()

    def admit(self, call: Call) -> None:
        """Send a call, put it in line, or refuse it."""
        if self._calls >= self._limits.in_flight + self._limits.queue:
            self.refused += 1
            call.refused()
            return
        call.admitted = self._clock.now
        self._calls += 1
        self.crowd = max(self.crowd, self._calls)
        if self._calls > self._limits.in_flight:
            self._line.append(call)
        else:
            self._send(call)

    def done(self, call: Call) -> None:
        """An answer has passed: the place is free."""
        self._calls -= 1
        self.held += self._clock.now - call.admitted
        if self._line:
            self._send(self._line.popleft())

    def _send(self, call: Call) -> None:
        self._inside.append(call)
        self._work()

    def _work(self) -> None:
        while self._inside and self._busy < self.kind.at_once:
            call = self._inside.popleft()
            self._busy += 1
            takes = lognormal(self._dice, self.kind.takes, self.kind.spread)
            self.worked += takes
            self._clock.at(self._clock.now + takes, lambda call=call: self._worked(call))  # type: ignore[misc]

    def _worked(self, call: Call) -> None:
        self._busy -= 1
        call.answer()
        self._work()


class Call:
    """One call on its way."""

    __slots__ = ("_came", "_client", "_costs", "_spent", "_upstream", "admitted")

    def __init__(self, client: Client, upstream: Upstream, costs: Costs) -> None:
        """Let a client make it, now."""
        self.admitted = 0.0
        self._client = client
        self._upstream = upstream
        self._costs = costs
        self._spent = 0.0
        self._came = client.clock.now
        work = costs.message / 2 + costs.wrapper + costs.byte * ASKED
        client.loop.arrive(client, Message(work, self._asked))

    def _asked(self) -> None:
        self._spent = self._client.clock.now - self._came
        self._upstream.admit(self)

    def answer(self) -> None:
        """The server has written it."""
        client, costs = self._client, self._costs
        size = answer_bytes(client.dice)
        self._came = client.clock.now
        client.loop.arrive(self._upstream, Message(costs.message / 2 + costs.byte * size, self._answered))

    def _answered(self) -> None:
        client = self._client
        client.added.append(self._spent + client.clock.now - self._came)
        self._upstream.done(self)
        client.ended()

    def refused(self) -> None:
        """It ends here."""
        self._client.ended()


class Client:
    """An agent's window: thinks, calls, waits for all answers, thinks."""

    def __init__(
        self,
        clock: Clock,
        loop: Loop,
        dice: random.Random,
        costs: Costs,
        upstreams: Sequence[Upstream],
        shares: Sequence[float],
    ) -> None:
        """Begin somewhere within a thought."""
        self.clock = clock
        self.loop = loop
        self.dice = dice
        self.added: list[float] = []
        """Seconds that mcpd's loop added to each call."""
        self.searches = 0
        self.loads = 0
        self.costs = costs
        self._upstreams = upstreams
        self._shares = shares
        self._open = 0
        clock.at(dice.random() * THINK, self._step)

    def ended(self) -> None:
        """One of its calls has."""
        self._open -= 1
        if not self._open:
            self.clock.at(self.clock.now + lognormal(self.dice, THINK, THINK_SPREAD), self._step)

    def _step(self) -> None:
        drawn = self.dice.random()
        if drawn < SEARCHED:
            self.searches += 1
            self._ask(self.costs.search)
        elif drawn < SEARCHED + LOADED:
            self.loads += 1
            self._ask(self.costs.load)
        else:
            self._call()

    def _ask(self, work: float) -> None:
        """Ask mcpd itself for something."""
        self._open = 1
        self.loop.arrive(self, Message(work, self.ended))

    def _call(self) -> None:
        self._open = self.dice.choices(SIZES, OFTEN)[0]
        for upstream in self.dice.choices(self._upstreams, self._shares, k=self._open):
            Call(self, upstream, self.costs)


def lognormal(dice: random.Random, median: float, spread: float) -> float:
    """A positive number around a median, now and then a large one."""
    return median * dice.lognormvariate(0.0, spread)


def answer_bytes(dice: random.Random) -> float:
    """The size of an answer."""
    if dice.random() < HUGE:
        return HUGE_BYTES
    return min(HUGE_BYTES, lognormal(dice, ANSWER, ANSWER_SPREAD))


def upstreams_of(clock: Clock, dice: random.Random, count: int) -> list[Upstream]:
    """So many servers, at least one of each kind."""
    numbers = {kind: max(1, round(kind.share * count)) for kind in (REMOTE, SLOW)}
    numbers[QUICK] = max(1, count - sum(numbers.values()))
    return [Upstream(clock, dice, kind, ServerLimits()) for kind in KINDS for _ in range(numbers[kind])]


def weights(upstreams: Sequence[Upstream]) -> list[float]:
    """How often each is called: its kind's share; of the kind, the nth one 1/n times as often as the first."""
    ranks = dict.fromkeys(KINDS, 0)
    found: list[float] = []
    for upstream in upstreams:
        ranks[upstream.kind] += 1
        found.append(1 / ranks[upstream.kind])
    sums = {kind: sum(1 / rank for rank in range(1, most + 1)) for kind, most in ranks.items()}
    return [
        upstream.kind.called * weight / sums[upstream.kind]
        for upstream, weight in zip(upstreams, found, strict=True)
    ]
