"""The ways to write a secret, and the secrets within one that is JSON."""

from __future__ import annotations

import base64

import pytest

from daemon.safety.spellings import MAX_NESTED, SHORTEST, all_spellings, nested


@pytest.mark.parametrize("before", range(3))
def test_one_of_the_spellings_is_what_base64_holds_wherever_the_secret_begins(before: int) -> None:
    encoded = base64.b64encode(bytes(before) + b"hunter2 hunter2" + b"xyz").decode()
    assert any(each in encoded for each in all_spellings(["hunter2 hunter2"]))


def test_a_short_secret_has_no_spelling_but_its_own() -> None:
    assert all_spellings(["a b"]) == {"a b"}
    assert all(len(each) >= SHORTEST for each in all_spellings(["a b c d"]))


def test_the_strings_of_a_secret_that_is_json_are_found_with_their_names() -> None:
    found = nested('{"key": {"token": "one"}, "more": ["two", 3]}')
    assert sorted(found) == [("more", "two"), ("token", "one")]
    assert len(nested("[" + ",".join(['"x"'] * (MAX_NESTED + 50)) + "]")) == MAX_NESTED


@pytest.mark.parametrize("secret", ["{not json", "[" * 10_000, "[[[[", '{"a":1}', "[]", "plain"])
def test_what_only_looks_like_json_has_no_strings_within(secret: str) -> None:
    assert nested(secret) == []
