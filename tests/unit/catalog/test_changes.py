"""What facts change about one server: renames, runs, configurations, and since when it is as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.catalog.definitions import MAX_RENAMED, NEVER
from daemon.catalog.snapshot import fold
from daemon.model import Kind, Tool
from daemon.states import ServerState
from tests.unit.catalog.one_server import BEGUN, CONFIG, UP, alike, as_seen, different, git, names
from tests.unit.catalog.samples import (
    after,
    configured,
    definition,
    failed,
    listed,
    prompts,
    recalled,
    resources,
    servers,
    status,
    templates,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.facts import DefinitionsListed, Fact

# --- renames ---------------------------------------------------------------------------------------------


def renames(*lists: Iterable[Tool]) -> Mapping[str, str]:
    return git(after(BEGUN, [listed("git", *tools) for tools in lists])).tool_list.renamed


def a_list(written: str) -> list[Tool]:
    """Tools by contents and name: `x=a y=b`."""
    return [alike(contents, name) for contents, _, name in (each.partition("=") for each in written.split())]


@pytest.mark.parametrize(
    ("lists", "linked"),
    [
        pytest.param(["x=a y=b", "x=c y=b"], {"a": "c"}, id="one that went and one that came"),
        pytest.param(["x=a", "y=b"], {}, id="a tool that changed with its name"),
        pytest.param(["x=a y=b", "x=A y=B"], {"a": "A", "b": "B"}, id="several at once"),
        pytest.param(["x=a", "x=b", "x=c"], {"a": "c", "b": "c"}, id="a name that was left twice"),
        pytest.param(["x=a", "x=b", "x=a"], {"b": "a"}, id="called as before again"),
        pytest.param(["x=a", "x=b", ""], {}, id="a rename ends with the tool"),
        pytest.param(["x=a", "x=b", "x=b y=a"], {}, id="or when its old name is taken"),
        pytest.param(["x=a", "x=b", "z=b"], {"a": "b"}, id="and outlives a change of contents"),
        pytest.param(["x=a y=b", "y=a x=b"], {}, id="two that swap names"),
        pytest.param(["x=a y=b", "x=b y=c"], {}, id="one that takes the name of another"),
    ],
)
def test_a_rename_is_one_definition_that_went_and_one_that_came_with_its_contents(
    lists: list[str], linked: dict[str, str]
) -> None:
    catalog = after(BEGUN, [listed("git", *a_list(each)) for each in lists])
    assert git(catalog).tool_list.renamed == linked
    assert git(catalog).epoch == len(lists)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (["a"], ["a", "b"]),
        (["a", "b"], ["a"]),
        (["a", "b"], ["c"]),
        (["a"], ["b", "c"]),
        (["a", "b"], ["a", "c"]),
        (["a", "b"], ["c", "d"]),
    ],
)
def test_where_nobody_could_say_which_became_which_none_is_linked(before: list[str], now: list[str]) -> None:
    first, second = ([alike("same", name) for name in each] for each in (before, now))
    assert renames(first, second) == {}


def test_a_rename_while_the_daemon_was_down_is_seen() -> None:
    memory, now = recalled("git", alike("x", "a")), listed("git", alike("x", "b"))
    orders: list[list[Fact]] = [[memory, now], [now, memory]]
    for facts in orders:
        catalog = after(BEGUN, facts)
        assert (git(catalog).tool_list.renamed, git(catalog).epoch) == ({"a": "b"}, 6)


def test_a_rename_that_another_daemon_saw_is_seen() -> None:
    facts: list[Fact] = [
        recalled("git", alike("x", "a")),
        recalled("git", alike("x", "b"), epoch=6, by_another=True),
    ]
    assert git(after(BEGUN, facts)).tool_list.renamed == {"a": "b"}


def test_a_server_that_invents_names_for_ever_does_not_fill_the_memory() -> None:
    first, second, third = (
        [alike(f"tool {n}", f"{letter}{n}") for n in range(MAX_RENAMED)] for letter in "abc"
    )
    assert len(renames(first, second)) == MAX_RENAMED
    assert renames(first, second, third) == {f"b{n}": f"c{n}" for n in range(MAX_RENAMED)}


# --- runs, and configurations ----------------------------------------------------------------------------


def another_git(**more: object) -> dict[str, Any]:
    return {"mcpServers": {**servers("git", "fs"), "git": {**servers("git")["git"], **more}}}


def test_what_the_server_of_the_old_configuration_says_does_not_count_for_the_new_one() -> None:
    replaced = fold(UP, configured(another_git(command="another")))
    assert as_seen(replaced) == (None, 2, False)
    for fact in (listed("git", "old"), failed("git", "gone")):
        assert fold(replaced, fact) is replaced


def test_nor_after_the_old_child_has_told_how_it_ends() -> None:
    replaced = fold(UP, configured(another_git(command="another")))
    ending = after(replaced, [status("git", ServerState.DEGRADED), status("git", ServerState.BACKOFF)])
    assert git(ending).status.state is ServerState.BACKOFF
    assert fold(ending, listed("git", "old")) is ending
    started = after(ending, [status("git", ServerState.STARTING, incarnation=2)])
    assert names(fold(started, listed("git", "new", incarnation=2))) == ["new"]


@pytest.mark.parametrize("last", [0, 1, 7])
def test_however_often_it_is_configured_anew_the_next_run_counts(last: int) -> None:
    catalog = after(UP, [status("git", ServerState.DORMANT, incarnation=last)]) if last else BEGUN
    for args in (["a"], ["b"], ["a"]):
        catalog = fold(catalog, configured(another_git(args=args)))
        # A child that sleeps tells how it is, with the number of the run that it had.
        catalog = fold(catalog, status("git", ServerState.DORMANT, incarnation=last))
        assert fold(catalog, listed("git", "old", incarnation=last)) is catalog
    assert names(fold(catalog, listed("git", "new", incarnation=last + 1))) == ["new"]


def test_an_older_run_that_is_heard_of_late_does_not_come_to_life() -> None:
    late = after(UP, [status("git", incarnation=3), status("git", ServerState.STOPPING, incarnation=2)])
    assert fold(late, listed("git", "old", incarnation=2)) is late


def test_a_server_that_the_configuration_switches_off_comes_to_rest_as_disabled() -> None:
    off = fold(UP, configured(another_git(enabled=False)))
    stopping = fold(off, status("git", ServerState.STOPPING))
    assert git(stopping).disabled
    stopped = fold(stopping, status("git", ServerState.STOPPED, reason="removed"))
    assert git(stopped).status.state is ServerState.DISABLED
    assert "configuration" in git(stopped).status.reason
    assert git(stopped).epoch == git(off).epoch


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


def test_when_it_was_listed_is_known() -> None:
    catalog = fold(UP, attrs.evolve(listed("git", "x"), at=77.0))
    assert git(catalog).tool_list.at == 77.0
    assert git(fold(catalog, listed("git", "y"))).tool_list.at == 77.0


# --- since when tools are as they are ------------------------------------------------------------------------


def at(time: float, *tools: str | Tool) -> DefinitionsListed:
    return attrs.evolve(listed("git", *tools), at=time)


def test_what_a_server_lists_first_is_so_since_this_life_has_begun() -> None:
    assert git(fold(BEGUN, at(2000.0, "log"))).tool_list.since == {"log": BEGUN.begun}


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


def test_what_a_server_lists_under_another_configuration_is_new() -> None:
    catalog = fold(BEGUN, recalled("git", "log", of="f" * 64, since={"log": 50.0}))
    assert git(fold(catalog, at(2000.0, "log"))).tool_list.since == {"log": 2000.0}


@pytest.mark.parametrize(("by_another", "since"), [(False, 50.0), (True, BEGUN.begun)])
def test_a_memory_that_comes_late_knows_for_how_long_tools_are_so(*, by_another: bool, since: float) -> None:
    memory = recalled(
        "git", "log", different("add")[0], since={"log": 50.0, "add": 60.0}, by_another=by_another
    )
    catalog = after(BEGUN, [at(2000.0, "log", "add"), memory])
    assert git(catalog).tool_list.since == {"log": since, "add": BEGUN.begun}


# --- lists beside the tools ----------------------------------------------------------------------------------


def test_an_epoch_rises_when_a_list_looks_different_and_never_otherwise() -> None:
    first = fold(UP, prompts("git", "plan"))
    assert git(first).epoch == git(UP).epoch + 1
    again = definition(Kind.PROMPT, "git", "plan")
    assert fold(first, prompts("git", again)) is first
    assert git(fold(first, prompts("git", definition(Kind.PROMPT, "git", "plan", title="T")))).epoch == 3
    assert git(fold(first, prompts("git"))).epoch == 3
    for nothing_new in (
        prompts("git", "plan", quarantined={"x": "bad"}),
        prompts("git", problem="timed out"),
        resources("git"),
        templates("git", declared=False),
    ):
        assert git(fold(first, nothing_new)).epoch == git(first).epoch


def test_a_list_of_an_earlier_run_is_not_taken() -> None:
    catalog = fold(UP, status("git", incarnation=2))
    assert fold(catalog, prompts("git", "plan", incarnation=1)) is catalog


def test_a_server_that_is_configured_anew_has_none_of_the_old_ones_prompts() -> None:
    known = fold(UP, prompts("git", "plan"))
    other = fold(known, configured(another_git(command="another")))
    assert other.servers["git"].lists == {}
    assert other.lists[Kind.PROMPT].get("git", {}) == {}
    assert other.servers["git"].epoch == known.servers["git"].epoch + 1
