"""What is derived beside tools is derived again only where something has changed."""

from __future__ import annotations

from daemon.catalog.snapshot import NO_LISTS, claims, switched_on
from daemon.model import Kind
from tests.unit.catalog.samples import (
    after,
    catalog_of,
    prompts,
    resources,
    servers,
    status,
    switched,
    templates,
)

BEGUN = catalog_of({"mcpServers": servers("a", "b")})
UP = after(BEGUN, [prompts("a", "plan"), resources("a", "x:1"), templates("a", "x:{n}"), prompts("b", "plan")])


def test_nothing_is_on_before_anything_is_known() -> None:
    assert switched_on(BEGUN.servers, frozenset(), NO_LISTS) is NO_LISTS


def test_the_lists_are_the_same_object_until_something_in_them_changes() -> None:
    assert after(UP, [status("a"), prompts("a", "plan"), prompts("a", problem="late")]).lists is UP.lists
    changed = after(UP, [prompts("a", "plan", "review")])
    assert changed.lists is not UP.lists
    assert changed.lists[Kind.RESOURCE]["a"] is UP.lists[Kind.RESOURCE]["a"]
    assert changed.lists[Kind.PROMPT]["b"] is UP.lists[Kind.PROMPT]["b"]


def test_what_is_off_is_left_out_of_its_own_kind_alone() -> None:
    off = after(UP, [switched("a/prompt:plan", "a/resource:x:{n}")])
    assert off.lists[Kind.PROMPT] == {"a": {}, "b": UP.lists[Kind.PROMPT]["b"]}
    assert list(off.lists[Kind.TEMPLATE]["a"]) == ["x:{n}"]
    assert after(off, [switched("a")]).lists[Kind.PROMPT].keys() == {"b"}


def test_resources_and_templates_share_their_names_and_those_that_have_some_are_told_apart() -> None:
    of_uris = list(claims(UP.servers, (Kind.RESOURCE, Kind.TEMPLATE), UP.servers))
    assert [list(each.own) for each in of_uris] == [["x:1", "x:{n}"], []]
    assert [each.named for each in of_uris] == [True, True]
    more = after(UP, [resources("a", "x:1", "x:2")])
    assert [each.named for each in claims(more.servers, (Kind.RESOURCE,), UP.servers)] == [False, True]


def test_a_name_may_still_change_until_the_first_list_of_an_earlier_server_has_come() -> None:
    catalog = after(BEGUN, [status("a"), status("b"), prompts("b", "plan")])
    assert catalog.names_of(Kind.PROMPT).name_of(("b", "plan")) == "plan"
    assert catalog.names_of(Kind.PROMPT).provisional == {("b", "plan")}
    both = after(catalog, [prompts("a", "plan")])
    assert both.names_of(Kind.PROMPT).owners == {"plan": ("a", "plan"), "b__plan": ("b", "plan")}
    assert after(catalog, [prompts("a", problem="never")]).names_of(Kind.PROMPT).provisional == frozenset()
