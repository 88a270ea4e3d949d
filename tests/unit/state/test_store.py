"""Two daemons on one database: epochs that never fall, and nothing that one of them loaded is lost."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import attrs
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from daemon.catalog.kinds import BESIDE_TOOLS
from daemon.catalog.loaded import VALID, Loaded, LoadedStatus, LoadedTool, SessionRecord, Source, Verdict
from daemon.config.state_url import of_file, parse
from daemon.facts import SelfDescription, ServerRecord
from daemon.model import Kind, Summary, Tool
from daemon.state.sql import Batch
from daemon.state.store import Store, migrate
from daemon.state.writer import StampedRows
from tests.unit.catalog.samples import tool
from tests.unit.state.places import SLACK, database_of
from tests.unit.state.samples import CHANGED, definition, server, session, summed, with_lists, with_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from daemon.config.state_url import StateUrl
    from daemon.state.sql import Database
    from tests.unit.state.places import Opener, Place, Sqlite
    from tests.unit.state.postgres import Server


@pytest.mark.parametrize(
    ("stored", "asked", "same", "got"),
    [
        (3, 5, True, 5),
        (3, 5, False, 5),
        (3, 3, True, 3),
        (3, 3, False, 4),
        (5, 3, True, 5),
        (5, 3, False, 6),
    ],
)
def test_an_epoch_never_falls_and_never_means_two_things(
    place: Place, opening: Opener, stored: int, asked: int, same: bool, got: int
) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    one.keep(Batch(at=1.0, servers=(server("read", epoch=stored),)))
    ours = server("read" if same else "write", epoch=asked)
    kept = two.keep(Batch(at=2.0, servers=(ours,)))
    assert kept.epochs == ({"git": got} if got != asked else {})
    assert one.recall().servers == (attrs.evolve(ours, epoch=got),)


def test_our_own_epoch_stays_ours_when_more_becomes_known(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(Batch(at=1.0, servers=(server("read", epoch=4),)))
    grown = server("read", "write", epoch=4)
    assert store.keep(Batch(at=2.0, servers=(grown,))).epochs == {}
    assert store.recall().servers == (grown,)


def test_an_earlier_life_of_ours_had_its_own_epochs(place: Place, opening: Opener) -> None:
    opening(place, "one").keep(Batch(at=1.0, servers=(server("read", epoch=9),)))
    # It came up without being able to read the store, and counted from 1.
    later = opening(place, "one again")
    assert later.keep(Batch(at=2.0, servers=(server("other", epoch=1),))).epochs == {"git": 10}


def test_a_server_that_has_not_listed_its_tools_loses_none(place: Place, opening: Opener) -> None:
    store = opening(place)
    known = summed(server("read", epoch=4))
    store.keep(Batch(at=1.0, servers=(known,)))
    mute = server(tools=None, epoch=6, fingerprint="another", refreshed_at=200.0)
    assert store.keep(Batch(at=2.0, servers=(mute,))).epochs == {}
    assert store.recall().servers == (attrs.evolve(known, epoch=6),)


def test_an_empty_list_is_a_list(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(Batch(at=1.0, servers=(server("read", epoch=4),)))
    store.keep(Batch(at=2.0, servers=(server(epoch=5),)))
    assert store.recall().servers == (server(epoch=5),)
    assert place.run("SELECT count(*) FROM tools") == [(0,)]


@pytest.mark.parametrize(
    ("stored", "now", "got"),
    [
        (["review"], ["review"], 3),
        (["one", "two"], ["two", "one"], 3),
        ([], ["review"], 4),
        (["review"], [], 4),
        (["review"], ["another"], 4),
    ],
)
def test_no_epoch_means_two_lists_of_prompts(
    place: Place, opening: Opener, stored: list[str], now: list[str], got: int
) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    known = server("read", epoch=3)
    one.keep(Batch(at=1.0, servers=(with_lists(known, prompt=stored) if stored else known,)))
    ours = with_lists(known, prompt=now) if now else known
    two.keep(Batch(at=2.0, servers=(ours,)))
    assert one.recall().servers == (attrs.evolve(ours, epoch=got),)


def test_what_a_server_has_besides_tools_is_kept_until_it_lists_again(place: Place, opening: Opener) -> None:
    store = opening(place)
    known = with_lists(server("read", epoch=4), prompt=["review"])
    store.keep(Batch(at=1.0, servers=(known,)))
    store.keep(Batch(at=2.0, servers=(server(tools=None, since={}, epoch=6, fingerprint="another"),)))
    assert store.recall().servers == (attrs.evolve(known, epoch=6),)


def test_a_server_that_has_listed_prompts_and_no_tools_yet_is_kept_so(place: Place, opening: Opener) -> None:
    store = opening(place)
    mute = with_lists(server(tools=None, since={}), prompt=["review"])
    store.keep(Batch(at=1.0, servers=(mute,)))
    assert store.recall().servers == (mute,)
    store.keep(Batch(at=2.0, servers=(with_tools(mute, (), epoch=2),)))
    assert store.recall().servers == (with_tools(mute, (), epoch=2),)


def test_another_daemon_sees_lists_that_changed(place: Place, opening: Opener) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    one.keep(Batch(at=1.0, servers=(with_lists(server("read"), prompt=["review"]),)))
    version = two.changes_since(0).version
    changed = with_lists(server("read", epoch=2), prompt=["review", "fix"])
    one.keep(Batch(at=2.0, servers=(changed,)))
    assert two.changes_since(version).servers == (changed,)
    gone = server("read", epoch=3)
    version = one.keep(Batch(at=3.0, servers=(gone,))).version - 1
    assert two.changes_since(version).servers == (gone,)


def test_a_tool_keeps_the_epoch_of_its_last_change(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(Batch(at=1.0, servers=(server("read", "write", epoch=1),)))
    store.keep(Batch(at=2.0, servers=(server("new", "read", "write", epoch=2),)))
    rows = place.run("SELECT name, position, epoch, updated_at FROM tools ORDER BY position")
    assert rows == [("new", 0, 2, 2.0), ("read", 1, 1, 2.0), ("write", 2, 1, 2.0)]


def test_a_sentence_is_kept_beside_its_tool_and_goes_with_it(place: Place, opening: Opener) -> None:
    store = opening(place)
    record = summed(server("read", "write"))
    store.keep(Batch(at=1.0, servers=(record,)))
    assert record.tools is not None
    fewer = with_tools(record, record.tools[:1], epoch=2)
    store.keep(Batch(at=2.0, servers=(fewer,)))
    (found,) = store.recall().servers
    assert list(found.sentences) == [record.tools[0].schema_hash]


def test_another_daemon_sees_what_changed_and_not_what_it_wrote_itself(place: Place, opening: Opener) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    version = one.changes_since(0, ["key"]).version
    batch = Batch(
        at=1.0,
        servers=(server("read"),),
        sessions=(session("key", "git/read"), session("other", "git/read")),
        switched_off=frozenset({("git", "push")}),
    )
    two.keep(batch)
    mine = one.keep(Batch(at=2.0, servers=(server("own", name="fs"),)))
    changes = one.changes_since(version, ["key", "unknown"])
    assert changes.version == mine.version
    assert changes.servers == (server("read"),)
    assert changes.sessions == (session("key", "git/read"),)
    assert changes.switched == frozenset({("git", "push")})
    after = one.changes_since(changes.version, ["key"])
    assert (after.servers, after.sessions, after.switched) == ((), (), None)
    seen = two.changes_since(version, ["key"])
    assert (seen.servers, seen.sessions, seen.switched) == ((server("own", name="fs"),), (), None)


def test_switching_on_again_is_seen_by_another_daemon(place: Place, opening: Opener) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    two.keep(Batch(at=1.0, switched_off=frozenset({("git", "")})))
    version = one.changes_since(0).version
    two.keep(Batch(at=2.0, switched_on=frozenset({("git", "")})))
    assert one.changes_since(version).switched == frozenset()


def test_marks_of_another_daemon_are_seen(place: Place, opening: Opener) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    one.keep(Batch(at=1.0, sessions=(session("key", "git/a"),)))
    version = one.changes_since(0, ["key"]).version
    two.keep(Batch(at=2.0, judge=lambda *_: CHANGED, judged=("git",)))
    (found,) = one.changes_since(version, ["key"]).sessions
    assert found.loaded.tools["git", "a"].verdict == CHANGED


def test_what_two_daemons_load_into_one_session_at_once_is_all_kept(place: Place, opening: Opener) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    one.keep(Batch(at=1.0, sessions=(session("key", "git/a"),)))
    version = one.changes_since(0, ["key"]).version
    two.changes_since(0, ["key"])
    one.keep(Batch(at=2.0, sessions=(session("key", "git/a", "git/b"),)))
    two.keep(Batch(at=3.0, sessions=(session("key", "git/a", "git/c"),)))
    (found,) = one.changes_since(version, ["key"]).sessions
    assert set(found.loaded.tools) == {("git", "a"), ("git", "b"), ("git", "c")}
    # Once a daemon knows of it, what it leaves out is meant to go.
    one.keep(Batch(at=4.0, sessions=(session("key", "git/c"),)))
    (left,) = two.changes_since(version, ["key"]).sessions
    assert set(left.loaded.tools) == {("git", "c")}


def test_touching_does_not_hide_what_another_daemon_wrote(place: Place, opening: Opener) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    version = one.changes_since(0).version
    two.keep(Batch(at=1.0, sessions=(session("key", "git/a"),)))
    one.keep(Batch(at=2.0, touched={"key": 50.0}))
    assert one.changes_since(version, ["key"]).sessions == (session("key", "git/a", seen_at=50.0),)


def test_a_database_that_counts_less_than_before_tells_everything(place: Place, opening: Opener) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    two.keep(Batch(at=1.0, servers=(server("read"),)))
    assert one.changes_since(1000).servers == (server("read"),)


BATCH = Batch(
    at=1.0,
    servers=(server("one", "two", name="fs"), summed(server("read", "write"))),
    sessions=(session("key", "git/read", "git/write"), session("other", "git/read")),
)


@pytest.mark.parametrize(
    ("edit", "lost"),
    [
        ("UPDATE tools SET raw = 'garbage' WHERE name = 'read'", "tool git/read: "),
        ("UPDATE tools SET raw = '{}' WHERE name = 'read'", "tool git/read: "),
        ("UPDATE tools SET raw = '' WHERE name = 'read'", "tool git/read: "),
    ],
)
def test_a_tool_that_cannot_be_read_costs_itself(place: Place, opening: Opener, edit: str, lost: str) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run(edit)
    found = store.recall()
    assert [each.startswith(lost) for each in found.unreadable] == [True]
    assert [[tool.name for tool in record.tools or ()] for record in found.servers] == [
        ["one", "two"],
        ["write"],
    ]


@pytest.mark.parametrize(
    ("edit", "lost"),
    [
        ("UPDATE lists SET definitions = 'garbage' WHERE kind = 'prompt'", "the list prompt of server git: "),
        ("UPDATE lists SET definitions = '{}' WHERE kind = 'prompt'", "the list prompt of server git: "),
        ("UPDATE lists SET definitions = '[7]' WHERE kind = 'prompt'", "prompt "),
        ("UPDATE lists SET kind = 'spell' WHERE kind = 'prompt'", "the list spell of server git: "),
    ],
)
def test_a_list_that_cannot_be_read_costs_itself(place: Place, opening: Opener, edit: str, lost: str) -> None:
    store = opening(place)
    record = with_lists(server("read"), prompt=["review"], resource=["mem://1"])
    store.keep(Batch(at=1.0, servers=(record,)))
    place.run(edit)
    found = store.recall()
    assert [each.startswith(lost) for each in found.unreadable] == [True]
    assert found.servers == (with_lists(server("read"), resource=["mem://1"]),)
    store.keep(Batch(at=2.0, servers=(attrs.evolve(record, epoch=2),)))
    assert store.recall().servers == (attrs.evolve(record, epoch=2),)


def test_a_tool_that_was_edited_is_what_it_says_now_without_its_sentence(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run("""UPDATE tools SET raw = '{"name":"read","inputSchema":{"type":"object"},"title":"x"}'
                 WHERE name = 'read'""")
    _, found = store.recall().servers
    record = BATCH.servers[1]
    assert found.tools is not None
    assert record.tools is not None
    assert found.tools[0].schema_hash != record.tools[0].schema_hash
    assert list(found.sentences) == [record.tools[1].schema_hash]


def test_two_rows_that_say_to_be_the_same_tool_are_one(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run("UPDATE tools SET raw = (SELECT raw FROM tools WHERE name = 'read') WHERE name = 'write'")
    found = store.recall()
    assert found.unreadable == ("tool git/write: its contents say that it is read, which is there already",)


def test_keywords_that_are_none_cost_the_summary(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run(
        "UPDATE servers SET keywords = '{not json'", "UPDATE tools SET keywords = '[1]' WHERE name = 'read'"
    )
    found = store.recall()
    assert found.servers[1].summary is None
    assert len(found.servers[1].sentences) == 1
    assert sorted(found.unreadable) == [
        "the summary of server git: keywords: Expected `array`, got `object`",
        "the summary of tool git/read: keywords: Expected `str`, got `int` - at `$[0]`",
    ]


def test_a_negative_epoch_costs_its_server(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run("UPDATE servers SET epoch = -1 WHERE name = 'fs'")
    found = store.recall()
    assert [record.server for record in found.servers] == ["git"]
    assert found.unreadable == ("server fs: Expected `int` >= 0 - at `$.epoch`",)


def test_a_status_that_does_not_exist_costs_that_loaded_tool(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run("UPDATE loaded_tools SET status = 'excellent' WHERE tool = 'write'")
    assert store.session("key") == session("key", "git/read")
    place.run("UPDATE loaded_tools SET version = 100, writer = 'somebody'", "UPDATE version SET value = 100")
    changes = store.changes_since(50, ["key"])
    assert changes.sessions == (session("key", "git/read"),)
    assert changes.unreadable == (
        "git/write, loaded by session key: Invalid enum value 'excellent' - at `$.status`",
    )


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE servers SET epoch = 'many' WHERE name = 'fs'",
        "UPDATE servers SET refreshed_at = 'today' WHERE name = 'fs'",
        "UPDATE servers SET fingerprint = x'00ff' WHERE name = 'fs'",
        "UPDATE servers SET name = x'00ff' WHERE name = 'fs'",
    ],
)
def test_any_type_in_any_column_of_sqlite_costs_that_server(
    sqlite_place: Sqlite, opening: Opener, edit: str
) -> None:
    store = opening(sqlite_place)
    store.keep(BATCH)
    sqlite_place.run(edit)
    found = store.recall()
    assert [record.server for record in found.servers] == ["git"]
    assert len(found.unreadable) == 1


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE tools SET summary = x'00', position = 'first', version = 'v', epoch = 'e', updated_at = 'u'",
        "UPDATE tools SET summary = CAST(x'ff41' AS TEXT) WHERE name = 'read'",
        "UPDATE tools SET raw = 7, keywords = 7, summary_generated_at = 'x'",
        "UPDATE servers SET epoch = 'many', version = 'v', summary = x'00'",
        "UPDATE sessions SET seen_at = 'late', version = 'v', client = x'00'",
        "UPDATE loaded_tools SET position = 'x', version = 'v', loaded_epoch = 'e', renamed_to = x'00'",
        "UPDATE loaded_tools SET source = 'nobody', loaded_at = 'x', invalid_reason = x'00'",
    ],
)
def test_what_was_edited_is_written_over(sqlite_place: Sqlite, opening: Opener, edit: str) -> None:
    store = opening(sqlite_place)
    store.keep(BATCH)
    sqlite_place.run(edit)
    for each in (store.recall, lambda: store.sessions(10), lambda: store.changes_since(0, ["key"])):
        each()
    store.keep(BATCH)
    found = store.recall()
    assert found.unreadable == ()
    assert [record.tools for record in found.servers] == [record.tools for record in BATCH.servers]
    assert sorted(store.sessions(10), key=lambda record: record.key) == list(BATCH.sessions)


ROW = {"server": "git", "tool": "push", "switched_off": 1, "at": 5.0}
KEYS = ("server", "tool")


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    """A store with a switch that somebody else has written."""
    place.run("SELECT 1")
    made = database_of(place)
    with made.transaction(writes=True) as transaction:
        migrate(transaction, "here")
        StampedRows(transaction, version=1, writer="other").put("switches", KEYS, [ROW, {**ROW, "tool": "log"}])
    yield made
    made.close()


def stamps(place: Place) -> list[tuple[object, ...]]:
    """All switches with their stamps."""
    return place.run("SELECT tool, switched_off, version, writer FROM switches ORDER BY tool")


def test_a_row_that_is_put_replaces_the_one_of_its_keys(database: Database, place: Place) -> None:
    with database.transaction(writes=True) as transaction:
        StampedRows(transaction, version=2, writer="me").put("switches", KEYS, [{**ROW, "switched_off": 0}])
    assert stamps(place) == [("log", 1, 1, "other"), ("push", 0, 2, "me")]


def test_only_rows_with_the_old_values_are_changed(database: Database, place: Place) -> None:
    with database.transaction(writes=True) as transaction:
        rows = StampedRows(transaction, version=2, writer="me")
        assert rows.change("switches", {"tool": "log", "switched_off": 1}, {"switched_off": 0}) == 1
        assert rows.change("switches", {"tool": "log", "switched_off": 1}, {"switched_off": 0}) == 0
    assert stamps(place) == [("log", 0, 2, "me"), ("push", 1, 1, "other")]


def test_rows_can_be_stamped_as_they_are_and_dropped(database: Database, place: Place) -> None:
    with database.transaction(writes=True) as transaction:
        rows = StampedRows(transaction, version=2, writer="me")
        rows.touch("switches", "tool", {"log"})
        rows.touch("switches", "tool", set())
        rows.drop("switches", KEYS, [{"server": "git", "tool": "push"}])
        rows.drop("switches", KEYS, [])
        rows.put("switches", KEYS, [])
    assert stamps(place) == [("log", 1, 2, "me")]


SERVERS = ("fs", "git")
KEYS_REMEMBERING = ("one", "two", "ключ 3")
NAMES = ("read", "write", "läs")


@cache
def known(server: str, name: str, kind: int) -> Tool:
    return tool(server, name, description=f"kind {kind}")


times = some.floats(0, 1000, width=32)
texts = some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
statuses = some.sampled_from([each for each in LoadedStatus if each is not LoadedStatus.VALID])
verdicts = some.just(VALID) | some.builds(
    Verdict, status=statuses, reason=texts, renamed_to=some.none() | texts
)


@some.composite
def summaries(draw: some.DrawFn, of: str) -> Summary:
    return Summary(text=draw(texts), keywords=tuple(draw(some.lists(texts, max_size=2))), of=of, at=draw(times))


@some.composite
def servers(draw: some.DrawFn) -> ServerRecord:
    name = draw(some.sampled_from(SERVERS))
    names = draw(some.none() | some.lists(some.sampled_from(NAMES), unique=True))
    tools = None if names is None else tuple(known(name, each, draw(some.integers(0, 2))) for each in names)
    said = [each for each in tools or () if draw(some.booleans())]
    return ServerRecord(
        server=name,
        fingerprint=draw(texts),
        epoch=draw(some.integers(0, 5)),
        refreshed_at=draw(times),
        summary=draw(some.none() | summaries("digest")),
        sentences={each.schema_hash: draw(summaries(each.schema_hash)) for each in said},
        since={each.name: 7.0 for each in tools or ()},
        said=SelfDescription(about=draw(texts)),
        lists={
            **({} if tools is None else {Kind.TOOL: tools}),
            **{
                kind: tuple(
                    definition(kind, each, name)
                    for each in draw(some.lists(some.sampled_from(NAMES), min_size=1, unique=True))
                )
                for kind in draw(some.sets(some.sampled_from(BESIDE_TOOLS)))
            },
        },
    )


@some.composite
def sessions(draw: some.DrawFn) -> SessionRecord:
    keys = draw(some.lists(some.tuples(some.sampled_from(SERVERS), some.sampled_from(NAMES)), unique=True))
    held = {key: draw(loadings(key)) for key in keys}
    key = draw(some.sampled_from(KEYS_REMEMBERING))
    return SessionRecord(
        key=key, loaded=Loaded(held), client=draw(texts), created_at=draw(times), seen_at=draw(times)
    )


@some.composite
def loadings(draw: some.DrawFn, key: tuple[str, str]) -> LoadedTool:
    return LoadedTool(
        key=key,
        schema_hash=draw(some.sampled_from("ab")),
        epoch=draw(some.integers(0, 5)),
        source=draw(some.sampled_from(Source)),
        at=draw(times),
        verdict=draw(verdicts),
        judged_at=draw(times),
    )


switched = some.frozensets(some.tuples(some.sampled_from(SERVERS), some.sampled_from(("", *NAMES))), max_size=4)


class Remembering(RuleBasedStateMachine):
    """A store, and the dicts that it must equal."""

    fresh: ClassVar[Callable[[], StateUrl]]
    """The url of an empty place."""

    @initialize()
    def begin(self) -> None:
        self.url = type(self).fresh()
        self.lives = 0
        self.servers: dict[str, ServerRecord] = {}
        self.sessions: dict[str, SessionRecord] = {}
        self.off: frozenset[tuple[str, str]] = frozenset()
        self.version = 0
        self.store = Store.open(self.url, writer="one", slack=SLACK)

    @rule()
    def live_again(self) -> None:
        self.store.close()
        self.lives += 1
        self.store = Store.open(self.url, writer="one", slack=SLACK)

    @rule(records=some.lists(servers(), max_size=2, unique_by=lambda record: record.server), at=times)
    def keep_servers(self, records: list[ServerRecord], at: float) -> None:
        kept = self.store.keep(Batch(at=at, servers=tuple(records)))
        for record in records:
            self.servers[record.server] = now = self._merged(record)
            assert kept.epochs.get(record.server, record.epoch) == now.epoch
        self._counted(kept.version)

    @rule(records=some.lists(sessions(), max_size=3, unique_by=lambda record: record.key), at=times)
    def keep_sessions(self, records: list[SessionRecord], at: float) -> None:
        kept = self.store.keep(Batch(at=at, sessions=tuple(records)))
        for record in records:
            old = self.sessions.get(record.key)
            seen_at = max(record.seen_at, old.seen_at) if old else record.seen_at
            self.sessions[record.key] = attrs.evolve(record, seen_at=seen_at)
        self._counted(kept.version)

    @rule(key=some.sampled_from(KEYS_REMEMBERING), at=times)
    def touch(self, key: str, at: float) -> None:
        self._counted(self.store.keep(Batch(at=at, touched={key: at})).version)
        if key in self.sessions:
            old = self.sessions[key]
            self.sessions[key] = attrs.evolve(old, seen_at=max(at, old.seen_at))

    @rule(off=switched, on=switched, at=times)
    def switch(self, off: frozenset[tuple[str, str]], on: frozenset[tuple[str, str]], at: float) -> None:
        self._counted(self.store.keep(Batch(at=at, switched_off=off, switched_on=on)).version)
        self.off = (self.off - on) | off

    @rule(
        judged=some.sets(some.sampled_from(SERVERS)),
        said=some.dictionaries(some.tuples(some.sampled_from(NAMES), some.sampled_from("ab")), verdicts),
        at=times,
    )
    def mark(self, judged: set[str], said: Mapping[tuple[str, str], Verdict], at: float) -> None:
        def judge(_server: str, name: str, schema_hash: str) -> Verdict:
            return said.get((name, schema_hash), VALID)

        kept = self.store.keep(Batch(at=at, judge=judge, judged=tuple(judged)))
        changed = 0
        for key, record in self.sessions.items():
            now = record.loaded.judged(
                lambda each: judge(*each.key, each.schema_hash) if each.key[0] in judged else each.verdict, at
            )
            changed += sum(now.tools[name] is not each for name, each in record.loaded.tools.items())
            self.sessions[key] = attrs.evolve(record, loaded=now)
        assert sum(kept.marked.values()) == changed
        self._counted(kept.version)

    @rule(before=times)
    def forget(self, before: float) -> None:
        idle = [key for key, record in self.sessions.items() if record.seen_at < before]
        assert self.store.forget_sessions(before, most=999) == len(idle)
        for key in idle:
            del self.sessions[key]
        self.version += 1

    @invariant()
    def what_comes_back_is_what_was_kept(self) -> None:
        found = self.store.recall()
        assert found.unreadable == ()
        assert {record.server: record for record in found.servers} == self.servers
        assert {record.key: record for record in self.store.sessions(10)} == self.sessions
        for key in KEYS_REMEMBERING:
            record = self.store.session(key)
            assert record == self.sessions.get(key)
            if record is not None:
                assert list(record.loaded.tools) == list(self.sessions[key].loaded.tools)
        assert self.store.recall().switched == self.off
        assert self.store.changes_since(0, KEYS_REMEMBERING).version == self.version

    def teardown(self) -> None:
        self.store.close()

    def _merged(self, record: ServerRecord) -> ServerRecord:
        old = self.servers.get(record.server)
        if old is None:
            return record
        epoch = record.epoch
        if record.epoch <= old.epoch:
            same = record.tools is None or _poll(record) == _poll(old)
            epoch = old.epoch if same or record.epoch == old.epoch else old.epoch + 1
        mute = record.tools is None and old.tools is not None
        return attrs.evolve(old if mute else record, epoch=epoch)

    def _counted(self, version: int) -> None:
        self.version += 1
        assert version == self.version


def _poll(record: ServerRecord) -> tuple[object, ...]:
    lists = {kind: {each.schema_hash for each in listed} for kind, listed in record.definitions.items()}
    return {each.schema_hash for each in record.tools or ()}, lists


def remember(fresh: Callable[[], StateUrl], examples: int, phases: Sequence[Phase] = tuple(Phase)) -> None:
    machine = type("Machine", (Remembering,), {"fresh": staticmethod(fresh)})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=checks,
            phases=phases,
        ),
    )


def test_sqlite_remembers_like_a_dict() -> None:
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        remember(lambda: of_file(Path(tempfile.mkdtemp(dir=directory)) / "state.db"), examples=25)


def test_postgresql_remembers_like_a_dict(postgres: Server) -> None:
    with ExitStack() as used:

        def fresh() -> StateUrl:
            dsn = postgres.database()
            used.callback(postgres.drop, dsn)
            return parse(dsn)

        # To look for a smaller example takes minutes here: SQLite finds one for what is not PostgreSQL's own.
        remember(fresh, examples=8, phases=(Phase.explicit, Phase.reuse, Phase.generate))
