"""The table keeps Prometheus' conventions, and the page says what the table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from daemon import protocol
from daemon.counting.prometheus import METRICS, Metric, MetricKind
from daemon.counting.tally import (
    HTTP_REFUSALS,
    INVALIDATIONS,
    MAX_SERVERS,
    OPERATOR,
    OTHER,
    RELAYS,
    REPAIRS,
    SOURCES,
)
from daemon.processes.peers import RefusalReason
from daemon.surfaces.table import SURFACES

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
LABEL = re.compile(r"^\| `([a-z]+)` \| (.*) \|$", re.MULTILINE)

BASE_UNITS = ("_seconds", "_bytes")


def test_no_name_on_the_page_is_missing_from_the_table() -> None:
    series = {name: name for name in METRICS}
    for metric in METRICS.values():
        if metric.kind is MetricKind.HISTOGRAM:
            series |= {f"{metric.name}{end}": metric.name for end in ("_bucket", "_sum", "_count")}
    assert set(re.findall(r"\b(?:mcpd|process)_[a-z_]+", PAGE)) <= series.keys()


def test_every_label_is_explained_and_every_explained_one_exists() -> None:
    explained = dict(LABEL.findall(PAGE))
    assert explained.keys() == {label for metric in METRICS.values() for label in metric.labels}
    for label, closed in {
        "surface": {*SURFACES, OPERATOR},
        "kind": REPAIRS,
        "source": SOURCES,
        "status": INVALIDATIONS,
        "result": {"hit", "miss", *RELAYS},
        "method": protocol.ASKED_OF_CLIENTS,
        "reason": {*map(str, RefusalReason), *HTTP_REFUSALS},
    }.items():
        said = set(re.findall(r"`([a-zA-Z_/]+)`(?!:? (?:for))", explained[label]))
        assert said >= set(closed) - {OPERATOR}, label
    assert str(MAX_SERVERS) in explained["server"]
    assert f"`{OTHER}`" in explained["server"]


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_names_keep_the_conventions(metric: Metric) -> None:
    assert metric.name.startswith("process_" if metric.from_library else "mcpd_")
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    if metric.kind is MetricKind.HISTOGRAM:
        assert metric.name.endswith(BASE_UNITS)
    # A unit stands at the end, before `_total`; milliseconds and megabytes never.
    assert not re.search(r"_(ms|milliseconds|kb|mb|percent)(_|$)", metric.name)
    assert "le" not in metric.labels
    assert metric.help.endswith(".")
    assert "|" not in metric.help
