"""What a session has loaded: replaced, never changed, and bounded."""

from __future__ import annotations

import pytest

from daemon.catalog.loaded import MAX_LOADED, Loaded, Source
from tests.catalog.samples import tool

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
    assert loading(loaded, "read", source=Source.AUTO) is loaded
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
