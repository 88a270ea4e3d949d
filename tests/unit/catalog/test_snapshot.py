"""The catalog: how facts change it, and when they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.catalog.kinds import BESIDE_TOOLS
from daemon.catalog.listing import read_definitions
from daemon.catalog.snapshot import _assembled, fold, fold_all
from daemon.facts import Configured, DefinitionsListed, ServerRecord, Summarized, Switched
from daemon.model import Kind, Summary
from daemon.states import ServerState
from tests.unit.catalog.samples import (
    after,
    catalog_of,
    configured,
    failed,
    has,
    listed,
    recalled,
    servers,
    status,
    switched,
    tool,
)

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog
    from daemon.facts import Fact, StatusChanged
    from daemon.model import Tool

CONFIG: dict[str, Any] = {"mcpServers": servers("git", "fs")}
BEGUN = catalog_of(CONFIG)
UP = after(BEGUN, [status("git"), listed("git", "git_log", "git_add")])


def test_it_begins_with_every_server_stopped_and_without_tools() -> None:
    assert list(BEGUN.servers) == ["git", "fs"]
    for entry in BEGUN.servers.values():
        assert (entry.status.state, entry.status.since, entry.tools, entry.epoch) == (
            "stopped",
            1000.0,
            None,
            0,
        )
        assert not entry.available
        assert entry.status.reason


def test_a_disabled_server_is_shown_but_is_no_category() -> None:
    config = {"mcpServers": {**servers("git"), "fs": {"command": "fs", "enabled": False}}}
    catalog = catalog_of(config)
    assert catalog.servers["fs"].status.state is ServerState.DISABLED
    assert list(catalog.categories) == ["git"]


def test_without_categories_each_server_is_one() -> None:
    assert {name: list(entry.members) for name, entry in UP.categories.items()} == {
        "git": ["git_log", "git_add"],
        "fs": [],
    }


def test_configured_categories_are_resolved_anew_when_a_server_lists() -> None:
    categories = {"c": {"description": "d", "server": "git", "tools": {"includeNames": ["git_log"]}}}
    before = catalog_of({**CONFIG, "categories": categories})
    assert not before.categories["c"].members["git_log"].listed
    assert fold(before, listed("git", "git_log")).categories["c"].members["git_log"].listed


@pytest.mark.parametrize(
    "fact",
    [
        status("git"),
        listed("git", "git_log", "git_add"),
        listed("git", "git_add", "git_log"),
        status("stranger"),
        listed("stranger", "x"),
        failed("stranger"),
    ],
    ids=lambda fact: f"{type(fact).__name__}-{fact.server}",
)
def test_a_fact_that_changes_nothing_gives_the_identical_catalog(
    fact: StatusChanged | DefinitionsListed,
) -> None:
    assert fold(UP, fact) is UP


def test_the_same_failure_twice_is_told_once() -> None:
    once = fold(UP, failed("git", "timed out"))
    assert once is not UP
    assert fold(once, failed("git", "timed out")) is once


@pytest.mark.parametrize(
    ("fact", "rises"),
    [
        (listed("git", "git_log"), 1),
        (listed("git", "git_log", "git_add", "git_show"), 1),
        (listed("git", "git_log", tool("git", "git_add", description="new")), 1),
        (listed("git", "git_log", tool("git", "git_add", annotations={"readOnlyHint": True})), 1),
        (listed("git", "git_log", tool("git", "git_add", inputSchema={"type": "object", "x": 1})), 1),
        (listed("git"), 1),
        (listed("git", "git_add", "git_log"), 0),
        (listed("git", "git_log", tool("git", "git_add", _meta={"x": 1})), 1),
        (listed("git", "git_log", "git_add", quarantined={"bad": "why"}), 0),
        (listed("git", "git_log", "git_add", incarnation=2), 0),
        (status("git", ServerState.BACKOFF), 0),
        (status("git", incarnation=2), 0),
        (failed("git"), 0),
    ],
)
def test_the_epoch_rises_by_one_exactly_when_visible_capabilities_change(
    fact: StatusChanged | DefinitionsListed, rises: int
) -> None:
    assert fold(UP, fact).servers["git"].epoch == UP.servers["git"].epoch + rises


def test_the_first_list_is_epoch_one_even_if_it_is_empty_and_a_change_and_its_reversal_are_two() -> None:
    git = fold(BEGUN, listed("git")).servers["git"]
    assert (git.tools, git.epoch) == ({}, 1)
    catalog = after(UP, [listed("git", "git_log"), listed("git", "git_log", "git_add")])
    assert catalog.servers["git"].epoch == UP.servers["git"].epoch + 2


@pytest.mark.parametrize("fact", [listed("git", "x", incarnation=1), failed("git", incarnation=1)])
def test_what_a_dead_incarnation_says_is_dropped_and_a_list_may_overtake_its_status(
    fact: DefinitionsListed,
) -> None:
    restarted = fold(UP, status("git", incarnation=2))
    assert fold(restarted, fact) is restarted
    assert list(fold(UP, listed("git", "x", incarnation=2)).servers["git"].tools or ()) == ["x"]


@pytest.mark.parametrize("tools", [["git_log", "git_add"], ["git_log"]])
def test_a_failure_keeps_the_tools_that_are_known_until_a_good_list_ends_it(tools: list[str]) -> None:
    entry = fold(UP, failed("git", "timed out")).servers["git"]
    assert (list(entry.tools or ()), entry.tool_list.problem) == (["git_log", "git_add"], "timed out")
    assert after(UP, [failed("git"), listed("git", *tools)]).servers["git"].tool_list.problem == ""


def test_what_is_quarantined_is_the_newest_lists_word() -> None:
    bad = fold(UP, listed("git", "git_log", "git_add", quarantined={"bad": "why"}))
    assert bad.servers["git"].tool_list.quarantined == {"bad": "why"}
    assert bad.servers["git"].tools is UP.servers["git"].tools
    assert fold(bad, listed("git", "git_log", "git_add")).servers["git"].tool_list.quarantined == {}


@pytest.mark.parametrize("state", ServerState)
def test_tools_stay_known_and_can_be_called_in_the_serving_states_only(state: ServerState) -> None:
    changed = fold(UP, status("git", state))
    assert changed.servers["git"].available is (state in {"ready", "degraded"})
    assert (changed.servers["git"].tools, changed.servers["fs"]) == (UP.servers["git"].tools, UP.servers["fs"])
    assert changed.categories is UP.categories or state is ServerState.DISABLED


def test_what_is_only_written_another_way_is_shown_anew_without_a_new_epoch() -> None:
    raw = tool("git", "git_log").raw.replace(b":", b" : ")
    (spaced,), _ = read_definitions(Kind.TOOL, "git", [Raw(raw)])
    later = after(UP, [listed("git", spaced, "git_add")])
    assert later.servers["git"].tools["git_log"].raw == raw  # type: ignore[index]
    assert later.servers["git"].epoch == UP.servers["git"].epoch
    assert later.categories is not UP.categories


# --- operators' words ----------------------------------------------------------------------------------------


def epochs(catalog: Catalog) -> dict[str, int]:
    return {name: entry.epoch for name, entry in catalog.servers.items()}


@pytest.mark.parametrize(
    ("words", "rises"),
    [
        (["git/git_log"], 1),
        (["git/git_log", "git/git_add"], 1),
        (["git"], 1),
        (["git", "git/git_log"], 1),
        ([], 0),
        (["git/nothing"], 0),
        (["stranger"], 0),
        (["stranger/git_log"], 0),
        (["fs/git_log"], 0),
        (["git/"], 1),
    ],
)
def test_an_operators_word_is_one_change_if_it_means_something(words: list[str], rises: int) -> None:
    off = fold(UP, switched(*words))
    assert epochs(off) == {"git": 1 + rises, "fs": 0}
    assert fold(off, switched(*words)) is off
    assert epochs(fold(off, switched())) == {"git": 1 + 2 * rises, "fs": 0}


def test_a_word_on_a_server_that_has_not_listed_counts_for_it_too() -> None:
    assert epochs(fold(UP, switched("fs"))) == {"git": 1, "fs": 1}


def test_a_word_that_adds_nothing_to_a_servers_is_no_change() -> None:
    off = fold(UP, switched("git", "git/git_log"))
    assert epochs(fold(off, switched("git", "git/nothing", "git/git_log"))) == epochs(off)


def test_what_a_switched_off_server_loses_further_is_a_change() -> None:
    off = fold(UP, switched("git"))
    assert epochs(fold(off, switched("git", "git/git_log")))["git"] == 3


@pytest.mark.parametrize(
    "between",
    [
        [],
        [status("git", ServerState.DISABLED, reason="switched off by an operator")],
        [status("git", ServerState.STOPPING), status("git", ServerState.DISABLED)],
    ],
)
def test_a_server_that_is_switched_on_again_rises_once_whatever_its_child_has_done(
    between: list[StatusChanged],
) -> None:
    off = after(UP, [switched("git"), *between])
    assert epochs(off)["git"] == 2
    on = after(off, [switched(), status("git", ServerState.STARTING, incarnation=2)])
    assert epochs(on)["git"] == 3
    assert epochs(after(on, [listed("git", "git_log", "git_add", incarnation=2)]))["git"] == 3


def test_a_word_touches_only_the_entries_that_it_means() -> None:
    off = fold(UP, switched("git/git_log", "git/git_add"))
    assert off.servers["fs"] is UP.servers["fs"]
    assert fold(UP, switched("git/nothing")).servers["git"] is UP.servers["git"]


def test_a_word_waits_for_the_tool_that_it_names() -> None:
    words = fold(UP, switched("git/later", "fs/read"))
    assert words.switched == {("git", "later"), ("fs", "read")}
    came = after(words, [listed("git", "git_log", "git_add", "later")])
    assert ("git", "later") in came.off
    assert not came.categories["git"].members["later"].enabled
    assert epochs(came)["git"] == 2


def test_the_categories_of_servers_that_are_not_concerned_are_taken_over() -> None:
    both = after(UP, [status("fs"), listed("fs", "read")])
    changed = fold(both, listed("git", "git_log"))
    assert changed.categories["fs"] is both.categories["fs"]
    assert list(changed.categories["git"].members) == ["git_log"]
    off = fold(changed, switched("fs/read"))
    assert off.categories["git"] is changed.categories["git"]
    assert fold(off, switched()).categories["fs"].members["read"].enabled


def test_a_switched_off_tool_stays_in_its_category_as_not_enabled() -> None:
    members = fold(UP, switched("git/git_log")).categories["git"].members
    assert {name: member.enabled for name, member in members.items()} == {"git_log": False, "git_add": True}


CATEGORIES = {
    "history": {"server": "git", "tools": {"includePatterns": ["git_*"]}},
    "mixed": {"tools": {"includeNames": ["git/git_log", "fs/read"]}},
}


def test_a_switched_off_tool_is_not_enabled_in_any_configured_category() -> None:
    up = after(
        catalog_of({**CONFIG, "categories": CATEGORIES}), [listed("git", "git_log"), listed("fs", "read")]
    )
    off = fold(up, switched("git/git_log"))
    enabled = {
        name: {m.tool: m.enabled for m in each.members.values()} for name, each in off.categories.items()
    }
    assert enabled == {"history": {"git_log": False}, "mixed": {"git_log": False, "read": True}}
    assert off.off == {("git", "git_log")}


def test_a_switched_off_server_is_no_category_and_keeps_its_tools() -> None:
    off = fold(UP, switched("git"))
    assert list(off.categories) == ["fs"]
    assert off.servers["git"].tools is UP.servers["git"].tools
    assert list(fold(off, switched()).categories) == ["git", "fs"]


def test_names_are_kept_for_what_is_switched_off() -> None:
    both = after(UP, [listed("fs", "git_log")])
    assert both.names.name_of(("fs", "git_log")) == "fs__git_log"
    for words in (switched("git/git_log"), switched("git")):
        off = after(both, [words, listed("fs", "git_log", "more")])
        assert off.names.name_of(("git", "git_log")) == "git_log"
        assert off.names.name_of(("fs", "git_log")) == "fs__git_log"


# --- another configuration -----------------------------------------------------------------------------------

GIT, FS = (servers(name)[name] for name in ("git", "fs"))


def with_override(**overrides: object) -> dict[str, Any]:
    return {**CONFIG, "categories": {"c": {"server": "git", "tools": {"overrides": overrides}}}}


OFF = {"enabled": False}


@pytest.mark.parametrize(
    ("config", "rises"),
    [
        (CONFIG, 0),
        (with_override(), 0),
        (with_override(git_log=OFF), 1),
        (with_override(git_log=OFF, git_add=OFF), 1),
        (with_override(nothing=OFF), 0),
        (with_override(git_log={"description": "said otherwise"}), 0),
        ({"mcpServers": {"git": {**GIT, **OFF}, "fs": FS}}, 1),
        ({"mcpServers": {"git": {**GIT, "description": "x", "limits": {"inFlight": 3}}, "fs": FS}}, 0),
        ({"mcpServers": {"git": {**GIT, "args": ["--new"]}, "fs": FS}}, 1),
        ({"mcpServers": {"fs": FS, "git": GIT}}, 0),
        ({**CONFIG, "profiles": {"p": {"excludedTools": ["git_log"]}}}, 0),
        ({"mcpServers": {"git": GIT}}, 0),
        ({"mcpServers": {**CONFIG["mcpServers"], "new": FS}}, 0),
    ],
)
def test_another_configuration_is_one_change_of_the_servers_that_look_different(
    config: dict[str, Any], rises: int
) -> None:
    fact = configured(config)
    catalog = fold(UP, fact)
    assert catalog.servers["git"].epoch == 1 + rises
    assert all(entry.epoch == 0 for name, entry in catalog.servers.items() if name != "git")
    assert catalog.config is fact.config
    assert fold(catalog, fact) is catalog


def test_the_order_of_a_new_configuration_counts() -> None:
    turned = fold(UP, configured({"mcpServers": {"fs": FS, "git": GIT}}))
    assert (list(turned.servers), list(turned.categories)) == (["fs", "git"], ["fs", "git"])


def test_what_a_new_configuration_leaves_alone_is_the_same_object() -> None:
    catalog = fold(UP, configured({"mcpServers": {**CONFIG["mcpServers"], "fs": {"command": "other"}}}))
    assert catalog.servers["git"] is UP.servers["git"]
    assert catalog.names.given == UP.names.given


def test_a_server_that_leaves_and_comes_back_goes_on_with_its_epoch() -> None:
    gone = after(UP, [listed("git", "x"), configured({"mcpServers": {"fs": FS}})])
    assert (list(gone.servers), list(gone.categories), gone.departed) == (["fs"], ["fs"], {"git": 2})
    assert fold(gone, listed("git", "y")) is gone
    back = fold(gone, configured(CONFIG, now=4000.0))
    entry = back.servers["git"]
    assert (entry.epoch, entry.tools, entry.status.state, entry.status.since) == (2, None, "stopped", 4000.0)
    assert back.departed == {}
    assert epochs(fold(back, listed("git", "x")))["git"] == 3


def test_what_is_remembered_of_a_server_that_is_not_configured_is_its_epoch() -> None:
    gone = fold(catalog_of({"mcpServers": {"fs": FS}}), recalled("git", "x", epoch=7))
    assert gone.departed == {"git": 7}
    for stale in (recalled("git", "x", epoch=7), recalled("git", "x", epoch=3), switched("git"), status("git")):
        assert fold(gone, stale).departed == {"git": 7}
    assert epochs(fold(gone, configured(CONFIG))) == {"git": 7, "fs": 0}


def test_words_of_operators_outlive_a_reload_and_servers_that_come_back() -> None:
    off = fold(UP, switched("git", "fs/read"))
    gone = fold(off, configured({"mcpServers": {}}))
    back = after(gone, [configured(CONFIG), listed("fs", "read")])
    assert back.switched == off.switched
    assert back.servers["git"].disabled
    assert list(back.categories) == ["fs"]
    assert ("fs", "read") in back.off


def test_a_name_that_was_shown_keeps_its_meaning_over_a_reload() -> None:
    both = after(UP, [listed("fs", "git_log")])
    turned = fold(both, configured({"mcpServers": {"fs": FS, "git": GIT}}))
    assert turned.names.name_of(("git", "git_log")) == "git_log"
    gone = fold(both, configured({"mcpServers": {"fs": FS}}))
    assert gone.names.name_of(("fs", "git_log")) == "fs__git_log"


# --- whatever happens ----------------------------------------------------------------------------------------

SERVER = st.sampled_from(["git", "fs", "stranger"])
INCARNATION = st.integers(0, 3)
TOOLS = [
    *(tool("git", name) for name in "abc"),
    *(tool("git", name, description="the same") for name in "cde"),
]
LISTS = st.lists(st.sampled_from(TOOLS), unique_by=lambda each: each.name)
CONFIGS = [
    CONFIG,
    {"mcpServers": {"git": GIT}},
    {"mcpServers": {"stranger": FS, "git": {**GIT, **OFF}}},
    {"mcpServers": {"git": {**GIT, "args": ["x"]}, "fs": {**FS, "description": "else"}}},
    {**CONFIG, "categories": {"c": {"tools": {"includeNames": ["git/a"], "overrides": {"fs/b": OFF}}}}},
    {**CONFIG, "categories": {"c": {"server": "git", "tools": {"overrides": {"a": OFF, "c": OFF}}}}},
]
WORDS = st.sets(
    st.sampled_from(["git", "fs", "stranger", "git/a", "git/zzz", "fs/b", "fs/c", "git/prompt:x:a"])
)


def own(server: str, facts_tools: list[Tool]) -> list[Tool]:
    return [attrs.evolve(each, server=server) for each in facts_tools]


FACT: st.SearchStrategy[Fact] = st.one_of(
    st.builds(
        lambda server, state, incarnation: status(server, state, incarnation=incarnation),
        SERVER,
        st.sampled_from(ServerState),
        INCARNATION,
    ),
    st.builds(
        lambda server, tools, incarnation: listed(server, *own(server, tools), incarnation=incarnation),
        SERVER,
        LISTS,
        INCARNATION,
    ),
    st.builds(
        lambda server, reason, incarnation: failed(server, reason, incarnation=incarnation),
        SERVER,
        st.sampled_from(["x", "y"]),
        INCARNATION,
    ),
    st.builds(
        lambda server, tools, epoch, of, known, another: recalled(
            server, *own(server, tools), epoch=epoch, of=of, listed=known, by_another=another
        ),
        SERVER,
        LISTS,
        st.integers(0, 6),
        st.sampled_from([None, None, "f" * 64]),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        lambda server, text, at: Summarized(
            server=server,
            summary=Summary(text=text, at=at),
            sentences={each.schema_hash: Summary(text=text, at=at) for each in TOOLS},
        ),
        SERVER,
        st.sampled_from(["x", "y"]),
        st.integers(0, 3),
    ),
    st.builds(
        lambda server, kind, names, incarnation, first, problem: has(
            server, kind, *names, incarnation=incarnation, first=first, problem=problem
        ),
        SERVER,
        st.sampled_from(BESIDE_TOOLS),
        st.lists(st.sampled_from(["x:a", "x:b"]), unique=True),
        INCARNATION,
        st.booleans(),
        st.sampled_from(["", "", "broken"]),
    ),
    st.builds(lambda words: switched(*words), WORDS),
    st.sampled_from([configured(config) for config in CONFIGS]),
)
FACTS = st.lists(FACT, max_size=12)


@given(FACTS)
def test_epochs_never_fall_and_rise_only_one_by_one(facts: list[Fact]) -> None:
    catalog = BEGUN
    highest: dict[str, int] = {}
    for fact in facts:
        following = fold(catalog, fact)
        for name, entry in following.servers.items():
            before = catalog.servers.get(name)
            known = catalog.departed.get(name, 0) if before is None else before.epoch
            if not isinstance(fact, ServerRecord):
                assert 0 <= entry.epoch - known <= 1
            assert entry.epoch >= highest.get(name, 0)
            highest[name] = entry.epoch
        catalog = following


def looks(catalog: Catalog, name: str) -> object:
    """What anybody can see of a server: whether it is on, and each tool with whether that is."""
    entry = catalog.servers[name]
    tools = (entry.tools or {}).values()
    hashes = {each.name: (each.schema_hash, (name, each.name) in catalog.off) for each in tools}
    others = {
        (kind, own): own in catalog.lists[kind].get(name, ())
        for kind in BESIDE_TOOLS
        for own in entry.list_of(kind).definitions
    }
    return entry.disabled, hashes, others


@given(FACTS)
def test_an_epoch_rises_exactly_if_something_else_is_to_be_seen(facts: list[Fact]) -> None:
    catalog = BEGUN
    for fact in (each for each in facts if not isinstance(each, ServerRecord)):
        following = fold(catalog, fact)
        for name in catalog.servers.keys() & following.servers.keys():
            rose = following.servers[name].epoch > catalog.servers[name].epoch
            # The first list of tools is a change even if it is empty: before it, nothing was known.
            first = isinstance(fact, DefinitionsListed) and catalog.servers[name].tools is None
            first = first and following.servers[name].tools is not None
            assert rose is (first or looks(following, name) != looks(catalog, name)), (name, fact)
        catalog = following


@given(FACTS, FACT)
def test_every_fact_told_twice_changes_nothing_the_second_time(facts: list[Fact], fact: Fact) -> None:
    once = fold(after(BEGUN, facts), fact)
    assert fold(once, fact) is once


@given(FACTS)
def test_a_new_catalog_is_always_a_different_one(facts: list[Fact]) -> None:
    catalog = BEGUN
    for fact in facts:
        following = fold(catalog, fact)
        # A configuration may differ in its order alone, which no comparison of mappings sees.
        assert following is catalog or following != catalog or isinstance(fact, Configured)
        catalog = following


@given(FACTS)
def test_categories_names_and_what_is_off_are_always_those_of_the_rest(facts: list[Fact]) -> None:
    catalog = after(BEGUN, facts)
    anew = _assembled(catalog)
    assert (catalog.categories, catalog.off, catalog.names) == (anew.categories, anew.off, anew.names)
    assert (catalog.lists, catalog.names_of(Kind.PROMPT), catalog.names_of(Kind.RESOURCE)) == (
        anew.lists,
        anew.names_of(Kind.PROMPT),
        anew.names_of(Kind.RESOURCE),
    )
    assert list(catalog.servers) == list(catalog.config.mcp_servers)


@given(FACTS, st.sampled_from(CONFIGS))
def test_a_reloaded_daemon_offers_what_one_that_began_so_would(
    facts: list[Fact], config: dict[str, Any]
) -> None:
    fact = configured(config)
    reloaded = fold(after(BEGUN, facts), fact)
    begun = fold(catalog_of(config), Switched(off=reloaded.switched))
    for name, entry in reloaded.servers.items():
        if entry.tools is not None:
            begun = fold(
                begun,
                DefinitionsListed(
                    kind=Kind.TOOL, server=name, incarnation=9, definitions=(*entry.tools.values(),)
                ),
            )
    assert (reloaded.categories, reloaded.off) == (begun.categories, begun.off)
    assert [entry.disabled for entry in reloaded.servers.values()] == [
        entry.disabled for entry in begun.servers.values()
    ]
    assert [(entry.fingerprint, entry.description) for entry in reloaded.servers.values()] == [
        (entry.fingerprint, entry.description) for entry in begun.servers.values()
    ]


@given(FACTS)
def test_a_tool_is_never_called_by_two_names_nor_two_by_one(facts: list[Fact]) -> None:
    catalog = after(BEGUN, facts)
    keys = [(name, each) for name, entry in catalog.servers.items() for each in entry.tools or ()]
    assert len({catalog.names.name_of(key) for key in keys}) == len(keys)


# --- facts that were told together ---------------------------------------------------------------------------


@given(FACTS, FACTS)
def test_facts_that_are_told_together_mean_what_they_mean_one_by_one(
    before: list[Fact], together: list[Fact]
) -> None:
    begun = after(BEGUN, before)
    one_by_one, at_once = after(begun, together), fold_all(begun, together)
    assert at_once.servers == one_by_one.servers
    assert (at_once.categories, at_once.off, at_once.switched, at_once.departed) == (
        one_by_one.categories,
        one_by_one.off,
        one_by_one.switched,
        one_by_one.departed,
    )
    assert at_once.lists == one_by_one.lists
    assert at_once.names == _assembled(at_once).names
    assert len(set(at_once.names.given.values())) == len(at_once.names.given)


def test_an_epoch_rises_for_each_of_two_lists_that_are_told_together() -> None:
    changed = fold_all(UP, [listed("git", "git_add"), listed("git", "git_log", "git_add")])
    assert epochs(changed)["git"] == epochs(UP)["git"] + 2
    assert fold_all(UP, []) is UP
    assert fold_all(UP, [failed("git", "x", incarnation=0), status("stranger")]) is UP


def test_servers_that_come_up_in_one_moment_have_names_in_the_order_of_the_configuration() -> None:
    # Had it been told alone that git has nothing to wait for, the name would have been its for good.
    facts: list[Fact] = [status("git", ServerState.FAILED), listed("fs", "same"), listed("git", "same")]
    assert fold_all(BEGUN, facts).names.owners["same"] == (next(iter(BEGUN.servers)), "same")


def test_configured_categories_that_a_change_does_not_concern_are_taken_over() -> None:
    config = {**CONFIG, "categories": {**CATEGORIES, "files": {"server": "fs"}}}
    up = after(catalog_of(config), [listed("git", "git_log"), listed("fs", "read")])
    changed = fold(up, listed("fs", "read", "write"))
    assert changed.categories["history"] is up.categories["history"]
    assert list(changed.categories["files"].members) == ["read", "write"]
    # One that draws from every server is always concerned; one that borrows, by whom it borrows from.
    assert fold(changed, listed("git", "git_add")).categories["files"] is changed.categories["files"]
    assert fold(changed, listed("git", "git_add")).categories["mixed"].unresolved == ("git/git_log",)
    off = fold(changed, switched("git/git_log"))
    assert not off.categories["history"].members["git_log"].enabled
