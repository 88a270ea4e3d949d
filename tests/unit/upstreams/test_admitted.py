"""An admitted call: what its exchange is told, and that its place is free afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.errors import CallError, RequestTooLarge, UpstreamLost
from daemon.upstreams.call_admission import Admitted, SizeLimited
from tests.unit.clients.asking import question
from tests.unit.upstreams.test_admission import Caller

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.wire.requests import PeerRequest


@attrs.define(eq=False)
class Places:
    """Places that note what they are told."""

    server: str = "s"
    output_bytes: int | None = 4
    asked: dict[PeerRequest, set[int]] = attrs.field(factory=dict)
    told: list[str] = attrs.field(factory=list)

    def ends(self, ticket: int) -> None:
        self.told.append(f"ends {ticket}")

    def done(self, ticket: int) -> None:
        self.told.append(f"done {ticket}")


def _places(**more: Any) -> Any:
    return Places(**more)


LOST = UpstreamLost("gone")


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda admitted: admitted.answered(b"{}"), ["done 1"]),
        (lambda admitted: admitted.refused(b"{}"), ["ends 1", "done 1"]),
        (lambda admitted: admitted.lost(LOST), ["ends 1", "done 1"]),
        (lambda admitted: admitted.was_not_sent(LOST), []),
    ],
)
def test_each_end_is_passed_on_and_frees_the_place(end: Callable[[Admitted], None], told: list[str]) -> None:
    places: Any = Places()
    caller = Caller()
    end(Admitted(places, 1, caller))
    assert places.told == told
    assert len(caller.ended) == 1


def test_with_the_answer_ends_what_was_asked_for_the_call() -> None:
    places: Any = Places()
    places.asked[question("roots/list").request] = {1}
    Admitted(places, 1, Caller()).answered(b"{}")
    assert places.told == ["ends 1", "done 1"]


def test_what_comes_before_the_end_is_passed_on() -> None:
    caller = Caller()
    admitted = Admitted(_places(), 1, caller)
    admitted.progressed({})
    asked = question("roots/list")
    admitted.asked(asked.request)
    assert caller.progress == 1
    assert asked.back.said == [("refused", -32600, "nobody is here", None)]
    assert admitted.asker is caller


@pytest.mark.parametrize("kind", ["answered", "refused"])
@pytest.mark.parametrize(("size", "limit", "fits"), [(4, 4, True), (5, 4, False), (5, None, True)])
def test_an_answer_over_the_limit_is_none(kind: str, size: int, limit: int | None, fits: bool) -> None:
    caller, answer = Caller(), b"x" * size
    getattr(SizeLimited(_places(output_bytes=limit), 1, caller), kind)(answer)
    (ended,) = caller.ended
    if fits:
        assert ended == answer
    else:
        assert isinstance(ended, RequestTooLarge)
        assert isinstance(ended, CallError)
        assert ended.details == {"server": "s", "bytes": size, "limit": limit}
