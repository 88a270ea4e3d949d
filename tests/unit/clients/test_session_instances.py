"""The requests of each client go to its own instance of a server, wherever clients do not share one."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.catalog.snapshot import fold
from daemon.clients.client import LOCAL_USER
from daemon.clients.notifications import WORKSPACE_SECONDS
from daemon.facts import DefinitionsListed
from daemon.model import Kind
from daemon.ports import Holder
from daemon.protocol import HELLO, RESOURCE_UPDATED, ROOTS_CHANGED, SESSION_KEY
from tests.fakes_upstream import MODERN, Client, FakeUpstream, Guest, Stage, error_of, tools_of
from tests.unit.clients.asking import answer, greeted, on_full_surface, question
from tests.unit.clients.inputs import raw
from tests.unit.clients.instanced import TestInstances, divided

FORMLESS = {"roots": {"listChanged": True}, "sampling": {}}


@pytest.fixture
def stage() -> Stage:
    return on_full_surface()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return os.path.realpath(tmp_path)


async def ask_echo(client: Client, request_id: object = 7) -> None:
    await client.ask("tools/call", {"name": "alpha__echo", "arguments": {}}, request_id=request_id)


async def called(stage: Stage, client: Client, instance: FakeUpstream, request_id: object = 7) -> None:
    """A call of the client's is answered by this instance."""
    before = len(instance.sent)
    await ask_echo(client, request_id)
    stage.answer(await instance.wait_sent(before + 1))
    assert (await client.get())["id"] == request_id


async def newest(
    client: Client, instances: TestInstances, request_id: object = 7, *, has_roots: bool = False
) -> FakeUpstream:
    """The instance that a call of the client's arrives at, which may be asked for its roots before that."""
    before = {each: len(each.sent) for each in instances.running.values()}
    await ask_echo(client, request_id)
    if has_roots:
        asked: Any = await client.get()
        assert asked["method"] == "roots/list"
        await answer(client, asked["id"], {"roots": []})
    with trio.fail_after(30):
        while True:
            await trio.testing.wait_all_tasks_blocked()
            for each in instances.running.values():
                if len(each.sent) > before.get(each, 0):
                    return each


@pytest.fixture
def instances(stage: Stage) -> TestInstances:
    return divided(stage)


async def test_each_session_has_one(instances: TestInstances, stage: Stage, nursery: trio.Nursery) -> None:
    anna, ben = await stage.client(nursery), await stage.client(nursery)
    hers, his = await newest(anna, instances, 1), await newest(ben, instances, 1)
    assert (hers.name, his.name) == ("alpha#1", "alpha#2")
    for client, instance in ((anna, hers), (ben, his)):
        stage.answer(instance.sent[-1])
        await client.get()
        await called(stage, client, instance)
    # It is asked for once, not with each call.
    assert [each.number for each in instances.holders] == [1, 2]
    assert stage.alpha.sent == []


async def test_connections_of_one_session_share_its_instance_and_who_comes_back_finds_it(
    instances: TestInstances, stage: Stage, nursery: trio.Nursery
) -> None:
    anna, ben = await stage.connect(nursery), await stage.connect(nursery)
    for guest in (anna, ben):
        await guest.client.tell(HELLO, {"session": "k"})
    instance = await newest(anna.client, instances)
    assert await newest(ben.client, instances) is instance
    assert instances.names == ["alpha#1"]
    anna.client.close()
    await anna.ended.wait()
    assert "k" not in stage.left
    ben.client.close()
    await ben.ended.wait()
    assert stage.left.count("k") == 1
    again = await stage.client(nursery)
    await again.tell(HELLO, {"session": "k"})
    assert await newest(again, instances) is instance


async def test_sessions_that_requests_name_have_one_each(instances: TestInstances, client: Client) -> None:
    for key in ("one", "two"):
        params = {"name": "alpha__echo", "arguments": {}, "_meta": {SESSION_KEY: key}}
        await client.ask("tools/call", params, request_id=key)
    await trio.testing.wait_all_tasks_blocked()
    assert {each.session for each in instances.holders} == {"one", "two"}


async def test_the_first_answer_with_content_says_that_the_instance_is_another_one(
    instances: TestInstances, client: Client, stage: Stage
) -> None:
    first = await newest(client, instances, 1)
    stage.answer(first.sent[-1])
    await client.get()
    instances.end(first, "after 600 s without use")
    second = await newest(client, instances, 2)
    assert (second is first, len(first.sent)) == (False, 1)
    stage.answer(second.sent[-1], b'{"task":{"taskId":"t"}}')
    assert (await client.get())["result"].keys() == {"task"}
    # Of two in flight one is told.
    for request_id in (3, 4):
        await ask_echo(client, request_id)
    await second.wait_sent(3)
    for sent in second.sent[1:]:
        stage.answer(sent, b'{"x":1.0, "content":[{"type":"text","text":"pong"}],"isError":true}')
    told, other = [(await client.get())["result"] for _ in range(2)]
    pong = {"type": "text", "text": "pong"}
    assert other == {"x": 1.0, "content": [pong], "isError": True}
    text = (
        "mcpd: alpha was started again for this session (it had ended after 600 s without use); its"
        " state (pages, open files, memory) is lost."
    )
    assert told == {**other, "content": [pong, {"type": "text", "text": text}]}


async def test_a_call_that_waits_for_an_instance_that_is_replaced_waits_for_the_next(
    stage: Stage, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    instances = divided(stage, up=False)
    client = await stage.client(nursery)
    await ask_echo(client)
    await trio.testing.wait_all_tasks_blocked()
    (first,) = instances.running.values()
    instances.end(first)
    await trio.sleep(first.wake_seconds)
    await trio.testing.wait_all_tasks_blocked()
    (second,) = instances.running.values()
    await second.wait_woken()
    second.come_up()
    stage.answer(await second.wait_sent())
    assert (await client.get())["id"] == 7
    assert not first.sent


async def test_a_clients_capabilities_are_told_to_who_makes_its_instance(
    instances: TestInstances, stage: Stage, nursery: trio.Nursery
) -> None:
    await newest((await greeted(stage, nursery, FORMLESS)).client, instances, has_roots=True)
    modern = await stage.client(nursery)
    meta = {**MODERN, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    await modern.request("tools/list", {"_meta": meta})
    await newest(modern, instances)
    assert [each.capabilities for each in instances.holders] == [FORMLESS, {"elicitation": {}}]


async def test_who_is_nobody_has_none(instances: TestInstances, stage: Stage, nursery: trio.Nursery) -> None:
    guest = await stage.connect(nursery, attrs.evolve(LOCAL_USER, keeps=False))
    params = {"name": "alpha__echo", "arguments": {}, "_meta": MODERN}
    assert error_of(await guest.client.request("tools/call", params))["code"] == "NoSession"
    keyed = {**params, "_meta": {**MODERN, SESSION_KEY: "k"}}
    await guest.client.ask("tools/call", keyed)
    await trio.testing.wait_all_tasks_blocked()
    assert [(each.session, each.capabilities) for each in instances.holders] == [(None, None), ("k", {})]


async def test_a_workspace_is_found_before_a_call(stage: Stage, nursery: trio.Nursery, place: str) -> None:
    instances = divided(stage, by_workspace=True)
    anna, ben, carl = [await stage.client(nursery) for _ in range(3)]
    for client in (anna, ben):
        await client.tell(HELLO, {"workspace": f"{place}/."})
        await newest(client, instances)
    await newest(carl, instances)
    assert instances.names == [f"alpha@{place}", "alpha@"]
    assert [each.workspace for each in instances.holders] == [place, place, None]


async def test_the_first_root_is_the_workspace(stage: Stage, nursery: trio.Nursery, place: str) -> None:
    instances = divided(stage, by_workspace=True)
    client = (await greeted(stage, nursery)).client
    for request_id, directory in ((1, place), (2, "/usr")):
        await ask_echo(client, request_id)
        asked = await client.get()
        assert asked["method"] == "roots/list"
        await answer(client, asked["id"], {"roots": [{"uri": f"file://{directory}"}, {"uri": "file:///etc"}]})
        with trio.fail_after(30):
            while directory not in instances.running:
                # It is looked at in a thread.
                await trio.testing.wait_all_tasks_blocked()
        stage.answer(await instances.running[directory].wait_sent())
        assert (await client.get())["id"] == request_id
        await client.tell(ROOTS_CHANGED, {})
    assert instances.names == [f"alpha@{place}", "alpha@/usr"]


@pytest.mark.parametrize("told", [{"roots": 5}, {"roots": [{"name": "x"}]}, {}])
async def test_unreadable_roots_are_told_of(stage: Stage, nursery: trio.Nursery, told: object) -> None:
    divided(stage, by_workspace=True)
    client = (await greeted(stage, nursery)).client
    await ask_echo(client)
    await answer(client, (await client.get())["id"], told)
    text = error_of(await client.get())["message"]
    assert "was asked for its roots, and has not named them: they cannot be read" in text


async def test_a_client_that_does_not_answer_is_not_waited_for_without_end(
    stage: Stage, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    divided(stage, by_workspace=True)
    client = (await greeted(stage, nursery)).client
    began = trio.current_time()
    await ask_echo(client)
    assert (await client.get())["method"] == "roots/list"
    assert "no answer to roots/list" in error_of(await client.get())["message"]
    assert trio.current_time() - began == pytest.approx(WORKSPACE_SECONDS)


async def test_a_first_call_is_judged_by_what_the_instance_lists_that_it_goes_to(nursery: trio.Nursery) -> None:
    rules = [{"annotations": {"destructive": True}, "then": "deny"}]
    stage = on_full_surface(profiles={"default": {"surface": "full", "permissions": rules}})
    safe: dict[str, object] = {"name": "echo", "inputSchema": {}, "annotations": {"readOnlyHint": True}}
    stage.lists("alpha", safe)
    instances = divided(stage, by_workspace=True)
    client = await stage.client(nursery)
    instance = instances.of(Holder(session=None, number=0))
    own = DefinitionsListed(
        kind=Kind.TOOL, server="alpha", incarnation=1, definitions=tools_of("alpha", "echo")
    )
    instance.own_catalog = partial(fold, fact=own)  # type: ignore[method-assign]
    await ask_echo(client)
    assert error_of(await client.get())["code"] == "ToolDisabled"
    assert instance.sent == []


async def test_a_directory_is_looked_at_again_once_the_instance_that_worked_in_it_has_ended(
    stage: Stage, nursery: trio.Nursery, place: str
) -> None:
    instances = divided(stage, by_workspace=True)
    client = await stage.client(nursery)
    await trio.Path(place, "new").mkdir()
    await client.tell(HELLO, {"workspace": f"{place}/new"})
    first = await newest(client, instances, 1)
    stage.answer(first.sent[-1])
    await client.get()
    await trio.Path(place, "new").rmdir()
    instances.end(first)
    await ask_echo(client, 2)
    assert error_of(await client.get())["code"] == "NoWorkspace"
    await trio.Path(place, "new").mkdir()
    assert await newest(client, instances, 3) is not first


async def test_lists_are_learned_from_an_own_instance(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    stage = on_full_surface(listed=False)
    stage.upstreams["beta"].up = False
    instances = divided(stage)
    client = await stage.client(nursery)
    await client.ask("tools/list")
    await trio.testing.wait_all_tasks_blocked()
    (instance,) = instances.running.values()
    assert (instance.woken, stage.alpha.woken) == (1, 0)
    stage.lists("alpha", "echo")
    assert [each["name"] for each in (await client.get())["result"]["tools"]] == ["echo"]


async def test_without_an_instance_other_lists_come(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    stage = on_full_surface(listed=False)
    divided(stage, by_workspace=True, needs_workspace=True)
    client = await stage.client(nursery)
    await client.ask("tools/list")
    await trio.testing.wait_all_tasks_blocked()
    stage.lists("beta", "echo")
    assert [each["name"] for each in (await client.get())["result"]["tools"]] == ["echo"]


async def test_who_calls_an_unlisted_tool_is_told_why_it_has_no_instance(nursery: trio.Nursery) -> None:
    stage = Stage(listed=False)
    divided(stage, by_workspace=True, needs_workspace=True)
    client = await stage.client(nursery)
    await client.call("alpha", "echo")
    assert error_of(await client.get())["code"] == "NoWorkspace"


async def test_a_log_level_is_only_for_the_instances_that_its_client_uses(
    instances: TestInstances, stage: Stage, nursery: trio.Nursery
) -> None:
    anna, ben = await greeted(stage, nursery), await greeted(stage, nursery)
    hers = await newest(anna.client, instances, 1, has_roots=True)
    await anna.client.request("logging/setLevel", {"level": "debug"}, request_id=2)
    his = await newest(ben.client, instances, 1, has_roots=True)
    wishes = stage.context.subscribers.wishes
    assert [wishes(each).value.level for each in (hers.name, his.name, "beta")] == ["debug", None, "debug"]
    # It holds for an instance that is made later, too.
    instances.end(hers)
    again = await newest(anna.client, instances, 3, has_roots=True)
    assert wishes(again.name).value.level == "debug"


async def test_what_is_known_of_an_instance_is_forgotten_with_it(
    instances: TestInstances, guest: Guest, stage: Stage
) -> None:
    instance = await newest(guest.client, instances)
    subscribers = stage.context.subscribers
    subscribers.wishes(instance.name)
    asked = question("roots/list", server=instance.name)
    subscribers.ask(asked.request)
    assert guest.session.statistics().instances == (instance.name,)
    instances.end(instance)
    assert guest.session.statistics().instances == ()
    assert instance.name not in subscribers._wishes
    assert not subscribers.roots._refused
    await forgets(guest, instance)


async def forgets(guest: Guest, instance: FakeUpstream) -> None:
    """The next change of the catalog lets go of it."""
    guest.session._connection.follow_catalog()
    assert not guest.session._client.instances
    assert instance not in [each for each, _ in guest.session._attachments.own.instances.known.values()]


async def test_only_the_client_of_an_instance_is_asked_for_its_roots(
    instances: TestInstances, stage: Stage, nursery: trio.Nursery
) -> None:
    anna, ben = await greeted(stage, nursery), await greeted(stage, nursery)
    hers = await newest(anna.client, instances, has_roots=True)
    await newest(ben.client, instances, has_roots=True)
    asked = question("roots/list", server=hers.name)
    stage.context.subscribers.ask(asked.request)
    stage.outbox.flush()
    got: Any = await anna.client.get()
    assert got["method"] == "roots/list"
    await answer(anna.client, got["id"], {"roots": []})
    await anna.client.tell(ROOTS_CHANGED, {})
    await trio.testing.wait_all_tasks_blocked()
    assert (hers.told, stage.alpha.told) == ([ROOTS_CHANGED], [])


async def test_a_resource_is_followed_at_the_clients_own_instance(stage: Stage, nursery: trio.Nursery) -> None:
    stage.offers("alpha", Kind.RESOURCE, "file:///a")
    instances = divided(stage)
    client = await stage.client(nursery)
    named = "mcpd://alpha/file%3A%2F%2F%2Fa"
    await client.ask("resources/subscribe", {"uri": named})
    await trio.testing.wait_all_tasks_blocked()
    (instance,) = instances.running.values()
    subscribers = stage.context.subscribers
    assert (subscribers.resources.wished("alpha"), subscribers.uses(instance.name)) == (frozenset(), True)
    subscribers.settled(instance.name, "file:///a", None)
    assert (await client.get())["result"] == {}
    subscribers.hear(instance.name, RESOURCE_UPDATED, raw({"uri": "file:///a/part"}), None)
    stage.outbox.flush()
    assert (await client.get())["params"] == {"uri": "mcpd://alpha/file%3A%2F%2F%2Fa%2Fpart"}
    # What it followed may be something else at the next one.
    instances.end(instance)
    stage.outbox.flush()
    assert (await client.get())["params"] == {"uri": named}
    await trio.testing.wait_all_tasks_blocked()
    (other,) = instances.running.values()
    assert other is not instance
    assert subscribers.resources.wished(other.name) == {"file:///a"}
    subscribers.settled(other.name, "file:///a", None)
    subscribers.hear(other.name, RESOURCE_UPDATED, raw({"uri": "file:///a"}), None)
    stage.outbox.flush()
    assert (await client.get())["params"] == {"uri": named}
    assert (await client.request("resources/unsubscribe", {"uri": named}))["result"] == {}
    assert not subscribers.uses(other.name)


async def test_a_task_belongs_to_the_instance_that_works_on_it(
    instances: TestInstances, stage: Stage, nursery: trio.Nursery
) -> None:
    guest = await greeted(stage, nursery, {})
    params = {"name": "alpha__echo", "arguments": {}, "task": {"ttl": 60_000}}
    await guest.client.ask("tools/call", params)
    await trio.testing.wait_all_tasks_blocked()
    (instance,) = instances.running.values()
    task = {"taskId": "theirs", "status": "working", "ttl": 60_000}
    stage.answer(await instance.wait_sent(), json.dumps({"task": task}).encode())
    ours = (await guest.client.get())["result"]["task"]["taskId"]
    assert stage.context.subscribers.uses(instance.name)
    await guest.client.ask("tasks/get", {"taskId": ours}, request_id=2)
    stage.answer(await instance.wait_sent(2), json.dumps({**task, "status": "completed"}).encode())
    assert (await guest.client.get())["result"]["status"] == "completed"
    assert not stage.context.subscribers.uses(instance.name)
    assert stage.alpha.sent == []
