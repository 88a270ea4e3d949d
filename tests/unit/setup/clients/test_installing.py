"""mcpd in the text of a file: whatever stands there, only its servers are touched, and there is a way back."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from daemon.documents.formats import read_document
from daemon.setup.clients.file_plans import take_out
from daemon.setup.clients.installing import Record, members, put_in
from tests.unit.setup.generated import NAMES, PLACES, entry, servers, text
from tests.unit.setup.installs import MCPD, knows

if TYPE_CHECKING:
    import random

    from daemon.setup.clients.programs import ClientPlace

WAYS = {
    "all": MCPD,
    "keep": attrs.evolve(MCPD, keep=True),
    "one-to-one": attrs.evolve(MCPD, one_to_one=True),
    "apart": attrs.evolve(MCPD, apart=frozenset({"git", "my.server"})),
}


def says(written: str, place: ClientPlace) -> Any:
    """What a file says; in no order, where servers are a list."""
    value: Any = read_document(written, place.form, source="x").value()
    if place.listed and place.trail[0] in value:
        value[place.trail[0]].sort(key=itemgetter("name"))
    return value


def installed(
    before: str, place: ClientPlace, known: set[str], way: str = "all"
) -> tuple[Record, tuple[str, ...], tuple[str, ...]]:
    put = put_in(before, [place], place, WAYS[way], knows(known))
    record = Record(path=place.path, form=place.form, members=put.members, original=before, installed=put.text)
    return record, put.taken, put.left


@given(
    place=st.sampled_from([*PLACES.values()]),
    way=st.sampled_from([*WAYS]),
    made=servers,
    known=st.sets(st.sampled_from(NAMES)),
    dice=st.randoms(use_true_random=False),
)
def test_only_servers_are_touched_and_what_is_edited_since_stays(
    place: ClientPlace, way: str, made: dict[str, Any], known: set[str], dice: random.Random
) -> None:
    given_servers = {name: entry(place, name, each) for name, each in made.items()}
    before = text(place, given_servers, dice)

    record, taken, left = installed(before, place, known, way)

    assert set(taken) == (known & made.keys() if way != "keep" else set())
    assert set(left) == (made.keys() - known if way != "keep" else set())
    assert _without_servers(record.installed, place) == _without_servers(before, place)
    names = {member.name for member in members(says(record.installed, place), place.trail, listed=place.listed)}
    gone = set(taken) - WAYS[way].apart if way in {"all", "apart"} else set()
    assert names == (made.keys() - gone) | ({"mcpd"} if way != "one-to-one" else set())

    assert take_out(record, record.installed).text == before
    edited = read_document(record.installed, place.form, source="x")
    edited.put(["edited"], {"by": "me"})
    out = take_out(record, edited.text())
    assert out.text is not None
    assert not out.exact or not record.members
    assert set(out.back) == set(taken)
    assert says(out.text, place) == {**says(before, place), "edited": {"by": "me"}}


def _without_servers(written: str, place: ClientPlace) -> object:
    document = read_document(written, place.form, source="x")
    document.put(place.trail, False)
    return document.value()
