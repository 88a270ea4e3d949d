"""Counts go on over restarts, whatever becomes of the store."""

from __future__ import annotations

from daemon.state.notes import Totals


def test_what_was_counted_is_written_once_and_added_to_what_is_there() -> None:
    counted = {"loads": 0, "hits": 3}
    totals = Totals(lambda: counted)
    totals.read({"loads": 10, "gone": 4}, 5.0)
    assert totals.known == {"loads": 10, "hits": 3, "gone": 4}
    assert totals.news == {"hits": 3}
    totals.were_written({"hits": 3}, 99.0)
    assert (totals.news, totals.since) == ({}, 5.0)
    counted["loads"] = 2
    assert totals.news == {"loads": 2}
    assert totals.known == {"loads": 12, "hits": 3, "gone": 4}


def test_what_is_counted_during_a_write_is_news_afterwards() -> None:
    counted = {"loads": 1}
    totals = Totals(lambda: counted)
    news = totals.news
    counted["loads"] = 5
    totals.were_written(news, 7.0)
    assert totals.news == {"loads": 4}
    assert totals.since == 7.0


def test_a_store_that_has_lost_everything_gets_all_that_is_known() -> None:
    counted = {"loads": 1}
    totals = Totals(lambda: counted)
    totals.read({"loads": 10, "gone": 4}, 5.0)
    totals.were_written(totals.news, 6.0)
    totals.start_over()
    assert totals.known == {"loads": 11}
    assert totals.news == {"loads": 11}
    totals.were_written(totals.news, 8.0)
    assert (totals.known, totals.news, totals.since) == ({"loads": 11}, {}, 5.0)


def test_a_store_that_is_read_again_is_believed() -> None:
    counted = {"loads": 1}
    totals = Totals(lambda: counted)
    totals.were_written(totals.news, 6.0)
    counted["loads"] = 3
    totals.read({"loads": 20}, 2.0)
    assert totals.known == {"loads": 22}
    assert totals.news == {"loads": 2}
