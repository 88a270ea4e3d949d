"""What the store remembers of a server, and what another daemon writes there."""

from typing import Any

import pytest

from daemon.catalog.entry import EMPTIED
from daemon.catalog.snapshot import Catalog, fold
from daemon.facts import DefinitionsListed, ServerRecord, Summarized
from daemon.model import Kind, Summary
from tests.unit.catalog.one_server import ANOTHER, BEGUN, CONFIG, UP, as_seen, different, git, names
from tests.unit.catalog.samples import (
    after,
    configured,
    definition,
    listed,
    prompts,
    recalled,
    status,
)

# --- what is remembered --------------------------------------------------------------------------------------


def test_before_any_list_the_remembered_tools_are_served() -> None:
    catalog = fold(BEGUN, recalled("git", "log", "add"))
    assert as_seen(catalog) == (["log", "add"], 5, True)
    assert list(catalog.categories["git"].members) == ["log", "add"]
    assert not git(catalog).usable
    assert not git(catalog).awaits(Kind.TOOL)


def test_a_remembered_server_that_lists_the_same_goes_on_with_its_epoch() -> None:
    catalog = after(BEGUN, [recalled("git", "log", "add"), status("git"), listed("git", "add", "log")])
    assert as_seen(catalog) == (["log", "add"], 5, False)


@pytest.mark.parametrize("now", [["log"], ["log", "add", "show"], []])
def test_a_remembered_server_that_lists_others_rises_by_one(now: list[str]) -> None:
    catalog = after(BEGUN, [recalled("git", "log", "add"), listed("git", *now)])
    assert as_seen(catalog) == (now, 6, False)


def nothing(*, first: bool, incarnation: int = 2) -> DefinitionsListed:
    return DefinitionsListed(kind=Kind.TOOL, server="git", incarnation=incarnation, definitions=(), first=first)


@pytest.mark.parametrize("known", [UP, after(BEGUN, [recalled("git", "log", "add", epoch=1)])])
def test_a_server_that_comes_back_with_nothing_keeps_what_is_known(known: Catalog) -> None:
    catalog = fold(known, nothing(first=True))
    assert (names(catalog), git(catalog).epoch) == (["log", "add"], 1)
    assert git(catalog).tool_list.problem == EMPTIED.format("tool")
    assert fold(catalog, nothing(first=True)) is catalog
    listing = fold(catalog, listed("git", "log", incarnation=2))
    assert (names(listing), git(listing).epoch, git(listing).tool_list.problem) == (["log"], 2, "")


def test_a_server_that_lets_go_of_what_it_has_listed_has_nothing() -> None:
    catalog = fold(UP, nothing(first=False))
    assert (names(catalog), git(catalog).epoch, git(catalog).tool_list.problem) == ([], 2, "")


def test_a_memory_that_comes_after_another_list_makes_that_a_change() -> None:
    assert as_seen(fold(UP, recalled("git", "log"))) == (["log", "add"], 6, False)


def test_tools_of_another_configuration_are_not_its_own() -> None:
    catalog = fold(BEGUN, recalled("git", "log", of=ANOTHER))
    assert as_seen(catalog) == (None, 5, False)
    assert as_seen(fold(catalog, listed("git", "log"))) == (["log"], 6, False)


def test_an_epoch_that_was_ahead_of_the_memory_meant_something_else() -> None:
    back = after(UP, [configured({"mcpServers": {"git": {"command": "other"}}}), configured(CONFIG)])
    assert as_seen(back) == (None, 2, False)
    assert as_seen(fold(back, recalled("git", "log", "add", epoch=1))) == (["log", "add"], 3, True)
    assert as_seen(fold(back, recalled("git", "log", "add", epoch=2))) == (["log", "add"], 2, True)


# --- what another daemon writes ------------------------------------------------------------------------------


def test_what_another_daemon_lists_is_taken_until_the_own_server_has_listed() -> None:
    catalog = fold(BEGUN, recalled("git", "log", epoch=5))
    newer = fold(catalog, recalled("git", "log", "add", epoch=6, by_another=True))
    assert as_seen(newer) == (["log", "add"], 6, True)
    assert fold(newer, recalled("git", "log", epoch=5, by_another=True)) is newer


def test_a_record_without_lists_still_raises_the_epoch() -> None:
    assert git(fold(UP, recalled("git", epoch=9, listed=False))).epoch == 9


def test_an_epoch_that_another_daemon_gave_to_other_tools_is_not() -> None:
    assert fold(UP, recalled("git", "log", epoch=9, by_another=True)) is UP
    assert fold(UP, recalled("git", "log", "add", epoch=9, of=ANOTHER, by_another=True)) is UP


def test_one_change_that_two_daemons_see_is_one_change() -> None:
    told = fold(UP, recalled("git", "log", "add", "new", epoch=2, by_another=True))
    assert git(fold(told, listed("git", "log", "add", "new"))).epoch == 2


def said(content: str, at: float, of: str = "") -> Summary:
    return Summary(text=content, at=at, of=of)


# --- what a model said ---------------------------------------------------------------------------------------


def test_sentences_leave_with_their_tools_and_strangers_are_not_kept() -> None:
    log, add = different("log", "add")
    sentences = {each.schema_hash: said("x", 1) for each in (log, add)} | {"0" * 64: said("y", 1)}
    catalog = after(BEGUN, [listed("git", log, add), Summarized(server="git", sentences=sentences)])
    assert set(git(catalog).sentences) == {log.schema_hash, add.schema_hash}
    assert set(git(fold(catalog, listed("git", add))).sentences) == {add.schema_hash}


@pytest.mark.parametrize(("tools", "newest"), [(["log"], said("b", 2)), (["log", "add"], said("a", 1))])
def test_a_later_summary_is_taken_only_if_it_is_of_the_same_tools(tools: list[str], newest: Summary) -> None:
    ours = Summarized(server="git", summary=said("a", 1), sentences={})
    theirs = recalled("git", *tools, summary=said("b", 2), by_another=True)
    assert git(after(BEGUN, [listed("git", "log"), ours, theirs])).summary == newest


# --- what is remembered of other lists -----------------------------------------------------------------------


def memory(
    *of_prompts: str, epoch: int = 5, tools: tuple[str, ...] = ("log", "add"), **more: Any
) -> ServerRecord:
    """The store remembers these prompts beside some tools."""
    listing = tuple(definition(Kind.PROMPT, "git", each) for each in of_prompts)
    return recalled("git", *tools, epoch=epoch, lists={Kind.PROMPT: listing}, **more)


def told(catalog: Catalog) -> tuple[list[str], int]:
    """Its prompts, and its epoch."""
    known = git(catalog).lists.get(Kind.PROMPT)
    return list(known.definitions if known else ()), git(catalog).epoch


def test_a_server_that_lists_the_remembered_prompts_goes_on_with_its_epoch() -> None:
    catalog = after(BEGUN, [memory("plan"), status("git"), listed("git", "log", "add"), prompts("git", "plan")])
    assert told(catalog) == (["plan"], 5)
    assert not git(catalog).lists[Kind.PROMPT].recalled
    assert told(fold(catalog, prompts("git", "plan", "review"))) == (["plan", "review"], 6)


def test_a_memory_of_prompts_that_comes_late_changes_no_list_and_never_repeats_an_epoch() -> None:
    listing = after(UP, [prompts("git", "review")])
    assert told(listing) == (["review"], 2)
    assert told(fold(listing, memory("review"))) == (["review"], 5)
    assert told(fold(listing, memory("plan"))) == (["review"], 6), "at 5 it listed others"
    assert told(fold(listing, memory("plan", epoch=1))) == (["review"], 2)


def test_newer_prompts_of_another_daemon_are_taken_until_the_own_server_has_listed() -> None:
    catalog = fold(BEGUN, memory("plan"))
    assert told(fold(catalog, memory("review", epoch=6, by_another=True))) == (["review"], 6)
    own = fold(catalog, prompts("git", "plan"))
    assert told(fold(own, memory("review", epoch=6, by_another=True)))[0] == ["plan"]
