"""The metrics of instances: they are there as long as the instance is, and those of the server go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.counting.readings import read
from tests.unit.counting.samples import FakeInstances, FakeServer, FakeUpstream, exporter

if TYPE_CHECKING:
    from daemon.counting.readings import Reading

OF_INSTANCES = ("mcpd_instance_calls_in_flight", "mcpd_instance_calls_queued", "mcpd_instance_memory_bytes")


def reading(*instances: FakeUpstream, **counted: Any) -> Reading:
    """`time` with these instances."""
    upstreams = {"time": FakeServer(instances=FakeInstances(**counted))}
    return read(exporter(actors={each.name: each for each in instances}, upstreams=upstreams))


def instance(name: str, **more: Any) -> FakeUpstream:
    return FakeUpstream(name=name, of="time", **more)


def test_instances_are_counted_by_server_also_where_none_runs() -> None:
    values = reading(instance("time#3"), instance("time@~/a"), begun=7, ended=5).values
    assert values["mcpd_server_instances"] == {("time",): 2}
    assert values["mcpd_server_instances_begun_total"] == {("time",): 7}
    assert values["mcpd_server_instances_ended_total"] == {("time",): 5}
    assert reading().values["mcpd_server_instances"] == {("time",): 0}


def test_a_server_that_all_clients_share_has_no_number_of_instances() -> None:
    values = read(exporter()).values
    assert values["mcpd_server_instances"] == {("time",): 2}
    assert ("git", "git") not in values["mcpd_instance_calls_in_flight"]


def test_an_instance_has_its_series_as_long_as_it_runs() -> None:
    first, second = (
        instance("time#3", children={1: 7}, in_flight=2),
        instance("time#5", children={1: 8}, in_flight=1, queued=1),
    )
    both = reading(first, second).with_memory({7: 4096, 8: 1024, 9: 1}).values
    assert both["mcpd_instance_calls_in_flight"] == {("time", "time#3"): 2, ("time", "time#5"): 1}
    assert both["mcpd_instance_calls_queued"] == {("time", "time#3"): 0, ("time", "time#5"): 1}
    assert both["mcpd_instance_memory_bytes"] == {("time", "time#3"): 4096, ("time", "time#5"): 1024}
    assert both["mcpd_server_memory_bytes"] == {("time",): 5120}
    assert both["mcpd_server_calls_in_flight"] == {("time",): 3}
    one = reading(second).with_memory({8: 1024}).values
    assert all(one[name].keys() == {("time", "time#5")} for name in OF_INSTANCES)
    none = reading().with_memory({}).values
    assert not any(none[name] for name in OF_INSTANCES)
