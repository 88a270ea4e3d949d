"""What is switched off or on: each switch counts, and says what one might not expect."""

from pathlib import Path
from typing import Any

import pytest
import trio.testing
from trio.testing import MockClock

from daemon.errors import InvalidArguments, McpdError
from daemon.facts import DefinitionsListed, Switched
from daemon.model import Kind
from daemon.operators.base import OUTCOME_SECONDS, Refused
from daemon.operators.server_changes import MAX_LISTED
from daemon.state.server_notes import NAME_BYTES
from tests.unit.cases import cases, rows_of
from tests.unit.operators.running import Running, raw, running
from tests.unit.state.samples import definition


async def test_a_server_is_switched_off_and_on_and_its_child_follows_also_if_that_cannot_be_stored() -> None:
    async with running() as here:
        told = await here.switch("git", off=True)
        assert [told] == rows_of(Path(__file__), "a_server_is_switched_off")
        assert here.switched == {("git", "")}
        told = await here.switch("git", off=False)
        assert (told["already"], told["state"]) == (False, "ready")
        assert not here.switched
        here.archive.degrade("the disk is full")
        told = await here.switch("git", off=True)
        assert (told["off"], told["state"]) == (True, "disabled")
        assert told["note"] == "this is lost if mcpd ends now: the disk is full"
        assert (await here.switch("git", off=True))["note"] == told["note"], "said again: still so"


@cases("name", "key")
async def test_each_spelling_is_switched_off_and_on_and_what_is_so_already_is_said(name: str, key: str) -> None:
    async with running() as here:
        await learn(here, Kind.PROMPT, quarantined={"bad": "no name"})
        assert (await here.switch(name, off=False))["already"] is True
        told = await here.switch(name, off=True)
        assert (told["already"], told["note"]) == (False, "")
        assert here.switched == {("git", key)}
        assert (await here.switch(name, off=True))["already"] is True
        assert (await here.switch(name, off=False))["already"] is False
        assert not here.switched


@pytest.mark.parametrize("name", ["now", "prompt:now"])
async def test_one_may_be_switched_off_before_it_is_listed_and_stays_off_with_its_server(name: str) -> None:
    async with running() as here:
        told = await here.switch(f"time/{name}", off=True)
        assert "server time has not listed its" in str(told["note"])
        here.list("time", raw("now"))
        await learn(here, Kind.PROMPT, "now", server="time")
        catalog = here.registry.catalog.value
        assert (("time", "now") in catalog.off) is (name == "now")
        assert ("now" in catalog.lists[Kind.PROMPT]["time"]) is (name == "now")
        await here.switch("time", off=True)
        told = await here.switch(f"time/{name}", off=False)
        assert f"time/{name} stays off: its server is switched off" in str(told["note"])


async def test_many_switches_at_once_are_all_obeyed() -> None:
    """Each is a whole set: two that knew nothing of one another would be one."""
    async with running() as here:
        here.list("time", *(raw(f"t{number}") for number in range(20)))
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(lambda n: here.switch(f"time/t{n}", off=True), number)
        assert len(here.switched) == 20


async def test_a_switch_does_not_undo_another_that_is_not_read_yet() -> None:
    async with running() as here:
        for number in range(20):  # half of the time, the registry happens to read it first
            off = number % 2 == 0
            here.registry.tell(Switched(off=here.switched | {("time", f"t{number}")}))
            await here.switch("git/log", off=off)
            assert here.switched == {
                *(("time", f"t{each}") for each in range(number + 1)),
                *[("git", "log")] * off,
            }


@cases("name", "error", "hint")
async def test_a_name_that_is_none_is_told_with_the_closest(name: str, error: str, hint: str) -> None:
    async with running() as here:
        here.list("time", raw("push"))
        await learn(here, Kind.PROMPT, "review", "summarize")
        for off in (True, False):
            with pytest.raises(McpdError, match=hint) as refused:
                await here.switch(name, off=off)
            assert type(refused.value).__name__ == error
        assert not here.switched


@cases("name", "hint")
async def test_what_the_configuration_switches_off_no_command_switches_on(name: str, hint: str) -> None:
    async with running() as here:
        with pytest.raises(Refused, match=hint):
            await here.switch(name, off=False)


async def test_a_switch_of_what_the_configuration_has_off_or_lacks_is_kept_and_can_be_taken_back() -> None:
    async with running() as here:
        told = await here.switch("off", off=True)
        assert "the configuration switches server off off, too" in str(told["note"])
        assert here.switched == {("off", "")}
        told = await here.switch("off", off=False)
        assert "the configuration switches server off off, too" in str(told["note"])
        assert not here.switched
        here.registry.tell(Switched(off=frozenset({("gone", ""), ("go__ne", "tool")})))
        await here.registry.settle()
        told = await here.switch("gone", off=False)
        assert (told["already"], told["state"]) == (False, "")
        assert "not in the configuration" in str(told["note"])
        await here.switch("mcp__go__ne__tool", off=False)
        assert not here.switched


async def test_an_answer_does_not_wait_for_ever_for_a_stop(autojump_clock: MockClock) -> None:
    async with running(following=False) as here:
        began = trio.current_time()
        told = await here.switch("git", off=True)
        assert trio.current_time() - began == pytest.approx(OUTCOME_SECONDS)
        assert told["state"] == "ready"


URI = "file:///home/me/a%20b.txt?x=1#end"
TEMPLATE = "file:///{+path}{?mode}"


async def learn(here: Running, kind: Kind, *names: str, server: str = "git", **more: Any) -> None:
    """A server lists these."""
    listed = tuple(definition(kind, name, server) for name in names)
    here.registry.tell(DefinitionsListed(server=server, incarnation=1, kind=kind, definitions=listed, **more))
    await here.registry.settle()


def offered(here: Running, kind: Kind) -> list[str]:
    """What of `git` is on."""
    return list(here.registry.catalog.value.lists[kind].get("git", ()))


@pytest.mark.parametrize(
    ("kind", "name"), [(Kind.PROMPT, "review it"), (Kind.RESOURCE, URI), (Kind.TEMPLATE, TEMPLATE)]
)
async def test_each_is_switched_off_and_on_and_is_offered_meanwhile_to_nobody(kind: Kind, name: str) -> None:
    async with running() as here:
        await learn(here, kind, name, "other")
        told = await here.switch(f"git/{kind}:{name}", off=True)
        assert (told["kind"], told["name"], told["note"]) == (kind, name, "")
        assert told["tool"] == f"{kind}:{name}", "what `mcpd enable` takes"
        assert here.switched == {("git", f"{kind}:{name}")}
        assert offered(here, kind) == ["other"]
        assert (await here.switch(f"git/{kind}:{name}", off=True))["already"] is True
        await here.switch(f"mcp__git__{kind}:{name}", off=False)
        assert not here.switched
        assert offered(here, kind) == [name, "other"]


async def test_a_tool_whose_name_begins_as_a_prompt_does_is_switched_apart_from_that() -> None:
    async with running() as here:
        here.list("git", raw("prompt:review"), raw("tool:log"), raw("log"), raw("review"))
        await learn(here, Kind.PROMPT, "review")
        await here.switch("git/tool:prompt:review", off=True)
        assert here.registry.catalog.value.off >= {("git", "prompt:review")}
        assert offered(here, Kind.PROMPT) == ["review"]
        await here.switch("git/tool:prompt:review", off=False)
        await here.switch("git/prompt:review", off=True)
        assert here.registry.catalog.value.off & {("git", "prompt:review"), ("git", "review")} == set()
        assert offered(here, Kind.PROMPT) == []
        await here.switch("git/tool:log", off=True)
        assert here.switched == {("git", "prompt:review"), ("git", "log")}, (
            "the usual name of a tool, spelt out"
        )
        await here.switch("git/tool:tool:log", off=True)
        assert ("git", "tool:log") in here.registry.catalog.value.off


async def test_of_many_resources_no_error_names_all_and_a_uri_too_long_for_a_store_is_refused() -> None:
    async with running() as here:
        await learn(here, Kind.RESOURCE, *(f"mem://docs/page/{number}" for number in range(MAX_LISTED + 1)))
        with pytest.raises(Refused, match=f"It has {MAX_LISTED + 1}; `mcpd resources` lists them") as refused:
            await here.switch("git/resource:QQQQQQ", off=True)
        assert "mem://" not in str(refused.value)
        await learn(here, Kind.RESOURCE, "mem://" + "é" * (NAME_BYTES // 2))
        with pytest.raises(InvalidArguments, match="more than 2000 bytes and cannot be switched alone"):
            await here.switch("git/resource:mem://" + "é" * (NAME_BYTES // 2), off=True)
