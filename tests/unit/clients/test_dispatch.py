"""Tools that change under a client: none is called as it was, and each change is told once."""

import gc
import json
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from msgspec import Raw

from daemon.catalog.loaded import Loaded, SessionRecord, Source
from daemon.clients.dispatch import MAX_RETURNS
from daemon.facts import Configured, Switched
from daemon.protocol import SESSION_KEY
from daemon.surfaces.full import FullSurface
from daemon.surfaces.surface import Action, Forward, View
from daemon.wire.link import LINES_PER_TURN
from tests.fakes_upstream import Client, Guest, Stage, error_of, tool, tools_of
from tests.unit.clients.permissions.agreeing import answer_to, call_of

CHANGED = tool("echo", description="It deletes everything now.")
LOADING = {"name": "load_mcp_tool", "arguments": {"names": ["echo"]}}
HELLO = {"jsonrpc": "2.0", "method": "mcpd/hello", "params": {"session": "k"}}


async def describe(client: Client, surface: str) -> None:
    """Let the client be shown the tool, as its surface does it."""
    match surface:
        case "category":
            await client.ask("tools/call", {"name": "get-category-tools", "arguments": {"category": "alpha"}})
        case "browse":
            await client.ask("tools/call", {"name": "get_tools", "arguments": {"category": "alpha"}})
        case "load":
            await client.ask("tools/call", {"name": "load_mcp_tool", "arguments": {"names": ["echo"]}})
        case "search":
            await client.ask("tools/call", {"name": "search_tools", "arguments": {"query": "echo"}})
            await answer_to(client, 1)
            await client.ask("tools/list")
        case _:
            await client.ask("tools/list")
    await answer_to(client, 1)


async def call(client: Client, surface: str, request_id: int = 2) -> None:
    await client.send(request(surface, request_id))


def request(surface: str, request_id: int) -> dict[str, Any]:
    """The call of the tool, as each surface does it."""
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": call_of(surface)}


def stage_of(surface: str, **written: Any) -> Stage:
    return Stage(profiles={"default": {"surface": surface}}, **written)


SURFACES = ["category", "browse", "search", "load", "full"]


@pytest.fixture
def surface() -> str:
    return "full"


@pytest.fixture
def stage(surface: str) -> Stage:
    return stage_of(surface)


async def answered(stage: Stage, client: Client, *messages: dict[str, Any]) -> None:
    """The client's calls reach the server, which answers each."""
    for message in messages:
        await client.send(message)
        stage.answer(await stage.alpha.wait_sent(), b"{}")
        assert "result" in await answer_to(client, message["id"])
        stage.alpha.sent.clear()


async def refusal(stage: Stage, client: Client, request_id: int = 2) -> str:
    """Why a call was refused; it has reached no server."""
    code: str = error_of(await answer_to(client, request_id))["code"]
    assert not stage.alpha.sent
    return code


@pytest.mark.parametrize("calls", [0, 3])
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_changed_tool_is_refused_once_with_its_new_form_however_often_it_was_called_before(
    stage: Stage, client: Client, surface: str, calls: int
) -> None:
    await describe(client, surface)
    await answered(stage, client, *(request(surface, 11 + number) for number in range(calls)))
    stage.lists("alpha", CHANGED, "add")
    await call(client, surface)
    error = error_of(await answer_to(client, 2))
    assert (error["code"], error["server"]) == ("ToolChanged", "alpha")
    assert error["definition"]["description"] == "It deletes everything now."
    assert not stage.alpha.sent
    await call(client, surface)
    if surface == "load":
        assert await refusal(stage, client) == "ToolNotLoaded"
        await describe(client, surface)
        await call(client, surface)
    await stage.alpha.wait_sent()


class Judging(FullSurface):
    """Counts how often it was asked what a call means."""

    def __init__(self) -> None:
        self.judged = 0

    def call(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        self.judged += 1
        return super().call(view, name, arguments, patient=patient)


@pytest.mark.parametrize("meta", [None, {"progressToken": 7}, {SESSION_KEY: "k"}])
@pytest.mark.parametrize("session", [None, "s"])
async def test_what_a_call_means_is_asked_once_as_long_as_nothing_changes(
    nursery: trio.Nursery, meta: dict[str, object] | None, session: str | None
) -> None:
    surface = Judging()
    stage = Stage(profiles={"default": {"surface": "full"}}, surfaces={"full": surface})
    client = await stage.client(nursery)
    if session is not None:
        await client.send({"jsonrpc": "2.0", "method": "mcpd/hello", "params": {"session": session}})
    await describe(client, "full")
    calls = [request("full", number) for number in (11, 12, 13)]
    for each in calls:
        each["params"] |= {} if meta is None else {"_meta": meta}
    await answered(stage, client, *calls)
    assert surface.judged == 1


async def test_of_a_call_that_showed_the_way_nothing_is_kept(stage: Stage, client: Client) -> None:
    for number in (11, 12):
        text = f"{number}" * 100_000
        params = {"name": "add", "arguments": {"text": text}}
        await client.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        stage.answer(await stage.alpha.wait_sent(), b"{}")
        assert stage.alpha.sent.pop().arguments == {"text": text}
        await answer_to(client, number)
    gc.collect()
    assert not [
        each for each in gc.get_objects() if isinstance(each, Forward) and len(each.arguments) > 100_000
    ]


@pytest.mark.parametrize(
    ("surface", "shown"),
    [(each, True) for each in SURFACES] + [(each, False) for each in SURFACES if each != "load"],
)
async def test_a_tool_that_was_never_shown_or_has_changed_back_is_called(
    stage: Stage, client: Client, surface: str, *, shown: bool
) -> None:
    if shown:
        await describe(client, surface)
    stage.lists("alpha", CHANGED, "add")
    if shown:
        stage.lists("alpha", "echo", "add")
    await call(client, surface)
    await stage.alpha.wait_sent()


@pytest.mark.parametrize("switch", [{"lazy": False}, {"profiles": {"default": {"lazy": False}}}])
async def test_where_loading_is_off_calls_go_through(nursery: trio.Nursery, switch: dict[str, Any]) -> None:
    stage = Stage(**switch)
    client = await stage.client(nursery)
    await describe(client, "full")
    stage.lists("alpha", CHANGED)
    stage.alpha.is_stale = True
    await call(client, "full")
    assert (await stage.alpha.wait_sent()).call.check()


async def test_only_the_tools_of_the_page_that_was_sent_count_as_shown(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"default": {"surface": "full"}}, limits={"clientQueueBytes": 200})
    client = await stage.client(nursery)
    await client.ask("tools/list")
    page = (await answer_to(client, 1))["result"]
    assert [each["name"] for each in page["tools"]] == ["echo"]
    assert page["nextCursor"] == "1"
    stage.lists("alpha", CHANGED, tool("add", description="other"))
    await client.call("alpha", "add", request_id=3)
    await client.ask("tools/call", {"name": "add", "arguments": {}}, request_id=4)
    await stage.alpha.wait_sent()
    await call(client, "full")
    assert error_of(await answer_to(client, 2))["code"] == "ToolChanged"


@pytest.mark.parametrize("auto_load", [False, True])
async def test_a_renamed_tool_runs_under_its_new_name(nursery: trio.Nursery, auto_load: bool) -> None:
    stage = Stage(profiles={"default": {"surface": "load", "autoLoad": auto_load}})
    client = await stage.client(nursery)
    await describe(client, "load")
    await call(client, "load")
    waiting = await stage.alpha.wait_sent()
    stage.lists("alpha", tool("shout", description="Does echo."), "add")
    assert waiting.call.check()
    assert waiting.tool == "shout"
    await client.ask("tools/call", {"name": "echo", "arguments": {}}, request_id=3)
    sent = await stage.alpha.wait_sent(2)
    assert sent.tool == "shout"
    await client.ask("tools/list", request_id=4)
    listing = (await answer_to(client, 4))["result"]["tools"]
    assert "shout" in {each["name"] for each in listing}


@pytest.mark.parametrize("off", [("alpha", "echo"), ("alpha", "")])
@pytest.mark.parametrize("surface", SURFACES)
async def test_what_an_operator_has_switched_off_is_refused_and_says_how_it_comes_back(
    nursery: trio.Nursery, surface: str, off: tuple[str, str]
) -> None:
    stage = stage_of(surface, categories={"alpha": {"server": "alpha"}, "beta": {"server": "beta"}})
    client = await stage.client(nursery)
    await describe(client, surface)
    stage.learn(Switched(off=frozenset({off})))
    await call(client, surface)
    error = error_of(await answer_to(client, 2))
    assert error["code"] in {"ToolDisabled", "UnknownTool"}
    assert not stage.alpha.sent


# --- calls that wait are judged again ------------------------------------------------------------------------


@pytest.mark.parametrize("wait", ["down", "stale"])
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_call_that_waits_for_its_server_or_its_new_list_is_judged_by_that(
    stage: Stage, client: Client, surface: str, wait: str
) -> None:
    await describe(client, surface)
    stage.alpha.up, stage.alpha.is_stale = wait == "stale", wait == "stale"
    await call(client, surface)
    await trio.testing.wait_all_tasks_blocked()
    assert not stage.alpha.sent
    stage.lists("alpha", CHANGED, "add")
    stage.alpha.is_current()
    stage.alpha.come_up()
    assert await refusal(stage, client) == "ToolChanged"


async def test_a_call_that_waited_while_its_profile_went_is_refused(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"mine": {"surface": "full"}})
    stage.alpha.up = False
    client = await stage.client(nursery)
    await client.tell("mcpd/hello", {"profile": "mine"})
    await call(client, "full")
    await stage.alpha.wait_woken()
    stage.learn(Configured(config=Stage().config, now=0.0))
    stage.alpha.come_up()
    error = error_of(await answer_to(client, 2))
    assert error["code"] == "ToolDisabled"
    assert "there is no profile 'mine'" in error["message"]
    assert not stage.alpha.sent


async def test_a_call_that_leaves_a_line_is_checked_once_more(stage: Stage, client: Client) -> None:
    await describe(client, "full")
    await call(client, "full")
    sent = await stage.alpha.wait_sent()
    assert sent.call.check()
    stage.lists("alpha", "echo", "add", "third")
    assert sent.call.check()
    stage.lists("alpha", CHANGED)
    with pytest.raises(Exception, match="has changed since"):
        sent.call.check()
    stage.lists("alpha", "add")
    with pytest.raises(Exception, match="there is no tool"):
        sent.call.check()
    stage.lists("alpha", "echo")
    stage.learn(Switched(off=frozenset({("alpha", "echo")})))
    with pytest.raises(Exception, match="an operator has switched it off"):
        sent.call.check()


async def test_a_call_that_leaves_a_line_waits_for_an_announced_list(stage: Stage, client: Client) -> None:
    await describe(client, "full")
    await call(client, "full")
    for returns in range(1, MAX_RETURNS + 1):
        sent = await stage.alpha.wait_sent(returns)
        stage.alpha.is_stale = True
        assert not sent.call.check()
        await trio.testing.wait_all_tasks_blocked()
        stage.alpha.is_current()
    sent = await stage.alpha.wait_sent(MAX_RETURNS + 1)
    stage.alpha.is_stale = True
    assert sent.call.check()
    stage.alpha.is_current()
    stage.answer(sent)
    assert not (await answer_to(client, 2))["result"].get("isError")


@pytest.mark.parametrize("stale", [True, False])
@pytest.mark.parametrize("surface", SURFACES)
async def test_calls_that_were_written_before_any_was_answered_are_all_refused(
    stage: Stage, client: Client, surface: str, stale: bool
) -> None:
    await describe(client, surface)
    stage.alpha.is_stale = stale
    if not stale:
        stage.lists("alpha", CHANGED, "add")
    # They are handled in portions, and one read does not hold all of them.
    numbers = range(2, 2 + 2 * LINES_PER_TURN)
    await client.send(*(request(surface, number) for number in numbers))
    await trio.testing.wait_all_tasks_blocked()
    if stale:
        stage.lists("alpha", CHANGED, "add")
        stage.alpha.is_current()
    assert {error_of(await client.get())["code"] for _ in numbers} == {"ToolChanged"}
    assert not stage.alpha.sent
    if surface == "load":
        await describe(client, surface)
    await call(client, surface, 1)
    await stage.alpha.wait_sent()


# --- sessions with a key -------------------------------------------------------------------------------------


async def test_requests_belong_to_the_session_that_each_names(nursery: trio.Nursery) -> None:
    """Pipelined: none may load into another's session, although both have to be recalled."""
    stage = stage_of("load")
    stage.memory.open = trio.Event()
    client = await stage.client(nursery)
    for number, (key, name) in enumerate([("a", "echo"), ("b", "add"), ("a", "add")], 10):
        params = {
            "name": "load_mcp_tool",
            "arguments": {"names": [name], "server_name": "alpha"},
            "_meta": {SESSION_KEY: key},
        }
        await client.ask("tools/call", params, request_id=number)
    await trio.testing.wait_all_tasks_blocked()
    stage.memory.open.set()
    for number in (10, 11, 12):
        assert number in {10, 11, 12}
        await client.get()
    loaded = {key: [name for _, name in each.loaded.tools] for key, each in stage.memory.records.items()}
    assert loaded == {"a": ["echo", "add"], "b": ["add"]}


async def test_where_loading_is_off_no_session_is_recalled(
    nursery: trio.Nursery,
) -> None:
    stage = Stage(lazy=False)
    client = await stage.client(nursery)
    await client.ask("tools/list", {"_meta": {SESSION_KEY: "k"}})
    await answer_to(client, 1)
    assert stage.memory.recalls == 0


async def test_a_call_that_leaves_a_line_after_its_client_harms_nobody(stage: Stage, guest: Guest) -> None:
    await call(guest.client, "full")
    sent = await stage.alpha.wait_sent()
    stage.alpha.is_stale = True
    checked: list[bool] = []
    stage.alpha.on_cancel = lambda: checked.append(sent.call.check())
    guest.client.close()
    await guest.ended.wait()
    assert checked == [False]


async def heard_until(client: Client, request_id: object) -> list[str]:
    """The notifications that come before an answer."""
    heard: list[str] = []
    while (message := await client.get()).get("id") != request_id:
        heard.append(message["method"])
    return heard


async def test_every_list_that_a_connection_was_given_is_watched_whatever_session_it_belongs_to(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    stage = stage_of("load")
    client = await stage.client(nursery)
    await client.request("initialize", {"protocolVersion": "2025-11-25"})
    for key in "ab":
        await client.request("tools/list", {"_meta": {SESSION_KEY: key}})
    for key in "ab":
        await client.ask("tools/call", {**LOADING, "_meta": {SESSION_KEY: key}}, request_id=key)
        assert await heard_until(client, key) == ["notifications/tools/list_changed"]


async def test_a_list_that_changes_between_its_pages_is_announced(nursery: trio.Nursery) -> None:
    stage = stage_of("full", limits={"clientQueueBytes": 200})
    guest = await stage.connect(nursery)
    client = guest.client
    await client.request("initialize", {"protocolVersion": "2025-11-25"})
    cursor = (await client.request("tools/list"))["result"]["nextCursor"]
    stage.lists("alpha", CHANGED, "add")
    # In one turn with the change: nobody has been told of it yet.
    guest.session.on_request(b"2", "tools/list", Raw(json.dumps({"cursor": cursor}).encode()))
    assert (await client.get())["id"] == 2
    assert (await client.get())["method"] == "notifications/tools/list_changed"


async def comes_and_goes(stage: Stage, nursery: trio.Nursery, surface: str) -> None:
    """A client that is shown a tool, and leaves."""
    first = await stage.client(nursery)
    await first.send(HELLO)
    await describe(first, surface)
    first.close()
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize(
    ("surface", "again"),
    [("load", LOADING), ("search", {"name": "search_tools", "arguments": {"query": "echo"}})],
)
async def test_what_was_loaded_in_an_earlier_life_and_is_loaded_anew_is_not_called_as_it_was(
    stage: Stage, nursery: trio.Nursery, surface: str, again: dict[str, Any]
) -> None:
    """Whoever wrote the call had not read the answer to the request before it."""
    await comes_and_goes(stage, nursery, surface)
    later = stage_of(surface)
    later.memory.records = stage.memory.records
    later.lists("alpha", CHANGED, "add")
    second = await later.client(nursery)
    loads = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": again}
    await second.send(HELLO, loads, request(surface, 2))
    assert error_of(await answer_to(second, 2))["code"] == "ToolChanged"
    assert not later.alpha.sent


# --- several daemons on one store ----------------------------------------------------------------------------


class Elsewhere:
    """Another daemon on the same store, at which the client's session has loaded `echo`."""

    def __init__(self, stage: Stage, *, loaded: bool = True) -> None:
        self.looks = 0
        self.tools = tools_of("alpha", "echo") if loaded else ()
        self._sessions = stage.sessions
        stage.context = msgspec.structs.replace(stage.context, look=self.look)

    async def look(self) -> None:
        """Nothing of it is known here before this."""
        self.looks += 1
        await trio.lowlevel.checkpoint()
        loaded = Loaded().adding([(tool, 1) for tool in self.tools], Source.MANUAL, 1.0)
        self._sessions.adopt(SessionRecord(key="k", loaded=loaded))


async def at_load(
    nursery: trio.Nursery, *, loaded: bool = True, **hello: str
) -> tuple[Stage, Elsewhere, Client]:
    stage = stage_of("load")
    elsewhere = Elsewhere(stage, loaded=loaded)
    client = await stage.client(nursery)
    await client.tell("mcpd/hello", hello)
    return stage, elsewhere, client


async def test_a_tool_that_was_loaded_at_another_daemon_a_moment_ago_is_called_and_listed(
    nursery: trio.Nursery,
) -> None:
    stage, elsewhere, client = await at_load(nursery, session="k")
    for request_id in range(2, 6):
        await call(client, "load", request_id)
        await trio.testing.wait_all_tasks_blocked()
        stage.answer(stage.alpha.sent[-1])
        assert "error" not in await answer_to(client, request_id)
    # What is known here is called without looking.
    assert elsewhere.looks == 1
    *_, other = await at_load(nursery, session="k")
    listed = (await other.request("tools/list"))["result"]["tools"]
    assert [each["name"] for each in listed] == ["load_mcp_server", "load_mcp_tool", "echo"]


@pytest.mark.parametrize(("hello", "looks"), [({"session": "k"}, [1, 2]), ({}, [0, 0])])
async def test_a_tool_that_is_loaded_nowhere_is_refused_after_one_look_if_its_session_has_a_key(
    nursery: trio.Nursery, hello: dict[str, str], looks: list[int]
) -> None:
    _, elsewhere, client = await at_load(nursery, loaded=not hello, **hello)
    await call(client, "load")
    assert error_of(await answer_to(client, 2))["code"] == "ToolNotLoaded"
    after_the_call = elsewhere.looks
    await client.ask("tools/list", request_id=3)
    await answer_to(client, 3)
    assert [after_the_call, elsewhere.looks] == looks
