"""Readings: each number is where it belongs, and copied."""

from typing import Any

import pytest
import trio

from daemon.config.config_model import Config
from daemon.config.parse import parse
from daemon.counting.prometheus import METRICS
from daemon.counting.readings import OFF, Distribution, Reading, read
from daemon.counting.tally import LATENCY_BOUNDS, MAX_SERVERS, OTHER, SOURCES
from daemon.errors import InvalidArguments
from daemon.facts import Approved, Fact
from daemon.kit.waiting import Watch
from daemon.state.health import Condition, Persistence
from daemon.states import ServerState
from daemon.surfaces.table import SURFACES
from tests.tallies import new_tally
from tests.unit.catalog.samples import after, catalog_of, listed, prompts, servers, status
from tests.unit.counting.samples import ON, FakeInstances, FakeUpstream, catalog, eventful, exporter


def values(name: str, **changed: Any) -> Any:
    return read(exporter(**changed)).values[name]


def test_every_metric_of_the_table_is_read_with_as_many_labels_as_it_has() -> None:
    reading = read(exporter()).with_memory({77: 4096, 78: 2048}, {"git": 1.5})
    ours = {name: metric for name, metric in METRICS.items() if not metric.from_library}
    assert reading.values.keys() == ours.keys()
    for name, metric in ours.items():
        assert reading.values[name], f"{name} has no value"
        assert {len(labels) for labels in reading.values[name]} == {len(metric.labels)}, name


def test_a_server_has_one_state_and_is_not_in_any_other() -> None:
    states = values("mcpd_server_state")
    assert [labels for labels, value in states.items() if value] == [
        ("git", "ready"),
        ("time", "backoff"),
        ("off", "disabled"),
    ]
    assert len(states) == 3 * len(ServerState)


def test_what_waits_for_approval_is_counted_by_server() -> None:
    facts: list[Fact] = [
        Approved(),
        listed("git", "log", "diff"),
        prompts("git", "review"),
        listed("time", "now"),
    ]
    untrusted = {"git": {"command": "x", "trust": "none"}, "time": {"command": "x"}}
    held = after(catalog_of({"mcpServers": untrusted, **ON}), facts)
    assert read(exporter(catalog=Watch(held))).values["mcpd_server_held"] == {("git",): 3, ("time",): 0}


def test_refused_hosts_are_counted_by_server_also_of_one_that_went() -> None:
    tally = new_tally(["git", "gone"])
    for server in ("git", "gone", "git"):
        tally.refused_host(server)
    tally.serve(["git"])
    refused = read(exporter(tally)).values["mcpd_server_egress_refused_total"]
    assert refused == {("git",): 2, (OTHER,): 1}


def test_requests_are_counted_by_server_method_and_what_became_of_them() -> None:
    tally = new_tally(["git"])
    tally.request("git", "prompts/get", "ok")
    tally.request("", "resources/read", "UpstreamUnavailable")
    tally.relayed("git", "roots/list", "relayed")
    values = read(exporter(tally)).values
    assert values["mcpd_requests_total"] == {
        ("git", "prompts/get", "ok"): 1,
        (OTHER, "resources/read", "UpstreamUnavailable"): 1,
    }
    assert values["mcpd_server_requests_total"] == {("git", "roots/list", "relayed"): 1}
    assert ("git",) in values["mcpd_call_duration_seconds"]


def test_a_server_that_has_none_of_its_tools_is_unavailable_although_it_is_up() -> None:
    alone = catalog_of({"mcpServers": servers("git")})
    for state, unavailable in ((ServerState.READY, 0), (ServerState.DEGRADED, 1)):
        changed = {"catalog": Watch(after(alone, [status("git", state), listed("git")]))}
        assert values("mcpd_servers_unavailable", **changed) == {(): unavailable}


def test_memory_is_that_of_the_servers_whose_mark_was_found() -> None:
    reading = read(exporter())
    assert reading.marks == {77: ("git",), 78: ("time", "time#3"), 79: ("time", "time#7")}
    assert reading.with_memory({77: 4096, 80: 1}).values["mcpd_server_memory_bytes"] == {("git",): 4096}
    assert reading.with_memory({}).values["mcpd_server_memory_bytes"] == {}


def test_cpu_is_that_of_servers_in_the_configuration_without_those_that_have_no_control_group() -> None:
    reading = read(exporter()).with_memory({}, {"git": 1.5, "gone": 4})
    assert reading.values["mcpd_server_cpu_seconds_total"] == {("git",): 1.5}


EXPECTED: dict[str, dict[Any, float]] = {
    # Tools of a server that is down are known and unavailable; one that is switched off is not.
    "mcpd_server_tools": {("git",): 2, ("time",): 1, ("off",): 0},
    "mcpd_server_tools_unavailable": {("git",): 0, ("time",): 1, ("off",): 0},
    "mcpd_server_tools_quarantined": {("git",): 1, ("time",): 0, ("off",): 0},
    "mcpd_server_epoch": {("git",): 2, ("time",): 2, ("off",): 0},
    "mcpd_server_restarts_total": {("git",): 2, ("time",): 5, ("off",): 0},
    "mcpd_server_held": {("git",): 0, ("time",): 0, ("off",): 0},
    "mcpd_server_definitions": {("git", "prompt"): 1, ("time", "resource"): 2},
    "mcpd_server_definitions_unavailable": {("git", "prompt"): 0, ("time", "resource"): 2},
    "mcpd_server_definitions_quarantined": {("git", "prompt"): 1, ("time", "resource"): 0},
    "mcpd_servers": {(): 3},
    "mcpd_servers_unavailable": {(): 1},
    "mcpd_server_calls_in_flight": {("git",): 5, ("time",): 3},
    "mcpd_server_calls_queued": {("git",): 2, ("time",): 1},
    "mcpd_server_instances": {("time",): 2},  # all clients share the others
    "mcpd_sessions": {**{(each,): 0 for each in SURFACES}, ("load",): 2, ("full",): 1},
    "mcpd_loaded_tools": {(): 4},
    "mcpd_connections": {("clients",): 3, ("operators",): 1},
    "mcpd_connections_refused_total": {("clients", "server"): 2},
    "mcpd_load_lookups_total": {
        (word, each): times for word, times in (("hit", 2), ("miss", 1)) for each in SOURCES
    },
}


def test_each_number_stands_under_its_labels() -> None:
    found = read(exporter()).values
    assert {name: found[name] for name in EXPECTED} == EXPECTED
    assert ("git", "git") not in found["mcpd_instance_calls_in_flight"]


def test_a_surface_that_nobody_knows_makes_no_label_of_its_own() -> None:
    hostile = [(f"made-up {number}", 0) for number in range(3)]
    assert values("mcpd_sessions", sessions=lambda: hostile, tally=new_tally())["_other",] == 3


def test_degraded_persistence_is_zero_and_says_how_much_waits() -> None:
    degraded = Watch(Persistence(state=Condition.DEGRADED, waiting=9))
    assert values("mcpd_persistence_ok", persistence=degraded) == {(): 0}
    assert values("mcpd_persistence_unwritten", persistence=degraded) == {(): 9}
    assert values("mcpd_persistence_ok") == {(): 1}


def test_calls_of_servers_that_are_not_counted_apart_stand_under_other() -> None:
    tally = new_tally(["git"])
    assert values("mcpd_call_duration_seconds", tally=tally).keys() == {("git",)}
    tally.call("gone", "full", "ok", [0.002])
    assert values("mcpd_calls_total", tally=tally) == {(OTHER, "full", "ok"): 1}
    duration = values("mcpd_call_duration_seconds", tally=tally)[OTHER,]
    assert duration == Distribution((0, 1, *[0] * (len(LATENCY_BOUNDS) - 1)), 0.002)


def test_what_may_be_counted_stands_at_zero_before_it_happens() -> None:
    for name in ("mcpd_refusals_total", "mcpd_repairs_total", "mcpd_tools_invalidated_total"):
        counts = values(name, tally=new_tally())
        assert counts
        assert set(counts.values()) == {0}


def test_a_reading_does_not_change_with_what_it_was_read_from() -> None:
    tally = eventful()
    before = read(exporter(tally))
    again = read(exporter(tally))
    tally.call("git", "full", "ok", [1.0])
    tally.meta_call("load", "load_mcp_tool", "ok")
    tally.refused("UnknownTool")
    tally.listed("load", 1, 2)
    assert before == again


def test_servers_beyond_the_limit_are_counted_and_not_named() -> None:
    many = catalog_of({"mcpServers": servers(*(f"s{number}" for number in range(MAX_SERVERS + 44)))})
    actors = {
        name: FakeUpstream(name=name, of=name, children={1: number + 1})
        for number, name in enumerate(many.servers)
    }
    tally, all_of = new_tally(many.servers), dict.fromkeys(many.servers, FakeInstances())
    reading = read(exporter(tally, catalog=Watch(many), actors=actors, divided=lambda: all_of))
    assert reading.values["mcpd_servers"] == {(): MAX_SERVERS + 44}
    for metric in METRICS.values():
        if "server" in metric.labels and metric.name in reading.values:
            assert len({labels[0] for labels in reading.values[metric.name]}) <= MAX_SERVERS, metric.name
    assert len(reading.marks) == MAX_SERVERS


def test_nothing_configured_is_a_reading_too() -> None:
    nothing = catalog_of({})
    assert isinstance(nothing.config, Config)
    reading = read(exporter(new_tally(), catalog=Watch(nothing), actors={}, sessions=list))
    assert reading.values["mcpd_server_state"] == {}


async def test_while_metrics_are_off_it_is_said_what_to_put_into_the_configuration() -> None:
    off = catalog(metrics={"enabled": False})
    with pytest.raises(InvalidArguments) as refused:
        await exporter(catalog=Watch(off)).text()
    command = OFF.split("`")[1]
    assert command in str(refused.value)
    (holder, key), value = command.removeprefix("mcpd set . ").split("=")[0].split("."), command.split("=")[1]
    assert parse(f'{{"{holder}": {{"{key}": {value}}}}}', source="mcpd.json", environ={}).metrics.enabled


async def test_each_export_is_of_the_moment_at_which_it_is_made() -> None:
    tally = new_tally(["git"])
    asked_for = exporter(tally)
    texts: list[str] = []

    async def ask() -> None:
        texts.append(await asked_for.text())

    with trio.fail_after(30):
        for asked in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(ask)
            tally.call("git", "full", "ok", [0.1])
            line = f'mcpd_calls_total{{outcome="ok",server="git",surface="full"}} {asked}.0'
            assert all((line in text) == (asked > 0) for text in texts)
            texts.clear()


def reading(*instances: FakeUpstream, **counted: Any) -> Reading:
    """`time` with these instances."""
    divided = {"time": FakeInstances(**counted)}
    return read(exporter(actors={each.name: each for each in instances}, divided=lambda: divided))


def instance(name: str, **more: Any) -> FakeUpstream:
    return FakeUpstream(name=name, of="time", **more)


def test_instances_are_counted_by_server_also_where_none_runs() -> None:
    # The last was shared before the server was divided, and has calls yet.
    values = reading(instance("time#3"), instance("time@~/a"), instance("time"), begun=7, ended=5).values
    assert values["mcpd_server_instances"] == {("time",): 2}
    assert values["mcpd_server_instances_begun_total"] == {("time",): 7}
    assert values["mcpd_server_instances_ended_total"] == {("time",): 5}
    assert reading().values["mcpd_server_instances"] == {("time",): 0}
