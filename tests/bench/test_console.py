"""The bench of the console: it measures every page, and calls beside streams that are read until they end."""

from __future__ import annotations

from bench.calls.daemons import servers
from bench.console import FLOWS, PAGES, TINY, Principal, calls, pages
from bench.running import running


def test_every_page_is_measured_and_calls_beside_open_ones() -> None:
    with running({"mcpServers": servers([TINY.tools] * TINY.servers)}) as daemon:
        visitor = Principal(daemon)
        assert [row[0] for row in pages(visitor, TINY.times)] == [f"/ui/{path}" for path in PAGES]
        assert [row[0] for row in calls(daemon, visitor, TINY)] == [*FLOWS]
        visitor.leave()
