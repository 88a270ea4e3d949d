"""The page of all tools: never all at once, and searched as a model searches."""

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec
import pytest

from daemon.catalog.loaded import Loaded, LoadedTool, SessionRecord, Source
from daemon.clients.sessions import SessionState
from daemon.console.page import ConsolePage, Notice
from daemon.console.pages import tool_pages
from daemon.console.pages.server_pages import SERVER
from daemon.console.pages.session_pages import SESSION_PAGE
from daemon.console.pages.tool_pages import (
    CALL_TOOL,
    DESCRIBE_TOOL,
    MAX_ARGUMENTS,
    PER_PAGE,
    SWITCH_TOOL,
    TOOL_PAGE,
    TOOLS_PAGE,
)
from daemon.errors import InvalidArguments, McpdError
from tests.fakes_upstream import Stage
from tests.fakes_upstream import tool as described
from tests.unit.cases import cases
from tests.unit.config.reading import config_of
from tests.unit.console.pages.drawing import HOSTILE, drawn, values_of, viewer_of
from tests.unit.operators.running import raw, running
from tests.unit.operators.stage import SESSION, FakeSession, OperatorStage, clients_of

MOST_BYTES = 200_000
"""What a page may have (the console's budget)."""


def many(servers: int, tools: int) -> OperatorStage:
    names = [f"s{number}" for number in range(servers)]
    stage = Stage(config_of({"mcpServers": {name: {"command": name} for name in names}}))
    for name in names:
        stage.lists(name, *(_tool(f"{name}_t{number}") for number in range(tools)))
    return OperatorStage(stage)


def _tool(name: str) -> dict[str, object]:
    return {"name": name, "description": "x" * 500, "inputSchema": {"type": "object"}}


def rows_of(values: Mapping[str, object]) -> list[str]:
    return [each for each in values if each.startswith("tool-")]


async def test_categories_are_shown_with_counts_and_no_tools() -> None:
    values = await values_of(TOOLS_PAGE, viewer_of(OperatorStage().context()))
    counts = {each["name"]: each["tools"] for each in values["category-list"]["categories"]}
    assert counts == {"alpha": 2, "beta": 2}
    assert not rows_of(values)


async def test_a_tool_is_switched_by_the_command_and_what_is_off_is_counted() -> None:
    async with running() as daemon:
        daemon.list("git", raw("log"), raw("push"))
        told = str(await SWITCH_TOOL.act(viewer_of(daemon.context), {"disable": "git/log"}))
        assert told.startswith("git/log: switched off")
        values = await values_of(TOOLS_PAGE, viewer_of(daemon.context))
        category = values["category-list"]["categories"][0]
        assert (category["name"], category["tools"], category["off"]) == ("c", 2, 2)
        page = await drawn(TOOLS_PAGE, viewer_of(daemon.context, query="category=c"))
        assert "switched off by an operator" in page.text
        assert "switched off in the configuration" in page.text
        viewer = viewer_of(daemon.context)
        told = str(await SWITCH_TOOL.act(viewer, {"enable": "git/log"}))
        assert told.startswith("git/log: switched on")
        assert ("git", "log") not in daemon.switched


async def test_a_category_of_many_tools_has_pages() -> None:
    context = many(1, PER_PAGE + 1).context()
    first = await values_of(TOOLS_PAGE, viewer_of(context, query="category=s0"))
    last = await values_of(TOOLS_PAGE, viewer_of(context, query="category=s0&page=2"))
    assert (len(rows_of(first)), len(rows_of(last))) == (PER_PAGE, 1)
    assert (first["notes"]["before"], first["notes"]["after"]) == ("", "/tools?category=s0&page=2")
    assert (last["notes"]["before"], last["notes"]["after"]) == ("/tools?category=s0&page=1", "")
    for word in ("x", "-1", "9" * 20):
        assert "notes" in await values_of(TOOLS_PAGE, viewer_of(context, query=f"category=s0&page={word}"))


async def test_thousands_of_tools_stay_within_the_budget() -> None:
    context = many(10, PER_PAGE).context()
    for query in ("", "category=s1", "server=s1", "q=t1"):
        page = await drawn(TOOLS_PAGE, viewer_of(context, query=query))
        assert len(page.html.encode()) < MOST_BYTES


async def test_a_search_finds_what_a_model_finds() -> None:
    page = await drawn(TOOLS_PAGE, viewer_of(OperatorStage().context(), query="q=echo"))
    assert "/ui/tools/alpha/echo" in page.links
    assert "score" in page.text
    none = await drawn(TOOLS_PAGE, viewer_of(OperatorStage().context(), query="q=xyzzy&category=gone"))
    assert "gone" in none.text


# --- the page of one tool ------------------------------------------------------------------------------------


SCHEMA = {
    "type": "object", "properties": {"<b>path</b>": {"type": ["string", "null"], "description": HOSTILE},
    "depth": {"enum": [1, 2], "default": 1}, "free": True}, "required": ["depth"],
}  # fmt: skip


async def test_what_a_server_does_not_say_is_not_put_into_its_mouth() -> None:
    stage = OperatorStage()
    hints = {"reads": {"readOnlyHint": True}, "adds": {"destructiveHint": False}}
    hinted = (described(name, inputSchema=SCHEMA, annotations=each) for name, each in hints.items())
    stage.stage.lists("alpha", *hinted, "echo")
    silent = await drawn(TOOL_PAGE, viewer_of(stage.context(), server="alpha", tool="echo"))
    assert "Its server does not say. Clients assume that it may destroy something" in silent.text
    assert "Its server says that it" not in silent.text
    said = await drawn(TOOL_PAGE, viewer_of(stage.context(), server="alpha", tool="reads"))
    assert "Its server says that itonly reads" in said.text
    for tool, destroys in (("echo", True), ("reads", False), ("adds", False)):
        values = await values_of(TOOL_PAGE, viewer_of(stage.context(), server="alpha", tool=tool))
        assert values["tool-call"]["destructive"] is destroys


async def test_the_type_of_what_a_tool_returns_is_shown_once_it_was_observed() -> None:
    stage = OperatorStage()
    viewer = viewer_of(stage.context(), server="alpha", tool="echo")
    assert "as observed" not in (await drawn(TOOL_PAGE, viewer)).text
    known = stage.stage.catalog.value.servers["alpha"].tools or {}
    stage.stage.observed.know({known["echo"].schema_hash: b'{"id":"int"}'})
    page = await drawn(TOOL_PAGE, viewer)
    assert 'What it returns, as observed {"id": int}' in " ".join(page.text.split())
    assert page.is_harmless()


async def test_sessions_that_have_loaded_it_are_named_with_the_status() -> None:
    stage = OperatorStage()
    held = LoadedTool(key=("alpha", "echo"), schema_hash="old", epoch=1, source=Source.MANUAL, at=5.0)
    loaded = Loaded({held.key: held})
    record = SessionRecord(key="/home/me", loaded=loaded, client="me 1")
    live = FakeSession(attrs.evolve(SESSION, key=None, own=SessionState(None, loaded)))
    context = stage.context(clients=clients_of(live, in_use=[(record, 1)]))
    viewer = viewer_of(context, server="alpha", tool="echo")
    assert "nobody is connected" not in (await drawn(TOOL_PAGE, viewer)).text
    sessions = (await values_of(TOOL_PAGE, viewer))["tool-loaded"]
    assert [each["session"] for each in sessions["sessions"]] == ["/home/me", "#3"]
    assert {each["status"] for each in sessions["sessions"]} == {"invalid_changed"}


@pytest.mark.parametrize(
    ("page", "query", "path", "said"),
    [
        (TOOLS_PAGE, "category=gone", {}, "gone"),
        (TOOLS_PAGE, "server=gone", {}, "gone"),
        (TOOL_PAGE, "", {"server": "alpha", "tool": "ehco"}, "ehco"),
        (SERVER, "", {"server": "alhpa"}, "alhpa"),
        (SESSION_PAGE, "", {"session": "nobody"}, "no session is named"),
    ],
)
async def test_what_is_gone_has_no_page(page: ConsolePage, query: str, path: dict[str, Any], said: str) -> None:
    with pytest.raises(McpdError, match=said):
        await page.fragments(viewer_of(OperatorStage().context(), query=query, **path))


async def test_a_form_that_names_nothing_is_refused_and_one_that_changes_nothing_says_so() -> None:
    viewer = viewer_of(OperatorStage().context())
    with pytest.raises(InvalidArguments, match="SERVER/TOOL"):
        await SWITCH_TOOL.act(viewer, {"disable": "alpha"})
    with pytest.raises(InvalidArguments, match="1 to 4096"):
        await DESCRIBE_TOOL.act(viewer, {"tool": "alpha/echo", "text": " "})
    told = await DESCRIBE_TOOL.act(viewer, {"tool": "alpha/echo", "reset": "1"})
    assert told == "alpha/echo has its server's own description already"


@cases("schema")
async def test_a_schema_that_says_anything_makes_a_form(schema: object) -> None:
    stage = OperatorStage()
    stage.stage.lists("alpha", {"name": "one", "inputSchema": {"type": "object"}})
    context = stage.context()
    known = context.catalog.servers["alpha"].all_tools["one"]
    definition = {**msgspec.json.decode(known.raw), "inputSchema": schema}
    fields = tool_pages._fields(definition)
    page = await drawn(TOOL_PAGE, viewer_of(context, server="alpha", tool="one"))
    assert page.is_harmless()
    properties = schema.get("properties") if isinstance(schema, dict) else None
    assert [each["name"] for each in fields] == (list(properties) if isinstance(properties, dict) else [])


def test_a_form_has_so_many_fields_and_choices_at_most_and_says_what_is_required() -> None:
    choice, text = {"enum": ["x", *range(MAX_ARGUMENTS)]}, {"type": "string"}
    one, other = tool_pages._fields(
        {"inputSchema": {"properties": {"a": choice, "b": text}, "required": ["b"]}}
    )
    assert (one["as"], one["choices"][:2], len(one["choices"])) == ("choice", ["x", "0"], MAX_ARGUMENTS)
    assert [each["required"] for each in (one, other)] == [False, True]
    many = {str(number): text for number in range(MAX_ARGUMENTS + 1)}
    assert tool_pages._fields({"inputSchema": {"properties": many}}) == []


@cases("member", "value", "meant")
def test_a_field_means_what_its_schema_says(member: object, value: str, meant: object) -> None:
    assert tool_pages._meant(member, value) == meant


async def test_a_form_of_a_tool_that_has_changed_or_with_a_field_that_is_no_json_calls_nothing() -> None:
    stage = OperatorStage()
    stage.stage.lists("alpha", {"name": "one", "inputSchema": {"type": "object", "properties": {"x": {}}}})
    context = stage.context()
    fields = {"hash": context.entry_of("alpha").all_tools["one"].schema_hash, "argument-0": "[" * 100_000}
    viewer = viewer_of(context, server="alpha", tool="one")
    with pytest.raises(InvalidArguments, match="x is not JSON"):  # it is nested too deeply
        await CALL_TOOL.act(viewer, fields)
    with pytest.raises(InvalidArguments, match="alpha/one has changed since its form was shown"):
        await CALL_TOOL.act(viewer, {"hash": "of-another-form"})


async def test_a_call_that_fails_is_told_as_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = OperatorStage()
    stage.stage.lists("alpha", {"name": "one", "inputSchema": {"type": "object"}})
    context = stage.context()
    known = context.entry_of("alpha").all_tools["one"]
    for is_error in (True, False):

        async def call(*_: object, is_error: bool = is_error) -> msgspec.Raw:
            return msgspec.Raw(msgspec.json.encode({"content": [], "isError": is_error}))

        monkeypatch.setattr("daemon.console.pages.tool_pages.call", call)
        told = await CALL_TOOL.act(viewer_of(context, server="alpha", tool="one"), {"hash": known.schema_hash})
        assert isinstance(told, Notice)
        assert told.is_error is is_error
