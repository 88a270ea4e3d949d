"""The single writer of the catalog."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from msgspec import Raw

from daemon.actors.registry import Registry
from daemon.catalog.listing import read_definitions
from daemon.config.config_model import Category, Config, Server, ToolSelection
from daemon.facts import Configured, DefinitionsListed, ServerStatus, StatusChanged
from daemon.history.event import Event
from daemon.kit.waiting import ActorGone
from daemon.model import Kind
from daemon.states import ServerState
from tests.unit.catalog.samples import prompts, resources, templates
from tests.unit.config.reading import config_of
from tests.waiting import beside

NOW = 1000.0


def config(*servers: str, **categories: Category) -> Config:
    return Config(
        mcp_servers={name: Server(name=name, command="x") for name in servers or ("a", "b")},
        categories=categories,
    )


def listed(server: str, *names: str, incarnation: int = 1) -> DefinitionsListed:
    raws = [Raw(b'{"name":"%b","inputSchema":{"type":"object"}}' % name.encode()) for name in names]
    tools, quarantined = read_definitions(Kind.TOOL, server, raws)
    return DefinitionsListed(
        kind=Kind.TOOL, server=server, incarnation=incarnation, definitions=tools, quarantined=quarantined
    )


def became(server: str, state: ServerState, incarnation: int = 1) -> StatusChanged:
    return StatusChanged(server=server, status=ServerStatus(state=state, incarnation=incarnation))


@asynccontextmanager
async def registry(
    given: Config | None = None, note: Callable[[Event], None] = lambda _event: None
) -> AsyncIterator[Registry]:
    found = Registry(given or config(), wall=lambda: NOW, note=note)
    async with beside(found.run):
        with trio.fail_after(30):
            yield found


def test_the_first_catalog_is_what_the_configuration_says() -> None:
    catalog = Registry(config("a", "b"), wall=lambda: NOW).catalog.value
    assert list(catalog.servers) == ["a", "b"]
    assert {entry.status.state for entry in catalog.servers.values()} == {ServerState.STOPPED}
    assert catalog.servers["a"].status.since == NOW


@pytest.mark.parametrize("settled", [0, 1, 3])
async def test_facts_reach_the_catalog_after_somebody_settled_too(settled: int) -> None:
    """The watchdog settles every few seconds; facts must not wait for the next time."""
    async with registry() as found:
        for _ in range(settled):
            await trio.testing.wait_all_tasks_blocked()
            await found.settle()
        found.tell(listed("a", "read"))
        await found.catalog.wait_until(lambda it: it.servers["a"].tools is not None)


async def test_a_burst_about_one_server_is_one_change() -> None:
    async with registry() as found:
        seen: list[int] = []

        async def watch() -> None:
            catalog = found.catalog.value
            while True:
                catalog = await found.catalog.wait_changed(catalog)
                seen.append(catalog.servers["a"].epoch)

        async with beside(watch):
            await trio.testing.wait_all_tasks_blocked()
            for number in range(50):
                found.tell(listed("a", f"tool{number}"))
            await trio.testing.wait_all_tasks_blocked()
        assert seen == [1]
        assert list(found.catalog.value.servers["a"].tools or ()) == ["tool49"]


async def test_what_changes_nothing_is_no_change() -> None:
    async with registry() as found:
        found.tell(listed("a", "read"))
        await found.settle()
        before = found.catalog.value
        assert before.servers["a"].epoch == 1
        found.tell(listed("a", "read"))
        found.tell(listed("removed", "read"))
        await found.settle()
        assert found.catalog.value is before


async def test_facts_of_different_kinds_and_servers_do_not_replace_one_another() -> None:
    async with registry() as found:
        found.tell(became("a", ServerState.STARTING))
        found.tell(listed("a", "read"))
        found.tell(became("a", ServerState.READY))
        found.tell(listed("b", "write"))
        found.tell(DefinitionsListed(kind=Kind.TOOL, server="b", incarnation=1, problem="it broke"))
        await found.settle()
        servers = found.catalog.value.servers
        assert servers["a"].available
        assert (servers["a"].epoch, servers["b"].epoch) == (1, 1)
        assert servers["b"].tool_list.problem == "it broke"


async def test_the_incarnation_is_known_before_the_facts_of_the_one_before_are_read() -> None:
    """Facts of one batch come in the order in which they were last told."""
    async with registry() as found:
        found.tell(listed("a", "old", incarnation=1))
        found.tell(became("a", ServerState.STARTING, incarnation=2))
        found.tell(listed("a", "new", incarnation=2))
        await found.settle()
        assert list(found.catalog.value.servers["a"].tools or ()) == ["new"]
        found.tell(listed("a", "stale", incarnation=1))
        await found.settle()
        assert list(found.catalog.value.servers["a"].tools or ()) == ["new"]


async def test_settling_with_a_registry_that_ended_is_an_error_and_no_hang() -> None:
    found = Registry(config(), wall=lambda: NOW)
    async with beside(found.run):
        await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(30), pytest.raises(ActorGone):
        await found.settle()


async def test_a_tool_that_a_category_names_in_vain_is_warned_of_once(logged: list[str]) -> None:
    category = Category(name="fs", server="a", tools=ToolSelection(include_names=("a/read", "a/missing")))
    async with registry(config("a", fs=category)) as found:
        for _ in range(3):
            found.tell(listed("a", "read"))
            await found.settle()
            found.tell(listed("a", "read", "write"))
            await found.settle()
    assert len([line for line in logged if "does not list" in line and "missing" in line]) == 1


async def test_the_start_is_summed_up_once_when_every_server_has_listed_or_failed(logged: list[str]) -> None:
    async with registry(config("a", "b")) as found:
        found.tell(became("a", ServerState.READY))
        found.tell(listed("a", "read", "write"))
        found.tell(became("b", ServerState.STARTING))
        await found.settle()
        assert not [line for line in logged if line.startswith("catalog:")]
        found.tell(became("b", ServerState.FAILED))
        await found.settle()
        found.tell(became("b", ServerState.STARTING))
        found.tell(became("b", ServerState.READY))
        await found.settle()
    assert [line for line in logged if line.startswith("catalog:")] == [
        "catalog: categories=2 tools=2 disabled=0 unresolved=0"
    ]


async def test_a_list_that_changes_leaves_one_line_that_names_what_is_other(logged: list[str]) -> None:
    many = [f"tool{number}" for number in range(1000)]
    async with registry(config("a", "b")) as found:
        for names in (["read", "write"], ["read", "write"], ["read", "run"], ["read", "run", *many]):
            found.tell(listed("a", *names))
            await found.settle()
        found.tell(listed("b", "read"))
        for prompt in ("plan", "review"):
            found.tell(prompts("b", prompt))
            await found.settle()
    assert any("its prompts have changed: 1 came (review); 1 went (plan)" in line for line in logged)
    told = [line for line in logged if "tools have changed" in line]
    assert told[0] == "epoch 2: its tools have changed: 1 came (run); 1 went (write)"
    assert told[1].startswith("epoch 3: its tools have changed: 1000 came (tool0, tool1,")
    assert told[1].endswith(", tool9 and 990 more)")
    assert len(told) == 2


async def test_lists_of_one_kind_replace_one_another_and_no_list_of_another_kind() -> None:
    async with registry() as found:
        found.tell(resources("a", "x:1"))
        found.tell(prompts("a", "plan"))
        found.tell(prompts("a", "plan", "review"))
        found.tell(templates("a", "x:{n}"))
        await found.settle()
        entry = found.catalog.value.servers["a"]
        assert [list(known.definitions) for known in entry.lists.values()] == [
            ["x:1"],
            ["plan", "review"],
            ["x:{n}"],
        ]
        assert entry.epoch == 3


async def test_a_changed_entry_whose_server_has_not_listed_yet_has_lost_no_tools(logged: list[str]) -> None:
    async with registry(config("a")) as found:
        found.tell(listed("a", "read"))
        await found.settle()
        found.tell(Configured(config=config_of({"mcpServers": {"a": {"command": "another"}}}), now=1.0))
        await found.settle()
        assert found.catalog.value.servers["a"].tools is None
        found.tell(listed("a", "read"))
        await found.settle()
    assert not any("epoch" in line for line in logged)


async def test_a_rule_that_no_tool_matches_is_warned_of_once(logged: list[str]) -> None:
    rules = [{"match": pattern, "then": "ask"} for pattern in ("a/x", "a/gone", "gti/*")]
    written = {"mcpServers": {"a": {"command": "a"}}, "profiles": {"default": {"permissions": rules}}}
    async with registry(config_of(written)) as found:
        for tools in (("x",), ("x",), ("x", "y")):
            found.tell(listed("a", *tools))
            await found.settle()
    assert [line for line in logged if "permissions" in line] == [
        "profile default: no tool matches a/gone of its permissions: a lists no such tool",
        "profile default: no tool matches gti/* of its permissions: there is no server gti",
    ]


async def test_a_change_is_told_of_after_those_who_waited_for_it_had_their_turn() -> None:
    """Of 5,000 tools it takes milliseconds, in which no client is served."""
    noted: list[Event] = []
    told_before = []
    async with registry(note=noted.append) as found, trio.open_nursery() as nursery:
        found.tell(listed("a", "read"))
        await found.settle()

        async def wait() -> None:
            await found.catalog.wait_changed(found.catalog.value)
            told_before.append(len(noted))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        found.tell(listed("a", "write"))
        await found.settle()
    assert told_before == [0]
    assert [event.server for event in noted] == ["a"]


async def test_a_change_is_told_of_though_the_daemon_ends() -> None:
    noted: list[Event] = []
    async with registry(note=noted.append) as found:
        found.tell(listed("a", "read"))
        await found.settle()
        before = found.catalog.value
        found.tell(listed("a", "write"))
        await found.catalog.wait_changed(before)
        assert noted == []
    assert [event.server for event in noted] == ["a"]
