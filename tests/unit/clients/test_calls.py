"""Calls of one client in flight: each is answered, counted and forgotten once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import Raw

from daemon.clients.calls import IS_ERROR, MAX_SEARCHED, is_error
from daemon.errors import UpstreamLost
from tests.unit.clients.asking import asks, called, greeted, on_full_surface

if TYPE_CHECKING:
    import trio


async def test_a_call_is_answered_counted_and_forgotten(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    guest = await greeted(stage, nursery)
    await called(stage, guest.client)
    assert guest.session.in_flight == 1
    stage.answer(stage.alpha.sent[0])
    stage.answer(stage.alpha.sent[0])
    assert (await guest.client.get())["result"] == {"content": []}
    assert guest.session.in_flight == 0
    assert [(label, outcome) for _, label, _, outcome in stage.log.notes] == [("alpha/echo", "ok")]
    assert stage.alpha.recorded[0][1] is True
    assert (await guest.client.request("ping", request_id=8))["id"] == 8


async def test_a_call_that_is_cancelled_is_given_up_at_its_server_and_not_answered(
    nursery: trio.Nursery,
) -> None:
    stage = on_full_surface()
    guest = await greeted(stage, nursery)
    await called(stage, guest.client)
    await guest.client.tell("notifications/cancelled", {"requestId": 7})
    await stage.alpha.wait_cancelled()
    stage.answer(stage.alpha.sent[0])
    assert (await guest.client.request("ping", request_id=8))["id"] == 8


async def test_what_a_server_asks_is_withdrawn_on_the_stream_of_its_call(nursery: trio.Nursery) -> None:
    """Its call is forgotten only afterwards: over HTTP, what belongs to no call goes another way."""
    stage = on_full_surface()
    guest = await greeted(stage, nursery)
    await called(stage, guest.client)
    asked = asks(stage, "roots/list")
    uid = (await guest.client.get())["id"]
    calls, still_open = guest.session._connection.calls, list[bool]()

    def given_up() -> None:
        still_open.append(b"7" in calls.open)
        asked.request.end("given up")

    stage.alpha.on_cancel = given_up
    await guest.client.tell("notifications/cancelled", {"requestId": 7})
    assert (await guest.client.get())["params"] == {"requestId": uid, "reason": "given up"}
    assert still_open == [True]
    assert not calls.open


async def test_at_a_stop_every_call_is_answered(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    guest = await greeted(stage, nursery)
    for request_id in (7, 8):
        await called(stage, guest.client, request_id)
    guest.session.lose_calls(UpstreamLost("mcpd is stopping"))
    answers = [await guest.client.get() for _ in range(2)]
    assert sorted(answer["id"] for answer in answers) == [7, 8]
    assert all(answer["result"]["isError"] for answer in answers)


@pytest.mark.parametrize("holds", [True, False])
async def test_a_bridge_is_given_back_what_no_server_was_sent(nursery: trio.Nursery, *, holds: bool) -> None:
    stage = on_full_surface()
    guest = await stage.connect(nursery)
    await guest.client.tell("mcpd/hello", {"holds": holds})
    for request_id in (7, "eight"):
        await called(stage, guest.client, request_id)
    guest.session.calls.open[b'"eight"'].in_line = True
    guest.session.give_back()
    assert list(guest.session.calls.open) == ([b"7"] if holds else [b"7", b'"eight"'])
    if holds:
        said = await guest.client.get()
        assert (said["method"], said["params"]) == ("mcpd/unsent", {"ids": ["eight"]})


async def test_a_tool_that_reports_failure_is_logged_as_one(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    guest = await greeted(stage, nursery)
    await called(stage, guest.client)
    stage.answer(stage.alpha.sent[0], b'{"content":[],"isError":true}')
    await guest.client.get()
    assert stage.log.notes[-1][3] == IS_ERROR


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        (b'{"content":[],"isError":true}', True),
        (b'{"isError" : true, "content":[{"type":"text","text":"%b"}]}' % (b"x" * 5000), True),
        (b'{"content":[{"type":"text","text":"%b"}],"isError":true}' % (b"x" * 5000), True),
        (
            b'{"content":"%b","isError":true,"structuredContent":{"x":"%b"}}' % (b"x" * 5000, b"x" * 5000),
            True,
        ),
        (b'{"content":[],"isError":false}', False),
        (b'{"content":[]}', False),
        (rb'{"content":[{"type":"text","text":"{\"isError\":true}"}]}', False),
        (b'{"content":[],"structuredContent":{"isError":true},"isError":false}', False),
        (b'{"content":[],"structuredContent":{"isError":true}}', False),
        (b'{"isError":"true"}', False),
        (b'{"isError":true,"isError":7}', False),
        (b'["isError":true]', False),
        (b'{"isError":true,"content":"%b"}' % (b"x" * MAX_SEARCHED), False),
        (b'{"content":[{"isError":true}]}', False),
        (b'{"isError":true', False),
    ],
)
def test_a_tool_s_own_word_that_it_failed_is_seen_and_no_quotation(result: bytes, failed: bool) -> None:
    assert is_error(result) is failed
    assert is_error(Raw(result)) is failed
