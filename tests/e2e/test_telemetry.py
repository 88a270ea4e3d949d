"""Telemetry of the real daemon: what a collector gets, and what one that misbehaves costs."""

import sys
import threading
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from tests.collector import Collected, collector
from tests.e2e.harness import MCPD, ROOT, free_port, running, scripted
from tests.pages import Page
from tests.pairwise import at_night
from tests.waiting import WAIT, eventually, run_to_end

pytestmark = pytest.mark.e2e

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
            greeting, server, own = collected.wait_spans(3)
            assert "s3cr3t" not in daemon.said()
    assert (greeting["name"], greeting["kind"]) == ("initialize", "SPAN_KIND_SERVER")
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
    for side, operations in (("server", 2), ("client", 1)):
        assert len(collected.durations(f"mcp.{side}.operation.duration")) == operations
        assert [count for _, count in collected.durations(f"mcp.{side}.session.duration")] == [1]
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


TRACED = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
"""
"""Of a program whose SDK tells a collector of each span."""

SERVER = f"""{TRACED}
from mcp.server.mcpserver import MCPServer

server = MCPServer("sums")

@server.tool()
def add(a: int, b: int) -> int:
    with trace.get_tracer("sums").start_as_current_span("adding"):
        return a + b

server.run()
"""

CLIENT = f"""{TRACED}
import sys
import trio
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

async def main():
    connect = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with Client(stdio_client(connect)) as client:
        with trace.get_tracer("agent").start_as_current_span("agent"):
            result = await client.call_tool("add", {{"a": 1, "b": 2}})
        print(result.structured_content)

trio.run(main)
"""


def service(name: str, collected: Collected) -> dict[str, str]:
    return {**collected.environ, "OTEL_SERVICE_NAME": name}


def test_a_call_from_a_client_through_the_daemon_to_a_server_is_one_tree() -> None:
    with collector() as collected:
        sums = {"command": sys.executable, "args": ["-c", SERVER], "env": service("server", collected)}
        config = {"mcpServers": {"sums": sums}, "profiles": {"default": {"surface": "full"}}}
        with running(config, collected.environ) as daemon:
            daemon.ready("sums")
            connect = [*MCPD, "connect", "--socket", str(daemon.socket)]
            environ = {**daemon.environ, "PYTHONPATH": str(ROOT), **service("client", collected)}
            said = run_to_end([sys.executable, "-c", CLIENT, *connect], env=environ)
            assert "{'result': 3}" in said.stdout, said.stderr

            def whole() -> list[dict[str, Any]] | None:
                traces = {each["traceId"] for each in collected.spans if each["name"] == "agent"}
                tree = [each for each in collected.spans if each["traceId"] in traces]
                return tree if len(tree) >= 6 else None

            tree = eventually(whole, lambda: [each["name"] for each in collected.spans])
    names, kinds = ({each["spanId"]: each[key] for each in tree} for key in ("name", "kind"))
    parents = {each["spanId"]: each.get("parentSpanId") for each in tree}
    at = next(span for span, name in names.items() if name == "adding")
    way = []
    while at is not None:
        way.append((names[at], kinds[at].removeprefix("SPAN_KIND_")))
        at = parents[at]
    assert way == [
        ("adding", "INTERNAL"),
        ("tools/call add", "SERVER"),
        ("tools/call add", "CLIENT"),
        ("tools/call add", "SERVER"),
        ("MCP send tools/call add", "CLIENT"),
        ("agent", "INTERNAL"),
    ]
    assert [names[span] for span, parent in parents.items() if parent not in names] == ["agent"], "one root"
    times = {each["spanId"]: (int(each["startTimeUnixNano"]), int(each["endTimeUnixNano"])) for each in tree}
    inside = [(span, parent) for span, parent in parents.items() if parent is not None]
    assert all(times[span][0] >= times[parent][0] for span, parent in inside)
    # A server's span ends after its answer is on the way, maybe after the span of the waiting client.
    same_process = [(span, parent) for span, parent in inside if kinds[parent] != "SPAN_KIND_CLIENT"]
    assert len(same_process) >= 3
    assert all(times[span][1] <= times[parent][1] for span, parent in same_process)


# --- collectors that misbehave ------------------------------------------------------------------------------


def fails(request: Page) -> None:
    """An error without end."""
    request.send_response(500)
    request.end_headers()


def babbles(request: Page) -> None:
    """No HTTP at all."""
    request.wfile.write(b"\x00\xff garbage \r\n" * 100)


CALLS = 300


def call_often(daemon: Any, calls: int) -> None:
    with daemon.client() as client:
        for _ in range(calls):
            client.run("time", "get_current_time")


@pytest.mark.parametrize("answer", at_night([fails, babbles], fails))
def test_a_collector_that_takes_nothing_is_told_once_and_costs_no_call(
    answer: Callable[[Page], None],
) -> None:
    config = {"mcpServers": {"time": TIME}, "metrics": {"enabled": True}}
    soon = {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with collector(answer) as collected, running(config, {**collected.environ, **soon}) as daemon:
        daemon.ready("time")
        call_often(daemon, CALLS)
        eventually(
            lambda: f'mcpd_telemetry_dropped_total{{signal="traces"}} {CALLS}.0' in daemon.run("metrics")
        )
        call_often(daemon, 1)
        warnings = [line for line in daemon.said().splitlines() if "telemetry" in line]
    assert len(warnings) == 1
    assert "calls and events lost" in warnings[0]
    assert "WARNING" in warnings[0]


def test_a_collector_that_hangs_or_is_not_there_holds_up_neither_calls_nor_the_end() -> None:
    hangs = threading.Event()

    def hang(_request: Page) -> None:
        hangs.wait(WAIT)

    with collector(hang) as collected:
        with running({"mcpServers": {"time": TIME}}, collected.environ) as daemon:
            daemon.ready("time")
            call_often(daemon, CALLS)
            eventually(lambda: collected.requests)
            call_often(daemon, CALLS)
            assert daemon.stop() == 0
        hangs.set()
    absent = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    with running({"mcpServers": {"time": TIME}}, absent) as daemon:
        daemon.ready("time")
        call_often(daemon, CALLS)


def test_what_is_configured_and_not_installed_is_said_where_it_is_looked_for() -> None:
    script = (
        "import importlib.util as util, runpy, sys; find = util.find_spec;"
        "util.find_spec = lambda name, package=None: None if name.startswith('opentelemetry.')"
        " else find(name, package); sys.argv[0] = 'mcpd'; runpy.run_module('daemon', run_name='__main__')"
    )
    config = {"mcpServers": {"time": TIME}, "telemetry": {"endpoint": "http://127.0.0.1:9"}}
    with running(config) as daemon:

        def said(*words: str) -> str:
            command = [sys.executable, "-c", script, *words]
            ended = run_to_end(command, env={**daemon.environ, "PYTHONPATH": str(ROOT)})
            return " ".join(f"{ended.stdout}{ended.stderr}".split())

        assert "pip install 'mcpd-supervisor[otel]'" in said("check", "--config", str(daemon.config))
        assert "pip install 'mcpd-supervisor[otel]'" in said("doctor", "--config", str(daemon.config))
