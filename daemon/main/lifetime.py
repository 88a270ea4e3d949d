"""Runs the daemon until its signals end it.

SIGTERM and SIGINT end it; a second one skips the grace periods. SIGHUP reloads the configuration, and so does a
change of the file if `"watch": true`. The reload logs its outcome.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable

import trio
from loguru import logger

from daemon.config.config_model import Config
from daemon.history.event import Event, EventKind
from daemon.kit.later import load_due
from daemon.operators.report_words import switches
from daemon.ports import WatchedFile
from daemon.processes import own
from daemon.surfaces.table import by_profile
from daemon.tree.core import Surroundings
from daemon.tree.running import Tree
from daemon.wire.envelope import LineBuffer

SWITCH_SECONDS = 0.0001
"""Seconds that a worker thread may run while the event loop waits. Python's default is fifty times as long;
each system call of the loop releases the interpreter, and a tool call makes six."""

FIRST_LIST_SECONDS = 0.3
"""Seconds during which the client that started the daemon has the interpreter to itself."""

YOUNG_OBJECTS = 2_000
"""New objects between collections of garbage. With Python's 700, a list of 10,000 tools causes three full
collections. Each stops all threads for 25 ms."""

HEAP_SECONDS = 2.0
"""Seconds between two polls of the free end of the heap, which large answers reuse."""

HEAP_LOOKS = 15
"""Checks after a large message: half a minute, in which nearly every client reads its answer."""

SPARE_BYTES = 2 * 1024 * 1024
"""Free bytes to keep: fewer than the daemon needs for anything else."""

WATCH_SECONDS = 1.0
"""Seconds between two checks of the file; mcpd reads a changed file once a check finds no further change."""


IDLE_LOOK_SECONDS = 5.0
"""Seconds between two checks whether a daemon that ends when idle is in use."""


async def run(config: Config, around: Surroundings, listen: Callable[[Callable[[int], None]], None]) -> None:
    """Run the daemon until SIGTERM or SIGINT; a second signal skips the grace periods but still ends cleanly.

    `listen` delivers signals, earlier ones too (`host.notify.Signals.listen`).
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
            if around.unattended:
                nursery.start_soon(life.end_when_idle)
            await tree.serve(life.stop)
            nursery.cancel_scope.cancel()
    finally:
        listen(_ignore)


def _ignore(_number: int) -> None:
    """Ignore a signal: the daemon has ended."""


class _Life:
    def __init__(self, tree: Tree) -> None:
        self.stop = trio.Event()
        self.reload_wanted = trio.Event()
        """Set to request a reload; several requests become one."""
        self._tree = tree
        self._blind = False

    def obey(self, code: int) -> None:
        number = signal.Signals(code)
        self._tree.history.note(Event(kind=EventKind.SIGNAL, details={"signal": number.name}))
        if number is signal.SIGHUP:
            logger.bind(event=True).info("{}: reading the configuration", number.name)
            self.reload_wanted.set()
        elif self.stop.is_set():
            logger.warning("{} again: ending every server at once", number.name)
            self._tree.around.children.hurry()
            if self._tree.http is not None:
                self._tree.http.hurry()
        else:
            logger.bind(event=True).info("{}: going down", number.name)
            self.stop.set()

    async def settle(self) -> None:
        """Once clients are served, load deferred modules, and exclude the start's objects from gc."""
        await self._tree.serving.wait()
        await trio.sleep(FIRST_LIST_SECONDS)
        try:
            await trio.to_thread.run_sync(load_due)
        except Exception as error:  # noqa: BLE001 - as in `_look`
            logger.warning("cannot load all modules ahead; mcpd loads them when needed: {}", error)
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
        gc.enable()

    async def tell_switches(self) -> None:
        """Log the switches for loading on demand and faults of scripts, at the start and after changes."""
        watched = self._tree.registry.config
        config, said = watched.value, tuple[str, ...]()
        while True:
            words = switches(lazy=config.lazy, surfaces=by_profile(config))
            now = (words, *map(str, config.script_faults))
            if now != said:
                logger.info("{}", "; left out: ".join(now))
            said = now
            config = await watched.wait_changed(config)

    async def stay_small(self) -> None:
        """Return the memory of large messages to the system."""
        seen, looks = 0, 0
        while True:
            await trio.sleep(HEAP_SECONDS)
            if LineBuffer.grown != seen:
                # The latest message may still be in transit.
                seen, looks = LineBuffer.grown, HEAP_LOOKS
            if looks:
                looks -= 1
                if own.spare() > SPARE_BYTES:
                    own.give_back()

    async def end_when_idle(self) -> None:
        tree = self._tree
        await tree.serving.wait()
        used, connections = trio.current_time(), tree.front.count
        while True:
            await trio.sleep(IDLE_LOOK_SECONDS)
            now, before, connections = trio.current_time(), connections, tree.front.count
            works = any(each.in_flight for each in tree.servers.actors.values())
            if tree.front.sessions or connections != before or works:
                used = now
            idle = tree.registry.catalog.value.config.idle
            if idle is not None and now - used >= idle:
                logger.info("no client and no call for {:.0f} s (`idle`): going down", now - used)
                self.stop.set()
                return

    async def reload_when_asked(self) -> None:
        while True:
            await self.reload_wanted.wait()
            self.reload_wanted = trio.Event()
            await self._reload()

    async def watch(self, file: WatchedFile) -> None:
        last: object = None
        while True:
            config = await self._tree.registry.config.wait_until(
                lambda config: (
                    config.watch
                    or any(server.enabled and server.awaits for server in config.mcp_servers.values())
                )
            )
            await trio.sleep(WATCH_SECONDS)
            now = await self._look(file)
            counts = config.watch or (now and file.seen and now[0] == file.seen[0])
            if now == last and now != file.seen and counts:
                logger.info("the configuration's file has changed")
                await self._reload()
            last = now

    async def _look(self, file: WatchedFile) -> tuple[object, object] | None:
        """The file's identity; after an error the last known one, so that the daemon continues."""
        try:
            now = await trio.to_thread.run_sync(file.look, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 - the daemon goes on, whatever its file system does
            if not self._blind:
                logger.warning("cannot read the configuration's file, mcpd retries: {}", error)
            self._blind = True
            return file.seen
        self._blind = False
        return now

    async def _reload(self) -> None:
        try:
            await self._tree.reloader.reload()
        except Exception as error:  # noqa: BLE001 - as in `_look`
            logger.debug("no reload: {}", error)
