"""Tools of several servers side by side."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.lazy import NO_TOOLS, Table
from tests.unit.catalog.samples import known, tool

GIT, FS = known("git", "log", "add"), known("fs", "read")
BOTH = Table({"git": GIT, "fs": FS})


def test_it_has_the_tools_of_each_server_in_order() -> None:
    assert list(BOTH) == [("git", "log"), ("git", "add"), ("fs", "read")]
    assert len(BOTH) == 3
    assert BOTH.get(("git", "add")) is GIT["add"]
    assert [key in BOTH for key in (("git", "add"), ("fs", "add"), ("no", "add"))] == [True, False, False]
    assert [BOTH.get(key) for key in (("fs", "add"), ("no", "add"))] == [None, None]
    assert (len(NO_TOOLS), list(NO_TOOLS)) == (0, [])


def test_what_differs_is_told_and_what_is_the_same_object_is_not_looked_at() -> None:
    new = {**GIT, "log": tool("git", "log", description="new")}
    changed = Table({"git": new, "fs": FS})
    assert list(changed.beyond(BOTH)) == [(("git", "log"), new["log"])]
    assert list(changed.beyond(NO_TOOLS)) == [(key, changed.get(key)) for key in changed]
    assert list(BOTH.beyond(BOTH)) == []


def test_what_is_lacking_is_told_whatever_it_is_like() -> None:
    fewer = Table({"git": {"log": tool("git", "log", description="new")}})
    assert [key for key, _ in fewer.lacking(BOTH)] == [("git", "add"), ("fs", "read")]
    assert list(BOTH.lacking(fewer)) == []
    assert list(BOTH.lacking(BOTH)) == []


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
