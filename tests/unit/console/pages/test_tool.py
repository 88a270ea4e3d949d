"""The page of one tool."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.catalog.loaded import Loaded, LoadedTool, SessionRecord, Source
from daemon.console.pages.tool_pages import DESCRIBE_TOOL, MAX_JSON, TOOL_PAGE
from daemon.errors import InvalidArguments, McpdError, UnknownTool
from daemon.history.event import Event, EventKind
from tests.fakes_upstream import Stage
from tests.unit.console.pages.drawing import HOSTILE, drawn, values_of, viewer_of
from tests.unit.operators.stage import SESSION, FakeArchive, FakeSession, OperatorStage, clients_of

if TYPE_CHECKING:
    from daemon.history.event import Detail

NAME = "a/b<img src=x>"
SCHEMA = {
    "type": "object", "properties": {"<b>path</b>": {"type": ["string", "null"], "description": HOSTILE},
    "depth": {"enum": [1, 2], "default": 1}, "free": True}, "required": ["depth"],
}  # fmt: skip


def hostile(**written: Any) -> OperatorStage:
    stage = Stage(**written)
    stage.lists("alpha", {"name": NAME, "description": HOSTILE, "inputSchema": SCHEMA}, "echo")
    return OperatorStage(stage)


async def test_nothing_in_a_definition_becomes_markup() -> None:
    page = await drawn(TOOL_PAGE, viewer_of(hostile().context(), server="alpha", tool=NAME))
    assert page.is_harmless()
    assert "<b>path</b>" in page.text
    assert not any(tag == "b" for tag, _ in page.tags)


async def test_arguments_are_told_for_people() -> None:
    values = await values_of(TOOL_PAGE, viewer_of(hostile().context(), server="alpha", tool=NAME))
    arguments = values["tool-schema"]["arguments"]
    assert {each.name: (each.kind, each.required) for each in arguments} == {
        "depth": ("one of 1, 2; default 1", True),
        "<b>path</b>": ("text or null", False),
        "free": ("anything", False),
    }


async def test_what_a_server_does_not_say_is_not_put_into_its_mouth() -> None:
    stage = OperatorStage()
    stage.stage.lists(
        "alpha", {"name": "reads", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}, "echo"
    )
    silent = await drawn(TOOL_PAGE, viewer_of(stage.context(), server="alpha", tool="echo"))
    assert "Its server says nothing of that. Clients assume that it may destroy something" in silent.text
    assert "As its server says" not in silent.text
    said = await drawn(TOOL_PAGE, viewer_of(stage.context(), server="alpha", tool="reads"))
    assert "As its server says, itonly reads" in said.text


async def test_a_large_definition_is_cut() -> None:
    stage = OperatorStage()
    large = {"type": "object", "description": "x" * (MAX_JSON + 1)}
    stage.stage.lists("alpha", {"name": "large", "inputSchema": large})
    values = await values_of(TOOL_PAGE, viewer_of(stage.context(), server="alpha", tool="large"))
    assert len(values["tool-schema"]["definition"]) == MAX_JSON


async def test_our_description_stands_beside_the_servers() -> None:
    ours = {"alpha/echo": "Ours."}
    context = hostile(profiles={"default": {"toolDescriptionOverrides": ours}}).context()
    values = await values_of(TOOL_PAGE, viewer_of(context, server="alpha", tool="echo"))
    assert values["tool-texts"]["ours"] == "Ours."
    page = await drawn(TOOL_PAGE, viewer_of(context, server="alpha", tool="echo", may_change=False))
    assert "Ours." in page.text
    assert page.forms == []


async def test_sessions_that_have_loaded_it_are_named_with_the_status() -> None:
    stage = OperatorStage()
    held = LoadedTool(key=("alpha", "echo"), schema_hash="old", epoch=1, source=Source.MANUAL, at=5.0)
    loaded = Loaded({held.key: held})
    record = SessionRecord(key="/home/me", loaded=loaded, client="me 1")
    live = FakeSession(attrs.evolve(SESSION, key=None, own=loaded))
    context = stage.context(clients=clients_of(live, in_use=[(record, 1)]))
    viewer = viewer_of(context, server="alpha", tool="echo")
    assert "nobody is connected" not in (await drawn(TOOL_PAGE, viewer)).text
    sessions = (await values_of(TOOL_PAGE, viewer))["tool-loaded"]
    assert [each["session"] for each in sessions["sessions"]] == ["/home/me", "#3"]
    assert {each["status"] for each in sessions["sessions"]} == {"invalid_changed"}


async def test_sessions_of_clients_who_are_away_are_named_too() -> None:
    stage = OperatorStage()
    held = LoadedTool(key=("alpha", "echo"), schema_hash="old", epoch=1, source=Source.MANUAL, at=5.0)
    away, here = (
        SessionRecord(key=key, loaded=Loaded({held.key: held}), client="me 1") for key in ("away", "here")
    )
    # One that is in use has unloaded it since the store was written.
    in_use = [(attrs.evolve(here, loaded=Loaded()), 1)]
    archive = FakeArchive([away, here])
    context = stage.context(clients=clients_of(in_use=in_use), archive=archive)
    page = await drawn(TOOL_PAGE, viewer_of(context, server="alpha", tool="echo"))
    assert "awaynobody is connected" in page.text
    assert "here" not in page.text.partition("Who has loaded it")[2]
    archive.fault = McpdError("the disk is gone")
    page = await drawn(TOOL_PAGE, viewer_of(context, server="alpha", tool="echo"))
    assert "Those that are kept cannot be read now." in page.text
    none = await drawn(TOOL_PAGE, viewer_of(OperatorStage().context(), server="alpha", tool="echo"))
    assert "none of the 200 kept ones" in none.text


async def test_the_event_that_made_it_what_it_is_is_named() -> None:
    context = hostile().context()
    differ = {NAME: {"members": ["description"], "argumentsCame": [HOSTILE]}}
    details: dict[str, Detail] = {"tools": {"changed": [NAME]}, "toolsDiffer": differ}
    context.history.note(Event(kind=EventKind.LISTS_CHANGED, server="alpha", details=details, at=86_400.0))
    page = await drawn(TOOL_PAGE, viewer_of(context, server="alpha", tool=NAME))
    assert page.is_harmless()
    assert re.search(r"Unchanged since1970-01-0\d \S+: it was changed \(description, argument ", page.text)


async def test_a_tool_that_is_not_there_has_no_page() -> None:
    with pytest.raises(UnknownTool, match="ehco"):
        await TOOL_PAGE.fragments(viewer_of(OperatorStage().context(), server="alpha", tool="ehco"))


async def test_a_description_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="1 to 4096"):
        await DESCRIBE_TOOL.act(viewer_of(OperatorStage().context()), {"tool": "alpha/echo", "text": " "})


async def test_taking_out_what_is_not_there_says_so() -> None:
    told = await DESCRIBE_TOOL.act(viewer_of(OperatorStage().context()), {"tool": "alpha/echo", "reset": "1"})
    assert told == "alpha/echo has its server's own description already."
