"""Waiting: mailboxes of actors, watches of changing values, and delays between attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import attrs
import trio

from daemon.kit.later import later

if TYPE_CHECKING:
    import tenacity


if not TYPE_CHECKING:
    tenacity = later("tenacity", due=True)  # 10 ms, needed once something has failed


@attrs.frozen
class RetryPolicy:
    """Delays between attempts: exponential up to a cap, with equal jitter (AWS), never below a floor."""

    first: float
    """Seconds after the first failure, without jitter; doubled with each further failure."""
    cap: float
    """Most seconds, without jitter."""
    rng: Callable[[], float]
    floor: float = attrs.field(default=0.0, kw_only=True)
    """Fewest seconds, with jitter."""

    def delay(self, failures: int) -> float:
        """Seconds to wait after a failure, where `failures` is the number of failures before it."""
        # The loops here await more than one function, so tenacity computes their delays and does not run them.
        state = tenacity.RetryCallState(tenacity.AsyncRetrying(), None, (), {})
        state.attempt_number = failures + 1
        nominal = tenacity.wait_exponential(multiplier=self.first, max=self.cap)(state)
        return max(self.floor, nominal / 2 * (1 + self.rng()))


K = TypeVar("K")
V = TypeVar("V")


def keep_latest(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Put a value at the end of a dictionary, and drop the oldest values beyond `most`."""
    known.pop(key, None)
    known[key] = value
    while len(known) > most:
        del known[next(iter(known))]


T = TypeVar("T")


class Watch(Generic[T]):
    """A value whose changes tasks can wait for. A burst of changes wakes each waiter once, with the last."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._changed = trio.Event()

    def set(self, value: T) -> None:
        """Replace the value and wake all waiters, unless it is the same object."""
        if value is self.value:
            return
        self.value = value
        self._changed.set()
        self._changed = trio.Event()

    async def wait_changed(self, seen: T) -> T:
        """Wait until the value is another object than `seen`, checking first; return it."""
        while self.value is seen:
            await self._changed.wait()
        return self.value

    async def wait_until(self, holds: Callable[[T], bool]) -> T:
        """Wait until `holds` is true for the value; return it."""
        while not holds(self.value):
            await self._changed.wait()
        return self.value


async def any_changed(noted: Iterable[tuple[Watch[Any], object]]) -> None:
    """Wait until a watch has a value other than the noted one."""
    async with trio.open_nursery() as nursery:

        async def wait(watch: Watch[Any], seen: object) -> None:
            await watch.wait_changed(seen)
            nursery.cancel_scope.cancel()

        for each in noted:
            nursery.start_soon(wait, *each)


W = TypeVar("W")


async def serve_wanted(
    watch: Watch[T], wanted: Callable[[T], W | None], serve: Callable[[W], Awaitable[object]]
) -> NoReturn:
    """Run `serve` with the result of `wanted`, unless None; restart it when the result changes."""
    while True:
        now = wanted(watch.value)
        async with trio.open_nursery() as nursery:
            if now is not None:
                nursery.start_soon(serve, now)
            while wanted(seen := watch.value) == now:
                await watch.wait_changed(seen)
            nursery.cancel_scope.cancel()


F = TypeVar("F")


class ActorGone(Exception):
    """The actor ended before it answered."""


class _Ask:
    __slots__ = ("answered", "done")

    def __init__(self) -> None:
        self.answered = False
        self.done = trio.Event()


class Mailbox(Generic[F]):
    """Carries facts and questions to an actor, the only writer of its state.

    A newer fact with the same key replaces an unread one, which bounds the mailbox. `ask_settled` is a
    rendezvous without a buffer, so that nobody waits for a dead actor.
    """

    def __init__(self, key: Callable[[F], Hashable]) -> None:
        self._key = key
        self._facts: dict[Hashable, F] = {}
        self._told = trio.Event()
        self._intact = True
        self._ask, self._asked = trio.open_memory_channel[_Ask](0)

    def tell(self, fact: F) -> None:
        """Add a fact, replacing an unread one with the same key; facts are read in order of last change."""
        key = self._key(fact)
        self._facts.pop(key, None)
        self._facts[key] = fact
        self._told.set()

    async def ask_settled(self) -> None:
        """Return once the actor has processed every fact sent before; raises ActorGone if it has ended."""
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
