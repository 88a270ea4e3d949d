"""What of an event is kept, however much a server says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.causes import Cause
from daemon.history.event import Event, EventKind
from daemon.history.journal import DETAIL, DETAILS, NAMES, SHORTER, TEXT, bounded

if TYPE_CHECKING:
    from daemon.history.event import Detail


def redact(text: str, most: int) -> str:
    return text.replace("hunter2", "[redacted]")[:most]


def test_texts_are_cut_and_of_long_lists_the_rest_is_counted() -> None:
    names = [f"tool{number}" for number in range(NAMES + 23)]
    huge = Event(
        kind=EventKind.LISTS_CHANGED,
        text="x" * 100_000,
        details={"tools": {"came": names}, "stderr": ["y" * 100_000]},
    )

    kept = bounded(huge, redact)

    assert len(kept.text) == TEXT
    assert kept.details == {
        "tools": {"came": names[:NAMES], "cameMore": 23},
        "stderr": ["y" * DETAIL],
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

    kept = bounded(said, redact)

    assert "hunter2" not in repr(kept)
    assert kept.cause_data["port"] == 7


def test_mappings_are_bounded_in_number_and_depth() -> None:
    deep: dict[str, object] = {"end": "here"}
    for _ in range(10):
        deep = {"deeper": deep}
    wide = {f"tool{number}": "renamed" for number in range(NAMES + 5)}

    kept = bounded(Event(kind=EventKind.LISTS_CHANGED, details={"deep": deep, "wide": wide}), redact)  # type: ignore[dict-item]

    assert repr(kept.details["deep"]).count("deeper") == 3
    found = kept.details["wide"]
    assert isinstance(found, dict)
    assert (len(found), found["more"]) == (NAMES + 1, 5)


def test_lists_are_cut_shorter_where_all_of_them_would_be_too_much() -> None:
    names: list[Detail] = [f"tool{number}" + "z" * 120 for number in range(NAMES)]
    arguments: dict[str, Detail] = {str(name): {"argumentsCame": names} for name in names}

    kept = bounded(
        Event(kind=EventKind.LISTS_CHANGED, details={"tools": {"came": names}, "toolsDiffer": arguments}),
        redact,
    )

    assert len(msgspec.json.encode(kept.details)) <= DETAILS
    few = SHORTER[1]
    assert kept.details["tools"] == {"came": names[:few], "cameMore": NAMES - few}
    assert isinstance(kept.details["toolsDiffer"], dict)
    assert kept.details["toolsDiffer"]["more"] == NAMES - few
