"""The supervision tree: wires all actors of the daemon, and starts and stops them in order.

Nurseries are nested: the core (registry, recorder, call log) around the upstreams around the doors. They start
from the outside in and stop from the inside out, so a client's call always finds a registry, and servers
outlive the sessions that call them. A crash in the core is a bug: it leaves `serve`, the process ends, and the
service manager starts a new one. Signals and the watched file belong to `cli.lifetime`.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.actors.control import Control
from daemon.actors.exposition import Exposition
from daemon.actors.front import Front
from daemon.actors.librarian import Librarian
from daemon.actors.recorder import Recorder, Timing
from daemon.actors.registry import Registry
from daemon.actors.reloader import Reloader
from daemon.actors.session import Session
from daemon.actors.summarizing import Summarizing
from daemon.actors.upstream import UpstreamActor
from daemon.actors.warden import Warden
from daemon.catalog.offer import Offers
from daemon.clients.audience import ConnectedClients
from daemon.clients.client import Moves
from daemon.clients.context import SessionContext
from daemon.clients.doors.unix import unix_door
from daemon.clients.draining import drain
from daemon.clients.request_states import RequestStates
from daemon.clients.sessions import Sessions
from daemon.counting.measures import RepairCounts
from daemon.counting.readings import Exporter
from daemon.counting.summary import counters, most_called
from daemon.counting.tally import Tally
from daemon.host.logs import CallLogger
from daemon.host.notify import SERVING, Readiness, feed_watchdog, stopping
from daemon.kit.later import later
from daemon.operators.base import Clients, Counters, OperatorContext
from daemon.processes.peers import Peers, own_and, shares
from daemon.state.opening import opener_of
from daemon.surfaces.arguments.reading import Checker
from daemon.surfaces.base import Means
from daemon.surfaces.fitting import AUTO
from daemon.surfaces.table import ITSELF, META_TOOLS, SURFACES
from daemon.upstreams.servers import Servers
from daemon.wire.outbox import Outbox

if TYPE_CHECKING:
    import socket

    from daemon.actors.summarizer import Summarizer
    from daemon.clients.doors.http.door import HttpDoor, HttpNeeds
    from daemon.config.diff import Plan
    from daemon.config.model import Config
    from daemon.processes.peers import Connections
    from daemon.surroundings import Surroundings
else:  # 10 ms, needed only if a model is configured that writes summaries
    Summarizer = later("daemon.actors.summarizer", "Summarizer")
    HttpDoor = later("daemon.clients.doors.http.door", "HttpDoor")  # 15 ms, needed only where HTTP is served
    HttpNeeds = later("daemon.clients.doors.http.door", "HttpNeeds")

STOP_SECONDS = 4.0
"""Seconds that all servers together have to stop; with the drain and the kill under the promised 5 s."""

CONTROL_CONNECTIONS = 32
"""Operators' connections at once; each command is short, except for `call`."""


class Tree:
    """The actors of one daemon."""

    def __init__(self, config: Config, around: Surroundings) -> None:
        """Wire everything, each part with those made before it; nothing is started."""
        self.around, self.outbox = around, Outbox()
        self.serving = trio.Event()
        """Set once clients are served."""
        self.readiness = Readiness.STARTING
        """What probes over HTTP are told."""
        self.registry = Registry(config, wall=time.time, reserved=META_TOOLS)
        self.audience, self.states = ConnectedClients(), RequestStates()
        self.servers = _servers(self, config)
        self.upstreams, self.supervisor = self.servers.upstreams, self.servers.supervisor
        self.librarian = Librarian(self.registry.catalog, config.search)
        self.tally = Tally(
            config.mcp_servers, meta_tools={each.name: each.meta_tools for each in (*SURFACES.values(), ITSELF)}
        )
        self.calls, self.mended, self.moves = CallLogger(), RepairCounts(), Moves()
        self.recorder = _recorder(self, config)
        self.sessions = _sessions(self)
        summarizer = partial(Summarizer, self.registry.catalog, tell=self.registry.tell, wall=time.time)
        self.summarizing = Summarizing(self.registry.catalog, summarizer)
        self.means = _means(self, config)
        self.reloader = Reloader(
            read=around.file.read,
            apply=self._apply,
            source=around.facts.config,
            notify=around.notify,
            redact=around.redact,
        )
        self.front, self.exporter = _front(self), _exporter(self)
        self.exposition = Exposition(
            self.registry.catalog, self.exporter.text, readiness=lambda: self.readiness, outbox=self.outbox
        )
        self.http = None if around.http is None else _http(self, around.http)
        self.clients = _clients(self, config)
        self.operators = Peers("operators", shares(CONTROL_CONNECTIONS), uids=own_and(()))
        door = partial(unix_door, outbox=self.outbox, limits=config.limits)
        self.client_door = door(around.front, self.clients, self.front.serve)
        self.operator_door = door(around.control, self.operators, _control(self).serve)
        self._recording, self._written = trio.CancelScope(), trio.Event()

    async def _apply(self, config: Config) -> Plan:
        plan = await self.servers.apply(config)
        self.tally.serve(self.registry.catalog.value.config.mcp_servers)
        if self.http is not None:
            await self.http.renew()
        return plan

    def connections(self) -> dict[str, Connections]:
        """How many peers are connected through each door, and how many were refused."""
        return {peers.door: peers.report() for peers in (self.clients, self.operators)}

    async def serve(self, stop: trio.Event) -> None:
        """Run until `stop` is set, then stop everything in order, within 5 s."""
        around = self.around
        async with trio.open_nursery() as core:
            core.start_soon(self.registry.run)
            await self._recall()
            core.start_soon(self._record)
            core.start_soon(around.children.reap_orphans)
            core.start_soon(self.librarian.run)
            core.start_soon(self.calls.run)
            core.start_soon(self.sessions.run)
            core.start_soon(self.states.run, self.outbox.flush)
            core.start_soon(self.summarizing.run)
            async with trio.open_nursery() as upstreams:
                upstreams.start_soon(self.servers.run)
                upstreams.start_soon(around.logins.run, self.servers.restart)
                async with trio.open_nursery() as doors:
                    doors.start_soon(self.client_door.run)
                    doors.start_soon(self.operator_door.run)
                    doors.start_soon(self.exposition.run)
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
                    await self._drain()
                    doors.cancel_scope.cancel()
                around.children.limit_stops(STOP_SECONDS)
                self.supervisor.announce_stop()
                self._recording.cancel()
                # Beside the round that is ending: what hangs there must not delay the end twice.
                core.start_soon(self._write_the_rest)
                upstreams.cancel_scope.cancel()
            await self._written.wait()
            core.cancel_scope.cancel()

    async def _recall(self) -> None:
        """Restore the stored state, before a client is served or a switched-off server could be started."""
        await self.around.children.end_leftovers()
        await self.recorder.open()
        self.tally.know(most_called(self.recorder.totals.known))
        await self.registry.settle()

    async def _record(self) -> None:
        """Write changes until the upstreams stop."""
        with self._recording:
            # What changes while a session is recalled must not be missed either.
            await self.recorder.run(lambda: [*self.sessions.named, *self.sessions.recalls], self.sessions.adopt)

    async def _write_the_rest(self) -> None:
        await self.recorder.finish()
        self._written.set()

    async def _drain(self) -> None:
        """Let balancers look elsewhere and calls in flight finish, then answer the rest with an error."""
        self.around.notify(stopping(0 if self.http is None else self.http.drain_seconds))
        self.readiness = Readiness.DRAINING
        logger.info("stopping")
        if self.http is not None:
            await self.http.drain()
        self.client_door.stop_accepting()
        await drain(self.front.sessions, self.servers.actors)


def _servers(tree: Tree, config: Config) -> Servers[UpstreamActor]:
    return Servers(
        config,
        make=partial(
            UpstreamActor,
            outbox=tree.outbox,
            opening=tree.around.opening(tree.outbox),
            wall=time.time,
            audience=tree.audience,
            settle=tree.registry.settle,
        ),
        catalog=tree.registry.catalog,
        tell=tree.registry.tell,
        settle=tree.registry.settle,
        redact=tree.around.redact,
        wall=time.time,
    )


def _recorder(tree: Tree, config: Config) -> Recorder:
    return Recorder(
        opener_of(tree.around.place, writer=os.urandom(16).hex(), wall=time.time),
        catalog=tree.registry.catalog,
        tell=tree.registry.tell,
        settle=tree.registry.settle,
        timing=Timing(session_idle=config.state.session_idle),
        count=lambda: counters(tree.tally),
    )


def _sessions(tree: Tree) -> Sessions:
    return Sessions(
        tree.registry.catalog,
        tree.recorder,
        wall=time.time,
        on_loaded=tree.tally.loaded,
        on_invalid=tree.tally.invalidated,
        on_left=tree.servers.session_ended,
        on_joined=tree.servers.session_returned,
    )


def _means(tree: Tree, config: Config) -> Means:
    return Means(
        offers=Offers(),
        checker=Checker(),
        index=lambda: tree.librarian.index.value,
        index_characters=config.limits.index_characters,
        most_called=lambda: most_called(tree.recorder.totals.known),
    )


def _clients(tree: Tree, config: Config) -> Peers:
    return Peers(
        "clients",
        shares(config.limits.connections),
        uids=own_and(config.listen.uids),
        servers=lambda: {each.pid for each in tree.servers.actors.values() if each.of in config.listen.servers},
    )


def _front(tree: Tree) -> Front[Session]:
    context = SessionContext(
        catalog=tree.registry.catalog,
        upstreams=tree.servers.named,
        surfaces=SURFACES,
        means=tree.means,
        index=tree.librarian.index,
        mended=tree.mended,
        sessions=tree.sessions,
        tally=tree.tally,
        settle_names=tree.registry.settle_names,
        settled=tree.registry.settle,
        outbox=tree.outbox,
        log=tree.calls,
        wall=time.time,
        redact=tree.around.redact,
        audience=tree.audience,
        states=tree.states,
        logins=tree.around.logins,
        look=tree.recorder.look if tree.recorder.shared else None,
        moved=tree.moves.of,
    )
    return Front(lambda link, number, visitor: Session(link, number, context, visitor))


def _http(tree: Tree, listener: socket.socket) -> HttpDoor:
    needs = HttpNeeds(
        listener=listener,
        tls=tree.around.tls,
        state=Path(tree.around.facts.state),
        redact=tree.around.redact,
        catalog=tree.registry.catalog,
        offers=tree.means.offers,
        surfaces=(AUTO, *SURFACES),
        export=tree.exporter.text,
        readiness=lambda: tree.readiness,
        count=tree.tally.turned_away,
        serve=tree.front.serve,
        outbox=tree.outbox,
    )
    return HttpDoor(needs)


def _exporter(tree: Tree) -> Exporter:
    return Exporter(
        tally=tree.tally,
        catalog=tree.registry.catalog,
        actors=tree.servers.actors,
        upstreams=tree.upstreams,
        sessions=lambda: [session.statistics() for session in tree.front.sessions.values()],
        persistence=tree.recorder.persistence,
        version=tree.around.facts.version,
        connections=tree.connections,
    )


def _control(tree: Tree) -> Front[Control]:
    context = OperatorContext(
        facts=tree.around.facts,
        registry=tree.registry,
        upstreams=tree.upstreams,
        actors=tree.servers.actors,
        children=tree.supervisor.children,
        reload=tree.reloader.reload,
        archive=tree.recorder,
        clients=Clients(
            live=tree.front.sessions.values,
            in_use=tree.sessions.in_use,
            moves=tree.moves,
            change_grants=tree.sessions.grants.change,
            connections=tree.connections,
        ),
        counters=Counters(
            tally=tree.tally,
            mended=tree.mended,
            summarizer=lambda: tree.summarizing.state,
            export=tree.exporter.text,
        ),
        means=tree.means,
        redact=tree.around.redact,
        outbox=tree.outbox,
        wall=time.time,
        logins=tree.around.logins,
        access=None if tree.http is None else tree.http.tokens,
    )
    return Front(lambda link, _number, _visitor: Control(link, context))
