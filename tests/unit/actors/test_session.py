"""What one client is told, in both eras of the protocol, as bytes on a socket against a real session."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from daemon.catalog.offer import Offered
from daemon.clients.requests.initialize import capabilities
from daemon.errors import UpstreamLost
from daemon.protocol import HANDSHAKE_VERSIONS, LIST_TTL_MS, MODERN_VERSION, SUBSCRIPTION_KEY, VERSION_KEY
from daemon.states import ServerState
from daemon.surfaces.category import CategorySurface
from daemon.surfaces.surface import Action, Reply, Surface, View
from daemon.wire.requests import MAX_FAULTS
from tests.fakes_upstream import MODERN, Client, Stage, error_of
from tests.unit.cases import cases

META_TOOLS = ["get-category-tools", "call-category-tool", "call-read-only-tool"]


class PlainSurface(Surface):
    """A second surface, to tell profiles apart."""

    name = "browse"
    tools = ()

    def instructions(self, view: View) -> str:
        return f"browse {list(view.categories)}"

    def awaits(self, view: View) -> tuple[str, ...]:
        return ()

    def list_tools(self, view: View) -> tuple[bytes, ...]:
        return tuple(json.dumps({"name": category}).encode() for category in view.categories)

    def listed(self, view: View) -> Sequence[Offered]:
        return ()

    def call_other(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        return Reply(arguments)


class BrokenSurface(CategorySurface):
    """A surface with a bug in everything that a client can ask for, until it is mended."""

    broken = True

    def list_tools(self, view: View) -> tuple[bytes, ...]:
        if self.broken:
            raise ZeroDivisionError
        return super().list_tools(view)

    def call(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        raise KeyError(name)


async def tool_names(client: Client) -> list[str]:
    answer = await client.request("tools/list", request_id="list")
    return [tool["name"] for tool in answer["result"]["tools"]]


async def initialize(client: Client) -> Any:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    answer = await client.request("initialize", params, request_id="init")
    await client.tell("notifications/initialized", {})
    return answer["result"]


# --- the handshake, both eras ------------------------------------------------------------------------------


@cases("wanted", "agreed")
async def test_initialize_agrees_on_the_clients_version_or_the_newest(
    nursery: trio.Nursery, wanted: object, agreed: str
) -> None:
    stage = Stage()
    guest = await stage.connect(nursery)
    params = {"protocolVersion": wanted, "capabilities": {}, "clientInfo": {"name": "cli", "version": "9"}}
    result = (await guest.client.request("initialize", params))["result"]
    assert result["protocolVersion"] == agreed
    assert result["capabilities"] == capabilities()
    assert result["serverInfo"]["name"] == "mcpd"
    assert "get-category-tools" in result["instructions"]
    statistics = guest.session.statistics()
    assert (statistics.client, statistics.protocol, statistics.number) == ("cli 9", agreed, 1)


@pytest.mark.parametrize("params", [None, {}, {"clientInfo": "no object"}])
async def test_initialize_without_the_usual_params_is_answered_too(
    nursery: trio.Nursery, params: object
) -> None:
    client = await Stage().client(nursery)
    assert (await client.request("initialize", params))["result"]["protocolVersion"] == HANDSHAKE_VERSIONS[-1]


async def test_discover_tells_what_a_modern_client_needs(nursery: trio.Nursery) -> None:
    client = await Stage().client(nursery)
    result = (await client.request("server/discover", {"_meta": MODERN}))["result"]
    assert result["resultType"] == "complete"
    assert result["supportedVersions"] == [*HANDSHAKE_VERSIONS, MODERN_VERSION]
    assert result["capabilities"] == capabilities()
    assert (result["ttlMs"], result["cacheScope"]) == (LIST_TTL_MS, "private")
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "mcpd"
    assert "get-category-tools" in result["instructions"]


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call", "ping", "initialize"])
@pytest.mark.parametrize("version", ["2027-01-01", "2025-11-25", "", 7, None])
async def test_an_envelope_of_another_version_is_refused_with_those_that_are_spoken(
    nursery: trio.Nursery, method: str, version: object
) -> None:
    client = await Stage().client(nursery)
    answer = await client.request(method, {"_meta": {**MODERN, VERSION_KEY: version}})
    assert answer["error"]["code"] == -32022
    assert answer["error"]["data"] == {"supported": [*HANDSHAKE_VERSIONS, MODERN_VERSION], "requested": version}
    assert "result" in await client.request("tools/list", {"_meta": MODERN}, request_id=2)


@pytest.mark.parametrize("meta", [[], 5, "text"])
async def test_a_meta_that_is_no_object_is_invalid(nursery: trio.Nursery, meta: object) -> None:
    client = await Stage().client(nursery)
    assert (await client.request("tools/list", {"_meta": meta}))["error"]["code"] == -32602


@pytest.mark.parametrize(
    "request_id",
    [b"0", b"1", b'"1"', b'""', b"-7", b"18446744073709551616", b"9" * 400, b'"\\u0041\\""', '"é☃"'.encode()],
)
async def test_ids_come_back_byte_by_byte(nursery: trio.Nursery, request_id: bytes) -> None:
    client = await Stage().client(nursery)
    await client.send(b'{"jsonrpc":"2.0","id": %b ,"method":"ping"}' % request_id)
    assert await client.line() == b'{"jsonrpc":"2.0","id":%b,"result":{}}' % request_id
    await client.send(b'{"id":%b,"method":"no/such","jsonrpc":"2.0"}' % request_id)
    assert (await client.line()).startswith(b'{"jsonrpc":"2.0","id":%b,"error":' % request_id)


# --- what is shown -----------------------------------------------------------------------------------------


async def test_the_list_of_the_handshake_era_holds_the_tools_and_nothing_else(nursery: trio.Nursery) -> None:
    # Described, as one whose description is made of its tools' names changes with them.
    stage = Stage(categories={name: {"description": name, "server": name} for name in ("alpha", "beta")})
    client = await stage.client(nursery)
    await client.ask("tools/list")
    line = await client.line()
    result = json.loads(line)["result"]
    assert list(result) == ["tools"]
    assert [tool["name"] for tool in result["tools"]] == META_TOOLS
    assert all(tool["_meta"] == {"anthropic/alwaysLoad": True} for tool in result["tools"])
    # A server that goes down, or lists anew, changes no byte of it: prompts are cached by these.
    stage.becomes("alpha", ServerState.BACKOFF)
    stage.lists("beta", "something", "else")
    await client.ask("tools/list")
    assert await client.line() == line


async def test_the_list_of_the_modern_era_says_how_long_it_holds(nursery: trio.Nursery) -> None:
    client = await Stage().client(nursery)
    result = (await client.request("tools/list", {"_meta": MODERN}))["result"]
    assert [tool["name"] for tool in result.pop("tools")] == META_TOOLS
    assert result == {"resultType": "complete", "ttlMs": LIST_TTL_MS, "cacheScope": "private"}


async def test_the_instructions_are_the_profiles_if_it_has_some(nursery: trio.Nursery) -> None:
    profile = {"instructions": "Do as I say.", "prompt": "And be brief."}
    own = await Stage(profiles={"default": profile}).client(nursery)
    assert (await initialize(own))["instructions"] == "Do as I say.\nAnd be brief."
    modern = await own.request("server/discover", {"_meta": MODERN})
    assert modern["result"]["instructions"] == "Do as I say.\nAnd be brief."
    prompted = await Stage(profiles={"default": {"prompt": "Be brief."}}).client(nursery)
    text = (await initialize(prompted))["instructions"]
    assert text.startswith("Tools are grouped in categories, ")
    assert text.endswith("\nBe brief.")


@cases("hello", "names")
async def test_the_bridges_hello_picks_profile_and_surface_and_what_is_none_changes_nothing(
    nursery: trio.Nursery, hello: object, names: list[str]
) -> None:
    surfaces: dict[str, Surface] = {"category": CategorySurface(), "browse": PlainSurface()}
    stage = Stage(surfaces=surfaces, profiles={"small": {"surface": "browse", "categories": ["alpha"]}})
    guest = await stage.connect(nursery)
    await guest.client.send({"jsonrpc": "2.0", "method": "mcpd/hello", "params": hello})
    if not isinstance(hello, dict):
        assert (await guest.client.get())["error"]["code"] == -32602
    assert await tool_names(guest.client) == names
    statistics = guest.session.statistics()
    small = isinstance(hello, dict) and hello.get("profile") == "small"
    assert statistics.profile == ("small" if small else "default")
    assert statistics.surface == ("category" if names == META_TOOLS else "browse")


@pytest.mark.parametrize("before", ["mcpd/hello", "initialize", "tools/list", "tools/call"])
async def test_a_client_does_not_leave_its_profile(nursery: trio.Nursery, said: list[str], before: str) -> None:
    """The first hello of a connection is final, and none is taken once a request was served."""
    stage = Stage(profiles={"small": {"categories": ["alpha"], "surface": "search"}})
    guest = await stage.connect(nursery)
    hello: dict[str, object] = {"jsonrpc": "2.0", "method": "mcpd/hello", "params": {}}
    if before == "mcpd/hello":
        await guest.client.send(hello)
    else:
        await guest.client.request(before, {"name": "get-category-tools", "arguments": {}})
    for _ in range(3):
        await guest.client.send({**hello, "params": {"profile": "small", "session": "another"}})
    assert await tool_names(guest.client) == META_TOOLS
    statistics = guest.session.statistics()
    assert (statistics.profile, statistics.surface, statistics.key) == ("default", "category", None)
    assert sum("hello" in line for line in said) == 1


NO_PROFILE = "no profile 'smal' in mcpd's configuration; there are: default, small"
NO_SURFACE = "no surface 'brwse'; there are: auto, category, browse, search, load, full"


@pytest.mark.parametrize(
    ("hello", "reason"),
    [({"profile": "smal"}, NO_PROFILE)]
    + [({"surface": "brwse", "lazy": lazy}, NO_SURFACE) for lazy in (None, True, False)],
)
async def test_with_an_unknown_profile_or_surface_nothing_is_served(
    nursery: trio.Nursery, hello: dict[str, object], reason: str
) -> None:
    """A profile restricts: a typo must not show more than it would have."""
    client = await Stage(profiles={"small": {"categories": ["alpha"]}}).client(nursery)
    await client.send({"jsonrpc": "2.0", "method": "mcpd/hello", "params": hello})
    for method in ("initialize", "tools/list", "ping"):
        await client.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}})
        assert reason in (await client.get())["error"]["message"]


# --- what is wrong -----------------------------------------------------------------------------------------


@cases("line", "code", "request_id", raw={"line"})
async def test_a_faulty_message_gets_its_code_and_the_connection_goes_on(
    nursery: trio.Nursery, line: bytes, code: int | None, request_id: object
) -> None:
    client = await Stage().client(nursery)
    await client.send(line.replace(b"DEEP", b"[" * 5000 + b"]" * 5000))
    answer = await client.get()
    if code is not None:
        assert (answer["error"]["code"], answer["id"]) == (code, request_id)
    assert answer["error"]["code"] in {-32700, -32600, -32601, -32602}
    assert (await client.request("ping", request_id=6))["id"] == 6


@cases("line", raw={"line"})
async def test_what_needs_no_answer_gets_none(nursery: trio.Nursery, line: bytes) -> None:
    client = await Stage().client(nursery)
    await client.send(line, {"jsonrpc": "2.0", "id": 6, "method": "ping"})
    assert (await client.get())["id"] == 6


async def test_a_client_that_speaks_no_json_is_cut_off_in_the_end_and_nobody_else(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    wrong, right = await stage.connect(nursery), await stage.connect(nursery)
    await right.client.call("alpha", "echo")
    kept = await stage.alpha.wait_sent(1)
    await wrong.client.call("alpha", "echo", request_id="open")
    lost = await stage.alpha.wait_sent(2)
    await wrong.client.send(*[b"nonsense"] * (MAX_FAULTS - 1))
    for _ in range(MAX_FAULTS - 1):
        assert (await wrong.client.get())["error"]["code"] == -32700
    assert (await wrong.client.request("ping", request_id=2))["id"] == 2
    await wrong.client.send(b"nonsense")
    assert (await wrong.client.get())["error"]["code"] == -32700
    assert await wrong.client.is_closed()
    await stage.alpha.wait_cancelled()
    assert [key for key, _ in stage.alpha.cancelled] == [lost.key]
    stage.answer(kept)
    assert (await right.client.get())["id"] == 1


@cases("head", "request_id", raw={"head"})
async def test_a_message_over_the_limit_is_refused_with_its_id_if_that_came_first(
    nursery: trio.Nursery, head: bytes, request_id: object
) -> None:
    guest = await Stage().connect(nursery, max_line=4096)
    await guest.client.send(head + b"x" * 10_000 + b'"},"id":77}')
    answer = await guest.client.get()
    assert (answer["id"], answer["error"]["code"]) == (request_id, -32600)
    assert "RequestTooLarge" in answer["error"]["message"]
    assert (await guest.client.request("ping", request_id=2))["id"] == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.ask("tools/list"),
        lambda client: client.describe("alpha"),
        lambda client: client.call("alpha", "echo"),
    ],
)
async def test_a_bug_in_a_surface_costs_one_request_and_not_the_session(
    nursery: trio.Nursery, ask: Callable[[Client], Awaitable[None]]
) -> None:
    stage = Stage(surfaces={"category": BrokenSurface()})
    guest = await stage.connect(nursery)
    await ask(guest.client)
    answer = await guest.client.get()
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)
    assert (await guest.client.request("ping", request_id=2))["id"] == 2
    assert guest.session.in_flight == 0


async def test_a_bug_in_a_surface_met_while_announcing_changes_does_not_end_the_session(
    nursery: trio.Nursery,
) -> None:
    surface = BrokenSurface()
    surface.broken = False
    stage = Stage(surfaces={"category": surface})
    client = await stage.client(nursery)
    await tool_names(client)
    surface.broken = True
    stage.becomes("alpha", ServerState.BACKOFF)
    await trio.testing.wait_all_tasks_blocked()
    assert (await client.request("ping", request_id=2))["id"] == 2


# --- changes -----------------------------------------------------------------------------------------------


def changing() -> Stage:
    """A stage whose shown list depends on the catalog: the names of the listed tools of alpha."""

    class Changing(PlainSurface):
        name = "category"

        def list_tools(self, view: View) -> tuple[bytes, ...]:
            tools = view.catalog.servers["alpha"].tools or ()
            return tuple(json.dumps({"name": tool}).encode() for tool in tools)

    return Stage(surfaces={"category": Changing()})


LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}


async def test_a_burst_of_changes_is_announced_once(nursery: trio.Nursery) -> None:
    stage = changing()
    client = await stage.client(nursery)
    await initialize(client)
    assert await tool_names(client) == ["echo", "add"]
    await trio.testing.wait_all_tasks_blocked()
    for number in range(50):
        stage.lists("alpha", f"tool_{number}")
    assert await client.get() == LIST_CHANGED
    # Nothing more until the client has looked again.
    stage.lists("alpha", "another")
    await trio.testing.wait_all_tasks_blocked()
    assert await tool_names(client) == ["another"]
    stage.lists("alpha", "yet_another")
    assert await client.get() == LIST_CHANGED
    assert (await client.request("ping", request_id=2))["id"] == 2


async def test_a_change_that_shows_nowhere_is_not_announced(nursery: trio.Nursery) -> None:
    stage = changing()
    client = await stage.client(nursery)
    await initialize(client)
    await tool_names(client)
    stage.lists("beta", "new")
    stage.becomes("alpha", ServerState.BACKOFF)
    await trio.testing.wait_all_tasks_blocked()
    stage.lists("alpha", "new")
    stage.lists("alpha", "echo", "add")  # as it was, before anybody looked
    await trio.testing.wait_all_tasks_blocked()
    assert (await client.request("ping", request_id=2))["id"] == 2


async def test_who_has_not_looked_or_not_shaken_hands_is_not_told(nursery: trio.Nursery) -> None:
    stage = changing()
    blind, modern = await stage.client(nursery), await stage.client(nursery)
    await initialize(blind)
    await modern.request("tools/list", {"_meta": MODERN})
    stage.lists("alpha", "new")
    await trio.testing.wait_all_tasks_blocked()
    for client in (blind, modern):
        assert (await client.request("ping", request_id=2))["id"] == 2


@pytest.mark.parametrize("listen_id", [5, "sub", 2**70])
async def test_a_modern_client_is_told_in_its_subscription_until_it_cancels_it(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, listen_id: object
) -> None:
    stage = changing()
    client = await stage.client(nursery)
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["file:///x"]}
    acknowledged = await client.request(
        "subscriptions/listen", {"_meta": MODERN, "notifications": wanted}, request_id=listen_id
    )
    stamp = {SUBSCRIPTION_KEY: listen_id}
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"] == {"notifications": dict.fromkeys(list(wanted)[:2], True), "_meta": stamp}
    await client.request("tools/list", {"_meta": MODERN}, request_id="l")
    await trio.testing.wait_all_tasks_blocked()
    for number in range(20):
        stage.lists("alpha", f"tool_{number}")
    assert await client.get() == {**LIST_CHANGED, "params": {"_meta": stamp}}
    await client.request("tools/list", {"_meta": MODERN}, request_id="l")
    await client.tell("notifications/cancelled", {"requestId": listen_id})
    await client.request("ping", request_id="p")
    stage.lists("alpha", "new")
    await trio.testing.wait_all_tasks_blocked()
    assert (await client.request("ping", request_id="q"))["id"] == "q"


@pytest.mark.parametrize("wanted", [{}, {"toolsListChanged": False}, {"toolsListChanged": 1}, None, []])
async def test_a_subscription_to_something_else_is_acknowledged_as_empty(
    nursery: trio.Nursery, wanted: object
) -> None:
    stage = changing()
    client = await stage.client(nursery)
    params = {"_meta": MODERN, "notifications": wanted}
    assert (await client.request("subscriptions/listen", params))["params"]["notifications"] == {}
    await client.request("tools/list", {"_meta": MODERN}, request_id=2)
    stage.lists("alpha", "new")
    await trio.testing.wait_all_tasks_blocked()
    assert (await client.request("ping", request_id=3))["id"] == 3


async def test_a_change_at_the_moment_a_client_comes_is_announced_too(nursery: trio.Nursery) -> None:
    """Its first list is shown in the session's first turn; what changes in the same turn is a change to it."""
    stage = changing()
    first = [
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
    ]
    for _ in range(20):  # trio shuffles the order of tasks: every order must do
        guest = stage.arrive(nursery, *first)
        while not guest.session._connection.lists._given:
            await trio.lowlevel.checkpoint()
        stage.lists("alpha", f"tool_{guest.session.number}")
        assert [(await guest.client.get())["id"] for _ in first] == [0, 1]
        assert await guest.client.get() == LIST_CHANGED


LISTEN = {"_meta": MODERN, "notifications": {"toolsListChanged": True}}


async def test_the_subscriptions_of_one_client_have_ids_of_their_own_and_a_bound(nursery: trio.Nursery) -> None:
    """What a client may leave behind has a limit, like its calls (style, rule 10)."""
    client = await changing().client(nursery)
    answers = [await client.request("subscriptions/listen", LISTEN, request_id=n) for n in range(1000)]
    assert "method" in answers[0]
    assert "error" in answers[-1]
    assert (await client.request("subscriptions/listen", LISTEN, request_id=0))["error"]["code"] == -32600


# --- the end -----------------------------------------------------------------------------------------------


async def test_a_daemon_that_goes_down_answers_everything_in_flight(nursery: trio.Nursery) -> None:
    stage = Stage()
    stage.upstreams["beta"].up = False
    guest = await stage.connect(nursery)
    await guest.client.call("alpha", "echo", request_id="sent")
    await guest.client.call("beta", "echo", request_id="waiting")
    sent = await stage.alpha.wait_sent()
    await stage.upstreams["beta"].wait_woken()
    statistics = guest.session.statistics()
    assert (guest.session.in_flight, statistics.calls, statistics.in_flight) == (2, 2, 2)
    guest.session.lose_calls(UpstreamLost("going down"))
    answers = [await guest.client.get() for _ in range(2)]
    assert {answer["id"] for answer in answers} == {"sent", "waiting"}
    assert {error_of(answer)["code"] for answer in answers} == {"UpstreamLost"}
    assert [key for key, _ in stage.alpha.cancelled] == [sent.key]
    assert guest.session.in_flight == 0
    stage.answer(sent)
    stage.upstreams["beta"].come_up()
    await trio.testing.wait_all_tasks_blocked()
    assert not stage.upstreams["beta"].sent, "a call that was answered must not run later"
    assert (await guest.client.request("ping", request_id=2))["id"] == 2


# --- surfaces whose lists grow, wait and are long ----------------------------------------------------------


async def test_repaired_arguments_are_counted_for_the_session_and_its_client(nursery: trio.Nursery) -> None:
    stage = Stage()
    guest = await stage.connect(nursery)
    await initialize(guest.client)
    await guest.client.ask(
        "tools/call",
        {"name": "call-category-tool", "arguments": {"category": "alpha", "name": "echo", "args": '{"n": 1}'}},
    )
    sent = await stage.alpha.wait_sent()
    assert sent.arguments == {"n": 1}
    assert guest.session.statistics().repaired == 1
    assert list(stage.mended.by_client().values()) == [{"stringified": 1}]
