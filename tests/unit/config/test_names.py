"""Names of servers and the three ways to write the name of a tool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config.names import (
    SERVER_NAME,
    ToolReference,
    read_reference,
    slug,
    title_is_sound,
    tool_name_is_sound,
)


@pytest.mark.parametrize("name", ["git", "0", "a" * 64, "a_b-c"])
def test_plain_names_may_be_given_to_a_server(name: str) -> None:
    assert SERVER_NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "Git", "a" * 65, "-a", "_a", "..", "a/b", "a\n", "a\0", "é", "\u202ea"])
def test_names_that_paths_or_logs_could_trip_over_may_not(name: str) -> None:
    assert not SERVER_NAME.fullmatch(name)


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("Sequential Thinking", "sequential-thinking"),
        ("sequentialThinking", "sequential-thinking"),
        ("GitHub", "github"),
        ("@scope/pkg", "scope-pkg"),
        ("Café", "cafe"),
        ("..", None),
        ("日本", None),
    ],
)
def test_a_bad_name_has_a_good_one_close_by(name: str, better: str | None) -> None:
    assert slug(name) == better


def test_a_suggested_name_is_not_taken() -> None:
    assert slug("Git", ["git", "git-2"]) == "git-3"


@given(st.text(max_size=200))
def test_whatever_is_suggested_is_allowed(name: str) -> None:
    better = slug(name)
    assert better is None or SERVER_NAME.fullmatch(better)


@pytest.mark.parametrize(
    ("name", "server", "tool"),
    [
        ("read_file", None, "read_file"),
        ("serena/read_file", "serena", "read_file"),
        ("mcp__serena__read_file", "serena", "read_file"),
        ("mcp__a__b__c", "a__b", "c"),
        ("mcp__a__c", "a", "c"),
        ("mcp__unknown__x__y", "unknown", "x__y"),
        ("mcp__odd", None, "mcp__odd"),
        ("a/b/c", "a", "b/c"),
    ],
)
def test_a_tool_is_the_same_in_each_spelling(name: str, server: str | None, tool: str) -> None:
    assert read_reference(name, ["serena", "a", "a__b"]) == ToolReference(server=server, tool=tool)


@pytest.mark.parametrize(
    ("tool", "sound"), [("x", True), ("é" * 64, True), ("é" * 65, False), ("", False), ("a\nb", False)]
)
def test_tool_names_are_short_and_printable(tool: str, sound: bool) -> None:
    assert tool_name_is_sound(tool) is sound


@pytest.mark.parametrize(
    ("title", "sound"),
    [("日本", True), ("a b", True), ("", False), ("  ", False), ("a" * 65, False), ("\x1b[1m", False)],
)
def test_titles_are_short_and_printable(title: str, sound: bool) -> None:
    assert title_is_sound(title) is sound
