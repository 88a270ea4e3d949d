"""Who is given another profile: known sessions and profiles only, all connections of a key, also later ones."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from daemon.catalog.loaded import Loaded, SessionRecord
from daemon.errors import InvalidArguments
from daemon.operators.session_changes import MAX_MOVED, MoveParams, move
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import SESSION, FakeArchive, FakeSession, clients_of, operator_context

PROFILES: dict[str, Any] = {"default": {}, "review": {"surface": "search"}}


def connection(number: int, key: str | None = None) -> FakeSession:
    return FakeSession(attrs.evolve(SESSION, number=number, key=key))


class Daemon:
    """Connections, and sessions in use that they do not name for themselves."""

    def __init__(self, *live: FakeSession) -> None:
        self.moves: dict[str, str] = {}
        kept, shared = (SessionRecord(key=key, loaded=Loaded()) for key in ("kept", "shared"))
        self.context = operator_context(
            Stage(profiles=PROFILES),
            archive=FakeArchive([kept]),
            clients=clients_of(*live, in_use=[(shared, 1)], moves=self.moves),
        )

    async def move(self, key: str, profile: str) -> dict[str, object]:
        return await move(self.context, MoveParams(key, profile))


async def test_all_connections_of_a_key_are_moved_and_later_ones_find_out() -> None:
    live = connection(1, "a"), connection(2, "b"), connection(3, "a"), connection(4)
    daemon = Daemon(*live)
    assert await daemon.move("a", "review") == {"key": "a", "number": None, "profile": "review", "moved": 2}
    assert [each.profiles for each in live] == [["review"], [], ["review"], []]
    assert (daemon.moves.get("a"), daemon.moves.get("b")) == ("review", None)


async def test_a_connection_without_a_key_is_moved_alone() -> None:
    live = connection(1), connection(2)
    await Daemon(*live).move("#2", "review")
    assert [each.profiles for each in live] == [[], ["review"]]


async def test_a_session_that_nobody_uses_is_moved_for_who_comes_next() -> None:
    daemon = Daemon()
    assert (await daemon.move("kept", "review"))["moved"] == 0
    assert daemon.moves.get("kept") == "review"


async def test_no_more_moves_are_remembered_than_anybody_makes_and_the_last_of_a_session_counts() -> None:
    daemon = Daemon()
    daemon.moves |= {f"k{number}": "default" for number in range(MAX_MOVED)}
    for profile in ("default", "review"):
        await daemon.move("kept", profile)
    assert len(daemon.moves) == MAX_MOVED
    assert [daemon.moves.get(key) for key in ("k0", "k1", "kept")] == [None, "default", "review"]


@pytest.mark.parametrize(
    ("key", "profile", "reason"),
    [
        ("a", "reviw", "no profile is named 'reviw'. Did you mean review\\? There are: default, review."),
        ("gone", "review", "no session is named 'gone'"),
        ("shared", "review", "session 'shared' is named by single requests only"),
    ],
)
async def test_what_does_not_exist_moves_nobody(key: str, profile: str, reason: str) -> None:
    live = connection(1, "a")
    daemon = Daemon(live)
    with pytest.raises(InvalidArguments, match=reason):
        await daemon.move(key, profile)
    assert (live.profiles, daemon.moves.get(key)) == ([], None)
