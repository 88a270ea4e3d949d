"""What operators are given of a server's stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from daemon.config.redaction import Redactors
from daemon.counting.measures import STDERR_LINES, StderrTail
from daemon.history.event import Event, EventKind
from daemon.history.journal import History
from tests.unit.operators.stage import OperatorStage
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fakes_upstream import Client


class Chatty(OperatorStage):
    """A daemon whose servers have written on their stderr."""

    def write(self, *texts: str) -> None:
        for text in texts:
            self.alpha.stderr.add(text)

    async def connect(self, nursery: trio.Nursery, **changed: Any) -> Client:
        return await super().connect(nursery, redact=Redactors(["hunter2"]), **changed)


def numbered(page: dict[str, Any]) -> list[tuple[int, str]]:
    return [(line["n"], line["text"]) for line in page["lines"]]


async def test_logs_are_a_servers_lines_with_their_numbers_and_without_secrets(nursery: trio.Nursery) -> None:
    chatty = Chatty()
    chatty.write("one", "password hunter2", "\x1b[2Jthree")
    client = await chatty.connect(nursery)
    page = (await client.request("logs", {"server": "alpha"}))["result"]
    assert numbered(page) == [(1, "one"), (2, "password [redacted]"), (3, "\x1b[2Jthree")]
    assert (page["server"], page["type"], page["next"], page["dropped"]) == ("alpha", "stdio", 3, 0)
    page = (await client.request("logs", {"server": "alpha", "last": 1}))["result"]
    assert numbered(page) == [(3, "\x1b[2Jthree")]


async def test_logs_go_on_after_a_line_and_count_what_was_missed(nursery: trio.Nursery) -> None:
    chatty = Chatty()
    chatty.write("one", "two")
    client = await chatty.connect(nursery)
    seen = (await client.request("logs", {"server": "alpha"}))["result"]
    following = {"server": "alpha", "after": seen["next"], "source": seen["source"]}
    assert (await client.request("logs", following))["result"]["lines"] == []
    chatty.write("three")
    later = (await client.request("logs", following))["result"]
    assert (numbered(later), later["dropped"]) == ([(3, "three")], 0)
    chatty.write(*map(str, range(STDERR_LINES + 5)))
    flood = (await client.request("logs", {"server": "alpha", "after": 3, "source": seen["source"]}))["result"]
    assert (len(flood["lines"]), flood["dropped"]) == (STDERR_LINES, 5)


async def test_numbers_of_another_life_are_not_counted_from(nursery: trio.Nursery) -> None:
    chatty = Chatty()
    chatty.write(*"abc")
    client = await chatty.connect(nursery)
    seen = (await client.request("logs", {"server": "alpha"}))["result"]
    chatty.alpha.stderr = StderrTail()
    chatty.write("new")
    later = (await client.request("logs", {"server": "alpha", "after": 3, "source": seen["source"]}))["result"]
    assert (numbered(later), later["dropped"]) == ([(1, "new")], 0)
    assert later["source"] != seen["source"]


async def test_logs_without_a_server_count_the_lines_of_each(nursery: trio.Nursery) -> None:
    chatty = Chatty()
    chatty.write("one", "two")
    client = await chatty.connect(nursery)
    assert (await client.request("logs"))["result"] == {
        "servers": {"alpha": {"lines": 2}, "beta": {"lines": 0}}
    }


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"server": "alfa"}, "Did you mean alpha?"),
        ({"server": "alpha", "after": -1}, ">= 0"),
        ({"server": "alpha", "last": 0}, ">= 1"),
        ({"server": 5}, "Expected `str | null`"),
    ],
)
async def test_logs_that_cannot_be_given_are_refused(
    nursery: trio.Nursery, params: dict[str, Any], said: str
) -> None:
    client = await Chatty().connect(nursery)
    assert said in (await client.request("logs", params))["error"]["message"]


async def test_who_waits_is_answered_with_the_next_line_and_with_what_happens(
    nursery: trio.Nursery,
) -> None:
    chatty, history = Chatty(), History(lambda: 100.0)
    chatty.write("one")
    client = await chatty.connect(nursery, history=history)
    seen = (await client.request("logs", {"server": "alpha", "events": True}))["result"]
    answers: list[dict[str, Any]] = []

    async def follow() -> None:
        nonlocal seen
        asked = {"after": seen["next"], "source": seen["source"], "eventsAfter": seen["eventsNext"]}
        wanted = {"server": "alpha", "events": True, "wait": 25}
        seen = (await client.request("logs", {**wanted, **asked}))["result"]
        answers.append(seen)

    happenings: tuple[Callable[[], object], ...] = (
        lambda: chatty.write("two"),
        lambda: history.note(Event(kind=EventKind.READY, server="alpha")),
    )
    for happens in happenings:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        history.note(Event(kind=EventKind.READY, server="beta"))
        await trio.testing.wait_all_tasks_blocked()
        waited = len(answers)
        happens()
        await until(lambda: len(answers) > waited)  # noqa: B023

    assert [numbered(answer) for answer in answers] == [[(2, "two")], []]
    assert [[event["server"] for event in answer["events"]] for answer in answers] == [[], ["alpha"]]


async def test_who_has_waited_in_vain_is_told_that_there_is_nothing(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    chatty = Chatty()
    client = await chatty.connect(nursery)
    began = trio.current_time()
    answer = (await client.request("logs", {"server": "alpha", "wait": 25}))["result"]
    assert (answer["lines"], trio.current_time() - began) == ([], 25)
