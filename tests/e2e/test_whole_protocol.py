"""All of MCP through mcpd: each feature in all four combinations of eras, over each transport, at each door.

Each run has every pair of a feature, a client and a server; the nightly run has all combinations.
`docs/protocol.md` has the list of these tests, and the last one here holds it to what they are.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import product
from typing import Any

import attrs
import pytest

from tests.e2e.harness import ROOT, Daemon, running
from tests.e2e.raw_http import HttpDoor
from tests.e2e.whole_client import CAPABILITIES, WholeClient
from tests.e2e.whole_server import FILES, META, PAGE, POLL, SKILL, TOOLS, TRACES, UI, UNKNOWN
from tests.e2e.whole_serving import served
from tests.pairwise import covering

Json = dict[str, Any]

DOORS = ("unix", "http", "websocket")
ERAS = ("handshake", "modern")
UNKNOWN_TASK = "Failed to retrieve task: Task not found"
TRANSPORTS = ("stdio", "unix", "http", "sse", "websocket")
CLIENTS = tuple(product(DOORS, ERAS))
SERVERS = tuple((era, each) for era in ERAS for each in TRANSPORTS if (era, each) != ("modern", "sse"))
"""SSE is the transport of 2024-11-05: no server of the modern era speaks over it."""


@attrs.frozen
class Pair:
    """A client, and a server that it reaches through mcpd."""

    client: WholeClient
    server: str
    modern: bool
    """Whether the server is of the modern era."""

    def named(self, name: str) -> str:
        """A tool or prompt of the server."""
        return f"{self.server}_{name}"

    def uri(self, name: str) -> str:
        """A resource of the server."""
        return f"mem://{self.server}/{name}"

    def call(self, tool: str, arguments: Json | None = None, **meta: Any) -> Any:
        """What a tool of the server says, which is JSON."""
        result = self.client.call(self.named(tool), arguments, **meta)
        assert not result.get("isError"), result
        assert "content" in result, result
        return json.loads(result["content"][0]["text"])

    def own(self, method: str, member: str, key: str) -> list[Json]:
        """What is listed of the server."""
        result = self.client.ask(method)
        assert member in result, result
        return [each for each in result[member] if self.server in each[key]]


@pytest.fixture(scope="module")
def door() -> HttpDoor:
    return HttpDoor()


@pytest.fixture(scope="module")
def daemon(door: HttpDoor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """With a server of each kind."""
    directory = tmp_path_factory.mktemp("s")
    with ExitStack() as stack:
        servers = {
            _name(era, transport): stack.enter_context(
                served(transport, _name(era, transport), modern=era == "modern", directory=directory)
            )
            for era, transport in SERVERS
        }
        daemon = stack.enter_context(running({"mcpServers": servers, "listen": door.listen}))
        daemon.ready()
        yield daemon


def _name(era: str, transport: str) -> str:
    return f"{transport}_{era}"


@pytest.fixture(scope="module")
def clients(daemon: Daemon, door: HttpDoor) -> Iterator[Callable[[str, str], WholeClient]]:
    """A client of each kind, one for all tests."""
    made: dict[tuple[str, str], WholeClient] = {}

    def client(place: str, era: str) -> WholeClient:
        if (place, era) not in made:
            made[place, era] = WholeClient(daemon, door, place, modern=era == "modern")
        return made[place, era]

    yield client
    for each in made.values():
        each.close()


def features() -> list[str]:
    """The names of the tests of a feature."""
    return [
        name for name, each in globals().items() if name.startswith("test_") and "pair" in each.__annotations__
    ]


@cache
def of_each_run() -> frozenset[tuple[str, tuple[str, str], tuple[str, str]]]:
    """The combinations that are not for the nightly run alone."""
    return frozenset(covering(list(product(features(), CLIENTS, SERVERS))))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each feature with each client and each server."""
    if "pair" in metafunc.fixturenames:
        name = metafunc.function.__name__
        cases = [
            pytest.param(
                (client, server),
                id=f"from-{client[1]}-{client[0]}-to-{server[0]}-{server[1]}",
                marks=() if (name, client, server) in of_each_run() else pytest.mark.nightly,
            )
            for client in CLIENTS
            for server in SERVERS
        ]
        metafunc.parametrize("pair", cases, indirect=True)


@pytest.fixture
def pair(request: pytest.FixtureRequest, clients: Callable[[str, str], WholeClient]) -> Pair:
    chosen, server = request.param
    client = clients(*chosen)
    client.asked.clear()
    client.told.clear()
    return Pair(client, _name(*server), modern=server[0] == "modern")


def test_tools_are_listed_and_called_with_all_their_members(pair: Pair) -> None:
    listed = pair.own("tools/list", "tools", "name")
    assert listed.pop()["name"] == f"{pair.server}__{POLL}", "for apps alone, and of every server"
    assert [tool["name"] for tool in listed] == [pair.named(each) for each in TOOLS]
    assert all(UNKNOWN.items() <= tool.items() for tool in listed)
    assert ("execution" in listed[TOOLS.index("work")]) is not pair.modern
    result = pair.client.call(pair.named("echo"), {"x": "ü", "n": 2.50})
    assert json.loads(result["content"][0]["text"]) == {"x": "ü", "n": 2.50}
    assert UNKNOWN.items() <= result.items()
    assert result["_meta"]["example.com/x"] == 1


def test_an_app_is_read_from_its_server_and_calls_it_by_its_tools_own_names(pair: Pair) -> None:
    """Every server has the same URI, and a tool of the same name."""
    client = pair.client
    (shown,) = (each for each in pair.own("tools/list", "tools", "name") if each["name"] == pair.named("show"))
    uri = shown["_meta"]["ui"]["resourceUri"]
    assert uri.startswith("ui://")
    assert shown["_meta"] == {**UI["_meta"], "ui": {"resourceUri": uri}, "ui/resourceUri": uri}
    result = client.ask("resources/read", {"uri": uri})
    assert result["contents"] == [{"uri": uri, "text": f"in {PAGE} of {pair.server}"}]
    assert pair.client.call(POLL)["content"][0]["text"] == f'"polled {pair.server}"'


def test_skills_are_listed_got_and_read_from_their_server(pair: Pair) -> None:
    """Every server has the same URI, and what hosts check of a skill stays true of its qualified one."""
    client, root = pair.client, f"skill://mcpd+{pair.server}/acme/refunds"
    assert META + "skills" in client.greeting["capabilities"]["extensions"]
    (listed,) = (each for each in client.ask("skills/list")["skills"] if pair.server in each["uri"])
    assert listed["uri"] == f"{root}/SKILL.md"
    assert listed["frontmatter"]["description"] == f"Refunds by {pair.server}"
    assert listed["frontmatter"]["license"] == "MIT"
    assert [each["uri"] for each in listed["resources"]] == [f"{root}/{each}" for each in FILES]
    assert all(each["digest"] == f"sha256:{0:064}" and each["size"] == 2 for each in listed["resources"])
    got = client.ask("skills/get", {"uri": listed["uri"]})
    assert got["skill"] == listed
    assert UNKNOWN.items() <= got.items()
    assert not client.modern or "ttlMs" in got
    found = client.ask("resources/directory/read", {"uri": f"{root}/templates", "cursor": "c"})
    assert found["resources"] == [{"uri": f"{root}/templates/email.md", "name": "email.md"}]
    assert found["nextCursor"] == "c"
    (read,) = client.ask("resources/read", {"uri": f"{root}/templates/email.md"})["contents"]
    assert read["text"] == f"in {SKILL}/templates/email.md of {pair.server}"
    unknown = client.ask("skills/get", {"uri": "skill://unknown/SKILL.md"})
    assert unknown["error"]["code"] == -32602


def test_prompts_are_listed_and_got_with_all_their_members(pair: Pair) -> None:
    listed = pair.own("prompts/list", "prompts", "name")
    assert listed[0]["name"] == pair.named("greet")
    assert UNKNOWN.items() <= listed[0].items()
    result = pair.client.ask("prompts/get", {"name": pair.named("greet"), "arguments": {"who": "me"}})
    assert UNKNOWN.items() <= result.items()
    assert result["messages"][0]["content"]["text"] == f"hello me from {pair.named('greet')}"


def test_resources_are_listed_and_read_with_all_their_members(pair: Pair) -> None:
    listed = pair.own("resources/list", "resources", "uri")
    assert listed[0]["uri"] == pair.uri("a")
    assert UNKNOWN.items() <= listed[0].items()
    result = pair.client.ask("resources/read", {"uri": pair.uri("a")})
    assert UNKNOWN.items() <= result.items()
    assert result["contents"] == [{"uri": pair.uri("a"), "text": f"in {pair.uri('a')}"}]


def test_templates_are_listed_and_what_they_match_is_read(pair: Pair) -> None:
    listed = pair.own("resources/templates/list", "resourceTemplates", "uriTemplate")
    assert [template["uriTemplate"] for template in listed] == [pair.uri("by/{key}")]
    assert UNKNOWN.items() <= listed[0].items()
    result = pair.client.ask("resources/read", {"uri": pair.uri("by/7")})
    assert result["contents"][0]["text"] == f"in {pair.uri('by/7')}"


def test_what_a_result_links_to_is_read_from_the_server_that_linked_it(pair: Pair) -> None:
    link = pair.client.call(pair.named("link"))["content"][0]
    assert link["uri"] == pair.uri("linked")
    result = pair.client.ask("resources/read", {"uri": link["uri"]})
    assert result["contents"][0]["text"] == f"in {pair.uri('linked')}"


@pytest.mark.parametrize("of", ["prompt", "template"])
def test_arguments_are_completed(pair: Pair, of: str) -> None:
    refs = {
        "prompt": {"type": "ref/prompt", "name": pair.named("greet")},
        "template": {"type": "ref/resource", "uri": pair.uri("by/{key}")},
    }
    asked = {"ref": refs[of], "argument": {"name": "who", "value": "so"}}
    result = pair.client.ask("completion/complete", asked)
    assert result["completion"] == {"values": [f"so {pair.server}"], "total": 1, **UNKNOWN}


def test_a_resource_that_is_subscribed_to_is_told_of(pair: Pair) -> None:
    client, uri = pair.client, pair.uri("a")
    if client.modern:
        client.listen({"resourceSubscriptions": [uri]})
    else:
        assert client.ask("resources/subscribe", {"uri": uri}) == {}
    pair.call("touch")
    told = client.hear("notifications/resources/updated", uri=uri)
    assert TRACES.items() <= told["_meta"].items()
    if not client.modern:
        assert client.ask("resources/unsubscribe", {"uri": uri}) == {}


@pytest.mark.parametrize("kind", ["prompts", "resources"])
def test_a_changed_list_is_told_of_and_listed(pair: Pair, kind: str) -> None:
    key = {"prompts": "name", "resources": "uri"}[kind]
    before = len(pair.own(f"{kind}/list", kind, key))
    pair.call("change", {"kind": kind})
    pair.client.hear(f"notifications/{kind}/list_changed")
    while len(pair.own(f"{kind}/list", kind, key)) == before:
        # That was of the change before, at another server: the right one comes, or is waited for in vain.
        pair.client.hear(f"notifications/{kind}/list_changed")


def test_a_server_logs_to_the_client_at_the_level_that_it_wants(pair: Pair) -> None:
    client = pair.client
    if client.modern:
        wanted: Json = {META + "logLevel": "error"}
        pair.call("log", **wanted)
    else:
        assert client.ask("logging/setLevel", {"level": "error"}) == {}
        pair.call("log")
    for level in ("error", "critical", "alert", "emergency"):
        told = client.hear("notifications/message", level=level, logger=pair.server, data={"at": level})
        assert TRACES.items() <= told["_meta"].items()
    assert not [told for told in client.told if told["method"] == "notifications/message"]


def test_a_server_samples_the_model_of_the_client(pair: Pair) -> None:
    said = pair.call("sample")
    assert said["answer"]["content"]["text"] == "sampled"
    assert said["answer"]["x-unknown"] == {"kept": True}
    (asked,) = pair.client.asked
    assert asked["params"]["maxTokens"] == 5
    assert UNKNOWN.items() <= asked["params"].items()


@pytest.mark.parametrize("mode", ["form", "url"])
def test_a_server_asks_the_user_of_the_client(pair: Pair, mode: str) -> None:
    said = pair.call({"form": "ask", "url": "open"}[mode])
    assert said == {"action": "accept", **({"content": {"name": "somebody"}} if mode == "form" else {})}
    assert [asked["method"] for asked in pair.client.asked] == ["elicitation/create"]


def test_a_server_sees_the_roots_of_the_client(pair: Pair) -> None:
    assert pair.call("roots") == {"roots": [{"uri": "file:///workspace", "name": "workspace"}]}
    assert [asked["method"] for asked in pair.client.asked] == ["roots/list"]


def test_a_call_is_followed_by_its_progress(pair: Pair) -> None:
    pair.call("steps", progressToken="mine")
    for step in (1, 2):
        pair.client.hear("notifications/progress", progressToken="mine", progress=step, message=f"step {step}")


def test_traces_go_with_requests_and_come_with_what_a_server_asks_and_tells(pair: Pair) -> None:
    client, uri = pair.client, pair.uri("a")
    mine = {**TRACES, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
    assert pair.call("trace", progressToken="mine", **mine) == mine
    methods = ["elicitation/create", "sampling/createMessage", "roots/list"]
    assert [asked["method"] for asked in client.asked] == methods
    told = [asked["params"] for asked in client.asked]
    told.append(client.hear("notifications/progress", progressToken="mine"))
    assert [{key: each.get("_meta", {}).get(key) for key in TRACES} for each in told] == [TRACES] * len(told)
    asked = {"name": pair.named("greet"), "arguments": {"who": "me"}}
    assert client.ask("prompts/get", asked, **mine)["x-traces"] == mine
    assert client.ask("resources/read", {"uri": uri}, **mine)["x-traces"] == mine


def test_a_servers_instructions_are_among_those_of_the_daemon(pair: Pair) -> None:
    assert f"Instructions of {pair.server}." in pair.client.greeting["instructions"]


def test_a_client_reports_its_progress_to_the_server_that_asked(pair: Pair) -> None:
    """Of requests of servers, which the modern era has not."""
    if pair.modern or pair.client.modern:
        assert pair.call("sample")["progress"] == []
    else:
        assert pair.call("sample")["progress"] == [1]


def test_tasks_are_begun_followed_and_cancelled(pair: Pair) -> None:
    """2025-11-25 has them; the modern era has an extension."""
    client, call = pair.client, {"name": pair.named("work"), "arguments": {}, "task": {"ttl": 60000}}
    assert ("tasks" in client.greeting["capabilities"]) is not client.modern
    if pair.modern or client.modern:
        return
    began = client.ask("tools/call", call)
    assert UNKNOWN.items() <= began.items()
    task = began["task"]["taskId"]
    assert client.ask("tasks/get", {"taskId": task})["status"] == "completed"
    result = client.ask("tasks/result", {"taskId": task})
    assert result["_meta"][META + "related-task"]["taskId"] == task
    assert task in [each["taskId"] for each in client.ask("tasks/list")["tasks"]]
    assert client.ask("tasks/cancel", {"taskId": task})["status"] == "cancelled"


def test_a_call_that_becomes_a_task_ends_in_its_result(pair: Pair) -> None:
    """A client without the extension gets the result; one that has the extension polls (SEP-2663)."""
    client, extension = pair.client, Json({META + "tasks": {}})
    answer = {"action": "accept", "content": {"name": "somebody"}}
    assert pair.call("later") == (answer if pair.modern else {})
    if not (pair.modern and client.modern):
        return
    polling: Json = {META + "clientCapabilities": {**CAPABILITIES, "extensions": extension}}
    began = client.call(pair.named("later"), **polling)
    assert (began["resultType"], began["status"], began["ttlMs"]) == ("task", "working", 60000)
    task = {"taskId": began["taskId"]}
    client.listen({"taskIds": [*task.values()]}, **polling)
    shown = client.hear("notifications/tasks", status="input_required", **task)["inputRequests"]
    assert shown["who"]["params"]["message"] == f"Server {pair.server} asks: who?"
    assert client.ask("tasks/get", task, **polling)["inputRequests"] == shown
    client.ask("tasks/update", {**task, "inputResponses": {"who": {"action": "decline"}}}, **polling)
    ended = client.hear("notifications/tasks", status="completed", **task)["result"]
    assert json.loads(ended["content"][0]["text"]) == {"action": "decline"}
    assert client.ask("tasks/get", task, **polling)["result"] == ended
    refusals = [client.ask("tasks/get", {"taskId": each}, **polling) for each in ("later-0", "x" * 43)]
    assert refusals == [{"error": {"code": -32602, "message": UNKNOWN_TASK}}] * 2


OF_THE_HANDSHAKE_ERA = {
    "test_a_client_reports_its_progress_to_the_server_that_asked",
    "test_tasks_are_begun_followed_and_cancelled",
}
"""What only a client and a server of the handshake era have between them."""

COMBINATIONS = {
    **dict.fromkeys(OF_THE_HANDSHAKE_ERA, "h → h"),
    "test_a_call_that_becomes_a_task_ends_in_its_result": "h → m, m → m",
}
"""The features that do not pass in all combinations."""


def test_the_list_in_the_documents_says_what_these_tests_do() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text()
    rows = re.findall(r"^- .+?(?: \(((?:[hm] → [hm](?:, )?)+)\))?: `(test_\w+)`$", page, re.MULTILINE)
    assert {name: said for said, name in rows} == {name: COMBINATIONS.get(name, "") for name in features()}
