"""Which clients are worth waiting for, as they are seen to behave."""

from __future__ import annotations

from daemon.clients.list_changes import MAX_OWED, Habit


def test_everybody_is_given_a_chance() -> None:
    assert Habit().listens


def test_who_was_waited_for_in_vain_is_so_again_once_it_has_asked_late() -> None:
    deaf = Habit().unheard()
    assert not deaf.listens
    assert deaf.heard(waited=False).listens


def test_each_wait_in_vain_in_a_row_is_followed_by_twice_as_many_without() -> None:
    habit, owed = Habit(), []
    for _ in range(9):
        habit = habit.unheard()
        owed.append(habit.owed)
        while not habit.listens:
            habit = habit.heard(waited=False)
    assert owed == [1, 2, 4, 8, 16, 32, MAX_OWED, MAX_OWED, MAX_OWED]


def test_a_wait_that_was_worth_it_forgets_those_that_were_not() -> None:
    assert Habit(misses=5).heard(waited=True) == Habit()
