"""The time between two runs of a child: so long, or until somebody wants the next one."""

from __future__ import annotations

import math

import trio


class Pause:
    """One child's; made ready for the next wait by `renew`, since who is early must not wait in vain."""

    def __init__(self) -> None:
        self._hold_until = -math.inf
        self.renew()

    def renew(self) -> None:
        """Forget who wanted the next run: this one is about to begin."""
        self._nudge, self._scope = trio.Event(), trio.CancelScope()

    @property
    def is_open(self) -> bool:
        """Whether nobody has cut it short, or is about to."""
        return not self._nudge.is_set() and self._scope.deadline == math.inf

    @property
    def held(self) -> float:
        """Seconds for which the server has asked to be left alone: no call starts it before."""
        return max(0.0, self._hold_until - trio.current_time())

    def hold(self, seconds: float) -> None:
        """The server wants to be left alone for so long."""
        self._hold_until = trio.current_time() + seconds
        # A call that came while the end was being told did not know of it.
        self.renew()

    def release(self) -> None:
        """The server need not be left alone any longer."""
        self._hold_until = -math.inf

    def nudge(self) -> None:
        """The next run begins now."""
        self._nudge.set()

    def shorten(self, until: float) -> None:
        """The next run begins then at the latest, on trio's clock."""
        self._scope.deadline = min(self._scope.deadline, until)

    async def wait(self, seconds: float) -> None:
        """Wait so long, or until nudged."""
        self.shorten(trio.current_time() + seconds)
        with self._scope:
            await self._nudge.wait()

    async def wait_nudged(self) -> None:
        """Wait until nudged from now on."""
        self._nudge = trio.Event()
        await self._nudge.wait()
