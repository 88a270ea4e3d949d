"""Every metric, once: its name, type, labels and meaning (docs/metrics.md says the same, a test compares).

Names keep Prometheus' conventions: base units, the unit and `_total` at the end. What a label can say is
bounded (`daemon.tally`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"
    """Only rises; begins anew with the daemon."""
    GAUGE = "gauge"
    """How something is now."""
    HISTOGRAM = "histogram"
    """Counters of what stayed below some bounds."""


@attrs.frozen
class Metric:
    """One metric."""

    name: str
    """As it is exported."""
    kind: Kind
    """How it behaves."""
    labels: tuple[str, ...]
    """What its values are told apart by."""
    help: str
    """What it says."""
    from_library: bool = False
    """Whether the client library itself reads and explains it."""


_CALLS = (
    Metric(
        "mcpd_calls_total",
        Kind.COUNTER,
        ("server", "surface", "outcome"),
        "Calls that went to a server and have ended, by how: ok, or the error code that the client got.",
    ),
    Metric(
        "mcpd_call_duration_seconds",
        Kind.HISTOGRAM,
        ("server",),
        "What these calls took, from the client's request to its answer.",
    ),
    Metric(
        "mcpd_refusals_total",
        Kind.COUNTER,
        ("code",),
        "Calls that were answered with an error before any server had them.",
    ),
    Metric(
        "mcpd_meta_calls_total",
        Kind.COUNTER,
        ("surface", "tool", "outcome"),
        "Calls that mcpd answered itself, by meta-tool: round trips that a client without mcpd would not make.",
    ),
    Metric(
        "mcpd_repairs_total",
        Kind.COUNTER,
        ("kind",),
        "Calls whose arguments had to be repaired before they fitted.",
    ),
)

_LOADING = (
    Metric(
        "mcpd_load_lookups_total",
        Kind.COUNTER,
        ("result", "source"),
        "Calls on surfaces that load tools: hit if the session had loaded the tool, else miss.",
    ),
    Metric(
        "mcpd_tools_loaded_total", Kind.COUNTER, ("source",), "Tools that sessions have loaded, by who did."
    ),
    Metric(
        "mcpd_tools_invalidated_total",
        Kind.COUNTER,
        ("status",),
        "Loaded tools that became unusable for a session, by what became of them.",
    ),
    Metric("mcpd_loaded_tools", Kind.GAUGE, (), "Tools that the open sessions have loaded now, all together."),
)

_LISTS = (
    Metric("mcpd_tools_lists_total", Kind.COUNTER, ("surface",), "Answers to tools/list."),
    Metric(
        "mcpd_tools_list_bytes_total",
        Kind.COUNTER,
        ("surface",),
        "Bytes of the tools in answers to tools/list.",
    ),
    Metric(
        "mcpd_tools_list_full_bytes_total",
        Kind.COUNTER,
        ("surface",),
        "Bytes that these answers would have had with all tools of the profile.",
    ),
    Metric(
        "mcpd_tokens_not_sent_total",
        Kind.COUNTER,
        ("surface",),
        "Estimate of the tokens that clients did without, as they were not given all tools of the profile.",
    ),
    Metric(
        "mcpd_tokens_sent_instead_total",
        Kind.COUNTER,
        ("surface",),
        "Estimate of the tokens that they were sent instead: answers of meta-tools, and lists that grew.",
    ),
)

_SERVERS = (
    Metric("mcpd_servers", Kind.GAUGE, (), "Servers in the configuration."),
    Metric(
        "mcpd_servers_unavailable",
        Kind.GAUGE,
        (),
        "Servers that would not take a call now, or have no tool although they should, without those that are"
        " switched off.",
    ),
    Metric(
        "mcpd_server_state", Kind.GAUGE, ("server", "state"), "1 for the state that a server is in, else 0."
    ),
    Metric("mcpd_server_epoch", Kind.GAUGE, ("server",), "Version of a server's visible capabilities."),
    Metric("mcpd_server_tools", Kind.GAUGE, ("server",), "Tools that are known of a server."),
    Metric(
        "mcpd_server_tools_unavailable",
        Kind.GAUGE,
        ("server",),
        "Known tools of a server that cannot be called now, because it is not up.",
    ),
    Metric(
        "mcpd_server_tools_quarantined",
        Kind.GAUGE,
        ("server",),
        "Tools that a server lists and that cannot be used, as their descriptions are malformed.",
    ),
    Metric(
        "mcpd_server_restarts_total",
        Kind.COUNTER,
        ("server",),
        "Runs of a server that were followed by another.",
    ),
    Metric(
        "mcpd_server_calls_in_flight",
        Kind.GAUGE,
        ("server",),
        "Calls to a server without an answer yet, those in line included.",
    ),
    Metric(
        "mcpd_server_calls_queued",
        Kind.GAUGE,
        ("server",),
        "Calls in line because the server works on as many as it may.",
    ),
    Metric(
        "mcpd_server_memory_bytes",
        Kind.GAUGE,
        ("server",),
        "Resident memory of a server that mcpd started, with all that it started.",
    ),
)

_DAEMON = (
    Metric("mcpd_sessions", Kind.GAUGE, ("surface",), "Clients that are connected."),
    Metric("mcpd_connections", Kind.GAUGE, ("door",), "Connections of clients and of operators."),
    Metric(
        "mcpd_connections_refused_total",
        Kind.COUNTER,
        ("door", "reason"),
        "Connections that were refused before anything was read from them.",
    ),
    Metric(
        "mcpd_persistence_ok",
        Kind.GAUGE,
        (),
        "1 if what outlives the daemon is written; 0 if not, and `mcpd status` says why.",
    ),
    Metric(
        "mcpd_persistence_unwritten",
        Kind.GAUGE,
        (),
        "Things that outlive the daemon and are not written yet.",
    ),
    Metric("mcpd_build_info", Kind.GAUGE, ("version",), "1; the label has the version of mcpd."),
)

_PROCESS = (
    Metric("process_cpu_seconds_total", Kind.COUNTER, (), "CPU time of the daemon itself.", True),
    Metric("process_resident_memory_bytes", Kind.GAUGE, (), "Resident memory of the daemon itself.", True),
    Metric("process_virtual_memory_bytes", Kind.GAUGE, (), "Virtual memory of the daemon itself.", True),
    Metric("process_start_time_seconds", Kind.GAUGE, (), "When the daemon started, since the epoch.", True),
    Metric("process_open_fds", Kind.GAUGE, (), "File descriptors that the daemon has open.", True),
    Metric("process_max_fds", Kind.GAUGE, (), "File descriptors that it may open.", True),
)

METRICS: Mapping[str, Metric] = {
    metric.name: metric for metric in (*_CALLS, *_LOADING, *_LISTS, *_SERVERS, *_DAEMON, *_PROCESS)
}
"""By name, in the order of the export; those of the library come last."""
