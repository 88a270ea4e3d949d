"""Makes spans, metrics and log records with OpenTelemetry's SDK, and sends them over HTTP; blocks."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import getrandbits
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics import export as metrics
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from daemon.config.redaction import Redactors
from daemon.config.tuning import Telemetry
from daemon.history.event import Event
from daemon.history.event_words import sentence
from daemon.protocol import CALL_TOOL, GET_PROMPT
from daemon.tracing.call_trace import BOUNDS, CallTrace, signals

CUMULATIVE = metrics.AggregationTemporality.CUMULATIVE

TRACE_ID = "traceId"
"""The member of an event's details with the trace of its call."""

METHOD, URI = "mcp.method.name", "mcp.resource.uri"
ABOUT = (
    *("jsonrpc.request.id", "gen_ai.tool.call.arguments", "mcp.session.id", "mcp.protocol.version"),
    *(URI, "mcpd.request.size", "mcpd.response.size", "rpc.response.status_code"),
)
TARGETS = {CALL_TOOL: "gen_ai.tool.name", GET_PROMPT: "gen_ai.prompt.name"}
Pair = tuple[Any, Any]
About = dict[str, Any]

EXPORTERS: dict[str, Any] = {"traces": OTLPSpanExporter, "metrics": OTLPMetricExporter, "logs": OTLPLogExporter}


class _Complaint(logging.Handler):
    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


class OtlpExport:
    """The SDK's exporters, set up by the SDK's variables and the configuration."""

    def __init__(self, keys: Telemetry, environ: Mapping[str, str], version: str, redact: Redactors) -> None:
        self.complaint = _Complaint()
        logging.getLogger("opentelemetry").propagate = False
        logging.getLogger("opentelemetry").addHandler(self.complaint)
        self.interval = float(environ.get("OTEL_METRIC_EXPORT_INTERVAL") or 60_000) / 1000
        """Seconds between exports of metrics."""
        self._redact, self._began = redact, time.time_ns()
        self._scope = InstrumentationScope("mcpd", version)
        named = {"service.name": keys.service_name} if keys.service_name else {}
        usual = Resource({"service.name": "mcpd", "service.version": version})
        self._resource = usual.merge(OTELResourceDetector().detect()).merge(Resource(named))
        self._common: About = {"resource": self._resource, "instrumentation_scope": self._scope}
        base, headers = keys.endpoint and keys.endpoint.rstrip("/"), dict(keys.headers)
        self._exporters: dict[str, Any] = {}
        for each in signals(keys, environ):
            self._exporters[each] = EXPORTERS[each](endpoint=base and f"{base}/v1/{each}", headers=headers)
        self._makers: dict[str, Any] = {"traces": self._spans, "metrics": self._metrics, "logs": self._logs}

    def send(self, signal: str, what: Sequence[Any]) -> bool:
        """Send calls (`traces`), events (`logs`) or durations (`metrics`); False if the data did not arrive."""
        if not what or signal not in self._exporters:
            return True
        return bool(self._exporters[signal].export(self._makers[signal](what)).name == "SUCCESS")

    def _spans(self, calls: Sequence[CallTrace]) -> list[ReadableSpan]:
        spans = []
        for call in calls:
            (_, *asked), (_, *sent) = call.series
            number, arguments = (each.decode(errors="replace") for each in call.about[:2])
            said = number.strip('"'), self._redact(arguments), *call.about[2:], call.code
            more: About = {**dict(zip(ABOUT, said, strict=True)), URI: self._redact(call.about[4])}
            about, whole = _attributes(*asked, **more), (call.began, call.ended)
            spans.append(self._span(call, SpanKind.SERVER, (call.span, call.parent), whole, about))
            for name, began, ended in call.waits:
                about, ids = {METHOD: f"mcpd.{name}"}, (getrandbits(64), call.span)
                spans.append(self._span(call, SpanKind.INTERNAL, ids, (began, ended), about))
            if call.sent:
                ids, whole = (call.sent_span, call.span), (call.sent, call.ended)
                about = _attributes(*sent, **{URI: more[URI]})
                spans.append(self._span(call, SpanKind.CLIENT, ids, whole, about))
        return spans

    def _span(self, call: CallTrace, kind: SpanKind, ids: Pair, times: Pair, about: About) -> ReadableSpan:
        began, ended = (int((call.at - call.ended + each) * 1e9) for each in times)
        target = about.get(TARGETS.get(about[METHOD], ""), "")
        own, parent = (SpanContext(call.trace, each, each == call.parent, TraceFlags(1)) for each in ids)
        status = Status(StatusCode.ERROR if "error.type" in about else StatusCode.UNSET)
        more: About = {"kind": kind, "status": status, "start_time": began, "end_time": ended, **self._common}
        more |= {"parent": parent if parent.span_id else None, "attributes": about}
        return ReadableSpan(f"{about[METHOD]} {target}".rstrip(), own, **more)

    def _metrics(self, counted: Sequence[tuple[tuple[str, ...], list[float]]]) -> metrics.MetricsData:
        points, now = defaultdict(list), time.time_ns()
        for (name, *series), (total, *buckets) in counted:
            sums = int(sum(buckets)), total, list(map(int, buckets)), BOUNDS, 0.0, 0.0
            points[name].append(metrics.HistogramDataPoint(_attributes(*series), self._began, now, *sums))
        made = ((of, metrics.Histogram(each, CUMULATIVE)) for of, each in points.items())
        scoped = metrics.ScopeMetrics(self._scope, [metrics.Metric(of, "", "s", each) for of, each in made], "")
        return metrics.MetricsData([metrics.ResourceMetrics(self._resource, [scoped], "")])

    def _logs(self, events: Sequence[Event]) -> list[ReadableLogRecord]:
        records = []
        for event in events:
            at, kind = int(event.at * 1e9), f"mcpd.{event.kind}"
            record = LogRecord(timestamp=at, body=sentence(event), event_name=kind)
            record.attributes = _attributes("", "", event.server, "", **{"mcp.session.id": event.session})
            record.severity_number = SeverityNumber.WARN if event.is_bad else SeverityNumber.INFO
            record.trace_id = int(str(event.details.get(TRACE_ID) or "0"), 16)
            records.append(ReadableLogRecord(record, self._resource, self._scope))
        return records


def _attributes(method: str, name: str, server: str, error: str, **more: Any) -> dict[str, Any]:
    operation = "execute_tool" if method == CALL_TOOL else ""
    found = {METHOD: method, "gen_ai.operation.name": operation, "mcpd.server": server, "error.type": error}
    if method in TARGETS:
        found[TARGETS[method]] = name
    return {each: said for each, said in {**found, **more}.items() if said}
