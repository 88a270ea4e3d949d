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


class MetricKind(StrEnum):
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
    kind: MetricKind
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
        MetricKind.COUNTER,
        ("server", "surface", "outcome"),
        "Calls that went to a server and have ended, by how: ok, or the error code that the client got.",
    ),
    Metric(
        "mcpd_call_duration_seconds",
        MetricKind.HISTOGRAM,
        ("server",),
        "What these calls took, from the client's request to its answer.",
    ),
    Metric(
        "mcpd_refusals_total",
        MetricKind.COUNTER,
        ("code",),
        "Calls that were answered with an error before any server had them.",
    ),
    Metric(
        "mcpd_meta_calls_total",
        MetricKind.COUNTER,
        ("surface", "tool", "outcome"),
        "Calls that mcpd answered itself, by meta-tool: round trips that a client without mcpd would not make.",
    ),
    Metric(
        "mcpd_repairs_total",
        MetricKind.COUNTER,
        ("kind",),
        "Calls whose arguments had to be repaired before they fitted.",
    ),
)

_LOADING = (
    Metric(
        "mcpd_load_lookups_total",
        MetricKind.COUNTER,
        ("result", "source"),
        "Calls on surfaces that load tools: hit if the session had loaded the tool, else miss.",
    ),
    Metric(
        "mcpd_tools_loaded_total",
        MetricKind.COUNTER,
        ("source",),
        "Tools that sessions have loaded, by who did.",
    ),
    Metric(
        "mcpd_tools_invalidated_total",
        MetricKind.COUNTER,
        ("status",),
        "Loaded tools that became unusable for a session, by what became of them.",
    ),
    Metric(
        "mcpd_loaded_tools", MetricKind.GAUGE, (), "Tools that the open sessions have loaded now, all together."
    ),
)

_LISTS = (
    Metric("mcpd_tools_lists_total", MetricKind.COUNTER, ("surface",), "Answers to tools/list."),
    Metric(
        "mcpd_tools_list_bytes_total",
        MetricKind.COUNTER,
        ("surface",),
        "Bytes of the tools in answers to tools/list.",
    ),
    Metric(
        "mcpd_tools_list_full_bytes_total",
        MetricKind.COUNTER,
        ("surface",),
        "Bytes that these answers would have had with all tools of the profile.",
    ),
    Metric(
        "mcpd_tokens_not_sent_total",
        MetricKind.COUNTER,
        ("surface",),
        "Estimate of the tokens that clients did without, as they were not given all tools of the profile.",
    ),
    Metric(
        "mcpd_tokens_sent_instead_total",
        MetricKind.COUNTER,
        ("surface",),
        "Estimate of the tokens that they were sent instead: answers of meta-tools, and lists that grew.",
    ),
)

_SERVERS = (
    Metric("mcpd_servers", MetricKind.GAUGE, (), "Servers in the configuration."),
    Metric(
        "mcpd_servers_unavailable",
        MetricKind.GAUGE,
        (),
        "Servers that would not take a call now, or have no tool although they should, without those that are"
        " switched off.",
    ),
    Metric(
        "mcpd_server_state",
        MetricKind.GAUGE,
        ("server", "state"),
        "1 for the state that a server is in, else 0.",
    ),
    Metric("mcpd_server_epoch", MetricKind.GAUGE, ("server",), "Version of a server's visible capabilities."),
    Metric("mcpd_server_tools", MetricKind.GAUGE, ("server",), "Tools that are known of a server."),
    Metric(
        "mcpd_server_tools_unavailable",
        MetricKind.GAUGE,
        ("server",),
        "Known tools of a server that cannot be called now, because it is not up.",
    ),
    Metric(
        "mcpd_server_tools_quarantined",
        MetricKind.GAUGE,
        ("server",),
        "Tools that a server lists and that cannot be used, as their descriptions are malformed.",
    ),
    Metric(
        "mcpd_server_restarts_total",
        MetricKind.COUNTER,
        ("server",),
        "Runs of a server that were followed by another.",
    ),
    Metric(
        "mcpd_server_calls_in_flight",
        MetricKind.GAUGE,
        ("server",),
        "Calls to a server without an answer yet, those in line included.",
    ),
    Metric(
        "mcpd_server_calls_queued",
        MetricKind.GAUGE,
        ("server",),
        "Calls in line because the server works on as many as it may.",
    ),
    Metric(
        "mcpd_server_memory_bytes",
        MetricKind.GAUGE,
        ("server",),
        "Resident memory of a server that mcpd started, with all that it started.",
    ),
)

_DAEMON = (
    Metric("mcpd_sessions", MetricKind.GAUGE, ("surface",), "Clients that are connected."),
    Metric("mcpd_connections", MetricKind.GAUGE, ("door",), "Connections of clients and of operators."),
    Metric(
        "mcpd_connections_refused_total",
        MetricKind.COUNTER,
        ("door", "reason"),
        "Connections that were refused before anything was read from them.",
    ),
    Metric(
        "mcpd_persistence_ok",
        MetricKind.GAUGE,
        (),
        "1 if what outlives the daemon is written; 0 if not, and `mcpd status` says why.",
    ),
    Metric(
        "mcpd_persistence_unwritten",
        MetricKind.GAUGE,
        (),
        "Things that outlive the daemon and are not written yet.",
    ),
    Metric("mcpd_build_info", MetricKind.GAUGE, ("version",), "1; the label has the version of mcpd."),
)

_PROCESS = (
    Metric("process_cpu_seconds_total", MetricKind.COUNTER, (), "CPU time of the daemon itself.", True),
    Metric(
        "process_resident_memory_bytes", MetricKind.GAUGE, (), "Resident memory of the daemon itself.", True
    ),
    Metric("process_virtual_memory_bytes", MetricKind.GAUGE, (), "Virtual memory of the daemon itself.", True),
    Metric(
        "process_start_time_seconds", MetricKind.GAUGE, (), "When the daemon started, since the epoch.", True
    ),
    Metric("process_open_fds", MetricKind.GAUGE, (), "File descriptors that the daemon has open.", True),
    Metric("process_max_fds", MetricKind.GAUGE, (), "File descriptors that it may open.", True),
)

METRICS: Mapping[str, Metric] = {
    metric.name: metric for metric in (*_CALLS, *_LOADING, *_LISTS, *_SERVERS, *_DAEMON, *_PROCESS)
}
"""By name, in the order of the export; those of the library come last."""
