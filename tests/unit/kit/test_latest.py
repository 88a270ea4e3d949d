"""Of what is put into a dictionary, the latest is kept."""

from daemon.kit.waiting import keep_latest


def test_what_was_put_there_longest_ago_goes_first() -> None:
    known = dict[str, int]()
    for number, key in enumerate("abc"):
        keep_latest(known, key, number, 2)
    assert list(known.items()) == [("b", 1), ("c", 2)]


def test_what_is_put_there_again_is_the_latest_and_drives_nothing_out() -> None:
    known = {"a": 1, "b": 2}
    keep_latest(known, "a", 3, 2)
    assert list(known.items()) == [("b", 2), ("a", 3)]


def test_more_than_may_be_kept_go_at_once() -> None:
    known = {"a": 1, "b": 2, "c": 3}
    keep_latest(known, "d", 4, 1)
    assert known == {"d": 4}
