"""Two daemons on one database: epochs that never fall, and nothing that one of them loaded is lost."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import ClassVar

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from daemon.catalog.kinds import BESIDE_TOOLS
from daemon.catalog.loaded import VALID, Loaded, LoadedStatus, LoadedTool, SessionRecord, Source, Verdict
from daemon.config.state_url import StateUrl, of_file, parse
from daemon.facts import SelfDescription, ServerRecord
from daemon.model import Approval, Kind, Summary, Tool
from daemon.state.sql import Batch, Database, clean
from daemon.state.store import Store
from tests.unit.cases import cases
from tests.unit.catalog.samples import tool
from tests.unit.state.places import Opener, Place, Sqlite, database_of
from tests.unit.state.postgres import Server
from tests.unit.state.samples import CHANGED, definition, server, session, summed, with_lists


@cases("stored", "asked", "same", "got")
def test_an_epoch_never_falls_and_never_means_two_things(
    place: Place, opening: Opener, stored: int, asked: int, same: bool, got: int
) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    one.keep(Batch(at=1.0, servers=(server("read", epoch=stored),)))
    ours = server("read" if same else "write", epoch=asked)
    kept = two.keep(Batch(at=2.0, servers=(ours,)))
    assert kept.epochs == ({"git": got} if got != asked else {})
    assert one.recall().servers == (attrs.evolve(ours, epoch=got),)


def test_an_earlier_life_of_ours_had_its_own_epochs(place: Place, opening: Opener) -> None:
    opening(place, "one").keep(Batch(at=1.0, servers=(server("read", epoch=9),)))
    # It came up without being able to read the store, and counted from 1.
    later = opening(place, "one again")
    assert later.keep(Batch(at=2.0, servers=(server("other", epoch=1),))).epochs == {"git": 10}


@cases("stored", "now", "got")
def test_no_epoch_means_two_lists_of_prompts(
    place: Place, opening: Opener, stored: list[str], now: list[str], got: int
) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    known = server("read", epoch=3)
    one.keep(Batch(at=1.0, servers=(with_lists(known, prompt=stored) if stored else known,)))
    ours = with_lists(known, prompt=now) if now else known
    two.keep(Batch(at=2.0, servers=(ours,)))
    assert one.recall().servers == (attrs.evolve(ours, epoch=got),)


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
    off = list[frozenset[tuple[str, str]]]()
    changes = one.changes_since(version, ["key", "unknown"], on_switched=off.append)
    assert changes.version == mine.version
    assert changes.servers == (server("read"),)
    assert changes.sessions == (session("key", "git/read"),)
    after = one.changes_since(changes.version, ["key"], on_switched=off.append)
    assert (after.servers, after.sessions) == ((), ())
    seen = two.changes_since(version, ["key"], on_switched=off.append)
    assert (seen.servers, seen.sessions) == ((server("own", name="fs"),), ())
    assert off == [frozenset({("git", "push")})]


def test_switching_on_again_is_seen_by_another_daemon(place: Place, opening: Opener) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    two.keep(Batch(at=1.0, switched_off=frozenset({("git", "")})))
    version = one.changes_since(0).version
    two.keep(Batch(at=2.0, switched_on=frozenset({("git", "")})))
    off = list[frozenset[tuple[str, str]]]()
    one.changes_since(version, on_switched=off.append)
    assert off == [frozenset()]


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


@cases("edit", "lost")
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


@cases("edit", "lost")
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


@cases("edit")
def test_any_type_in_any_column_of_sqlite_costs_that_server(
    sqlite_place: Sqlite, opening: Opener, edit: str
) -> None:
    store = opening(sqlite_place)
    store.keep(BATCH)
    sqlite_place.run(edit)
    found = store.recall()
    assert [record.server for record in found.servers] == ["git"]
    assert len(found.unreadable) == 1


@cases("edit")
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


approvals = some.builds(
    Approval,
    identity=some.sampled_from(SERVERS),
    kind=some.sampled_from([Kind.TOOL, Kind.PROMPT, Kind.TEMPLATE]),
    name=some.sampled_from(("", *NAMES)),
    raw=some.sampled_from([b"", b"{}", *(known("git", name, 0).raw for name in NAMES)]),
    by=texts,
    at=times,
)


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
        self.approvals: dict[tuple[str, Kind, str, bytes], Approval] = {}
        self.version = 0
        self.store = Store.open(self.url, writer="one")

    @rule()
    def live_again(self) -> None:
        self.store.close()
        self.lives += 1
        self.store = Store.open(self.url, writer="one")

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

    @rule(given=some.lists(approvals, max_size=3), at=times)
    def approve(self, given: list[Approval], at: float) -> None:
        self._counted(self.store.keep(Batch(at=at, approvals=tuple(given))).version)
        self.approvals |= {(each.identity, each.kind, each.name, each.raw): each for each in given}

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
        assert sorted(found.approvals, key=repr) == sorted(self.approvals.values(), key=repr)
        assert [each.at for each in found.approvals] == sorted(each.at for each in found.approvals)
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
        remember(
            lambda: of_file(Path(tempfile.mkdtemp(dir=directory)) / "state.db"),
            examples=min(25, settings().max_examples),
        )


def test_postgresql_remembers_like_a_dict(postgres: Server) -> None:
    with ExitStack() as used:

        def fresh() -> StateUrl:
            dsn = postgres.database()
            used.callback(postgres.drop, dsn)
            return parse(dsn)

        # To look for a smaller example takes minutes here: SQLite finds one for what is not PostgreSQL's own.
        remember(
            fresh,
            examples=min(25, settings().max_examples) // 3,
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
        )


# --- what both databases do with statements ------------------------------------------------------------------


@pytest.fixture
def things(place: Place) -> Iterator[Database]:
    """With a table of three rows."""
    place.run("CREATE TABLE things (name TEXT, size BIGINT)", "INSERT INTO things VALUES ('a', 1), ('b', 2)")
    place.run("INSERT INTO things VALUES ('c', NULL)")
    made = database_of(place)
    yield made
    made.close()


def test_a_value_is_never_read_as_a_statement(things: Database) -> None:
    odd = "x'; DROP TABLE things; --:name %s ? {} \\:"
    with things.transaction(writes=True) as transaction:
        assert transaction.change("UPDATE things SET name = :odd WHERE name = :name", {"odd": odd, "name": "a"})
        assert transaction.scalar("SELECT size FROM things WHERE name = :odd", {"odd": odd}) == 1


def test_a_block_that_raises_undoes_what_it_changed_and_the_next_one_works(things: Database) -> None:
    with pytest.raises(ZeroDivisionError), things.transaction(writes=True) as transaction:
        assert transaction.change("DELETE FROM things") / 0
    with things.transaction(writes=True) as transaction:
        assert transaction.scalar("SELECT count(*) FROM things") == 3


@given(some.text(alphabet=some.characters(codec=None)))
def test_clean_text_can_be_kept_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert clean(cleaned) == cleaned


@given(some.text())
def test_ordinary_text_is_not_changed(text: str) -> None:
    assert clean(text) == text.replace("\0", "\ufffd")
