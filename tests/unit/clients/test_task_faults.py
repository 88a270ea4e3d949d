"""Tasks of the extension (SEP-2663) when servers, connections and clients fail, or say what they should not."""

import json
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from daemon.clients.client import Principal
from daemon.clients.connected_clients import ConnectedClients
from daemon.errors import CallError, Overloaded, UpstreamTimeout, UpstreamUnavailable
from daemon.history.event import Event, EventKind
from daemon.model import Kind
from daemon.protocol import CAPABILITIES_KEY, SESSION_KEY, TASKS_EXTENSION
from tests.fakes_upstream import MODERN, Client, FakeUpstream, Guest, Stage, error_of
from tests.unit.clients.inputs import ACCEPTED, META, QUESTION
from tests.unit.clients.test_rounds import (
    ASKING,
    DONE,
    NAMED,
    PLAIN,
    RESULT,
    WORKING,
    about,
    answer,
    begun,
    called,
    greeted,
    handed_out,
    method_of,
    tell,
)
from tests.unit.config.reading import config_of
from tests.waiting import in_time

SECRET = "sk-very-secret-0123456789abcdef"
DOWN = UpstreamUnavailable("server alpha is down. The call was not sent.", server="alpha")
SILENT = UpstreamTimeout("server alpha showed no life for 60 s", server="alpha")
LACKS: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
NEEDS_TASKS = json.dumps({"code": -32021, "message": "tasks", "data": LACKS}).encode()
UNSAFE = {"who": {"method": "elicitation/create", "params": {**QUESTION, "url": "file:///etc/passwd"}}}
OPENS = {"mode": "url", "elicitationId": "1", "message": "Open it.", "url": "file:///etc/passwd"}
HUGE = 10**400
"""An interval that is no float."""


@pytest.fixture
async def guest(stage: Stage, nursery: trio.Nursery, autojump_clock: MockClock) -> Guest:
    """Of the handshake era."""
    return await greeted(stage, nursery)


@pytest.fixture
def client(guest: Guest) -> Client:
    return guest.client


@pytest.fixture
async def polling(stage: Stage, nursery: trio.Nursery, autojump_clock: MockClock) -> Client:
    """Of 2026-07-28, with the extension."""
    stage.alpha.is_modern = stage.upstreams["beta"].is_modern = True
    return (await stage.connect(nursery)).client


@pytest.fixture
def remote() -> Stage:
    """Servers that are no children of mcpd's, and may keep tasks when a connection ends."""
    return Stage(config_of({"mcpServers": {"alpha": {"url": "http://localhost/mcp"}}}))


@pytest.fixture
async def away(remote: Stage, nursery: trio.Nursery, autojump_clock: MockClock) -> Client:
    """A client of those servers."""
    return (await greeted(remote, nursery)).client


async def asked(stage: Stage, client: Client) -> Any:
    """The state of a request whose task asks its client of 2026-07-28."""
    await begun(stage, client, _meta=PLAIN)
    tell(stage, await stage.alpha.wait_sent(2), ASKING)
    return (await client.get())["result"]["requestState"]


async def retried(client: Client, state: object) -> None:
    """The client has answered what the task asks."""
    given = {"inputResponses": {"who": ACCEPTED}, "requestState": state}
    await client.call("alpha", "echo", {"x": 1}, request_id=5, _meta=PLAIN, **given)


async def told_of(stage: Stage, client: Client, task: str, number: int, state: object, **more: object) -> Any:
    """The answer to a client that polls while its server tells a state."""
    await about(client, "tasks/get", task)
    tell(stage, await stage.alpha.wait_sent(number), state, **more)
    return await client.get()


async def listening(client: Client, *tasks: str, **more: object) -> None:
    """A listener that is acknowledged, for tasks alone."""
    wanted = {"taskIds": tasks, **more}
    await client.ask("subscriptions/listen", {"notifications": wanted, "_meta": META}, request_id=9)
    assert (await client.get())["params"]["notifications"] == {"taskIds": list(tasks)}


async def two_tasks(stage: Stage, client: Client, **of_beta: object) -> tuple[str, str]:
    """A task at each of two servers."""
    first = await handed_out(stage, client)
    await client.call("beta", "echo", {"x": 1}, request_id=2, _meta=META)
    tell(stage, await stage.upstreams["beta"].wait_sent(), WORKING, resultType="task", **of_beta)
    return first, (await client.get())["result"]["taskId"]


def always_working(stage: Stage, server: FakeUpstream, **more: object) -> None:
    """The server answers each request at once: it still works."""
    server.on_send = lambda sent: tell(stage, sent, WORKING, **more)


def methods(stage: Stage) -> list[str]:
    """What the server was asked."""
    return [sent.call.method for sent in stage.alpha.sent]


# --- servers that say what they should not ------------------------------------------------------------------


async def test_only_a_tool_call_becomes_a_task(stage: Stage, polling: Client) -> None:
    stage.offers("alpha", Kind.PROMPT, "p")
    await polling.ask("prompts/get", {"name": "p", "_meta": META})
    tell(stage, await stage.alpha.wait_sent(), WORKING, resultType="task")
    assert "prompts/get cannot be one" in (await polling.get())["error"]["message"]


@pytest.mark.parametrize("state", [{"status": 7}, {"inputRequests": 7}])
async def test_a_new_task_that_cannot_be_read_fails_the_call(stage: Stage, client: Client, state: Any) -> None:
    tell(stage, await called(stage, client), {**WORKING, **state}, resultType="task")
    assert error_of(await client.get())["code"] == "UpstreamCallError"


async def test_members_that_are_null_are_absent(stage: Stage, client: Client) -> None:
    tell(stage, await called(stage, client), {**WORKING, "inputRequests": None}, resultType="task")
    tell(stage, await stage.alpha.wait_sent(2), WORKING, inputRequests=None, error=None, result=None)
    tell(stage, await stage.alpha.wait_sent(3), DONE)
    assert (await client.get())["result"] == RESULT


@pytest.mark.parametrize(
    "result",
    [{"resultType": "input_required", "inputRequests": UNSAFE}, {**WORKING, "resultType": "task"}, "text"],
)
async def test_the_result_of_a_task_is_final(stage: Stage, client: Client, result: object) -> None:
    await begun(stage, client, _meta=PLAIN)
    tell(stage, await stage.alpha.wait_sent(2), DONE, result=result)
    assert error_of(await client.get())["code"] == "UpstreamCallError"


async def test_a_question_that_no_client_can_be_asked_ends_the_call(stage: Stage, client: Client) -> None:
    await begun(stage, client, _meta=PLAIN)
    what = {"what": {"method": "tools/call", "params": {}}}
    tell(stage, await stage.alpha.wait_sent(2), ASKING, inputRequests=what)
    told = error_of(await client.get())
    assert (told["code"], told["method"]) == ("InputRefused", "tools/call")


async def test_a_refused_poll_shows_no_secret(stage: Stage, client: Client) -> None:
    stage.context.redact.hide([SECRET])
    await begun(stage, client)
    refusal = {"code": -32000, "message": f"bad key {SECRET}"}
    stage.refuse(await stage.alpha.wait_sent(2), json.dumps(refusal).encode())
    assert SECRET not in error_of(await client.get())["message"]


@pytest.mark.parametrize(
    ("hidden", "error"),
    [
        (SECRET, {"code": -32000, "message": f"bad key {SECRET}"}),
        (OPENS["url"], {"code": -32042, "message": "Open it.", "data": {"elicitations": [OPENS]}}),
    ],
)
async def test_the_error_of_a_task_is_safe(stage: Stage, polling: Client, hidden: str, error: object) -> None:
    stage.context.redact.hide([SECRET])
    task = await handed_out(stage, polling)
    told = json.dumps(await told_of(stage, polling, task, 2, WORKING, status="failed", error=error))
    assert ('"error"' in told, hidden in told) == (True, False)


async def test_an_unsafe_question_for_a_listener_is_noted(stage: Stage, nursery: trio.Nursery) -> None:
    noted = list[Event]()
    stage.context = msgspec.structs.replace(stage.context, subscribers=ConnectedClients(noted.append))
    client = (await greeted(stage, nursery)).client
    await listening(client, await handed_out(stage, client))
    tell(stage, await stage.alpha.wait_sent(2), ASKING, inputRequests=UNSAFE)
    await trio.testing.wait_all_tasks_blocked()
    assert [event.kind for event in noted] == [EventKind.QUESTION_REFUSED]


async def test_a_huge_interval_is_bounded_for_a_call(stage: Stage, client: Client) -> None:
    tell(stage, await called(stage, client), WORKING, resultType="task", pollIntervalMs=HUGE)
    assert method_of(await stage.alpha.wait_sent(2))[0] == "tasks/get"


async def test_a_huge_interval_is_bounded_for_a_listener(stage: Stage, polling: Client) -> None:
    await listening(polling, await handed_out(stage, polling))
    tell(stage, await stage.alpha.wait_sent(2), WORKING, pollIntervalMs=HUGE)
    assert (await polling.get())["method"] == "notifications/tasks"
    await trio.sleep(31)
    assert methods(stage) == ["tools/call", "tasks/get", "tasks/get"]


async def test_a_task_of_a_repeated_id_ends(stage: Stage, polling: Client, nursery: trio.Nursery) -> None:
    await listening(polling, await handed_out(stage, polling))
    tell(stage, await stage.alpha.wait_sent(2), WORKING)
    stranger = (await stage.connect(nursery)).client
    await stranger.call("alpha", "echo", {"x": 1}, _meta=META)
    tell(stage, await stage.alpha.wait_sent(3), WORKING, resultType="task")
    await stranger.get()
    # The listener's next poll would get the state of the stranger's task.
    await trio.sleep(10)
    assert len(stage.alpha.sent) == 3


# --- servers that are away ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Overloaded("the line is full"), SILENT])
async def test_a_poll_without_an_answer_is_repeated(stage: Stage, client: Client, error: CallError) -> None:
    await begun(stage, client)
    stage.lose(await stage.alpha.wait_sent(2), error)
    assert method_of(await stage.alpha.wait_sent(3))[0] == "tasks/get"


async def test_a_call_whose_task_is_lost_was_sent(stage: Stage, client: Client) -> None:
    await begun(stage, client)
    tell(stage, await stage.alpha.wait_sent(2), WORKING)
    stage.alpha.up = False
    told = error_of(await client.get())
    assert (told["code"], "was not sent" in told["message"]) == ("UpstreamLost", False)


async def test_answers_that_do_not_reach_the_server_are_sent_again(remote: Stage, away: Client) -> None:
    await begun(remote, away)
    tell(remote, await remote.alpha.wait_sent(2), ASKING)
    await answer(away)
    remote.lose(await remote.alpha.wait_sent(3), DOWN)
    update = ("tasks/update", {"taskId": "theirs", "inputResponses": {"who": ACCEPTED}})
    assert method_of(await remote.alpha.wait_sent(4)) == update


async def test_a_login_does_not_replay_a_call_that_became_a_task(
    remote: Stage, away: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hand(call: Any, error: CallError) -> bool:
        # As after a login: the call is decided again.
        call.calls.act_after(call, trio.lowlevel.checkpoint)
        return True

    monkeypatch.setattr("daemon.clients.dispatch.hand_link", hand)
    await begun(remote, away)
    tell(remote, await remote.alpha.wait_sent(2), ASKING)
    await answer(away)
    lacks_login = UpstreamUnavailable("a login is needed", server="alpha", cause="needs-auth")
    remote.lose(await remote.alpha.wait_sent(3), lacks_login)
    await trio.sleep(3)
    assert methods(remote).count("tools/call") == 1


@pytest.mark.parametrize("in_flight", [False, True])
async def test_a_server_that_a_reload_replaces_is_polled_on(
    remote: Stage, away: Client, in_flight: bool
) -> None:
    await begun(remote, away)
    old, get = remote.alpha, await remote.alpha.wait_sent(2) if in_flight else None
    new = remote.upstreams["alpha"] = FakeUpstream("alpha")
    new.is_modern, old.up, old.is_gone = True, False, True
    if get is not None:
        remote.lose(get, DOWN)
    tell(remote, await new.wait_sent(), DONE)
    assert (await away.get())["result"] == RESULT


async def test_a_server_that_a_reload_removes_fails_the_call(remote: Stage, away: Client) -> None:
    await begun(remote, away)
    old, get = remote.alpha, await remote.alpha.wait_sent(2)
    del remote.upstreams["alpha"]
    old.up, old.is_gone = False, True
    remote.lose(get, DOWN)
    assert error_of(await away.get())["code"] == "UpstreamLost"


@pytest.mark.parametrize("state", [ASKING, {**DONE, "result": {"text": "x" * 9000}}])
async def test_a_task_lost_without_a_kept_result_has_failed(stage: Stage, polling: Client, state: Any) -> None:
    task = await handed_out(stage, polling)
    await told_of(stage, polling, task, 2, state)
    stage.context.subscribers.lost("alpha")
    await about(polling, "tasks/get", task)
    told = (await polling.get())["result"]
    assert (told["status"], "inputRequests" in told, "result" in told) == ("failed", False, False)


async def test_the_kept_result_of_a_lost_task_is_converted(stage: Stage, polling: Client) -> None:
    task = await handed_out(stage, polling)
    stage.context.subscribers.tasks._known[task].convert = lambda _result: b'{"converted":true}'
    told = await told_of(stage, polling, task, 2, DONE)
    stage.context.subscribers.lost("alpha")
    await about(polling, "tasks/get", task)
    assert [each["result"]["result"] for each in (told, await polling.get())] == [{"converted": True}] * 2


async def test_a_result_that_mcpd_has_polled_for_is_converted(stage: Stage, guest: Guest) -> None:
    await begun(stage, guest.client)
    guest.session.calls.open[b"1"].convert = lambda _result: b'{"converted":true}'
    tell(stage, await stage.alpha.wait_sent(2), DONE)
    assert (await guest.client.get())["result"] == {"converted": True}


async def test_a_task_at_a_server_that_is_no_child_outlives_its_connection(
    remote: Stage, away: Client, nursery: trio.Nursery
) -> None:
    polling = (await remote.connect(nursery)).client
    task, clients = await handed_out(remote, polling), remote.context.subscribers
    clients.lost("alpha")
    assert (await told_of(remote, polling, task, 2, WORKING))["result"]["status"] == "working"
    clients.gone("alpha")
    await about(polling, "tasks/get", task)
    assert (await polling.get())["result"]["status"] == "failed"


@pytest.mark.parametrize(
    ("made", "asks", "finds"),
    [
        (("a", None), ("a", None), True),
        (("a", None), ("b", None), False),
        (("a", None), ("b", "k"), False),
        (("a", None), ("a", "k"), False),
        (("a", "k"), ("a", "k"), True),
    ],
)
async def test_over_http_the_token_or_the_session_finds_a_task(
    stage: Stage, nursery: trio.Nursery, made: Any, asks: Any, finds: bool
) -> None:
    stage.alpha.is_modern = True

    async def connected(token: str) -> Client:
        principal = Principal(owner=f"token {token}: ", token=token, keeps=False)
        return (await stage.connect(nursery, principal)).client

    def meta(key: str | None) -> dict[str, Any]:
        return {**META, SESSION_KEY: key} if key else META

    task = await handed_out(stage, await connected(made[0]), meta(made[1]))
    asking = await connected(asks[0])
    await asking.ask("tasks/get", {"taskId": task, "_meta": meta(asks[1])})
    if finds:
        tell(stage, await stage.alpha.wait_sent(2), DONE)
    assert ("result" in await asking.get()) is finds


@pytest.mark.parametrize("is_asked", [False, True])
async def test_a_server_whose_task_mcpd_polls_is_in_use(stage: Stage, client: Client, is_asked: bool) -> None:
    if is_asked:
        await asked(stage, client)
    else:
        await begun(stage, client, _meta=PLAIN)
        await stage.alpha.wait_sent(2)
    assert stage.context.subscribers.uses("alpha")


async def test_a_task_that_its_client_cancels_keeps_no_server_in_use(stage: Stage, polling: Client) -> None:
    task = await handed_out(stage, polling)
    await about(polling, "tasks/cancel", task)
    tell(stage, await stage.alpha.wait_sent(2), {"resultType": "complete"})
    await polling.get()
    assert not stage.context.subscribers.uses("alpha")


async def test_a_result_that_only_the_server_keeps_keeps_it_up_until_the_task_expires(
    stage: Stage, polling: Client
) -> None:
    task, uses = await handed_out(stage, polling), stage.context.subscribers.uses
    for number, length in ((2, 9), (3, 9000)):
        await told_of(stage, polling, task, number, {**DONE, "result": {"text": "x" * length}})
        assert uses("alpha") is (length > 8192)
    await trio.sleep(61)
    assert not uses("alpha")


# --- clients that are asked, and cancel ---------------------------------------------------------------------


async def test_a_call_for_a_task_is_polled_at_a_modern_server(stage: Stage, client: Client) -> None:
    stage.refuse(await called(stage, client, task={"ttl": 1000}), NEEDS_TASKS)
    tell(stage, await stage.alpha.wait_sent(2), WORKING, resultType="task")
    tell(stage, await stage.alpha.wait_sent(3), DONE)
    assert (await client.get())["result"] == RESULT


async def test_a_call_for_a_task_is_asked_in_the_servers_name(stage: Stage, client: Client) -> None:
    asks = {"resultType": "input_required", "inputRequests": ASKING["inputRequests"]}
    tell(stage, await called(stage, client, task={"ttl": 1000}), asks)
    assert (await client.get())["params"]["message"] == NAMED


async def test_a_task_of_an_instance_gets_the_workspace_of_a_client_without_roots(
    stage: Stage, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage.alpha.roots = b'{"roots":[{"uri":"file:///work"}]}'
    capabilities: dict[str, object] = {"elicitation": {}}
    client = (await greeted(stage, nursery, capabilities)).client
    await begun(stage, client, _meta={**MODERN, CAPABILITIES_KEY: capabilities})
    tell(stage, await stage.alpha.wait_sent(2), ASKING, inputRequests={"where": {"method": "roots/list"}})
    given = {"where": {"roots": [{"uri": "file:///work"}]}}
    update = ("tasks/update", {"taskId": "theirs", "inputResponses": given})
    assert method_of(await stage.alpha.wait_sent(3)) == update


async def test_a_task_that_refuses_answers_is_polled_once_more(stage: Stage, client: Client) -> None:
    await begun(stage, client)
    tell(stage, await stage.alpha.wait_sent(2), ASKING)
    await answer(client)
    stage.refuse(await stage.alpha.wait_sent(3), b'{"code":-32602,"message":"the task has ended"}')
    get = await stage.alpha.wait_sent(4)
    assert method_of(get)[0] == "tasks/get"
    tell(stage, get, DONE)
    assert (await client.get())["result"] == RESULT


async def test_a_retry_goes_to_no_other_daemon(stage: Stage, guest: Guest) -> None:
    await retried(guest.client, await asked(stage, guest.client))
    await stage.alpha.wait_sent(3)
    assert guest.session.calls.give_back() == []


async def test_a_retry_cancelled_at_once_cancels_the_task(stage: Stage, client: Client) -> None:
    state = await asked(stage, client)
    arguments = {"category": "alpha", "name": "echo", "args": {"x": 1}}
    given = {"_meta": PLAIN, "inputResponses": {"who": ACCEPTED}, "requestState": state}
    params = {"name": "call-category-tool", "arguments": arguments, **given}
    retry = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    await client.send(retry, cancel)
    assert method_of(await stage.alpha.wait_sent(3))[0] == "tasks/cancel"


async def test_a_call_cancelled_as_it_becomes_a_task_cancels_the_task(stage: Stage, guest: Guest) -> None:
    await begun(stage, guest.client)
    guest.session.calls.cancel(b"1")
    assert method_of(await stage.alpha.wait_sent(2))[0] == "tasks/cancel"


# --- listeners ----------------------------------------------------------------------------------------------


async def test_a_silent_server_holds_up_no_other_for_a_listener(stage: Stage, polling: Client) -> None:
    await listening(polling, *await two_tasks(stage, polling))
    await stage.alpha.wait_sent(2)
    await stage.upstreams["beta"].wait_sent(2)


async def test_each_task_of_a_listener_is_polled_at_its_own_interval(stage: Stage, polling: Client) -> None:
    tasks, beta = await two_tasks(stage, polling, pollIntervalMs=20_000), stage.upstreams["beta"]
    always_working(stage, stage.alpha)
    always_working(stage, beta, pollIntervalMs=20_000)
    await listening(polling, *tasks)
    await trio.sleep(19)
    assert len(beta.sent) == 2
    assert len(stage.alpha.sent) == pytest.approx(20, abs=1)


async def test_a_listener_acknowledged_late_is_polled_for_soon(stage: Stage, polling: Client) -> None:
    task = await handed_out(stage, polling)
    stage.offers("alpha", Kind.RESOURCE, "file:///x")
    stage.alpha.has_resources = True
    # The server never answers that its resource is followed.
    await listening(polling, task, resourceSubscriptions=["file:///x"])
    await in_time(stage.alpha.wait_sent(2), 3)


async def test_a_listener_that_comes_again_is_polled_for_once(stage: Stage, polling: Client) -> None:
    task = await handed_out(stage, polling)
    always_working(stage, stage.alpha)
    await listening(polling, task)
    await polling.get()
    await polling.tell("notifications/cancelled", {"requestId": 9})
    await listening(polling, task)
    before = len(stage.alpha.sent)
    await trio.sleep(10)
    assert len(stage.alpha.sent) - before <= 11


async def test_a_listener_that_has_cancelled_is_told_nothing_more(stage: Stage, polling: Client) -> None:
    await listening(polling, await handed_out(stage, polling))
    sent = await stage.alpha.wait_sent(2)
    await polling.tell("notifications/cancelled", {"requestId": 9})
    assert (await polling.request("ping", {"_meta": META}, request_id=10))["id"] == 10
    tell(stage, sent, DONE)
    await trio.testing.wait_all_tasks_blocked()
    assert (await polling.request("ping", {"_meta": META}, request_id=11))["id"] == 11


async def test_an_expired_task_is_not_polled_for_a_listener(stage: Stage, polling: Client) -> None:
    task = await handed_out(stage, polling)
    always_working(stage, stage.alpha)
    await listening(polling, task)
    await trio.sleep(61)
    before = len(stage.alpha.sent)
    await trio.sleep(30)
    assert len(stage.alpha.sent) == before


async def test_a_server_may_keep_a_task_for_longer(stage: Stage, polling: Client) -> None:
    task = await handed_out(stage, polling)
    for number in (2, 3):
        await trio.sleep(50)
        told = await told_of(stage, polling, task, number, WORKING, ttlMs=600_000)
        assert told["result"]["status"] == "working"
