"""The export: made when somebody asks and it is switched on, with a library that is loaded no sooner."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from daemon.config.parse import parse
from daemon.errors import InvalidArguments
from daemon.metrics.exporting import OFF, RENDERING, Exporter
from daemon.processes.effort import memory_by_mark
from daemon.tally import Tally
from tests.metrics.samples import FakeUpstream, catalog, sources


async def test_whoever_asks_gets_a_text_that_can_be_parsed() -> None:
    with trio.fail_after(30):
        text = await Exporter(sources()).text()
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"mcpd_calls", "mcpd_call_duration_seconds", "process_cpu_seconds"} <= names


async def test_while_metrics_are_off_it_is_said_what_to_put_into_the_configuration() -> None:
    off = catalog(metrics={"enabled": False})
    with pytest.raises(InvalidArguments) as refused:
        await Exporter(sources(catalog=lambda: off)).text()
    line = OFF.split("`")[1]
    assert line in str(refused.value)
    assert parse(f"{{{line}}}", source="mcpd.json", environ={}).metrics.enabled


async def test_each_export_is_of_the_moment_at_which_it_is_made() -> None:
    tally = Tally(["git"])
    exporter = Exporter(sources(tally))
    texts: list[str] = []

    async def ask() -> None:
        texts.append(await exporter.text())

    with trio.fail_after(30):
        for asked in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(ask)
            tally.call("git", "full", "ok", 0.1)
            line = f'mcpd_calls_total{{outcome="ok",server="git",surface="full"}} {asked}.0'
            assert all((line in text) == (asked > 0) for text in texts)
            texts.clear()


async def test_the_memory_of_a_child_is_found_by_its_mark() -> None:
    """No child runs here, so there is nothing to find: the label stays away, and nothing is made up."""
    unused = max(memory_by_mark(), default=1) + 1
    given = sources(upstreams={"git": FakeUpstream(mark=unused)})
    with trio.fail_after(30):
        text = await Exporter(given).text()
    assert "mcpd_server_memory_bytes{" not in text


def test_the_module_that_is_loaded_by_name_has_the_door_that_is_used() -> None:
    render = importlib.import_module(RENDERING).render
    assert list(inspect.signature(render).parameters) == ["reading"]


def test_the_library_is_not_imported_before_somebody_asks() -> None:
    code = (
        "import sys, daemon.metrics.exporting, daemon.actors.exposition, daemon.tally, daemon.cli.metrics;"
        "sys.exit('prometheus_client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
