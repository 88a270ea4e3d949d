"""Who is given another profile: known sessions and profiles only, all connections of a key, also later ones."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from daemon.catalog.snapshot import begin
from daemon.clients.moving import MAX_MOVED, Moves
from daemon.errors import InvalidArguments
from daemon.watch import Watch
from tests.config.reading import config_of

PROFILES: dict[str, Any] = {"default": {}, "review": {"surface": "search"}}


@attrs.define
class Connection:
    """One that notes where it was moved."""

    number: int
    key: str | None = None
    profiles: list[str] = attrs.field(factory=list)

    def move(self, profile: str) -> None:
        self.profiles.append(profile)


def moves(*live: Connection, **known: int) -> Moves:
    """Sessions by key with the number of their connections, and connections without a key."""

    async def report(key: str) -> dict[str, object]:
        if key.startswith("#"):
            return {"key": None, "number": int(key[1:]), "connections": 1}
        if key not in known:
            raise InvalidArguments(f"no session is named {key!r}")
        return {"key": key, "number": None, "connections": known[key]}

    catalog = Watch(begin(config_of({"mcpServers": {"s": {"command": "x"}}, "profiles": PROFILES}), 0.0))
    return Moves(catalog, lambda: live, report)


async def test_all_connections_of_a_key_are_moved_and_later_ones_find_out() -> None:
    live = Connection(1, "a"), Connection(2, "b"), Connection(3, "a"), Connection(4)
    moved = moves(*live, a=2, b=1)
    assert await moved.move("a", "review") == {"key": "a", "number": None, "profile": "review", "moved": 2}
    assert [each.profiles for each in live] == [["review"], [], ["review"], []]
    assert (moved.of("a"), moved.of("b"), moved.of(None)) == ("review", None, None)
    await moved.move("a", "default")
    assert moved.of("a") == "default"


async def test_a_connection_without_a_key_is_moved_alone() -> None:
    live = Connection(1), Connection(2)
    await moves(*live).move("#2", "review")
    assert [each.profiles for each in live] == [[], ["review"]]


async def test_a_session_that_nobody_uses_is_moved_for_who_comes_next() -> None:
    moved = moves(a=0)
    assert (await moved.move("a", "review"))["moved"] == 0
    assert moved.of("a") == "review"


@pytest.mark.parametrize(
    ("key", "profile", "reason"),
    [
        ("a", "reviw", "no profile is named 'reviw'. Did you mean review\\? There are: default, review."),
        ("gone", "review", "no session is named 'gone'"),
        ("shared", "review", "session 'shared' is named by single requests only"),
    ],
)
async def test_what_does_not_exist_moves_nobody(key: str, profile: str, reason: str) -> None:
    live = Connection(1, "a")
    moved = moves(live, a=1, shared=1)
    with pytest.raises(InvalidArguments, match=reason):
        await moved.move(key, profile)
    assert (live.profiles, moved.of(key)) == ([], None)


async def test_no_more_moves_are_remembered_than_anybody_makes() -> None:
    keys = [f"k{number}" for number in range(MAX_MOVED + 1)]
    moved = moves(**dict.fromkeys(keys, 0))
    for key in keys:
        await moved.move(key, "review")
    assert (moved.of(keys[0]), moved.of(keys[1]), moved.of(keys[-1])) == (None, "review", "review")
