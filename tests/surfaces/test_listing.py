"""Tools of servers in a list of ours: marked for clients that hide tools, and otherwise as they were."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.surfaces.listing import always_loaded, as_listed
from tests.catalog.samples import after, catalog_of, listed, status, tool
from tests.surfaces.samples import view_of

MARK = {"anthropic/alwaysLoad": True}


def test_a_definition_keeps_the_bytes_of_its_server_and_gets_one_member_more() -> None:
    raw = b'{ "name" : "x",  "inputSchema": {"type":"object", "n": 1.50}\n}'
    marked = always_loaded(raw)
    assert marked.startswith(raw[:-1])
    assert json.loads(marked) == {**json.loads(raw), "_meta": MARK}


@pytest.mark.parametrize(
    ("said", "merged"),
    [
        ({"vendor/a": [1, {"b": None}]}, {"vendor/a": [1, {"b": None}], **MARK}),
        ({}, MARK),
        (None, MARK),
        ({"anthropic/alwaysLoad": False, "x": 1}, {**MARK, "x": 1}),
        (7, 7),
        ([MARK], [MARK]),
    ],
)
def test_what_a_server_says_in_its_meta_is_kept(said: object, merged: object) -> None:
    raw = json.dumps({"name": "x", "_meta": said, "inputSchema": {"type": "object"}}).encode()
    assert json.loads(always_loaded(raw)) == {**json.loads(raw), "_meta": merged}


@pytest.mark.parametrize("key", [b'"_meta"', b'"\\u005fmeta"', b'"_met\\u0061"'])
def test_a_meta_is_found_however_it_is_written_and_stays_the_only_one(key: bytes) -> None:
    marked = always_loaded(b'{"name":"x",%b:{"big":123456789012345678901234567890}}' % key)
    pairs = json.loads(marked, object_pairs_hook=list)
    assert [name for name, _ in pairs] == ["name", "_meta"]
    assert b"123456789012345678901234567890" in marked


def test_a_meta_that_stands_deeper_is_none() -> None:
    raw = b'{"name":"x","inputSchema":{"type":"object","properties":{"_meta":{"type":"string"}}}}'
    assert json.loads(always_loaded(raw))["_meta"] == MARK
    assert json.loads(always_loaded(raw))["inputSchema"] == json.loads(raw)["inputSchema"]


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)))
def test_nothing_but_the_mark_is_added_whatever_else_there_is(members: dict[str, object]) -> None:
    raw = json.dumps({**members, "name": "x"}).encode()
    found = json.loads(always_loaded(raw))
    said = members.get("_meta")
    expected = said if said is not None and not isinstance(said, dict) else MARK
    assert found == {**members, "name": "x", "_meta": expected}


def test_a_tool_that_is_called_like_a_meta_tool_is_listed_under_its_other_name() -> None:
    catalog = after(
        catalog_of({"mcpServers": {"git": {"command": "git"}}}),
        [status("git"), listed("git", tool("git", "call_tool"))],
    )
    view = view_of(catalog)
    (offered,) = view.offer.tools.values()
    shown = json.loads(as_listed(view, offered, ("call_tool",)))
    assert (shown["name"], shown["_meta"]) == ("git__call_tool", MARK)
    assert "_meta" not in json.loads(offered.tool.raw)
