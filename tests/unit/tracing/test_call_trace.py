"""Traces of calls: their ids, the sampler's decision, waits, and whether telemetry is on at all."""

from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.config.tuning import Telemetry
from daemon.tracing.call_trace import CallTrace, begun, missing, sampling, signals, trace_id, with_trace
from tests.unit.cases import cases

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}


def meta(text: str) -> dict[str, Raw]:
    return {"x": Raw(b"1"), "traceparent": Raw(b'"%b"' % text.encode()), "tracestate": Raw(b'"a=b"')}


def trace(said: dict[str, Raw] | None = None, ratio: float = 1.0, *, by_parent: bool = True) -> CallTrace:
    return begun(said or {}, 5.0, ratio, by_parent)


@cases("text")
def test_a_call_goes_on_in_the_trace_of_its_client(text: str) -> None:
    made = trace(meta(text), 0.0)
    assert (f"{made.trace:x}".zfill(32), f"{made.parent:x}") == (TRACE, SPAN)
    assert made.kept
    assert trace_id(made) == TRACE


@cases("text")
def test_what_is_no_traceparent_begins_a_trace(text: str) -> None:
    made = trace(meta(text))
    assert made.parent == 0
    assert f"{made.trace:032x}" != TRACE
    assert trace({"traceparent": Raw(b'{"a":1}')}).parent == 0, "which is no text"


def test_the_server_of_a_kept_call_gets_our_span_as_parent_and_all_else_as_it_was() -> None:
    said = meta(f"00-{TRACE}-{SPAN}-01")
    made = trace(said)
    sent = with_trace(said, made)
    assert bytes(sent["traceparent"]) == f'"00-{TRACE}-{made.sent_span:016x}-01"'.encode()
    assert list(sent) == list(said)
    assert {key: sent[key] for key in ("x", "tracestate")} == {key: said[key] for key in ("x", "tracestate")}
    fresh = trace()
    ours = f'"00-{fresh.trace:032x}-{fresh.sent_span:016x}-01"'
    assert bytes(with_trace({}, fresh)["traceparent"]) == ours.encode()


def test_the_server_of_a_call_that_is_not_kept_gets_what_its_client_gave_and_nobody_knows_its_trace() -> None:
    said = meta(f"00-{TRACE}-{SPAN}-00")
    made = trace(said)
    assert not made.kept
    assert with_trace(said, made) is said
    assert trace_id(made) == TRACE
    assert trace_id(trace(ratio=0.0)) == ""
    assert trace_id(None) == ""
    kept = trace()
    assert trace_id(kept) == f"{kept.trace:032x}"


@given(st.integers(1, 2**128 - 1), st.floats(0, 1), st.booleans())
@example(number=2**64 + 2**63 + 1, ratio=0.75, flagged=True)
@example(number=2**64 - 1, ratio=0.75, flagged=False)
def test_the_sampler_decides_as_the_sdk_does(number: int, ratio: float, flagged: bool) -> None:
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased  # noqa: PLC0415

    said = meta(f"00-{number:032x}-{SPAN}-{'01' if flagged else '00'}")
    decided = TraceIdRatioBased(ratio).should_sample(None, number, "").decision.name == "RECORD_AND_SAMPLE"
    assert trace(said, ratio, by_parent=False).kept is decided
    assert trace(said, ratio, by_parent=True).kept is flagged


@cases("name", "ratio", "expected")
def test_the_variables_name_a_sampler(name: str, ratio: str, expected: list[Any]) -> None:
    environ = {"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": ratio}
    assert sampling(Telemetry(), environ) == tuple(expected)
    assert sampling(Telemetry(sample_ratio=0.1), environ) == (0.1, True)


@cases("keys", "environ", "expected")
def test_an_endpoint_switches_it_on(keys: dict[str, Any], environ: dict[str, str], expected: list[str]) -> None:
    assert signals(Telemetry(**keys), environ) == tuple(expected)


def test_packages_are_missed_only_where_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not missing(Telemetry(), BASE)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert missing(Telemetry(), BASE)
    assert not missing(Telemetry(), {})


def ask() -> None: ...


def wait_awake(_what: object) -> None: ...


def test_a_wait_is_noted_by_its_function() -> None:
    made = trace()
    made.waited(partial(wait_awake, 1), 1.0, 2.0)
    made.waited(ask, 2.0, 4.0)
    made.waited(ask, 4.0, 4.0)
    made.waited(test_a_wait_is_noted_by_its_function, 4.0, 5.0)
    assert made.waits == (("start", 1.0, 2.0), ("ask", 2.0, 4.0))
    assert trace().waits == ()


def test_a_call_in_line_is_sent_when_its_turn_has_come() -> None:
    made = trace()
    made.was_sent(1.0, in_line=True)
    assert made.sent == 0
    made.was_sent(3.0, in_line=False)
    assert (made.sent, made.waits) == (3.0, (("queue", 1.0, 3.0),))
    made.was_sent(5.0, in_line=False)
    assert (made.sent, made.waits) == (3.0, (("queue", 1.0, 3.0),))
