"""A collector of OpenTelemetry: takes OTLP over HTTP, decodes the protobuf, and misbehaves on demand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

import attrs
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.pages import Page, at_work
from tests.waiting import eventually

KINDS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


def _plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    """Attributes by name; numbers that JSON writes as text are numbers."""
    found = {}
    for each in attributes:
        ((kind, value),) = each["value"].items()
        found[each["key"]] = int(value) if kind == "intValue" else value
    return found


@attrs.define
class Collected:
    """The requests that arrived."""

    port: int = 0
    requests: list[tuple[str, dict[str, str], Any]] = attrs.field(factory=list)
    """Path, headers and message of each request."""

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables that name this collector."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def resources(self) -> list[dict[str, Any]]:
        """The attributes of each request's resource."""
        every = (each for _, _, said in list(self.requests) for entries in said.values() for each in entries)
        return [_plain(each["resource"].get("attributes", [])) for each in every]

    def _each(self, path: str, *way: str) -> list[dict[str, Any]]:
        found = [said for at, _, said in list(self.requests) if at == f"/v1/{path}"]
        for step in way:
            found = [each for outer in found for each in outer.get(step, [])]
        return found

    @property
    def spans(self) -> list[dict[str, Any]]:
        """All spans."""
        found = self._each("traces", "resourceSpans", "scopeSpans", "spans")
        return [{**each, "attributes": _plain(each.get("attributes", []))} for each in found]

    @property
    def logs(self) -> list[dict[str, Any]]:
        """All log records."""
        found = self._each("logs", "resourceLogs", "scopeLogs", "logRecords")
        return [{**each, "attributes": _plain(each.get("attributes", []))} for each in found]

    def durations(self, name: str) -> list[tuple[dict[str, Any], int]]:
        """The attributes and counts of a histogram in its latest report."""
        found = self._each("metrics", "resourceMetrics", "scopeMetrics", "metrics")
        last = [each["histogram"]["dataPoints"] for each in found if each["name"] == name][-1]
        return [(_plain(each.get("attributes", [])), int(each["count"])) for each in last]

    def wait_spans(self, count: int) -> list[dict[str, Any]]:
        """Wait until this many spans have arrived."""
        return eventually(lambda: found if len(found := self.spans) >= count else None)


@contextmanager
def collector(answer: Callable[[Page], None] | None = None) -> Iterator[Collected]:
    """Serve on a free port; `answer` may answer a request differently than with 200."""
    collected = Collected()

    class Handler(Page):
        def do_POST(self) -> None:
            message = KINDS[self.path]()
            message.ParseFromString(self.body())
            collected.requests.append((self.path, dict(self.headers), MessageToDict(message)))
            if answer is not None:
                answer(self)
            else:
                self.say()

    with at_work(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        server.daemon_threads = True
        collected.port = server.server_port
        yield collected
