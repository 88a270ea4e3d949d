"""Watch: a value whose changes can be waited for; only the newest is ever seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Watch(Generic[T]):
    """Holds a value. A burst of changes wakes each waiter once, with the last of them."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._changed = trio.Event()

    def set(self, value: T) -> None:
        """Replace the value and wake everybody who waits. The identical object is no change."""
        if value is self.value:
            return
        self.value = value
        self._changed.set()
        self._changed = trio.Event()

    async def wait_changed(self, seen: T) -> T:
        """Wait until the value is another object than `seen`; return it. Checks before it waits."""
        while self.value is seen:
            await self._changed.wait()
        return self.value

    async def wait_until(self, holds: Callable[[T], bool]) -> T:
        """Wait until the value satisfies `holds`; return it."""
        while not holds(self.value):
            await self._changed.wait()
        return self.value
