"""Whether telemetry is on; the trace of one call, with the times (trio's clock) when it waited and was sent."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from random import getrandbits

from msgspec import Raw, Struct

from daemon.config.tuning import Telemetry


def signals(keys: Telemetry, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The signals to export; empty while telemetry is off."""
    if not keys.enabled or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    base, every = keys.endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"), ("traces", "metrics", "logs")
    placed = [each for each in every if base or environ.get(f"OTEL_EXPORTER_OTLP_{each.upper()}_ENDPOINT")]
    return tuple(each for each in placed if environ.get(f"OTEL_{each.upper()}_EXPORTER") != "none")


def missing(keys: Telemetry, environ: Mapping[str, str]) -> bool:
    """Whether telemetry is configured but its packages are missing."""
    needed = ("opentelemetry.sdk", "opentelemetry.exporter") if signals(keys, environ) else ()
    return not all(map(importlib.util.find_spec, needed))


def sampling(keys: Telemetry, environ: Mapping[str, str]) -> tuple[float, bool]:
    """The share of traces to keep, and whether a client's own decision counts; an unknown sampler keeps all."""
    if keys.sample_ratio is not None:
        return keys.sample_ratio, True
    name, said = environ.get("OTEL_TRACES_SAMPLER", ""), environ.get("OTEL_TRACES_SAMPLER_ARG", "")
    ratio = float(said) if re.fullmatch(r"0?\.\d+|[01](\.0*)?", said) else 1.0
    ratios = {"always_on": 1.0, "always_off": 0.0, "traceidratio": ratio}
    return ratios.get(name.removeprefix("parentbased_"), 1.0), name not in ratios


_PARENT = re.compile(
    rb'"(?!ff)[\da-f]{2}-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})(?:-[^"]*)?"'
)
"""A `traceparent` (W3C, Trace Context), as written in `_meta` (SEP-414)."""


WAITS = {"wait_awake": "start", "_known": "start", "wait_current": "list", "ask": "ask", "sleep": "limit"}
"""The span for each function in which a call waits (`clients.dispatch`); other waits have none."""

BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the duration buckets, in seconds (OpenTelemetry, conventions for MCP)."""


class CallTrace(Struct, eq=False, gc=False):
    """The trace of one call."""

    trace: int
    parent: int
    """The client's span; 0 if the trace begins at mcpd."""
    span: int
    sent_span: int
    """The span of the server's part, which the server gets as parent."""
    kept: bool
    began: float
    sent: float = 0.0
    """When the call was sent to its server; 0 if it was not."""
    in_line: float = 0.0
    """Since when the call has been queued at its server; 0 if it is not."""
    waits: tuple[tuple[str, float, float], ...] = ()
    about: tuple[bytes, bytes, str, str, str, int, int] = (b"", b"", "", "", "", 0, 0)
    """The request's raw id and arguments, session, MCP revision, listed resource, bytes asked and answered."""
    code: str = ""
    """The JSON-RPC code of the error, if any."""
    series: tuple[tuple[str, ...], ...] = ()
    """The keys of the call's durations as client and as server see it: metric, method, tool or prompt, server,
    type of error."""
    ended: float = 0.0
    at: float = 0.0
    """The end, in seconds since the epoch."""

    def was_sent(self, now: float, *, in_line: bool) -> None:
        """Note that the call was sent to its server, or queued there."""
        if self.in_line:
            self.waits += (("queue", self.in_line, now),)
        self.in_line, self.sent = (now, self.sent) if in_line else (0.0, self.sent or now)

    def waited(self, wait: Callable[..., object], began: float, now: float) -> None:
        """Note a wait in a function."""
        if (name := WAITS.get(getattr(getattr(wait, "func", wait), "__name__", ""))) and now > began:
            self.waits += ((name, began, now),)


def begun(meta: Mapping[str, Raw], began: float, ratio: float, by_parent: bool) -> CallTrace:  # noqa: FBT001 - a sampler has two parts
    """Begin a trace, or continue the client's, as the sampler decides."""
    found = _PARENT.fullmatch(meta["traceparent"]) if "traceparent" in meta else None
    trace, parent, flags, spans = getrandbits(128), 0, 0, getrandbits(128)
    if found is not None:
        trace, parent, flags = (int(part, 16) for part in found.groups())
    kept = bool(flags & 1) if by_parent and parent else trace % 2**64 < round(ratio * 2**64)
    return CallTrace(trace, parent, spans >> 64, spans % 2**64, kept, began)


def with_trace(meta: Mapping[str, Raw], trace: CallTrace) -> Mapping[str, Raw]:
    """The `_meta` for a server, with its part of the trace as parent; unchanged if the trace is not kept."""
    ours = b'"00-%032x-%016x-01"' % (trace.trace, trace.sent_span)
    return {**meta, "traceparent": Raw(ours)} if trace.kept else meta


def trace_id(trace: CallTrace | None) -> str:
    """The trace's id in hexadecimal; empty without a trace that others know."""
    return f"{trace.trace:032x}" if trace is not None and (trace.kept or trace.parent) else ""
