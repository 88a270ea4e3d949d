"""Names of servers and the three ways to write the name of a tool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config.names import (
    MAX_PATTERN,
    SERVER_NAME,
    ToolReference,
    matches,
    pattern_problem,
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


@pytest.mark.parametrize(
    ("pattern", "server", "tool", "fits"),
    [
        ("git_*", "git", "git_log", True),
        ("git_*", "git", "GIT_log", False),
        ("git/git_*", "git", "git_log", True),
        ("mcp__git__git_l*", "git", "git_log", True),
        ("git/*", "other", "git_log", False),
        ("[", "git", "[", True),
        ("/^git_(log|show)$/", "git", "git_show", True),
        ("/^git_(log|show)$/", "git", "git_shown", False),
        ("/LOG/", "git", "git_log", False),
        ("/(?i)LOG/", "git", "git_log", True),
        ("/git\\/log/", "git", "log", False),
        ("/ファイル/", "fs", "読むファイル", True),
        ("/", "s", "/", True),
        ("//", "s", "//", True),
    ],
)
def test_a_glob_fits_the_name_or_server_and_name_and_a_regex_any_part_of_the_name(
    pattern: str, server: str, tool: str, *, fits: bool
) -> None:
    assert matches(pattern, server, tool) is fits


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("", "an empty pattern fits no tool"),
        ("x" * (MAX_PATTERN + 1), f"at most {MAX_PATTERN} characters"),
        ("/", "a regex stands between two slashes"),
        ("//", "a regex stands between two slashes"),
        ("/abc", "a regex stands between two slashes"),
        ("/(/", "missing )"),
        ("/(?=a)/", "Lookaround"),
        ("/(a)\\1/", "back-references"),
        ("/((a{100}){100}){100}/", "does not compile"),
        ("/\ud800/", "unpaired surrogate"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_named_with_the_reason(pattern: str, problem: str) -> None:
    assert problem in pattern_problem(pattern)


@pytest.mark.parametrize("pattern", ["*", "git_*", "/^git_/", "/(a+)+$/", "x" * MAX_PATTERN])
def test_a_sound_pattern_has_no_problem(pattern: str) -> None:
    assert pattern_problem(pattern) == ""


@pytest.mark.parametrize("pattern", ["/^(a+)+$/", "/(a|aa)+$/", "/(.*)*x/", "a*a*a*a*a*a*a*a*a*a*a*a*a*b"])
def test_a_pattern_that_explodes_elsewhere_ends_here(pattern: str) -> None:
    # With Python's own regexes the first of these takes longer than the age of the universe.
    assert pattern_problem(pattern) == ""
    assert not matches(pattern, "s", "a" * 127 + "!")
