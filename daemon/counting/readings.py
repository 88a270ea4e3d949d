"""The values of all metrics at one moment, copied on the event loop and rendered in a worker thread."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

import attrs
import msgspec
import trio

from daemon.catalog.entry import KnownList
from daemon.catalog.snapshot import Catalog, ServerEntry
from daemon.counting.tally import MAX_SERVERS, OPERATOR, OTHER, ServerCalls, Tally, tokens_in
from daemon.errors import InvalidArguments
from daemon.kit.waiting import Watch
from daemon.model import Kind
from daemon.ports import Instances
from daemon.processes.cgroups import cpu_by_server
from daemon.processes.marks import memory_by_mark
from daemon.processes.peers import Connections
from daemon.state.health import Persistence
from daemon.states import ServerState

Labels = tuple[str, ...]
"""Values of a metric's labels, in the order of the table."""


class Distribution(msgspec.Struct, frozen=True):
    """The value of a histogram."""

    buckets: tuple[int, ...]
    """For each bucket, the values between two of `counting.tally.LATENCY_BOUNDS`; the last has those beyond."""
    total: float
    """The sum of the observations."""


Values = dict[Labels, float | Distribution]


class CountedUpstream(Protocol):
    """The part of a server or an instance that metrics need."""

    name: str
    """The actor's name."""
    of: str
    """The name of the server."""
    children: dict[int, int]
    """The marks of a server's processes, by pid."""

    @property
    def in_flight(self) -> int:
        """Calls without an answer, queued ones included."""

    @property
    def queued(self) -> int:
        """Calls in the queue."""


def running(actors: Iterable[CountedUpstream]) -> dict[str, Values]:
    """Calls in flight and queued by server, over all its instances."""
    in_flight: Counter[Labels] = Counter()
    queued: Counter[Labels] = Counter()
    for each in actors:
        in_flight[each.of,] += each.in_flight
        queued[each.of,] += each.queued
    return {"mcpd_server_calls_in_flight": dict(in_flight), "mcpd_server_calls_queued": dict(queued)}


def instances(divided: Mapping[str, Instances], actors: Iterable[CountedUpstream]) -> dict[str, Values]:
    """Metrics of divided servers; an instance has its series as long as it lives."""
    live = [each for each in actors if each.of in divided and each.name != each.of]
    return {
        "mcpd_server_instances": {(name,): sum(each.of == name for each in live) for name in divided},
        "mcpd_server_instances_begun_total": {(name,): each.begun for name, each in divided.items()},
        "mcpd_server_instances_ended_total": {(name,): each.ended for name, each in divided.items()},
        "mcpd_instance_calls_in_flight": {labels_of(each): each.in_flight for each in live},
        "mcpd_instance_calls_queued": {labels_of(each): each.queued for each in live},
    }


def memory(marks: Mapping[int, Labels], resident: Mapping[int, int]) -> dict[str, Values]:
    """Resident bytes by server and by instance, from the bytes of each mark."""
    used: Counter[Labels] = Counter()
    of_instances: Counter[Labels] = Counter()
    for mark, labels in marks.items():
        if mark in resident:
            used[labels[:1]] += resident[mark]
            if len(labels) > 1:
                of_instances[labels] += resident[mark]
    return {"mcpd_server_memory_bytes": dict(used), "mcpd_instance_memory_bytes": dict(of_instances)}


def labels_of(actor: CountedUpstream) -> Labels:
    """The labels of an actor: its server, and for an instance its name."""
    return (actor.of,) if actor.name == actor.of else (actor.of, actor.name)


RENDERING = "daemon.counting.prometheus"
"""The module with `render(reading)`, imported by name because it loads the client library."""

AT_ONCE = 1
"""Most exports at the same time: reading all of /proc takes a core for some milliseconds."""

OFF = (
    "metrics are off. `mcpd set . metrics.enabled=true` switches them on, and `mcpd set ."
    " metrics.listen=127.0.0.1:9464` serves them over HTTP, too."
)
"""The answer to a request for metrics while they are off."""


class Reading(msgspec.Struct, frozen=True):
    """All metrics at one moment, except those that the client library reads itself."""

    values: Mapping[str, Values]
    """Values by metric and labels."""
    marks: Mapping[int, Labels] = msgspec.field(default_factory=dict)
    """The labels for each child's mark, by which its memory is found."""

    def with_memory(self, resident: Mapping[int, int], cpu: Mapping[str, float] | None = None) -> Reading:
        """This reading with memory (bytes by mark) and CPU (seconds by server) of process trees."""
        known = self.values["mcpd_server_epoch"].keys()
        spent: Values = {(name,): used for name, used in (cpu or {}).items() if (name,) in known}
        taken = {**memory(self.marks, resident), "mcpd_server_cpu_seconds_total": spent}
        return Reading({**self.values, **taken}, self.marks)


@attrs.frozen(kw_only=True)
class Exporter:
    """Exports the current metrics on request, to operators and to Prometheus over HTTP."""

    tally: Tally
    catalog: Watch[Catalog]
    actors: Mapping[str, CountedUpstream]
    """The actors of shared servers and of instances, by name."""
    divided: Callable[[], Mapping[str, Instances]]
    """Returns the instances of running divided servers, by server."""
    sessions: Callable[[], Iterable[tuple[str, int]]]
    """Returns each open session's surface, and how many tools it has loaded."""
    version: str
    connections: Callable[[], Mapping[str, Connections]]
    """The connections through each door, by its name."""
    persistence: Watch[Persistence]
    """Whether state is being written to the store."""
    dropped: Mapping[str, int] = attrs.field(factory=dict)
    """Calls and events that telemetry lost, by signal; empty while telemetry is off."""
    _limiter: trio.CapacityLimiter = attrs.field(
        factory=lambda: trio.CapacityLimiter(AT_ONCE), init=False, repr=False
    )

    async def text(self) -> str:
        """All metrics in the text format of Prometheus; raises `InvalidArguments` where metrics are off."""
        if not self.catalog.value.config.metrics.enabled:
            raise InvalidArguments(OFF)
        async with self._limiter:
            # The limiter is taken before the numbers are read, so that a waiting request gets current ones.
            return await trio.to_thread.run_sync(_rendered, read(self))


def read(sources: Exporter) -> Reading:
    """Copy all values; call it on the event loop, so that nothing changes meanwhile."""
    # One limit for counters and gauges: a server has all of its series, or none.
    servers = dict(islice(sources.catalog.value.servers.items(), MAX_SERVERS))
    actors = [each for each in sources.actors.values() if each.of in servers]
    divided = {name: each for name, each in sources.divided().items() if name in servers}
    return Reading(
        {
            **_calls(sources.tally),
            **_counted(sources.tally),
            **_lists(sources.tally),
            **_servers(servers),
            **running(actors),
            **instances(divided, actors),
            **_whole(sources),
            **_connections(sources.connections()),
        },
        {mark: labels_of(each) for each in actors for mark in each.children.values()},
    )


def _calls(tally: Tally) -> dict[str, Values]:
    servers = dict(_by_server(tally))

    def by_server(counts_of: Callable[[ServerCalls], Mapping[tuple[str, str], int]]) -> Values:
        return {(name, *key): count for name, each in servers.items() for key, count in counts_of(each).items()}

    return {
        "mcpd_calls_total": by_server(lambda calls: calls.outcomes),
        "mcpd_call_duration_seconds": {
            (name,): Distribution(tuple(calls.buckets), calls.seconds) for name, calls in servers.items()
        },
        "mcpd_requests_total": by_server(lambda calls: calls.requests),
        "mcpd_server_requests_total": by_server(lambda calls: calls.relays),
        "mcpd_server_egress_refused_total": {(name,): each.refused_hosts for name, each in servers.items()},
    }


def _by_server(tally: Tally) -> Iterator[tuple[str, ServerCalls]]:
    yield from tally.servers.items()
    elsewhere = tally.elsewhere
    if elsewhere.count or elsewhere.requests or elsewhere.relays or elsewhere.refused_hosts:
        yield OTHER, elsewhere


def _counted(tally: Tally) -> dict[str, Values]:
    return {
        "mcpd_refusals_total": _by_one(tally.refusals),
        "mcpd_http_refused_total": _by_one(tally.http_refusals),
        "mcpd_meta_calls_total": dict(tally.meta_calls.items()),
        "mcpd_repairs_total": _by_one(tally.repairs),
        "mcpd_load_lookups_total": {
            ("hit" if hit else "miss", source): count for (hit, source), count in tally.lookups.items()
        },
        "mcpd_tools_loaded_total": _by_one(tally.loads),
        "mcpd_tools_invalidated_total": _by_one(tally.invalidations),
    }


def _by_one(counts: Mapping[str, int]) -> Values:
    return {(name,): count for name, count in counts.items()}


def _lists(tally: Tally) -> dict[str, Values]:
    lists = tally.lists.items()
    return {
        "mcpd_tools_lists_total": {(surface,): each.count for surface, each in lists},
        "mcpd_tools_list_bytes_total": {(surface,): each.sent for surface, each in lists},
        "mcpd_tools_list_full_bytes_total": {(surface,): each.full for surface, each in lists},
        "mcpd_tokens_not_sent_total": {(surface,): tokens_in(each.spared) for surface, each in lists},
        "mcpd_tokens_sent_instead_total": {(surface,): tokens_in(each.instead) for surface, each in lists},
    }


_OF_SERVERS: Mapping[str, Callable[[ServerEntry], float]] = {
    "mcpd_server_epoch": lambda entry: entry.epoch,
    "mcpd_server_tools": lambda entry: len(entry.tools or ()),
    "mcpd_server_tools_unavailable": lambda entry: 0 if entry.usable else len(entry.tools or ()),
    "mcpd_server_tools_quarantined": lambda entry: len(entry.tool_list.quarantined),
    "mcpd_server_held": lambda entry: sum(len(known.held) for known in entry.lists.values()),
    "mcpd_server_restarts_total": lambda entry: entry.status.restarts,
}

_OF_LISTS: Mapping[str, Callable[[ServerEntry, KnownList], float]] = {
    "mcpd_server_definitions": lambda _entry, known: len(known.definitions),
    "mcpd_server_definitions_unavailable": lambda entry, known: 0 if entry.usable else len(known.definitions),
    "mcpd_server_definitions_quarantined": lambda _entry, known: len(known.quarantined),
}


def _servers(servers: Mapping[str, ServerEntry]) -> dict[str, Values]:
    states: Values = {
        (name, str(state)): state is entry.status.state
        for name, entry in servers.items()
        for state in ServerState
    }
    lists = [
        (name, kind, entry, known)
        for name, entry in servers.items()
        for kind, known in entry.lists.items()
        if kind is not Kind.TOOL
    ]
    return {
        "mcpd_server_state": states,
        **{
            metric: {(name,): value(entry) for name, entry in servers.items()}
            for metric, value in _OF_SERVERS.items()
        },
        **{
            metric: {(name, str(kind)): value(entry, known) for name, kind, entry, known in lists}
            for metric, value in _OF_LISTS.items()
        },
    }


def _whole(sources: Exporter) -> dict[str, Values]:
    entries = sources.catalog.value.servers.values()
    sessions, persistence = list(sources.sessions()), sources.persistence.value
    return {
        "mcpd_servers": {(): len(entries)},
        "mcpd_servers_unavailable": {(): sum(not each.disabled and not each.of_use for each in entries)},
        "mcpd_sessions": _by_surface(sessions, sources.tally.lists.keys() - {OPERATOR, OTHER}),
        "mcpd_loaded_tools": {(): sum(loaded for _, loaded in sessions)},
        "mcpd_build_info": {(sources.version,): 1},
        "mcpd_persistence_ok": {(): persistence.state == "ok"},
        "mcpd_persistence_unwritten": {(): persistence.waiting},
        "mcpd_telemetry_dropped_total": _by_one(sources.dropped),
    }


def _by_surface(sessions: Iterable[tuple[str, int]], known: Collection[str]) -> Values:
    counts = Counter(dict.fromkeys(known, 0))
    counts.update(surface if surface in known else OTHER for surface, _ in sessions)
    return _by_one(counts)


def _connections(doors: Mapping[str, Connections]) -> dict[str, Values]:
    return {
        "mcpd_connections": {(name,): door["open"] for name, door in doors.items()},
        "mcpd_connections_refused_total": {
            (name, reason): count for name, door in doors.items() for reason, count in door["refused"].items()
        },
    }


def _rendered(reading: Reading) -> str:
    module: Any = importlib.import_module(RENDERING)
    text: str = module.render(reading.with_memory(memory_by_mark(), cpu_by_server()))
    return text
