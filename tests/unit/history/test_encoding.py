"""Events as JSON, for programs and for the store."""

import msgspec
import pytest

from daemon.causes import Cause
from daemon.history.event import Event, EventKind
from daemon.history.journal import as_json, body_of, stored_event

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
CELLS = {
    "life": "host/1/a",
    "number": 7,
    "at": 100.0,
    "server": "git",
    "instance": "",
    "session": "",
    "kind": "ended",
    "body": body_of(KILLED),
}


def test_an_event_comes_back_from_its_row_as_it_was() -> None:
    assert stored_event(CELLS) == KILLED


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "of a later mcpd"},
        {"body": b"{"},
        {"body": b'{"cause":"unheard of"}'},
        {"body": b'{"run":"x"}'},
    ],
)
def test_a_row_that_a_later_mcpd_or_a_hand_has_written_is_no_event(changed: dict[str, object]) -> None:
    assert stored_event({**CELLS, **changed}) is None


def test_programs_get_every_field_by_name_and_the_sentence() -> None:
    told = msgspec.json.decode(msgspec.json.encode(as_json(KILLED)))

    assert told["message"] == "git: ended: killed by SIGKILL after 2.5s (its last line: FATAL)"
    assert (told["at"], told["kind"], told["run"], told["instance"]) == (100.0, "ended", 3, None)
    assert (told["cause"], told["causeData"]) == ("killed", {"signal": "SIGKILL"})
    assert (told["daemon"], told["number"]) == ("host/1/a", 7)
