"""Log records of the SDK, made of events."""

from typing import Any

from daemon.config.redaction import Redactors
from daemon.config.tuning import Telemetry
from daemon.history.event import Event, EventKind
from daemon.tracing.call_trace import CallTrace
from daemon.tracing.otlp import OtlpExport
from tests.collector import Collected, collector

TRACE = "0af7651916cd43dd8448eb211c80319c"


def exported(*told: Any, signal: str = "logs", **keys: Any) -> tuple[Collected, bool]:
    with collector() as collected:
        export = OtlpExport(Telemetry(endpoint=f"{collected.url}/", **keys), {}, "1", Redactors())
        return collected, export.send(signal, told)


def test_an_event_of_a_traced_call_has_its_trace_and_another_has_none() -> None:
    details = {"tool": "echo", "by": "me", "lasts": "once", "traceId": TRACE}
    traced = Event(kind=EventKind.ALLOWED, at=5.0, server="git", session="#1", details=details)
    collected, sound = exported(traced, Event(kind=EventKind.OVERLOADED, at=6.0, server="git"))
    assert sound
    first, second = collected.logs
    assert (first["eventName"], first["severityNumber"]) == ("mcpd.allowed", "SEVERITY_NUMBER_INFO")
    assert first["timeUnixNano"] == "5000000000"
    assert first["attributes"] == {"mcpd.server": "git", "mcp.session.id": "#1"}
    assert len(first["traceId"]) > 0
    assert "traceId" not in second
    assert second["severityNumber"] == "SEVERITY_NUMBER_WARN"


def test_the_uri_of_a_resource_has_no_secret() -> None:
    asked, about = ("resources/read", "", "db", ""), (b"1", b"", "#1", "", "db://me:s3cr3t-7fK2@h/t", 0, 0)
    series = (("", *asked),) * 2
    trace = CallTrace(1, 0, 2, 3, True, 1.0, sent=2.0, ended=3.0, at=3.0, about=about, series=series)
    collected, _ = exported(trace, signal="traces")
    assert {each["attributes"]["mcp.resource.uri"] for each in collected.spans} == {"db://[redacted]@h/t"}
    assert [each.get("parentSpanId") for each in collected.spans] == [None, collected.spans[0]["spanId"]]


def test_the_service_has_the_configured_name_else_that_of_the_variables_else_mcpd() -> None:
    event = Event(kind=EventKind.OVERLOADED, at=6.0, server="git")
    for keys, name in (({}, "mcpd"), ({"service_name": "tools"}, "tools")):
        collected, _ = exported(event, **keys)
        assert {each["service.name"] for each in collected.resources} == {name}


def test_a_signal_without_an_endpoint_is_not_sent() -> None:
    with collector() as collected:
        environ = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collected.url}
        export = OtlpExport(Telemetry(), environ, "1", Redactors())
        assert export.send("logs", [Event(kind=EventKind.OVERLOADED, at=6.0)])
    assert collected.requests == []
