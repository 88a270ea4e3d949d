"""The life of the daemon: starts all actors, and stops them in order.

Nested nurseries start from the outside in and stop from the inside out: calls always find a registry, and
servers outlive sessions. A crash in the core ends the process for the service manager to restart.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.actors.warden import Warden
from daemon.counting.tally import most_called
from daemon.errors import McpdError, UpstreamLost
from daemon.history.event import Event, EventKind
from daemon.host.notify import SERVING, Readiness, feed_watchdog, stopping
from daemon.tree.wiring import Wiring

if TYPE_CHECKING:
    from daemon.actors.session import Session
    from daemon.audit.record import ChainHead
    from daemon.config.config_model import Config
    from daemon.history.event import Detail
    from daemon.tree.core import Surroundings
    from daemon.upstreams.upstream_access import UpstreamAccess

DRAIN_SECONDS = 0.5
"""Seconds for calls in flight to finish, before the daemon answers them with an error."""

POLL_SECONDS = 0.02
"""Seconds between checks during the drain: 25 in all."""

STOP_SECONDS = 4.0
"""Seconds for all servers to stop; with drain and kill within the promised 5 s."""


async def drain(sessions: Collection[Session], servers: Mapping[str, UpstreamAccess]) -> None:
    """Let calls finish for `DRAIN_SECONDS`, then answer the rest with an error; bridges get unsent ones."""
    _give_back(sessions)
    with trio.move_on_after(DRAIN_SECONDS):
        while any(session.in_flight for session in sessions):  # noqa: ASYNC110
            await trio.sleep(POLL_SECONDS)
    _give_back(sessions)
    for server in servers.values():
        if server.admission is not None:
            server.admission.close()
    gone = UpstreamLost("mcpd is shutting down (reconnect); whether the call ran is unknown")
    for session in list(sessions):
        session.lose_calls(gone)


def _give_back(sessions: Collection[Session]) -> None:
    for session in list(sessions):
        session.give_back()


class Tree(Wiring):
    """The actors of one daemon, from start to stop."""

    def __init__(self, config: Config, around: Surroundings) -> None:
        super().__init__(config, around)
        self._recording, self._ended, self._written = trio.CancelScope(), trio.Event(), trio.Event()

    async def serve(self, stop: trio.Event) -> None:
        """Run until `stop` is set, then stop everything in order, within 5 s."""
        around = self.around
        async with trio.open_nursery() as core:
            core.start_soon(self.registry.run)
            await self._recall()
            await self._tell_start()
            core.start_soon(self._record)
            for run in self._watches():
                core.start_soon(run)
            async with trio.open_nursery() as upstreams:
                upstreams.start_soon(self.servers.run)
                upstreams.start_soon(around.logins.run, self.servers.restart, self.history.note)
                async with trio.open_nursery() as doors:
                    doors.start_soon(self.client_door.run)
                    doors.start_soon(self.operator_door.run)
                    doors.start_soon(self.exposition.run)
                    doors.start_soon(self.console_opening.run)
                    if self.http is not None:
                        await self.http.tokens.learn()
                        doors.start_soon(self.http.run)
                    doors.start_soon(feed_watchdog, around.notify, around.watchdog, self.registry.settle)
                    doors.start_soon(Warden(self.servers.actors).run)
                    around.notify(SERVING)
                    self.readiness = Readiness.SERVING
                    self.serving.set()
                    logger.info("ready: clients connect to {}", around.facts.socket)
                    async with trio.open_nursery() as changes:
                        # Only until the stop: the configuration does not change after it.
                        changes.start_soon(self.reloader.run)
                        await stop.wait()
                        changes.cancel_scope.cancel()
                    self.lines.scope.cancel()
                    await self._drain()
                    doors.cancel_scope.cancel()
                around.children.limit_stops(STOP_SECONDS)
                self.supervisor.announce_stop()
                self._recording.cancel()
                # In parallel with the ending round: a hanging write must not delay the end twice.
                core.start_soon(self._write_the_rest)
                upstreams.cancel_scope.cancel()
            await self._tell_stop()
            await self._written.wait()
            core.cancel_scope.cancel()

    def _watches(self) -> Iterator[Callable[[], Awaitable[None]]]:
        yield from (self.audit.run, self.around.children.reap_orphans, self.librarian.run, self.calls.run)
        yield from (self.gathering.run, self.sampler.run, self.scripts.run, self.sessions.run)
        yield from (self.summarizing.run, self.results.run)
        yield partial(self.states.run, self.outbox.flush)
        yield partial(self.recorder.observe, self.observed)
        if self.tracer is not None:
            yield self.tracer.run

    async def _recall(self) -> None:
        """Restore the stored state, before serving a client or starting a switched-off server."""
        await self.around.children.end_leftovers()
        await self.recorder.open()
        self.tally.know(most_called(self.recorder.totals.known))
        await self.registry.settle()
        heads: Sequence[ChainHead] = ()
        with suppress(McpdError):
            heads = await self.recorder.heads()
        await self.audit.open(heads)

    async def _tell_start(self) -> None:
        facts, host = self.around.facts, socket.gethostname()
        details: dict[str, Detail] = {"version": facts.version, "pid": facts.pid}
        details |= {"host": host, "socket": facts.socket}
        last = await self.recorder.events.last_life(host, facts.socket)
        if last is not None and not last.in_order:
            details |= {"unclean": True, "lastAt": last.heard_at}
        self.history.note(Event(kind=EventKind.DAEMON_STARTED, details=details))
        if last is not None:
            children = self.supervisor.children
            for name, since in (await self.recorder.events.away_since(children, last.name)).items():
                children[name].events.was_away(since)

    async def _tell_stop(self) -> None:
        await self.audit.finish()
        seconds = max(0.0, time.time() - self.around.facts.started_at)
        self.history.note(Event(kind=EventKind.DAEMON_STOPPED, details={"seconds": seconds}))
        self._ended.set()

    async def _record(self) -> None:
        with self._recording:
            # What changes while a session is recalled must not be missed either.
            await self.recorder.run(lambda: [*self.sessions.named, *self.sessions.recalls], self.sessions.adopt)

    async def _write_the_rest(self) -> None:
        await self.recorder.finish(self._ended.wait)
        self._written.set()

    async def _drain(self) -> None:
        """Notify load balancers, let calls in flight finish, then answer the rest with an error."""
        self.around.notify(stopping(0 if self.http is None else self.http.drain_seconds))
        self.readiness = Readiness.DRAINING
        logger.info("stopping")
        if self.http is not None:
            await self.http.drain()
        self.client_door.stop_accepting()
        await drain(self.front.sessions.values(), self.servers.actors)
