"""The bench of instances: each session has its own, they are counted, and all of them end."""

from __future__ import annotations

from bench.instances import alone, configuration, measured, table


def test_each_session_gets_an_instance_of_each_server_and_all_of_them_end() -> None:
    found = measured(2, 2, idle=5.0)
    assert found.instances == len(found.first) == len(found.second) == 4
    assert 0 < found.proportional <= found.resident
    assert found.gone >= 5.0
    title, heads, rows = table(found, 5.0)
    assert title == "4 instances"
    assert {len(row) for row in rows} == {len(heads)}


def test_a_server_alone_is_started_and_answers() -> None:
    entry = configuration(1, 1, 1.0)["mcpServers"]["s0"]
    assert alone([entry["command"], *entry["args"]], 1) > 0
