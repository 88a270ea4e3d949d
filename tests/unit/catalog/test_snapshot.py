"""The catalog: how facts change it, and when they do not."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog import entry as entries
from daemon.catalog.definitions import MAX_RENAMED, NEVER
from daemon.catalog.entry import KnownList
from daemon.catalog.kinds import BESIDE_TOOLS
from daemon.catalog.snapshot import Catalog, _assembled, fold, fold_all
from daemon.facts import DefinitionsListed, Fact, ServerRecord, Summarized, Switched
from daemon.model import Kind, Summary, Tool
from daemon.states import ServerState
from tests.unit.cases import cases
from tests.unit.catalog.one_server import BEGUN, CONFIG, UP, alike, different, git, names
from tests.unit.catalog.samples import (
    after,
    catalog_of,
    configured,
    definition,
    failed,
    has,
    listed,
    prompts,
    recalled,
    resources,
    servers,
    status,
    switched,
    templates,
    tool,
)


def test_a_disabled_server_is_shown_but_is_no_category() -> None:
    config = {"mcpServers": {**servers("git"), "fs": {"command": "fs", "enabled": False}}}
    catalog = catalog_of(config)
    assert catalog.servers["fs"].status.state is ServerState.DISABLED
    assert list(catalog.categories) == ["git"]


def test_the_first_list_is_epoch_one_even_if_it_is_empty_and_a_change_and_its_reversal_are_two() -> None:
    git = fold(BEGUN, listed("git")).servers["git"]
    assert (git.tools, git.epoch) == ({}, 1)
    catalog = after(UP, [listed("git", "log"), listed("git", "log", "add")])
    assert catalog.servers["git"].epoch == UP.servers["git"].epoch + 2


@pytest.mark.parametrize("fact", [listed("git", "x", incarnation=1), failed("git", incarnation=1)])
def test_what_a_dead_incarnation_says_is_dropped_and_a_list_may_overtake_its_status(
    fact: DefinitionsListed,
) -> None:
    restarted = fold(UP, status("git", incarnation=2))
    assert fold(restarted, fact) is restarted
    assert list(fold(UP, listed("git", "x", incarnation=2)).servers["git"].tools or ()) == ["x"]


# --- operators' words ----------------------------------------------------------------------------------------


def epochs(catalog: Catalog) -> dict[str, int]:
    return {name: entry.epoch for name, entry in catalog.servers.items()}


@cases("words", "rises")
def test_an_operators_word_is_one_change_if_it_means_something(words: list[str], rises: int) -> None:
    off = fold(UP, switched(*words))
    assert epochs(off) == {"git": 1 + rises, "fs": 0}
    assert fold(off, switched(*words)) is off
    assert epochs(fold(off, switched())) == {"git": 1 + 2 * rises, "fs": 0}


CATEGORIES = {
    "history": {"server": "git", "tools": {"includePatterns": ["l*"]}},
    "mixed": {"tools": {"includeNames": ["git/log", "fs/read"]}},
}


def test_a_switched_off_tool_is_not_enabled_in_any_configured_category() -> None:
    up = after(catalog_of({**CONFIG, "categories": CATEGORIES}), [listed("git", "log"), listed("fs", "read")])
    off = fold(up, switched("git/log"))
    enabled = {
        name: {m.tool: m.enabled for m in each.members.values()} for name, each in off.categories.items()
    }
    assert enabled == {"history": {"log": False}, "mixed": {"log": False, "read": True}}
    assert off.off == {("git", "log")}


# --- another configuration -----------------------------------------------------------------------------------

GIT, FS = (servers(name)[name] for name in ("git", "fs"))


OFF = {"enabled": False}


def test_the_order_of_a_new_configuration_counts() -> None:
    turned = fold(UP, configured({"mcpServers": {"fs": FS, "git": GIT}}))
    assert (list(turned.servers), list(turned.categories)) == (["fs", "git"], ["fs", "git"])


def test_a_server_that_leaves_and_comes_back_goes_on_with_its_epoch() -> None:
    gone = after(UP, [listed("git", "x"), configured({"mcpServers": {"fs": FS}})])
    assert (list(gone.servers), list(gone.categories), gone.departed) == (["fs"], ["fs"], {"git": 2})
    assert fold(gone, listed("git", "y")) is gone
    back = fold(gone, configured(CONFIG, now=4000.0))
    entry = back.servers["git"]
    assert (entry.epoch, entry.tools, entry.status.state, entry.status.since) == (2, None, "stopped", 4000.0)
    assert back.departed == {}
    assert epochs(fold(back, listed("git", "x")))["git"] == 3


# --- whatever happens ----------------------------------------------------------------------------------------

SERVER = st.sampled_from(["git", "fs", "stranger"])
INCARNATION = st.integers(0, 3)
TOOLS = [*(tool("git", name) for name in "abc"), *(tool("git", name, description="the same") for name in "cde")]
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
    changed = fold_all(UP, [listed("git", "add"), listed("git", "log", "add")])
    assert epochs(changed)["git"] == epochs(UP)["git"] + 2
    assert fold_all(UP, []) is UP
    assert fold_all(UP, [failed("git", "x", incarnation=0), status("stranger")]) is UP


def test_servers_that_come_up_in_one_moment_have_names_in_the_order_of_the_configuration() -> None:
    # Had it been told alone that git has nothing to wait for, the name would have been its for good.
    facts: list[Fact] = [status("git", ServerState.FAILED), listed("fs", "same"), listed("git", "same")]
    assert fold_all(BEGUN, facts).names.owners["same"] == (next(iter(BEGUN.servers)), "same")


# --- renames -------------------------------------------------------------------------------------------------


def renames(*lists: Iterable[Tool]) -> Mapping[str, str]:
    return git(after(BEGUN, [listed("git", *tools) for tools in lists])).tool_list.renamed


def a_list(written: str) -> list[Tool]:
    """Tools by contents and name: `x=a y=b`."""
    return [alike(contents, name) for contents, _, name in (each.partition("=") for each in written.split())]


@cases("lists", "linked")
def test_a_rename_is_one_definition_that_went_and_one_that_came_with_its_contents(
    lists: list[str], linked: dict[str, str]
) -> None:
    catalog = after(BEGUN, [listed("git", *a_list(each)) for each in lists])
    assert git(catalog).tool_list.renamed == linked
    assert git(catalog).epoch == len(lists)


@cases("before", "now")
def test_where_nobody_could_say_which_became_which_none_is_linked(before: list[str], now: list[str]) -> None:
    first, second = ([alike("same", name) for name in each] for each in (before, now))
    assert renames(first, second) == {}


def test_a_rename_while_the_daemon_was_down_is_seen() -> None:
    memory, now = recalled("git", alike("x", "a")), listed("git", alike("x", "b"))
    orders: list[list[Fact]] = [[memory, now], [now, memory]]
    for facts in orders:
        catalog = after(BEGUN, facts)
        assert (git(catalog).tool_list.renamed, git(catalog).epoch) == ({"a": "b"}, 6)
    mine = fold(BEGUN, now)
    assert fold(mine, attrs.evolve(memory, by_another=True)) is mine, "another daemon's own list"


def test_a_server_that_invents_names_for_ever_does_not_fill_the_memory() -> None:
    first, second, third = (
        [alike(f"tool {n}", f"{letter}{n}") for n in range(MAX_RENAMED)] for letter in "abc"
    )
    assert len(renames(first, second)) == MAX_RENAMED
    assert renames(first, second, third) == {f"b{n}": f"c{n}" for n in range(MAX_RENAMED)}


# --- runs, and configurations --------------------------------------------------------------------------------


def another_git(**more: object) -> dict[str, Any]:
    return {"mcpServers": {**servers("git", "fs"), "git": {**servers("git")["git"], **more}}}


def test_nor_after_the_old_child_has_told_how_it_ends() -> None:
    replaced = fold(UP, configured(another_git(command="another")))
    ending = after(replaced, [status("git", ServerState.DEGRADED), status("git", ServerState.BACKOFF)])
    assert git(ending).status.state is ServerState.BACKOFF
    assert fold(ending, listed("git", "old")) is ending
    started = after(ending, [status("git", ServerState.STARTING, incarnation=2)])
    assert names(fold(started, listed("git", "new", incarnation=2))) == ["new"]


def test_the_child_of_a_server_that_is_on_again_may_count_from_the_beginning() -> None:
    again = after(UP, [status("git", incarnation=7)])
    for config in (another_git(enabled=False), CONFIG):
        again = fold(again, configured(config))
    assert names(fold(again, listed("git", "x", incarnation=1))) == ["x"]


@pytest.mark.parametrize("more", [{"description": "new words"}, {"timeouts": {"call": 5}}, {"start": "lazy"}])
def test_a_configuration_that_means_the_same_server_keeps_what_is_known(more: dict[str, Any]) -> None:
    catalog = fold(UP, configured(another_git(**more)))
    assert git(catalog).description == more.get("description", "the git server")
    assert attrs.evolve(git(catalog), description="") == attrs.evolve(git(UP), description="")


# --- since when tools are as they are ------------------------------------------------------------------------


def at(time: float, *tools: str | Tool) -> DefinitionsListed:
    return attrs.evolve(listed("git", *tools), at=time)


def test_what_changes_or_comes_later_is_so_since_then_and_all_else_since_it_was() -> None:
    catalog = after(BEGUN, [at(2000.0, "log", "add"), at(3000.0, different("log")[0], "add", "show")])
    assert git(catalog).tool_list.since == {"log": 3000.0, "add": BEGUN.begun, "show": 3000.0}


def test_what_goes_and_comes_back_may_have_been_another_meanwhile() -> None:
    catalog = after(BEGUN, [at(2000.0, "log", "add"), at(3000.0, "add"), at(4000.0, "log", "add")])
    assert git(catalog).tool_list.since == {"log": 4000.0, "add": BEGUN.begun}


def test_what_is_remembered_is_so_for_as_long_as_the_memory_says() -> None:
    fact = recalled("git", "log", "add", since={"log": 50.0})
    catalog = fold(BEGUN, fact)
    assert git(catalog).tool_list.since == {"log": 50.0, "add": NEVER}
    catalog = fold(catalog, at(2000.0, "log", different("add")[0]))
    assert git(catalog).tool_list.since == {"log": 50.0, "add": 2000.0}


# --- one server's entry: what it says of itself --------------------------------------------------------------


UNSETTLED = {ServerState.STOPPED, ServerState.QUEUED, ServerState.STARTING}
"""States that a start follows unasked."""


@pytest.mark.parametrize("state", ServerState)
def test_nobody_awaits_the_list_of_a_server_that_is_off(state: ServerState) -> None:
    assert git(fold(BEGUN, status("git", state))).awaits(Kind.TOOL) is (state in UNSETTLED)
    assert not git(after(BEGUN, [switched("git"), status("git", state)])).awaits(Kind.TOOL)


def test_the_list_of_a_server_that_is_being_restarted_is_awaited() -> None:
    restarting = status("git", ServerState.BACKOFF, next_retry_at=None)
    assert git(fold(BEGUN, restarting)).awaits(Kind.TOOL) is True
    assert git(fold(UP, restarting)).awaits(Kind.PROMPT)
    assert git(fold(BEGUN, status("git", ServerState.BACKOFF))).awaits(Kind.TOOL) is False


def test_a_server_that_begins_with_its_first_use_is_of_use_before_it_has_ever_listed() -> None:
    dormant = fold(BEGUN, status("git", ServerState.DORMANT))
    assert git(dormant).of_use
    assert not git(fold(dormant, switched("git"))).of_use
    assert not git(fold(BEGUN, status("git", ServerState.BACKOFF))).of_use


# --- what is known of a list outlives failures and empty starts, and nothing else ----------------------------


PLAN = definition(Kind.PROMPT, "git", "plan")


def after_listing(known: KnownList | None, fact: DefinitionsListed) -> KnownList:
    return entries.after_listing(known, fact)[0]


KNOWN = after_listing(None, prompts("git", PLAN))


def test_a_list_replaces_what_was_known() -> None:
    after = after_listing(KNOWN, prompts("git", "review", quarantined={"bad": "nested too deeply"}))
    assert list(after.definitions) == ["review"]
    assert after.quarantined == {"bad": "nested too deeply"}
    assert after_listing(KNOWN, prompts("git", PLAN)) is KNOWN


def test_a_failure_keeps_what_was_known_and_says_why() -> None:
    after = after_listing(KNOWN, prompts("git", problem="timed out"))
    assert (after.definitions, after.problem) == (KNOWN.definitions, "timed out")
    assert after_listing(after, prompts("git", PLAN)) == KNOWN
    assert after_listing(None, prompts("git", problem="timed out")).definitions == {}


def test_a_name_with_hidden_characters_is_refused_and_other_hidden_characters_are_told() -> None:
    sly = definition(Kind.PROMPT, "git", "pl\u034fan")
    hiding = definition(Kind.PROMPT, "git", "plan", description="do\u202ethis")
    after = after_listing(None, prompts("git", sly, hiding))
    assert list(after.definitions) == ["plan"]
    assert after.hidden == {"plan": "1 hidden character: U+202E"}
    assert list(after.quarantined) == [r"pl\u034fan"]


# --- lists beside the tools ----------------------------------------------------------------------------------


BESIDE_BEGUN = catalog_of({"mcpServers": servers("a", "b")})
BESIDE_UP = after(
    BESIDE_BEGUN, [prompts("a", "plan"), resources("a", "x:1"), templates("a", "x:{n}"), prompts("b", "plan")]
)


def test_what_is_off_is_left_out_of_its_own_kind_alone() -> None:
    off = after(BESIDE_UP, [switched("a/prompt:plan", "a/resource:x:{n}")])
    assert off.lists[Kind.PROMPT] == {"a": {}, "b": BESIDE_UP.lists[Kind.PROMPT]["b"]}
    assert list(off.lists[Kind.TEMPLATE]["a"]) == ["x:{n}"]
    assert after(off, [switched("a")]).lists[Kind.PROMPT].keys() == {"b"}
