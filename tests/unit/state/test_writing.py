"""Two daemons on one database: epochs that never fall, and nothing that one of them loaded is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from daemon.state.sql import Batch
from tests.unit.state.samples import CHANGED, server, session, summed, with_lists, with_tools

if TYPE_CHECKING:
    from tests.unit.state.places import Opener, Place


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
