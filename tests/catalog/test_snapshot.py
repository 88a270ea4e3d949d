"""The catalog: how facts change it, and when they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.snapshot import _categories, fold
from daemon.states import ServerState
from tests.catalog.samples import after, catalog_of, failed, listed, servers, status, tool

if TYPE_CHECKING:
    from daemon.facts import ListingFailed, StatusChanged, ToolsListed

CONFIG = {"mcpServers": servers("git", "fs")}
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
    fact: StatusChanged | ToolsListed | ListingFailed,
) -> None:
    assert fold(UP, fact) is UP


def test_the_same_failure_twice_is_told_once() -> None:
    once = fold(UP, failed("git", "timed out"))
    assert once is not UP
    assert fold(once, failed("git", "timed out")) is once


def test_the_same_list_twice_from_the_same_tools_keeps_bytes_and_epoch() -> None:
    again = listed("git", tool("git", "git_log"), tool("git", "git_add"))
    assert fold(UP, again) is UP


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
        (listed("git", "git_log", tool("git", "git_add", _meta={"x": 1})), 0),
        (listed("git", "git_log", "git_add", quarantined={"bad": "why"}), 0),
        (listed("git", "git_log", "git_add", incarnation=2), 0),
        (status("git", ServerState.BACKOFF), 0),
        (status("git", incarnation=2), 0),
        (failed("git"), 0),
    ],
)
def test_the_epoch_rises_by_one_exactly_when_visible_capabilities_change(
    fact: StatusChanged | ToolsListed | ListingFailed, rises: int
) -> None:
    assert fold(UP, fact).servers["git"].epoch == UP.servers["git"].epoch + rises


def test_the_first_list_is_epoch_one_even_if_it_is_empty() -> None:
    catalog = fold(BEGUN, listed("git"))
    assert catalog.servers["git"].tools == {}
    assert catalog.servers["git"].epoch == 1


def test_a_change_and_its_reversal_are_two_changes() -> None:
    catalog = after(UP, [listed("git", "git_log"), listed("git", "git_log", "git_add")])
    assert catalog.servers["git"].epoch == UP.servers["git"].epoch + 2


@pytest.mark.parametrize("fact", [listed("git", "x", incarnation=1), failed("git", incarnation=1)])
def test_what_a_dead_incarnation_says_is_dropped(fact: ToolsListed | ListingFailed) -> None:
    restarted = fold(UP, status("git", incarnation=2))
    assert fold(restarted, fact) is restarted


def test_a_list_that_overtakes_its_own_status_is_taken() -> None:
    assert list(fold(UP, listed("git", "x", incarnation=2)).servers["git"].tools or ()) == ["x"]


def test_a_failure_keeps_the_tools_that_are_known() -> None:
    entry = fold(UP, failed("git", "timed out")).servers["git"]
    assert list(entry.tools or ()) == ["git_log", "git_add"]
    assert entry.listing_error == "timed out"


@pytest.mark.parametrize("tools", [["git_log", "git_add"], ["git_log"]])
def test_a_good_list_ends_a_failure(tools: list[str]) -> None:
    catalog = after(UP, [failed("git"), listed("git", *tools)])
    assert catalog.servers["git"].listing_error == ""


def test_what_is_quarantined_is_the_newest_lists_word() -> None:
    bad = fold(UP, listed("git", "git_log", "git_add", quarantined={"bad": "why"}))
    assert bad.servers["git"].quarantined == {"bad": "why"}
    assert bad.servers["git"].tools is UP.servers["git"].tools
    assert fold(bad, listed("git", "git_log", "git_add")).servers["git"].quarantined == {}


def test_a_server_that_goes_down_keeps_its_tools() -> None:
    down = fold(UP, status("git", ServerState.CRASHLOOP))
    assert down.servers["git"].tools is UP.servers["git"].tools
    assert not down.servers["git"].available


@pytest.mark.parametrize("state", ServerState)
def test_tools_can_be_called_in_the_serving_states_only(state: ServerState) -> None:
    entry = fold(BEGUN, status("git", state)).servers["git"]
    assert entry.available is (state in {"ready", "degraded"})


def test_a_change_of_one_server_touches_no_other() -> None:
    changed = fold(UP, listed("git", "x"))
    assert changed.servers["fs"] is UP.servers["fs"]
    assert list(changed.servers) == list(UP.servers)


def test_a_change_of_status_keeps_the_categories() -> None:
    assert fold(UP, status("git", ServerState.BACKOFF)).categories is UP.categories


SERVER = st.sampled_from(["git", "fs", "stranger"])
INCARNATION = st.integers(0, 3)
FACTS = st.lists(
    st.one_of(
        st.builds(
            lambda server, state, incarnation: status(server, state, incarnation=incarnation),
            SERVER,
            st.sampled_from(ServerState),
            INCARNATION,
        ),
        st.builds(
            lambda server, names, incarnation: listed(server, *names, incarnation=incarnation),
            SERVER,
            st.lists(st.sampled_from("abc"), unique=True),
            INCARNATION,
        ),
        st.builds(
            lambda server, reason, incarnation: failed(server, reason, incarnation=incarnation),
            SERVER,
            st.sampled_from(["x", "y"]),
            INCARNATION,
        ),
    ),
    max_size=12,
)


@given(FACTS)
def test_epochs_never_fall_and_a_new_catalog_is_always_a_different_one(
    facts: list[StatusChanged | ToolsListed | ListingFailed],
) -> None:
    catalog = BEGUN
    for fact in facts:
        following = fold(catalog, fact)
        for name, entry in catalog.servers.items():
            assert 0 <= following.servers[name].epoch - entry.epoch <= 1
        assert following is catalog or following != catalog
        catalog = following


@given(FACTS)
def test_the_categories_are_always_those_of_the_servers_as_they_are(
    facts: list[StatusChanged | ToolsListed | ListingFailed],
) -> None:
    catalog = after(BEGUN, facts)
    assert catalog.categories == _categories(catalog.config, catalog.servers)


def test_what_no_caller_depends_on_is_shown_anew_without_a_new_epoch() -> None:
    with_icon = tool("git", "git_log", icons=[{"src": "x"}])
    later = after(UP, [listed("git", with_icon, "git_add")])
    assert later.servers["git"].tools["git_log"].raw == with_icon.raw  # type: ignore[index]
    assert later.servers["git"].epoch == UP.servers["git"].epoch
    assert later.categories is not UP.categories
