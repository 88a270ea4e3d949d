"""The kinds of lists are those of the specification."""

from __future__ import annotations

from daemon.catalog.kinds import BESIDE_TOOLS, CHANGED, LISTS, switch_of
from daemon.model import Kind


def test_each_kind_has_a_list_and_each_notification_says_which_lists_changed() -> None:
    assert list(LISTS) == list(Kind)
    assert {*BESIDE_TOOLS, Kind.TOOL} == set(Kind)
    assert CHANGED["notifications/resources/list_changed"] == (Kind.RESOURCE, Kind.TEMPLATE)
    assert sorted(kind for kinds in CHANGED.values() for kind in kinds) == sorted(Kind)


def test_a_switch_names_its_kind_unless_it_is_a_tools() -> None:
    assert [switch_of(kind, "x") for kind in Kind] == ["x", "prompt:x", "resource:x", "template:x"]
