"""The trace of a warm call counts what is run, and a call runs no more Python than it may."""

from __future__ import annotations

from bench.trace import Trace, traces

MOST_CALLS = {"category": 54, "full": 52}
"""Python calls of one warm call, as many as it makes: a path that gets longer has to say so here."""

MOST_FILES = {"category": 22, "full": 20}
"""Files that they stand in."""


def test_files_and_switches_are_counted_by_the_order_in_which_files_are_entered() -> None:
    trace = Trace(calls=5, order=("a.py", "b.py", "a.py"))
    assert (trace.files, trace.switches) == (2, 2)


def test_a_warm_call_stays_within_its_calls_and_files() -> None:
    found = traces("category", "full")
    for surface, trace in found.items():
        assert trace.order[0] == "wire/outbox.py", surface
        assert {"wire/link.py", "upstreams/call_admission.py", "counting/recent_calls.py"} <= set(
            trace.order
        ), surface
        assert trace.calls <= MOST_CALLS[surface]
        assert trace.files <= MOST_FILES[surface]
    assert found["full"].calls < found["category"].calls
