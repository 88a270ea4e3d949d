"""What the store holds of names, held against the catalog."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.naming import NO_NAMES, Claims, Names, assign
from daemon.model import GivenName, Kind
from daemon.state.server_notes import NAME_BYTES, NAMES_AT_ONCE, NameNotes


def claims(server: str, *tools: str, pending: bool = False) -> Claims:
    return Claims(server=server, own=tools, pending=pending)


def written(notes: NameNotes, names: Names) -> tuple[set[str], set[str]]:
    """Write what differs: the names that are given, and those that are gone."""
    given, gone = notes.difference({Kind.TOOL: names})
    notes.were_written(given, gone)
    return {each.name for each in given}, {each.name for each in gone}


def test_what_is_given_is_written_once() -> None:
    notes, names = NameNotes(), assign(NO_NAMES[Kind.TOOL], [claims("a", "x"), claims("b", "x")])
    assert written(notes, names) == ({"x", "b__x"}, set())
    assert written(notes, names) == (set(), set())
    assert written(notes, assign(names, [claims("a", "x", "y")])) == ({"y"}, set())


def test_a_name_that_may_still_go_to_another_server_is_not_written() -> None:
    names = assign(NO_NAMES[Kind.TOOL], [claims("a", pending=True), claims("b", "x")])
    notes = NameNotes()
    assert written(notes, names) == (set(), set())
    assert written(notes, names.settled()) == ({"x"}, set())


def test_a_name_whose_server_has_left_goes_and_is_given_anew() -> None:
    notes = NameNotes()
    old = GivenName(name="x", key=("gone", "x"), since=5.0)
    notes.heard([old], shared=False)
    assert written(notes, NO_NAMES[Kind.TOOL]) == (set(), {"x"})
    notes.heard([old], shared=False)
    assert written(notes, assign(NO_NAMES[Kind.TOOL], [claims("a", "x")])) == ({"x"}, {"x"})


def test_a_server_with_many_new_names_is_written_in_several_batches_old_meanings_first() -> None:
    notes, own = NameNotes(), [f"t{number}" for number in range(NAMES_AT_ONCE + 1)]
    notes.heard([GivenName(name=name, key=("gone", name)) for name in own], shared=False)
    names = assign(NO_NAMES[Kind.TOOL], [claims("a", *own)])
    assert [tuple(map(len, written(notes, names))) for _ in range(4)] == [
        (0, NAMES_AT_ONCE),
        (NAMES_AT_ONCE - 1, 1),
        (2, 0),
        (0, 0),
    ]


def test_what_another_daemon_gave_is_not_taken_back() -> None:
    notes = NameNotes()
    theirs = GivenName(name="x", key=("theirs", "x"), since=5.0)
    ours = assign(NO_NAMES[Kind.TOOL], [claims("a", "x")])
    notes.heard([theirs], shared=True)
    given, gone = notes.difference({Kind.TOOL: ours})
    assert ([each.key for each in given], gone) == ([("a", "x")], ())
    notes.were_written(given, gone)
    assert written(notes, ours) == (set(), set())


def test_names_of_prompts_and_uris_are_kept_apart_from_those_of_tools() -> None:
    notes, tools = NameNotes(), assign(NO_NAMES[Kind.TOOL], [claims("a", "x")])
    prompts = assign(NO_NAMES[Kind.PROMPT], [claims("b", "x"), claims("c", "x")])
    now = {Kind.TOOL: tools, Kind.PROMPT: prompts}
    given, gone = notes.difference(now)
    assert {(each.kind, each.name, each.key) for each in given} == {
        (Kind.TOOL, "x", ("a", "x")),
        (Kind.PROMPT, "x", ("b", "x")),
        (Kind.PROMPT, "c__x", ("c", "x")),
    }
    notes.were_written(given, gone)
    assert notes.difference(now) == ((), ())
    given, gone = notes.difference({**now, Kind.PROMPT: NO_NAMES[Kind.PROMPT]})
    assert given == ()
    assert {(each.kind, each.name) for each in gone} == {(Kind.PROMPT, "x"), (Kind.PROMPT, "c__x")}


def test_a_uri_that_no_database_could_find_is_not_kept() -> None:
    long = ["mem://" + letter * NAME_BYTES for letter in "aé"]
    uris = assign(NO_NAMES[Kind.RESOURCE], [claims("a", "mem://1", *long)])
    given, _ = NameNotes().difference({Kind.RESOURCE: uris})
    assert [each.name for each in given] == ["mem://1"]


LISTS = st.dictionaries(
    st.sampled_from("abcd"), st.sets(st.sampled_from(["x", "y", "b__x", "call_tool"])), max_size=4
)


@given(st.lists(LISTS, min_size=1, max_size=6))
def test_over_any_number_of_lives_no_name_comes_to_mean_another_tool(lives: list[dict[str, set[str]]]) -> None:
    stored: dict[str, GivenName] = {}
    for number, lists in enumerate(lives):
        notes = NameNotes()
        notes.heard(stored.values(), shared=False)
        begun = attrs.evolve(NO_NAMES[Kind.TOOL], begun=float(number)).remembering(stored.values())
        names = assign(begun, [claims(name, *sorted(lists.get(name, ()))) for name in "abcd"], {"call_tool"})
        given, gone = notes.difference({Kind.TOOL: names})
        assert not gone
        for each in given:
            assert each.name not in stored
            stored[each.name] = each
        for server, tools in lists.items():
            for tool in tools:
                assert stored[names.name_of((server, tool))].key == (server, tool)
                assert names.since((server, tool)) <= number
    assert len({(each.key, each.beside) for each in stored.values()}) == len(stored)
