"""What one client was spared, and what it was sent instead."""

from __future__ import annotations

from daemon.clients.list_changes import MAX_LISTS, Savings
from tests.tallies import new_tally


def test_a_list_that_takes_the_place_of_another_counts_with_what_is_other() -> None:
    savings = Savings(tally := new_tally())
    for _ in range(3):
        savings.listed("load", None, sent=400, full=4400)
    assert savings.tokens == 1000
    savings.listed("load", None, sent=800, full=4400)
    assert savings.tokens == 900
    savings.listed("load", None, sent=800, full=8800)
    assert savings.tokens == 2000
    lists = tally.lists["load"]
    assert (lists.spared, lists.instead) == (8400, 400)


def test_what_meta_tools_answer_is_sent_instead_once() -> None:
    savings = Savings(new_tally())
    savings.listed("load", None, sent=400, full=4400)
    savings.answered("load", 800)
    assert savings.tokens == 900


def test_it_is_counted_by_the_name_that_the_client_gives() -> None:
    savings = Savings(tally := new_tally())
    savings.client = "zed"
    savings.listed("load", None, sent=400, full=4400)
    assert tally.clients["zed"].spared == 4000


def test_a_client_that_was_sent_more_than_everything_is_told_so() -> None:
    savings = Savings(tally := new_tally())
    savings.listed("category", None, sent=1400, full=200)
    savings.answered("category", 4000)
    assert savings.tokens == -800
    assert (tally.lists["category"].spared, tally.lists["category"].instead) == (0, 3200)


def test_who_is_shown_everything_is_spared_nothing() -> None:
    savings = Savings(tally := new_tally())
    savings.listed("full", None, sent=69_000, full=69_000)
    assert savings.tokens == 0
    assert tally.lists["full"].spared == 0


def test_of_a_client_that_defers_tools_itself_nothing_is_counted() -> None:
    savings = Savings(tally := new_tally())
    savings.applies = False
    savings.listed("load", None, sent=400, full=4400)
    savings.answered("load", 800)
    assert savings.tokens is None
    assert (tally.lists["load"].spared, tally.lists["load"].instead) == (0, 0)


def test_each_session_of_a_connection_has_its_own_list_and_only_so_many_are_known() -> None:
    savings = Savings(new_tally())
    for key in ("a", "b", "a"):
        savings.listed("load", key, sent=0, full=400)
    assert savings.tokens == 200
    for number in range(1000):
        savings.listed("load", str(number), sent=400, full=400)
    assert len(savings._margins) == MAX_LISTS
