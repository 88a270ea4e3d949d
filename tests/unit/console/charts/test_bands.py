"""Bands of states: drawn from what happened, told apart by their height, too."""

from __future__ import annotations

from daemon.console.charts import MAX_SPANS, Band, Span, bands, spans_of
from daemon.history.event import Event, EventKind
from tests.unit.console.charts.drawn import SVG, described, drawn, rows


def happened(kind: EventKind, at: float, text: str = "", **details: str) -> Event:
    return Event(kind=kind, at=at, server="git", text=text, details=details)


def test_the_states_of_a_server_follow_from_what_happened_to_it() -> None:
    events = [
        happened(EventKind.DAEMON_STARTED, 0.0), happened(EventKind.STARTED, 1.0), happened(EventKind.READY,
        2.0), happened(EventKind.DEGRADED, 10.0, "pings go unanswered"), happened(EventKind.ENDED, 20.0,
        "killed by SIGKILL"), happened(EventKind.STATE, 20.0, state="backoff"), happened(EventKind.READY,
        25.0), happened(EventKind.STATE, 40.0, state="dormant"), happened(EventKind.DAEMON_STOPPED, 50.0),
        happened(EventKind.READY, 60.0),
    ]  # fmt: skip
    assert [(span.state, span.since, span.until) for span in spans_of(events, until=70.0)] == [
        ("ready", 2.0, 10.0),
        ("degraded", 10.0, 20.0),
        ("down", 20.0, 25.0),
        ("ready", 25.0, 40.0),
        ("off", 40.0, 50.0),
        ("ready", 60.0, 70.0),
    ]
    assert [span.why for span in spans_of(events, until=70.0)][1:3] == [
        "pings go unanswered",
        "killed by SIGKILL",
    ]


def test_a_server_that_was_switched_off_or_stopped_is_off_and_an_outage_has_its_last_cause() -> None:
    events = [
        happened(EventKind.READY, 1.0), happened(EventKind.ENDED, 10.0, "switched off by an operator",
        state="disabled"), happened(EventKind.READY, 20.0), happened(EventKind.ENDED, 30.0,
        "killed by SIGKILL", state="backoff"), happened(EventKind.STARTED, 31.0), happened(EventKind.ENDED,
        32.0, "notes.db is missing", state="backoff"), happened(EventKind.READY, 40.0),
        happened(EventKind.ENDED, 50.0, "mcpd stops", state="stopped"),
    ]  # fmt: skip
    spans = spans_of(events, until=60.0)
    assert [(span.state, span.since, span.why) for span in spans] == [
        ("ready", 1.0, ""),
        ("off", 10.0, "switched off by an operator"),
        ("ready", 20.0, ""),
        ("down", 30.0, "notes.db is missing"),
        ("ready", 40.0, ""),
        ("off", 50.0, "mcpd stops"),
    ]
    chart = bands("states", "States", [Band(name="git", spans=spans)], since=0, until=60)
    assert all(len(time) == len("2026-11-23 16:07:11") for row in rows(chart) for time in row[2:4])


def test_a_band_is_high_while_ready_and_low_while_down() -> None:
    row = Band(
        name="git",
        spans=(Span(state="ready", since=0, until=50), Span(state="down", since=75, until=200, why="gone")),
    )
    chart = bands("states", "States", [row], since=0, until=100)
    drawn_bands = [
        (each.attrib["class"], each.attrib["x"], each.attrib["width"], each.attrib["height"])
        for each in drawn(chart).iter(f"{SVG}rect")
    ]
    assert drawn_bands == [("state-ready", "0.0", "500.0", "20"), ("state-down", "750.0", "250.0", "8")]
    assert described(chart) == "git: ready 67 % (1 time), down 33 % (1 time); now down."
    assert [row[:2] for row in rows(chart)] == [["git", "down"], ["git", "ready"]]
    assert rows(chart)[0][-1] == "gone"


def test_a_time_of_which_nothing_is_known_is_said_to_be_so() -> None:
    chart = bands("states", "States", [Band(name="git", spans=())], since=5, until=5)
    assert described(chart) == "git: nothing is known of this time."
    assert rows(chart) == []


def test_a_server_that_flaps_has_a_bounded_band_that_ends_with_the_newest() -> None:
    spans = [Span(state="ready" if at % 2 else "down", since=at, until=at + 1) for at in range(5000)]
    chart = bands("states", "States", [Band(name="git", spans=spans)], since=0, until=5000)
    found = [*drawn(chart).iter(f"{SVG}rect")]
    assert len(found) == MAX_SPANS
    assert found[-1].attrib["x"] == "999.0"


def test_names_of_servers_stay_text() -> None:
    chart = bands("states", "<b>", [Band(name='"><script>', spans=())], since=0, until=1)
    assert "<script>" not in chart
    assert "<b>" not in chart
    drawn(chart)
