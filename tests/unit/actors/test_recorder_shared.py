"""Two daemons on one PostgreSQL: each sees what the other has learned, and loses nothing to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from daemon.actors.recorder import OPERATION_SECONDS
from daemon.catalog.loaded import Loaded
from daemon.config.state_url import parse
from daemon.facts import Switched
from daemon.state.poll import POLL_SECONDS
from daemon.state.sql import StoreFault
from daemon.state.store import Store, listen
from tests.unit.actors.recording import Stage, begin, life, session, tools_of
from tests.unit.state.conftest import slack
from tests.unit.state.postgres import Server, name_in, postgres
from tests.waiting import until

__all__ = ["postgres", "slack"]


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.database()


def on(url: str, writer: str, **more: Any) -> Stage:
    """A daemon on the database."""
    place = parse(f"{url}&application_name={writer}")
    chosen: dict[str, Any] = {"listen": lambda: listen(place, writer=writer), **more}
    return begin(lambda: Store.open(place, writer=writer), shared=True, where="the test's", **chosen)


@asynccontextmanager
async def two(url: str, **more: Any) -> AsyncIterator[tuple[Stage, Stage]]:
    """Two daemons that are told what the other writes.

    Under a clock that stands still no look is ever due: whatever one hears of the other, it was told of.
    """
    async with life(on(url, "one", **more)) as one, life(on(url, "two", **more)) as other:
        for daemon in (one, other):
            await until(lambda daemon=daemon: daemon.recorder._listening.works)  # type: ignore[misc]
            await daemon.written()
        yield one, other


def cut_off(postgres: Server, *daemons: str) -> None:
    """End the connections on which these daemons listen."""
    names = ", ".join(f"'{name}'" for name in daemons)
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    postgres.run(f"{ended} WHERE application_name IN ({names}) AND query LIKE 'LISTEN%'")


async def test_what_one_daemon_learns_the_other_is_told(url: str, mock_clock: MockClock) -> None:
    async with two(url) as (one, other):
        await one.lists("a", "read")
        await until(lambda: other.entry().epoch == 1)
        assert list(tools_of(other.entry())) == ["read"]
        one.tell(Switched(off=frozenset({("b", "")})))
        await until(lambda: other.entry("b").switched_off)
        await until(lambda: one.entry("b").epoch == other.entry("b").epoch == 1)
        other.tell(Switched(off=frozenset()))
        await until(lambda: not one.entry("b").switched_off)


async def test_a_name_that_one_daemon_has_given_is_not_given_by_the_other(
    url: str, mock_clock: MockClock
) -> None:
    async with two(url) as (one, other):
        await one.lists("b", "same")
        one.registry.settle_names()
        # Until the other has read the name: before, it has the tool, and a name for it that is provisional.
        await until(lambda: other.has_given("b", "same"))
        await other.lists("a", "same")
        await other.lists("b", "same")
        names = other.registry.catalog.value.names
        assert (names.name_of(("a", "same")), names.name_of(("b", "same"))) == ("a__same", "same")
        await other.written()


async def test_whoever_asks_knows_all_that_was_written_before(url: str, mock_clock: MockClock) -> None:
    # Nobody tells the other one: it looks because it is asked to.
    async with life(on(url, "one")) as one, life(on(url, "two", listen=None)) as other:
        await other.written()
        other.live.add("key")
        for number in range(5):
            loaded = session("key", *(f"tool {each}" for each in range(number + 1)))
            one.recorder.keep(loaded)
            one.tell(Switched(off=frozenset({("b", f"tool {number}")})))
            await one.registry.settle()
            assert await one.recorder.kept("key")
            assert await one.recorder.kept()
            await other.recorder.look()
            assert other.adopted[-1] == loaded
            assert other.registry.catalog.value.switched == {("b", f"tool {number}")}


async def test_who_is_not_told_looks_each_second_until_told_again(
    postgres: Server, url: str, mock_clock: MockClock
) -> None:
    async with two(url) as (one, other):
        other.live.add("key")
        cut_off(postgres, "two")
        await until(lambda: not other.recorder._listening.works)
        await other.written()
        one.recorder.keep(session("key", "read"))
        assert await one.recorder.kept("key")
        await other.written()
        assert not other.adopted
        mock_clock.jump(POLL_SECONDS)
        await until(lambda: other.adopted)
        await until(lambda: other.recorder._listening.works)
        await other.written()
        one.recorder.keep(session("key", "read", "write"))
        await until(lambda: len(other.adopted) > 1)


async def test_daemons_whose_servers_list_different_tools_do_not_write_for_ever(
    url: str, mock_clock: MockClock
) -> None:
    async with two(url) as (one, other):
        # Long before anything is written of them: a look that has begun looks for those that it knows of.
        for number in range(4):
            one.live.add(f"{number}")
            other.live.add(f"{number}")
        await one.lists("a", "read")
        await other.lists("a", "write")
        seen = []
        for number in range(4):
            # Each of these is heard with a look of its own.
            one.recorder.keep(session(f"{number}", "read"))
            await until(lambda number=number: len(other.adopted) > number)  # type: ignore[misc]
            other.recorder.keep(session(f"{number}", "read", "write"))
            await until(lambda number=number: len(one.adopted) > number)  # type: ignore[misc]
            seen.append((one.entry().epoch, other.entry().epoch, len(one.told), len(other.told)))
        assert seen[1] == seen[2] == seen[3]
        assert list(tools_of(one.entry())) == ["read"]
        assert list(tools_of(other.entry())) == ["write"]


async def test_a_session_that_both_use_has_what_either_loads(url: str, mock_clock: MockClock) -> None:
    # Nobody tells the first one: what it writes last, it writes before it can know of the other's tool.
    async with life(on(url, "one", listen=None)) as one, life(on(url, "two")) as other:
        one.recorder.keep(session("key", "read"))
        assert await one.recorder.kept("key")
        assert await other.recorder.recall("key") == session("key", "read")
        other.live.add("key")
        one.live.add("key")
        both = session("key", "read", "write")
        other.recorder.keep(both)
        assert await other.recorder.kept("key")
        third = session("key", "third").loaded
        one.recorder.keep(attrs.evolve(both, loaded=Loaded(session("key", "read").loaded.joined(third).tools)))
        assert await one.recorder.kept("key")
        await until(lambda: bool(one.adopted) and bool(other.adopted))
        found = await other.recorder.recall("key")
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


async def test_a_number_that_a_database_gives_twice_after_it_lost_a_commit_hides_no_write(
    postgres: Server, url: str
) -> None:
    async with life(on(url, "one")) as one, life(on(url, "two")) as two:
        one.live.add("key")
        one.recorder.keep(session("key", "read"))
        assert await one.recorder.kept("key")
        await one.written()
        await two.written()
        # As after a failover to a copy that had not received the last commit.
        postgres.run("UPDATE version SET value = value - 1", database=name_in(url))
        postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'one'")
        two.recorder.keep(session("key", "read", "write"))
        assert await two.recorder.kept("key")
        await until(lambda: bool(one.adopted))
        assert {tool for _server, tool in one.adopted[-1].loaded.tools} == {"read", "write"}


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
