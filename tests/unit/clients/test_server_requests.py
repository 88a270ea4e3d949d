"""What servers ask of one client: how it reaches the client, and how the answer gets back."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from loguru import logger
from msgspec import Raw

from daemon.clients import server_requests
from daemon.errors import UpstreamLost
from daemon.safety.redact import CUT, HIDDEN, SHOWN, Redactor
from daemon.wire.requests import PeerRequest
from tests.fakes_upstream import Client, Stage
from tests.unit.cases import cases
from tests.unit.clients.asking import FORM, answer, asks, called, greeted, on_full_surface, question
from tests.unit.clients.inputs import raw
from tests.unit.wire.test_peer_requests import Noted

PASSWORD = "c4nary-in-the-coal-mine"


@pytest.fixture
def stage() -> Stage:
    return on_full_surface()


@pytest.fixture
async def client(stage: Stage, nursery: trio.Nursery) -> Client:
    """A client that can be asked anything, and whose call is at the server."""
    client = (await greeted(stage, nursery)).client
    await called(stage, client)
    return client


async def test_a_request_and_its_answer_pass_untouched(stage: Stage, client: Client) -> None:
    asked = asks(stage, "elicitation/create", {**FORM, "x-vendor": {"a": [1.5]}})
    got = await client.get()
    assert got["method"] == "elicitation/create"
    assert got["params"] == {**FORM, "x-vendor": {"a": [1.5]}}
    await answer(client, got["id"], b'{ "action":"accept", "x":1.50 }')
    assert asked.back.said == [("result", b'{ "action":"accept", "x":1.50 }')]


@cases("line", "kind", "told", raw={"line"})
async def test_answers_of_the_wrong_shape_are_errors_to_the_server_and_harm_nobody(
    stage: Stage, client: Client, line: bytes, kind: str, told: str
) -> None:
    asked = asks(stage, "elicitation/create", FORM)
    uid = (await client.get())["id"]
    # A call of the client with the very id of the server's request must not be hit.
    await called(stage, client, request_id=uid)
    await client.send(b'{"jsonrpc":"2.0","id":%d,%b}' % (uid, line))
    await trio.testing.wait_all_tasks_blocked()
    ((found, *rest),) = asked.back.said
    assert found == kind
    assert told in str(rest)
    stage.answer(stage.alpha.sent[1])
    answered = await client.get()
    assert (answered["id"], answered["result"]) == (uid, {"content": []})


async def test_answers_that_come_twice_or_to_nothing_are_dropped(stage: Stage, client: Client) -> None:
    asked = asks(stage, "roots/list")
    uid = (await client.get())["id"]
    for number in (99, uid, uid, uid):
        await answer(client, number, {"roots": []})
    await client.send(b'{"jsonrpc":"2.0","id":"%d","result":{}}' % uid)
    assert asked.answers == [("result", {"roots": []})]
    assert (await client.request("ping", request_id=5))["result"] == {}


async def test_an_answer_over_the_limit_is_an_error_to_the_server(stage: Stage, client: Client) -> None:
    asked = asks(stage, "sampling/createMessage", {"messages": []})
    uid = (await client.get())["id"]
    await answer(client, uid, {"content": "x" * (1 << 21)})
    ((kind, code, text, _),) = asked.back.said
    assert (kind, code) == ("refused", -32603)
    assert "over the limit" in text
    assert (await client.request("ping", request_id=5))["result"] == {}


async def test_a_client_that_cannot_is_not_asked(stage: Stage, nursery: trio.Nursery) -> None:
    client = (await greeted(stage, nursery, {"sampling": {}})).client
    await called(stage, client)
    assert asks(stage, "elicitation/create", FORM).answers == [("result", {"action": "decline"})]
    assert asks(stage, "roots/list").answers == [("refused", -32601)]
    assert asks(stage, "sampling/createMessage", {"tools": []}).answers == [("refused", -32601)]
    asks(stage, "sampling/createMessage", {"messages": []})
    assert (await client.get())["method"] == "sampling/createMessage"


async def test_progress_of_the_client_goes_to_the_server_by_its_token(stage: Stage, client: Client) -> None:
    params = {"messages": [], "_meta": {"progressToken": "theirs", "vendor": 1}}
    asked = asks(stage, "sampling/createMessage", params)
    got = await client.get()
    assert got["params"] == {"messages": [], "_meta": {"progressToken": got["id"], "vendor": 1}}
    await client.tell("notifications/progress", {"progressToken": got["id"], "progress": 0.5, "message": "m"})
    await answer(client, got["id"], {})
    (kind, report), ended = asked.back.said
    assert (kind, ended) == ("progress", ("result", b"{}"))
    assert {key: bytes(value) for key, value in report.items()} == {
        "progressToken": b'"theirs"',
        "progress": b"0.5",
        "message": b'"m"',
    }


async def test_a_request_that_wants_no_progress_gets_none(stage: Stage, client: Client) -> None:
    asked = asks(stage, "sampling/createMessage", {"_meta": "progressToken"})
    uid = (await client.get())["id"]
    await client.tell("notifications/progress", {"progressToken": uid, "progress": 1})
    await answer(client, uid, {})
    assert asked.answers == [("result", {})]


@pytest.mark.parametrize("end", ["withdraw", "end"])
async def test_the_client_is_told_that_no_answer_is_wanted(stage: Stage, client: Client, end: str) -> None:
    asked = asks(stage, "roots/list")
    uid = (await client.get())["id"]
    getattr(asked.request, end)("because")
    stage.outbox.flush()
    told = await client.get()
    assert told["method"] == "notifications/cancelled"
    assert told["params"] == {"requestId": uid, "reason": "because"}
    await answer(client, uid, {"roots": []})
    assert len(asked.back.said) == (end == "end")


async def test_a_client_that_hangs_up_leaves_no_server_waiting(stage: Stage, nursery: trio.Nursery) -> None:
    guest = await greeted(stage, nursery)
    await called(stage, guest.client)
    asked = asks(stage, "roots/list")
    await guest.client.get()
    guest.client.close()
    await guest.ended.wait()
    ((kind, code, _, _),) = asked.back.said
    assert (kind, code) == ("refused", -32603)


async def test_one_server_has_few_places_before_a_client(stage: Stage, client: Client) -> None:
    exchange = stage.alpha.sent[0].exchange
    for server in range(server_requests.MAX_OPEN // server_requests.MAX_OF_SERVER):
        for _ in range(server_requests.MAX_OF_SERVER):
            exchange.asked(question("roots/list", server=f"s{server}").request)
        flood = question("roots/list", server=f"s{server}")
        exchange.asked(flood.request)
        assert f"{server_requests.MAX_OF_SERVER} requests of this server" in str(flood.back.said)
    refused = question("roots/list", server="another")
    exchange.asked(refused.request)
    assert f"{server_requests.MAX_OPEN} requests are open at this client" in str(refused.back.said)
    stage.outbox.flush()
    await answer(client, (await client.get())["id"], {"roots": []})
    again = question("roots/list", server="s0")
    exchange.asked(again.request)
    assert again.request.is_open


async def test_a_password_that_a_user_enters_is_seen_by_its_server_alone(
    stage: Stage, client: Client, collected: Callable[[], str]
) -> None:
    schema = {"type": "object", "properties": {"password": {"type": "string", "format": "password"}}}
    asked = asks(stage, "elicitation/create", {"message": "Log in", "requestedSchema": schema})
    got = await client.get()
    assert got["params"]["requestedSchema"] == schema
    await answer(client, got["id"], {"action": "accept", "content": {"password": PASSWORD}})
    assert asked.answers == [("result", {"action": "accept", "content": {"password": PASSWORD}})]
    for wrong in (f'"{PASSWORD}"', f'{{"a":"{PASSWORD}"', f'{{}},"error":"{PASSWORD}"', f'"{PASSWORD}\\ud800"'):
        mangled = asks(stage, "elicitation/create", FORM)
        uid = (await client.get())["id"]
        await client.send(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (uid, wrong.encode()))
        await trio.testing.wait_all_tasks_blocked()
        assert PASSWORD not in str(mangled.back.said)
        assert PASSWORD not in repr(mangled.request)
    stage.lose(stage.alpha.sent[0], UpstreamLost("it has gone"))
    assert PASSWORD not in str(await client.get())
    assert PASSWORD not in collected() + str(stage.log.notes)


@pytest.fixture
def collected() -> Any:
    """What was logged, at every level."""
    lines: list[str] = []
    sink = logger.add(lines.append, level=0, format="{message} {extra} {exception}")
    yield lambda: "".join(lines)
    logger.remove(sink)


@cases("declared", "method", "params", "lacks")
def test_what_a_client_lacks(declared: Any, method: str, params: Any, lacks: str) -> None:
    request = PeerRequest(method, None if params is None else raw(params), Noted())
    assert server_requests.lacking(raw(declared), request) == lacks


def test_what_is_declared_can_be_asked_for_by_name() -> None:
    assert server_requests.has(raw({"roots": {}}), "roots")
    assert server_requests.has(raw({"elicitation": {"url": {}}}), "elicitation", "url")
    assert not server_requests.has(raw({"elicitation": {}}), "elicitation", "url")
    assert not server_requests.has(Raw(b"[]"), "roots")


def test_a_long_declaration_is_neither_read_nor_kept_and_declares_nothing() -> None:
    long = raw({"roots": {}, "x": "x" * server_requests.MAX_DECLARED})
    assert server_requests.lacking(long, PeerRequest("roots/list", None, Noted())) == "roots"
    assert not server_requests.has(long, "roots")
    kept = server_requests._answerable.cache_info().currsize
    assert server_requests.answerable(bytes(long)) == frozenset()
    assert server_requests._answerable.cache_info().currsize == kept
    assert "roots/list" in server_requests.answerable(b'{"roots":{}}')


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ('{"key":"s3cret"}', {"key": HIDDEN}),
        (r'{"key":"s3\u0063ret"}', {"key": HIDDEN}),
        # What looks like a credential may take a bracket with it: then it is shown as text.
        ('{"token":5}', f'{{"token":{HIDDEN}'),
        ("[" + "0," * SHOWN + "0]", "[" + ("0," * SHOWN)[: SHOWN - 1] + CUT),
    ],
)
def test_the_data_of_an_error_are_shown_without_secrets(data: str, shown: object) -> None:
    said = server_requests.read_refusal(
        b'{"code":1,"message":"m","data":%b}' % data.encode(), Redactor(["s3cret"])
    )
    assert said.details["upstream"] == {"code": 1, "message": "m", "data": shown}


def test_a_message_as_long_as_may_be_is_cut_and_says_so() -> None:
    said = server_requests.read_refusal(
        b'{"code":1,"message":"%b"}' % (b"s3cret " * 1_000_000), Redactor(["s3cret"])
    )
    assert "s3c" not in said.message
    assert len(said.message) < 2 * SHOWN
    assert f"{CUT} (1)" in said.message


@cases("code", "others", "concerns")
def test_only_what_a_client_can_mend_is_its_error(code: int, others: dict[str, str], concerns: bool) -> None:
    brought = {key: Raw(value.encode()) for key, value in others.items()}
    assert server_requests.concerns_client(b'{"code":%d,"message":"m"}' % code, brought) is concerns
