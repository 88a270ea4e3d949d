"""The rules of a profile: what it excludes, what it wants although it is off, and what it says of a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.catalog.offer import ProfileRules
from tests.unit.catalog.samples import CONFIG, FACTS, after, catalog_of, switched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.model import Tool


@attrs.frozen
class Made:
    """Rules, and the tools that they are about, by server."""

    made: ProfileRules
    tools: Mapping[str, Mapping[str, Tool]]


def rules_of(*words: str, **profile: Any) -> Made:
    """The rules of a profile once operators have switched `words` off."""
    catalog = after(catalog_of({**CONFIG, "profiles": {"p": profile}}), [*FACTS, switched(*words)])
    rules = ProfileRules(catalog, catalog.config.profiles["p"])
    return Made(rules, {name: entry.tools or {} for name, entry in catalog.servers.items()})


def allowed(rules: Made) -> list[str]:
    """What is let through of each server's list, as it is called if there is only one of that name."""
    return [
        f"{server}__{name}" if (server, name) == ("git", "read") else name
        for server, tools in rules.tools.items()
        for name in rules.made.let_through(server, tools)
    ]


@pytest.mark.parametrize(
    ("profile", "offered"),
    [
        ({"excludedTools": ["read", "mcp__git__log"]}, ["write", "loose"]),
        ({"excludedTools": ["git/read"]}, ["read", "write", "loose", "log"]),
        ({"excludedTools": ["git__read"]}, ["read", "write", "loose", "log"]),
        ({"categories": ["history"], "includedOptionalTools": ["fs/loose"]}, ["loose", "log"]),
        ({"categories": [], "includedOptionalTools": ["shell"]}, ["shell"]),
        ({"categories": [], "includedOptionalTools": ["shell"], "excludedTools": ["fs/shell"]}, []),
    ],
)
def test_excluded_tools_are_not_offered_and_optional_ones_are_a_bare_name_meaning_every_servers(
    profile: dict[str, Any], offered: list[str]
) -> None:
    assert allowed(rules_of(**profile)) == offered


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ({}, "the category's"),
        ({"categories": ["again"]}, "the server's"),
        ({"toolDescriptionOverrides": {"read": "the profile's"}}, "the profile's"),
        ({"toolDescriptionOverrides": {"fs/read": ""}}, ""),
        ({"toolDescriptionOverrides": {"git/read": "not this one"}}, "the category's"),
    ],
)
def test_the_profiles_text_comes_before_the_categorys_and_that_before_the_servers(
    profile: dict[str, Any], text: str
) -> None:
    rules = rules_of(**profile)
    tool = rules.tools["fs"]["read"]
    assert rules.made.describe(tool, rules.made.place(("fs", "read"))[1]) == text


def test_a_switched_off_tool_is_shown_in_no_category_even_if_the_profile_wants_it() -> None:
    words = switched("fs/read", "fs/shell")
    catalog = after(
        catalog_of({**CONFIG, "profiles": {"p": {"includedOptionalTools": ["read", "shell", "write"]}}}),
        [*FACTS, words],
    )
    made = ProfileRules(catalog, catalog.config.profiles["p"])
    shown = {
        category.name: [member.tool for member in category.members.values() if made.shows(member)]
        for category in catalog.categories.values()
    }
    assert shown == {"files": ["write"], "history": ["log"], "again": ["write", "log"]}


def test_a_tool_has_its_place_in_the_first_category_that_has_it_switched_on() -> None:
    rules = rules_of().made
    assert rules.place(("fs", "write"))[0] == "files"
    assert rules.place(("fs", "shell")) == (None, None)
    assert rules.place(("fs", "loose")) == (None, None)
    assert rules_of(categories=["again"]).made.place(("fs", "read"))[0] == "again"


@pytest.mark.parametrize("name", ["read", "never listed"])
def test_what_is_not_listed_is_judged_as_well(name: str) -> None:
    assert rules_of().made.allows(("git", name))
    assert not rules_of(categories=["files"]).made.allows(("git", name))
    assert not rules_of(excludedTools=[name]).made.allows(("git", name))
    assert not rules_of(f"git/{name}", includedOptionalTools=[name]).made.allows(("git", name))


def test_a_list_of_which_everything_is_let_through_stays_the_same_object() -> None:
    rules = rules_of()
    assert rules.made.let_through("git", rules.tools["git"]) is rules.tools["git"]
    assert rules.made.let_through("fs", rules.tools["fs"]).keys() == {"read", "write", "loose"}
