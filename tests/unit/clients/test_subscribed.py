"""Subscriptions are counted per server and URI; an update reaches exactly its subscribers, as each named it."""

import json
import sys
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from trio.testing import MockClock

from daemon.clients import connected_clients
from daemon.clients.client_tasks import (
    LONGEST_SECONDS,
    MAX_OWN_TASKS,
    MAX_TASK_BYTES,
    ClientTasks,
    RequestedTask,
    renamed_result,
)
from daemon.errors import Overloaded
from daemon.protocol import RELATED_TASK_KEY
from daemon.wire.envelope import RemoteError
from daemon.wire.requests import PeerRequest
from tests.unit.clients.inputs import raw
from tests.unit.clients.members import TestMember

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Scene:
    """Subscriptions, and the servers of which other URIs were wished."""

    def __init__(self) -> None:
        self.changed: list[str] = []
        self.all = connected_clients.ResourceSubscriptions(self.changed.append)

    def follow(
        self, told: TestMember, own: str, uri: str = "", listen: bytes | None = None
    ) -> connected_clients.Following:
        following = connected_clients.Following(told, "alpha", "alpha", own, uri or own, listen)
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
    scene.all.hear("alpha", raw({"uri": "a:x", "long": "x" * connected_clients.MAX_PARAMS}))
    assert client.params() == [{"uri": "a:x"}]


def test_an_update_of_a_uri_that_nobody_can_follow_is_not_taken_apart() -> None:
    scene, client = Scene(), TestMember()
    scene.follow(client, "a://x/")
    scene.all.hear("alpha", raw({"uri": "a://x/" + "y" * connected_clients.MAX_URI}))
    assert client.params() == []


def test_a_client_follows_a_bounded_number_of_resources() -> None:
    scene, client = Scene(), TestMember()
    for number in range(connected_clients.MAX_FOLLOWED):
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


class Counted(TestMember):
    """A client that counts how often it is looked at."""

    looks = 0

    def sees(self, server: str) -> bool:
        self.looks += 1
        return super().sees(server)


def line(level: str) -> Raw:
    found: Raw = raw({"level": level, "data": {"any": "thing"}})
    return found


def test_each_level_takes_itself_and_what_is_more_urgent() -> None:
    client, levels = (
        TestMember(level=connected_clients.LEVELS.index("error")),
        connected_clients.LogLevels(lambda: None),
    )
    levels.join(client)
    for level in connected_clients.LEVELS:
        levels.hear("alpha", line(level), None)
    assert [each["level"] for each in client.params()] == list(connected_clients.LEVELS[4:])


def test_who_does_not_see_the_server_or_has_set_nothing_or_is_gone_gets_nothing() -> None:
    levels = connected_clients.LogLevels(lambda: None)
    elsewhere, unset, gone = TestMember(level=0, servers={"beta"}), TestMember(), TestMember(level=0)
    for each in (elsewhere, unset, gone):
        levels.join(each)
    levels.leave(gone)
    levels.hear("alpha", line("emergency"), None)
    assert [each.told for each in (elsewhere, unset, gone)] == [[], [], []]


@pytest.mark.parametrize("params", [{"data": 1}, {"level": "loud"}, {"level": 7}, ["info"]])
def test_a_line_without_a_known_level_goes_to_nobody_who_has_set_one(params: object) -> None:
    client, levels = TestMember(level=0), connected_clients.LogLevels(lambda: None)
    levels.join(client)
    levels.hear("alpha", raw(params), None)
    assert (client.told, connected_clients.rank_in(raw(params))) == ([], None)


def test_the_most_talkative_level_of_those_that_see_a_server_is_wished() -> None:
    changes: list[int] = []
    levels = connected_clients.LogLevels(lambda: changes.append(1))
    assert levels.wished("alpha") is None
    warning, debug = TestMember(level=3), TestMember(level=0, servers={"beta"})
    levels.join(warning)
    levels.join(debug)
    assert (levels.wished("alpha"), levels.wished("beta")) == ("warning", "debug")
    levels.leave(debug)
    assert (levels.wished("alpha"), levels.wished("beta")) == ("warning", "warning")
    levels.leave(warning)
    levels.leave(warning)
    assert (levels.wished("alpha"), len(changes)) == (None, 4)


def test_a_level_that_is_set_again_changes_nothing_and_another_one_takes_its_place() -> None:
    changes: list[int] = []
    client, levels = TestMember(level=3), connected_clients.LogLevels(lambda: changes.append(1))
    levels.join(client)
    levels.join(client)
    client.level = 5
    levels.join(client)
    assert (levels.wished("alpha"), len(changes)) == (connected_clients.LEVELS[5], 2)


def test_the_first_client_that_sees_a_server_settles_its_level() -> None:
    levels = connected_clients.LogLevels(lambda: None)
    clients = [Counted(level=7) for _ in range(100)]
    for each in clients:
        levels.join(each)
    assert levels.wished("alpha") == connected_clients.LEVELS[7]
    assert sum(each.looks for each in clients) == 1


class Nowhere:
    """A way back that is not taken."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def made(
    tasks: ClientTasks, told: TestMember, theirs: str = "1", owner: object = "key", **more: Any
) -> RequestedTask:
    about = {"taskId": theirs, "status": "working", "ttl": 60_000, "createdAt": "now", **more}
    task = tasks.add(
        partial(RequestedTask, notifier=told), "alpha", owner, {key: raw(value) for key, value in about.items()}
    )
    assert task is not None
    return task


def asking(theirs: object) -> PeerRequest:
    params = {"message": "?", "_meta": {RELATED_TASK_KEY: {"taskId": theirs, "more": 1}, "k": 1}}
    request = PeerRequest("elicitation/create", raw(params), Nowhere())
    request.server = "alpha"
    return request


async def test_only_the_session_that_made_a_task_finds_it() -> None:
    tasks, client = ClientTasks(), TestMember()
    task = made(tasks, client)
    assert tasks.find(task.id, "key") is task
    assert [tasks.find(task.id, "other"), tasks.find("1", "key"), tasks.find("", "key")] == [None] * 3
    assert (len(task.id), tasks.tasks_of("key"), tasks.tasks_of("other")) == (43, [task], [])
    assert json.loads(bytes(task.state["taskId"])) == task.id


async def test_two_servers_may_give_the_same_id_and_one_server_gives_it_once() -> None:
    tasks, client = ClientTasks(), TestMember()
    first = made(tasks, client)
    other = tasks.add(
        partial(RequestedTask, notifier=client), "beta", "key", {"taskId": raw("1"), "status": raw("working")}
    )
    again = made(tasks, client)
    assert tasks.tasks_of("key") == [other, again]
    assert tasks.find(first.id, "key") is None
    assert tasks.add(partial(RequestedTask, notifier=client), "beta", "key", {"taskId": raw(7)}) is None


async def test_a_task_is_forgotten_with_its_ttl_or_after_a_day(autojump_clock: MockClock) -> None:
    tasks, client = ClientTasks(), TestMember()
    short, endless = made(tasks, client), made(tasks, client, "2", ttl=None)
    autojump_clock.jump(60)
    assert tasks.find(short.id, "key") is None
    assert tasks.find(endless.id, "key") is endless
    autojump_clock.jump(LONGEST_SECONDS)
    tasks.require_room("key")
    assert len(tasks) == 0


async def test_a_session_has_a_bounded_number_of_tasks() -> None:
    tasks, client = ClientTasks(), TestMember()
    for number in range(MAX_OWN_TASKS):
        tasks.require_room("key")
        made(tasks, client, str(number))
    with pytest.raises(Overloaded):
        tasks.require_room("key")
    tasks.require_room("other")


async def test_what_a_server_tells_about_a_task_reaches_its_client_under_our_id() -> None:
    tasks, client = ClientTasks(), TestMember()
    task = made(tasks, client)
    unreadable: tuple[Any, ...] = ({"taskId": "unknown"}, {}, [], {"taskId": 1})
    for params in unreadable:
        tasks.hear("alpha", raw(params))
    tasks.hear("beta", raw({"taskId": "1", "status": "completed"}))
    assert client.params() == []
    tasks.hear("alpha", raw({"taskId": "1", "status": "completed", "x": 1}))
    assert client.params() == [{"taskId": task.id, "status": "completed", "x": 1}]
    assert task.has_ended


async def test_what_a_server_asks_about_a_task_goes_to_its_client() -> None:
    tasks, client = ClientTasks(), TestMember()
    task = made(tasks, client)
    assert [tasks.owner_of(asking(other)) for other in ("unknown", 7)] == [None, None]
    request = asking("1")
    assert tasks.owner_of(request) is task
    assert request.params is not None
    meta = json.loads(bytes(request.params))["_meta"]
    assert meta == {RELATED_TASK_KEY: {"taskId": task.id, "more": 1}, "k": 1}
    task.asked(request)
    assert (client.asked, task.asker) == ([(request, task.expires)], client)


async def test_tasks_are_lost_with_their_server_and_their_client_is_told_so() -> None:
    tasks, client = ClientTasks(), TestMember()
    open_task, ended = made(tasks, client), made(tasks, client, "2", status="completed")
    tasks.lost("beta")
    tasks.lost("alpha")
    tasks.lost("alpha")
    [told] = client.params()
    assert (told["taskId"], told["status"]) == (open_task.id, "failed")
    assert (open_task.gone, ended.gone, json.loads(bytes(ended.state["status"]))) == (True, True, "completed")
    assert tasks.owner_of(asking("1")) is None


async def test_a_client_that_goes_takes_only_those_tasks_that_nobody_can_ask_about_again() -> None:
    tasks, client = ClientTasks(), TestMember()
    made(tasks, client, "1", owner=client)
    kept = made(tasks, client, "2")
    tasks.leave(client)
    assert (len(tasks), tasks.find(kept.id, "key")) == (1, kept)


async def test_of_a_long_state_only_what_is_required_is_kept() -> None:
    task = made(ClientTasks(), TestMember(), statusMessage="x" * MAX_TASK_BYTES)
    assert sorted(task.state) == ["createdAt", "status", "taskId", "ttl"]


async def test_what_is_kept_of_a_state_does_not_keep_the_message_that_it_came_in() -> None:
    tasks, said = ClientTasks(), json.dumps({"taskId": "1", "status": "working", "long": "x" * 10**6}).encode()
    before = sys.getrefcount(said)
    members = msgspec.json.decode(said, type=dict[str, msgspec.Raw])
    task = tasks.add(partial(RequestedTask, notifier=TestMember()), "alpha", "key", members)
    del members
    assert task is not None
    assert sys.getrefcount(said) == before


async def test_of_a_long_state_a_client_that_is_behind_is_owed_only_what_is_required() -> None:
    tasks, client = ClientTasks(), TestMember(is_behind=True)
    task = made(tasks, client)
    long = {"taskId": "1", "status": "working", "statusMessage": "x" * MAX_TASK_BYTES, "_meta": {"k": 1}}
    tasks.hear("alpha", raw(long))
    assert client.owed == {task: {"taskId": task.id, "status": "working"}}


async def test_a_result_is_the_servers_but_for_the_id_in_its_meta() -> None:
    task = made(ClientTasks(), TestMember())
    plain = b'{"content": [ ]}'
    assert renamed_result(plain, task) is plain
    named = json.dumps({"content": [], "_meta": {RELATED_TASK_KEY: {"taskId": "1"}}}).encode()
    assert json.loads(bytes(renamed_result(named, task)))["_meta"] == {RELATED_TASK_KEY: {"taskId": task.id}}
    quoting = b'["' + RELATED_TASK_KEY.encode() + b'"]'
    assert renamed_result(quoting, task) == quoting
