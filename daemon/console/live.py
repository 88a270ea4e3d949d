"""Live pages: computes changes once for all viewers of a page, and only while someone views it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sized
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from math import inf
from typing import Any

import attrs
import msgspec
import trio

from daemon.console.page import Fragment, Holders
from daemon.kit.waiting import Watch, keep_latest

EVERY_SECONDS = 1.0
"""Least seconds between two computations of a view: people read no faster (`ConsolePage.calls_every`)."""

SHARE = 0.02
"""The share of time that several views may take to compute: beyond it each is computed less often."""

OLDEST_SECONDS = 5.0
"""Most seconds by which `SHARE` delays a view."""

KEPT = 16
"""Snapshots of pages just sent, which are kept for browsers that are about to follow them."""


class Drawn(msgspec.Struct, frozen=True):
    """A fragment and its HTML."""

    fragment: Fragment
    html: str


@attrs.define(eq=False)
class Snapshot:
    """All fragments of a view at one time, in order, by holder and id."""

    holders: Mapping[str, Mapping[str, Drawn]] = attrs.field(on_setattr=attrs.setters.frozen)
    number: int = attrs.field(factory=partial(next, count()), init=False)

    @classmethod
    def drawn(cls, holders: Holders, draw: Callable[[Fragment], str], before: Snapshot | None) -> Snapshot:
        """Draw the fragments that are new or have changed. Takes milliseconds: call it in a thread."""
        known = before.holders if before is not None else {}
        return cls(
            {
                holder: {each.id: _drawn(each, known.get(holder, {}).get(each.id), draw) for each in fragments}
                for holder, fragments in holders.items()
            }
        )

    def is_newer_than(self, seen: Snapshot | None) -> bool:
        """Whether this snapshot was drawn after `seen`."""
        return seen is None or self.number > seen.number

    def since(self, before: Snapshot | None) -> dict[str, dict[str, object]]:
        """The changes by holder: `changed` has HTML by id, and `order` all ids, if the order differs."""
        changes = {}
        for holder, now in self.holders.items():
            was = before.holders.get(holder, {}) if before is not None else {}
            told: dict[str, object] = {}
            if list(was) != list(now):
                told["order"] = list(now)
            # Unchanged fragments are usually the same objects.
            changed = {
                key: each.html
                for key, each in now.items()
                if (old := was.get(key)) is not each and (old is None or old.fragment != each.fragment)
            }
            if changed:
                told["changed"] = changed
            if told:
                changes[holder] = told
        return changes


def _drawn(fragment: Fragment, before: Drawn | None, draw: Callable[[Fragment], str]) -> Drawn:
    return before if before is not None and before.fragment == fragment else Drawn(fragment, draw(fragment))


class ChangeSignal:
    """Reports changes that a page may show."""

    def __init__(
        self, *watches: Watch[Any], calls: Watch[Any] | None = None, busy: Callable[[], bool] = lambda: False
    ) -> None:
        """`busy` says whether calls are in flight, since no watch announces their start and progress."""
        self._seldom = watches
        self._calls: Watch[Any] = Watch(None) if calls is None else calls
        self._busy = busy

    def marks(self) -> tuple[object, ...]:
        """The present values, to compare with later ones."""
        return tuple(watch.value for watch in (*self._seldom, self._calls))

    async def since(self, marks: tuple[object, ...], calls_due: float, calls_every: float) -> None:
        """Return once a value has changed; calls count from `calls_due` on, checked every `calls_every` s."""
        while not self._have_changed(marks, calls_due):
            rests = trio.current_time() >= calls_due
            watches = (*self._seldom, self._calls) if rests else self._seldom
            until = trio.current_time() + calls_every if rests else calls_due
            async with trio.open_nursery() as nursery:
                nursery.cancel_scope.deadline = until
                for watch, mark in zip(watches, marks, strict=False):
                    nursery.start_soon(_cancel_at_change, watch, mark, nursery.cancel_scope)

    def _have_changed(self, marks: tuple[object, ...], calls_due: float) -> bool:
        *seldom, calls = (now is not mark for now, mark in zip(self.marks(), marks, strict=True))
        return any(seldom) or (trio.current_time() >= calls_due and (calls or self._busy()))


async def _cancel_at_change(watch: Watch[Any], mark: object, scope: trio.CancelScope) -> None:
    await watch.wait_changed(mark)
    scope.cancel()


class LiveView:
    """One page, the same for all who follow it."""

    def __init__(
        self,
        compute: Callable[[Snapshot | None], Awaitable[Snapshot]],
        changes: ChangeSignal,
        start: Snapshot | None,
        calls_every: float | None,
        views: Sized,
    ) -> None:
        """`calls_every`: seconds between computations if there is no change but calls; None ignores calls.

        `views`: all views that have followers; they share the loop's time with this one.
        """
        self.followers = 0
        self._views = views
        self._compute = compute
        self._changes = changes
        self._calls_every = inf if calls_every is None else calls_every
        self._newest: Watch[Snapshot | None] = Watch(start)
        self._marks: tuple[object, ...] = ()
        self._computed = self._next = -inf
        self._leading = trio.Lock()

    async def next(self, seen: Snapshot | None) -> Snapshot:
        """The newest snapshot, once it differs from `seen`. Raises McpdError if the page's subject is gone."""
        # Outside the lock, whose holder may wait for hours, while this snapshot is news to a newcomer.
        if (newest := self._newest.value) is not None and newest.is_newer_than(seen):
            await trio.lowlevel.checkpoint()
            return newest
        # The holder waits and computes for all; if it leaves midway, the next one takes over.
        async with self._leading:
            while (newest := self._newest.value) is None or not newest.is_newer_than(seen):
                await self._look(newest)
        return newest

    async def _look(self, newest: Snapshot | None) -> None:
        if self._marks:
            await self._changes.since(self._marks, self._computed + self._calls_every, self._calls_every)
        await trio.sleep_until(self._next)
        marks, began = self._changes.marks(), trio.current_time()
        found = await self._compute(newest)
        self._marks = marks  # Only now: a follower that leaves midway has computed nothing.
        self._computed = trio.current_time()
        # A single page shows each change at once, however busy the machine is.
        rest = (self._computed - began) * (len(self._views) - 1) / SHARE
        self._next = self._computed + min(max(EVERY_SECONDS, rest), OLDEST_SECONDS)
        if newest is None or found.since(newest):
            self._newest.set(found)


class Views:
    """The views that browsers follow, and snapshots of pages just sent."""

    def __init__(self, changes: ChangeSignal) -> None:
        self._changes = changes
        self._views: dict[object, LiveView] = {}
        self._kept: dict[str, tuple[object, Snapshot]] = {}
        self._number = 0

    def keep(self, key: object, snapshot: Snapshot) -> str:
        """Keep the snapshot of a page about to be sent, and return its name for the browser."""
        self._number += 1
        keep_latest(self._kept, str(self._number), (key, snapshot), KEPT)
        return str(self._number)

    @asynccontextmanager
    async def following(
        self,
        key: object,
        since: str,
        compute: Callable[[Snapshot | None], Awaitable[Snapshot]],
        calls_every: float | None = None,
    ) -> AsyncIterator[tuple[LiveView, Snapshot | None]]:
        """Follow a view from the snapshot named `since`; without that snapshot, from the beginning."""
        known, seen = self._kept.pop(since, (None, None))
        seen = seen if known == key else None
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = LiveView(compute, self._changes, seen, calls_every, self._views)
        view.followers += 1
        try:
            yield view, seen
        finally:
            view.followers -= 1
            if not view.followers:
                del self._views[key]
