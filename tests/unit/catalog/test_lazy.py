"""A mapping that is made while it is looked at: it behaves as one that was made whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.categories import NO_TOOLS, Lazily, Table
from tests.unit.catalog.samples import known, tool


class Maker:
    """Makes values, and knows of which keys."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, key: str) -> str:
        self.asked.append(key)
        return key.upper()


def test_a_value_is_made_once_when_it_is_looked_at() -> None:
    maker = Maker()
    lazily = Lazily(("a", "b", "k"), maker, {"k": "known"})
    assert (len(lazily), list(lazily), "a" in lazily, "c" in lazily) == (3, ["a", "b", "k"], True, False)
    with pytest.raises(KeyError, match="c"):
        lazily["c"]
    assert (lazily.get("c"), lazily.get("c", "else"), maker.asked) == (None, "else", [])
    assert (lazily["b"], lazily.get("b"), lazily["b"], maker.asked) == ("B", "B", "B", ["b"])
    assert lazily.made == {"b": "B", "k": "known"}
    assert dict(lazily) == {"a": "A", "b": "B", "k": "known"}


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


@given(st.lists(st.sampled_from("abcd"), unique=True), st.lists(st.sampled_from("abcdef")))
def test_it_equals_the_dictionary_that_it_stands_for(keys: list[str], asked: list[str]) -> None:
    lazily, whole = Lazily(tuple(keys), str.upper), {key: key.upper() for key in keys}
    for key in asked:
        assert lazily.get(key) == whole.get(key)
        assert (key in lazily) is (key in whole)
    assert lazily == whole
    assert list(lazily) == list(whole)
    assert list(lazily.values()) == list(whole.values())


GIT, FS = known("git", "log", "add"), known("fs", "read")
BOTH = Table({"git": GIT, "fs": FS})


def test_what_differs_is_told_and_what_is_the_same_object_is_not_looked_at() -> None:
    new = {**GIT, "log": tool("git", "log", description="new")}
    changed = Table({"git": new, "fs": FS})
    assert list(changed.beyond(BOTH)) == [(("git", "log"), new["log"])]
    assert list(changed.beyond(NO_TOOLS)) == [(key, changed.get(key)) for key in changed]
    assert (list(BOTH.beyond(BOTH)), list(BOTH.lacking(BOTH))) == ([], [])
    assert [key in BOTH for key in (("git", "add"), ("fs", "add"), ("no", "add"))] == [True, False, False]
    assert (len(BOTH), BOTH.get(("fs", "add")), BOTH.get(("no", "add"))) == (3, None, None)


TOOLS = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.dictionaries(st.sampled_from("xyz"), st.sampled_from([*GIT.values(), *FS.values()])),
)


@given(TOOLS, TOOLS)
def test_two_tables_differ_as_two_dictionaries_would(one: dict[str, dict[str, object]], other: object) -> None:
    ours, theirs = Table(one), Table(other)  # type: ignore[arg-type]
    flat, others = ({key: table.get(key) for key in table} for table in (ours, theirs))
    assert dict(ours.beyond(theirs)) == {key: each for key, each in flat.items() if others.get(key) is not each}
    assert dict(ours.lacking(theirs)) == {key: each for key, each in others.items() if key not in flat}
