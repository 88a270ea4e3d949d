"""Which clients are worth waiting for, as they are seen to behave."""

from __future__ import annotations

from daemon.clients.list_changes import MAX_CLIENTS, MAX_OWED, Habit, Habits


def test_everybody_is_given_a_chance() -> None:
    assert Habits().of("never seen").listens


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


def test_what_one_client_does_is_expected_of_others_of_its_name_and_version() -> None:
    habits = Habits()
    habits.learn("codex 1", Habit().unheard())
    assert not habits.of("codex 1").listens
    assert habits.of("codex 2").listens


def test_clients_without_a_name_are_not_taken_for_one_another() -> None:
    habits = Habits()
    habits.learn("", Habit().unheard())
    assert habits.of("").listens


def test_only_so_many_kinds_are_remembered_and_what_was_learned_last_is() -> None:
    habits = Habits()
    habits.learn("first", Habit().unheard())
    habits.learn("second", Habit().unheard())
    habits.learn("first", Habit().unheard())
    for number in range(MAX_CLIENTS - 1):
        habits.learn(f"client {number}", Habit().unheard())
    assert not habits.of("first").listens
    assert habits.of("second").listens
