"""A mapping that is made while it is looked at: it behaves as one that was made whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.lazy import Lazily


class Maker:
    """Makes values, and knows of which keys."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, key: str) -> str:
        self.asked.append(key)
        return key.upper()


def test_a_value_is_made_once_when_it_is_looked_at() -> None:
    maker = Maker()
    lazily = Lazily(("a", "b"), maker)
    assert (len(lazily), list(lazily), "a" in lazily, "c" in lazily) == (2, ["a", "b"], True, False)
    assert maker.asked == []
    assert (lazily["b"], lazily.get("b"), lazily["b"]) == ("B", "B", "B")
    assert maker.asked == ["b"]
    assert lazily.made == {"b": "B"}


def test_of_what_it_does_not_have_nothing_is_made() -> None:
    maker = Maker()
    lazily = Lazily(("a",), maker)
    with pytest.raises(KeyError, match="c"):
        lazily["c"]
    assert (lazily.get("c"), lazily.get("c", "else")) == (None, "else")
    assert maker.asked == []


def test_all_of_it_is_made_once_in_order_and_what_was_made_stays_the_same_object() -> None:
    lazily = Lazily(("a", "b", "c"), lambda key: [key])
    early = lazily["b"]
    assert list(lazily.items()) == [("a", ["a"]), ("b", ["b"]), ("c", ["c"])]
    assert lazily["b"] is early
    assert list(lazily.values())[1] is early
    assert lazily.whole() is lazily.whole()


def test_once_all_is_made_it_lets_go_of_what_made_it() -> None:
    maker = Maker()
    lazily = Lazily(("a", "b"), maker)
    lazily.whole()
    assert lazily._make is not maker
    assert (lazily["a"], lazily.get("c"), "b" in lazily, len(lazily)) == ("A", None, True, 2)
    assert maker.asked == ["a", "b"]


def test_what_was_made_before_is_taken_over() -> None:
    maker = Maker()
    lazily = Lazily(("a", "b"), maker, {"a": "known"})
    assert dict(lazily) == {"a": "known", "b": "B"}
    assert maker.asked == ["b"]


@given(st.lists(st.sampled_from("abcd"), unique=True), st.lists(st.sampled_from("abcdef")))
def test_it_equals_the_dictionary_that_it_stands_for(keys: list[str], asked: list[str]) -> None:
    lazily, whole = Lazily(tuple(keys), str.upper), {key: key.upper() for key in keys}
    for key in asked:
        assert lazily.get(key) == whole.get(key)
        assert (key in lazily) is (key in whole)
    assert lazily == whole
    assert list(lazily) == list(whole)
    assert list(lazily.values()) == list(whole.values())
