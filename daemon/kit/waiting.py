"""Mailboxes and watches: how tasks tell each other what changed.

A mailbox takes facts and questions to an actor that is the single writer of its state. A watch is a value whose
changes can be waited for; a waiter sees only the newest one.


`tell` never blocks and never loses the newest fact about a subject: facts are level-triggered ("this is how
it is now"), so a newer one about the same key replaces one that has not been read yet. That bounds the mailbox:
at most one fact per key.
`ask_settled` is a rendezvous: nothing is buffered, so that no task waits for an actor that has died (measured:
with a buffer of 4, three waiting asks hang forever; with none, all three are released).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import attrs
import trio

from daemon.kit.later import later

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import tenacity


if not TYPE_CHECKING:
    tenacity = later("tenacity", due=True)  # 10 ms, needed once something has failed


@attrs.frozen
class RetryPolicy:
    """The delays of one thing that is tried until it succeeds."""

    first: float
    """Seconds of the delay after the first failure, without jitter; it doubles with each failure."""
    cap: float
    """Seconds of the longest delay, without jitter."""
    rng: Callable[[], float]
    """Returns random numbers in [0, 1), for the jitter."""
    floor: float = attrs.field(default=0.0, kw_only=True)
    """Seconds of the shortest delay, with jitter."""

    def delay(self, failures: int) -> float:
        """The seconds to wait, where `failures` came before the last one."""
        # The loops here await more than one function, so tenacity computes their delays and does not run them.
        state = tenacity.RetryCallState(tenacity.AsyncRetrying(), None, (), {})
        state.attempt_number = failures + 1
        nominal = tenacity.wait_exponential(multiplier=self.first, max=self.cap)(state)
        return max(self.floor, nominal / 2 * (1 + self.rng()))


K = TypeVar("K")
V = TypeVar("V")


def keep_latest(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Put something at the end of a dictionary, and let go of what was put there longest ago.

    Args:
        known: the dictionary, which nothing else puts into.
        key: what is put there, or put to the end if it is there.
        value: what belongs to it.
        most: how many are kept.
    """
    known.pop(key, None)
    known[key] = value
    while len(known) > most:
        del known[next(iter(known))]


T = TypeVar("T")


class Watch(Generic[T]):
    """A value whose changes can be waited for. A burst of changes wakes each waiter once, with the last one."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._changed = trio.Event()

    def set(self, value: T) -> None:
        """Replace the value and wake all waiters. Setting the identical object is no change."""
        if value is self.value:
            return
        self.value = value
        self._changed.set()
        self._changed = trio.Event()

    async def wait_changed(self, seen: T) -> T:
        """Wait until the value is a different object from `seen`; return it. Checks before it waits."""
        while self.value is seen:
            await self._changed.wait()
        return self.value

    async def wait_until(self, holds: Callable[[T], bool]) -> T:
        """Wait until the value satisfies `holds`; return it."""
        while not holds(self.value):
            await self._changed.wait()
        return self.value


F = TypeVar("F")


class ActorGone(Exception):
    """The actor ended before it answered."""


class _Ask:
    __slots__ = ("answered", "done")

    def __init__(self) -> None:
        self.answered = False
        self.done = trio.Event()


class Mailbox(Generic[F]):
    """Facts coalesced by key, and a rendezvous with the actor that reads them."""

    def __init__(self, key: Callable[[F], Hashable]) -> None:
        self._key = key
        self._facts: dict[Hashable, F] = {}
        self._told = trio.Event()
        self._intact = True
        self._ask, self._asked = trio.open_memory_channel[_Ask](0)

    def tell(self, fact: F) -> None:
        """Leave a fact. The newest about each key counts; keys keep the order in which they were last told."""
        key = self._key(fact)
        self._facts.pop(key, None)
        self._facts[key] = fact
        self._told.set()

    async def ask_settled(self) -> None:
        """Return once the actor has processed everything that was told before.

        Raises:
            ActorGone: the actor has ended, or ends while this waits.
        """
        ask = _Ask()
        try:
            await self._ask.send(ask)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ActorGone from None
        await ask.done.wait()
        if not ask.answered:
            raise ActorGone

    async def serve(self, on_facts: Callable[[list[F]], None]) -> None:
        """Deliver facts in batches until cancelled. Only one task may serve."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._answer, on_facts)
                while True:
                    await self._told.wait()
                    self._told = trio.Event()
                    self._deliver(on_facts)
        finally:
            self._asked.close()

    async def _answer(self, on_facts: Callable[[list[F]], None]) -> None:
        while True:
            ask = await self._asked.receive()
            try:
                self._deliver(on_facts)
                ask.answered = self._intact
            finally:
                ask.done.set()

    def _deliver(self, on_facts: Callable[[list[F]], None]) -> None:
        facts, self._facts = list(self._facts.values()), {}
        if facts:
            # Stays False if `on_facts` raises: the actor has lost these facts, so nothing is settled again.
            self._intact = False
            on_facts(facts)
            self._intact = True
