"""Calls of clients of MCP 2026-07-28 that wait for their input, over the connections that they come in by."""

import json
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
from msgspec import Raw
from trio.testing import MockClock

from daemon.clients import input_required
from daemon.clients.asking import MAX_ASKED, MAX_COMPARED
from daemon.clients.client import Principal
from daemon.clients.kept_results import KeptResults
from daemon.errors import UpstreamUnavailable
from daemon.model import Kind
from daemon.protocol import CAPABILITIES_KEY, SESSION_KEY
from daemon.surfaces.surface import Forward
from daemon.wire.requests import PeerRequest
from tests.fakes_upstream import Client, Guest, Sent, Stage, error_of
from tests.unit.cases import cases
from tests.unit.clients.inputs import ACCEPTED, ANSWERS, CARRIED, META, QUESTION, ROOTS, Told, asks, raw
from tests.waiting import PATIENCE

WEB = Principal(owner="token ci: ", token="ci", keeps=False)
"""A client over HTTP, whose next request may come in by another connection."""


async def called(stage: Stage, client: Client, *, request_id: object = 1, **params: Any) -> Sent:
    """A call that has reached its server."""
    count = len(stage.alpha.sent)
    await client.call("alpha", "echo", {"x": 1}, request_id=request_id, **{"_meta": META, **params})
    return await stage.alpha.wait_sent(count + 1)


async def required(client: Client, request_id: object = 1) -> tuple[dict[str, Any], str]:
    """What the client is asked instead of being answered, by key, and the state."""
    message = await client.get()
    assert message["id"] == request_id, message
    result = message["result"]
    assert (result["resultType"], result.keys() - {"inputRequests", "requestState"}) == (
        "input_required",
        {"resultType"},
    )
    return result["inputRequests"], result["requestState"]


async def again(
    client: Client, state: str, responses: object = None, *, request_id: object = 2, **params: Any
) -> None:
    """The same call again, with its state and what it answers."""
    more: dict[str, Any] = {"requestState": state, "_meta": META, **params}
    if responses is not None:
        more["inputResponses"] = responses
    await client.call("alpha", "echo", more.pop("args", {"x": 1}), request_id=request_id, **more)


@attrs.frozen
class Parked:
    """A call whose server asks, and what its client is asked instead of being answered."""

    stage: Stage
    client: Client
    sent: Sent
    request: PeerRequest
    told: Told
    requests: dict[str, Any]
    state: str

    async def goes_on(self, **params: Any) -> None:
        """The client comes back and has accepted."""
        await again(self.client, self.state, dict.fromkeys(self.requests, ACCEPTED), **params)


async def parked(nursery: trio.Nursery, **written: Any) -> Parked:
    """A client's call, parked."""
    stage = Stage(**written)
    client = await stage.client(nursery)
    sent = await called(stage, client)
    return Parked(stage, client, sent, *asks(stage, sent), *(await required(client)))


async def refused(client: Client, request_id: object = 2) -> None:
    """The one way in which a state is refused."""
    message = await client.get()
    assert message["id"] == request_id
    assert message["error"]["code"] == -32602
    assert message["error"]["data"] == {"code": "UnknownRequestState"}


async def until(holds: Callable[[], object]) -> None:
    """Wait for what another task does."""
    with trio.fail_after(PATIENCE):
        while not holds():
            await trio.lowlevel.checkpoint()


async def accepted(told: Told) -> None:
    """The server is told what the client has accepted."""
    await until(lambda: told.count)
    assert told.results == [ACCEPTED]


@pytest.fixture
async def call(nursery: trio.Nursery) -> Parked:
    return await parked(nursery)


async def test_a_call_is_parked_and_goes_on_with_the_answer(stage: Stage, guest: Guest) -> None:
    client = guest.client
    sent = await called(stage, client)
    _, told = asks(stage, sent)
    requests, state = await required(client)
    assert list(requests.values()) == [{"method": "elicitation/create", "params": QUESTION}]
    assert state.startswith(input_required.PREFIX)
    assert guest.session.in_flight == 0
    await again(client, state, dict.fromkeys(requests, ACCEPTED))
    await accepted(told)
    assert guest.session.in_flight == 1
    stage.answer(sent, b'{"content":[]}')
    assert await client.get() == {
        "jsonrpc": "2.0",
        "id": 2,
        "result": {"resultType": "complete", "content": []},
    }
    assert (len(stage.alpha.sent), len(stage.context.states), stage.alpha.cancelled) == (1, 0, [])
    # One call, told of once.
    assert [(label, outcome) for _, label, _, outcome in stage.log.notes] == [("alpha/echo", "ok")]


async def test_a_large_result_of_a_parked_call_is_kept_as_any(nursery: trio.Nursery, tmp_path: Path) -> None:
    call = await parked(nursery, profiles={"default": {"results": {"maxTokens": 500}}})
    msgspec.structs.force_setattr(call.stage.context, "results", KeptResults(tmp_path))
    whole = {"content": [{"type": "text", "text": "some words\n" * 900}]}
    call.stage.answer(call.sent, json.dumps(whole).encode())
    await call.goes_on()
    content = (await call.client.get())["result"]["content"]
    assert "this result is too long for a context" in content[1]["text"]
    results = call.stage.context.results
    ((found,),) = results._opened().execute("SELECT result FROM kept")
    assert json.loads(found) == whole


@pytest.mark.parametrize("method", ANSWERS)
async def test_all_that_a_client_is_asked_keeps_its_bytes(stage: Stage, client: Client, method: str) -> None:
    sent = await called(stage, client)
    params = None if method == "roots/list" else {"message": "é", "n": 1.10, "x": {"b": 1, "a": 2}}
    _, told = asks(stage, sent, method, params)
    line = await client.line()
    wanted = b"{}" if params is None else json.dumps(params).encode()
    assert b'{"method":"%b","params":%b}' % (method.encode(), wanted) in line
    result = json.loads(line)["result"]
    await again(client, result["requestState"], dict.fromkeys(result["inputRequests"], ANSWERS[method]))
    await until(lambda: told.count)
    assert told.results == [ANSWERS[method]]


async def test_what_is_asked_while_a_call_is_parked_comes_in_the_next_round(call: Parked) -> None:
    _, second = asks(call.stage, call.sent, "roots/list", None)
    _, third = asks(call.stage, call.sent)
    await call.goes_on()
    more, next_state = await required(call.client, 2)
    assert next_state != call.state
    assert [each["method"] for each in more.values()] == ["roots/list", "elicitation/create"]
    assert not call.requests.keys() & more.keys()
    roots, question = more
    await again(call.client, next_state, {roots: ROOTS, question: {"action": "cancel"}}, request_id=3)
    await until(lambda: third.count)
    assert (call.told.results, second.results, third.results) == ([ACCEPTED], [ROOTS], [{"action": "cancel"}])
    call.stage.answer(call.sent)
    assert (await call.client.get())["id"] == 3


async def test_what_a_server_takes_back_is_not_asked_again(call: Parked) -> None:
    call.request.withdraw("the server has cancelled it")
    await again(call.client, call.state, {})
    await trio.testing.wait_all_tasks_blocked()
    call.stage.answer(call.sent)
    message = await call.client.get()
    assert (message["id"], "inputRequests" in message["result"]) == (2, False)
    assert not call.told.count


@pytest.mark.parametrize(
    "responses", [None, {}, {"else": ACCEPTED}, "{wrong}", {"KEY": 12345}, {"KEY": {"action": "maybe"}}]
)
async def test_what_is_not_answered_is_asked_again(call: Parked, responses: Any) -> None:
    (key,) = call.requests
    given = {key: {"action": 7}} if responses == "{wrong}" else responses
    if isinstance(given, dict) and "KEY" in given:
        given = {key: given["KEY"]}
    await again(call.client, call.state, given)
    same, next_state = await required(call.client, 2)
    assert same == call.requests
    await again(call.client, next_state, {key: ACCEPTED, "else": 7}, request_id=3)
    await accepted(call.told)


@pytest.mark.parametrize("responses", [[], "x", 5])
async def test_answers_that_are_no_object_are_refused(call: Parked, responses: object) -> None:
    await again(call.client, call.state, responses)
    assert (await call.client.get())["error"]["code"] == -32602
    await call.goes_on(request_id=3)
    await accepted(call.told)


# --- states that are not good ------------------------------------------------------------------------------


async def test_a_state_is_refused_in_one_way_whatever_is_wrong_with_it(
    stage: Stage, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    client, stranger = await stage.client(nursery), await stage.client(nursery)
    sent = await called(stage, client)
    _, told = asks(stage, sent)
    requests, state = await required(client)
    answers = dict.fromkeys(requests, ACCEPTED)
    lines = set()
    for who, given, more in (
        (client, input_required.PREFIX + "never", {}),
        (client, input_required.PREFIX, {}),
        (client, state + "x", {}),
        (stranger, state, {}),
        (client, state, {"args": {"x": 2}}),
        (client, state, {"_meta": {**META, SESSION_KEY: "mine"}}),
    ):
        await again(who, given, answers, **more)
        lines.add(await who.line())
    # A tool of another name, and one of mcpd's own.
    params = {"requestState": state, "inputResponses": answers, "_meta": META}
    for name, arguments in (
        ("call-category-tool", {"category": "beta", "name": "echo", "args": {"x": 1}}),
        ("get-category-tools", {"category": "alpha"}),
    ):
        await client.ask("tools/call", {"name": name, "arguments": arguments, **params}, request_id=2)
        lines.add(await client.line())
    assert not told.count, "a stranger's attempt changes nothing"
    await again(client, state, answers)
    await until(lambda: told.count)
    stage.answer(sent)
    assert (await client.get())["result"]["content"] == []
    await again(client, state, answers)  # used
    lines.add(await client.line())
    sent = await called(stage, client)
    asks(stage, sent)
    _, state = await required(client)
    await trio.sleep(input_required.TTL + 2)
    await again(client, state, answers)  # expired
    lines.add(await client.line())
    (line,) = lines
    error = json.loads(line)["error"]
    assert (error["code"], error["data"]) == (-32602, {"code": "UnknownRequestState"})
    assert {note[3] for note in stage.log.notes} == {"ok", "UnknownRequestState"}


@pytest.mark.parametrize(("size", "compared"), [(1, True), (MAX_COMPARED, False)])
async def test_arguments_may_be_written_differently_unless_they_are_long(
    stage: Stage, client: Client, size: int, compared: bool
) -> None:
    given: dict[str, Any] = {"a": "x" * size, "b": [1, 2]}
    await client.call("alpha", "echo", given, _meta=META)
    _, told = asks(stage, await stage.alpha.wait_sent())
    requests, state = await required(client)
    answers = dict.fromkeys(requests, ACCEPTED)
    await again(client, state, answers, args=dict(reversed(given.items())))
    if not compared:
        await refused(client)
        await again(client, state, answers, args=given)
    await accepted(told)


@pytest.mark.parametrize("state", ["v1.abc", "", "mcpd", None])
async def test_the_state_of_a_server_goes_to_it_as_it_is(
    stage: Stage, nursery: trio.Nursery, state: str | None
) -> None:
    stage.alpha.is_modern = True
    client = await stage.client(nursery)
    sent = await called(stage, client, requestState=state, inputResponses={"k": {"x": 1.10}}, more=[1])
    assert sent.members == {
        "requestState": state,
        "inputResponses": {"k": {"x": 1.1}},
        "more": [1],
        "name": "echo",
        "arguments": {"x": 1},
    }
    assert json.loads(sent.call.envelope[CAPABILITIES_KEY]) == CARRIED
    asked = b'{"resultType":"input_required","inputRequests":{},"requestState":"\\u0076"}'
    stage.answer(sent, asked)
    assert asked in await client.line()


async def test_a_request_for_a_prompt_is_parked(stage: Stage, nursery: trio.Nursery) -> None:
    stage.offers("alpha", Kind.PROMPT, "greet", "part")
    client = await stage.client(nursery)
    wanted: dict[str, Any] = {"name": "greet", "arguments": {"to": "Ada", "n": "1"}}
    await client.ask("prompts/get", {**wanted, "_meta": {**META, "progressToken": 1}})
    sent = await stage.alpha.wait_sent()
    _, told = asks(stage, sent)
    requests, state = await required(client)
    more = {"requestState": state, "inputResponses": dict.fromkeys(requests, ACCEPTED), "_meta": META}
    for other in ({"name": "part"}, {"arguments": {"to": "Eve", "n": "1"}}):
        await client.ask("prompts/get", {**wanted, **other, **more}, request_id=2)
        await refused(client)
    again = {"arguments": {"n": "1", "to": "Ada"}, "name": "greet"}
    await client.ask("prompts/get", {**more, **again}, request_id=3)
    await accepted(told)
    stage.answer(sent, b'{"messages":[]}')
    assert await client.get() == {
        "jsonrpc": "2.0",
        "id": 3,
        "result": {"resultType": "complete", "messages": []},
    }


# --- over HTTP, where a connection is no client ------------------------------------------------------------


async def test_a_client_over_http_may_change_its_connection(stage: Stage, nursery: trio.Nursery) -> None:
    guest, later = await stage.connect(nursery, WEB), await stage.connect(nursery, WEB)
    sent = await called(stage, guest.client)
    _, told = asks(stage, sent)
    requests, state = await required(guest.client)
    guest.client.close()
    await guest.ended.wait()
    assert not stage.alpha.cancelled
    await again(later.client, state, dict.fromkeys(requests, ACCEPTED))
    await until(lambda: told.count)
    assert later.session.in_flight == 1
    later.client.close()
    await later.ended.wait()
    assert stage.alpha.cancelled == [(sent.key, "the client is gone")]


@pytest.mark.parametrize(
    "principal",
    [Principal(owner="token ci: ", token="cd", keeps=False), Principal(owner="token cd: ", keeps=False)],
)
async def test_a_state_is_bound_to_its_token(stage: Stage, nursery: trio.Nursery, principal: Principal) -> None:
    guest, other = await stage.connect(nursery, WEB), await stage.connect(nursery, principal)
    asks(stage, await called(stage, guest.client))
    requests, state = await required(guest.client)
    await again(other.client, state, dict.fromkeys(requests, ACCEPTED))
    await refused(other.client)


async def test_a_session_is_one_client_over_all_its_connections(stage: Stage, nursery: trio.Nursery) -> None:
    other = Principal(owner="token cd: ", token="cd", keeps=False)
    askers = []
    for principal, key in [
        (WEB, "mine"),
        (WEB, "mine"),
        (WEB, "yours"),
        (other, "mine"),
        (WEB, None),
        (WEB, None),
    ]:
        meta = META if key is None else {**META, SESSION_KEY: key}
        guest = await stage.connect(nursery, principal)
        askers.append((await called(stage, guest.client, _meta=meta)).exchange.asker)
    assert askers[0] is askers[1]
    assert len(set(map(id, askers))) == len(askers) - 1


# --- whoever goes ------------------------------------------------------------------------------------------


async def test_an_answer_that_comes_while_its_call_is_parked_waits(call: Parked) -> None:
    call.stage.answer(call.sent, b'{"content":[],"n":1}')
    assert call.told.errors == [(-32600, "the call has ended")]
    call.stage.progress(call.sent, progress=1)
    await call.goes_on()
    assert (await call.client.get())["result"] == {"resultType": "complete", "content": [], "n": 1}
    assert not call.told.results
    assert not len(call.stage.context.states)
    assert [note[3] for note in call.stage.log.notes] == ["ok"]


async def test_progress_goes_to_the_waiting_request_under_its_token(stage: Stage, client: Client) -> None:
    sent = await called(stage, client, _meta={**META, "progressToken": "one"})
    stage.progress(sent, progress=1)
    assert (await client.get())["params"]["progressToken"] == "one"
    _, told = asks(stage, sent)
    requests, state = await required(client)
    stage.progress(sent, progress=2)  # nobody waits
    meta = {**META, "progressToken": "two"}
    await again(client, state, dict.fromkeys(requests, ACCEPTED), _meta=meta)
    await until(lambda: told.count)
    stage.progress(sent, progress=3)
    assert (await client.get())["params"] == {"progressToken": "two", "progress": 3}


# --- clients that cannot, and bounds -----------------------------------------------------------------------


async def test_a_server_that_asks_without_end_is_refused(stage: Stage, client: Client) -> None:
    sent = await called(stage, client)
    tolds: list[Told] = [asks(stage, sent)[1] for _ in range(MAX_ASKED + 1)]
    assert [told.count for told in tolds] == [0] * MAX_ASKED + [1]
    requests, state = await required(client)
    assert len(requests) == 1
    await again(client, state, dict.fromkeys(requests, ACCEPTED))
    more, _ = await required(client, 2)
    assert len(more) == MAX_ASKED - 1


async def test_one_server_keeps_so_many_calls_parked_and_no_more(nursery: trio.Nursery) -> None:
    assert input_required.MAX_OF_SERVER < input_required.MAX_OF_CLIENT
    stage = Stage()
    client = await stage.client(nursery)
    for number in range(input_required.MAX_OF_SERVER):
        asks(stage, await called(stage, client, request_id=number))
        await required(client, number)
    sent = await called(stage, client, request_id="last")
    _, told = asks(stage, sent)
    assert [code for code, _ in told.errors] == [-32600]
    # The call itself goes on.
    stage.answer(sent)
    assert (await client.get())["id"] == "last"


async def test_an_answer_that_is_too_much_to_keep_is_told_as_such(call: Parked) -> None:
    call.stage.answer(call.sent, b'{"content":[],"x":"%b"}' % (b"x" * input_required.MAX_HELD_BYTES))
    await call.goes_on()
    assert error_of(await call.client.get())["code"] == "RequestTooLarge"


class Waits(input_required.WaitingCall[None]):
    """A call that waits."""

    def __init__(
        self, owner: bytes = b"me", client: Hashable = 1, server: str | None = "s", held: int = 0
    ) -> None:
        self.ended: list[str] = []
        super().__init__(
            owner, client, lambda _retry, _given: True, self.ended.append, server=server, held=held
        )


async def test_a_state_is_good_for_its_owner_until_it_is_used() -> None:
    states, waits = input_required.RequestStates(), Waits()
    state = states.give(waits)
    assert state is not None
    assert state.startswith(input_required.PREFIX)
    assert states.find(state, b"me") is waits
    # Somebody else's attempt does not use it up.
    assert states.find(state, b"you") is None
    assert states.find(state, b"me") is waits
    states.use(state)
    assert states.find(state, b"me") is None
    assert not len(states)


async def test_no_two_states_are_alike_and_none_can_be_guessed() -> None:
    states = input_required.RequestStates()
    given = {states.give(Waits(client=number, server=str(number))) for number in range(500)}
    assert len(given) == 500
    assert all(state is not None and len(state) >= len(input_required.PREFIX) + 256 / 6 for state in given)


async def test_what_expires_is_given_up_once(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    states, first, second = input_required.RequestStates(), Waits(), Waits()
    flushed: list[float] = []
    nursery.start_soon(states.run, lambda: flushed.append(trio.current_time()))
    old = states.give(first)
    await trio.sleep(input_required.TTL / 2)
    new = states.give(second)
    assert old is not None
    assert new is not None
    await trio.sleep(input_required.TTL / 2)
    assert states.find(old, b"me") is None, "also before the next look"
    await trio.sleep(2)
    assert first.ended == [f"the client has not answered within {input_required.TTL:g} s"]
    assert flushed
    assert states.find(new, b"me") is second
    await trio.sleep(input_required.TTL)
    assert (len(first.ended), len(second.ended), len(states)) == (1, 1, 0)
    # Nothing is looked at while there is nothing; then again.
    count = len(flushed)
    await trio.sleep(100)
    assert len(flushed) == count
    states.give(first)
    await trio.sleep(input_required.TTL + 2)
    assert len(first.ended) == 2


async def test_there_are_so_many_of_a_client_of_a_server_and_in_all() -> None:
    states = input_required.RequestStates()
    for number in range(input_required.MAX_OF_CLIENT):
        assert states.give(Waits(client="a", server=f"s{number}"))
    assert states.give(Waits(client="a", server="other")) is None
    for number in range(input_required.MAX_OF_SERVER):
        assert states.give(Waits(client=f"c{number}", server="t"))
    assert states.give(Waits(client="b", server="t")) is None
    for number in range(input_required.MAX_STATES - len(states)):
        assert states.give(Waits(client=number, server=str(number)))
    assert states.give(Waits(client="new", server="new")) is None
    states.leave("a")
    assert states.give(Waits(client="new", server="new"))
    states = input_required.RequestStates()
    states.give(Waits(held=input_required.MAX_HELD_BYTES - 10))
    assert states.may_hold(10)
    assert not states.may_hold(11)


@cases("method", "response", "good")
def test_an_answer_has_what_its_method_asks_for(method: str, response: object, good: bool) -> None:
    assert input_required.fits(method, raw(response)) is good


def test_a_state_is_a_text_however_it_is_written() -> None:
    for given, state in ((b'"s"', "s"), (rb'"\u0073"', "s"), (b"null", None), (b"7", None), (b'["s"]', None)):
        assert input_required.state_in({"requestState": Raw(given)}) == state
    assert input_required.state_in({}) is None


def test_what_was_given_for_one_tool_goes_to_no_other() -> None:
    given = input_required.Round("alpha", b'"name":"echo",', "alpha/echo")

    def forward(server: str, tool: str) -> Forward:
        return Forward(server=server, name="", head=b'"name":"%b",' % tool.encode(), arguments=b"{}", label="")

    given.require(forward("alpha", "echo"))
    for elsewhere in (forward("beta", "echo"), forward("alpha", "delete")):
        with pytest.raises(UpstreamUnavailable, match=r"alpha/echo no longer .* not sent again"):
            given.require(elsewhere)
