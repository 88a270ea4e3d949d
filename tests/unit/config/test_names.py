"""Names of servers, tools and instances, and the ways to write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config import names
from daemon.config.labels import server_of, split_off, split_off_uri
from tests.unit.cases import cases


def test_plain_names_may_be_given_to_a_server_and_none_that_paths_or_logs_could_trip_over() -> None:
    assert all(map(names.SERVER_NAME.fullmatch, ("git", "0", "a" * 64, "a_b-c")))
    odd = ("", "Git", "a" * 65, "-a", "_a", "..", "a/b", "a\n", "a\0", "é", "\u202ea")
    assert not any(map(names.SERVER_NAME.fullmatch, odd))


@cases("name", "better")
def test_a_bad_name_has_a_good_one_close_by(name: str, better: str | None) -> None:
    assert names.slug(name) == better


def test_a_suggested_name_is_not_taken() -> None:
    assert names.slug("Git", ["git", "git-2"]) == "git-3"


@given(st.text(max_size=200))
def test_whatever_is_suggested_is_allowed(name: str) -> None:
    better = names.slug(name)
    assert better is None or names.SERVER_NAME.fullmatch(better)


@cases("name", "server", "tool")
def test_a_tool_is_the_same_in_each_spelling(name: str, server: str | None, tool: str) -> None:
    assert names.read_reference(name, ["serena", "a", "a__b"]) == names.ToolReference(server=server, tool=tool)


def test_tool_names_are_short_and_printable() -> None:
    tools = ("x", "é" * 64, "é" * 65, "", "a\nb")
    assert [*map(names.tool_name_is_sound, tools)] == [True, True, False, False, False]


@cases("pattern", "server", "tool", "fits")
def test_a_glob_fits_the_name_or_server_and_name_and_a_regex_any_part_of_the_name(
    pattern: str, server: str, tool: str, *, fits: bool
) -> None:
    assert names.matches(pattern, server, tool) is fits


@cases("pattern", "problem")
def test_a_pattern_that_cannot_be_used_is_named_with_the_reason(pattern: str, problem: str) -> None:
    assert problem in names.pattern_problem(pattern)


def test_a_sound_pattern_has_no_problem_and_one_that_explodes_elsewhere_ends_here() -> None:
    assert not any(map(names.pattern_problem, ("*", "git_*", "/^git_/", "x" * names.MAX_PATTERN)))
    # With Python's own regexes the first of these takes longer than the age of the universe.
    for pattern in ("/^(a+)+$/", "/(a|aa)+$/", "/(.*)*x/", "a*a*a*a*a*a*a*a*a*a*a*a*a*b"):
        assert names.pattern_problem(pattern) == ""
        assert not names.matches(pattern, "s", "a" * 127 + "!")


@pytest.mark.parametrize("name", ["fs", "fs#12", "fs@", "fs@~/src/app", "fs@/srv/a#b@c", "fs#0.2"])
def test_what_a_name_is_of_stands_before_the_first_mark(name: str) -> None:
    assert server_of(name) == "fs"


@cases("word", "server", "tool")
def test_a_server_or_an_instance_stands_before_a_tool(word: str, server: str, tool: str) -> None:
    assert split_off(word) == (server, tool)


@cases("word", "server", "uri")
def test_a_server_or_an_instance_may_stand_before_a_uri(word: str, server: str, uri: str) -> None:
    assert split_off_uri(word) == (server, uri)
