"""Prompts, resources and templates over the lives of a daemon, and between two that run."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from daemon.config.state_url import of_file
from daemon.facts import DefinitionsListed, Switched
from daemon.model import Kind
from daemon.state.store import Store
from tests.unit.actors.recording import Stage, begin, life, tools_of
from tests.unit.actors.test_recorder_shared import SLACK, two, url
from tests.unit.state.postgres import postgres
from tests.unit.state.samples import definition
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

__all__ = ["postgres", "url"]

LISTED = {Kind.PROMPT: ["review"], Kind.RESOURCE: ["mem://1", "mem://2"], Kind.TEMPLATE: ["mem://{n}"]}


async def lists(stage: Stage, kind: Kind, *names: str, server: str = "a") -> None:
    """A server lists these, and the catalog knows."""
    listed = tuple(definition(kind, name, server) for name in names)
    stage.registry.tell(DefinitionsListed(server=server, incarnation=1, kind=kind, definitions=listed))
    await stage.registry.settle()


def known(stage: Stage, server: str = "a") -> dict[Kind, list[str]]:
    """What is known of a server beside its tools."""
    return {
        kind: list(each.definitions)
        for kind, each in stage.entry(server).lists.items()
        if kind is not Kind.TOOL
    }


def a_daemon(path: Path, writer: str, *names: str) -> Stage:
    """A daemon whose store is a file."""
    return begin(lambda: Store.open(of_file(path), writer=writer, slack=SLACK), *names)


def version_of(path: Path) -> int:
    """How often the store has been written."""
    with closing(Store.open(of_file(path), writer="looker", slack=SLACK)) as store:
        return store.recall().version


async def test_what_a_server_has_beside_tools_is_known_before_it_is_up(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with life(a_daemon(path, "one")) as stage:
        await stage.lists("a", "read")
        for kind, names in LISTED.items():
            await lists(stage, kind, *names)
            await lists(stage, kind, *names, server="b")
        off = frozenset({("a", "prompt:review")})
        stage.registry.tell(Switched(off=off))
        await stage.registry.settle()
        await stage.written()
        epoch, uris = stage.entry().epoch, stage.registry.catalog.value.names_of(Kind.RESOURCE)
    async with life(a_daemon(path, "two")) as stage:
        assert known(stage) == LISTED
        assert known(stage, "b") == LISTED, "that it has listed no tools yet takes nothing away"
        assert all(each.recalled for each in stage.entry().lists.values())
        assert stage.entry().epoch == epoch
        catalog = stage.registry.catalog.value
        assert catalog.switched == off
        assert "review" not in catalog.lists[Kind.PROMPT]["a"]
        assert catalog.names_of(Kind.RESOURCE).given == uris.given
        await stage.written()
        version = version_of(path)
        for kind, names in LISTED.items():
            await lists(stage, kind, *names)
        await stage.lists("a", "read")
        await stage.written()
        assert stage.entry().epoch == epoch, "nothing has changed"
        assert version_of(path) == version, "nor is it written again"


async def test_that_a_server_has_no_prompts_is_known_before_it_is_up(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with life(a_daemon(path, "one")) as stage:
        await stage.lists("a", "read")
        await lists(stage, Kind.PROMPT)
        await stage.written()
    async with life(a_daemon(path, "two")) as stage:
        assert known(stage) == {Kind.PROMPT: []}, "nobody waits for this list"


async def test_of_two_servers_the_one_that_had_a_uri_first_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with life(a_daemon(path, "one", "b")) as stage:
        await stage.lists("b", "read")
        await lists(stage, Kind.RESOURCE, "mem://1", server="b")
        await stage.written()
    async with life(a_daemon(path, "two", "a", "b")) as stage:
        await stage.lists("a", "read")
        await lists(stage, Kind.RESOURCE, "mem://1")
        catalog = stage.registry.catalog.value
        assert catalog.names_of(Kind.RESOURCE).name_of(("b", "mem://1")) == "mem://1"
        assert catalog.names_of(Kind.RESOURCE).name_of(("a", "mem://1")) == "mcpd://a/mem%3A%2F%2F1"


async def test_what_one_daemon_learns_of_lists_the_other_is_told(url: str, mock_clock: MockClock) -> None:
    async with two(url) as (one, other):
        await one.lists("a", "read")
        await lists(one, Kind.PROMPT, "review")
        await until(lambda: known(other).get(Kind.PROMPT) == ["review"])
        await until(lambda: one.entry().epoch == other.entry().epoch)
        one.tell(Switched(off=frozenset({("a", "prompt:review")})))
        await until(lambda: not other.registry.catalog.value.lists[Kind.PROMPT]["a"])


async def test_daemons_whose_servers_list_different_prompts_come_to_rest(
    url: str, mock_clock: MockClock
) -> None:
    async with two(url) as (one, other):
        await one.lists("a", "read")
        await until(lambda: list(tools_of(other.entry())) == ["read"])
        await other.lists("a", "read")
        await lists(one, Kind.PROMPT, "review")
        await lists(other, Kind.PROMPT, "fix")
        seen = []
        for number in range(4):
            # Each of these is heard with a look of its own, in both directions.
            for teller, hearer in ((one, other), (other, one)):
                switched = frozenset({("b", f"{number} {id(teller)}")})
                teller.tell(Switched(off=switched))
                await until(lambda h=hearer, off=switched: h.registry.catalog.value.switched == off)  # type: ignore[misc]
            seen.append((one.entry().epoch, other.entry().epoch))
        assert seen[1] == seen[2] == seen[3]
        assert (known(one)[Kind.PROMPT], known(other)[Kind.PROMPT]) == (["review"], ["fix"])
