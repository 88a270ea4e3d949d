"""What a session has loaded: replaced, never changed, and bounded."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import attrs
import pytest

from daemon.catalog.entry import KnownList
from daemon.catalog.loaded import (
    MAX_LOADED,
    VALID,
    Loaded,
    LoadedStatus,
    LoadedTool,
    Source,
    Verdict,
    judge_in,
)
from daemon.catalog.offer import Offer
from daemon.catalog.shown import MAX_SHOWN, Shown
from daemon.catalog.snapshot import Catalog
from daemon.facts import Fact
from daemon.model import Kind, Tool
from daemon.states import ServerState
from tests.unit.catalog.samples import (
    after,
    catalog_of,
    configured,
    failed,
    listed,
    servers,
    status,
    switched,
    tool,
)


def loading(loaded: Loaded, *names: str, source: Source = Source.MANUAL) -> Loaded:
    return loaded.adding([(tool("fs", name), 1) for name in names], source, at=5.0)


def test_what_is_loaded_already_changes_nothing() -> None:
    loaded = loading(Loaded(), "read")
    assert loading(loaded, "read", source=Source.POLICY_PRELOAD) is loaded
    assert loaded.adding([], Source.MANUAL, at=9.0) is loaded


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


def judging(**verdicts: Verdict) -> Callable[[LoadedTool], Verdict]:
    return lambda each: verdicts.get(each.key[1], VALID)


def test_the_same_verdicts_again_change_nothing() -> None:
    loaded = loading(Loaded(), "read", "write")
    assert loaded.judged(judging(), at=9.0) is loaded
    judged = loaded.judged(judging(read=GONE), at=9.0)
    assert judged.judged(judging(read=Verdict(status=GONE.status, reason=GONE.reason)), at=11.0) is judged
    assert Loaded().judged(judging(read=GONE), at=9.0) == Loaded()


# --- two that are put together -------------------------------------------------------------------------------


def test_what_was_loaded_later_stands_last_and_counts() -> None:
    earlier = loading(Loaded(), "read", "write").judged(judging(read=GONE), at=9.0)
    later = loading(Loaded(), "new", "read")
    assert list(earlier.joined(later).tools) == [("fs", "write"), ("fs", "new"), ("fs", "read")]
    assert earlier.joined(later).tools["fs", "read"].verdict == VALID


def test_two_full_ones_are_as_bounded_as_one() -> None:
    one, other = (loading(Loaded(), *(f"{letter}{number}" for number in range(MAX_LOADED))) for letter in "ab")
    assert one.joined(other) == other


# --- what catalogs say ---------------------------------------------------------------------------------------

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


@attrs.frozen
class Now:
    """What holds of the tool now."""

    configured: bool
    on: bool
    listed: bool
    changed: bool | None
    """None: the server has no such tool."""
    enabled: bool
    new: str | None

    def catalog(self) -> Catalog:
        """A catalog in which that is so."""
        now = attrs.evolve(LOG, schema_hash="b" * 64) if self.changed else LOG
        known = KnownList(
            definitions={} if self.changed is None else {"log": now},
            renamed={} if self.new is None else {"log": self.new},
        )
        entry = attrs.evolve(
            UP.servers["git"], enabled=self.on, lists={Kind.TOOL: known} if self.listed else {}
        )
        off = frozenset[tuple[str, str]]() if self.enabled else frozenset({("git", "log")})
        return attrs.evolve(UP, servers={"git": entry} if self.configured else {}, off=off)

    def expected(self) -> Iterator[str]:
        """The rules of the seed, each on its own; the first that says something is right.

        Written without a look at `judge_in`: a server that is not there outweighs all that is known of its
        tools, one that is off outweighs what it once listed, one that has not said what it has is given the
        benefit of doubt.
        """
        if not self.configured:
            yield "invalid_deleted"
        if not self.on:
            yield "invalid_server_disabled"
        if not self.listed:
            yield "valid"
        match self.changed, self.new, self.enabled:
            case None, str(), _:
                yield "invalid_renamed"
            case None, None, _:
                yield "invalid_deleted"
            case _, _, False:
                yield "invalid_disabled"
            case True, _, _:
                yield "invalid_changed"
        yield "valid"


YES_NO = (True, False)
COMBINATIONS = [
    Now(*each) for each in product(YES_NO, YES_NO, YES_NO, (False, True, None), YES_NO, ("new", None))
]


@pytest.mark.parametrize("now", COMBINATIONS, ids=str)
def test_every_combination_gets_the_status_of_the_first_rule_that_applies(now: Now) -> None:
    verdict = judge_in(now.catalog(), LOADED)
    assert verdict.status == next(now.expected())
    assert verdict.valid is (verdict.status == "valid")
    assert bool(verdict.reason) is not verdict.valid
    assert verdict.renamed_to == ("new" if verdict.status is LoadedStatus.INVALID_RENAMED else None)


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


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        (listed("git", "add"), "server git no longer has it"),
        (listed("git", "add", HISTORY), "server git calls it history now"),
        (switched("git/log"), "log is switched off"),
    ],
)
def test_a_verdict_names_its_reason(fact: Fact, reason: str) -> None:
    assert judge_in(after(UP, [fact]), LOADED).reason == reason


# --- what one client was last shown of each tool -------------------------------------------------------------


SHOWN_CONFIG = {"mcpServers": servers("git")}


def offer(*tools: Tool) -> Offer:
    catalog = after(catalog_of(SHOWN_CONFIG), [status("git"), listed("git", *tools)])
    return Offer(catalog, catalog.config.profiles["default"])


OLD_KEY = "git", "log"
OLD, NEW = tool("git", "log"), tool("git", "log", description="new")


def test_the_last_showing_counts_whether_alone_or_in_a_list() -> None:
    shown = Shown()
    shown.add([OLD])
    assert shown.hash_of(("git", "log")) == OLD.schema_hash
    shown.add_list(offer(NEW).table)
    assert shown.hash_of(("git", "log")) == NEW.schema_hash
    shown.add([OLD])
    assert shown.hash_of(("git", "log")) == OLD.schema_hash
    shown.add_list(offer(NEW).table)
    assert shown.hash_of(("git", "log")) == NEW.schema_hash


def test_what_a_later_list_lacks_is_still_known_as_it_was_shown() -> None:
    shown = Shown()
    other = tool("git", "add")
    shown.add_list(offer(OLD).table)
    shown.add_list(offer(other).table)
    shown.add_list(offer(other).table)
    assert shown.hash_of(("git", "log")) == OLD.schema_hash
    assert shown.hash_of(("git", "add")) == other.schema_hash


def test_of_too_many_tools_that_a_later_list_lacks_the_latest_are_known() -> None:
    shown = Shown()
    shown.add_list(offer(*(tool("git", f"t{number}") for number in range(MAX_SHOWN))).table)
    shown.add([OLD])
    shown.add_list(offer().table)
    assert shown.hash_of(("git", "t0")) is None
    assert shown.hash_of(OLD_KEY) == OLD.schema_hash


def test_who_asked_before_the_end_of_a_turn_had_not_been_shown_what_was_shown_in_it() -> None:
    shown = Shown()
    shown.add([OLD], turn=1)
    shown.add_list(offer(NEW).table, turn=3)
    shown.add([NEW], turn=3)
    assert [shown.hash_of(OLD_KEY, turn) for turn in (2, 3)] == [OLD.schema_hash] * 2
    assert [shown.hash_of(OLD_KEY, turn) for turn in (4, None)] == [NEW.schema_hash] * 2


def test_what_a_session_was_shown_before_counts_until_this_client_is_shown_it() -> None:
    before = Shown()
    before.add([OLD])
    shown = Shown(before.hash_of)
    assert shown.hash_of(("git", "log")) == OLD.schema_hash
    shown.add([NEW])
    assert shown.hash_of(("git", "log")) == NEW.schema_hash


def test_the_tools_that_were_shown_one_by_one_are_bounded_and_the_latest_stay() -> None:
    shown = Shown()
    shown.add([OLD])
    shown.add(tool("git", f"t{number}") for number in range(MAX_SHOWN))
    assert shown.hash_of(("git", "log")) is None
    assert shown.hash_of(("git", "t0")) is not None
    assert shown.hash_of(("git", f"t{MAX_SHOWN - 1}")) is not None
