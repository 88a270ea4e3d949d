"""Sessions that are not on disk yet."""

import attrs
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from daemon import facts
from daemon.catalog.loaded import Loaded, SessionRecord, anonymous_key
from daemon.catalog.naming import NO_NAMES, Claims, Names, assign
from daemon.catalog.snapshot import Catalog, fold
from daemon.history.event import Event, EventKind
from daemon.history.journal import KEPT, History
from daemon.model import GivenName, Kind, Summary
from daemon.state.event_rows import SECONDS
from daemon.state.notes import (
    CROWD,
    EVENTS_AT_ONCE,
    MAX_BATCH,
    WAITING,
    EventNotes,
    HourlyCounts,
    SessionNotes,
    Totals,
)
from daemon.state.server_notes import NAME_BYTES, NAMES_AT_ONCE, ApprovalNotes, NameNotes, ServerNotes
from daemon.states import ServerState
from tests.unit.actors.recording import START, session
from tests.unit.catalog.samples import catalog_of, listed, servers, status
from tests.unit.config.reading import config_of
from tests.unit.state.samples import approval


def record(key: str, at: float = 0.0, client: str = "") -> SessionRecord:
    return SessionRecord(key=key, loaded=Loaded(), client=client, seen_at=at)


def partial(notes: SessionNotes) -> tuple[str, ...]:
    """Keys of what was begun without what is stored."""
    return tuple(key for key, each in notes.waiting.items() if each.partial)


def test_a_batch_is_bounded_and_what_waits_longest_comes_first() -> None:
    notes = SessionNotes()
    for number in range(MAX_BATCH + 1):
        notes.keep(record(str(number)))
    batch, _ = notes.next_batch()
    assert [each.key for each in batch] == [str(number) for number in range(MAX_BATCH)]
    notes.were_written(batch, {})
    assert tuple(notes.waiting) == (str(MAX_BATCH),)


def test_what_is_on_disk_makes_room_for_what_is_not() -> None:
    notes = SessionNotes(most=3)
    for key in "abc":
        notes.read(record(key))
    for key in "xyz":
        notes.keep(record(key))
    assert tuple(notes.waiting) == ("x", "y", "z")
    assert notes.dropped == 0
    notes.keep(record("w"))
    assert tuple(notes.waiting) == ("y", "z", "w")
    assert notes.dropped == 1
    for number in range(10):
        notes.touch(str(number), 1)
    assert len(notes.next_batch()[1]) == 3


def test_the_list_has_ours_in_place_of_the_stores_and_the_latest_first() -> None:
    notes = SessionNotes()
    notes.keep(record("a", at=5, client="ours"))
    merged = notes.merged([record("a", at=1), record("b", at=3), record("c", at=4)], 2)
    assert [(each.key, each.client) for each in merged] == [("a", "ours"), ("c", "")]
    notes.read(record("z", at=9))
    assert [each.key for each in notes.merged(None, 5)] == ["z", "a"]


def test_a_part_is_put_together_with_what_is_stored_before_it_counts() -> None:
    notes = SessionNotes()
    part = attrs.evolve(session("a", "write"), created_at=START + 9, partial=True)
    notes.keep(part)
    assert (partial(notes), notes.unwritten("a"), notes.known("a")) == (("a",), None, part)
    whole = notes.complete("a", session("a", "read"))
    assert whole is not None
    assert [tool for _server, tool in whole.loaded.tools] == ["read", "write"]
    assert (whole.created_at, whole.partial, partial(notes)) == (START, False, ())
    assert notes.next_batch() == ((whole,), {})
    # Whoever kept the part may not know of the whole yet, which is not written.
    notes.keep(part)
    assert notes.complete("a", session("a", "read")) == whole
    notes.keep(attrs.evolve(session("b", "write"), partial=True))
    assert notes.complete("b", None) == session("b", "write"), "of what nobody has stored, a part is the whole"


KEYS = st.sampled_from("abcd")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("keep"), KEYS),
            st.tuples(st.just("take"), KEYS),
            st.tuples(st.just("written"), KEYS),
            st.tuples(st.just("failed"), KEYS),
            st.tuples(st.just("touch"), KEYS),
        )
    )
)
def test_whatever_fails_in_between_the_disk_has_the_newest_in_the_end(steps: list[tuple[str, str]]) -> None:
    notes, disk, newest, at = SessionNotes(), dict[str, SessionRecord](), dict[str, SessionRecord](), 0.0
    batch = notes.next_batch()
    for step, key in [*steps, ("take", ""), ("written", "")]:
        at += 1
        if step == "keep":
            newest[key] = record(key, at, client=str(at))
            notes.keep(newest[key])
        elif step == "touch":
            notes.touch(key, at)
            if key in newest:
                newest[key] = attrs.evolve(newest[key], seen_at=at)
        elif step == "take":
            batch = notes.next_batch()
        elif step == "written":
            disk.update({each.key: each for each in batch[0]})
            disk.update({k: attrs.evolve(disk[k], seen_at=used) for k, used in batch[1].items() if k in disk})
            notes.were_written(*batch)
            batch = ((), {})
    assert disk == newest
    assert not notes.waiting


def test_what_was_counted_is_written_once_and_added_to_what_is_there() -> None:
    counted = {"loads": 0, "hits": 3}
    totals = Totals(lambda: counted)
    totals.read({"loads": 10, "gone": 4}, 5.0)
    assert totals.known == {"loads": 10, "hits": 3, "gone": 4}
    assert totals.news == {"hits": 3}
    totals.were_written({"hits": 3}, 99.0)
    assert (totals.news, totals.since) == ({}, 5.0)
    counted["loads"] = 2
    assert totals.news == {"loads": 2}
    assert totals.known == {"loads": 12, "hits": 3, "gone": 4}


def test_a_store_that_has_lost_everything_gets_all_that_is_known() -> None:
    counted = {"loads": 1}
    totals = Totals(lambda: counted)
    totals.read({"loads": 10, "gone": 4}, 5.0)
    totals.were_written(totals.news, 6.0)
    totals.start_over()
    assert totals.known == {"loads": 11}
    assert totals.news == {"loads": 11}
    totals.were_written(totals.news, 8.0)
    assert (totals.known, totals.news, totals.since) == ({"loads": 11}, {}, 5.0)


def noted(count: int) -> EventNotes:
    history = History(lambda: 1.0)
    for _ in range(count):
        history.note(Event(kind=EventKind.SIGNAL))
    return EventNotes(history)


def test_events_are_written_in_order_and_in_portions() -> None:
    notes = noted(EVENTS_AT_ONCE + 3)
    assert notes.waiting

    first = notes.next_batch()
    assert [event.number for event in first] == list(range(1, EVENTS_AT_ONCE + 1))
    assert notes.next_batch() == first, "until they were written"
    notes.were_written(first)
    rest = notes.next_batch()
    notes.were_written(rest)

    assert (len(rest), notes.waiting, notes.next_batch()) == (3, False, ())


def test_what_memory_has_no_room_for_is_counted_and_said() -> None:
    notes = noted(KEPT + 5)

    batch = notes.next_batch()

    assert (batch[0].number, notes.dropped) == (6, 5)
    newest = notes.history.newest.value
    assert newest is not None
    assert (newest.kind, newest.details) == (EventKind.LOST, {"count": 5})


def test_a_store_that_lost_everything_gets_what_memory_has() -> None:
    notes = noted(3)
    notes.were_written(notes.next_batch())

    notes.start_over()

    assert [event.number for event in notes.next_batch()] == [1, 2, 3]


def test_many_new_events_are_a_reason_to_expire_old_ones() -> None:
    notes = noted(CROWD)
    while notes.waiting:
        assert not notes.is_crowded
        notes.were_written(notes.next_batch())
    assert notes.is_crowded
    notes.were_expired()
    assert not notes.is_crowded


HOUR = 500_000
START_HOURS = HOUR * SECONDS + 7.0


class Clock:
    """A clock that is set by the test, and counters."""

    def __init__(self, **counted: int) -> None:
        self.now = START_HOURS
        self.counted = dict(counted)
        self.hours = HourlyCounts(lambda: self.counted, lambda: self.now)


def test_what_is_counted_belongs_to_the_hour_of_now() -> None:
    clock = Clock(loads=5)
    assert clock.hours.gather() == {}, "what was counted before belongs to no hour"
    clock.counted["loads"] = 7
    assert clock.hours.gather() == {(HOUR, "loads"): 2}
    clock.now += SECONDS
    clock.counted["loads"] = 8
    assert clock.hours.gather() == {(HOUR, "loads"): 2, (HOUR + 1, "loads"): 1}


def test_a_server_that_was_away_counts_from_zero() -> None:
    clock = Clock(**{"calls:git": 10})
    clock.counted = {}
    clock.hours.gather()
    clock.counted = {"calls:git": 3}
    assert clock.hours.gather() == {(HOUR, "calls:git"): 3}
    clock.counted = {"calls:git": 1}
    assert clock.hours.gather() == {(HOUR, "calls:git"): 4}


def test_recent_hours_that_a_store_has_lost_are_written_again_once() -> None:
    clock = Clock()
    clock.counted["loads"] = 1
    clock.hours.were_written(clock.hours.gather())
    assert clock.hours.gather() == {}
    clock.now += WAITING * SECONDS
    clock.counted["loads"] = 3
    clock.hours.were_written(clock.hours.gather())
    clock.counted["loads"] = 4
    clock.hours.start_over()
    assert clock.hours.gather() == {(HOUR + WAITING, "loads"): 3}
    clock.hours.were_written(clock.hours.gather())
    assert clock.hours.gather() == {}


def test_hours_that_wait_for_a_store_are_bounded() -> None:
    clock = Clock()
    for number in range(WAITING + 20):
        clock.now = START_HOURS + number * SECONDS
        clock.counted["loads"] = number + 1
        clock.hours.gather()
    assert len(clock.hours.gather()) == WAITING


def test_what_waits_is_read_with_what_is_stored() -> None:
    clock = Clock()
    clock.counted = {"loads": 2, "calls:git": 1}
    stored = {(HOUR, "loads"): 5, (HOUR - 1, "loads"): 4}
    assert clock.hours.joined(stored, HOUR - 1) == {
        "loads": [((HOUR - 1) * SECONDS, 4), (HOUR * SECONDS, 7)],
        "calls:git": [(HOUR * SECONDS, 1)],
    }
    assert clock.hours.joined({}, HOUR + 1) == {}


# --- what the store holds of servers, held against the catalog -----------------------------------------------


CONFIG = {"mcpServers": servers("a", "b")}


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
    catalog = fold(catalog, facts.Summarized(server="a", summary=Summary(text="It reads.")))
    assert written(notes, catalog) == ["a"]
    catalog = fold(catalog, attrs.evolve(listed("a", "read"), said=facts.SelfDescription(about="Reads.")))
    assert written(notes, catalog) == ["a"]
    catalog = fold(
        catalog, attrs.evolve(listed("a", "read", "write"), said=facts.SelfDescription(about="Reads."))
    )
    assert written(notes, catalog) == ["a"]
    catalog = fold(catalog, facts.Switched(off=frozenset({("a", "")})))
    assert written(notes, catalog) == ["a"]
    assert written(notes, catalog) == []


def test_tools_loaded_from_a_server_are_judged_again_once_one_is_switched_off() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    written(notes, catalog)
    catalog = fold(catalog, facts.Switched(off=frozenset({("a", "read")})))
    assert notes.difference(catalog).batch.judged == ("a",)


def test_another_daemons_list_is_not_answered_with_ours() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    ours = notes.difference(catalog).batch.servers[0]
    written(notes, catalog)
    tools = tuple((fold(catalog_of(CONFIG), listed("a", "write")).servers["a"].tools or {}).values())
    theirs = attrs.evolve(ours, epoch=2, lists={Kind.TOOL: tools})
    assert notes.heard(theirs)
    assert not notes.heard(theirs)
    fact = facts.ServerRecord(
        server="a", fingerprint=theirs.fingerprint, epoch=2, lists={Kind.TOOL: tools}, by_another=True
    )
    catalog = fold(catalog, fact)
    assert list(catalog.servers["a"].tools or ()) == ["read"]
    assert written(notes, catalog) == []
    catalog = fold(catalog, listed("a", "read", "more"))
    assert written(notes, catalog) == ["a"]


def test_the_record_of_another_configuration_stays_until_the_new_one_has_listed_tools() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    written(notes, catalog)
    other = {"mcpServers": {**servers("a", "b"), "a": {"command": "other"}}}
    catalog = fold(catalog, facts.Configured(config=config_of(other), now=1.0))
    before = notes.difference(catalog)
    assert [[tool.name for tool in each.tools or ()] for each in before.batch.servers] == [["read"]]
    notes.was_written(before, {})
    catalog = fold(catalog, listed("a", "write", incarnation=9))
    (record,) = notes.difference(catalog).batch.servers
    assert [tool.name for tool in record.tools or ()] == ["write"]
    assert record.fingerprint == catalog.servers["a"].fingerprint


def test_the_time_of_a_recalled_list_is_not_forgotten() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    held = attrs.evolve(notes.difference(catalog).batch.servers[0], refreshed_at=77.0)
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), held)
    notes.heard(held)
    assert written(notes, catalog) == []
    catalog = fold(catalog, facts.Switched(off=frozenset({("a", "")})))
    assert notes.difference(catalog).batch.servers[0].refreshed_at == 77.0


def test_words_said_here_and_words_in_the_store_are_joined() -> None:
    notes, catalog = ServerNotes(), catalog_of(CONFIG)
    catalog = fold(catalog, facts.Switched(off=frozenset({("a", ""), ("b", "x")})))
    written(notes, catalog)
    catalog = fold(catalog, facts.Switched(off=frozenset({("b", "x"), ("b", "y")})))
    stored = frozenset({("a", ""), ("b", "x"), ("b", "z")})
    assert notes.heard_switches(stored, stored, catalog) == {("b", "x"), ("b", "y"), ("b", "z")}


def test_when_the_store_begins_anew_everything_is_to_be_written() -> None:
    notes, catalog = ServerNotes(), fold(catalog_of(CONFIG), listed("a", "read"))
    catalog = fold(catalog, facts.Switched(off=frozenset({("b", "")})))
    written(notes, catalog)
    assert not notes.missing(["a", "b", "c"])
    assert notes.missing(["b"])
    notes.start_over()
    difference = notes.difference(catalog)
    assert {record.server for record in difference.batch.servers} >= {"a"}
    assert difference.batch.switched_off == {("b", "")}
    assert set(difference.evidence) == {"a", "b"}


def claims(server: str, *tools: str, pending: bool = False) -> Claims:
    return Claims(server=server, own=tools, pending=pending)


def assigned(*tools: str) -> dict[Kind, Names]:
    return {Kind.TOOL: assign(NO_NAMES[Kind.TOOL], [claims("a", *tools)])}


def written_name_notes(notes: NameNotes, names: dict[Kind, Names]) -> tuple[set[str], set[str]]:
    """Write what differs: the names that are given, and those that are gone."""
    given, gone = notes.difference(names)
    notes.were_written(given, gone)
    return {each.name for each in given}, {each.name for each in gone}


def test_a_name_whose_server_has_left_goes_and_is_given_anew() -> None:
    notes = NameNotes()
    old = GivenName(name="x", key=("gone", "x"), since=5.0)
    notes.heard([old], shared=False)
    assert written_name_notes(notes, NO_NAMES) == (set(), {"x"})
    notes.heard([old], shared=False)
    assert written_name_notes(notes, assigned("x")) == ({"x"}, {"x"})


def test_many_new_names_are_written_in_batches_old_meanings_first() -> None:
    notes, own = NameNotes(), [f"t{number}" for number in range(NAMES_AT_ONCE + 1)]
    notes.heard([GivenName(name=name, key=("gone", name)) for name in own], shared=False)
    names = assigned(*own)
    assert [tuple(map(len, written_name_notes(notes, names))) for _ in range(4)] == [
        (0, NAMES_AT_ONCE),
        (NAMES_AT_ONCE - 1, 1),
        (2, 0),
        (0, 0),
    ]


def test_names_that_change_while_a_batch_is_written_are_compared_again() -> None:
    notes, now = NameNotes(), assigned("y")
    being_written = notes.difference(assigned("x"))
    notes.difference(now)
    notes.were_written(*being_written)
    assert written_name_notes(notes, now) == ({"y"}, {"x"})


def test_a_uri_that_no_database_could_find_is_not_kept() -> None:
    long = ["mem://" + "a" * NAME_BYTES, "mem://" + "é" * (NAME_BYTES // 2)]
    uris = assign(NO_NAMES[Kind.RESOURCE], [claims("a", "mem://1", *long)])
    given, _ = NameNotes().difference({Kind.RESOURCE: uris})
    assert [each.name for each in given] == ["mem://1"]


def test_an_approval_is_written_once_and_counts_as_unwritten_until_then() -> None:
    notes, config = ServerNotes(), {"trust": "changes", **CONFIG}
    catalog = fold(catalog_of(config), listed("a", "read"))
    assert notes.difference(catalog).batch.approvals == (), "before the store was read, nothing is approved"
    catalog = fold(catalog, facts.Approved())
    difference = notes.difference(catalog)
    assert [each.name for each in difference.batch.approvals] == ["", "read"]
    servers_alone = attrs.evolve(difference, batch=msgspec.structs.replace(difference.batch, approvals=()))
    assert len(difference) == len(servers_alone) + 2
    notes.was_written(difference, {})
    assert not notes.difference(catalog).batch.approvals
    ours = difference.batch.approvals[1]
    again = msgspec.structs.replace(facts.Approved(), approvals=(msgspec.structs.replace(ours, raw=b"{}"),))
    catalog = fold(catalog, again)
    assert notes.difference(catalog).batch.approvals == again.approvals
    notes.start_over()
    assert notes.difference(catalog).batch.approvals == (*difference.batch.approvals, *again.approvals)


def test_what_the_store_holds_is_not_written_but_what_it_has_lost_is() -> None:
    notes, catalog = (
        ServerNotes(),
        fold(catalog_of(CONFIG), facts.Approved(approvals=(approval("read"), approval("log")))),
    )
    notes.heard_approvals([approval("read")], whole=True)
    notes.heard_approvals([approval("log")], whole=False)
    assert not notes.difference(catalog).batch.approvals
    notes.heard_approvals([approval("log")], whole=True)
    assert notes.difference(catalog).batch.approvals == (approval("read"),)


def test_many_new_approvals_are_written_in_batches_and_that_of_the_list_first() -> None:
    notes = ApprovalNotes()
    names = ("", *(f"t{number}" for number in range(NAMES_AT_ONCE)))
    known = {"id": {(Kind.TOOL, name): (approval(name),) for name in names}}
    sizes = []
    for _ in range(3):
        new = notes.difference(known)
        notes.were_written(new)
        sizes.append([each.name for each in (*new[:1], *new[-1:])])
    assert sizes == [["", f"t{NAMES_AT_ONCE - 2}"], [f"t{NAMES_AT_ONCE - 1}"] * 2, []]


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


def test_idle_ones_are_forgotten_but_live_ones_and_those_used_since() -> None:
    notes = SessionNotes()
    for key in ("idle", "live", "used"):
        notes.read(record(key, at=1))
    notes.keep(record("unwritten", at=1))
    notes.touch("used", 10)
    notes.forget(5, {"live"}, anonymous=5)
    assert [key for key in ("idle", "live", "used", "unwritten") if notes.known(key)] == ["live", "used"]
    notes.read(record(anonymous_key("a" * 32) or "", at=8))
    notes.forget(1, (), anonymous=9)
    assert {each.key for each in notes.merged(None, 9)} == {"live", "used"}, "unnamed ones sooner"


def test_what_another_daemon_loaded_joins_what_was_loaded_here() -> None:
    notes = SessionNotes()
    theirs = session("key", "theirs")
    assert notes.joined(theirs) == theirs
    assert not notes.waiting
    notes.keep(session("key", "ours"))
    both = notes.joined(theirs)
    assert set(both.loaded.tools) == {("a", "theirs"), ("a", "ours")}
    assert notes.unwritten("key") == both
