"""Names of servers and the three ways to write the name of a tool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config import names
from tests.unit.cases import cases


@pytest.mark.parametrize("name", ["git", "0", "a" * 64, "a_b-c"])
def test_plain_names_may_be_given_to_a_server(name: str) -> None:
    assert names.SERVER_NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "Git", "a" * 65, "-a", "_a", "..", "a/b", "a\n", "a\0", "é", "\u202ea"])
def test_names_that_paths_or_logs_could_trip_over_may_not(name: str) -> None:
    assert not names.SERVER_NAME.fullmatch(name)


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


@pytest.mark.parametrize(
    ("tool", "sound"), [("x", True), ("é" * 64, True), ("é" * 65, False), ("", False), ("a\nb", False)]
)
def test_tool_names_are_short_and_printable(tool: str, sound: bool) -> None:
    assert names.tool_name_is_sound(tool) is sound


@cases("pattern", "server", "tool", "fits")
def test_a_glob_fits_the_name_or_server_and_name_and_a_regex_any_part_of_the_name(
    pattern: str, server: str, tool: str, *, fits: bool
) -> None:
    assert names.matches(pattern, server, tool) is fits


@cases("pattern", "problem")
def test_a_pattern_that_cannot_be_used_is_named_with_the_reason(pattern: str, problem: str) -> None:
    assert problem in names.pattern_problem(pattern)


@pytest.mark.parametrize("pattern", ["*", "git_*", "/^git_/", "/(a+)+$/", "x" * names.MAX_PATTERN])
def test_a_sound_pattern_has_no_problem(pattern: str) -> None:
    assert names.pattern_problem(pattern) == ""


@pytest.mark.parametrize("pattern", ["/^(a+)+$/", "/(a|aa)+$/", "/(.*)*x/", "a*a*a*a*a*a*a*a*a*a*a*a*a*b"])
def test_a_pattern_that_explodes_elsewhere_ends_here(pattern: str) -> None:
    # With Python's own regexes the first of these takes longer than the age of the universe.
    assert names.pattern_problem(pattern) == ""
    assert not names.matches(pattern, "s", "a" * 127 + "!")
