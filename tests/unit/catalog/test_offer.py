"""What a profile offers: each tool once, under one name, unless somebody switched it off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.offer import MAX_OFFERS, Offer, Offers
from daemon.states import ServerState
from tests.unit.catalog.samples import (
    CONFIG,
    FACTS,
    after,
    catalog_of,
    configured,
    listed,
    servers,
    status,
    switched,
    tool,
)

if TYPE_CHECKING:
    from daemon.facts import Fact


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


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("read", ("fs", "read")),
        ("git__read", ("git", "read")),
        ("git/read", ("git", "read")),
        ("mcp__fs__read", ("fs", "read")),
        *((name, None) for name in ("shell", "fs/shell", "nothing", "")),
    ],
)
def test_a_tool_is_found_under_every_spelling_if_it_is_offered(name: str, key: tuple[str, str] | None) -> None:
    found = offer().find(name)
    assert (None if found is None else found.key) == key


def test_a_tool_about_which_nothing_is_said_here_is_listed_byte_for_byte() -> None:
    made = offer()
    for key in (("fs", "write"), ("fs", "loose"), ("git", "log")):
        assert made.tools[key].listed() == made.tools[key].tool.raw


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


def test_an_offer_is_made_once_per_change_of_the_tools() -> None:
    offers = Offers()
    catalog = after(catalog_of(CONFIG), FACTS)
    profile = catalog.config.profiles["default"]
    made = offers.of(catalog, profile)
    assert offers.of(after(catalog, [status("fs", ServerState.BACKOFF)]), profile) is made
    changed = after(catalog, [listed("fs", "read")])
    assert names(offers.of(changed, profile)) == ["read", "log", "git__read"]


def test_offers_of_many_profiles_do_not_pile_up() -> None:
    profiles = {f"p{number}": {"excludedTools": [f"t{number}"]} for number in range(MAX_OFFERS + 5)}
    catalog = after(catalog_of({**CONFIG, "profiles": profiles}), FACTS)
    offers = Offers()
    for profile in catalog.config.profiles.values():
        assert offers.of(catalog, profile) is offers.of(catalog, profile)
    assert len(offers._made) <= MAX_OFFERS


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


@pytest.mark.parametrize("profile", [{}, {"includedOptionalTools": ["read", "log", "fs/loose"]}])
@pytest.mark.parametrize("config", [CONFIG, PLAIN])
def test_of_a_server_that_an_operator_has_switched_off_no_profile_offers_anything(
    config: dict[str, Any], profile: dict[str, Any]
) -> None:
    assert {server for server, _ in offer("fs", config=config, **profile).tools} == {"git"}
    assert offer("fs", "git", config=config, **profile).listing == ()


def test_a_reload_that_switches_a_server_off_takes_its_tools_away_although_they_are_known() -> None:
    off = {"mcpServers": {**PLAIN["mcpServers"], "fs": {"command": "fs", "enabled": False}}}
    catalog = after(catalog_of(PLAIN), [*FACTS, configured(off)])
    assert catalog.servers["fs"].tools
    assert {server for server, _ in Offer(catalog, catalog.config.profiles["default"]).tools} == {"git"}


def test_words_and_reloads_make_an_offer_anew() -> None:
    offers, catalog = Offers(), after(catalog_of(CONFIG), FACTS)
    profile = catalog.config.profiles["default"]
    offers.of(catalog, profile)
    off = after(catalog, [switched("fs/read")])
    assert "read" not in names(offers.of(off, profile))
    assert "read" in names(offers.of(after(off, [switched()]), profile))
    reloaded = after(catalog, [configured(PLAIN)])
    assert "shell" in names(offers.of(reloaded, reloaded.config.profiles["default"]))


# --- what is made, and when ----------------------------------------------------------------------------------


def test_to_list_tools_as_their_servers_do_none_has_to_be_made() -> None:
    made = offer(config=PLAIN)
    assert [msgspec.json.decode(raw)["name"] for raw in made.listing] == names(offer(config=PLAIN))
    assert (len(made.all), len(made.all[1:]), len(made.tools)) == (6, 5, 6)
    # Of those, one shares its name with another server's.
    assert set(made.tools.made) == {("git", "read")}
    every = list(made.tools.values())
    assert (list(made.all), list(made.all[1:3]), list(made.all[1:][1:3])) == (every, every[1:3], every[2:4])
    assert made.all[1] is every[1]


def test_after_a_change_what_is_offered_as_before_is_the_same_object() -> None:
    offers, catalog = Offers(), after(catalog_of(PLAIN), FACTS)
    profile = catalog.config.profiles["default"]
    before = dict(offers.of(catalog, profile).tools)
    changed = after(catalog, [listed("git", "log", tool("git", "read", description="new"))])
    now = dict(offers.of(changed, profile).tools)
    assert {key for key, each in now.items() if each is not before[key]} == {("git", "read")}
    assert now["git", "read"].description == "new"


def test_after_a_change_a_tool_under_another_name_is_another() -> None:
    offers, up = Offers(), after(catalog_of(PLAIN), [status("fs", ServerState.STARTING), listed("git", "read")])
    profile = up.config.profiles["default"]
    assert next(iter(offers.of(up, profile).tools.values())).name == "read"
    both = offers.of(after(up, [listed("fs", "read")]), profile)
    assert {key: each.name for key, each in both.tools.items()} == {
        ("fs", "read"): "read",
        ("git", "read"): "git__read",
    }


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
