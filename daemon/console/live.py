"""Pages kept up to date: what has changed of them is computed once for all who look at the same, and only then.

A view is a page with its address, its query and a role. Whoever follows a view waits for its next snapshot; one
of them at a time waits for changes of the daemon and computes it for all. A slow follower gets the newest
snapshot when it is ready for one, so nothing queues up, and a view that nobody follows is never computed.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio

from daemon.kit.mailbox import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from daemon.console.page import Fragment, Holders

EVERY_SECONDS = 1.0
"""Seconds between two computations of a view: as often as a person reads. Where only calls are made, which may
be thousands a second, a page says itself how often (`ConsolePage.calls_every`)."""

KEPT = 16
"""Snapshots of pages that were sent and are kept for a browser that follows them next: a page asks at once."""


class Drawn(msgspec.Struct, frozen=True):
    """A fragment, and the HTML that was made of it."""

    fragment: Fragment
    html: str


@attrs.define(eq=False)
class Snapshot:
    """All fragments of a view at one time, by holder and id, in order."""

    holders: Mapping[str, Mapping[str, Drawn]] = attrs.field(on_setattr=attrs.setters.frozen)
    number: int = attrs.field(factory=partial(next, count()), init=False)
    """Rises from each that is drawn to the next."""
    _told: tuple[Snapshot | None, str] | None = attrs.field(default=None, init=False, repr=False)
    """What was told last, after which snapshot: most followers have seen the same."""

    @classmethod
    def drawn(cls, holders: Holders, draw: Callable[[Fragment], str], before: Snapshot | None) -> Snapshot:
        """Draw what was not there before, or has other values now. Takes milliseconds: call it in a thread."""
        known = before.holders if before is not None else {}
        return cls(
            {
                holder: {each.id: _drawn(each, known.get(holder, {}).get(each.id), draw) for each in fragments}
                for holder, fragments in holders.items()
            }
        )

    def is_newer_than(self, seen: Snapshot | None) -> bool:
        """Whether it was drawn after what was seen, or nothing was."""
        return seen is None or self.number > seen.number

    def since(self, before: Snapshot | None) -> dict[str, dict[str, object]]:
        """What has changed, by holder: `changed`, HTML by id, and `order`, all ids, if that is another one."""
        changes = {}
        for holder, now in self.holders.items():
            was = before.holders.get(holder, {}) if before is not None else {}
            told: dict[str, object] = {}
            if list(was) != list(now):
                told["order"] = list(now)
            changed = {key: each.html for key, each in now.items() if _differs(was.get(key), each)}
            if changed:
                told["changed"] = changed
            if told:
                changes[holder] = told
        return changes

    def told_since(self, before: Snapshot | None) -> str:
        """The same as JSON, made once for all who have seen the same."""
        if self._told is None or self._told[0] is not before:
            self._told = before, msgspec.json.encode(self.since(before)).decode()
        return self._told[1]

    def forget(self) -> None:
        """Keep no longer what was told, and with it the snapshot before: a newer one is there."""
        self._told = None


def _drawn(fragment: Fragment, before: Drawn | None, draw: Callable[[Fragment], str]) -> Drawn:
    return before if before is not None and before.fragment == fragment else Drawn(fragment, draw(fragment))


def _differs(before: Drawn | None, now: Drawn) -> bool:
    return before is not now and (before is None or before.fragment != now.fragment)


class ChangeSignal:
    """Says when anything has changed that a page may show."""

    def __init__(
        self, *watches: Watch[Any], calls: Watch[Any] | None = None, busy: Callable[[], bool] = lambda: False
    ) -> None:
        """Watch these.

        Args:
            watches: what pages show, and what changes seldom.
            calls: changes with calls that have ended.
            busy: returns whether calls are under way: that one begins, and how it goes on, nothing announces,
                as each would pay for it.
        """
        self._seldom = watches
        self._calls: Watch[Any] = Watch(None) if calls is None else calls
        self._busy = busy

    def marks(self) -> tuple[object, ...]:
        """How everything is now, to be compared with later."""
        return tuple(watch.value for watch in (*self._seldom, self._calls))

    async def since(self, marks: tuple[object, ...], calls_due: float, calls_every: float) -> None:
        """Return when something differs from the marks.

        Args:
            marks: how everything was.
            calls_due: before then, calls alone are no reason.
            calls_every: after how many seconds to look again whether one is under way; `inf`: calls never are.
        """
        while not (self._differ(marks[:-1], *self._seldom) or self._is_due(marks[-1], calls_due)):
            rests = trio.current_time() >= calls_due
            watches = (*self._seldom, self._calls) if rests else self._seldom
            until = trio.current_time() + calls_every if rests else calls_due
            async with trio.open_nursery() as nursery:
                nursery.cancel_scope.deadline = until
                for watch, mark in zip(watches, marks, strict=False):
                    nursery.start_soon(_cancel_at_change, watch, mark, nursery.cancel_scope)

    def _differ(self, marks: Sequence[object], *watches: Watch[Any]) -> bool:
        return any(watch.value is not mark for watch, mark in zip(watches, marks, strict=True))

    def _is_due(self, mark: object, calls_due: float) -> bool:
        return trio.current_time() >= calls_due and (self._calls.value is not mark or self._busy())


async def _cancel_at_change(watch: Watch[Any], mark: object, scope: trio.CancelScope) -> None:
    await watch.wait_changed(mark)
    scope.cancel()


class LiveView:
    """One page as all its followers see it."""

    def __init__(
        self,
        compute: Callable[[Snapshot | None], Awaitable[Snapshot]],
        changes: ChangeSignal,
        start: Snapshot | None,
        calls_every: float | None,
    ) -> None:
        """Begin with what was computed last, if anything was.

        Args:
            compute: makes the next snapshot, given the one before.
            changes: says when there may be another.
            start: the snapshot that the first follower has.
            calls_every: seconds between two computations while only calls are made; None: it shows none.
        """
        self.followers = 0
        """How many follow it."""
        self._compute = compute
        self._changes = changes
        self._calls_every = inf if calls_every is None else calls_every
        self._newest: Watch[Snapshot | None] = Watch(start)
        self._marks: tuple[object, ...] = ()
        self._next = -EVERY_SECONDS
        self._leading = trio.Lock()

    async def next(self, seen: Snapshot | None) -> Snapshot:
        """The newest snapshot, as soon as it is another one than was seen.

        Raises:
            McpdError: there is no such page any longer.
        """
        # Not behind the lock: who holds it may wait for hours, and what is there already is news to who comes.
        if (newest := self._newest.value) is not None and newest.is_newer_than(seen):
            await trio.lowlevel.checkpoint()
            return newest
        # Who holds the lock waits and computes for all; when it leaves in the middle, the next one goes on.
        async with self._leading:
            while (newest := self._newest.value) is None or not newest.is_newer_than(seen):
                await self._look(newest)
        return newest

    async def _look(self, newest: Snapshot | None) -> None:
        if self._marks:
            due = self._next - EVERY_SECONDS + self._calls_every
            await self._changes.since(self._marks, due, self._calls_every)
        await trio.sleep_until(self._next)
        marks = self._changes.marks()
        found = await self._compute(newest)
        self._marks = marks  # Not before: whoever leaves in the middle has computed nothing.
        self._next = trio.current_time() + EVERY_SECONDS
        if newest is None or found.since(newest):
            if newest is not None:
                newest.forget()
            self._newest.set(found)


class Views:
    """All views that are followed, and the snapshots of pages that were just sent."""

    def __init__(self, changes: ChangeSignal) -> None:
        """Start with none.

        Args:
            changes: says when views may have changed.
        """
        self._changes = changes
        self._views: dict[object, LiveView] = {}
        self._kept: OrderedDict[str, tuple[object, Snapshot]] = OrderedDict()
        self._number = 0

    def keep(self, key: object, snapshot: Snapshot) -> str:
        """Keep the snapshot of a page that is being sent; returns by what its browser names it."""
        self._number += 1
        self._kept[str(self._number)] = key, snapshot
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return str(self._number)

    @asynccontextmanager
    async def following(
        self,
        key: object,
        since: str,
        compute: Callable[[Snapshot | None], Awaitable[Snapshot]],
        calls_every: float | None = None,
    ) -> AsyncIterator[tuple[LiveView, Snapshot | None]]:
        """Follow a view, beginning after a snapshot that was kept, or with nothing.

        Args:
            key: what view it is.
            since: by what its browser names the snapshot that it has.
            compute: makes a snapshot, given the one before.
            calls_every: seconds between two computations while only calls are made; None: it shows none.
        """
        known, seen = self._kept.pop(since, (None, None))
        seen = seen if known == key else None
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = LiveView(compute, self._changes, seen, calls_every)
        view.followers += 1
        try:
            yield view, seen
        finally:
            view.followers -= 1
            if not view.followers:
                del self._views[key]
