"""What the store promises, on both databases."""

import secrets
import string
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf
from typing import Any

import attrs
import pytest
from msgspec import Raw, structs

from daemon.catalog.listing import URI_BYTES, read_definitions
from daemon.catalog.loaded import LoadedStatus, anonymous_key
from daemon.catalog.tool_results import Shape
from daemon.causes import Cause
from daemon.history.event import Event, EventKind
from daemon.history.journal import EventQuery
from daemon.model import GivenName, Kind
from daemon.state.event_rows import (
    FORGOTTEN_EVENTS,
    KEPT,
    SECONDS,
    LastLife,
    away_since,
    find_events,
    forget_events,
    last_life,
    put_shapes,
    read_hours,
    stored_shapes,
)
from daemon.state.server_notes import NAME_BYTES
from daemon.state.sql import Batch, StoreCause, StoreFault
from daemon.state.store import Store, set_aside
from daemon.state.writer import MAX_IDENTITIES
from tests.unit.catalog.samples import tool
from tests.unit.state.places import Opener, Place, Postgres, Sqlite, failing
from tests.unit.state.samples import CHANGED, approval, definition, server, session, with_lists, with_tools
from tests.waiting import run_to_end


def test_loading_one_more_tool_writes_one_row(store: Store, place: Place) -> None:
    many = [f"git/tool{number}" for number in range(400)]
    store.keep(Batch(at=1.0, sessions=(session("key", *many),)))
    # The first has left the list, as it does when a session has too many.
    kept = store.keep(Batch(at=2.0, sessions=(session("key", *many[1:], "git/new"),)))
    assert place.run(f"SELECT tool FROM loaded_tools WHERE version = {kept.version}") == [("new",)]


def test_the_sessions_that_were_used_last_come_first(store: Store) -> None:
    records = [session(f"key{number}", "git/a", seen_at=float(number)) for number in range(5)]
    store.keep(Batch(at=1.0, sessions=tuple(records)))
    assert store.sessions(3) == (records[4], records[3], records[2])


def test_sessions_that_nobody_has_named_are_forgotten_sooner(store: Store) -> None:
    keys = {"named": 3.0, anonymous_key("a" * 32) or "": 3.0, f"uid 5: {anonymous_key('b' * 32)}": 3.0}
    keys |= {anonymous_key("c" * 32) or "": 3.0, anonymous_key("d" * 32) or "": 9.0}
    store.keep(Batch(at=1.0, sessions=tuple(session(key, "git/a", seen_at=at) for key, at in keys.items())))
    assert store.forget_sessions(1.0, sparing=[anonymous_key("c" * 32) or ""], most=9, anonymous=5.0) == 2
    left = {"named", anonymous_key("c" * 32), anonymous_key("d" * 32)}
    assert {record.key for record in store.sessions(9)} == left


def test_observed_shapes_are_kept_while_a_server_lists_their_tool(store: Store) -> None:
    listed = server("read")
    (known,) = listed.tools or ()
    shapes = {known.schema_hash: Shape(b'{"id":"int"}'), "0" * 64: Shape(b'"str"')}
    store.keep(Batch(at=1.0, servers=(listed,)))
    store.within(partial(put_shapes, shapes), writes=True)
    assert store.within(stored_shapes, writes=True) == {known.schema_hash: b'{"id":"int"}'}
    store.within(partial(put_shapes, {known.schema_hash: Shape(b'["int"]')}), writes=True)
    assert store.within(stored_shapes, writes=True) == {known.schema_hash: b'["int"]'}
    store.keep(Batch(at=2.0, servers=(server(),)))
    assert store.within(stored_shapes, writes=True) == {}


def test_counts_are_added_up_and_say_since_when(store: Store, place: Place) -> None:
    assert (store.recall().counted, store.recall().counted_since) == ({}, 0.0)
    store.keep(Batch(at=5.0, counted={"loads": 3, "invalidations.invalid_changed": 1}))
    store.keep(Batch(at=9.0, counted={"loads": 4, "loadHits": 1}))
    found = store.recall()
    assert found.counted == {"loads": 7, "loadHits": 1, "invalidations.invalid_changed": 1}
    assert found.counted_since == 5.0
    place.run("DELETE FROM counts")
    assert store.recall().counted == {}


def test_of_too_many_sessions_those_go_that_were_used_before_others(store: Store) -> None:
    records = tuple(session(f"key{number}", "git/a", seen_at=float(number)) for number in range(9))
    assert store.keep(Batch(at=1.0, sessions=records)).begun == 9
    assert (
        store.keep(Batch(at=2.0, sessions=(session("key8", "git/b", seen_at=8.0), session("new")))).begun == 1
    )
    assert store.forget_sessions(0.0, sparing=("key1",), most=7) == 2
    assert sorted(record.key for record in store.sessions(99)) == [
        "key1",
        *(f"key{n}" for n in range(3, 9)),
        "new",
    ]
    assert store.forget_sessions(0.0, most=99) == 0


def test_other_users_sessions_go_first_where_they_have_more_than_half(store: Store) -> None:
    keys = ["mine", *(f"uid 5: {number}" for number in range(6))]
    store.keep(Batch(at=1.0, sessions=tuple(session(key, seen_at=at) for at, key in enumerate(keys))))
    assert store.forget_sessions(-1.0, most=8) == 2
    assert [each.key for each in reversed(store.sessions(10))] == ["mine", *keys[3:]]


# --- names ---------------------------------------------------------------------------------------------------

GIVEN = GivenName(name="transfer", key=("bank", "transfer"), since=5.0)
BESIDE = GivenName(name="bank__call_tool", key=("bank", "call_tool"), beside=True, since=6.0)
TAKEN = GivenName(name="transfer", key=("evil", "transfer"), since=7.0)


def test_a_name_that_is_given_again_stays_as_it_is(store: Store, place: Place) -> None:
    store.keep(Batch(at=1.0, names=(GIVEN,)))
    store.keep(Batch(at=2.0, names=(attrs.evolve(GIVEN, since=9.0),)))
    assert store.recall().names == (GIVEN,)
    assert place.run("SELECT version FROM given_names") == [(1,)]


def test_a_name_that_two_daemons_gave_stays_the_first_ones_and_nobody_knows_it(store: Store) -> None:
    store.keep(Batch(at=1.0, names=(GIVEN,)))
    kept = store.keep(Batch(at=2.0, names=(TAKEN,), names_gone=(TAKEN,)))
    assert store.recall().names == (attrs.evolve(GIVEN, since=inf),)
    assert store.keep(Batch(at=3.0, names=(TAKEN, GIVEN))).version == kept.version + 1
    assert store.recall().names == (attrs.evolve(GIVEN, since=inf),)


def test_another_daemon_hears_of_names_and_not_of_its_own(place: Place, opening: Opener) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    version = one.keep(Batch(at=1.0, names=(GIVEN,))).version
    assert two.changes_since(0).names == (GIVEN,)
    assert one.changes_since(0).names is None
    assert two.changes_since(version).names is None


def test_a_name_that_somebody_has_edited_is_left_out(store: Store, place: Place, sqlite_place: Sqlite) -> None:
    store.keep(Batch(at=1.0, names=(GIVEN, BESIDE)))
    if place is sqlite_place:
        place.run(
            "UPDATE given_names SET server = x'00' WHERE beside = 0", "UPDATE given_names SET since = 'x'"
        )
        known = store.recall()
        assert known.names == (attrs.evolve(BESIDE, since=inf),)
        assert "transfer" in known.unreadable[0]


def test_a_prompt_and_a_uri_may_have_the_name_of_a_tool(place: Place, opening: Opener) -> None:
    both = [attrs.evolve(GIVEN, kind=kind, key=(kind.value, "x")) for kind in (Kind.PROMPT, Kind.RESOURCE)]
    store = opening(place)
    store.keep(Batch(at=1.0, names=(GIVEN, *both)))
    store.keep(Batch(at=2.0, names_gone=(both[0],)))
    assert set(store.recall().names) == {GIVEN, both[1]}


def test_the_longest_name_that_is_kept_can_be_found(store: Store, place: Place) -> None:
    # Nothing in it repeats, so that no database can make it shorter.
    longest = "".join(secrets.choice(string.printable[:94]) for _ in range(NAME_BYTES))
    uri = attrs.evolve(GIVEN, name=longest, kind=Kind.RESOURCE)
    off = frozenset({("git", f"resource:{longest}")})
    store.keep(Batch(at=1.0, names=(uri,), switched_off=off))
    assert (store.recall().names, store.recall().switched) == ((uri,), off)


# --- approvals -----------------------------------------------------------------------------------------------

FIRST = approval("", by="first list")
READ = approval("read", by="olga, console")
CHANGED_READ = approval(
    "read", raw=tool("git", "read", description="Now it writes.").raw, by="mcpd approve", at=7
)


def test_approvals_come_back_with_who_and_when_oldest_first_and_a_lists_before_its_tools(
    place: Place, opening: Opener
) -> None:
    store = opening(place)
    store.keep(Batch(at=1.0, approvals=(CHANGED_READ, READ, FIRST)))
    prompt = approval("read", kind=Kind.PROMPT, at=6)
    store.keep(Batch(at=2.0, approvals=(prompt, approval("read", identity="another", at=8))))
    store.close()
    found = opening(place).recall()
    assert found.approvals == (FIRST, READ, prompt, CHANGED_READ, approval("read", identity="another", at=8))
    assert found.unreadable == ()


def test_a_form_that_is_approved_again_is_the_latest_one(store: Store) -> None:
    store.keep(Batch(at=1.0, approvals=(READ, CHANGED_READ)))
    again = approval("read", by="somebody else", at=9)
    store.keep(Batch(at=2.0, approvals=(again,)))
    assert store.recall().approvals == (CHANGED_READ, again)


def test_another_daemon_hears_of_approvals_and_not_of_its_own(place: Place, opening: Opener) -> None:
    one, two = opening(place, "one"), opening(place, "two")
    version = one.keep(Batch(at=1.0, approvals=(READ, FIRST))).version
    assert two.changes_since(0).approvals == (FIRST, READ)
    assert one.changes_since(0).approvals == ()
    assert two.changes_since(version).approvals == ()
    one.keep(Batch(at=2.0, approvals=(CHANGED_READ,)))
    assert two.changes_since(version).approvals == (CHANGED_READ,)


@pytest.mark.parametrize("column", ["identity", "kind", "name", "raw", "digest"])
def test_an_approval_that_somebody_has_edited_is_left_out_and_named(
    store: Store, place: Place, column: str
) -> None:
    store.keep(Batch(at=1.0, approvals=(FIRST, CHANGED_READ, READ)))
    edited = f"{column} = {'raw' if column == 'raw' else repr('prompt')}"
    if column == "raw":
        (row,) = place.run("SELECT digest FROM approvals WHERE at = 7")
        place.run(
            f"UPDATE approvals SET raw = (SELECT raw FROM approvals WHERE name = '') WHERE digest = '{row[0]}'"
        )
    else:
        place.run(f"UPDATE approvals SET {edited} WHERE at = 7")
    found = store.recall()
    assert found.approvals == (FIRST, READ)
    (text,) = found.unreadable
    assert "its digest does not match" in text
    # Approved again, it is whole again.
    store.keep(Batch(at=2.0, approvals=(CHANGED_READ,)))
    assert CHANGED_READ in store.recall().approvals


def test_a_cell_of_an_approval_with_another_type_costs_that_approval(
    sqlite_place: Sqlite, opening: Opener
) -> None:
    store = opening(sqlite_place)
    store.keep(Batch(at=1.0, approvals=(FIRST, READ)))
    for cell in (
        "at = 'noon'",
        "kind = 'spell'",
        "name = x'00'",
        "raw = 'text'",
        "by_whom = x'00'",
        "digest = 1",
    ):
        sqlite_place.run(f"UPDATE approvals SET {cell} WHERE name <> ''")
        found = store.recall()
        assert (found.approvals, len(found.unreadable)) == ((FIRST,), 1), cell
        sqlite_place.run("DELETE FROM approvals WHERE digest = 1 OR by_whom <> 'first list'")
        store.keep(Batch(at=2.0, approvals=(READ,)))


def test_an_approval_of_a_uri_longer_than_any_key_and_by_somebody_with_odd_letters_is_kept(
    store: Store,
) -> None:
    # Nothing in it repeats, so that no database can make it shorter.
    uri = "mem://" + "".join(secrets.choice(string.ascii_letters) for _ in range(URI_BYTES - 6))
    given = approval(kind=Kind.TEMPLATE, name=uri, raw=definition(Kind.TEMPLATE, uri).raw, by="a\0b\ud800")
    store.keep(Batch(at=1.0, approvals=(given, READ)))
    assert set(store.recall().approvals) == {structs.replace(given, by="a\ufffdb?"), READ}


def test_of_too_many_identities_those_stay_that_were_approved_last(store: Store, place: Place) -> None:
    many = [approval("read", identity=f"{number}", at=float(number)) for number in range(MAX_IDENTITIES + 1)]
    store.keep(Batch(at=1.0, approvals=tuple(many)))
    assert store.recall().approvals == tuple(many[1:])
    assert place.run("SELECT count(*) FROM approvals") == [(MAX_IDENTITIES,)]
    later = approval("log", identity="1", at=1e9)
    store.keep(Batch(at=2.0, approvals=(later, approval("read", identity="new", at=1e8))))
    assert {each.identity for each in many[:3]} - {each.identity for each in store.recall().approvals} == {
        "0",
        "2",
    }


# --- prompts, resources and templates ------------------------------------------------------------------------


def test_lists_come_back_byte_for_byte_and_in_order(place: Place, opening: Opener) -> None:
    raws = [
        b'{"uri" : "mem://2","name":"\\u0041\xc3\xa9","size":12345678901234567890}',
        b'{"name":"a","uri":"mem://1","_meta":{"x":[1.10,{}]}, "icons":[{"src":"i"}]}',
    ]
    resources, faulty = read_definitions(Kind.RESOURCE, "git", map(Raw, raws))
    assert not faulty
    record = with_tools(attrs.evolve(server("read"), lists={Kind.RESOURCE: resources}), server("read").tools)
    first = opening(place)
    first.keep(Batch(at=1.0, servers=(record,)))
    first.close()
    (found,) = opening(place, "two").recall().servers
    assert found == record
    assert [each.raw for each in found.definitions[Kind.RESOURCE]] == raws


def test_a_list_that_is_gone_is_not_kept_and_others_are_not_written_again(store: Store, place: Place) -> None:
    record = with_lists(server("read"), prompt=["one", "two"], resource=["mem://1"], template=["mem://{x}"])
    store.keep(Batch(at=1.0, servers=(record,)))
    fewer = with_lists(server("read", epoch=2), prompt=["two"], resource=["mem://1"])
    store.keep(Batch(at=2.0, servers=(fewer,)))
    assert store.recall().servers == (fewer,)
    assert place.run("SELECT kind, version FROM lists ORDER BY kind") == [("prompt", 2), ("resource", 1)]


# --- since when tools are as they are ------------------------------------------------------------------------


def test_a_tool_that_changed_for_any_daemon_has_changed(store: Store) -> None:
    store.keep(Batch(at=1.0, servers=(server("a", since={"a": 30.0}),)))
    store.keep(Batch(at=2.0, servers=(server("a", since={"a": 3.0}, epoch=2),)))
    assert store.recall().servers[0].since == {"a": 30.0}
    changed = server(tool("git", "a", description="another"), since={"a": 7.0}, epoch=3)
    store.keep(Batch(at=3.0, servers=(changed,)))
    assert store.recall().servers[0].since == {"a": 7.0}


# -------------------------------------------------------------------------------------------------------------


def test_every_write_counts_and_stamps_its_rows(store: Store, place: Place) -> None:
    first = store.keep(Batch(at=1.0, sessions=(session("a", "git/a"),))).version
    second = store.keep(Batch(at=2.0, servers=(server("a"),), switched_off=frozenset({("git", "a")}))).version
    assert second == first + 1
    for table, version in (
        ("sessions", first),
        ("loaded_tools", first),
        ("servers", second),
        ("tools", second),
    ):
        assert place.run(f"SELECT version, writer FROM {table}") == [(version, "one")]
    assert place.run("SELECT version, writer, at FROM switches") == [(second, "one", 2.0)]


def test_a_batch_that_fails_leaves_nothing_behind(store: Store) -> None:
    store.keep(Batch(at=1.0, sessions=(session("key", "git/a"),)))

    def broken(_server: str, _tool: str, _hash: str) -> None:
        raise ZeroDivisionError

    batch = Batch(at=2.0, servers=(server("a"),), sessions=(session("new"),), judge=broken, judged=("git",))  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        store.keep(batch)
    assert store.recall().servers == ()
    assert store.session("new") is None
    store.keep(Batch(at=3.0, sessions=(session("new"),)))
    assert store.session("new") == session("new")


def test_text_that_a_database_cannot_keep_costs_a_letter_and_not_the_batch(store: Store) -> None:
    record = session(
        "key\0", "git/a", client="nul \0, half a pair \ud800", verdict=structs.replace(CHANGED, reason="\0")
    )
    store.keep(Batch(at=1.0, sessions=(record,), touched={"key\0": 99.0}))
    found = store.session("key\0")
    assert found is not None
    assert found.client == "nul \ufffd, half a pair ?"
    assert found.seen_at == pytest.approx(99.0)


def test_more_sessions_than_one_question_can_name(store: Store) -> None:
    records = tuple(session(f"key{number:04}", "git/a", seen_at=1.0) for number in range(1200))
    store.keep(Batch(at=1.0, sessions=records))
    assert store.sessions(5000) == records
    assert store.forget_sessions(2.0, most=9) == 1200


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    store.close()
    with failing(StoreCause.UNAVAILABLE, "it was closed"):
        store.recall()


def test_a_tool_is_judged_once_for_all_sessions(store: Store) -> None:
    store.keep(Batch(at=1.0, sessions=tuple(session(f"key{number}", "git/a", "git/b") for number in range(50))))
    asked: list[tuple[str, str, str]] = []

    def judge(server: str, tool: str, schema_hash: str) -> object:
        asked.append((server, tool, schema_hash))
        return CHANGED

    kept = store.keep(Batch(at=2.0, judge=judge, judged=("git",)))  # type: ignore[arg-type]
    assert sorted(asked) == [("git", "a", "hash of git/a"), ("git", "b", "hash of git/b")]
    assert kept.marked == {LoadedStatus.INVALID_CHANGED: 100}


def test_without_what_speaks_postgresql_it_is_said_what_to_install() -> None:
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from daemon.config.state_url import parse\n"
        "from daemon.state.store import Store\n"
        "Store.open(parse('postgresql://somewhere/mcpd'), writer='one')\n"
    )
    done = run_to_end([sys.executable, "-c", script])
    assert "mcpd-supervisor[postgres]" in done.stderr


def test_only_a_file_can_be_set_aside(postgres_place: Postgres) -> None:
    with pytest.raises(StoreFault, match="cannot rename a PostgreSQL database"):
        set_aside(postgres_place.url, 0.0)


# --- the stored events, on both databases --------------------------------------------------------------------


ENDED = Event(
    kind=EventKind.ENDED,
    at=100.0,
    server="git",
    instance="git#2",
    session="a\0key",
    run=3,
    text="killed 🙂",
    cause=Cause.KILLED,
    cause_data={"signal": "SIGKILL"},
    details={"stderr": ["FATAL\0"]},
    number=1,
    life="host/1/a",
)


def event(number: int, server: str = "git", *, at: float | None = None, **changed: object) -> Event:
    made: dict[str, object] = {"kind": EventKind.READY, "life": "host/1/a", **changed}
    return Event(at=float(number) if at is None else at, server=server, number=number, **made)  # type: ignore[arg-type]


def keep(store: Store, *events: Event) -> None:
    store.keep(Batch(at=1.0, events=events))


def found(store: Store, **query: object) -> list[int]:
    asked = EventQuery(**query)  # type: ignore[arg-type]
    return [each.number for each in store.within(partial(find_events, asked))]


def test_events_come_back_as_they_were(place: Place, opening: Opener) -> None:
    first = opening(place)
    keep(first, ENDED)
    first.close()

    [read] = opening(place, "two").within(partial(find_events, EventQuery()))

    assert read.session == "a\ufffdkey", "the one character that PostgreSQL does not take in a key"
    assert (read.text, read.cause, read.cause_data) == (ENDED.text, ENDED.cause, ENDED.cause_data)
    assert (read.details, read.at, read.run, read.instance) == (ENDED.details, 100.0, 3, "git#2")


def test_an_event_is_stored_once_however_often_it_is_written(store: Store) -> None:
    keep(store, event(1), event(2))
    keep(store, event(2, server="other"), event(3))
    assert found(store, server="git") == [1, 2, 3]


def test_events_are_found_by_all_that_they_are_asked_for_by(store: Store) -> None:
    keep(
        store,
        event(1),
        event(2, "time"),
        event(3, instance="git#2"),
        event(4, kind=EventKind.ENDED),
        event(5, "", session="#4"),
        event(6, life="other/2/b"),
    )
    assert found(store) == [1, 2, 3, 4, 5, 6]
    assert found(store, server="git") == [1, 3, 4, 6]
    assert found(store, server="git", instance="git#2") == [3]
    assert found(store, session="#4") == [5]
    assert found(store, kinds=frozenset({EventKind.ENDED})) == [4]
    assert found(store, since=4.0) == [4, 5, 6]
    assert found(store, until=3.0) == [1, 2, 3]
    assert found(store, seen={"host/1/a": 4}) == [5, 6]
    assert found(store, limit=2) == [5, 6]
    assert found(store, limit=2, oldest=True) == [1, 2]


def test_a_row_of_a_later_mcpd_is_left_out(store: Store) -> None:
    keep(store, event(1), event(2))
    later = "UPDATE events SET kind = 'of a later mcpd' WHERE number = 1"
    store.within(lambda transaction: transaction.change(later), writes=True)
    assert found(store) == [2]


def test_what_is_old_goes_and_of_each_server_what_is_too_much(store: Store) -> None:
    keep(
        store,
        *(event(number) for number in range(1, 9)),
        *(event(number, "time") for number in range(9, 11)),
        *(event(number, "", session="#4", kind=EventKind.SESSION_BEGAN) for number in range(11, 17)),
        *(event(number, "", kind=EventKind.SIGNAL) for number in range(17, 19)),
    )
    gone = store.within(lambda transaction: forget_events(3.0, transaction, most=4), writes=True)
    assert gone == 2 + 2 + 2
    assert found(store) == [5, 6, 7, 8, 9, 10, 13, 14, 15, 16, 17, 18]
    assert store.within(lambda transaction: forget_events(3.0, transaction, most=4), writes=True) == 0


def test_not_all_of_a_flood_are_deleted_at_once(store: Store) -> None:
    keep(store, *(event(number) for number in range(FORGOTTEN_EVENTS + 50)))
    forget = partial(forget_events, 1e9)
    assert store.within(forget, writes=True) == FORGOTTEN_EVENTS
    assert store.within(forget, writes=True) == 50


def test_the_life_before_is_known_by_its_socket_and_whether_it_stopped(store: Store) -> None:
    def began(number: int, life: str, socket: str = "/run/s", host: str = "here") -> Event:
        details = {"host": host, "socket": socket}
        return event(number, "", kind=EventKind.DAEMON_STARTED, life=life, details=details)

    ask = partial(last_life, "here", "/run/s")
    assert store.within(ask) is None
    keep(store, began(1, "a"), event(5, life="a"), began(6, "beside", "/run/other"))
    keep(store, began(6, "elsewhere", host="there"))
    assert store.within(ask) == LastLife(name="a", heard_at=5.0, in_order=False)
    keep(store, began(7, "b"), event(9, "", kind=EventKind.DAEMON_STOPPED, life="b"))
    assert store.within(ask) == LastLife(name="b", heard_at=9.0, in_order=True)


def test_who_was_away_at_the_end_of_a_life_is_known_by_the_newest_of_its_runs(store: Store) -> None:
    def ended(number: int, server: str, since: Any, life: str = "host/1/a") -> Event:
        return event(number, server, kind=EventKind.ENDED, details={"awaySince": since}, life=life)

    keep(
        store,
        *(ended(1, "git", 0.5), ended(2, "git", 0.5), event(3, "git", kind=EventKind.STARTED)),
        *(ended(4, "time", 4.0), event(5, "time", kind=EventKind.READY)),
        *(ended(6, "odd", "long ago"), ended(7, "gone", 7.0), event(8, "elsewhere")),
        ended(9, "elsewhere", 9.0, life="another"),
    )

    life = event(1).life
    asked = partial(away_since, ["git", "time", "odd", "elsewhere", "new"], life)
    assert store.within(asked) == {"git": 0.5}


def test_daemons_on_one_store_see_each_others_events(place: Place, opening: Opener) -> None:
    one, two = opening(place), opening(place, "two")
    keep(one, event(1, life="one"))
    keep(two, event(1, life="two", at=2.0))
    assert found(one) == found(two) == [1, 1]


def test_of_a_life_that_is_known_nothing_is_too_late(store: Store) -> None:
    keep(store, event(1), event(2), event(3, life="host/2/b"), event(4, life="host/2/b"))

    asked = {"seen": {"host/2/b": 3}, "oldest": True}

    assert found(store, fresh=2.0, **asked) == [2, 4]
    assert found(store, fresh=50.0, **asked) == [4]
    assert found(store, fresh=50.0, since=5.0, **asked) == []


def test_two_daemons_that_delete_what_is_too_much_at_once_delete_it_once(place: Place, opening: Opener) -> None:
    stores = [opening(place), opening(place, "two")]
    keep(stores[0], *(event(number) for number in range(1, 401)))
    with ThreadPoolExecutor() as threads:
        forget = partial(forget_events, 0.0, most=100)
        gone = list(threads.map(lambda store: store.within(forget, writes=True), stores))
    assert sorted(gone) == [0, 300]
    assert found(stores[0], limit=1000) == list(range(301, 401))


def test_changes_of_what_a_session_has_loaded_are_found_among_its_own_events(store: Store) -> None:
    def changed(number: int, *names: str) -> Event:
        return event(number, kind=EventKind.LISTS_CHANGED, details={"tools": {"went": list(names)}})

    keep(store, changed(1, "echo"), changed(2, "other"), event(3, session="maria"), changed(4, "echo"))
    asked: dict[str, object] = {"session": "maria", "loaded": {("git", "echo"): 2.0}}
    assert found(store, **asked) == [3, 4]
    assert found(store, **asked, limit=1) == [4]
    assert found(store, session="maria") == [3]


# --- counts by the hour in the store, on both databases ------------------------------------------------------


HOUR = 500_000
NOW = float(HOUR * SECONDS + 7)


def stored(store: Store, since: float) -> dict[tuple[int, str], int]:
    """What the store has."""
    return store.within(partial(read_hours, int(since) // SECONDS))


def test_daemons_add_to_the_same_hours(place: Place, opening: Opener) -> None:
    one, two = opening(place), opening(place, "two")
    one.keep(Batch(at=NOW, hours={(HOUR, "loads"): 2, (HOUR - 1, "loads"): 1}))
    two.keep(Batch(at=NOW, hours={(HOUR, "loads"): 3, (HOUR, "calls:git"): 4}))
    assert stored(one, NOW - SECONDS) == {(HOUR - 1, "loads"): 1, (HOUR, "loads"): 5, (HOUR, "calls:git"): 4}
    assert stored(two, NOW) == {(HOUR, "loads"): 5, (HOUR, "calls:git"): 4}


def test_hours_that_are_too_old_are_deleted_with_the_next_write(store: Store) -> None:
    store.keep(
        Batch(at=NOW, hours={(HOUR, "loads"): 1, (HOUR - KEPT, "loads"): 1, (HOUR - KEPT - 1, "loads"): 1})
    )
    assert stored(store, 0) == {(HOUR, "loads"): 1, (HOUR - KEPT, "loads"): 1}
