"""What needs ask for and what tools do."""

from __future__ import annotations

import pytest

from daemon.search.language import NOTHING_ASKED, OPPOSED, OTHERWISE, Deed, deed_of, deeds_of, worth


@pytest.mark.parametrize(
    ("need", "deeds"),
    [
        ("schedule a meeting", {Deed.MAKE}),
        ("Scheduling meetings", {Deed.MAKE}),
        ("what is on my schedule", set()),
        ("show me the list of posts", {Deed.READ}),
        ("cancel the booking, then tell Ann", {Deed.REMOVE, Deed.READ}),
        ("rename it", {Deed.CHANGE}),
        ("weather in Oslo", set()),
        ("", set()),
    ],
)
def test_a_need_asks_for_the_verbs_that_are_no_nouns(need: str, deeds: set[Deed]) -> None:
    assert deeds_of(need) == deeds


@pytest.mark.parametrize(
    ("name", "deed"),
    [
        ("delete-calendar-event", Deed.REMOVE),
        ("calendar_events_delete", Deed.REMOVE),
        ("createEvent", Deed.MAKE),
        ("read_file", Deed.READ),
        ("moveFile", Deed.CHANGE),
        ("weather", Deed.NONE),
        ("文件", Deed.NONE),
    ],
)
def test_a_tool_does_what_the_first_verb_of_its_name_says(name: str, deed: Deed) -> None:
    assert deed_of(name) is deed


def test_who_asks_for_one_thing_is_led_least_to_remove() -> None:
    assert worth(NOTHING_ASKED) == (1.0, 1.0, 1.0, 1.0, 1.0)
    assert worth(frozenset({Deed.MAKE})) == (1.0, OTHERWISE, 1.0, OTHERWISE, OPPOSED)
    assert worth(frozenset({Deed.REMOVE})) == (1.0, OPPOSED, OPPOSED, OPPOSED, 1.0)
    assert worth(frozenset({Deed.READ, Deed.MAKE})) == (1.0, 1.0, 1.0, 1.0, OPPOSED)
