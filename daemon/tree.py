"""The whole daemon, wired: the only module that knows every actor.

Nesting is the order of life and death: core (registry, reaper, call log) around the upstreams, around the
doors. They start from the outside in and stop from the inside out, so a client's call always finds a registry,
and the servers outlive the sessions that call them. A crash in the core is a bug of ours: it leaves `serve`,
the process ends, and the service manager starts a new one.
"""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING

import attrs
import trio
from loguru import logger

from daemon.actors.control import Control, Operations
from daemon.actors.front import Front, own_and
from daemon.actors.librarian import Librarian
from daemon.actors.registry import Registry
from daemon.actors.session import Session
from daemon.actors.upstream import Upstream
from daemon.arguments.reading import Checker
from daemon.calllog import CallLogger
from daemon.callpath import SessionContext
from daemon.catalog.offer import Offers
from daemon.config.model import StartMode
from daemon.errors import UpstreamLost
from daemon.facts import ServerStatus, StatusChanged
from daemon.measures import Mended
from daemon.report import DaemonFacts, Reporter
from daemon.supervisor import ChildSpec, Supervisor
from daemon.surfaces.base import Means
from daemon.surfaces.table import META_TOOLS, SURFACES
from daemon.transports.children import Children
from daemon.wire.link import Outbox

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from daemon.config.model import Config

DRAIN_SECONDS = 0.5
"""How long calls in flight may finish before the daemon answers for them."""

STOP_SECONDS = 4.0
"""What all servers together may take to stop; with the drain and the kill it stays under the promised 5 s."""

CONTROL_CONNECTIONS = 32
"""Operators' commands at once; each is short, but for a `call`."""

WATCHDOG_SHARE = 3
"""A sign of life is given three times within the interval that systemd asks for (sd_watchdog_enabled(3))."""


@attrs.frozen(kw_only=True)
class Surroundings:
    """What the outside world hands in."""

    front: socket.socket
    """Where clients connect: listening, non-blocking."""
    control: socket.socket
    """Where operators connect."""
    facts: DaemonFacts
    """For reports."""
    redact: Callable[[str], str]
    """Takes secrets out of what is shown."""
    notify: Callable[[str], None] = lambda _state: None
    """Tells the service manager."""
    watchdog: float | None = None
    """Seconds within which it wants a sign of life."""
    stop_asked: Callable[[], bool] = lambda: False
    """Whether a signal asked for the end before anybody here could receive it."""


class Tree:
    """All rooms of one daemon."""

    def __init__(self, config: Config, around: Surroundings) -> None:
        """Wire everything; nothing is started."""
        self._around = around
        self._outbox = Outbox()
        self._children = Children()
        self.registry = Registry(config, wall=time.time, reserved=META_TOOLS)
        self.upstreams = {
            server.name: Upstream(
                server,
                outbox=self._outbox,
                children=self._children,
                tell=self.registry.tell,
                wall=time.time,
                redact=around.redact,
            )
            for server in config.mcp_servers.values()
            if server.enabled
        }
        self.supervisor = Supervisor(
            [
                ChildSpec(
                    name=name,
                    run=upstream.run,
                    policy=upstream.server.restart,
                    lazy=upstream.server.start is StartMode.LAZY,
                )
                for name, upstream in self.upstreams.items()
            ],
            starts=config.limits.starts,
            on_status=self._on_status,
            rng=random.random,
            wall=time.time,
            redact=around.redact,
        )
        for name, upstream in self.upstreams.items():
            upstream.child = self.supervisor.children[name]
        self._calls = CallLogger()
        self._librarian = Librarian(self.registry.catalog, config.search)
        self._mended = Mended()
        self._means = Means(
            offers=Offers(),
            checker=Checker(),
            index=lambda: self._librarian.index.value,
            index_characters=config.limits.index_characters,
        )
        self.front = self._front(config)
        self.control = self._control(config)

    def _front(self, config: Config) -> Front[Session]:
        context = SessionContext(
            config=config,
            catalog=self.registry.catalog,
            upstreams=self.upstreams,
            surfaces=SURFACES,
            means=self._means,
            index=self._librarian.index,
            mended=self._mended,
            settle_names=self.registry.settle_names,
            outbox=self._outbox,
            log=self._calls,
            wall=time.time,
        )
        return Front(
            self._around.front,
            lambda link, number: Session(link, number, context),
            outbox=self._outbox,
            uids=own_and(config.listen.uids),
            connections=config.limits.connections,
            max_line=config.limits.client_message_bytes,
            max_queue=config.limits.client_queue_bytes,
        )

    def _control(self, config: Config) -> Front[Control]:
        reporter = Reporter(
            facts=self._around.facts,
            config=config,
            catalog=lambda: self.registry.catalog.value,
            upstreams=self.upstreams,
            sessions=lambda: [session.statistics() for session in self.front.guests.values()],
            surfaces=SURFACES,
            means=self._means,
            mended=self._mended,
            redact=self._around.redact,
            wall=time.time,
        )
        operations = Operations(
            reporter=reporter,
            upstreams=self.upstreams,
            children=self.supervisor.children,
            outbox=self._outbox,
        )
        return Front(
            self._around.control,
            lambda link, _number: Control(link, operations),
            outbox=self._outbox,
            uids=own_and(()),
            connections=CONTROL_CONNECTIONS,
            max_line=config.limits.client_message_bytes,
            max_queue=config.limits.client_queue_bytes,
        )

    async def serve(self, stop: trio.Event) -> None:
        """Run until `stop` is set, then end in order, within 5 s."""
        async with trio.open_nursery() as core:
            core.start_soon(self.registry.run)
            core.start_soon(self._children.reap_adopted)
            core.start_soon(self._librarian.run)
            core.start_soon(self._calls.run)
            async with trio.open_nursery() as upstreams:
                upstreams.start_soon(self.supervisor.run)
                async with trio.open_nursery() as doors:
                    doors.start_soon(self.front.run)
                    doors.start_soon(self.control.run)
                    doors.start_soon(self._feed_watchdog)
                    self._around.notify("READY=1\nSTATUS=serving")
                    logger.info("ready: clients connect to {}", self._around.facts.socket)
                    await stop.wait()
                    await self._drain()
                    doors.cancel_scope.cancel()
                self._children.limit_stops(STOP_SECONDS)
                self.supervisor.announce_stop()
                upstreams.cancel_scope.cancel()
            core.cancel_scope.cancel()

    def hurry(self) -> None:
        """Skip what politeness is left: somebody asked twice."""
        self._children.hurry()

    async def _drain(self) -> None:
        """Let calls in flight finish for a moment, then answer for those that have not."""
        self._around.notify("STOPPING=1\nSTATUS=stopping")
        logger.info("stopping")
        self.front.stop_accepting()
        with trio.move_on_after(DRAIN_SECONDS):
            while any(session.in_flight for session in self.front.guests.values()):  # noqa: ASYNC110
                await trio.sleep(_DRAIN_POLL)
        for upstream in self.upstreams.values():
            upstream.close_line()
        gone = UpstreamLost("mcpd is shutting down; whether the call ran is unknown. Reconnect and check.")
        for session in list(self.front.guests.values()):
            session.lose_calls(gone)

    async def _feed_watchdog(self) -> None:
        """A sign of life only after a round trip through the registry: a timer alone would outlive us."""
        if self._around.watchdog is None:
            return
        while True:
            await self.registry.settle()
            self._around.notify("WATCHDOG=1")
            await trio.sleep(self._around.watchdog / WATCHDOG_SHARE)

    def _on_status(self, name: str, status: ServerStatus) -> None:
        self.registry.tell(StatusChanged(server=name, status=status))


_DRAIN_POLL = 0.02
"""Seconds between looks at the calls in flight while draining: twenty-five looks in all."""


async def run(config: Config, around: Surroundings) -> None:
    """The daemon, until SIGTERM or SIGINT; a second one skips every grace period, the end stays clean."""
    tree = Tree(config, around)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(_obey_signals, stop, tree)
        if around.stop_asked():
            stop.set()
        await tree.serve(stop)
        nursery.cancel_scope.cancel()


async def _obey_signals(
    stop: trio.Event, tree: Tree, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            name = signal.Signals(number).name
            if number == signal.SIGHUP:
                logger.warning("{}: this version reads its configuration only at start; restart it", name)
            elif stop.is_set():
                logger.warning("{} again: ending every server at once", name)
                tree.hurry()
            else:
                logger.info("{}: going down", name)
                stop.set()
