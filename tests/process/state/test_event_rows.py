"""The stored events, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from daemon.causes import Cause
from daemon.history.event import Event, EventKind
from daemon.history.journal import EventQuery
from daemon.state.event_rows import (
    FORGOTTEN_EVENTS,
    LastLife,
    away_since,
    find_events,
    forget_events,
    last_life,
)
from daemon.state.sql import Batch

if TYPE_CHECKING:
    from daemon.history.event import Detail
    from daemon.state.store import Store
    from tests.unit.state.places import Opener, Place

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
    def ended(number: int, server: str, since: Detail, life: str = "host/1/a") -> Event:
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
