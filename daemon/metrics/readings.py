"""What every metric is at one moment: copied on the event loop, rendered elsewhere."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import attrs

from daemon.states import ServerState
from daemon.tally import MAX_SERVERS, OPERATOR, OTHER, tokens_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.processes.peers import Connections
    from daemon.report import Kept
    from daemon.tally import Calls, Tally

Labels = tuple[str, ...]
"""Values of a metric's labels, in the order of the table."""


@attrs.frozen
class Distribution:
    """What a histogram says."""

    buckets: tuple[int, ...]
    """How many fell between two of `tally.LATENCY_BOUNDS`; the last: beyond all."""
    total: float
    """The sum of what was observed."""


Values = dict[Labels, float | Distribution]


@attrs.frozen
class Reading:
    """All metrics at one moment, but for those that the client library reads itself."""

    values: Mapping[str, Values]
    """By metric, then by labels."""
    marks: Mapping[int, str] = attrs.field(factory=dict)
    """The server of each child's mark, to find its memory by."""

    def with_memory(self, resident: Mapping[int, int]) -> Reading:
        """Together with what the children's trees take.

        Args:
            resident: bytes by mark.
        """
        memory: Values = {(server,): resident[mark] for mark, server in self.marks.items() if mark in resident}
        return Reading({**self.values, "mcpd_server_memory_bytes": memory}, self.marks)


class Measured(Protocol):
    """What an upstream lets be counted."""

    mark: int | None

    @property
    def in_flight(self) -> int:
        """Calls without an answer yet, those in line included."""

    @property
    def queued(self) -> int:
        """Calls in line."""


class Connected(Protocol):
    """What an open session lets be counted."""

    @property
    def surface(self) -> str:
        """Its surface."""

    @property
    def loaded(self) -> int:
        """Tools that it has loaded."""


@attrs.frozen(kw_only=True)
class Sources:
    """Where readings come from."""

    tally: Tally
    """What has happened."""
    catalog: Callable[[], Catalog]
    """The newest catalog."""
    upstreams: Mapping[str, Measured]
    """Running servers by name."""
    sessions: Callable[[], Iterable[Connected]]
    """Open sessions."""
    version: str
    """Of mcpd."""
    connections: Callable[[], Mapping[str, Connections]] = dict
    """The connections through each door."""
    persistence: Callable[[], Kept] | None = None
    """How keeping things for the daemon's next life goes; None where nothing is kept."""


def read(sources: Sources) -> Reading:
    """Copy everything as it is now; on the event loop, where nothing changes meanwhile."""
    # One limit for counters and gauges: a server has all of its series, or none.
    servers = dict(islice(sources.catalog().servers.items(), MAX_SERVERS))
    upstreams = {name: each for name, each in sources.upstreams.items() if name in servers}
    return Reading(
        {
            **_calls(sources.tally),
            **_counted(sources.tally),
            **_lists(sources.tally),
            **_servers(servers),
            **_upstreams(upstreams),
            **_whole(sources),
            **_connections(sources.connections()),
        },
        {each.mark: name for name, each in upstreams.items() if each.mark is not None},
    )


def _calls(tally: Tally) -> dict[str, Values]:
    ended: Values = {}
    durations: Values = {}
    for server, calls in _by_server(tally):
        ended.update({(server, *key): count for key, count in calls.outcomes.items()})
        durations[server,] = Distribution(tuple(calls.buckets), calls.seconds)
    return {"mcpd_calls_total": ended, "mcpd_call_duration_seconds": durations}


def _by_server(tally: Tally) -> Iterator[tuple[str, Calls]]:
    yield from tally.servers.items()
    if tally.elsewhere.count:
        yield OTHER, tally.elsewhere


def _counted(tally: Tally) -> dict[str, Values]:
    return {
        "mcpd_refusals_total": _by_one(tally.refusals),
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


def _servers(servers: Mapping[str, ServerEntry]) -> dict[str, Values]:
    return {
        "mcpd_server_state": {
            (name, str(state)): state is entry.status.state
            for name, entry in servers.items()
            for state in ServerState
        },
        "mcpd_server_epoch": {(name,): entry.epoch for name, entry in servers.items()},
        "mcpd_server_tools": {(name,): len(entry.tools or ()) for name, entry in servers.items()},
        "mcpd_server_tools_unavailable": {
            (name,): 0 if entry.usable else len(entry.tools or ()) for name, entry in servers.items()
        },
        "mcpd_server_tools_quarantined": {(name,): len(entry.quarantined) for name, entry in servers.items()},
        "mcpd_server_restarts_total": {(name,): entry.status.restarts for name, entry in servers.items()},
    }


def _is_unavailable(entry: ServerEntry) -> bool:
    if entry.disabled:
        return False
    return not (entry.of_use if entry.available else entry.usable)


def _upstreams(upstreams: Mapping[str, Measured]) -> dict[str, Values]:
    return {
        "mcpd_server_calls_in_flight": {(name,): each.in_flight for name, each in upstreams.items()},
        "mcpd_server_calls_queued": {(name,): each.queued for name, each in upstreams.items()},
    }


def _whole(sources: Sources) -> dict[str, Values]:
    entries = sources.catalog().servers.values()
    sessions = list(sources.sessions())
    return {
        "mcpd_servers": {(): len(entries)},
        "mcpd_servers_unavailable": {(): sum(map(_is_unavailable, entries))},
        "mcpd_sessions": _by_surface(sessions, sources.tally.lists.keys() - {OPERATOR, OTHER}),
        "mcpd_loaded_tools": {(): sum(session.loaded for session in sessions)},
        "mcpd_build_info": {(sources.version,): 1},
        **_kept(None if sources.persistence is None else sources.persistence()),
    }


def _by_surface(sessions: Iterable[Connected], known: Collection[str]) -> Values:
    counts = Counter(dict.fromkeys(known, 0))
    counts.update(each.surface if each.surface in known else OTHER for each in sessions)
    return _by_one(counts)


def _connections(doors: Mapping[str, Connections]) -> dict[str, Values]:
    return {
        "mcpd_connections": {(name,): door["open"] for name, door in doors.items()},
        "mcpd_connections_refused_total": {
            (name, reason): count for name, door in doors.items() for reason, count in door["refused"].items()
        },
    }


def _kept(kept: Kept | None) -> dict[str, Values]:
    if kept is None:
        return {"mcpd_persistence_ok": {}, "mcpd_persistence_unwritten": {}}
    return {
        "mcpd_persistence_ok": {(): kept.state == "ok"},
        "mcpd_persistence_unwritten": {(): kept.waiting},
    }
