"""Patterns: a glob or a regex, neither of which can keep anybody waiting."""

from __future__ import annotations

import pytest

from daemon.config.names import MAX_PATTERN, matches, pattern_problem


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
