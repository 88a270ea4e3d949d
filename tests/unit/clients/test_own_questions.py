"""Questions that are put to a client together, and their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from msgspec import Raw

from daemon.clients.asking import ELICIT, Questions

if TYPE_CHECKING:
    from daemon.clients.calls import ClientCall
    from daemon.wire.requests import PeerRequest

SAID = b'{"action":"accept"}'


class Call:
    """A call whose client is asked: the requests that are put to it."""

    def __init__(self) -> None:
        self.requests: list[PeerRequest] = []
        self.request, self.id, self.upstream = self, b"1", None
        self.calls: Any = self
        self.server_requests: Any = self

    def ask(self, request: PeerRequest, request_id: bytes) -> None:
        assert request_id == b"1"
        self.requests.append(request)


def put(asked: Questions, call: Call, *keys: str) -> None:
    for key in keys:
        asked.put(cast("ClientCall", call), key, ELICIT, Raw(b"{}"), "alpha")


async def test_all_answers_are_kept_as_they_are() -> None:
    call = Call()
    with Questions(2) as asked:
        put(asked, call, "a", "b")
        call.requests[1].answer(memoryview(SAID))
        assert not asked.over.is_set()
        call.requests[0].answer(b"{}")
        await asked.wait(trio.current_time())
    assert asked.over.is_set()
    assert asked.answers == {"a": Raw(b"{}"), "b": Raw(SAID)}
    assert asked.refused is None


@pytest.mark.parametrize("as_error", [False, True])
async def test_the_first_refusal_ends_all_and_nothing_more_is_put(as_error: bool) -> None:
    call, taken_back = Call(), list[str]()
    with Questions(3) as asked:
        put(asked, call, "a", "b")
        call.requests[0].on_withdrawn = taken_back.append
        if as_error:
            call.requests[1].refuse_as(b'{"code":-1,"message":"never"}')
        else:
            call.requests[1].refuse(-1, "never")
        put(asked, call, "c")
        await asked.wait(trio.current_time() + 3600)
    assert asked.refused == (ELICIT, "never (-1)")
    assert len(call.requests) == 2
    assert taken_back == ["the call has ended"]


async def test_questions_without_an_answer_in_time_are_taken_back_and_are_not_refused() -> None:
    call = Call()
    with Questions() as asked:
        put(asked, call, "a")
        await asked.wait(trio.current_time())
        assert not asked.over.is_set()
    assert not call.requests[0].is_open
    assert (asked.answers, asked.refused) == ({}, None)
