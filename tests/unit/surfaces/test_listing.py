"""Tools of servers in a list of ours: marked for clients that hide tools, and otherwise as they were."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.facts import Fact
from daemon.surfaces import calling
from daemon.surfaces.search import SearchSurface
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status
from tests.unit.json_values import json_values
from tests.unit.surfaces.samples import means_of, view_of

MARK = {"anthropic/alwaysLoad": True}


def test_a_definition_keeps_the_bytes_of_its_server_and_gets_one_member_more() -> None:
    raw = b'{ "name" : "x",  "inputSchema": {"type":"object", "n": 1.50}\n}'
    marked = calling.always_loaded(raw)
    assert marked.startswith(raw[:-1])
    assert json.loads(marked) == {**json.loads(raw), "_meta": MARK}


@cases("said", "merged")
def test_what_a_server_says_in_its_meta_is_kept(said: object, merged: object) -> None:
    raw = json.dumps({"name": "x", "_meta": said, "inputSchema": {"type": "object"}}).encode()
    assert json.loads(calling.always_loaded(raw)) == {**json.loads(raw), "_meta": merged}


@pytest.mark.parametrize("key", [b'"_meta"', b'"\\u005fmeta"', b'"_met\\u0061"'])
def test_a_meta_is_found_however_it_is_written_and_stays_the_only_one(key: bytes) -> None:
    marked = calling.always_loaded(b'{"name":"x",%b:{"big":123456789012345678901234567890}}' % key)
    pairs = json.loads(marked, object_pairs_hook=list)
    assert [name for name, _ in pairs] == ["name", "_meta"]
    assert b"123456789012345678901234567890" in marked


@given(st.dictionaries(st.text(), json_values(), max_size=4))
def test_nothing_but_the_mark_is_added_whatever_else_there_is(members: dict[str, object]) -> None:
    raw = json.dumps({**members, "name": "x"}).encode()
    found = json.loads(calling.always_loaded(raw))
    said = members.get("_meta")
    expected = said if said is not None and not isinstance(said, dict) else MARK
    assert found == {**members, "name": "x", "_meta": expected}


NUMBERED = [f"t{number:02}" for number in range(20)]
CONFIG: dict[str, Any] = {
    "mcpServers": servers("a", "b"),
    "categories": {
        "as": {"server": "a", "tools": {"overrides": {"off": {"enabled": False}}}},
        "bs": {"server": "b"},
    },
    "profiles": {
        "few": {"categories": ["as"], "excludedTools": ["t00"]},
        "none": {"coreTools": []},
        "named": {"coreTools": ["b/only", "t01"]},
    },
}
BEFORE = catalog_of(CONFIG)
UP = after(BEFORE, [status("a"), status("b"), listed("a", *NUMBERED, "off"), listed("b", "only")])


def usual(*called: tuple[str, str], profile: str = "default", catalog: Any = UP) -> list[str]:
    means = means_of(catalog, called=called)
    return [tool for _server, tool in calling.usual_tools(means, catalog, catalog.config.profiles[profile])]


def test_the_seven_tools_called_most_are_chosen_in_the_order_of_their_names() -> None:
    called = [("a", name) for name in reversed(NUMBERED)]
    assert usual(*called) == NUMBERED[-calling.MOST_USUAL :]
    assert calling.MOST_USUAL == 7


def test_only_what_the_profile_shows_is_chosen() -> None:
    called = [("a", "off"), ("b", "only"), ("a", "t00"), ("a", "gone"), ("left", "t01"), ("a", "t02")]
    assert usual(*called, profile="few") == ["t02"]
    assert usual(*called) == ["t00", "t02", "only"]


def test_what_a_server_will_list_is_chosen_and_waited_for() -> None:
    assert usual(("b", "only"), ("a", "off"), catalog=BEFORE) == ["only"]
    view = view_of(BEFORE, usual=[("b", "only")])
    assert (list(calling.core_tools(view)), list(calling.core_names(view, ()))) == ([], ["only"])
    assert SearchSurface().awaits(view) == ("b",)


@pytest.mark.parametrize(("profile", "references"), [("none", []), ("named", ["b/only", "t01"])])
def test_a_profile_that_names_core_tools_has_these_and_no_others(profile: str, references: list[str]) -> None:
    view = view_of(UP, profile, usual=[("a", "t05")])
    assert list(calling.core_references(view)) == references
    assert [each.name for each in calling.core_tools(view)] == [name.removeprefix("b/") for name in references]


def test_until_a_tool_was_called_the_core_tools_are_those_of_the_source_as_far_as_servers_have_them() -> None:
    facts: list[Fact] = [status("s"), listed("s", "list_dir", "find_file", "rm")]
    catalog = after(catalog_of({"mcpServers": servers("s")}), facts)
    profile = catalog.config.profiles["default"]
    assert calling.usual_tools(means_of(catalog), catalog, profile) == (("s", "find_file"), ("s", "list_dir"))
    assert calling.usual_tools(means_of(catalog, called=[("s", "rm")]), catalog, profile) == (("s", "rm"),)
