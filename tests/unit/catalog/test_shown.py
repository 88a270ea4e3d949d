"""What one client was last shown of each tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.catalog.offer import Offer
from daemon.catalog.shown import MAX_SHOWN, Shown
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool

if TYPE_CHECKING:
    from daemon.model import Tool

CONFIG = {"mcpServers": servers("git")}


def offer(*tools: Tool) -> Offer:
    catalog = after(catalog_of(CONFIG), [status("git"), listed("git", *tools)])
    return Offer(catalog, catalog.config.profiles["default"])


OLD_KEY = "git", "log"
OLD, NEW = tool("git", "log"), tool("git", "log", description="new")


def test_what_was_never_shown_is_unknown() -> None:
    assert Shown().hash_of(("git", "log")) is None


def test_the_last_showing_counts_whether_alone_or_in_a_list() -> None:
    shown = Shown()
    shown.add([OLD])
    assert shown.hash_of(("git", "log")) == OLD.schema_hash
    shown.add_list(offer(NEW).tools)
    assert shown.hash_of(("git", "log")) == NEW.schema_hash
    shown.add([OLD])
    assert shown.hash_of(("git", "log")) == OLD.schema_hash
    shown.add_list(offer(NEW).tools)
    assert shown.hash_of(("git", "log")) == NEW.schema_hash


def test_what_a_later_list_lacks_is_still_known_as_it_was_shown() -> None:
    shown = Shown()
    other = tool("git", "add")
    shown.add_list(offer(OLD).tools)
    shown.add_list(offer(other).tools)
    shown.add_list(offer(other).tools)
    assert shown.hash_of(("git", "log")) == OLD.schema_hash
    assert shown.hash_of(("git", "add")) == other.schema_hash


def test_who_asked_before_the_end_of_a_turn_had_not_been_shown_what_was_shown_in_it() -> None:
    shown = Shown()
    shown.add([OLD], turn=1)
    shown.add_list(offer(NEW).tools, turn=3)
    shown.add([NEW], turn=3)
    assert [shown.hash_of(OLD_KEY, turn) for turn in (2, 3)] == [OLD.schema_hash] * 2
    assert [shown.hash_of(OLD_KEY, turn) for turn in (4, None)] == [NEW.schema_hash] * 2


def test_what_was_changed_twice_in_a_turn_is_known_as_it_was_before_it() -> None:
    shown = Shown()
    shown.add([OLD], turn=1)
    shown.add([NEW], turn=2)
    shown.add([tool("git", "log", description="newer")], turn=2)
    assert shown.hash_of(OLD_KEY, 2) == OLD.schema_hash


def test_what_is_assumed_gives_way_to_what_was_shown() -> None:
    shown = Shown()
    shown.assume(OLD_KEY, OLD.schema_hash)
    shown.add([NEW], turn=5)
    shown.assume(OLD_KEY, "another")
    assert shown.hash_of(OLD_KEY) == NEW.schema_hash
    assert shown.hash_of(OLD_KEY, 5) == OLD.schema_hash


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
