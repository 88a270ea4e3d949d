"""A reading as the text that Prometheus reads, through its maintained client library.

Importing the library takes 0.1 s and its servers' modules: only `readings` does, when somebody asks.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from daemon.counting.readings import Distribution
from daemon.counting.table import METRICS, MetricKind
from daemon.counting.tally import LATENCY_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric as Family

    from daemon.counting.readings import Reading
    from daemon.counting.table import Metric

_BOUNDS = (*map(floatToGoString, LATENCY_BOUNDS), "+Inf")


def render(reading: Reading) -> str:
    """The export. Reads /proc: call it in a thread. The same reading gives the same text, but for the process.

    Raises:
        KeyError: the reading has no value for a metric of the table.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ReadingCollector(reading))
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()


class _ReadingCollector(Collector):
    """A collector of what was read already."""

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
