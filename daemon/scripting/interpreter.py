"""Runs models' scripts, each in a worker process of its own; calls are a script's only way out."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import trio

from daemon.kit.later import later
from daemon.scripting.script_session import ScriptError, ScriptOutcome, ScriptSession

if TYPE_CHECKING:
    import pydantic_monty as monty

    from daemon.config.tuning import ScriptLimits
else:
    monty = later("pydantic_monty")  # 10 MB, needed with the first script

Call = Callable[[str, dict[str, object]], Awaitable[object]]
"""Calls a tool by its name; raises `ScriptError`."""

WORKERS = 8
"""Scripts at a time, of which one owner has half; a worker takes 10 MB and what its script holds."""
IDLE_SECONDS = 600.0
"""Seconds after the last script until the workers end."""
CLOCK_SECONDS = 0.25
"""Seconds between looks whether a user is being asked, which no script has to pay for."""
END_SECONDS = 5.0
"""Seconds that a worker may take to end, or to get ready for the next script."""
INSTALL = "pip install 'mcpd-supervisor[code]'"


class Interpreter:
    """Workers for scripts: they start with the first script, and end when no script has come for a while."""

    def __init__(self, workers: int = WORKERS) -> None:
        self.available = "" if find_spec("pydantic_monty") else f"scripts need an extra: {INSTALL}"
        """Empty, or why scripts cannot run."""
        self._workers = workers
        self._turns = trio.CapacityLimiter(workers)
        self._threads = trio.CapacityLimiter(2 * workers)
        self._shares = WeakValueDictionary[str, trio.CapacityLimiter]()
        self._opening = trio.Lock()
        self._pool: Any = None
        self._last = -math.inf

    async def run(
        self,
        code: str,
        inputs: Mapping[str, object],
        call: Call,
        limits: ScriptLimits,
        asking: Callable[[], bool],
        owner: str = "",
    ) -> ScriptOutcome:
        """Run a script for an owner to its end; cancelled, it ends its calls and its worker."""
        share = self._shares.setdefault(owner, trio.CapacityLimiter(max(1, self._workers // 2)))
        async with share, self._turns:
            session = ScriptSession(code, inputs, limits)
            outcome = None
            try:
                await self._in_thread(session.open, await self._opened(), abandon=False)
                outcome = await self._play(session, call, limits, asking)
                return outcome
            finally:
                self._last = trio.current_time()
                if outcome is None or outcome.limit:
                    session.kill()
                with trio.move_on_after(END_SECONDS, shield=True):
                    await self._in_thread(session.close)

    async def close_idle(self) -> None:
        """End workers that have been idle for `IDLE_SECONDS`; cancelled, all of them."""
        try:
            while True:
                await trio.sleep(IDLE_SECONDS / 10)
                idle = self._turns.borrowed_tokens == 0 and trio.current_time() - self._last > IDLE_SECONDS
                if idle:
                    await self._close()
        finally:
            with trio.move_on_after(END_SECONDS, shield=True):
                await self._close()

    async def _opened(self) -> Any:
        async with self._opening:
            if self._pool is None:
                self._pool = await self._in_thread(self._open, abandon=False)
            return self._pool

    def _open(self) -> Any:
        return monty.Monty(min_processes=0, max_processes=2 * self._workers).__enter__()

    async def _close(self) -> None:
        async with self._opening:
            pool, self._pool = self._pool, None
            if pool is not None:
                await self._in_thread(pool.__exit__, None, None, None, abandon=False)

    async def _play(
        self, session: ScriptSession, call: Call, limits: ScriptLimits, asking: Callable[[], bool]
    ) -> ScriptOutcome:
        send, receive = trio.open_memory_channel[tuple[int, object]](math.inf)
        parallel = trio.CapacityLimiter(limits.parallel)
        ended: list[ScriptOutcome] = []

        async def answer(number: int, name: str, arguments: dict[str, object]) -> None:
            async with parallel:
                try:
                    send.send_nowait((number, await call(name, arguments)))
                except ScriptError as error:
                    send.send_nowait((number, error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_after, limits.seconds, asking, nursery.cancel_scope)
            waiting = await self._in_thread(session.begin)
            while not isinstance(waiting, ScriptOutcome):
                while session.made:
                    nursery.start_soon(answer, *session.made.pop())
                settled = await _settled(receive, waiting.pending_call_ids)
                waiting = await self._in_thread(session.resume, waiting, settled)
            ended.append(waiting)
            nursery.cancel_scope.cancel()
        return ended[0] if ended else session.failed(f"it took longer than {limits.seconds:g} s", "seconds")

    async def _in_thread(self, work: Callable[..., Any], *args: Any, abandon: bool = True) -> Any:
        return await trio.to_thread.run_sync(work, *args, limiter=self._threads, abandon_on_cancel=abandon)


async def _settled(
    receive: trio.MemoryReceiveChannel[tuple[int, object]], pending: Collection[int]
) -> dict[int, object]:
    """Results that the script waits for, as many as there are, at least one."""
    settled: dict[int, object] = {}
    while not settled or receive.statistics().current_buffer_used:
        number, result = await receive.receive()
        if number in pending:
            settled[number] = result
    return settled


async def _end_after(seconds: float, asking: Callable[[], bool], script: trio.CancelScope) -> None:
    """Cancel a script that has run for a time, in which nobody was asked."""
    while seconds > 0:
        step = min(seconds, CLOCK_SECONDS)
        await trio.sleep(step)
        seconds -= 0 if asking() else step
    script.cancel()
