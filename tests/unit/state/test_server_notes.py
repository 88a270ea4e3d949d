"""What the store holds of servers, held against the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.catalog.snapshot import fold
from daemon.facts import Configured, DefinitionsListed, SelfDescription, ServerRecord, Summarized, Switched
from daemon.model import Kind, Summary
from daemon.state.server_notes import ServerNotes
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
