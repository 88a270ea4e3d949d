"""Prompts, resources and templates are shown as their servers wrote them, by names that are theirs alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.catalog.offer import Offer, Offers
from daemon.config.config_model import Profile
from daemon.model import Kind
from tests.unit.catalog.samples import (
    after,
    catalog_of,
    definition,
    listed,
    prompts,
    resources,
    servers,
    status,
    switched,
    templates,
)

if TYPE_CHECKING:
    from daemon.facts import Fact

TWO = catalog_of({"mcpServers": servers("a", "b")})
BOTH = after(TWO, [prompts("a", "plan"), prompts("b", "plan", "review"), resources("a", "file:///x")])


def names(kind: Kind, catalog: Any = BOTH, **profile: Any) -> list[str]:
    return list(Offer(catalog, Profile(name="p", **profile)).definitions(kind))


def test_all_are_offered_once_in_the_servers_order_and_the_second_owner_s_is_qualified() -> None:
    assert names(Kind.PROMPT) == ["plan", "b__plan", "review"]
    assert names(Kind.RESOURCE) == ["file:///x"]
    assert names(Kind.TEMPLATE) == []


def test_a_definition_is_listed_byte_for_byte_unless_its_name_differs() -> None:
    offer = Offer(BOTH, Profile(name="p"))
    shown = offer.definitions(Kind.PROMPT)
    assert shown["plan"].listed() is shown["plan"].definition.raw
    assert json.loads(shown["b__plan"].listed()) == {"name": "b__plan"}
    more = definition(Kind.RESOURCE, "b", "file:///x", size=1.0, _meta={"k": [1]})
    second = after(BOTH, [resources("b", more)])
    (_, theirs) = Offer(second, Profile(name="p")).definitions(Kind.RESOURCE).values()
    assert theirs.listed() == (
        b'{"name":"file:///x","uri":"mcpd://b/file%3A%2F%2F%2Fx","size":1.0,"_meta":{"k":[1]}}'
    )


def test_hidden_characters_are_spelt_out_and_noted() -> None:
    hiding = definition(Kind.PROMPT, "a", "plan", title="do\u202ethis", description="plain")
    (shown,) = Offer(after(TWO, [prompts("a", hiding)]), Profile(name="p")).definitions(Kind.PROMPT).values()
    told = json.loads(shown.listed())
    assert told["title"] == r"do\u{202e}this"
    assert told["description"].startswith("plain\n[mcpd: this definition has hidden characters")
    assert shown.definition.raw == hiding.raw


@pytest.mark.parametrize(
    ("profile", "kinds"),
    [
        ({}, {Kind.PROMPT, Kind.RESOURCE}),
        ({"prompts": False}, {Kind.RESOURCE}),
        ({"resources": False}, {Kind.PROMPT}),
    ],
)
def test_a_profile_may_do_without(profile: dict[str, Any], kinds: set[Kind]) -> None:
    assert {kind for kind in (Kind.PROMPT, Kind.RESOURCE, Kind.TEMPLATE) if names(kind, **profile)} == kinds


def test_a_profile_with_categories_offers_those_of_the_servers_that_they_draw_from() -> None:
    config = {"mcpServers": servers("a", "b"), "categories": {"c": {"server": "b", "description": "b's"}}}
    facts: list[Fact] = [listed("a", "t"), listed("b", "u"), prompts("a", "x"), prompts("b", "y")]
    catalog = after(catalog_of(config), facts)
    assert names(Kind.PROMPT, catalog, categories=("c",)) == ["y"]
    assert names(Kind.PROMPT, catalog, categories=()) == []
    assert names(Kind.PROMPT, catalog) == ["x", "y"]


def test_what_is_switched_off_is_not_offered_and_keeps_its_name() -> None:
    off = after(BOTH, [switched("b/prompt:plan")])
    assert names(Kind.PROMPT, off) == ["plan", "review"]
    assert off.servers["b"].epoch == BOTH.servers["b"].epoch + 1
    assert off.servers["a"].epoch == BOTH.servers["a"].epoch
    back = after(off, [switched()])
    assert names(Kind.PROMPT, back) == names(Kind.PROMPT)
    assert names(Kind.PROMPT, after(BOTH, [switched("a")])) == ["b__plan", "review"]


def test_an_offer_is_the_same_until_something_in_it_changes() -> None:
    offers, profile = Offers(), Profile(name="p")
    first = offers.of(BOTH, profile)
    assert offers.of(after(BOTH, [status("a"), prompts("a", "plan")]), profile) is first
    changed = after(BOTH, [prompts("a", definition(Kind.PROMPT, "a", "plan", title="new"))])
    second = offers.of(changed, profile)
    assert second is not first
    assert b"new" in second.definitions(Kind.PROMPT)["plan"].listed()
    assert offers.of(after(changed, [templates("a", "file:///{x}")]), profile) is not second
