"""A request of a peer: answered once, whoever ends it."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from daemon.wire.envelope import Buffer
from daemon.wire.requests import PeerRequest


class Noted:
    """A way back that notes what went over it."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def answer(self, result: Buffer) -> None:
        self.said.append(("result", bytes(result)))

    def refuse(self, code: int, message: str, data: object = None) -> None:
        self.said.append(("refused", code, message, data))

    def refuse_as(self, error: Buffer) -> None:
        self.said.append(("error", bytes(error)))

    def report(self, params: dict[str, Raw]) -> None:
        self.said.append(("progress", params))


def made() -> tuple[PeerRequest, Noted, list[str]]:
    """A request, what went back, and why it was withdrawn."""
    back, withdrawn = Noted(), list[str]()
    request = PeerRequest("roots/list", Raw(b'{"secret":1}'), back)
    request.on_withdrawn = withdrawn.append
    return request, back, withdrawn


def test_what_is_known_without_a_client_is_answered_in_place_of_a_refusal_of_ours() -> None:
    ends: list[tuple[Callable[[PeerRequest], None], list[Any]]] = [
        (lambda request: request.refuse(-1, "nobody has roots"), [("result", b'{"roots":[]}')]),
        (lambda request: request.refuse_as(b'{"code":1}'), [("error", b'{"code":1}')]),
        (lambda request: request.answer(b"{}"), [("result", b"{}")]),
    ]
    for refuse, said in ends:
        request, back, _withdrawn = made()
        request.otherwise = b'{"roots":[]}'
        refuse(request)
        request.refuse(-1, "a second time")
        assert back.said == said


ENDS: dict[str, tuple[Callable[[PeerRequest], None], list[Any], list[str]]] = {
    "answer": (lambda request: request.answer(b"{}"), [("result", b"{}")], []),
    "refuse": (lambda request: request.refuse(-1, "no"), [("refused", -1, "no", None)], []),
    "refuse_as": (lambda request: request.refuse_as(b'{"code":1}'), [("error", b'{"code":1}')], []),
    "withdraw": (lambda request: request.withdraw("why"), [], ["why"]),
    "end": (lambda request: request.end("why"), [("refused", -32600, "why", None)], ["why"]),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("late", ENDS)
def test_it_ends_once(end: str, late: str) -> None:
    request, back, withdrawn = made()
    assert request.is_open
    act, said, why = ENDS[end]
    act(request)
    ENDS[late][0](request)
    request.report({})
    assert (back.said, withdrawn, request.is_open) == (said, why, False)


def test_progress_goes_back_while_it_is_open() -> None:
    request, back, _ = made()
    request.report({"progress": Raw(b"1")})
    assert back.said == [("progress", {"progress": Raw(b"1")})]


def test_one_that_nobody_was_going_to_answer_can_be_withdrawn() -> None:
    back = Noted()
    for act in (PeerRequest.withdraw, PeerRequest.end):
        act(PeerRequest("m", None, back), "why")
    assert back.said == [("refused", -32600, "why", None)]
