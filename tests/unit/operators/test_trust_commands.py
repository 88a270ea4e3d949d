"""What waits for approval, and its approval by an operator."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import attrs
import msgspec
import pytest
import trio

from daemon.actors.registry import Registry
from daemon.config.config_model import Trust
from daemon.config.lock_file import Lock, identity_of
from daemon.errors import CannotApprove, McpdError
from daemon.facts import Approved, Configured, DefinitionsListed
from daemon.history.event import EventKind
from daemon.history.event_words import phrase
from daemon.history.journal import EventQuery, History
from daemon.model import Definition, Kind
from daemon.operators import trust_commands
from daemon.operators.base import OperatorPeer
from daemon.operators.server_changes import SwitchParams, switch
from daemon.operators.tool_reports import ToolParams, ToolsParams, tool, tools
from daemon.operators.trust_commands import ApproveParams, approve
from daemon.setup.approving import Approver
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.catalog.samples import definition
from tests.unit.catalog.samples import tool as tool_of
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import FakeArchive, operator_context
from tests.waiting import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CONFIG = {
    "mcpServers": {
        "git": {"command": "git", "trust": "changes"},
        "time": {"command": "time", "trust": "none"},
        "free": {"command": "free"},
    }
}
AT = 1_800_000_000.0
LOG = tool_of("git", "log", description="Shows.")
DELETES = tool_of(
    "git", "log", description="Deletes.", inputSchema={"type": "object", "properties": {"place": {}}}
)
SENDS = tool_of("git", "log", description="Sends.")
ODD = tool_of("git", "prompt:odd")
OLD, REVIEW = (definition(Kind.PROMPT, "git", name) for name in ("old", "review"))
GIT = [("git", "prompt:review", "new"), ("git", "log", "changed"), ("git", "tool:prompt:odd", "new")]
NOW = ("time", "now", "new")


class Trusting:
    """`git` has changed a tool and added a tool and a prompt, `time` was never approved."""

    def __init__(self, directory: Path) -> None:
        config = config_of(CONFIG)
        self.history = History(time.time)
        self.registry = Registry(config, wall=time.time, note=self.history.note)
        approver = Approver(
            registry=self.registry, note=self.history.note, wall=lambda: AT, directory=directory
        )
        self.context = operator_context(
            Stage(config), registry=self.registry, history=self.history, approver=approver
        )

    async def lists(self, *definitions: Definition) -> None:
        """The server of these lists them."""
        kind, server = definitions[0].kind, definitions[0].server
        self.registry.tell(DefinitionsListed(kind=kind, server=server, incarnation=1, definitions=definitions))
        await self.registry.settle()

    async def approve(self, *names: str, **more: Any) -> Any:
        """`mcpd approve`, which approves only if that is said."""
        return await approve(self.context, ApproveParams(names=names, **more))

    async def waits(self, *names: str) -> Any:
        """What waits of these names, or of all."""
        return told_of((await self.approve(*names))["waiting"])

    def offers(self, server: str) -> list[str]:
        """The tools that models see."""
        return [*(self.registry.catalog.value.servers[server].tools or {})]

    async def configured(self, **changed: Any) -> None:
        """The configuration is another from now on; with `lock`, a lock lies beside it."""
        config = attrs.evolve(self.registry.catalog.value.config, **changed)
        self.registry.tell(Configured(config=config, now=AT))
        await self.registry.settle()


def told_of(rows: list[Any]) -> list[tuple[str, str, str]]:
    return [(each["server"], each["name"], each["because"]) for each in rows]


@asynccontextmanager
async def trusting(directory: Path) -> AsyncIterator[Trusting]:
    here = Trusting(directory)
    async with beside(here.registry.run):
        with trio.fail_after(30):
            here.registry.tell(Approved())
            for first in ((LOG,), (OLD,), (tool_of("time", "now"),), (tool_of("free", "any"),)):
                await here.lists(*first)
            await here.lists(DELETES, ODD)
            await here.lists(OLD, REVIEW)
            yield here


async def test_what_waits_is_told_of_names_or_of_all_and_nothing_is_approved(tmp_path: Path) -> None:
    async with trusting(tmp_path) as here:
        assert sorted(await here.waits()) == sorted([*GIT, NOW])
        assert sorted(await here.waits("git")) == sorted(GIT)
        assert sorted(await here.waits("git/log", "mcp__time__now")) == sorted([GIT[1], NOW])
        assert sorted(await here.waits("git/prompt:review", "git/tool:prompt:odd")) == sorted([GIT[0], GIT[2]])
        assert await here.waits("now") == [NOW], "a tool's name alone, where one server has it"
        told = await here.approve("git/log")
        change = {"members": ["description"], "argumentsCame": ["place"]}
        listed: Any = await tools(here.context, ToolsParams(category="git"))
        held = listed["categories"]["git"]["tools"]["log"]["held"]
        assert held == {"because": "changed", "change": change}
        row = {"server": "git", "name": "log", "because": "changed", "change": change}
        assert told["waiting"] == [{**row, "schemaHash": DELETES.schema_hash}]
        assert (told["approved"], here.offers("git")) == ([], [])


async def test_so_much_of_a_difference_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with trusting(tmp_path) as here:
        (found,) = (await here.approve("git/log", difference=True))["waiting"]
        assert found["difference"] == [("description", "Shows.", "Deletes."), ("argument place", None, "{}")]
        monkeypatch.setattr(trust_commands, "SHOWN", 1)
        rows = (await here.approve(difference=True))["waiting"]
        assert ["difference" in each for each in rows] == [True, False, False, False]
        monkeypatch.setattr(trust_commands, "MAX_SHOWN", 2)
        await here.waits()
        assert len(here.context.approver.shown) == 2


async def test_one_definition_a_server_or_everything_is_approved_and_says_what_it_was(tmp_path: Path) -> None:
    async with trusting(tmp_path) as here:
        told = await here.approve("git/log", "git/prompt:old", approve=True)
        assert (told_of(told["approved"]), told["waiting"]) == ([GIT[1]], [])
        assert told["approved"][0]["change"]["argumentsCame"] == ["place"]
        assert told["idle"] == ["git/prompt:old"], "it was approved before"
        assert here.offers("git") == ["log"]
        told = await here.approve("git", approve=True)
        assert sorted(told_of(told["approved"])) == sorted([GIT[0], GIT[2]])
        told = await here.approve(approve=True)
        assert told_of(told["approved"]) == [NOW]
        assert (await here.waits(), here.offers("git"), here.offers("time")) == (
            [],
            ["log", "prompt:odd"],
            ["now"],
        )
        nothing = {"approved": [], "waiting": [], "idle": ["git"], "note": ""}
        assert await here.approve("git", approve=True) == nothing


async def test_a_form_that_is_named_is_approved_and_no_other_whatever_else_was_shown(tmp_path: Path) -> None:
    async with trusting(tmp_path) as here:
        await here.lists(SENDS, ODD)
        for names in ((), ("git/log",), ("git",)):
            assert GIT[1] in await here.waits(*names), "and was shown"
            told = await here.approve(*names, approve=True, forms={"git/log": DELETES.schema_hash})
            assert (told["approved"], told_of(told["waiting"])) == ([], [GIT[1]])
        told = await here.approve(approve=True, forms={"git": SENDS.schema_hash, "time/gone": "x"})
        assert (told["approved"], told["idle"]) == ([], ["time/gone"])
        told = await here.approve("git/log", approve=True, forms={"git/log": SENDS.schema_hash})
        assert told_of(told["approved"]) == [GIT[1]]


async def test_what_another_operator_was_shown_is_not_what_one_has_seen(tmp_path: Path) -> None:
    async with trusting(tmp_path) as here:
        one = here.context
        other = msgspec.structs.replace(one, operator=OperatorPeer(None, None, b"1", 7))  # type: ignore[arg-type]
        assert await here.waits("git/log") == [GIT[1]]
        await here.lists(SENDS, ODD)
        here.context = other
        assert await here.waits("git/log") == [GIT[1]]
        here.context = one
        assert told_of((await here.approve("git/log", approve=True))["waiting"]) == [GIT[1]]
        here.context = other
        assert told_of((await here.approve("git/log", approve=True))["approved"]) == [GIT[1]]


async def test_an_approval_that_is_not_stored_says_so_and_one_in_a_lock_is_stored(tmp_path: Path) -> None:
    async with trusting(tmp_path) as here:
        cast("FakeArchive", here.context.archive).degrade("the disk is full")
        assert (await here.approve("git/log"))["note"] == ""
        told = await here.approve("git/log", approve=True)
        assert told["note"] == "this is lost if mcpd ends now: the disk is full"
        (tmp_path / "mcpd.json").write_text("{}")
        await here.configured(lock=Lock())
        told = await here.approve("git/prompt:review", approve=True)
        assert (len(told["approved"]), told["note"]) == (1, "")


@cases("name", "error", "said")
async def test_a_name_that_is_none_is_refused_before_anything_is_approved(
    tmp_path: Path, name: str, error: str, said: str
) -> None:
    async with trusting(tmp_path) as here:
        for does in (True, False):
            with pytest.raises(McpdError, match=said) as refused:
                await here.approve("git/log", name, approve=does)
            assert type(refused.value).__name__ == error
        assert GIT[1] in await here.waits()


async def test_who_approved_and_when_is_shown(tmp_path: Path) -> None:
    async with trusting(tmp_path) as here:
        here.context = msgspec.structs.replace(here.context, principal=(name := "uid 7 (console)"))
        await here.approve("git/log", approve=True)
        told = await tool(here.context, ToolParams("log", "git"))
        assert (told["approved"], told["held"]) == ({"by": name, "at": AT}, None)
        event = here.history.newest.value
        assert event is not None
        assert (event.kind, phrase(event)) == (EventKind.APPROVED, f"{name} approved log")


async def test_an_approval_counts_for_a_form_that_differs_in_nothing_that_counts(tmp_path: Path) -> None:
    async with trusting(tmp_path) as here:
        await here.lists(tool_of("time", "now", description="As of 2026-01-02."))
        await here.approve("time", approve=True)
        await here.lists(tool_of("time", "now", description="As of 2026-01-03."))
        assert await here.waits("time") == []
        assert (await tool(here.context, ToolParams("now", "time")))["approved"] == {
            "by": "an operator",
            "at": AT,
        }
        servers = here.registry.catalog.value.config.mcp_servers
        trusted = {name: attrs.evolve(each, trust=Trust.ALL) for name, each in servers.items()}
        await here.configured(trust=Trust.ALL, mcp_servers=trusted)
        assert (await tool(here.context, ToolParams("now", "time")))["approved"] is None, "nothing is held"


async def test_a_tool_that_waits_is_switched_off_and_on_like_another(tmp_path: Path) -> None:
    async with trusting(tmp_path) as here:
        for off in (True, False, True):
            told = await switch(here.context, SwitchParams("git/log", off))
            assert (told["tool"], told["already"]) == ("log", False)
        assert (await switch(here.context, SwitchParams("git/prompt:review", True)))["name"] == "review"
        await here.approve("git", approve=True)
        assert here.registry.catalog.value.off == {("git", "log")}, "approved and off"


async def test_a_lock_approves_once_it_is_written_and_nothing_while_it_cannot_be_read(tmp_path: Path) -> None:
    async with trusting(tmp_path) as here:
        (tmp_path / "mcpd.json").write_text("{}")
        await here.configured(lock=Lock())
        assert ("git", "log", "lock") in await here.waits("git")
        cast("FakeArchive", here.context.archive).degrade("the disk is full")
        told = await here.approve("git/log", approve=True)
        assert (told_of(told["approved"]), told["note"]) == ([("git", "log", "lock")], "")
        written = json.loads((tmp_path / "mcpd.lock").read_text())["servers"]["git"]
        assert (written["identity"], [*written["tools"]]) == (identity_of({"command": "git"}), ["log"])
        assert here.offers("git") == ["log"]
        approved = (await tool(here.context, ToolParams("log", "git")))["approved"]
        assert approved == {"by": "an operator", "at": AT}
        (tmp_path / "mcpd.lock").write_text("{}")
        await here.configured(lock=Lock(problem="it is not a valid mcpd.lock"))
        with pytest.raises(CannotApprove, match="it is not a valid mcpd"):
            await here.approve("git/prompt:review", approve=True)
        assert len(await here.waits("git/prompt:review")) == 1


async def test_a_form_is_told_as_held_once_and_again_after_an_approval(tmp_path: Path) -> None:
    async with trusting(tmp_path) as here:

        async def told(*forms: Definition) -> list[Any]:
            await here.lists(*forms, ODD)
            events = await here.history.recent(EventQuery(kinds=frozenset({EventKind.HELD})))
            return [each for each in events if "log" in cast("Any", each.details["definitions"])]

        assert len(await told(SENDS)) == len(await told(LOG)) == len(await told(DELETES)) == 1
        await here.approve("git/log", approve=True)
        assert len(await told(SENDS)) == len(await told(LOG)) == len(await told(SENDS)) == 2
