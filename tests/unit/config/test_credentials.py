"""Credentials that are known by their name, their place or their look."""

import random
import string

import pytest

from daemon.config import redaction
from tests.unit.cases import cases


@cases("text", "random")
def test_a_credential_has_another_look_than_words(text: str, random: bool) -> None:
    assert redaction.looks_random(text) is random


@cases("args", "found")
def test_a_credential_is_found_among_arguments_with_its_place(
    args: list[str], found: list[list[object]]
) -> None:
    assert [list(each) for each in redaction.in_arguments(args)] == found


@cases("name")
def test_a_name_says_by_a_word_of_it_that_its_value_is_a_credential(name: str) -> None:
    assert redaction.names_credential(name)


@cases("name")
def test_a_name_that_only_looks_like_it_says_nothing(name: str) -> None:
    assert not redaction.names_credential(name)


@cases("text", "told")
def test_a_credential_is_found_in_what_lists_names_and_values(text: str, told: list[str]) -> None:
    assert list(redaction.in_pairs(text)) == told


@cases("value", "named", "common")
def test_what_may_be_anybodys_word_depends_on_the_name_that_it_stands_under(
    value: str, *, named: bool, common: bool
) -> None:
    assert redaction.may_be_common(value, named=named) is common


DRAWN = 500
"""Passwords of each kind: always the same ones."""

ALNUM = string.ascii_letters + string.digits
FEW = 0.02
"""The share of them that may look like words."""


@cases("value")
def test_what_people_configure_is_a_setting(value: str) -> None:
    assert redaction.is_setting(value)


@cases("value")
def test_what_nobody_can_tell_from_a_password_is_none(value: str) -> None:
    assert not redaction.is_setting(value)


@pytest.mark.parametrize("length", [12, 16, 20, 40])
@pytest.mark.parametrize(
    "characters",
    [
        *(ALNUM + more for more in (string.punctuation, "!@#$%^&*", "", "-_", "+/")),
        *(string.ascii_lowercase, string.ascii_lowercase + string.digits, string.ascii_letters),
        string.hexdigits[:16],
    ],
)
def test_hardly_a_password_that_was_drawn_by_lot_looks_like_a_setting(characters: str, length: int) -> None:
    draw = random.Random(length)
    drawn = ["".join(draw.choices(characters, k=length)) for _ in range(DRAWN)]
    assert sum(map(redaction.is_setting, drawn)) <= FEW * DRAWN
