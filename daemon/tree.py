"""The whole daemon, wired: the only module that knows every actor.

Nesting is the order of life and death: core (registry, reaper, call log) around the upstreams, around the
doors. They start from the outside in and stop from the inside out, so a client's call always finds a registry,
and the servers outlive the sessions that call them. A crash in the core is a bug of ours: it leaves `serve`,
the process ends, and the service manager starts a new one. Signals and the watched file are `lifetime`'s.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio
from loguru import logger

from daemon.actors.control import Control, Operations
from daemon.actors.exposition import Exposition
from daemon.actors.front import Front
from daemon.actors.librarian import Librarian
from daemon.actors.recorder import Recorder, Timing
from daemon.actors.registry import Registry
from daemon.actors.session import Session
from daemon.actors.summarizing import Summarizing
from daemon.actors.warden import Warden
from daemon.arguments.reading import Checker
from daemon.calllog import CallLogger
from daemon.catalog.offer import Offers
from daemon.clients.moving import Moves
from daemon.context import SessionContext
from daemon.errors import ConfigError, Fault, UpstreamLost
from daemon.later import later
from daemon.measures import Mended
from daemon.metrics.exporting import Exporter
from daemon.metrics.readings import Sources
from daemon.notify import SERVING, feed_watchdog
from daemon.operating import Desk, Operating
from daemon.processes.peers import Peers, own_and, shares
from daemon.report import DaemonFacts, Reporter
from daemon.servers import Ground, Servers
from daemon.session_report import SessionReporter
from daemon.sessions import Sessions
from daemon.state.access import Opener
from daemon.state.store import Store, set_aside
from daemon.surfaces.base import Means
from daemon.surfaces.table import META_TOOLS, SURFACES
from daemon.tally import Tally, counters, in_all, most_called, summary
from daemon.transports.children import Children
from daemon.wire.outbox import Outbox

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from daemon.actors.summarizer import Summarizer
    from daemon.catalog.reconcile import Plan
    from daemon.config.model import Config, Summaries
    from daemon.config.redactors import Redactors
    from daemon.config.state_url import StateUrl
    from daemon.context import SessionStatistics
    from daemon.ports import ConfigFile
    from daemon.processes.peers import Connections
    from daemon.summaries.endpoint import open_endpoint
else:  # 10 ms: it takes a configuration that has a model write summaries
    Summarizer = later("daemon.actors.summarizer", "Summarizer")
    open_endpoint = later("daemon.summaries.endpoint", "open_endpoint")

DRAIN_SECONDS = 0.5
"""How long calls in flight may finish before the daemon answers for them."""

STOP_SECONDS = 4.0
"""What all servers together may take to stop; with the drain and the kill it stays under the promised 5 s."""

_DRAIN_POLL = 0.02
"""Seconds between looks at the calls in flight meanwhile: twenty-five in all."""

CONTROL_CONNECTIONS = 32
"""Operators' commands at once; each is short, but for a `call`."""


@attrs.frozen(kw_only=True)
class Surroundings:
    """What the outside world hands in."""

    front: socket.socket
    """Where clients connect: listening, non-blocking."""
    control: socket.socket
    """Where operators connect."""
    facts: DaemonFacts
    """For reports."""
    redact: Redactors
    """Takes secrets out of what is shown."""
    notify: Callable[[str], None] = lambda _state: None
    """Tells the service manager."""
    watchdog: float | None = None
    """Seconds within which it wants a sign of life."""
    listen: Callable[[Callable[[int], None]], None] = lambda _deliver: None
    """Has signals delivered, those too that came before anybody listened (`signals.Signals.listen`)."""
    place: StateUrl
    """Where the state is kept."""
    file: ConfigFile | None = None
    """The configuration's file; without one it cannot be reloaded."""
    children: Children = attrs.field(factory=Children)
    """The daemon's child processes."""


class Tree:
    """All rooms of one daemon."""

    def __init__(self, config: Config, around: Surroundings) -> None:
        """Wire everything; nothing is started."""
        self._around = around
        self._outbox = Outbox()
        self._children = around.children
        self.registry = Registry(config, wall=time.time, reserved=META_TOOLS)
        self.servers = Servers(
            config,
            Ground(
                registry=self.registry,
                outbox=self._outbox,
                children=self._children,
                redact=around.redact,
                wall=time.time,
            ),
        )
        self.upstreams = self.servers.upstreams
        self.supervisor = self.servers.supervisor
        self.operating = self._operating()
        self._calls = CallLogger()
        self._librarian = Librarian(self.registry.catalog, config.search)
        self._mended = Mended()
        self._tally = Tally(config.mcp_servers)
        self.recorder = self._recorder(config)
        self._recording = trio.CancelScope()
        self._written, self.serving = trio.Event(), trio.Event()
        """`serving` is set once clients are served."""
        self._sessions = self._remembering()
        self._summarizing = Summarizing(self.registry.catalog, self._summarizer)
        self._means = Means(
            offers=Offers(),
            checker=Checker(),
            index=lambda: self._librarian.index.value,
            index_characters=config.limits.index_characters,
            most_called=lambda: most_called(self.recorder.totals.known),
        )
        self._exporter = self._exporting()
        self._exposition = Exposition(self.registry.catalog, self._exporter.text)
        live = lambda: self.front.guests.values()  # noqa: E731, PLW0108 - the front is made later
        self._moves = Moves(self.registry.catalog, live, self._session_reporter().answer)
        self.front: Front[Session] = self._front(config)
        self.control = self._control(config)

    def _remembering(self) -> Sessions:
        return Sessions(
            self.registry.catalog,
            self.recorder,
            wall=time.time,
            on_loaded=self._tally.loaded,
            on_invalid=self._tally.invalidated,
        )

    def _recorder(self, config: Config) -> Recorder:
        place, writer = self._around.place, os.urandom(16).hex()
        opener = Opener(
            lambda: Store.open(place, writer=writer),
            where=place.where,
            set_aside=None if place.shared else lambda: set_aside(place, time.time()),
            shared=place.shared,
        )
        return Recorder(
            opener,
            catalog=self.registry.catalog,
            tell=self.registry.tell,
            settle=self.registry.settle,
            timing=Timing(session_idle=config.state.session_idle),
            count=lambda: counters(self._tally),
        )

    def _summarizer(self, summaries: Summaries) -> Summarizer:
        return Summarizer(
            self.registry.catalog,
            summaries,
            connect=partial(open_endpoint, summaries, os.environ),
            tell=self.registry.tell,
            wall=time.time,
        )

    def _operating(self) -> Operating:
        return Operating(
            Desk(
                registry=self.registry,
                read=self._read,
                apply=self._apply,
                children=self.supervisor.children,
                upstreams=self.upstreams,
                source=self._around.facts.config,
                notify=self._around.notify,
                redact=self._around.redact,
                unkept=self._unkept,
            )
        )

    async def _unkept(self) -> str:
        return "" if await self.recorder.kept() else self.recorder.persistence.value.reason

    async def _apply(self, config: Config) -> Plan:
        plan = await self.servers.apply(config)
        self._tally.serve(self.registry.catalog.value.config.mcp_servers)
        return plan

    def _read(self) -> Config:
        if self._around.file is None:
            fault = Fault(path="$", message="mcpd was started without a file")
            raise ConfigError(self._around.facts.config, [fault])
        return self._around.file.read()

    def _front(self, config: Config) -> Front[Session]:
        context = SessionContext(
            catalog=self.registry.catalog,
            upstreams=self.upstreams,
            surfaces=SURFACES,
            means=self._means,
            index=self._librarian.index,
            mended=self._mended,
            sessions=self._sessions,
            tally=self._tally,
            settle_names=self.registry.settle_names,
            settled=self.registry.settle,
            outbox=self._outbox,
            log=self._calls,
            wall=time.time,
            redact=self._around.redact,
            moved=self._moves.of,
        )
        return Front(
            self._around.front,
            lambda link, number, uid: Session(link, number, context, uid),
            outbox=self._outbox,
            peers=Peers(
                "clients",
                shares(config.limits.connections),
                uids=own_and(config.listen.uids),
                servers=lambda: {
                    each.pid for name, each in self.upstreams.items() if name in config.listen.servers
                },
            ),
            max_line=config.limits.client_message_bytes,
            max_queue=config.limits.client_queue_bytes,
        )

    def _control(self, config: Config) -> Front[Control]:
        reporter = Reporter(
            facts=self._around.facts,
            config=lambda: self.registry.catalog.value.config,
            catalog=lambda: self.registry.catalog.value,
            upstreams=self.upstreams,
            sessions=self._statistics,
            surfaces=SURFACES,
            means=self._means,
            mended=self._mended,
            redact=self._around.redact,
            wall=time.time,
            persistence=lambda: self.recorder.persistence.value,
            metrics=self._counted,
            connections=self._connections,
            summarizer=lambda: self._summarizing.state,
        )
        operations = Operations(
            reporter=reporter,
            upstreams=self.upstreams,
            children=self.supervisor.children,
            outbox=self._outbox,
            reload=self.operating.report_reload,
            switch=self.operating.switch,
            refresh=self.operating.refresh,
            sessions=self._session_reporter().answer,
            move=self._moves.move,
            metrics=self._exporter.answer,
        )
        return Front(
            self._around.control,
            lambda link, _number, _uid: Control(link, operations),
            outbox=self._outbox,
            peers=Peers("operators", shares(CONTROL_CONNECTIONS), uids=own_and(())),
            max_line=config.limits.client_message_bytes,
            max_queue=config.limits.client_queue_bytes,
        )

    def _connections(self) -> dict[str, Connections]:
        return {"clients": self.front.peers.report(), "operators": self.control.peers.report()}

    def _statistics(self) -> list[SessionStatistics]:
        return [session.statistics() for session in self.front.guests.values()]

    def _counted(self) -> dict[str, object]:
        totals = self.recorder.totals
        return {**summary(self._tally), "inAll": in_all(totals.known, totals.since)}

    def _session_reporter(self) -> SessionReporter:
        persistence = self.recorder.persistence
        return SessionReporter(
            archive=self.recorder,
            live=self._statistics,
            catalog=lambda: self.registry.catalog.value,
            wall=time.time,
            held=self._sessions.in_use,
            degraded=lambda: "" if persistence.value.state == "ok" else persistence.value.reason,
        )

    def _exporting(self) -> Exporter:
        return Exporter(
            Sources(
                tally=self._tally,
                catalog=lambda: self.registry.catalog.value,
                upstreams=self.upstreams,
                sessions=self._statistics,
                persistence=lambda: self.recorder.persistence.value,
                version=self._around.facts.version,
                connections=self._connections,
            )
        )

    async def serve(self, stop: trio.Event) -> None:
        """Run until `stop` is set, then end in order, within 5 s."""
        async with trio.open_nursery() as core:
            core.start_soon(self.registry.run)
            await self._recall()
            core.start_soon(self._record)
            core.start_soon(self._children.look_after_orphans)
            core.start_soon(self._librarian.run)
            core.start_soon(self._calls.run)
            core.start_soon(self._sessions.run)
            core.start_soon(self._summarizing.run)
            async with trio.open_nursery() as upstreams:
                upstreams.start_soon(self.servers.run)
                async with trio.open_nursery() as doors:
                    doors.start_soon(self.front.run)
                    doors.start_soon(self.control.run)
                    doors.start_soon(self._exposition.run)
                    doors.start_soon(
                        feed_watchdog, self._around.notify, self._around.watchdog, self.registry.settle
                    )
                    doors.start_soon(Warden(self.upstreams).run)
                    self._around.notify(SERVING)
                    self.serving.set()
                    logger.info("ready: clients connect to {}", self._around.facts.socket)
                    await self._operate(stop)
                    await self._drain()
                    doors.cancel_scope.cancel()
                self._children.limit_stops(STOP_SECONDS)
                self.supervisor.announce_stop()
                self._recording.cancel()
                core.start_soon(self._write_the_rest)
                upstreams.cancel_scope.cancel()
            await self._written.wait()
            core.cancel_scope.cancel()

    async def _recall(self) -> None:
        """Know what was known before anybody is served, or any server started that is switched off."""
        await self._children.end_leftovers()
        await self.recorder.open()
        self._tally.know(most_called(self.recorder.totals.known))
        await self.registry.settle()

    async def _record(self) -> None:
        with self._recording:
            await self.recorder.run(self._sessions.keys, self._sessions.adopt)

    async def _write_the_rest(self) -> None:
        await self.recorder.finish()
        self._written.set()

    async def _operate(self, stop: trio.Event) -> None:
        """Obey operators until `stop`: from then on nothing changes any more."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.operating.run)
            await stop.wait()
            nursery.cancel_scope.cancel()

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
