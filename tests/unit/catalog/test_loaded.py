"""What a session has loaded: replaced, never changed, and bounded."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.catalog.loaded import (
    MAX_LOADED,
    VALID,
    Loaded,
    LoadedStatus,
    LoadedTool,
    Source,
    Standing,
    Verdict,
    judge,
    judge_in,
    standing,
)
from daemon.catalog.offer import Offer
from daemon.catalog.snapshot import fold
from daemon.states import ServerState
from tests.unit.catalog.samples import (
    after,
    catalog_of,
    configured,
    failed,
    listed,
    recalled,
    servers,
    status,
    switched,
    tool,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daemon.facts import Fact
    from daemon.model import Tool

READ = tool("fs", "read")
WRITE = tool("fs", "write")


def loading(loaded: Loaded, *names: str, source: Source = Source.MANUAL) -> Loaded:
    return loaded.adding([(tool("fs", name), 1) for name in names], source, at=5.0)


def test_a_tool_is_remembered_as_it_was_when_it_was_loaded() -> None:
    loaded = Loaded().adding([(READ, 3)], Source.AUTO, at=7.0)
    remembered = loaded.tools["fs", "read"]
    assert (remembered.schema_hash, remembered.epoch, remembered.source, remembered.at) == (
        READ.schema_hash,
        3,
        "auto",
        7.0,
    )
    assert ("fs", "read") in loaded
    assert ("fs", "write") not in loaded


def test_what_is_loaded_already_changes_nothing() -> None:
    loaded = loading(Loaded(), "read")
    assert loading(loaded, "read", source=Source.POLICY_PRELOAD) is loaded
    assert loaded.adding([], Source.MANUAL, at=9.0) is loaded


def test_a_call_of_a_loaded_tool_is_recorded_once_and_changes_nothing_else_of_it() -> None:
    called = loading(loading(Loaded(), "read"), "read", source=Source.AUTO)
    assert called.tools["fs", "read"] == attrs.evolve(
        loading(Loaded(), "read").tools["fs", "read"], source=Source.AUTO
    )
    assert loading(called, "read", source=Source.AUTO) is called


def test_a_tool_that_changed_is_loaded_anew_and_stands_last() -> None:
    loaded = loading(Loaded(), "read", "write")
    changed = tool("fs", "read", description="another")
    again = loaded.adding([(changed, 2)], Source.MANUAL, at=9.0)
    assert list(again.tools) == [("fs", "write"), ("fs", "read")]
    assert again.tools["fs", "read"].schema_hash == changed.schema_hash
    assert loaded.tools["fs", "read"].schema_hash != changed.schema_hash


@pytest.mark.parametrize("first", [1, MAX_LOADED - 1, MAX_LOADED])
def test_beyond_the_bound_those_loaded_first_leave(first: int) -> None:
    names = [f"t{number}" for number in range(MAX_LOADED + first)]
    loaded = loading(loading(Loaded(), *names[:first]), *names[first:])
    assert len(loaded.tools) == MAX_LOADED
    assert [name for _, name in loaded.tools] == names[-MAX_LOADED:]


# --- verdicts ------------------------------------------------------------------------------------------------

GONE = Verdict(status=LoadedStatus.INVALID_DELETED, reason="gone")
OFF = Verdict(status=LoadedStatus.INVALID_DISABLED, reason="off")


def judging(**verdicts: Verdict) -> Callable[[LoadedTool], Verdict]:
    return lambda each: verdicts.get(each.key[1], VALID)


def test_what_is_loaded_is_valid_until_somebody_judges_otherwise() -> None:
    read = loading(Loaded(), "read").tools["fs", "read"]
    assert (read.verdict, read.judged_at) == (VALID, 0.0)
    assert read.verdict.valid


def test_a_verdict_is_kept_with_its_time_in_the_same_place() -> None:
    judged = loading(Loaded(), "read", "write").judged(judging(read=GONE), at=9.0)
    assert list(judged.tools) == [("fs", "read"), ("fs", "write")]
    assert (judged.tools["fs", "read"].verdict, judged.tools["fs", "read"].judged_at) == (GONE, 9.0)
    assert (judged.tools["fs", "write"].verdict, judged.tools["fs", "write"].judged_at) == (VALID, 0.0)
    assert ("fs", "read") in judged


def test_the_same_verdicts_again_change_nothing() -> None:
    loaded = loading(Loaded(), "read", "write")
    assert loaded.judged(judging(), at=9.0) is loaded
    judged = loaded.judged(judging(read=GONE), at=9.0)
    assert judged.judged(judging(read=Verdict(status=GONE.status, reason=GONE.reason)), at=11.0) is judged
    assert Loaded().judged(judging(read=GONE), at=9.0) == Loaded()


@pytest.mark.parametrize(
    "verdict", [OFF, Verdict(status=GONE.status, reason="another"), Verdict(status=GONE.status, renamed_to="x")]
)
def test_another_verdict_or_reason_counts_from_its_own_time(verdict: Verdict) -> None:
    judged = loading(Loaded(), "read").judged(judging(read=GONE), at=9.0)
    again = judged.judged(judging(read=verdict), at=11.0).tools["fs", "read"]
    assert (again.verdict, again.judged_at) == (verdict, 11.0)


def test_an_invalid_tool_that_is_loaded_again_begins_anew() -> None:
    judged = loading(Loaded(), "read", "write").judged(judging(read=GONE), at=9.0)
    again = judged.adding([(READ, 4), (WRITE, 4)], Source.POLICY_PRELOAD, at=12.0)
    assert list(again.tools) == [("fs", "write"), ("fs", "read")]
    read = again.tools["fs", "read"]
    assert (read.verdict, read.judged_at, read.at, read.epoch, read.source) == (
        VALID,
        0.0,
        12.0,
        4,
        "policy_preload",
    )
    assert again.tools["fs", "write"] is judged.tools["fs", "write"]


def test_invalid_tools_count_against_the_bound_too() -> None:
    full = loading(Loaded(), *(f"t{number}" for number in range(MAX_LOADED)))
    judged = full.judged(judging(t0=GONE, t1=GONE), at=9.0)
    more = loading(judged, "new")
    assert len(more.tools) == MAX_LOADED
    assert ("fs", "t0") not in more
    assert ("fs", "t1") in more


# --- two that are put together -------------------------------------------------------------------------------


def test_what_was_loaded_later_stands_last_and_counts() -> None:
    earlier = loading(Loaded(), "read", "write").judged(judging(read=GONE), at=9.0)
    later = loading(Loaded(), "new", "read")
    assert list(earlier.joined(later).tools) == [("fs", "write"), ("fs", "new"), ("fs", "read")]
    assert earlier.joined(later).tools["fs", "read"].verdict == VALID


def test_two_full_ones_are_as_bounded_as_one() -> None:
    one, other = (loading(Loaded(), *(f"{letter}{number}" for number in range(MAX_LOADED))) for letter in "ab")
    assert one.joined(other) == other


SAME, OTHER = "a" * 64, "b" * 64
COMBINATIONS = [
    Standing(
        server_configured=configured_,
        server_enabled=on,
        listed=known,
        schema_hash=digest,
        enabled=enabled,
        renamed_to=new,
    )
    for configured_, on, known, digest, enabled, new in product(
        (True, False), (True, False), (True, False), (SAME, OTHER, None), (True, False), ("new", None)
    )
]


def expected(now: Standing) -> Iterator[str]:
    """The rules of the seed, each on its own; the first that says something is right.

    Written without a look at `judge`: a server that is not there outweighs all that is known of its tools, one
    that is off outweighs what it once listed, one that has not said what it has is given the benefit of doubt.
    """
    if now.server_configured is False:
        yield "invalid_deleted"
    if now.server_enabled is False:
        yield "invalid_server_disabled"
    if now.listed is False:
        yield "valid"
    match now.schema_hash, now.renamed_to, now.enabled:
        case None, str(), _:
            yield "invalid_renamed"
        case None, None, _:
            yield "invalid_deleted"
        case _, _, False:
            yield "invalid_disabled"
        case digest, _, _ if digest == OTHER:
            yield "invalid_changed"
    yield "valid"


@pytest.mark.parametrize("now", COMBINATIONS, ids=str)
def test_every_combination_gets_the_status_of_the_first_rule_that_applies(now: Standing) -> None:
    verdict = judge(SAME, "git", "log", now)
    assert verdict.status == next(expected(now))
    assert verdict.valid is (verdict.status == "valid")
    assert bool(verdict.reason) is not verdict.valid
    assert verdict.renamed_to == ("new" if verdict.status is LoadedStatus.INVALID_RENAMED else None)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (Standing(server_configured=False), "server git is no longer in mcpd's configuration"),
        (Standing(server_configured=True, server_enabled=False), "server git is switched off"),
        (Standing(server_configured=True), "server git no longer has it"),
        (Standing(server_configured=True, renamed_to="show_log"), "server git calls it show_log now"),
        (Standing(server_configured=True, schema_hash=SAME, enabled=False), "{log} is switched off"),
        (
            Standing(server_configured=True, schema_hash=OTHER),
            "server git has changed it since it was loaded",
        ),
        (Standing(server_configured=True, schema_hash=SAME), ""),
    ],
)
def test_the_reason_says_who_did_what(now: Standing, reason: str) -> None:
    assert judge(SAME, "git", "{log}", now).reason == reason


# --- what catalogs say -----------------------------------------------------------------------------------

CONFIG: dict[str, Any] = {"mcpServers": servers("git", "fs")}
LOG, HISTORY = (tool("git", name, description="shows commits") for name in ("log", "history"))
UP = after(catalog_of(CONFIG), [status("git"), listed("git", LOG, "add")])
GIT_OFF = {"mcpServers": {**servers("git", "fs"), "git": {**servers("git")["git"], "enabled": False}}}
LOG_OFF = {
    **CONFIG,
    "categories": {"c": {"server": "git", "tools": {"overrides": {"log": {"enabled": False}}}}},
}
ANOTHER_GIT = {"mcpServers": {**servers("git", "fs"), "git": {"command": "another"}}}


LOADED: LoadedTool = Loaded().adding([(LOG, 1)], Source.MANUAL, at=5.0).tools["git", "log"]


@pytest.mark.parametrize(
    ("facts", "is_so"),
    [
        ([], "valid"),
        ([status("git", ServerState.CRASHLOOP)], "valid"),
        ([failed("git")], "valid"),
        ([listed("git", LOG)], "valid"),
        (
            [listed("git", tool("git", "log", description="shows commits", icons=[{"src": "x"}]), "add")],
            "invalid_changed",
        ),
        ([listed("git", tool("git", "log", description="shows a commit"), "add")], "invalid_changed"),
        ([listed("git", "add")], "invalid_deleted"),
        ([listed("git")], "invalid_deleted"),
        ([listed("git", "add", HISTORY)], "invalid_renamed"),
        ([listed("git", "add", HISTORY), listed("git", "add", LOG)], "valid"),
        ([listed("git", "add", HISTORY), listed("git", "add")], "invalid_deleted"),
        ([switched("git/log")], "invalid_disabled"),
        ([switched("git/add", "fs")], "valid"),
        ([switched("git")], "invalid_server_disabled"),
        ([switched("git", "git/log"), switched("git/log")], "invalid_disabled"),
        ([switched("git"), switched()], "valid"),
        ([switched("git"), status("git", ServerState.DISABLED), switched()], "valid"),
        ([switched("git/log"), listed("git", "add")], "invalid_deleted"),
        ([configured(GIT_OFF)], "invalid_server_disabled"),
        ([configured(GIT_OFF), status("git", ServerState.STOPPED)], "invalid_server_disabled"),
        ([configured(GIT_OFF), configured(CONFIG)], "valid"),
        ([configured(LOG_OFF)], "invalid_disabled"),
        ([configured(LOG_OFF), configured(CONFIG)], "valid"),
        ([configured({"mcpServers": servers("fs")})], "invalid_deleted"),
        ([configured({"mcpServers": servers("fs")}), configured(CONFIG)], "valid"),
        ([configured(ANOTHER_GIT)], "valid"),
        ([configured(ANOTHER_GIT), listed("git", "add", incarnation=2)], "invalid_deleted"),
        ([status("git", incarnation=2), listed("git", incarnation=1)], "valid"),
    ],
)
def test_a_loaded_tool_is_judged_by_what_has_happened_since(facts: list[Fact], is_so: str) -> None:
    assert judge_in(after(UP, facts), LOADED).status == is_so


def test_right_after_a_start_nothing_speaks_against_what_was_loaded_before() -> None:
    assert judge_in(catalog_of(CONFIG), LOADED) == VALID


@pytest.mark.parametrize(
    ("tools", "is_so"), [([LOG], "valid"), ([HISTORY], "invalid_deleted"), ([], "invalid_deleted")]
)
def test_what_is_remembered_counts_until_the_server_is_up(tools: list[Tool], is_so: str) -> None:
    assert judge_in(fold(catalog_of(CONFIG), recalled("git", *tools)), LOADED).status == is_so


def test_a_renamed_tool_is_named_as_it_is_called_now() -> None:
    verdict = judge_in(after(UP, [listed("git", "add", HISTORY)]), LOADED)
    assert (verdict.renamed_to, verdict.reason) == ("history", "server git calls it history now")


def test_a_tool_that_is_on_in_one_category_is_on() -> None:
    config = {
        **CONFIG,
        "categories": {
            "one": {"server": "git", "tools": {"overrides": {"log": {"enabled": False}}}},
            "two": {"server": "git"},
        },
    }
    assert judge_in(after(UP, [configured(config)]), LOADED) == VALID


@pytest.mark.parametrize("name", ["log", "git/log", "git__log", "mcp__git__log"])
def test_a_tool_that_some_profile_includes_although_it_is_off_can_stay_loaded(name: str) -> None:
    config = {**LOG_OFF, "profiles": {"p": {"includedOptionalTools": ["x", name]}}}
    included = after(UP, [configured(config)])
    assert judge_in(included, LOADED) == VALID
    assert ("git", "log") in Offer(included, included.config.profiles["p"]).tools
    assert judge_in(after(included, [switched("git/log")]), LOADED).status == "invalid_disabled"
    assert judge_in(after(included, [configured(LOG_OFF)]), LOADED).status == "invalid_disabled"


def test_the_standing_of_a_tool_is_what_the_catalog_knows() -> None:
    catalog = after(UP, [listed("git", "add", HISTORY), switched("git/add")])
    add = tool("git", "add").schema_hash
    assert standing(catalog, ("git", "add")) == Standing(server_configured=True, schema_hash=add, enabled=False)
    assert standing(catalog, ("git", "log")) == Standing(server_configured=True, renamed_to="history")
    assert standing(catalog, ("fs", "x")) == Standing(server_configured=True, listed=False)
    assert standing(catalog, ("stranger", "x")) == Standing(server_configured=False)
