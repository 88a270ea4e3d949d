"""From the first signal to the last: what ends the daemon, and what makes it read its configuration anew.

SIGTERM and SIGINT end it, a second one without politeness. SIGHUP, and the file itself where the configuration
says `"watch": true`, reload it. Whatever comes of a reload has been logged by the time it returns.
"""

from __future__ import annotations

import gc
import signal
import sys
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.kit.later import load_due
from daemon.operators.news import switches
from daemon.processes import own
from daemon.surfaces.table import by_profile
from daemon.tree import Tree
from daemon.wire.frames import LineBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.config.model import Config
    from daemon.ports import WatchedFile
    from daemon.tree import Surroundings

SWITCH_SECONDS = 0.0005
"""How long a worker thread computes on while the event loop waits for the interpreter; Python's default is ten
times as long. Each system call of the loop gives the interpreter away, and a call makes six of them."""

HEAP_SECONDS = 2.0
"""Between looks at the free end of the heap: while large answers follow each other, it is used again."""

HEAP_LOOKS = 15
"""Looks after a large message: half a minute, in which nearly everybody takes an answer."""

SPARE_BYTES = 2 * 1024 * 1024
"""So much may stay free: less than what the daemon needs for anything else."""

WATCH_SECONDS = 1.0
"""Between looks at the file, which is read once it was the same for one: editors may write it in parts."""


async def run(config: Config, around: Surroundings, listen: Callable[[Callable[[int], None]], None]) -> None:
    """The daemon, until SIGTERM or SIGINT; a second one skips every grace period, the end stays clean.

    Args:
        config: the configuration.
        around: what the daemon is given from outside.
        listen: has signals delivered, including those from before the call (`host.signals.Signals.listen`).
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    tree = Tree(config, around)
    life = _Life(tree)
    token = trio.lowlevel.current_trio_token()
    listen(lambda number: token.run_sync_soon(life.obey, number))
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.settle)
            nursery.start_soon(life.tell_switches)
            nursery.start_soon(life.stay_small)
            nursery.start_soon(life.reload_when_asked)
            nursery.start_soon(life.watch, around.file)
            await tree.serve(life.stop)
            nursery.cancel_scope.cancel()
    finally:
        listen(_heed_nothing)


def _heed_nothing(_number: int) -> None:
    """All that a signal could ask for has been done."""


class _Life:
    def __init__(self, tree: Tree) -> None:
        self.stop = trio.Event()
        self.wish = trio.Event()
        """Set when a reload is wanted; many wishes are one."""
        self._tree = tree
        self._blind = False

    def obey(self, code: int) -> None:
        """Take a signal: what it asks for is done by others."""
        number = signal.Signals(code)
        if number is signal.SIGHUP:
            logger.info("{}: reading the configuration", number.name)
            self.wish.set()
        elif self.stop.is_set():
            logger.warning("{} again: ending every server at once", number.name)
            self._tree.around.children.hurry()
        else:
            logger.info("{}: going down", number.name)
            self.stop.set()

    async def settle(self) -> None:
        """Once clients are served, do what was put off: load the rest, and look for garbage (`daemon.cli`).

        That only among what is made from then on. What was imported and remembered stays for good: a full
        collection, during which nobody is served, would look at 60,000 objects each time.
        """
        await self._tree.serving.wait()
        try:
            await trio.to_thread.run_sync(load_due)
        except Exception as error:  # noqa: BLE001 - as in `_look`
            logger.warning("something is loaded only when it is needed: {}", error)
        gc.freeze()
        gc.enable()

    async def tell_switches(self) -> None:
        """Log whether tools are shown on demand: at the start, and when another configuration changes it."""
        watched = self._tree.registry.catalog
        catalog, said = watched.value, ""
        while True:
            now = switches(lazy=catalog.config.lazy, surfaces=by_profile(catalog.config))
            if now != said:
                logger.info("{}", now)
            said = now
            catalog = await watched.wait_changed(catalog)

    async def stay_small(self) -> None:
        """Give back what large messages have left behind; who sends none pays nothing for it."""
        seen, looks = 0, 0
        while True:
            await trio.sleep(HEAP_SECONDS)
            if LineBuffer.grown != seen:
                # The last of them may still be on its way.
                seen, looks = LineBuffer.grown, HEAP_LOOKS
            if looks:
                looks -= 1
                if own.spare() > SPARE_BYTES:
                    own.give_back()

    async def reload_when_asked(self) -> None:
        """Reload once for all wishes that came before."""
        while True:
            await self.wish.wait()
            self.wish = trio.Event()
            await self._reload()

    async def watch(self, file: WatchedFile) -> None:
        """Reload whenever the file has become another, as long as the configuration in force wants that."""
        catalog = self._tree.registry.catalog
        last: object = None
        while True:
            await catalog.wait_until(lambda newest: newest.config.watch)
            await trio.sleep(WATCH_SECONDS)
            now = await self._look(file)
            if now == last and now != file.seen:
                logger.info("the configuration's file has changed")
                await self._reload()
            last = now

    async def _look(self, file: WatchedFile) -> object:
        """What the file is now; what was last read if nobody can say: no look is worth the daemon."""
        try:
            now = await trio.to_thread.run_sync(file.look, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 - such as "can't start new thread", when a server has taken them all
            if not self._blind:
                logger.warning("cannot look at the configuration's file, and go on trying: {}", error)
            self._blind = True
            return file.seen
        self._blind = False
        return now

    async def _reload(self) -> None:
        try:
            await self._tree.reloader.reload()
        except Exception as error:  # noqa: BLE001 - told in full where it happened; the daemon goes on as it was
            logger.debug("no reload: {}", error)
