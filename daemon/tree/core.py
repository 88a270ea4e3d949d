"""The daemon without its doors: history, catalog, servers, store and counters."""

from __future__ import annotations

import os
import socket
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.actors.librarian import Librarian
from daemon.actors.recorder import Recorder, Timing
from daemon.actors.registry import Registry
from daemon.actors.sampler import Sampler
from daemon.actors.summarizing import Summarizing
from daemon.actors.upstream import UpstreamActor
from daemon.audit.audit_log import NO_PLACE, Audit, LineMaker
from daemon.audit.event_records import note_event
from daemon.catalog.offer import Offers
from daemon.catalog.tool_results import Observed
from daemon.clients.connected_clients import ConnectedClients
from daemon.clients.input_required import RequestStates
from daemon.clients.kept_results import KeptResults
from daemon.clients.script_calls import Scripts
from daemon.clients.sessions import Sessions
from daemon.counting.gathering import Gathering
from daemon.counting.measures import RepairCounts
from daemon.counting.recent_calls import CallLogger, RecentCalls, Series
from daemon.counting.tally import Tally, counters, hourly, most_called
from daemon.history.event import EventKind
from daemon.history.journal import History
from daemon.host.logs import anchor
from daemon.host.notify import SWITCHES, handover
from daemon.kit.later import later
from daemon.processes.children import Children, start_helper
from daemon.sandbox.launch import Lesson, Sandboxes
from daemon.sandbox.policy import DaemonPlaces
from daemon.secrets.commands import RunSecrets
from daemon.state.store_access import TrustedSwitches, opener_of
from daemon.surfaces.surface import Services
from daemon.surfaces.table import ITSELF, META_TOOLS, SURFACES
from daemon.tracing.tracer import tracer_for
from daemon.upstreams.server_actors import ActorContext
from daemon.upstreams.servers import Servers
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.wire.outbox import Outbox

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from daemon.actors.summarizer import Summarizer
    from daemon.audit.record import ChainHead
    from daemon.authorization.login_runs import LoginRuns
    from daemon.config.config_model import Config
    from daemon.config.redaction import Redactors
    from daemon.config.state_url import StateUrl
    from daemon.history.event import Event
    from daemon.operators.base import DaemonFacts
    from daemon.ports import WatchedFile
else:  # 10 ms, needed only if a model is configured that writes summaries
    Summarizer = later("daemon.actors.summarizer", "Summarizer")

HOST_CHARACTERS = 64
"""Most characters of the host's name, Linux's limit, in the name of a daemon's life."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the daemon gets from `mcpd run`."""

    front: socket.socket
    control: socket.socket
    http: socket.socket | None = None
    """The socket for HTTP and WebSocket; its creator only closes it: the next daemon may inherit it."""
    tls: ssl.SSLContext | None = None
    facts: DaemonFacts
    redact: Redactors
    notify: Callable[[str], None] = lambda _state: None
    tell_event: Callable[[Event], None] = lambda _event: None
    """Logs each event; must neither block nor raise."""
    watchdog: float | None = None
    """Seconds within which the service manager expects a sign of life."""
    place: StateUrl
    file: WatchedFile
    logins: LoginRuns
    unattended: bool = False
    """Whether the daemon was started on demand, and ends when idle (`idle` of the configuration)."""
    children: Children = msgspec.field(default_factory=Children)
    lessons: dict[str, Lesson] = msgspec.field(default_factory=dict)
    """See `OpenContext.lessons`."""


class Core:
    """The actors that serve clients and the parts they share; starts nothing."""

    def __init__(self, config: Config, around: Surroundings) -> None:
        self.around, self.outbox, self.sandboxes = around, Outbox(), _sandboxes(around)
        self.serving = trio.Event()
        self.history = _history(around)
        self.tracer = tracer_for(config.telemetry, around.facts.environ, around.facts.version, around.redact)
        if self.tracer is not None:
            self.history.listeners.append(self.tracer.heard)
        self.audit = Audit(
            Path(around.facts.state, "audit") if around.facts.state else NO_PLACE,
            config.audit,
            self.history.life,
            partial(_keep_head, self),
            around.facts.version,
            maker=LineMaker(start_helper),
        )
        self.history.listeners.append(partial(note_event, self.audit))
        self.gathering = Gathering(self.history.note)
        self.registry = Registry(config, wall=time.time, reserved=META_TOOLS, note=self.history.note)
        self.subscribers, self.states = ConnectedClients(partial(_gather, self)), RequestStates()
        self.servers = _servers(self, config)
        self.upstreams, self.supervisor = self.servers.upstreams, self.servers.supervisor
        self.librarian = Librarian(self.registry.catalog, config.search)
        self.tally = Tally(config.mcp_servers, meta_tools=dict.fromkeys((*SURFACES, ITSELF.name), META_TOOLS))
        self.recent, self.series = RecentCalls(time.time), Series()
        self.calls, self.mended = CallLogger(self.recent), RepairCounts()
        self.moves: dict[str, str] = {}
        self.scripts = Scripts()
        self.results = KeptResults(Path(around.facts.state or os.devnull))
        self.sampler = Sampler(
            self.upstreams, self.servers.actors, self.tally, self.recent, self.series, time.time
        )
        self.recorder = _recorder(self, config)
        self.sessions = _sessions(self)
        summarizer = partial(Summarizer, self.registry.catalog, tell=self.registry.tell, wall=time.time)
        self.summarizing = Summarizing(self.registry.config, summarizer)
        self.observed = Observed(lambda: self.registry.catalog.value.config.observe, around.redact.of)
        self.services = _services(self, config)


def _history(around: Surroundings) -> History:
    """This daemon's history; the name of its life has host and process, as others may share the store."""
    life = f"{socket.gethostname()[:HOST_CHARACTERS]}/{around.facts.pid}/{os.urandom(3).hex()}"
    history = History(time.time, life, around.redact.text_of)
    history.listeners.append(around.tell_event)
    return history


async def _keep_head(core: Core, head: ChainHead) -> None:
    anchor(head.chain, head.seq, head.digest)
    await core.recorder.keep_head(head)


def _gather(core: Core, event: Event) -> None:
    if event.kind is EventKind.HOST_REFUSED:
        core.tally.refused_host(event.server)
    core.gathering.add(event)


def _sandboxes(around: Surroundings) -> Sandboxes:
    facts = around.facts
    own = (facts.state, facts.socket, facts.control_socket)
    return Sandboxes(around.children, DaemonPlaces.of(facts.environ, Path(facts.config), *own))


def _servers(core: Core, config: Config) -> Servers:
    opening = partial(
        OpenContext,
        outbox=core.outbox,
        children=core.around.children,
        logins=core.around.logins.logins,
        introduced=core.registry.introduced,
        sandboxes=core.sandboxes,
        lessons=core.around.lessons,
        secrets=RunSecrets(core.around.children, core.around.redact.hide_run),
    )
    around = ActorContext(
        make=partial(
            UpstreamActor,
            outbox=core.outbox,
            opening=opening,
            wall=time.time,
            subscribers=core.subscribers,
            settle=core.registry.settle,
        ),
        tell=core.registry.tell,
        redact=core.around.redact,
        wall=time.time,
        note=core.history.note,
    )
    return Servers(config, around, catalog=core.registry.catalog, settle=core.registry.settle)


def _recorder(core: Core, config: Config) -> Recorder:
    recorder = Recorder(
        opener_of(
            core.around.place,
            writer=os.urandom(16).hex(),
            wall=time.time,
            trusted=TrustedSwitches(**handover(core.around.notify, SWITCHES)),
        ),
        catalog=core.registry.catalog,
        tell=core.registry.tell,
        settle=core.registry.settle,
        timing=Timing(session_idle=config.state.session_idle),
        count=partial(counters, core.tally),
        history=core.history,
        count_hourly=partial(hourly, core.tally),
    )
    core.history.stored, core.history.is_shared = recorder.events.find, recorder.shared
    return recorder


def _sessions(core: Core) -> Sessions:
    return Sessions(
        core.registry.catalog,
        core.recorder,
        wall=time.time,
        on_loaded=core.tally.loaded,
        on_invalid=core.tally.invalidated,
        on_left=core.servers.session_ended,
        on_joined=core.servers.session_returned,
    )


def _services(core: Core, config: Config) -> Services:
    return Services(
        offers=Offers(),
        index=lambda: core.librarian.index.value,
        index_characters=config.limits.index_characters,
        most_called=lambda: most_called(core.recorder.totals.known),
        shapes=core.observed.shape,
    )
