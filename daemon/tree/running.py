"""The life of the daemon: connects all actors, starts them, and stops them in order.

Nested nurseries start from the outside in and stop from the inside out, so that calls always find a registry,
and servers outlive sessions. A crash in the core ends the process, and the service manager restarts it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.actors.local_doors import ConsoleOpening, Exposition
from daemon.actors.reloader import Reloader
from daemon.actors.session import Session
from daemon.actors.warden import Warden
from daemon.clients.asking import parked_calls
from daemon.clients.context import SessionContext
from daemon.clients.doors.listening import Front, unix_door
from daemon.clients.sessions import unload
from daemon.counting.readings import Exporter
from daemon.counting.tally import most_called
from daemon.errors import McpdError, UpstreamLost
from daemon.history.event import Event, EventKind
from daemon.host.notify import SERVING, TOKENS, Readiness, feed_watchdog, handover, stopping
from daemon.kit.later import later
from daemon.operators.base import Clients, Counters, OperatorContext, OwnLines
from daemon.processes.peers import Peers, TcpPeers, connections, own_and, shares
from daemon.sandbox import egress
from daemon.setup.approving import Approver
from daemon.surfaces.table import AUTO, SURFACES
from daemon.tree.core import Core

if TYPE_CHECKING:
    from daemon.actors.control import Control
    from daemon.audit.record import ChainHead
    from daemon.clients.doors.http.door import HttpDoor
    from daemon.config.config_model import Config
    from daemon.config.parse import Plan
    from daemon.console.console import Console
    from daemon.history.event import Detail
    from daemon.summaries.endpoint import SummaryQuestions
    from daemon.tree.core import Surroundings
    from daemon.upstreams.upstream_access import UpstreamAccess
else:
    Control = later("daemon.actors.control", "Control", due=True)  # 30 ms, needed once an operator asks
    SummaryQuestions = later("daemon.summaries.endpoint", "SummaryQuestions")
    HttpDoor = later("daemon.clients.doors.http.door", "HttpDoor")  # 15 ms, needed only where HTTP is served
    Console = later("daemon.console.console", "Console")  # needed once somebody looks at it


CONTROL_CONNECTIONS = 32
"""Most concurrent operators' connections; commands are short, except for `call`."""


class Wiring(Core):
    """All actors of one daemon: the core and its doors."""

    def __init__(self, config: Config, around: Surroundings) -> None:
        super().__init__(config, around)
        self.readiness = Readiness.STARTING
        """The state that probes over HTTP get."""
        self.clients = _clients(self, config)
        self.operators = Peers(
            "operators",
            shares(CONTROL_CONNECTIONS),
            uids=own_and(()),
            servers=around.children.fellows.copy,
            gather=self.gathering.add,
        )
        self.connections = partial(connections, (self.clients, self.operators))
        self.lines = OwnLines(around.children)
        self.reloader = Reloader(
            read=around.file.read,
            apply=self._apply,
            source=around.facts.config,
            notify=around.notify,
            redact=around.redact,
            note=self.history.note,
        )
        self.approver = Approver(
            registry=self.registry,
            note=self.history.note,
            wall=time.time,
            directory=Path(around.facts.directory or ".", around.facts.config).parent,
        )
        self.front, self.exporter = _front(self), _exporter(self)
        self.exposition = Exposition(
            self.registry.config, self.exporter.text, readiness=lambda: self.readiness, outbox=self.outbox
        )
        self.vet = _vet(self)
        self.console_opening = ConsoleOpening(lambda: self.console, self.outbox, self.vet)
        self.http = None if around.http is None else _http(self, around.http)
        self.context = _context(self)
        door = partial(unix_door, outbox=self.outbox, limits=config.limits)
        self.client_door = door(
            around.front, self.clients, self.front.serve, workspaces=config.listen.workspaces
        )
        # As an annotation: `Front[Control](...)` would load the proxy's module, with all commands.
        operators: Front[Control] = Front(partial(Control, self.context))
        self.operator_door = door(around.control, self.operators, operators.serve, keeps=0)

    @cached_property
    def console(self) -> Console:
        """The console, made at its first request."""
        http = self.http
        return Console(
            self.context, address=self._console_address, match=None if http is None else http.tokens.match
        )

    async def _console_address(self) -> str:
        return await self.console_opening.address() if self.http is None else self.http.address

    async def _apply(self, config: Config) -> Plan:
        before, now = self.registry.catalog.value.config.mcp_servers, config.mcp_servers
        others = {name for name in before if name not in now or now[name].identity != before[name].identity}
        self.sessions.end_grants(others)
        plan = await self.servers.apply(config)
        self.audit.configure(self.registry.catalog.value.config.audit)
        self.tally.serve(self.registry.catalog.value.config.mcp_servers)
        if self.http is not None:
            await self.http.renew()
        return plan


def _clients(wiring: Wiring, config: Config) -> Peers:
    return Peers(
        "clients",
        shares(config.limits.connections),
        uids=own_and(config.listen.uids),
        servers=partial(_servers_that_may, wiring, config),
        gather=wiring.gathering.add,
    )


def _servers_that_may(wiring: Wiring, config: Config) -> set[int | None]:
    servers = (each for each in wiring.servers.actors.values() if each.of in config.listen.servers)
    return {pid for each in servers for pid in each.children}


def _vet(wiring: Wiring) -> Callable[[socket.socket], Awaitable[bool]]:
    config = wiring.registry.catalog.value.config

    def gather(event: Event) -> None:
        wiring.tally.turned_away(str(event.details["reason"]))
        wiring.gathering.add(event)

    servers = partial(_servers_that_may, wiring, config)
    peers, may = Peers("http", shares(0), uids=(), servers=servers, gather=gather), {"", *config.listen.servers}
    return TcpPeers(peers, lambda inode: egress.server_behind(inode) not in may).admit


def _front(wiring: Wiring) -> Front[Session]:
    context = SessionContext(
        catalog=wiring.registry.catalog,
        upstreams=wiring.servers.named,
        surfaces=SURFACES,
        services=wiring.services,
        index=wiring.librarian.index,
        mended=wiring.mended,
        sessions=wiring.sessions,
        tally=wiring.tally,
        settle_names=wiring.registry.settle_names,
        settled=wiring.registry.settle,
        outbox=wiring.outbox,
        log=wiring.calls,
        recent=wiring.recent,
        wall=time.time,
        redact=wiring.around.redact,
        subscribers=wiring.subscribers,
        states=wiring.states,
        logins=wiring.around.logins,
        look=wiring.recorder.look if wiring.recorder.shared else None,
        moves=wiring.moves,
        run_script=wiring.scripts.begin,
        results=wiring.results,
        tracer=wiring.tracer,
        audit=wiring.audit,
        observed=wiring.observed,
        approve=wiring.approver.approve,
        note=wiring.history.note,
        gather=wiring.gathering.add,
    )
    return Front(lambda link, number, principal: Session(link, number, context, principal))


def _http(wiring: Wiring, listener: socket.socket) -> HttpDoor:
    def turned_away(reason: str) -> None:
        wiring.tally.turned_away(reason)
        details = {"door": "http", "reason": reason}
        wiring.gathering.add(Event(kind=EventKind.REFUSED, details=details))

    return HttpDoor(
        listener=listener,
        tls=wiring.around.tls,
        state=Path(wiring.around.facts.state),
        **handover(wiring.around.notify, TOKENS),
        redact=wiring.around.redact,
        catalog=wiring.registry.catalog,
        offers=wiring.services.offers,
        surfaces=(AUTO, *SURFACES),
        export=wiring.exporter.text,
        readiness=lambda: wiring.readiness,
        count=turned_away,
        vet=wiring.vet,
        serve=wiring.front.serve,
        revoked=lambda owner: wiring.sessions.grants.end(owner, wiring.sessions.named),
        outbox=wiring.outbox,
        console=lambda: wiring.console,
    )


def _exporter(wiring: Wiring) -> Exporter:
    return Exporter(
        tally=wiring.tally,
        catalog=wiring.registry.catalog,
        actors=wiring.servers.actors,
        divided=lambda: {
            name: each.instances for name, each in wiring.upstreams.items() if each.instances is not None
        },
        sessions=lambda: [
            (each.surface, each.loaded)
            for each in (session.statistics() for session in wiring.front.sessions.values())
        ],
        persistence=wiring.recorder.persistence,
        version=wiring.around.facts.version,
        connections=wiring.connections,
        dropped={} if wiring.tracer is None else wiring.tracer.dropped,
    )


def _context(wiring: Wiring) -> OperatorContext:
    return OperatorContext(
        facts=wiring.around.facts,
        registry=wiring.registry,
        upstreams=wiring.upstreams,
        actors=wiring.servers.actors,
        children=wiring.supervisor.children,
        reload=wiring.reloader.reload,
        approver=wiring.approver,
        archive=wiring.recorder,
        clients=Clients(
            live=wiring.front.sessions.values,
            in_use=wiring.sessions.in_use,
            moves=wiring.moves,
            change_grants=wiring.sessions.grants.change,
            unload=partial(unload, wiring.sessions, wiring.recorder),
            parked=partial(parked_calls, wiring.states),
            connections=wiring.connections,
        ),
        counters=Counters(
            tally=wiring.tally,
            mended=wiring.mended,
            summarizer=lambda: wiring.summarizing.state,
            export=wiring.exporter.text,
            recent=wiring.recent,
            series=wiring.series,
        ),
        services=wiring.services,
        redact=wiring.around.redact,
        outbox=wiring.outbox,
        wall=time.time,
        logins=wiring.around.logins,
        lessons=wiring.around.lessons,
        audit=wiring.audit,
        history=wiring.history,
        summary_model=cache(
            lambda: SummaryQuestions(lambda: wiring.registry.catalog.value.config, wiring.around.facts.environ)
        ),
        access=None if wiring.http is None else wiring.http.tokens,
        lines=wiring.lines,
        console=lambda: wiring.console,
    )


DRAIN_SECONDS = 0.5
"""Seconds for calls in flight to finish before the daemon answers them with an error."""

POLL_SECONDS = 0.02
"""Seconds between checks during the drain: 25 in all."""

STOP_SECONDS = 4.0
"""Seconds for all servers to stop; with drain and kill, within the promised 5 s."""


async def drain(sessions: Collection[Session], servers: Mapping[str, UpstreamAccess]) -> None:
    """Let calls finish for `DRAIN_SECONDS`, then fail the rest; unsent ones go back to bridges."""
    _give_back(sessions)
    with trio.move_on_after(DRAIN_SECONDS):
        while any(session.is_awaited for session in sessions):  # noqa: ASYNC110
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
        self._ended, self._written = trio.Event(), trio.Event()

    async def serve(self, stop: trio.Event) -> None:
        """Run until `stop` is set, then stop everything in order, within 5 s."""
        around = self.around
        async with trio.open_nursery() as core:
            core.start_soon(self.registry.run)
            await self._recall()
            await self._tell_start()
            # What changes while a session is recalled must not be missed either.
            core.start_soon(
                self.recorder.run,
                lambda: [*self.sessions.named, *self.sessions.recalls],
                self.sessions.adopt,
            )
            for run in self._watches():
                core.start_soon(run)
            async with self.sandboxes.serving(), trio.open_nursery() as upstreams:
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
        """Restore the stored state before a client is served or a server starts."""
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
        self.gathering.note_counts()
        await self.audit.finish()
        seconds = max(0.0, time.time() - self.around.facts.started_at)
        self.history.note(Event(kind=EventKind.DAEMON_STOPPED, details={"seconds": seconds}))
        self._ended.set()

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
