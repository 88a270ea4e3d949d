"""What a profile offers: each tool once, under one name, unless somebody switched it off."""

import json
from collections.abc import Mapping
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.offer import MAX_CHOICES, Choices, Offer, Offers, ProfileRules
from daemon.catalog.snapshot import Catalog
from daemon.config.config_model import Profile
from daemon.facts import Fact
from daemon.model import Kind, Tool
from daemon.states import ServerState
from tests.unit.cases import cases
from tests.unit.catalog.samples import (
    CONFIG,
    FACTS,
    after,
    catalog_of,
    configured,
    definition,
    has,
    listed,
    prompts,
    resources,
    servers,
    status,
    switched,
    tool,
)


def offer(*words: str, config: dict[str, Any] = CONFIG, **profile: Any) -> Offer:
    """What a profile offers once operators have switched `words` off."""
    catalog = after(catalog_of({**config, "profiles": {"p": profile}}), [*FACTS, switched(*words)])
    return Offer(catalog, catalog.config.profiles["p"])


def names(made: Offer) -> list[str]:
    return [offered.name for offered in made.tools.values()]


def test_each_tool_is_offered_once_in_the_order_of_servers_and_lists() -> None:
    made = offer()
    assert names(made) == ["read", "write", "loose", "log", "git__read"]
    assert made.listing is made.listing
    assert [msgspec.json.decode(tool)["name"] for tool in made.listing] == names(made)
    # A name is not freed by switching its tool off.
    off = offer("fs/read")
    assert (off.tools["git", "read"].name, off.find("read")) == ("git__read", None)
    assert names(offer("fs/read", "git/log", config=PLAIN)) == ["write", "shell", "loose", "git__read"]


def test_a_tool_belongs_to_the_first_category_that_has_it_switched_on_if_any() -> None:
    made = offer()
    keys = (("fs", "read"), ("fs", "write"), ("git", "log"), ("fs", "loose"), ("git", "read"))
    assert [made.tools[key].category for key in keys] == ["files", "files", "history", None, None]


def test_a_profile_with_categories_offers_their_tools_only() -> None:
    assert names(offer(categories=["again"])) == ["read", "log"]
    assert names(offer(categories=["history"])) == ["log"]
    assert names(offer(categories=[])) == []


def test_a_tool_under_another_name_or_description_keeps_its_other_members() -> None:
    made = offer()
    renamed, described = (
        msgspec.json.decode(made.tools[key].listed()) for key in (("git", "read"), ("fs", "read"))
    )
    assert renamed == {"name": "git__read", "inputSchema": {"type": "object"}, "description": ""}
    assert described == {"name": "read", "inputSchema": {"type": "object"}, "description": "the category's"}


def test_core_tools_come_in_the_profiles_order_each_once_and_only_if_they_exist() -> None:
    made = offer(coreTools=["log", "search_tools", "fs/read", "shell"])
    assert [offered.name for offered in made.core] == ["log", "read"]


CHANGES: list[Fact] = [
    listed("fs", "read", "new"),
    listed("git", tool("git", "log", description="new"), "shell"),
    listed("git"),
    switched("fs/read", "git/log"),
    switched("git"),
    switched(),
]

# --- operators' words ----------------------------------------------------------------------------------------

PLAIN: dict[str, Any] = {"mcpServers": servers("fs", "git")}
PROFILES: list[dict[str, Any]] = [
    {},
    {"categories": ["files", "history", "again"]},
    {"includedOptionalTools": ["read", "git/log", "fs/write", "shell"]},
    {"categories": [], "includedOptionalTools": ["fs/read", "fs/write", "shell", "log"]},
    {"coreTools": ["fs/read", "git/log"], "toolDescriptionOverrides": {"read": "the profile's"}},
]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("server", "name"), [("fs", "read"), ("fs", "shell"), ("git", "log"), ("fs", "write")])
def test_what_an_operator_has_switched_off_no_profile_offers(
    profile: dict[str, Any], server: str, name: str
) -> None:
    before, made = offer(**profile), offer(f"{server}/{name}", **profile)
    assert (server, name) not in made.tools
    assert not made.rules.allows((server, name))
    assert made.find(f"{server}/{name}") is None
    assert made.tools.keys() == before.tools.keys() - {(server, name)}
    assert all(offered.key != (server, name) for offered in (*made.core, *made.all))


def test_a_reload_that_switches_a_server_off_takes_its_tools_away_although_they_are_known() -> None:
    off = {"mcpServers": {**PLAIN["mcpServers"], "fs": {"command": "fs", "enabled": False}}}
    catalog = after(catalog_of(PLAIN), [*FACTS, configured(off)])
    assert catalog.servers["fs"].tools
    assert {server for server, _ in Offer(catalog, catalog.config.profiles["default"]).tools} == {"git"}


# --- what is made, and when ----------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([*FACTS, *CHANGES]), max_size=6), st.sampled_from(PROFILES), st.booleans())
def test_what_is_offered_after_changes_is_what_would_be_offered_anew(
    facts: list[Fact], profile: dict[str, Any], plain: bool
) -> None:
    config = PLAIN if plain else CONFIG
    if plain:
        profile = {key: value for key, value in profile.items() if key != "categories"}
    catalog = catalog_of({**config, "profiles": {"p": profile}})
    offers = Offers()
    for fact in facts:
        catalog = after(catalog, [fact])
        made, anew = (each.of(catalog, catalog.config.profiles["p"]) for each in (offers, Offers()))
        assert _told(made) == _told(anew)
        assert made.listing == tuple(each.listed() for each in anew.all)
        assert made.is_everything is (
            len(made.tools) == sum(len(e.tools or ()) for e in catalog.servers.values())
        )


def _told(made: Offer) -> list[tuple[object, ...]]:
    return [(key, each.name, each.category, each.description) for key, each in made.tools.items()]


# --- prompts, resources and templates ------------------------------------------------------------------------


TWO = catalog_of({"mcpServers": servers("a", "b")})
BOTH = after(TWO, [prompts("a", "plan"), prompts("b", "plan", "review"), resources("a", "file:///x")])


def names_offered(kind: Kind, catalog: Any = BOTH, **profile: Any) -> list[str]:
    return list(Offer(catalog, Profile(name="p", **profile)).definitions(kind))


def test_all_are_offered_once_in_the_servers_order_and_the_second_owner_s_is_qualified() -> None:
    assert names_offered(Kind.PROMPT) == ["plan", "b__plan", "review"]
    assert names_offered(Kind.RESOURCE) == ["file:///x"]
    assert names_offered(Kind.TEMPLATE) == []


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


@pytest.mark.parametrize(
    ("more", "begins"), [({"description": "plain"}, "plain\n"), ({}, ""), ({"description": 5}, "")]
)
def test_hidden_characters_are_spelt_out_and_noted(more: dict[str, Any], begins: str) -> None:
    hiding = definition(Kind.PROMPT, "a", "plan", title="do\u202ethis", **more)
    (shown,) = Offer(after(TWO, [prompts("a", hiding)]), Profile(name="p")).definitions(Kind.PROMPT).values()
    told = json.loads(shown.listed())
    assert told["title"] == r"do\u{202e}this"
    assert told["description"].startswith(f"{begins}[mcpd: this definition has hidden characters")
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
    assert {
        kind for kind in (Kind.PROMPT, Kind.RESOURCE, Kind.TEMPLATE) if names_offered(kind, **profile)
    } == kinds


def test_a_profile_with_categories_offers_those_of_the_servers_that_they_draw_from() -> None:
    config = {"mcpServers": servers("a", "b"), "categories": {"c": {"server": "b", "description": "b's"}}}
    facts: list[Fact] = [listed("a", "t"), listed("b", "u"), prompts("a", "x"), prompts("b", "y")]
    catalog = after(catalog_of(config), facts)
    assert names_offered(Kind.PROMPT, catalog, categories=("c",)) == ["y"]
    assert names_offered(Kind.PROMPT, catalog, categories=()) == []
    assert names_offered(Kind.PROMPT, catalog) == ["x", "y"]


def test_what_is_switched_off_is_not_offered_and_keeps_its_name() -> None:
    off = after(BOTH, [switched("b/prompt:plan")])
    assert names_offered(Kind.PROMPT, off) == ["plan", "review"]
    assert off.servers["b"].epoch == BOTH.servers["b"].epoch + 1
    assert off.servers["a"].epoch == BOTH.servers["a"].epoch
    back = after(off, [switched()])
    assert names_offered(Kind.PROMPT, back) == names_offered(Kind.PROMPT)
    assert names_offered(Kind.PROMPT, after(BOTH, [switched("a")])) == ["b__plan", "review"]


# --- the rules of a profile ----------------------------------------------------------------------------------


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


@cases("profile", "offered")
def test_excluded_tools_are_not_offered_and_optional_ones_are_a_bare_name_meaning_every_servers(
    profile: dict[str, Any], offered: list[str]
) -> None:
    assert allowed(rules_of(**profile)) == offered


@cases("profile", "text")
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


# --- the catalog of chosen servers ---------------------------------------------------------------------------


CHOSEN_CONFIG = {"mcpServers": servers("a", "b", "c")}
BEFORE = catalog_of(CHOSEN_CONFIG)


def both_list(*names: str, kind: Kind | None = None) -> Catalog:
    """All servers list the same."""
    facts = [
        listed(server, *names) if kind is None else has(server, kind, *names) for server in ("a", "b", "c")
    ]
    return after(BEFORE, [*(status(server) for server in ("a", "b", "c")), *facts])


def offered(catalog: Catalog, *chosen: str, kind: Kind = Kind.TOOL) -> list[str]:
    """The names under which a client sees what chosen servers list."""
    narrowed = Choices().of(catalog, chosen)
    offer = Offers().of(narrowed, catalog.config.profiles["default"])
    if kind is not Kind.TOOL:
        return list(offer.definitions(kind))
    return [each.name for each in offer.all]


def test_each_name_of_a_single_server_is_its_own() -> None:
    catalog = both_list("x", "a__x", "c/x", "mcp__a__x")
    assert [offered(catalog, each) for each in "abc"] == [["x", "a__x", "c/x", "mcp__a__x"]] * 3


def test_of_several_only_what_two_of_them_have_is_qualified_as_it_is_among_all() -> None:
    catalog = after(both_list("x"), [listed("b", "x", "only"), listed("c", "x", "a__x")])
    assert offered(catalog, "a", "b") == ["x", "b__x", "only"]
    assert offered(catalog, "b", "c") == ["b__x", "only", "c__x", "a__x"]
    # With `a` beside it, its name would read as one of that server's.
    assert offered(catalog, "c", "a") == ["x", "c__x", "c__a__x"]


def test_a_name_that_was_shown_never_comes_to_mean_another_server_s() -> None:
    late = after(BEFORE, [*(status(server) for server in ("a", "b", "c")), listed("b", "x")])
    assert offered(late, "a", "b") == ["x"]
    now = after(late, [listed("a", "x")])
    owner = Choices().of(now, ("a", "b")).names.key_of("x", ("a", "b"))
    assert owner in {None, ("b", "x")}


def test_without_the_servers_of_other_directories_all_others_are_as_they_were() -> None:
    mixed = {"x": {"tools": {"includePatterns": ["*/x"]}}, "b": {"server": "b"}}
    before = catalog_of({"mcpServers": servers("a", "b", "c"), "categories": mixed})
    facts = [fact for each in "abc" for fact in (status(each), listed(each, "x"), has(each, Kind.PROMPT, "p"))]
    whole = after(before, facts)
    choices, offers, profile = Choices(), Offers(), whole.config.profiles["default"]
    seen = choices.of(whole, (), frozenset("b"))
    offer = offers.of(seen, profile)
    assert [each.name for each in offer.all] == ["x", "c__x"]
    assert list(offer.definitions(Kind.PROMPT)) == ["p", "c__p"]
    assert offer.categories == ("x",)
    assert (seen.categories["x"].servers, list(seen.categories["x"].members)) == (("a", "c"), ["x", "c/x"])
    assert offers.of(whole, profile) is not offer
    # Nothing of it is made anew by what changes no list.
    assert (
        offers.of(choices.of(after(whole, [status("b", ServerState.BACKOFF)]), (), frozenset("b")), profile)
        is offer
    )
    without = choices.of(after(whole, [listed("a", "y")]), (), frozenset("b"))
    assert list(without.categories["x"].members) == ["c/x"]


def test_every_name_means_what_it_is_listed_for() -> None:
    catalog = after(both_list("x", "y"), [listed("c", "x", "a__x", "b/y", "b__x", "mcp__a__y")])
    for chosen in (("a",), ("c",), ("a", "b"), ("b", "c"), ("a", "c"), ("a", "b", "c")):
        names = Choices().of(catalog, chosen).names
        assert len(names.owners) == len(names.given)
        assert all(names.key_of(name, chosen) == key for name, key in names.owners.items())


def test_no_more_choices_are_kept_than_anybody_has() -> None:
    choices, catalog = Choices(), both_list("x")
    first = choices.of(catalog, ("a",))
    for number in range(MAX_CHOICES):
        choices.of(catalog, (f"s{number}",))
    assert choices.of(catalog, ("a",)) is not first
