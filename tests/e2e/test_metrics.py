"""Metrics of the real daemon: what clients did is what is counted, on the operators' socket and over TCP."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from daemon.counting.prometheus import METRICS
from tests.e2e.harness import changeable, free_port, running, scripted, serving
from tests.scripted_server import tool
from tests.waiting import WAIT, eventually

TIME = scripted(tools=["get_current_time"])
SERVERS: dict[str, Any] = {"time": TIME, "gone": {"command": "/nonexistent"}}


def series(text: str) -> Iterator[tuple[tuple[str, frozenset[str]], float]]:
    """Value by name and label values."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield (sample.name, frozenset(sample.labels.values())), sample.value


def scraped(port: int) -> str:
    """What Prometheus gets."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT) as answer:
        text: str = answer.read().decode()
    return text


def value(text: str, name: str, *labels: str) -> float:
    return dict(series(text))[name, frozenset(labels)]


def test_what_a_client_did_is_counted_and_both_doors_tell_the_same() -> None:
    port = free_port()
    metrics = {"enabled": True, "listen": f"127.0.0.1:{port}"}
    with running({"mcpServers": SERVERS, "metrics": metrics}) as daemon:
        daemon.ready("time")
        with daemon.client() as client:
            client.ask("tools/list")
            client.get("time")
            for _ in range(3):
                client.run("time", "get_current_time", timezone="UTC")
            client.run("time", "no_such_tool")
            client.call("made_up_by_the_client", {})
            text = scraped(port)
        printed = daemon.run("metrics")
        status = daemon.ask("status")["metrics"]
    found = dict(series(text))
    assert found["mcpd_calls_total", frozenset({"time", "category", "ok"})] == 3
    assert found["mcpd_call_duration_seconds_count", frozenset({"time"})] == 3
    assert found["mcpd_meta_calls_total", frozenset({"category", "get-category-tools", "ok"})] == 1
    assert found["mcpd_refusals_total", frozenset({"UnknownTool"})] == 2
    assert found["mcpd_server_state", frozenset({"time", "ready"})] == 1
    assert found["mcpd_sessions", frozenset({"category"})] == 1
    assert "made_up_by_the_client" not in text
    names = {line.split()[2] for line in printed.splitlines() if line.startswith("# TYPE")}
    assert names == set(METRICS)
    assert status["extraRoundTrips"] == 3
    assert status["refusals"] == {"UnknownTool": 2}


def test_they_are_off_unless_somebody_wants_them() -> None:
    with running({"mcpServers": {"time": TIME}}) as daemon:
        assert daemon.run("metrics", check=1) == ""
        assert "metrics: http" not in daemon.said()
        assert daemon.ask("status")["metrics"]["extraRoundTrips"] == 0


def test_what_loading_on_demand_costs_and_saves_is_counted() -> None:
    port = free_port()
    config = {
        "mcpServers": {
            "s": changeable(tool("read"), tool("write"), *[f"more{number}" for number in range(20)])
        },
        "profiles": {"default": {"surface": "load"}, "auto": {"surface": "load", "autoLoad": True}},
        "metrics": {"enabled": True, "listen": f"127.0.0.1:{port}"},
    }
    with serving(config) as daemon:
        with daemon.client().hello(session="k") as client, daemon.client().hello(profile="auto") as auto:
            client.listed()
            refused = client.call("read", {})["structuredContent"]["error"]["code"]
            client.load("read", "write")
            assert client.call("read", {})["isError"] is False
            assert client.call("read", {})["isError"] is False
            assert auto.call("write", {})["isError"] is False
            daemon.changes("s", {**tool("read"), "description": "Reads."})
            for each in (client, auto):
                assert each.listed() == ["load_mcp_server", "load_mcp_tool"]
            text = scraped(port)
        told = daemon.ask("status")["metrics"]
    assert refused == "ToolNotLoaded"
    assert value(text, "mcpd_load_lookups_total", "hit", "manual") == 2
    assert value(text, "mcpd_load_lookups_total", "miss", "manual") == 1
    assert value(text, "mcpd_load_lookups_total", "miss", "auto") == 1
    assert value(text, "mcpd_tools_loaded_total", "manual") == 2
    assert value(text, "mcpd_tools_loaded_total", "auto") == 1
    assert value(text, "mcpd_tools_invalidated_total", "invalid_changed") == 1
    # One each of the two sessions.
    assert value(text, "mcpd_tools_invalidated_total", "invalid_deleted") == 2
    sent = value(text, "mcpd_tools_list_bytes_total", "load")
    full = value(text, "mcpd_tools_list_full_bytes_total", "load")
    spared = value(text, "mcpd_tokens_not_sent_total", "load")
    instead = value(text, "mcpd_tokens_sent_instead_total", "load")
    # What the server had was spared once for each client that listed it; the rest is what loading cost.
    assert 0 < spared < full / 4
    assert instead > 0
    assert sent > 0
    assert value(text, "mcpd_server_epoch", "s") == 2
    assert value(text, "mcpd_persistence_ok") == 1
    assert (told["loads"], told["loadHits"], told["loadMisses"], told["loadHitRate"]) == (3, 2, 2, 0.5)
    assert told["invalidations"] == {"invalid_changed": 1, "invalid_deleted": 2}
    assert told["estimatedTokensNotSent"] == spared - instead
    # The call that was refused, and the one that loaded.
    assert told["extraRoundTrips"] == 2


def test_restarts_failures_and_a_store_that_does_not_work_are_seen() -> None:
    port = free_port()
    metrics = {"enabled": True, "listen": f"127.0.0.1:{port}"}
    with running(
        {"mcpServers": {"s": changeable(), "gone": {"command": "/nonexistent"}}, "metrics": metrics}
    ) as (daemon):
        daemon.ready("s")
        daemon.ask("restart", server="s")
        daemon.ready("s")
        daemon.stop()
        daemon.state.unlink()
        daemon.state.mkdir()
        daemon.start()
        daemon.ready("s")
        daemon.ask("restart", server="s")
        daemon.ready("s")
        with daemon.client() as client:
            error = client.run("gone", "anything")["structuredContent"]["error"]
            eventually(lambda: value(scraped(port), "mcpd_server_state", "gone", "failed"), daemon.said)
            text = scraped(port)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/elsewhere", timeout=WAIT)
        refused.value.close()
    assert error["code"] in {"UpstreamUnavailable", "UnknownTool"}
    assert value(text, "mcpd_server_restarts_total", "s") == 1
    assert value(text, "mcpd_servers_unavailable") == 1
    assert value(text, "mcpd_persistence_ok") == 0
    assert value(text, "mcpd_persistence_unwritten") >= 1
    assert refused.value.code == 404
