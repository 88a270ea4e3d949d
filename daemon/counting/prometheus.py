"""All metrics with their names, types and labels, and their export in Prometheus' text format.

A test compares `METRICS` with docs/metrics.md. Labels have a bounded number of values (`counting.tally`).
Importing the client library takes 0.1 s: `readings` imports this module on the first request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.resources import files
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
    """A value that only rises, from zero when the daemon starts."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The definition of a metric, a row of metrics.toml."""

    kind: MetricKind
    name: str
    help: str
    labels: tuple[str, ...] = ()
    from_library: bool = False
    """Whether the client library itself measures and describes it."""


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in msgspec.toml.decode(
        (files("daemon.counting") / "metrics.toml").read_bytes(), type=dict[str, tuple[Metric, ...]]
    )["metrics"]
}
"""All metrics by name, in export order; the library's own come last."""

_BOUNDS = (*map(floatToGoString, LATENCY_BOUNDS), "+Inf")


def render(reading: Reading) -> str:
    """Render a reading as text. Reads /proc for the daemon's own metrics: call it in a thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ReadingCollector(reading))
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()


class _ReadingCollector(Collector):
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
