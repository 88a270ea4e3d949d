"""The events of one life of a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from daemon.causes import Cause
from daemon.history import journal
from daemon.history.event import Event, EventKind
from tests.unit.cases import cases

if TYPE_CHECKING:
    from daemon.history.event import Detail


def test_events_are_numbered_and_dated_and_read_in_order() -> None:
    history = journal.History(lambda: 5.0, life="w")
    history.note(Event(kind=EventKind.STARTED, server="git", run=1))
    history.note(Event(kind=EventKind.READY, server="git", run=1, at=7.0))

    found = history.after(0)

    assert [(event.number, event.at, event.life) for event in found] == [(1, 5.0, "w"), (2, 7.0, "w")]
    assert [event.kind for event in history.after(1)] == [EventKind.READY]
    assert history.newest.value is found[-1]


def test_only_the_newest_are_kept_and_of_large_ones_only_as_many_as_there_is_room_for() -> None:
    history = journal.History(lambda: 1.0)
    for _ in range(journal.KEPT + 2):
        history.note(Event(kind=EventKind.SIGNAL))
    assert history.after(0)[0].number == 3
    large: dict[str, Detail] = {f"{number}": "x" * journal.DETAIL for number in range(50)}
    for _ in range(journal.KEPT_BYTES // (50 * journal.DETAIL)):
        history.note(Event(kind=EventKind.SIGNAL, details=large))
    kept = history.after(0)
    assert kept[-1].number == history.number
    assert 1 < len(kept) < journal.KEPT
    history.note(Event(kind=EventKind.SIGNAL, text="small"))
    assert history.after(0)[-1].text == "small"


def redact(text: str, most: int) -> str:
    return text.replace("hunter2", "[redacted]")[:most]


def test_texts_are_cut_and_of_long_lists_the_rest_is_counted() -> None:
    names = [f"tool{number}" for number in range(journal.NAMES + 23)]
    huge = Event(
        kind=EventKind.LISTS_CHANGED,
        text="x" * 100_000,
        details={"tools": {"came": names}, "stderr": ["y" * 100_000]},
    )

    kept = journal.bounded(huge, redact)

    assert len(kept.text) == journal.TEXT
    assert kept.details == {
        "tools": {"came": names[: journal.NAMES], "cameMore": 23},
        "stderr": ["y" * journal.DETAIL],
    }


def test_no_secret_is_kept_wherever_it_stood() -> None:
    said = Event(
        kind=EventKind.ENDED,
        server="git",
        session="hunter2",
        text="password hunter2",
        cause=Cause.REFUSED,
        cause_data={"place": "http://hunter2/", "port": 7},
        details={"stderr": ["hunter2"], "renamed": {"hunter2": "hunter2"}},
    )

    kept = journal.bounded(said, redact)

    assert "hunter2" not in repr(kept)
    assert kept.cause_data["port"] == 7


def test_mappings_are_bounded_in_number_and_depth() -> None:
    deep: dict[str, object] = {"end": "here"}
    for _ in range(10):
        deep = {"deeper": deep}
    wide = {f"tool{number}": "renamed" for number in range(journal.NAMES + 5)}

    kept = journal.bounded(Event(kind=EventKind.LISTS_CHANGED, details={"deep": deep, "wide": wide}), redact)  # type: ignore[dict-item]

    assert repr(kept.details["deep"]).count("deeper") == 3
    found = kept.details["wide"]
    assert isinstance(found, dict)
    assert (len(found), found["more"]) == (journal.NAMES + 1, 5)


def test_lists_are_cut_shorter_where_all_of_them_would_be_too_much() -> None:
    names: list[Detail] = [f"tool{number}" + "z" * 120 for number in range(journal.NAMES)]
    arguments: dict[str, Detail] = {str(name): {"argumentsCame": names} for name in names}

    few = journal.SHORTER[1]
    ours: dict[str, Detail] = {f"of ours {number}": number for number in range(few)}

    details: dict[str, Detail] = {"tools": {"came": names}, "toolsDiffer": arguments, **ours}
    kept = journal.bounded(Event(kind=EventKind.LISTS_CHANGED, details=details), redact)

    assert len(msgspec.json.encode(kept.details)) <= journal.DETAILS
    assert kept.details.keys() == details.keys()
    assert kept.details["tools"] == {"came": names[:few], "cameMore": journal.NAMES - few}
    assert isinstance(kept.details["toolsDiffer"], dict)
    assert kept.details["toolsDiffer"]["more"] == journal.NAMES - few


KILLED = Event(
    kind=EventKind.ENDED,
    at=100.0,
    server="git",
    run=3,
    text="killed by SIGKILL",
    cause=Cause.KILLED,
    cause_data={"signal": "SIGKILL"},
    details={"seconds": 2.5, "stderr": ["FATAL"]},
    number=7,
    life="host/1/a",
)


def test_an_event_comes_back_from_its_row_unless_a_later_mcpd_or_a_hand_has_written_it() -> None:
    cells = {name: getattr(KILLED, name) for name in journal.COLUMNS}
    cells |= {"kind": "ended", "body": journal.body_of(KILLED)}
    assert journal.stored_event(cells) == KILLED
    assert journal.stored_event({**cells, "kind": "of a later mcpd"}) is None
    for body in (b"{", b'{"cause":"unheard of"}', b'{"run":"x"}'):
        assert journal.stored_event({**cells, "body": body}) is None


def test_programs_get_every_field_by_name_and_the_sentence() -> None:
    told = msgspec.json.decode(msgspec.json.encode(journal.as_json(KILLED)))

    assert told["message"] == "git: ended after 2.5s: killed by SIGKILL (its last line: FATAL)"
    assert (told["at"], told["kind"], told["run"], told["instance"]) == (100.0, "ended", 3, None)
    assert (told["cause"], told["causeData"]) == ("killed", {"signal": "SIGKILL"})
    assert (told["daemon"], told["number"]) == ("host/1/a", 7)


@cases("restrictions", "matches")
def test_each_restriction_of_a_query_counts_and_what_is_empty_does_not(
    restrictions: dict[str, Any], matches: bool
) -> None:
    query = msgspec.convert(restrictions, journal.EventQuery)
    ended = attrs.evolve(KILLED, instance="git#2", session="key", life="a")
    assert query.matches(ended) is matches
