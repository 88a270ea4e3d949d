"""The kinds of what servers list: how a switch names one of each, and reads back as what it names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.kinds import CHANGED, LISTS, switch_of, switched_by, tools_switched_by
from daemon.model import Kind

NAMES = st.text(min_size=1) | st.builds(
    "".join, st.lists(st.sampled_from(["tool:", "prompt:", "x", ":"]), min_size=1)
)


@given(st.sampled_from(Kind), NAMES)
def test_every_switch_reads_back_as_what_it_names(kind: Kind, name: str) -> None:
    assert switched_by(switch_of(kind, name)) == (kind, name)


@pytest.mark.parametrize(
    ("kind", "name", "word"),
    [
        (Kind.TOOL, "log", "log"),
        (Kind.TOOL, "a:b", "a:b"),
        (Kind.TOOL, "prompt:log", "tool:prompt:log"),
        (Kind.TOOL, "tool:log", "tool:tool:log"),
        (Kind.PROMPT, "log", "prompt:log"),
        (Kind.RESOURCE, "file:///a", "resource:file:///a"),
        (Kind.TEMPLATE, "file:///{a}", "template:file:///{a}"),
    ],
)
def test_tools_go_by_their_names_and_the_rest_with_its_kind(kind: Kind, name: str, word: str) -> None:
    assert switch_of(kind, name) == word


def test_of_what_is_switched_off_the_tools_are_known_by_their_own_names() -> None:
    off = [("a", ""), ("a", "log"), ("a", "tool:prompt:log"), ("b", "prompt:log"), ("b", "resource:mem://1")]
    assert tools_switched_by(off) == {("a", "log"), ("a", "prompt:log")}
    assert {kind for kinds in CHANGED.values() for kind in kinds} == LISTS.keys() == set(Kind)
