"""What was meant by a wrong name, whatever is written; sizes in words; the spelling of keys."""

import pytest

from daemon.kit import wording
from tests.unit.cases import cases

NAMES = ["read_file", "read_files", "write_file", "git_log"]


@cases("wanted", "found")
def test_close_names_come_closest_first_and_others_not_at_all(wanted: str, found: list[str]) -> None:
    assert wording.closest(wanted, NAMES)[: len(found) or None] == found


def test_only_so_many_are_told_each_once() -> None:
    assert wording.closest("read_file", [*NAMES, *NAMES], most=1) == ["read_file"]
    assert len(wording.closest("name_0", [f"name_{number}" for number in range(50)])) == 3


def test_of_what_is_endless_the_beginning_is_compared() -> None:
    assert wording.closest("a" * wording.LONGEST + "b" * 100_000, ["a" * wording.LONGEST]) == [
        "a" * wording.LONGEST
    ]
    assert wording.closest("zzz", [*(f"n{number}" for number in range(wording.MAX_COMPARED)), "zzz"]) == []


def test_a_hint_has_what_is_close_or_all_there_is() -> None:
    names = {"echo": 1, "add": 2}
    assert wording.hint("ecko", names) == "Did you mean echo?"
    assert wording.hint("read_files", NAMES) == "Did you mean read_files or read_file or write_file?"
    assert wording.hint("zzz", names) == "There are: echo, add."
    assert wording.hint("zzz", {}) == "There are none."


def test_a_suggestion_ends_a_sentence() -> None:
    assert wording.suggestion("ecko", ["echo", "add"]) == ": did you mean 'echo'?"
    assert wording.suggestion("zzz", ["a", "b"]) == ": known are a, b"
    assert wording.suggestion("zzz", ["a", "b"], 1) == ": known are a"
    assert wording.suggestion("zzz", []) == ": there are none"


@pytest.mark.parametrize(
    ("name", "key"), [("name", "name"), ("stop_eof", "stopEof"), ("mcp_servers", "mcpServers")]
)
def test_attributes_are_camel_case_in_the_file(name: str, key: str) -> None:
    assert wording.camel(name) == key


@cases("count", "words", "short")
def test_bytes_in_words(count: int, words: str, short: str) -> None:
    assert (wording.bytes_in_words(count), wording.short_size(count)) == (words, short)


def test_a_very_long_word_is_cut() -> None:
    assert wording.quoted("x" * 1000) == f"'{'x' * 64}…'"


def test_a_number_of_things_has_its_plural() -> None:
    assert [wording.counted(number, "tool") for number in (0, 1, 1204)] == ["0 tools", "1 tool", "1,204 tools"]
    assert wording.counted(2, "category", "categories") == "2 categories"


@cases("seconds", "in_two", "in_one")
def test_a_length_of_time_has_its_largest_units(seconds: float, in_two: str, in_one: str) -> None:
    assert (wording.span(seconds), wording.span(seconds, parts=1)) == (in_two, in_one)


@pytest.mark.parametrize(("more", "words"), [(0, "a, b and 1 more"), (2, "a, b and 3 more")])
def test_the_first_names_are_told_with_the_number_of_the_others(more: int, words: str) -> None:
    assert wording.some(["a", "b", "c"], 2, more) == words
    assert wording.some(["a", "b"], 2) == "a, b"
