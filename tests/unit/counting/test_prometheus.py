"""The text: what the library's own parser makes of it is what was read."""

import os
import re
from pathlib import Path

import pytest
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from daemon import protocol
from daemon.counting.prometheus import METRICS, Metric, MetricKind, render
from daemon.counting.readings import Exporter, read
from daemon.counting.tally import (
    HTTP_REFUSALS,
    INVALIDATIONS,
    LATENCY_BOUNDS,
    MAX_SERVERS,
    OPERATOR,
    OTHER,
    RELAYS,
    REPAIRS,
    SOURCES,
)
from daemon.processes.peers import RefusalReason
from daemon.surfaces.table import SURFACES
from tests.tallies import new_tally
from tests.unit.counting.samples import eventful, exporter

LINE = re.compile(r'[a-z_]+(\{[a-z_]+="[^"\n]*"(,[a-z_]+="[^"\n]*")*\})? -?[0-9.e+-]+|# (HELP|TYPE) [a-z_]+ .+')
"""A line of the text format, as strict as our own names allow."""


def export(given: Exporter | None = None) -> str:
    return render(read(given or exporter()).with_memory({77: 4096, 78: 2048}, {"git": 1.5}))


def families(text: str) -> dict[str, Family]:
    """By the name that the text has; the parser strips `_total`."""
    parsed = list(text_string_to_metric_families(text))
    found = {each.name + ("_total" if each.type == "counter" else ""): each for each in parsed}
    assert len(found) == len(parsed), "a family is there twice"
    return found


def test_the_export_has_what_the_table_says_and_nothing_else() -> None:
    found = families(export())
    assert found.keys() == METRICS.keys()
    for name, metric in METRICS.items():
        assert found[name].type == metric.kind, name
        assert found[name].documentation == metric.help or metric.from_library, name
        for sample in found[name].samples:
            extra = {"le"} if sample.name.endswith("_bucket") else set()
            assert set(sample.labels) == {*metric.labels, *extra}, name
    assert [name for name, family in found.items() if not family.samples] == []


def test_every_line_is_one_of_the_format_and_no_series_is_there_twice() -> None:
    text = export()
    assert text.endswith("\n")
    assert [line for line in text.splitlines() if not LINE.fullmatch(line)] == []
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_a_histogram_is_cumulative_and_ends_with_all() -> None:
    tally = new_tally(["git"])
    for seconds in (0.0005, 0.003, 0.003, 1000.0):
        tally.call("git", "full", "ok", [seconds])
    samples = families(export(exporter(tally)))["mcpd_call_duration_seconds"].samples
    buckets = [(each.labels["le"], each.value) for each in samples if each.name.endswith("_bucket")]
    assert [float(bound) for bound, _ in buckets] == [*LATENCY_BOUNDS, float("inf")]
    assert buckets[:4] == [("0.001", 1), ("0.0025", 1), ("0.005", 3), ("0.01", 3)]
    assert buckets[-2:] == [("600.0", 3), ("+Inf", 4)]
    rest = {each.name: each.value for each in samples if not each.name.endswith("_bucket")}
    assert rest == {"mcpd_call_duration_seconds_count": 4, "mcpd_call_duration_seconds_sum": 1000.0065}


def test_what_the_text_says_is_what_was_read() -> None:
    tally = eventful()
    reading = read(exporter(tally))
    for name, family in families(export(exporter(tally))).items():
        metric = METRICS[name]
        if (
            metric.kind is not MetricKind.HISTOGRAM
            and not metric.from_library
            and name not in reading.with_memory({}).values.keys() - reading.values.keys()
        ):
            said = {tuple(each.labels[label] for label in metric.labels): each.value for each in family.samples}
            assert said == reading.values[name], name


def test_names_that_were_made_up_do_not_stand_in_the_text() -> None:
    tally = new_tally(["git"])
    hostile = 'x"} 1\nmcpd_fake{a="'
    tally.call(hostile, hostile, hostile, [0.1])
    tally.meta_call("load", hostile, hostile)
    tally.refused(hostile)
    text = export(exporter(tally))
    assert "mcpd_fake" not in text
    assert f'mcpd_calls_total{{outcome="{OTHER}",server="{OTHER}",surface="{OTHER}"}} 1.0' in text


def test_a_version_with_odd_characters_is_escaped() -> None:
    text = export(exporter(version='1"\\\n2'))
    (sample,) = families(text)["mcpd_build_info"].samples
    assert sample.labels == {"version": '1"\\\n2'}


def test_the_process_is_this_one() -> None:
    (resident,) = families(export())["process_resident_memory_bytes"].samples
    (descriptors,) = families(export())["process_open_fds"].samples
    assert resident.value > 1 << 20
    assert 0 < descriptors.value < os.sysconf("SC_OPEN_MAX")


PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
LABEL = re.compile(r"^- `([a-z]+)`: (.*)$", re.MULTILINE)

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
