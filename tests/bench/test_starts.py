"""The measuring programs of bench/: starts, instances, the console, the trace of a call, and scale."""

from pathlib import Path

import pytest

from bench import flows
from bench.calls import report
from bench.calls.daemons import servers
from bench.console import FLOWS, PAGES, TINY, Principal, calls, pages
from bench.flows import ASKING, CALL, ELICITATION, MOST, RUNS, elicitation
from bench.instances import alone, configuration, measured, table
from bench.running import running
from bench.scale.__main__ import balanced_table, beside_table, main
from bench.scale.balanced import Try, Way
from bench.scale.beside import Beside
from bench.scale.writers import writings
from bench.starts import Found, boot, told
from bench.tables import markdown, place_in, put, text
from bench.trace import Trace, traces, tracing
from tests.e2e.harness import ROOT


@pytest.mark.nightly
def test_a_boot_is_measured_until_all_healthy_servers_are_up() -> None:
    found = boot(ROOT, servers=2, seconds=0.05, hanging=1, patience=60.0)
    assert (found.up, found.timeouts) == (2, 0)
    assert 0 < found.half <= found.whole < 60


@pytest.mark.nightly
def test_a_boot_that_does_not_end_is_told_as_far_as_it_came() -> None:
    found = boot(ROOT, servers=1, seconds=600.0, hanging=0, patience=0.2)
    assert found == Found(up=0, half=0.2, whole=0.2, timeouts=0)


def test_a_line_tells_how_it_compares_with_the_ideal() -> None:
    line = told("this", Found(up=9, half=4.0, whole=12.0, timeouts=3), 10.0, 10)
    assert line.split() == ["this", "9", "of", "10", "4.0", "12.0", "1.20", "3"]


# --- the bench of instances ----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_each_session_gets_an_instance_of_each_server_and_all_of_them_end() -> None:
    found = measured(2, 2, idle=5.0)
    assert found.instances == len(found.first) == len(found.second) == 4
    assert 0 < found.proportional <= found.resident
    assert found.gone >= 5.0
    title, heads, rows = table(found, 5.0)
    assert (title, {len(row) for row in rows}) == ("4 instances", {len(heads)})


def test_a_server_alone_is_started_and_answers() -> None:
    entry = configuration(1, 1, 1.0)["mcpServers"]["s0"]
    assert alone([entry["command"], *entry["args"]], 1) > 0


# --- the bench of the console --------------------------------------------------------------------------------


@pytest.mark.nightly
def test_every_page_is_measured_and_calls_beside_open_ones() -> None:
    with running({"mcpServers": servers([TINY.tools] * TINY.servers)}) as daemon:
        visitor = Principal(daemon)
        assert [row[0] for row in pages(visitor, TINY.times)] == [f"/ui/{path}" for path in PAGES]
        assert [row[0] for row in calls(daemon, visitor, TINY)] == [*FLOWS]
        visitor.leave()


# --- the trace of a warm call counts what is run, and a call runs no more Python than it may -----------------


MOST_CALLS = {"category": 56, "full": 54}
"""Python calls of one warm call, as many as it makes: a path that gets longer has to say so here."""


def test_files_and_switches_are_counted_by_the_order_in_which_files_are_entered() -> None:
    trace = Trace(calls=5, order=("a.py", "b.py", "a.py"))
    assert (trace.files, trace.switches) == (2, 2)


def test_a_warm_call_stays_within_its_calls_and_files() -> None:
    for surface, trace in traces("category", "full").items():
        assert {"wire/link.py", "upstreams/call_admission.py"} <= set(trace.order), surface
        assert trace.calls <= MOST_CALLS[surface]
        assert trace.files <= MOST[CALL], surface


def test_an_elicitation_enters_no_more_files_than_it_may() -> None:
    with tracing({"mcpServers": {"asking": ASKING}}) as daemon:
        assert min(elicitation(daemon).files for _ in range(RUNS)) <= MOST[ELICITATION]


WITHIN_BARS = {"crash to ready", "reload of one server", "mcpd status, in the daemon"}


@pytest.mark.nightly
def test_a_crash_a_reload_and_a_status_enter_no_more_files_than_they_may() -> None:
    for what, trace in flows.measured():
        assert what not in WITHIN_BARS or trace.files <= flows.MOST[what], what


# --- what docs/scale -----------------------------------------------------------------------------------------


BESIDE: Beside = {
    "memory for each tool": (5, "KB"),
    "descriptors for each client": (1, ""),
    "loads, 32 sessions at once": (2500, "a second"),
}


def test_what_was_measured_has_words_and_a_unit() -> None:
    title, heads, rows = table = beside_table(BESIDE)
    assert ["memory for each tool", "5.00 KB"] in rows
    assert all(len(row) == len(heads) for row in rows)
    assert text(table).startswith(title)
    assert "| loads, 32 sessions at once | 2,500 a second |" in markdown(table)


def test_what_a_way_has_not_is_left_out() -> None:
    tries = [Try(rate=rate, daemons_us=400, balancer_us=0) for rate in (900, 1000, 5000)]
    _, heads, [row] = balanced_table([Way("one daemon", "modern", 1, [1], tries=tries)])
    assert row == ["one daemon", "modern", "1,000", "400 us", "-"]
    assert len(row) == len(heads)


def test_a_table_takes_the_place_of_the_last_one_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text((ROOT / "docs" / "performance.md").read_text())
    before, _, after = place_in(path, report.BEGIN, report.END)
    put(path, report.BEGIN, report.END, "new")
    assert place_in(path, report.BEGIN, report.END) == (before, "\n\nnew\n\n", after)


def test_a_store_that_cannot_be_opened_is_no_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--writers", "postgresql:///nothing?host=/nowhere"]) == 1
    assert "not measured: " in capsys.readouterr().err


@pytest.mark.nightly
def test_a_file_is_written_by_one(tmp_path: Path) -> None:
    (found,) = writings(None, tmp_path)
    assert found.writers == 1
    assert 0 < found.p50 <= found.p99
