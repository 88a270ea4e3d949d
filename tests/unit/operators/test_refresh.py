"""Lists on demand: what they have changed, and what went wrong with whom."""

from __future__ import annotations

from contextlib import suppress

import attrs
import pytest
import trio

from daemon.errors import UnknownServer, UpstreamUnavailable
from tests.unit.operators.running import raw, running


async def test_a_refresh_tells_what_came_went_changed_and_was_renamed() -> None:
    async with running() as here:
        here.list("git", raw("log"), raw("push", description="p"), raw("old", description="o"), raw("gone"))
        here.servers["git"].lists = (
            raw("log", description="other"),
            raw("push", description="p"),
            raw("new", description="o"),
            raw("fresh", description="f"),
        )
        await here.registry.settle()
        epoch = here.registry.catalog.value.servers["git"].epoch
        told = await here.refresh("git")
        assert told["servers"]["git"] == {
            "state": "ready",
            "epoch": epoch + 1,
            "tools": 4,
            "came": ["new", "fresh"],
            "went": ["old", "gone"],
            "changed": ["log"],
            "renamed": {"old": "new"},
            "lists": {},
            "problem": "",
        }
        again = await here.refresh("git")
        assert again["servers"]["git"]["epoch"] == epoch + 1


async def test_a_refresh_of_all_asks_those_that_are_up_and_one_failure_hides_no_other() -> None:
    async with running() as here:
        here.servers["git"].problem = "no s3cret answer"
        here.servers["time"].lists = (raw("now"),)
        told = await here.refresh(None)
        assert {name: each["problem"] for name, each in told["servers"].items()} == {
            "git": "no [redacted] answer",
            "time": "",
        }
        await here.switch("time", off=True)
        told = await here.refresh(None)
        assert told["servers"].keys() == {"git"}
        assert here.servers["time"].listed == 1


async def test_a_server_that_is_not_up_is_a_problem_and_not_a_fault() -> None:
    async with running() as here:
        here.servers["git"].error = UpstreamUnavailable("server git is failed", server="git")
        told = await here.refresh("git")
        assert told["servers"]["git"]["problem"] == "server git is failed"
        told = await here.refresh("off")
        assert "switched off in the configuration" in told["servers"]["off"]["problem"]
        with pytest.raises(UnknownServer, match="Did you mean git"):
            await here.refresh("gti")


async def test_a_server_that_is_taken_away_just_when_it_is_to_list_is_a_problem_and_not_a_fault() -> None:
    async with running() as here:
        whole = here.registry.catalog.value
        servers = {name: entry for name, entry in whole.servers.items() if name != "git"}
        problems: list[str] = []

        async def refresh() -> None:
            with suppress(UnknownServer):
                told = await here.refresh("git")
                problems.append(told["servers"]["git"]["problem"])

        async def take_away() -> None:
            here.registry.catalog.set(attrs.evolve(whole, servers=servers))

        while not problems:  # trio shuffles: the one that takes away may be the first
            here.registry.catalog.set(whole)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refresh)
                nursery.start_soon(take_away)
        assert "removed from the configuration" in problems[0]
