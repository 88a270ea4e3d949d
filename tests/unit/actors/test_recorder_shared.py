"""Two daemons on one PostgreSQL: each sees what the other has learned, and loses nothing to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.actors.recorder import OPERATION_SECONDS
from daemon.catalog.loaded import Loaded
from daemon.config.state_url import parse
from daemon.facts import Switched
from daemon.state.faults import StoreFault
from daemon.state.store import Store
from tests.unit.actors.recording import Stage, begin, life, session, tools_of
from tests.unit.state.postgres import postgres
from tests.waiting import until

if TYPE_CHECKING:
    from tests.unit.state.postgres import Server

__all__ = ["postgres"]

SLACK = 20.0
"""How many times longer an operation may take than in a daemon: the machine may be busy."""


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.database()


def on(url: str, writer: str, **more: Any) -> Stage:
    """A daemon on the database."""
    place = parse(f"{url}&application_name={writer}")
    return begin(lambda: Store.open(place, writer=writer, slack=SLACK), shared=True, where="the test's", **more)


async def test_what_one_daemon_learns_the_other_hears(url: str) -> None:
    async with life(on(url, "one")) as one, life(on(url, "two")) as two:
        await one.lists("a", "read")
        await until(lambda: two.entry().epoch == 1)
        assert list(tools_of(two.entry())) == ["read"]
        one.tell(Switched(off=frozenset({("b", "")})))
        await until(lambda: two.entry("b").switched_off)
        await until(lambda: one.entry("b").epoch == two.entry("b").epoch == 1)
        two.tell(Switched(off=frozenset()))
        await until(lambda: not one.entry("b").switched_off)


async def test_a_name_that_one_daemon_has_given_is_not_given_by_the_other(url: str) -> None:
    async with life(on(url, "one")) as one, life(on(url, "two")) as two:
        await one.lists("b", "same")
        one.registry.settle_names()
        await until(lambda: "same" in two.registry.catalog.value.names.owners)
        await two.lists("a", "same")
        await two.lists("b", "same")
        names = two.registry.catalog.value.names
        assert (names.name_of(("a", "same")), names.name_of(("b", "same"))) == ("a__same", "same")
        await two.written()


async def test_daemons_whose_servers_list_different_tools_do_not_write_for_ever(url: str) -> None:
    async with life(on(url, "one")) as one, life(on(url, "two")) as two:
        # Long before anything is written of them: a poll that has begun looks for those that it knows of.
        for number in range(4):
            one.live.add(f"{number}")
            two.live.add(f"{number}")
        await one.lists("a", "read")
        await two.lists("a", "write")
        seen = []
        for number in range(4):
            # Each of these is heard with a poll of its own.
            one.recorder.keep(session(f"{number}", "read"))
            await until(lambda number=number: len(two.adopted) > number)  # type: ignore[misc]
            two.recorder.keep(session(f"{number}", "read", "write"))
            await until(lambda number=number: len(one.adopted) > number)  # type: ignore[misc]
            seen.append((one.entry().epoch, two.entry().epoch, len(one.told), len(two.told)))
        assert seen[1] == seen[2] == seen[3]
        assert list(tools_of(one.entry())) == ["read"]
        assert list(tools_of(two.entry())) == ["write"]


async def test_a_session_that_both_use_has_what_either_loads(url: str) -> None:
    async with life(on(url, "one")) as one, life(on(url, "two")) as two:
        one.recorder.keep(session("key", "read"))
        assert await one.recorder.kept("key")
        assert await two.recorder.recall("key") == session("key", "read")
        two.live.add("key")
        one.live.add("key")
        both = session("key", "read", "write")
        two.recorder.keep(both)
        assert await two.recorder.kept("key")
        # One has not heard of it yet, and writes what it knows.
        third = session("key", "third").loaded
        one.recorder.keep(attrs.evolve(both, loaded=Loaded(session("key", "read").loaded.joined(third).tools)))
        assert await one.recorder.kept("key")
        await until(lambda: bool(one.adopted) and bool(two.adopted))
        found = await two.recorder.recall("key")
        assert found is not None
        assert {tool for _server, tool in found.loaded.tools} == {"read", "write", "third"}


async def test_a_daemon_that_was_cut_off_catches_up_before_it_writes(postgres: Server, url: str) -> None:
    async with life(on(url, "one")) as one, life(on(url, "two")) as two:
        one.recorder.keep(session("key", "read"))
        assert await one.recorder.kept("key")
        one.live.add("key")
        await one.written()
        postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'one'")
        assert await two.recorder.recall("key") is not None
        two.recorder.keep(session("key", "read", "write"))
        assert await two.recorder.kept("key")
        one.recorder.keep(session("key", "read", "third"))
        await one.written()
        found = await two.recorder.recall("key")
        assert found is not None
        assert {tool for _server, tool in found.loaded.tools} == {"read", "write", "third"}
        assert {tool for _server, tool in one.adopted[-1].loaded.tools} == {"read", "write", "third"}


async def test_a_database_that_is_frozen_holds_nobody(postgres: Server, url: str) -> None:
    async with life(on(url, "one", patience=OPERATION_SECONDS)) as one:
        await one.written()
        with postgres.frozen():
            one.recorder.keep(session("key", "read"))
            assert not await one.recorder.kept("key")
            with pytest.raises(StoreFault):
                await one.recorder.recall("other")
            assert one.degraded
            assert await one.recorder.recall("key") == session("key", "read")
        await one.written()
    async with life(on(url, "two")) as two:
        assert await two.recorder.recall("key") == session("key", "read")
