"""`read_resource`: a resource as the result of a tool, for clients that read none themselves."""

from __future__ import annotations

import json
from typing import Any

import attrs
import msgspec
import pytest

from daemon.errors import InvalidArguments, UnknownResource
from daemon.surfaces.additions import READ, as_tool_result
from daemon.surfaces.surface import Forward
from daemon.surfaces.table import META_TOOLS, READING, SURFACES
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status
from tests.unit.surfaces.samples import act, listed_names, refused, view_of

CONFIG = {"mcpServers": servers("git", "docs"), "profiles": {"default": {"coreTools": ["git/log"]}}}
UP = after(catalog_of(CONFIG), [status("git"), status("docs"), listed("git", "log"), listed("docs", "find")])


@pytest.mark.parametrize("name", SURFACES)
def test_it_stands_between_a_surfaces_meta_tools_and_the_tools_of_servers(name: str) -> None:
    plain, reading = listed_names(SURFACES[name], view_of(UP)), listed_names(READING[name], view_of(UP))
    place = len(plain) - len(SURFACES[name].listed(view_of(UP)))
    assert reading == [*plain[:place], READ, *plain[place:]]
    assert READING[name].name == name
    assert READ in READING[name].meta_tools
    assert READ in META_TOOLS


def test_a_resource_is_read_from_the_server_that_has_it() -> None:
    action = act(READING["category"], view_of(UP), READ, {"uri": "mcpd://docs/notes%3A1"})
    assert isinstance(action, Forward)
    assert (action.server, action.method, action.name) == ("docs", "resources/read", "notes:1")
    assert json.loads(b"{" + action.head + bytes(action.arguments) + b"}") == {"uri": "notes:1"}
    assert action.convert is as_tool_result


def test_a_resource_that_a_result_has_linked_to_is_read_there() -> None:
    view = attrs.evolve(view_of(UP), linked={"blob:1": "git"})
    action = act(READING["load"], view, READ, {"uri": "blob:1"})
    assert isinstance(action, Forward)
    assert (action.server, action.name) == ("git", "blob:1")


def test_a_resource_that_nobody_has_is_refused_with_what_helps() -> None:
    error = refused(READING["category"], view_of(UP), READ, {"uri": "blob:1"}, UnknownResource)
    assert "mcpd://SERVER/URI" in error.message
    refused(READING["category"], view_of(UP), READ, {}, InvalidArguments)


def test_other_calls_go_to_the_surface() -> None:
    action = act(READING["full"], view_of(UP), "log", {"x": 1})
    assert isinstance(action, Forward)
    assert (action.server, action.name, action.convert) == ("git", "log", None)


@pytest.mark.parametrize(
    ("contents", "content"),
    [
        ([], []),
        ([{"uri": "a", "text": "é"}], [{"type": "text", "text": "é"}]),
        (
            [{"uri": "a", "blob": "AA==", "mimeType": "image/png"}],
            [{"type": "image", "data": "AA==", "mimeType": "image/png"}],
        ),
        (
            [{"uri": "a", "blob": "AA==", "mimeType": "audio/wav"}],
            [{"type": "audio", "data": "AA==", "mimeType": "audio/wav"}],
        ),
        (
            [{"uri": "a", "blob": "AA==", "mimeType": "x/y"}],
            [{"type": "resource", "resource": {"uri": "a", "blob": "AA==", "mimeType": "x/y"}}],
        ),
    ],
)
def test_contents_become_content(contents: list[Any], content: list[Any]) -> None:
    told = json.loads(as_tool_result(msgspec.json.encode({"contents": contents, "more": 1})))
    assert told == {"content": content, "isError": False}


@pytest.mark.parametrize("result", [b"{}", b"[]", b'{"contents":[1]}', b'{"contents":7}'])
def test_a_result_that_is_none_of_a_resource_is_passed_on(result: bytes) -> None:
    assert as_tool_result(result) == result
