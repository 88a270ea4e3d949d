"""What other clients write for a server is understood, and whatever is not is said."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from daemon.config import client_keys
from daemon.config.config_model import Server
from daemon.config.structure import keys
from daemon.config.translation import Translated
from tests.unit.cases import cases


@cases("entry", "found")
def test_a_clients_entry_becomes_ours(entry: dict[str, Any], found: dict[str, Any]) -> None:
    made = Translated(entry)
    assert made.entry == found
    assert not any(note.lost for note in made.notes)


@cases("entry", "milliseconds", "timeouts")
def test_a_time_limit_has_its_clients_unit(
    entry: dict[str, Any], milliseconds: bool | None, timeouts: dict[str, Any]
) -> None:
    assert Translated(entry, milliseconds=milliseconds).entry == {"timeouts": timeouts}


@cases("entry", "key", "message")
def test_what_was_understood_is_said_in_a_line(entry: dict[str, Any], key: str, message: str) -> None:
    (note,) = Translated(entry).notes
    assert (note.key, note.message, note.lost) == (key, message, False)


@cases("entry", "message")
def test_what_could_not_be_taken_is_said_to_be_lost(entry: dict[str, Any], message: str) -> None:
    (note,) = [note for note in Translated(entry).notes if note.lost]
    assert message in note.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
ENTRIES = st.dictionaries(
    st.sampled_from(
        [*(key for meant in client_keys.table().server for key in meant.keys), *keys(Server), "oauth"]
    )
    | st.text(max_size=6),
    JSON,
    max_size=8,
)


@given(ENTRIES, st.none() | st.booleans())
def test_no_entry_is_too_odd_and_no_key_is_lost_silently(
    entry: dict[str, Any], milliseconds: bool | None
) -> None:
    before = json.dumps(entry)
    made = Translated(entry, milliseconds=milliseconds)
    assert json.dumps(entry) == before
    noted = {note.key for note in made.notes}
    for key, value in entry.items():
        if key not in noted and not any(each.startswith((f"{key}.", f"{key}[")) for each in noted):
            kept = made.entry[key]
            # `null` says nothing, and an object may have been added to.
            assert kept == value or value is None or isinstance(value, dict)
    json.dumps(dict(made.entry))
