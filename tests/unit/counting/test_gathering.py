"""Events that come by the thousand."""

import pytest
import trio
import trio.testing

from daemon.counting.gathering import GATHER_SECONDS, MAX_SORTS, Gathering
from daemon.history.event import Event, EventKind

pytestmark = pytest.mark.usefixtures("autojump_clock")


def refusal(door: str = "clients", text: str = "") -> Event:
    return Event(kind=EventKind.REFUSED, text=text, details={"door": door, "reason": "user"})


async def test_the_first_is_noted_at_once_and_the_rest_by_the_minute(nursery: trio.Nursery) -> None:
    noted = list[Event]()
    gathering = Gathering(noted.append)
    nursery.start_soon(gathering.run)

    for number in range(1000):
        gathering.add(refusal(text=f"pid {number}"))
    assert [(event.text, event.details["count"]) for event in noted] == [("pid 0", 1)]

    await trio.sleep(GATHER_SECONDS + 1)
    assert [(event.text, event.details["count"]) for event in noted] == [("pid 0", 1), ("pid 999", 999)]


async def test_a_flood_that_goes_on_is_one_event_a_minute(nursery: trio.Nursery) -> None:
    noted = list[Event]()
    gathering = Gathering(noted.append)
    nursery.start_soon(gathering.run)

    for _ in range(10 * 60):
        gathering.add(refusal())
        await trio.sleep(1)

    assert 10 <= len(noted) <= 12
    assert sum(int(str(event.details["count"])) for event in noted) >= 540


async def test_doors_and_hosts_are_told_apart_and_bounded_in_number() -> None:
    noted = list[Event]()
    gathering = Gathering(noted.append)

    for number in range(2 * MAX_SORTS):
        gathering.add(refusal(door=str(number)))

    assert len(noted) == MAX_SORTS + 1
    gathering.note_counts()
    noted.clear()
    for host in ("a", "b", "a"):
        details = {"host": host, "reason": "not-allowed"}
        gathering.add(Event(kind=EventKind.HOST_REFUSED, server="s", details=details))
    assert [event.details["host"] for event in noted] == ["a", "b"]


async def test_a_stop_notes_what_was_gathered() -> None:
    noted = list[Event]()
    gathering = Gathering(noted.append)
    for _ in range(3):
        gathering.add(refusal())
    gathering.note_counts()

    assert [event.details["count"] for event in noted] == [1, 2]
