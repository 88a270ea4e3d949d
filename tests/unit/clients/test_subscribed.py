"""Subscriptions are counted per server and URI; an update reaches exactly its subscribers, as each named it."""

from __future__ import annotations

import pytest

from daemon.clients.subscribers import MAX_FOLLOWED, MAX_PARAMS, MAX_URI, Following, ResourceSubscriptions
from daemon.errors import Overloaded
from daemon.wire.requests import RemoteError
from tests.unit.clients.members import TestMember, raw

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Scene:
    """Subscriptions, and the servers of which other URIs were wished."""

    def __init__(self) -> None:
        self.changed: list[str] = []
        self.all = ResourceSubscriptions(self.changed.append)

    def follow(self, told: TestMember, own: str, uri: str = "", listen: bytes | None = None) -> Following:
        following = Following(told, "alpha", "alpha", own, uri or own, listen)
        self.all.begin(following)
        return following


def test_a_server_is_asked_for_a_uri_once_and_until_the_last_subscriber_has_gone() -> None:
    scene, one, two = Scene(), TestMember(), TestMember()
    first = scene.follow(one, "a:x")
    scene.follow(one, "a:x")
    scene.follow(two, "a:x", "mcpd://alpha/a%3Ax")
    assert (set(scene.all.wished("alpha")), scene.changed) == ({"a:x"}, ["alpha"])
    scene.all.end(first)
    scene.all.end(first)
    assert (set(scene.all.wished("alpha")), scene.changed) == ({"a:x"}, ["alpha"])
    scene.all.leave(two)
    assert (set(scene.all.wished("alpha")), scene.changed) == (set[str](), ["alpha"] * 2)


def test_an_update_reaches_its_subscribers_under_the_names_that_they_use() -> None:
    scene, plain, named, modern, other = Scene(), TestMember(), TestMember(), TestMember(), TestMember()
    scene.follow(plain, "a:x")
    scene.follow(named, "a:x", "mcpd://alpha/a%3Ax")
    scene.follow(modern, "a:x", listen=b'"s"')
    scene.follow(other, "a:y")
    scene.all.hear("alpha", raw({"uri": "a:x", "extra": [1], "_meta": {SUBSCRIPTION: 7, "k": 1}}))
    assert plain.params() == [{"uri": "a:x", "extra": [1], "_meta": {"k": 1}}]
    assert named.params() == [{"uri": "mcpd://alpha/a%3Ax", "extra": [1], "_meta": {"k": 1}}]
    assert modern.told[0][2] == b'"s"'
    assert modern.params() == [{"uri": "a:x", "extra": [1], "_meta": {"k": 1, SUBSCRIPTION: "s"}}]
    assert other.params() == []
    scene.all.hear("beta", raw({"uri": "a:x"}))
    plain.servers.clear()
    scene.all.hear("alpha", raw({"uri": "a:x"}))
    assert plain.params() == []


def test_who_follows_a_whole_is_told_of_its_parts() -> None:
    scene, plain, named = Scene(), TestMember(), TestMember()
    scene.follow(plain, "file:///d")
    scene.follow(named, "file:///d/", "mcpd://alpha/file%3A%2F%2F%2Fd%2F")
    scene.all.hear("alpha", raw({"uri": "file:///d/e/f"}))
    scene.all.hear("alpha", raw({"uri": "file:///dd"}))
    scene.all.hear("alpha", raw({"uri": "file:///" + "d/" * 100}))
    assert plain.params() == [{"uri": "file:///d/e/f"}]
    assert named.params() == [{"uri": "mcpd://alpha/file%3A%2F%2F%2Fd%2Fe%2Ff"}]


def test_a_client_that_is_behind_is_owed_the_newest_about_the_whole() -> None:
    scene, client = Scene(), TestMember(is_behind=True)
    following = scene.follow(client, "file:///d")
    for part in ("a", "b", "c"):
        scene.all.hear("alpha", raw({"uri": f"file:///d/{part}"}))
    assert client.owed == {following: {"uri": "file:///d"}}
    scene.all.end(following)
    assert client.owed == {}


@pytest.mark.parametrize("params", [{}, {"uri": 7}, [], {"uri": "a:x", "_meta": 7}])
def test_an_update_that_cannot_be_read_does_no_harm(params: object) -> None:
    scene, client = Scene(), TestMember()
    scene.follow(client, "a:x")
    scene.all.hear("alpha", raw(params))
    assert client.params() in ([], [{"uri": "a:x"}])


def test_of_a_long_update_only_the_uri_is_passed_on() -> None:
    scene, client = Scene(), TestMember()
    scene.follow(client, "a:x")
    scene.all.hear("alpha", raw({"uri": "a:x", "long": "x" * MAX_PARAMS}))
    assert client.params() == [{"uri": "a:x"}]


def test_an_update_of_a_uri_that_nobody_can_follow_is_not_taken_apart() -> None:
    scene, client = Scene(), TestMember()
    scene.follow(client, "a://x/")
    scene.all.hear("alpha", raw({"uri": "a://x/" + "y" * MAX_URI}))
    assert client.params() == []


def test_a_client_follows_a_bounded_number_of_resources() -> None:
    scene, client = Scene(), TestMember()
    for number in range(MAX_FOLLOWED):
        scene.follow(client, f"a:{number}")
    with pytest.raises(Overloaded):
        scene.follow(client, "a:more")
    scene.follow(client, "a:1")
    scene.follow(TestMember(), "a:more")


async def test_a_subscriber_waits_for_the_servers_word_anew_on_each_connection() -> None:
    scene, client = Scene(), TestMember()
    following = scene.follow(client, "a:x")
    scene.all.settled("alpha", "a:x", None)
    scene.all.settled("alpha", "a:unknown", None)
    assert await scene.all.wait_settled(following) is None
    scene.all.lost("alpha")
    refusal = RemoteError(-32002, "no such resource")
    scene.all.settled("alpha", "a:x", refusal)
    assert await scene.all.wait_settled(following) is refusal
    scene.all.end(following)
    assert await scene.all.wait_settled(following) is None
