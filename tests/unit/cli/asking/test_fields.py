"""What a typed line means for each kind of field, and what is said where it means nothing that fits."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.cli.asking.forms import Choice, Field, Unfit, fits, read, shown, wanted


def field(kind: str, /, *choices: str, **schema: Any) -> Field:
    return Field("f", "F", "", kind, schema, tuple(Choice(each, each.title()) for each in choices))


@pytest.mark.parametrize(
    ("one", "line", "value"),
    [
        (field("string"), " as typed ", " as typed "),
        (field("string"), '""', ""),
        (field("string", format="email"), "a@example.org", "a@example.org"),
        (field("string", format="date-time"), "2026-11-23T14:30:00Z", "2026-11-23T14:30:00Z"),
        (field("string", pattern="^[a-c]+$"), "abc", "abc"),
        (field("integer", minimum=-5), " -5 ", -5),
        (field("number"), "1e3", 1000.0),
        (field("number"), "7", 7),
        (field("number"), ".5", 0.5),
        (field("boolean"), "Y", True),
        (field("boolean"), "no", False),
        (field("choice", "red", "blue"), "2", "blue"),
        (field("choice", "red", "blue"), "Blue", "blue"),
        (field("choice", "red", "blue"), "BLUE", "blue"),
        (field("choice", "2", "1"), "1", "1"),
        (field("choice", "a", ""), '""', ""),
        (field("choices", "red", "blue", "a, b"), "1, blue", ["red", "blue"]),
        (field("choices", "red", "blue", "a, b"), "a, b", ["a, b"]),
        (field("choices", "red", "blue"), "2,2,2", ["blue"]),
    ],
)
def test_a_line_means_a_value(one: Field, line: str, value: object) -> None:
    found = read(one, line)
    assert (found, type(found)) == (value, type(value))
    assert fits(one, found)


@pytest.mark.parametrize(
    ("one", "line", "said"),
    [
        (field("string", minLength=3, maxLength=5), "ab", "wanted is text, 3 to 5 characters"),
        (field("string", maxLength=5), "abcdef", "wanted is text, at most 5 characters"),
        (field("string", format="email"), "nobody", "wanted is an e-mail address"),
        (field("string", format="date"), "23.11.2026", "wanted is a date, as 2026-11-23"),
        (field("string", format="uri"), "no uri", "wanted is a URI"),
        (field("string", pattern="^[a-c]+$"), "x", "spelt like \\^\\[a-c\\]\\+\\$"),
        (field("integer", minimum=1), "0", "wanted is a whole number, at least 1"),
        (field("integer"), "1.5", "wanted is a whole number"),
        (field("integer"), "1_000", "wanted is a whole number"),
        (field("integer"), "٣", "wanted is a whole number"),
        (field("integer"), "9" * 5000, "wanted is a whole number"),
        (field("number", maximum=2), "3", "wanted is a number, at most 2"),
        (field("number"), "1e999", "too large"),
        (field("number"), "nan", "wanted is a number"),
        (field("boolean"), "perhaps", "wanted is yes or no"),
        (field("choice", "red", "blue"), "3", "there is no '3'"),
        (field("choice", "red", "blue"), "bleu", "did you mean 'Blue'?"),
        (field("choice", "2", "1"), "3", "there is no '3'"),
        (field("choices", "a", "b", minItems=2), "a",
            "wanted are any of them, with commas between, at least 2"),
        (field("choices", "a", "b", maxItems=1), "a,b", "at most 1 of them"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_with_what_would(one: Field, line: str, said: str) -> None:
    with pytest.raises(Unfit, match=said):
        read(one, line)


@pytest.mark.parametrize(
    ("one", "value", "text"),
    [
        (field("boolean"), True, "yes"),
        (field("choice", "red"), "red", "Red"),
        (field("choices", "red", "blue"), ["red", "blue"], "Red, Blue"),
        (field("string"), "", '""'),
        (field("number"), 3.5, "3.5"),
    ],
)
def test_a_value_is_shown_as_it_is_typed(one: Field, value: object, text: str) -> None:
    assert shown(one, value) == text


def test_a_format_and_bounds_are_told_together() -> None:
    assert wanted(field("string", format="email", maxLength=9)) == "an e-mail address, at most 9 characters"
    assert wanted(field("integer", minimum=0, maximum=0)) == "a whole number, 0 to 0"


@pytest.mark.parametrize("value", [["x"], ["a", "a"], "a", [1]])
def test_only_choices_that_there_are_fit(value: object) -> None:
    assert not fits(field("choices", "a", "b"), value)
    assert not fits(field("choice", "b"), value)
