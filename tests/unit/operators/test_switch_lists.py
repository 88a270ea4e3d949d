"""Prompts, resources and templates are switched off and on as tools are, and never one for another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.errors import InvalidArguments
from daemon.facts import DefinitionsListed
from daemon.model import Kind
from daemon.operators.base import Refused
from daemon.operators.switch import MAX_LISTED
from daemon.state.server_notes import NAME_BYTES
from tests.unit.operators.running import raw, running
from tests.unit.state.samples import definition

if TYPE_CHECKING:
    from tests.unit.operators.running import Running

URI = "file:///home/me/a%20b.txt?x=1#end"
TEMPLATE = "file:///{+path}{?mode}"


async def learn(here: Running, kind: Kind, *names: str, server: str = "git") -> None:
    """A server lists these."""
    listed = tuple(definition(kind, name, server) for name in names)
    here.registry.tell(DefinitionsListed(server=server, incarnation=1, kind=kind, definitions=listed))
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


async def test_what_is_not_listed_is_told_with_the_closest() -> None:
    async with running() as here:
        await learn(here, Kind.PROMPT, "review", "summarize")
        with pytest.raises(Refused, match=r"server git has no prompt 'reveiw'\. Did you mean review"):
            await here.switch("git/prompt:reveiw", off=True)
        with pytest.raises(Refused, match="There are: review, summarize"):
            await here.switch("git/prompt:zzzzz", off=True)
        assert not here.switched


async def test_of_many_resources_no_error_names_all() -> None:
    async with running() as here:
        await learn(here, Kind.RESOURCE, *(f"mem://docs/page/{number}" for number in range(MAX_LISTED + 1)))
        with pytest.raises(Refused, match=f"It has {MAX_LISTED + 1}; `mcpd resources` lists them") as refused:
            await here.switch("git/resource:QQQQQQ", off=True)
        assert "mem://" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    ["prompt:", "resource:", "template:a\nb", "tool:", "prompt:\ud800"],
)
async def test_what_can_be_no_name_is_refused_in_words(name: str) -> None:
    async with running() as here:
        with pytest.raises(
            InvalidArguments, match="SERVER/prompt:NAME, SERVER/resource:URI or SERVER/template:"
        ):
            await here.switch(f"git/{name}", off=True)


async def test_a_uri_that_no_store_could_find_again_is_refused() -> None:
    async with running() as here:
        await learn(here, Kind.RESOURCE, "mem://" + "x" * NAME_BYTES)
        with pytest.raises(InvalidArguments, match="more than 2000 bytes and cannot be switched alone"):
            await here.switch("git/resource:mem://" + "x" * NAME_BYTES, off=True)


async def test_one_may_be_switched_off_before_its_server_has_listed_any() -> None:
    async with running() as here:
        told = await here.switch("git/prompt:review", off=True)
        assert "the prompts of server git are not known yet" in str(told["note"])
        await learn(here, Kind.PROMPT, "review", "fix")
        assert offered(here, Kind.PROMPT) == ["fix"]


async def test_one_of_a_server_that_is_off_stays_off_and_that_is_said() -> None:
    async with running() as here:
        await learn(here, Kind.PROMPT, "review")
        await here.switch("git/prompt:review", off=True)
        await here.switch("git", off=True)
        told = await here.switch("git/prompt:review", off=False)
        assert "git/prompt:review stays off: its server is switched off" in str(told["note"])


async def test_a_quarantined_one_may_be_switched() -> None:
    async with running() as here:
        listed = DefinitionsListed(
            server="git", incarnation=1, kind=Kind.PROMPT, definitions=(), quarantined={"bad": "no name"}
        )
        here.registry.tell(listed)
        await here.registry.settle()
        assert (await here.switch("git/prompt:bad", off=True))["already"] is False
