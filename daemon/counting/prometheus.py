"""All metrics with their names, types and labels, and their export in Prometheus' text format.

`METRICS` is the one list of metrics; a test compares it with docs/metrics.md. Names follow Prometheus'
conventions: base units, the unit and `_total` at the end. The values of labels are bounded (`counting.tally`).
Importing the client library takes 0.1 s: `readings` imports this module on the first request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import partial
from itertools import accumulate

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from daemon.counting.readings import Distribution, Reading
from daemon.counting.tally import LATENCY_BOUNDS


class MetricKind(StrEnum):
    """The type of a metric."""

    COUNTER = "counter"
    """A value that only rises, from zero at the start of the daemon."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True):
    """The definition of a metric."""

    kind: MetricKind
    name: str
    help: str
    labels: tuple[str, ...] = ()
    from_library: bool = False
    """Whether the client library itself reads and describes it."""


_counter = partial(Metric, MetricKind.COUNTER)
_gauge = partial(Metric, MetricKind.GAUGE)
_histogram = partial(Metric, MetricKind.HISTOGRAM)

_CALLS = (
    _counter(
        "mcpd_calls_total",
        "Calls that went to a server and have ended, by how: ok, or the error code that the client got.",
        ("server", "surface", "outcome"),
    ),
    _histogram(
        "mcpd_call_duration_seconds",
        "What these calls took, from the client's request to its answer.",
        ("server",),
    ),
    _counter(
        "mcpd_refusals_total", "Calls that were answered with an error before any server had them.", ("code",)
    ),
    _counter(
        "mcpd_meta_calls_total",
        "Calls that mcpd answered itself, by meta-tool: round trips that a client without mcpd would not make.",
        ("surface", "tool", "outcome"),
    ),
    _counter(
        "mcpd_requests_total",
        "Requests of clients other than calls that went to a server and have ended, by how.",
        ("server", "method", "outcome"),
    ),
    _counter(
        "mcpd_server_requests_total",
        "Requests that a server made of a client while it worked for it, by what became of them.",
        ("server", "method", "result"),
    ),
    _counter("mcpd_repairs_total", "Calls whose arguments had to be repaired before they fitted.", ("kind",)),
)

_LOADING = (
    _counter(
        "mcpd_load_lookups_total",
        "Calls on surfaces that load tools: hit if the session had loaded the tool, else miss.",
        ("result", "source"),
    ),
    _counter("mcpd_tools_loaded_total", "Tools that sessions have loaded, by who did.", ("source",)),
    _counter(
        "mcpd_tools_invalidated_total",
        "Loaded tools that became unusable for a session, by what became of them.",
        ("status",),
    ),
    _gauge("mcpd_loaded_tools", "Tools that the open sessions have loaded now, all together."),
)

_LISTS = (
    _counter("mcpd_tools_lists_total", "Answers to tools/list.", ("surface",)),
    _counter("mcpd_tools_list_bytes_total", "Bytes of the tools in answers to tools/list.", ("surface",)),
    _counter(
        "mcpd_tools_list_full_bytes_total",
        "Bytes that these answers would have had with all tools of the profile.",
        ("surface",),
    ),
    _counter(
        "mcpd_tokens_not_sent_total",
        "Estimate of the tokens that clients did without, as they were not given all tools of the profile.",
        ("surface",),
    ),
    _counter(
        "mcpd_tokens_sent_instead_total",
        "Estimate of the tokens that they were sent instead: answers of meta-tools, and lists that grew.",
        ("surface",),
    ),
)

_SERVERS = (
    _gauge("mcpd_servers", "Servers in the configuration."),
    _gauge(
        "mcpd_servers_unavailable",
        "Servers that would not take a call now, or have no tool although they should, without those that are"
        " switched off.",
    ),
    _gauge("mcpd_server_state", "1 for the state that a server is in, else 0.", ("server", "state")),
    _gauge("mcpd_server_epoch", "Version of a server's visible capabilities.", ("server",)),
    _gauge("mcpd_server_tools", "Tools that are known of a server.", ("server",)),
    _gauge(
        "mcpd_server_tools_unavailable",
        "Known tools of a server that cannot be called now, because it is not up.",
        ("server",),
    ),
    _gauge(
        "mcpd_server_tools_quarantined",
        "Tools that a server lists and that cannot be used, as their descriptions are malformed.",
        ("server",),
    ),
    _gauge("mcpd_server_held", "Tools, prompts and templates of a server that wait for approval.", ("server",)),
    _gauge(
        "mcpd_server_definitions",
        "Prompts, resources, resource templates and skills that are known of a server.",
        ("server", "kind"),
    ),
    _gauge(
        "mcpd_server_definitions_unavailable",
        "Known ones of a server that cannot be had now, because it is not up.",
        ("server", "kind"),
    ),
    _gauge(
        "mcpd_server_definitions_quarantined",
        "Such that a server lists and that cannot be used, as their descriptions are malformed.",
        ("server", "kind"),
    ),
    _counter("mcpd_server_restarts_total", "Runs of a server that were followed by another.", ("server",)),
    _counter(
        "mcpd_server_egress_refused_total",
        "Requests of a sandboxed server for hosts that its sandbox refused.",
        ("server",),
    ),
    _gauge(
        "mcpd_server_calls_in_flight",
        "Calls to a server without an answer yet, those in line included.",
        ("server",),
    ),
    _gauge(
        "mcpd_server_calls_queued", "Calls in line because the server works on as many as it may.", ("server",)
    ),
    _gauge(
        "mcpd_server_memory_bytes",
        "Memory of a server that mcpd started, with all that it started: its control group's, else resident.",
        ("server",),
    ),
    _counter(
        "mcpd_server_cpu_seconds_total", "CPU time of a server's processes with a control group.", ("server",)
    ),
)

_INSTANCES = (
    _gauge(
        "mcpd_server_instances", "Instances of a server that run, where clients do not share one.", ("server",)
    ),
    _counter("mcpd_server_instances_begun_total", "Instances that were made for clients.", ("server",)),
    _counter(
        "mcpd_server_instances_ended_total",
        "Instances that have ended: unused, with their session, or to make room.",
        ("server",),
    ),
    _gauge(
        "mcpd_instance_calls_in_flight",
        "Calls to an instance without an answer yet, those in line included.",
        ("server", "instance"),
    ),
    _gauge(
        "mcpd_instance_calls_queued",
        "Calls in line because the instance works on as many as it may.",
        ("server", "instance"),
    ),
    _gauge(
        "mcpd_instance_memory_bytes",
        "Memory of an instance that mcpd started, with all that it started, as that of a server.",
        ("server", "instance"),
    ),
)

_DAEMON = (
    _gauge("mcpd_sessions", "Clients that are connected.", ("surface",)),
    _gauge("mcpd_connections", "Connections of clients and of operators.", ("door",)),
    _counter(
        "mcpd_connections_refused_total",
        "Connections that were refused before anything was read from them.",
        ("door", "reason"),
    ),
    _counter(
        "mcpd_http_refused_total", "Requests over HTTP that were refused because of who made them.", ("reason",)
    ),
    _gauge(
        "mcpd_persistence_ok", "1 if what outlives the daemon is written; 0 if not, and `mcpd status` says why."
    ),
    _gauge("mcpd_persistence_unwritten", "Things that outlive the daemon and are not written yet."),
    _gauge("mcpd_build_info", "1; the label has the version of mcpd.", ("version",)),
)

_PROCESS = (
    _counter("process_cpu_seconds_total", "CPU time of the daemon itself.", from_library=True),
    _gauge("process_resident_memory_bytes", "Resident memory of the daemon itself.", from_library=True),
    _gauge("process_virtual_memory_bytes", "Virtual memory of the daemon itself.", from_library=True),
    _gauge("process_start_time_seconds", "When the daemon started, since the epoch.", from_library=True),
    _gauge("process_open_fds", "File descriptors that the daemon has open.", from_library=True),
    _gauge("process_max_fds", "File descriptors that it may open.", from_library=True),
)

METRICS: Mapping[str, Metric] = {
    metric.name: metric for metric in (*_CALLS, *_LOADING, *_LISTS, *_SERVERS, *_INSTANCES, *_DAEMON, *_PROCESS)
}
"""All metrics by name, in the order of the export; those of the library come last."""


_BOUNDS = (*map(floatToGoString, LATENCY_BOUNDS), "+Inf")


def render(reading: Reading) -> str:
    """Render a reading as text. Reads /proc for the daemon's own metrics: call it in a thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ReadingCollector(reading))
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()


class _ReadingCollector(Collector):
    """Gives the client library the values of a reading."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Family]:
        for metric in METRICS.values():
            if not metric.from_library:
                yield self._family(metric)

    def _family(self, metric: Metric) -> Family:
        family = _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
        for labels, value in sorted(self._reading.values[metric.name].items()):
            if isinstance(family, HistogramMetricFamily):
                assert isinstance(value, Distribution)
                cumulated = accumulate(value.buckets)
                family.add_metric(labels, list(zip(_BOUNDS, cumulated, strict=True)), value.total)
            else:
                assert not isinstance(value, Distribution)
                family.add_metric(labels, value)
        return family


_FAMILIES: dict[MetricKind, type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
}
