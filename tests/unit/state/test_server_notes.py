"""What the store holds of servers, held against the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.naming import NO_NAMES, Claims, Names, assign
from daemon.catalog.snapshot import fold
from daemon.facts import Configured, DefinitionsListed, SelfDescription, ServerRecord, Summarized, Switched
from daemon.model import GivenName, Kind, Summary
from daemon.state.server_notes import NAME_BYTES, NAMES_AT_ONCE, NameNotes, ServerNotes
from daemon.states import ServerState
from tests.unit.catalog.samples import catalog_of, listed, servers, status
from tests.unit.config.reading import config_of
from tests.unit.state.samples import definition

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog


CONFIG = {"mcpServers": servers("a", "b")}


def prompts(server: str, *names: str, incarnation: int = 1) -> DefinitionsListed:
    """A server lists these prompts."""
    listed = tuple(definition(Kind.PROMPT, name, server) for name in names)
    return DefinitionsListed(server=server, incarnation=incarnation, kind=Kind.PROMPT, definitions=listed)


def written(notes: ServerNotes, catalog: Catalog, epochs: dict[str, int] | None = None) -> list[str]:
    """Write what differs; the servers that did."""
    difference = notes.difference(catalog)
    notes.was_written(difference, epochs or {})
    return [record.server for record in difference.batch.servers]


def test_only_what_others_would_miss_is_a_record() -> None:
    notes, catalog = ServerNotes(), catalog_of(CONFIG)
    assert written(notes, catalog) == []
    catalog = fold(catalog, listed("a", "read"))
    assert written(notes, catalog) == ["a"]
    catalog = fold(catalog, status("a", ServerState.BACKOFF))
    assert written(notes, catalog) == []
    catalog = fold(catalog, listed("a", "read"))
    assert written(notes, catalog) == []
    catalog = fold(catalog, Summarized(server="a", summary=Summary(text="It reads.")))
    assert written(notes, catalog) == ["a"]
    catalog = fold(catalog, attrs.evolve(listed("a", "read"), said=SelfDescription(about="Reads.")))
    assert written(notes, catalog) == ["a"]
    catalog = fold(catalog, attrs.evolve(listed("a", "read", "write"), said=SelfDescription(about="Reads.")))
    assert written(notes, catalog) == ["a"]
    catalog = fold(catalog, Switched(off=frozenset({("a", "")})))
    assert written(notes, catalog) == ["a"]
    assert written(notes, catalog) == []


def test_every_server_is_judged_at_first_and_then_those_that_stand_differently() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    assert set(notes.difference(catalog).evidence) == {"a", "b"}
    written(notes, catalog)
    catalog = fold(catalog, status("a", ServerState.BACKOFF))
    assert not notes.difference(catalog)
    for change, judged in (
        (Switched(off=frozenset({("a", "read")})), {"a"}),
        (Switched(off=frozenset({("a", "read"), ("b", "")})), {"b"}),
        (listed("a", "read", "write"), {"a"}),
        (Configured(config=config_of({"mcpServers": servers("b")}), now=1.0), {"a"}),
    ):
        catalog = fold(catalog, change)
        assert set(notes.difference(catalog).evidence) == judged
        written(notes, catalog)
    assert not notes.difference(catalog)


def test_a_server_that_comes_back_is_judged_again() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    written(notes, catalog)
    written(notes, fold(catalog, Configured(config=config_of({"mcpServers": servers("b")}), now=1.0)))
    assert set(notes.difference(catalog).evidence) == {"a"}


def test_what_another_configuration_taught_stays_until_the_new_one_teaches_something() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    written(notes, catalog)
    other = {"mcpServers": {**servers("a", "b"), "a": {"command": "other"}}}
    catalog = fold(catalog, Configured(config=config_of(other), now=1.0))
    assert catalog.servers["a"].tools is None
    before = notes.difference(catalog)
    assert all(record.tools is not None for record in before.batch.servers)
    notes.was_written(before, {})
    catalog = fold(catalog, listed("a", "write", incarnation=9))
    (record,) = notes.difference(catalog).batch.servers
    assert [tool.name for tool in record.tools or ()] == ["write"]
    assert record.fingerprint == catalog.servers["a"].fingerprint


def test_a_list_beside_the_tools_is_written_when_it_differs_and_comes_back() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    written(notes, catalog)
    for names, differs in ((["review"], True), (["review"], False), (["review", "fix"], True), ([], True)):
        catalog = fold(catalog, prompts("a", *names))
        assert written(notes, catalog) == (["a"] if differs else [])
    catalog = fold(catalog, prompts("a", "review"))
    (record,) = notes.difference(catalog).batch.servers
    assert [each.name for each in record.definitions[Kind.PROMPT]] == ["review"]
    notes, catalog = ServerNotes(), catalog_of(CONFIG)
    notes.heard(record)
    fact = ServerRecord(
        server="a",
        fingerprint=record.fingerprint,
        epoch=record.epoch,
        lists={Kind.TOOL: record.tools or (), **record.definitions},
        since=record.since,
    )
    catalog = fold(catalog, fact)
    assert list(catalog.servers["a"].lists[Kind.PROMPT].definitions) == ["review"]
    assert written(notes, catalog) == []
    catalog = fold(catalog, attrs.evolve(prompts("a"), problem="timed out"))
    assert written(notes, catalog) == [], "what could not be listed is still what it was"


def test_prompts_of_another_configuration_stay_until_the_new_one_lists_tools() -> None:
    notes, catalog = ServerNotes(), fold(fold(catalog_of(CONFIG), listed("a", "read")), prompts("a", "review"))
    written(notes, catalog)
    other = {"mcpServers": {**servers("a", "b"), "a": {"command": "other"}}}
    catalog = fold(catalog, Configured(config=config_of(other), now=1.0))
    catalog = fold(catalog, prompts("a", "fix", incarnation=9))
    assert all(
        [each.name for each in record.definitions[Kind.PROMPT]] == ["review"]
        for record in notes.difference(catalog).batch.servers
    )
    catalog = fold(catalog, listed("a", "read", incarnation=9))
    (record,) = notes.difference(catalog).batch.servers
    assert [each.name for each in record.definitions[Kind.PROMPT]] == ["fix"]
    assert record.fingerprint == catalog.servers["a"].fingerprint


def test_another_daemons_list_is_not_answered_with_ours() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    ours = notes.difference(catalog).batch.servers[0]
    written(notes, catalog)
    tools = tuple((fold(catalog_of(CONFIG), listed("a", "write")).servers["a"].tools or {}).values())
    theirs = attrs.evolve(ours, epoch=2, lists={Kind.TOOL: tools})
    assert notes.heard(theirs)
    assert not notes.heard(theirs)
    fact = ServerRecord(
        server="a", fingerprint=theirs.fingerprint, epoch=2, lists={Kind.TOOL: tools}, by_another=True
    )
    catalog = fold(catalog, fact)
    assert list(catalog.servers["a"].tools or ()) == ["read"]
    assert written(notes, catalog) == []
    catalog = fold(catalog, listed("a", "read", "more"))
    assert written(notes, catalog) == ["a"]


def test_an_epoch_that_the_store_gave_is_not_asked_for_again() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    assert written(notes, catalog, {"a": 7}) == ["a"]
    assert written(notes, catalog) == []
    catalog = fold(catalog, ServerRecord(server="a", fingerprint="", epoch=7, by_another=True))
    assert catalog.servers["a"].epoch == 7
    assert written(notes, catalog) == []


def test_words_said_here_and_words_in_the_store_are_joined() -> None:
    notes, catalog = ServerNotes(), catalog_of(CONFIG)
    catalog = fold(catalog, Switched(off=frozenset({("a", ""), ("b", "x")})))
    written(notes, catalog)
    catalog = fold(catalog, Switched(off=frozenset({("b", "x"), ("b", "y")})))
    stored = frozenset({("a", ""), ("b", "x"), ("b", "z")})
    assert notes.heard_switches(stored, stored, catalog) == {("b", "x"), ("b", "y"), ("b", "z")}


def test_when_the_store_begins_anew_everything_is_to_be_written() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    catalog = fold(catalog, Switched(off=frozenset({("b", "")})))
    written(notes, catalog)
    assert not notes.missing(["a", "b", "c"])
    assert notes.missing(["b"])
    notes.start_over()
    difference = notes.difference(catalog)
    assert {record.server for record in difference.batch.servers} >= {"a"}
    assert difference.batch.switched_off == {("b", "")}
    assert set(difference.evidence) == {"a", "b"}


def test_what_was_listed_at_some_time_is_not_forgotten_when_it_was_recalled() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    record = attrs.evolve(notes.difference(catalog).batch.servers[0], refreshed_at=77.0)
    notes, catalog = ServerNotes(), catalog_of(CONFIG)
    notes.heard(record)
    fact = ServerRecord(
        server="a",
        fingerprint=record.fingerprint,
        epoch=1,
        lists={Kind.TOOL: record.tools or ()},
        since=record.since,
    )
    catalog = fold(catalog, fact)
    assert written(notes, catalog) == []
    catalog = fold(catalog, Switched(off=frozenset({("a", "")})))
    assert notes.difference(catalog).batch.servers[0].refreshed_at == 77.0


def test_loaded_tools_of_servers_that_nobody_configures_are_judged_if_asked_for() -> None:
    notes, catalog = ServerNotes(), catalog_of(CONFIG)
    notes.also_judge(["a", "gone"])
    assert notes.difference(catalog).evidence["gone"] is None
    written(notes, catalog)
    assert not notes.difference(catalog)


def claims(server: str, *tools: str, pending: bool = False) -> Claims:
    return Claims(server=server, own=tools, pending=pending)


def written_name_notes(notes: NameNotes, names: Names) -> tuple[set[str], set[str]]:
    """Write what differs: the names that are given, and those that are gone."""
    given, gone = notes.difference({Kind.TOOL: names})
    notes.were_written(given, gone)
    return {each.name for each in given}, {each.name for each in gone}


def test_what_is_given_is_written_once() -> None:
    notes, names = NameNotes(), assign(NO_NAMES[Kind.TOOL], [claims("a", "x"), claims("b", "x")])
    assert written_name_notes(notes, names) == ({"x", "b__x"}, set())
    assert written_name_notes(notes, names) == (set(), set())
    assert written_name_notes(notes, assign(names, [claims("a", "x", "y")])) == ({"y"}, set())


def test_a_name_that_may_still_go_to_another_server_is_not_written() -> None:
    names = assign(NO_NAMES[Kind.TOOL], [claims("a", pending=True), claims("b", "x")])
    notes = NameNotes()
    assert written_name_notes(notes, names) == (set(), set())
    assert written_name_notes(notes, names.settled()) == ({"x"}, set())


def test_a_name_whose_server_has_left_goes_and_is_given_anew() -> None:
    notes = NameNotes()
    old = GivenName(name="x", key=("gone", "x"), since=5.0)
    notes.heard([old], shared=False)
    assert written_name_notes(notes, NO_NAMES[Kind.TOOL]) == (set(), {"x"})
    notes.heard([old], shared=False)
    assert written_name_notes(notes, assign(NO_NAMES[Kind.TOOL], [claims("a", "x")])) == ({"x"}, {"x"})


def test_a_server_with_many_new_names_is_written_in_several_batches_old_meanings_first() -> None:
    notes, own = NameNotes(), [f"t{number}" for number in range(NAMES_AT_ONCE + 1)]
    notes.heard([GivenName(name=name, key=("gone", name)) for name in own], shared=False)
    names = assign(NO_NAMES[Kind.TOOL], [claims("a", *own)])
    assert [tuple(map(len, written_name_notes(notes, names))) for _ in range(4)] == [
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
    assert written_name_notes(notes, ours) == (set(), set())


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
