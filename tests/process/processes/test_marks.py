"""Whose a process is: its place in the tree says so, or its mark, or nobody's."""

from __future__ import annotations

import pytest

from tests.unit.processes.scripts import told_by

SERVER = """
own.adopt_orphans()
mark = marks.new()
with own.handing_down(mark):
    server = sleeper()
marks.started(mark, server.pid)
"""


def test_an_orphan_is_its_servers_by_its_mark_and_nobodys_without_one() -> None:
    script = """
marks.sweep_strays(others=False)
loyal, traitor, late = orphan((mark, -1)), orphan((0, 0)), orphan((marks.HIGHEST - 1, -1))
tell([
    trees() == {mark: sorted([server.pid, loyal])},
    set(marks.find().strays) == set(marks.strays()) == {traitor, late},
])
"""
    assert told_by(SERVER + script) == [True, True]


def test_who_carries_the_mark_of_a_server_that_has_ended_is_a_stray() -> None:
    script = """
marks.sweep_strays(others=False)
left = orphan((mark, -1))
before = marks.strays()
marks.forget(mark)
tell([before, sorted(marks.strays()) == sorted([server.pid, left])])
"""
    assert told_by(SERVER + script) == [[], True]


@pytest.mark.parametrize(("others", "strays"), [(True, 1), (False, 2)])
def test_where_children_may_be_others_only_what_stems_from_us_for_sure_is_a_stray(
    others: bool, strays: int
) -> None:
    script = f"""
marks.sweep_strays(others={others})
found = [orphan((0, 0)), orphan((-1, -1))]
tell([len(marks.strays()), found[0] in marks.strays()])
"""
    assert told_by(SERVER + script) == [strays, True]


def test_a_child_that_is_just_being_started_is_no_stray() -> None:
    script = """
marks.sweep_strays(others=False)
early = marks.new()
with own.handing_down(early):
    child = sleeper()
tell([marks.strays(), marks.find().strays, marks.find().trees[early] == [child.pid]])
"""
    assert told_by(SERVER + script) == [[], [], True]
