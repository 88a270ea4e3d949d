"""The trace of a warm call: what is counted is there, and how much Python a call may run."""

from __future__ import annotations

from bench.trace import Trace, traces

MOST_CALLS = {"category": 90, "full": 66}
"""Python calls of one warm call."""

MOST_FILES = {"category": 26, "full": 21}
"""Files that they stand in."""


def test_files_and_switches_are_counted_by_the_order_in_which_files_are_entered() -> None:
    trace = Trace(calls=5, order=("a.py", "b.py", "a.py"))
    assert (trace.files, trace.switches) == (2, 2)


def test_a_warm_call_stays_within_its_calls_and_files() -> None:
    found = traces("category", "full")
    for surface, trace in found.items():
        assert {"wire/outbox.py", "wire/link.py", "upstreams/admission.py"} <= set(trace.order), surface
        assert trace.calls <= MOST_CALLS[surface]
        assert trace.files <= MOST_FILES[surface]
    assert found["full"].calls < found["category"].calls
