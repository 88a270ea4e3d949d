"""The call tool for tools that only read: what its server says so of and nobody is asked about, and no more."""

import json
from typing import Any

import attrs
import msgspec
import pytest

from daemon import errors
from daemon.catalog.snapshot import Catalog
from daemon.surfaces.additions import READ as READING_READ
from daemon.surfaces.additions import as_tool_result
from daemon.surfaces.surface import AwaitListing
from daemon.surfaces.table import META_TOOLS, SURFACES
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool, up
from tests.unit.surfaces.samples import READING, act, forwarded, listed_names, refused, view_of

READ = {"readOnlyHint": True}
NAMES = {
    "category": ("call-category-tool", "call-read-only-tool"),
    "browse": ("call_tool", "call_read_only_tool"),
    "search": ("call_tool", "call_read_only_tool"),
}
ADDED = 356
"""Bytes of the tool in a list: some ninety tokens, for telling reads from writes in each call."""


def ruled(*rules: Any, **profile: Any) -> Catalog:
    """Two servers that have listed, under a profile with these rules."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    read = tool("fs", "read", annotations=READ, inputSchema=schema)
    add = tool("fs", "add", annotations={"destructiveHint": False})
    log = tool("git", "log", annotations={**READ, "destructiveHint": True})
    config = {"profiles": {"default": {"permissions": list(rules), **profile}}}
    return up(config, fs=[read, "write", add], git=[log])


def call(
    surface: str, name: str, tool: str, args: Any = None, server: str = "fs"
) -> tuple[str, dict[str, Any]]:
    args = {"path": "/x"} if args is None else args
    if surface == "category":
        return name, {"category": "fs", "name": tool, "args": args}
    return name, {"tool_name": tool, "arguments": args}


@pytest.mark.parametrize("surface", NAMES)
def test_both_call_tools_say_what_they_do(surface: str) -> None:
    tools = [json.loads(each) for each in SURFACES[surface].list_tools(view_of(ruled()))]
    hints = {each["name"]: each["annotations"] for each in tools}
    general, reading = NAMES[surface]
    assert hints[general] == {"destructiveHint": True}
    assert hints[reading] == READ
    by_name = {each["name"]: each["inputSchema"] for each in tools}
    assert by_name[general]["required"] == by_name[reading]["required"]
    assert by_name[general]["properties"].keys() == by_name[reading]["properties"].keys()


@pytest.mark.parametrize("surface", NAMES)
def test_the_list_grows_by_little_and_not_where_a_profile_wants_none(surface: str) -> None:
    with_it, without = view_of(ruled()), view_of(ruled(readOnlyCall=False))
    long, short = (SURFACES[surface].list_tools(view) for view in (with_it, without))
    assert len(long) == len(short) + 1
    assert sum(map(len, long)) - sum(map(len, short)) <= ADDED
    assert SURFACES[surface].list_tools(with_it) == long
    reading = NAMES[surface][1]
    assert reading in SURFACES[surface].meta_tools
    assert reading in META_TOOLS
    assert listed_names(READING[surface], with_it)[: len(SURFACES[surface].meta_tools) + 1][-2:] == [
        reading,
        "read_resource",
    ]
    refused(SURFACES[surface], without, *call(surface, reading, "read"), errors.UnknownTool)


@pytest.mark.parametrize("surface", NAMES)
@pytest.mark.parametrize("repair", [{"path": "/x"}, '{"path": "/x"}', {"arguments": {"path": "/x"}}])
def test_what_only_reads_goes_where_the_general_tool_would_send_it(surface: str, repair: Any) -> None:
    general, reading = NAMES[surface]
    view = view_of(ruled())
    plain = act(SURFACES[surface], view, *call(surface, general, "read", repair))
    same = forwarded(SURFACES[surface], view, *call(surface, reading, "read", repair))
    assert same == plain
    assert json.loads(bytes(same.arguments)) == {"path": "/x"}


@pytest.mark.parametrize("surface", NAMES)
@pytest.mark.parametrize("name", ["write", "add"])
def test_what_may_write_is_refused_with_the_tool_to_call(name: str, surface: str) -> None:
    general, reading = NAMES[surface]
    error = refused(SURFACES[surface], view_of(ruled()), *call(surface, reading, name), errors.InvalidArguments)
    assert f"Call {general} with the same arguments" in error.message
    assert error.details == {"tool": name, "server": "fs", "call": general}


@pytest.mark.parametrize("surface", NAMES)
def test_what_an_operator_says_counts_before_what_a_server_says(surface: str) -> None:
    reading = NAMES[surface][1]
    asks, denies = ({"match": "fs/read", "then": then} for then in ("ask", "deny"))
    error = refused(
        SURFACES[surface], view_of(ruled(asks)), *call(surface, reading, "read"), errors.InvalidArguments
    )
    assert "has the user asked about it" in error.message
    refused(SURFACES[surface], view_of(ruled(denies)), *call(surface, reading, "read"), errors.ToolDisabled)


@pytest.mark.parametrize("surface", NAMES)
def test_a_tool_that_no_longer_only_reads_has_changed(surface: str) -> None:
    reading = NAMES[surface][1]
    before = ruled()
    shown = before.servers["fs"].all_tools["read"].schema_hash
    now = after(before, [listed("fs", tool("fs", "read"), "write")])
    view = attrs.evolve(view_of(now), shown=lambda _key: shown)
    refused(SURFACES[surface], view, *call(surface, reading, "read"), errors.ToolChanged)


@pytest.mark.parametrize("surface", NAMES)
def test_a_server_that_has_not_listed_is_waited_for(surface: str) -> None:
    view = view_of(catalog_of({"mcpServers": servers("fs")}))
    action = SURFACES[surface].call(view, *_encoded(call(surface, NAMES[surface][1], "fs/read")), patient=True)
    assert isinstance(action, AwaitListing)


def test_a_tool_that_nothing_is_known_of_is_not_taken_to_read() -> None:
    view = view_of(catalog_of({"mcpServers": servers("fs")}))
    called = call("category", "call-read-only-tool", "read")
    error = refused(SURFACES["category"], view, *called, errors.InvalidArguments, patient=False)
    assert "has not listed it yet" in error.message


def _encoded(called: tuple[str, dict[str, Any]]) -> tuple[str, bytes]:
    return called[0], json.dumps(called[1]).encode()


# --- what is denied, on all surfaces -------------------------------------------------------------------------


@pytest.mark.parametrize("surface", [*NAMES, "load", "full"])
def test_what_is_denied_can_be_neither_seen_nor_called(surface: str) -> None:
    view = view_of(ruled({"match": "fs/write", "then": "deny"}, autoLoad=True, coreTools=["fs/write"]))
    assert "write" not in b"".join(SURFACES[surface].list_tools(view)).decode()
    name, arguments = (
        ("write", {}) if surface in {"load", "full"} else call(surface, NAMES[surface][0], "write")
    )
    error = refused(SURFACES[surface], view, name, arguments, errors.ToolDisabled)
    assert "a permission rule in profile default" in error.message


@cases("surface", "name", "arguments")
def test_what_is_denied_is_described_nowhere(surface: str, name: str, arguments: Any) -> None:
    shown, hidden = (view_of(ruled(*rules)) for rules in ((), ({"match": "fs/write", "then": "deny"},)))
    for view, there in ((shown, True), (hidden, False)):
        answer = json.loads(act(SURFACES[surface], view, name, arguments).result)  # type: ignore[union-attr]
        assert ('"write"' in json.dumps(answer["structuredContent"])) == there


def test_a_category_does_not_call_what_it_cannot_judge() -> None:
    rules = [{"annotations": {"destructive": True}, "then": "deny"}]
    config = {"mcpServers": servers("fs"), "profiles": {"default": {"permissions": rules}}}
    view = view_of(after(catalog_of(config), [status("fs")]))
    called = call("category", "call-category-tool", "write")
    refused(SURFACES["category"], view, *called, errors.UpstreamUnavailable, patient=False)


# --- `read_resource`: a resource as the result of a tool, for clients that read none themselves --------------


UP = up({"profiles": {"default": {"coreTools": ["git/log"]}}}, git=["log"], docs=["find"])


@pytest.mark.parametrize("name", SURFACES)
def test_it_stands_between_a_surfaces_meta_tools_and_the_tools_of_servers(name: str) -> None:
    plain, reading = listed_names(SURFACES[name], view_of(UP)), listed_names(READING[name], view_of(UP))
    place = len(plain) - len(SURFACES[name].listed(view_of(UP)))
    assert reading == [*plain[:place], READING_READ, *plain[place:]]
    assert READING[name].name == name
    assert READING_READ in READING[name].meta_tools
    assert READING_READ in META_TOOLS


def test_a_resource_is_read_from_the_server_that_has_it() -> None:
    action = forwarded(READING["category"], view_of(UP), READING_READ, {"uri": "mcpd://docs/notes%3A1"})
    assert (action.server, action.method, action.name) == ("docs", "resources/read", "notes:1")
    assert json.loads(b"{" + action.head + bytes(action.arguments) + b"}") == {"uri": "notes:1"}
    assert action.convert is as_tool_result


def test_a_resource_that_a_result_has_linked_to_is_read_there() -> None:
    view = attrs.evolve(view_of(UP), linked={"blob:1": "git"})
    action = forwarded(READING["load"], view, READING_READ, {"uri": "blob:1"})
    assert (action.server, action.name) == ("git", "blob:1")


def test_a_resource_that_nobody_has_is_refused_with_what_helps() -> None:
    error = refused(READING["category"], view_of(UP), READING_READ, {"uri": "blob:1"}, errors.UnknownResource)
    assert "mcpd://SERVER/URI" in error.message
    refused(READING["category"], view_of(UP), READING_READ, {}, errors.InvalidArguments)


def test_other_calls_go_to_the_surface() -> None:
    action = forwarded(READING["full"], view_of(UP), "log", {"x": 1})
    assert (action.server, action.name, action.convert) == ("git", "log", None)


@cases("contents", "content")
def test_contents_become_content(contents: list[Any], content: list[Any]) -> None:
    told = json.loads(as_tool_result(msgspec.json.encode({"contents": contents, "more": 1})))
    assert told == {"content": content, "isError": False}


@pytest.mark.parametrize("result", [b"{}", b"[]", b'{"contents":[1]}', b'{"contents":7}'])
def test_a_result_that_is_none_of_a_resource_is_passed_on(result: bytes) -> None:
    assert as_tool_result(result) == result
