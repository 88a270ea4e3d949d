"""A task has an id of ours, worth something to its own session alone; what is said about it goes there."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from daemon.clients.connected_clients import (
    LONGEST_SECONDS,
    MAX_OWN_TASKS,
    MAX_TASK_BYTES,
    ClientTasks,
    Task,
    renamed_result,
)
from daemon.errors import Overloaded
from daemon.protocol import RELATED_TASK_KEY
from daemon.wire.requests import PeerRequest
from tests.unit.clients.members import TestMember, raw

if TYPE_CHECKING:
    from trio.testing import MockClock


class Nowhere:
    """A way back that is not taken."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def made(tasks: ClientTasks, told: TestMember, theirs: str = "1", owner: object = "key", **more: Any) -> Task:
    about = {"taskId": theirs, "status": "working", "ttl": 60_000, "createdAt": "now", **more}
    task = tasks.made("alpha", owner, told, {key: raw(value) for key, value in about.items()})
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
    assert (len(task.id), tasks.of("key"), tasks.of("other")) == (32, [task], [])
    assert json.loads(bytes(task.state["taskId"])) == task.id


async def test_two_servers_may_give_the_same_id_and_one_server_gives_it_once() -> None:
    tasks, client = ClientTasks(), TestMember()
    first = made(tasks, client)
    other = tasks.made("beta", "key", client, {"taskId": raw("1"), "status": raw("working")})
    again = made(tasks, client)
    assert tasks.of("key") == [other, again]
    assert tasks.find(first.id, "key") is None
    assert tasks.made("beta", "key", client, {"taskId": raw(7)}) is None


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
    task = tasks.made("alpha", "key", TestMember(), members)
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
    assert renamed_result(quoting, task) is quoting
