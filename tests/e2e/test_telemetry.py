"""Telemetry of the real daemon: what a collector gets, and what one that misbehaves costs."""

from base64 import b64encode
from typing import Any

from tests.collector import collector
from tests.e2e.harness import running, scripted
from tests.waiting import eventually

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TIME = scripted(tools=["get_current_time"])
CALL: dict[str, Any] = {
    "name": "call-category-tool",
    "arguments": {"category": "time", "name": "get_current_time", "args": {"key": "s3cr3t-7fK2mQ9xVb4Z"}},
}


def of(number: str) -> str:
    """An id as protobuf's JSON has it."""
    return b64encode(bytes.fromhex(number)).decode()


def test_a_call_is_a_trace_and_counted_and_events_are_logs() -> None:
    with collector() as collected:
        telemetry = {"headers": {"X-Key": "${KEY}"}, "arguments": True, "serviceName": "tools"}
        config = {"mcpServers": {"time": TIME}, "telemetry": telemetry}
        environ = {**collected.environ, "KEY": "s3cr3t-7fK2mQ9xVb4Z"}
        with running(config, environ) as daemon:
            daemon.ready("time")
            with daemon.client() as client:
                client.greet()
                client.ask("tools/call", {**CALL, "_meta": {"traceparent": f"00-{TRACE}-{SPAN}-01"}})
            server, own = collected.wait_spans(2)
            assert "s3cr3t" not in daemon.said()
    assert (server["traceId"], server["parentSpanId"]) == (of(TRACE), of(SPAN))
    assert (own["traceId"], own["parentSpanId"]) == (of(TRACE), server["spanId"])
    assert (server["name"], server["kind"]) == ("tools/call call-category-tool", "SPAN_KIND_SERVER")
    assert (own["name"], own["kind"]) == ("tools/call get_current_time", "SPAN_KIND_CLIENT")
    assert own["attributes"] == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_current_time",
        "mcpd.server": "time",
    }
    assert server["attributes"]["mcp.protocol.version"] == "2025-11-25"
    assert server["attributes"]["mcp.session.id"] == "#1"
    arguments = server["attributes"]["gen_ai.tool.call.arguments"]
    assert "get_current_time" in arguments
    assert "s3cr3t" not in arguments
    for side in ("server", "client"):
        assert [count for _, count in collected.durations(f"mcp.{side}.operation.duration")] == [1]
    kinds = [each["eventName"] for each in collected.logs]
    assert kinds[0] == "mcpd.daemon-started"
    assert kinds[-1] == "mcpd.daemon-stopped", "the last export is waited for"
    assert {each["service.name"] for each in collected.resources} == {"tools"}
    assert {headers["x-key"] for _, headers, _ in collected.requests} == {"s3cr3t-7fK2mQ9xVb4Z"}


def test_opentelemetry_is_loaded_only_while_telemetry_is_on() -> None:
    listing = {"PYTHONPROFILEIMPORTTIME": "1"}
    with running({"mcpServers": {"time": TIME}}, listing, forked=False) as daemon:
        daemon.ready("time")
        with daemon.client() as client:
            client.run("time", "get_current_time")
        assert "daemon.tracing.tracer" in daemon.said()
        assert "opentelemetry" not in daemon.said()
    with collector() as collected, running({}, {**listing, **collected.environ}, forked=False) as daemon:
        eventually(lambda: collected.logs)
        assert "opentelemetry.sdk" in daemon.said()
