"""Extensions of the protocol through a daemon, with one server alone and on shared surfaces."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from daemon.protocol import DROPPED
from tests.e2e.harness import Daemon, Spawned, running, scripted, serving
from tests.e2e.raw_http import META, listening
from tests.e2e.test_as_itself import ERAS, INFO, Client, Http, Lines, over_socket
from tests.scripted_server import command
from tests.unit.cases import rows_of
from tests.waiting import eventually

pytestmark = pytest.mark.e2e

Json = dict[str, Any]

OWN = "io.modelcontextprotocol/"
UI, TASKS, SKILLS = OWN + "ui", OWN + "tasks", OWN + "skills"
OF_MCPD = {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}
CAPABILITIES_KEY = OWN + "clientCapabilities"
VERSION: Json = {"protocolVersion": "2025-11-25", "serverInfo": INFO}
DISCOVERED: Json = {"supportedVersions": ["2026-07-28"], "_meta": {OWN + "serverInfo": INFO}}


def server(era: str, extensions: object, **script: Any) -> Json:
    """A server of an era with these extensions."""
    said = {"capabilities": {"tools": {}, "extensions": extensions}}
    on = {"initialize": {"result": {**said, **VERSION}}, "server/discover": {"result": {**said, **DISCOVERED}}}
    if era == "handshake":
        del on["server/discover"]
    return scripted(era=era, tools=["echo"], on={**on, **script.pop("on", {})}, **script)


def heard(record: Path, method: str) -> list[Json]:
    """The params of all messages of a method that a server has got."""
    events = map(json.loads, record.read_text().splitlines())
    messages = [event["message"] for event in events if event["event"] == "message"]
    return [message.get("params", {}) for message in messages if message.get("method") == method]


def ask(client: Client, method: str, params: Json | None = None, extensions: object = None) -> Json:
    """The answer to a request, of a client that declares these extensions."""
    capabilities = {} if extensions is None else {"roots": {}, "extensions": extensions}
    said: Json = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    if client.modern:
        said["params"] = {**said["params"], "_meta": {**META, CAPABILITIES_KEY: capabilities}}
    elif method == "initialize":
        more = {"capabilities": capabilities, "clientInfo": {"name": "c"}}
        said["params"] = {"protocolVersion": "2025-11-25", **more}
    answer: Json = json.loads(client.exchange(method, json.dumps(said).encode()))
    return answer


def declared(client: Lines, extensions: object = None) -> Json:
    """The capabilities that a client is told, once it has declared its own."""
    method = "server/discover" if client.modern else "initialize"
    said: Json = ask(client, method, extensions=extensions)["result"]["capabilities"]
    return said


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """With servers that declare something, well and badly."""
    script = tmp_path_factory.mktemp("large") / "script"
    large = server("handshake", {"com.example/large": {"x": "x" * 1_000_000}, "com.example/small": {}})
    # Longer than an argument may be.
    script.write_text(large["args"].pop())
    servers = {
        "first": server("handshake", {UI: {"mimeTypes": ["a"]}, "com.example/x": {"n": 1.50}, TASKS: {}}),
        "second": server("modern", {UI: {}, TASKS: {}, SKILLS: {"directoryRead": True}, "tools/call": {}}),
        "large": {**large, "args": [*large["args"], f"@{script}"]},
        "array": server("modern", ["com.example/x"]),
    }
    with serving({"mcpServers": servers}) as daemon:
        yield daemon


OF_SERVERS: dict[str, Json] = {
    "first": {UI: {"mimeTypes": ["a"]}, "com.example/x": {"n": 1.50}},
    "second": {UI: {}, TASKS: {}, SKILLS: {"directoryRead": True}, "tools/call": {}},
    "large": {"com.example/small": {}},
    "array": {},
}


@pytest.mark.parametrize("era", ERAS)
def test_one_server_alone_declares_all_but_what_is_not_routed(daemon: Daemon, era: str) -> None:
    for name, extensions in OF_SERVERS.items():
        with over_socket(daemon, era, name) as client:
            passing = {key: own for key, own in extensions.items() if key != TASKS or era == "modern"}
            assert declared(client)["extensions"] == passing, name
            assert not ask(client, "tools/call", {"name": "echo", "arguments": {}})["result"]["isError"], name
    said = daemon.said()
    assert "declares things that mcpd drops: extension 'com.example/large': not an object, or over" in said
    assert "declares things that mcpd drops: `extensions`, which is not an object" in said


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("servers", [(), ("second", "first")])
def test_a_shared_surface_declares_the_known_ones_as_the_first_server_has_them(
    daemon: Daemon, era: str, servers: tuple[str, ...]
) -> None:
    with over_socket(daemon, era, *servers) as client:
        wanted: Json = {UI: {"mimeTypes": ["a"]}, SKILLS: {"directoryRead": True}}
        assert declared(client)["extensions"] == wanted | ({TASKS: {}} if era == "modern" else {})


CLIENTS = {UI: {"mimeTypes": ["b"]}, "com.example/x": {"m": [1.0]}, TASKS: {}}


@pytest.mark.parametrize(
    ("names", "share", "wanted"),
    [((), "all", {UI: CLIENTS[UI], TASKS: {}}), (("own",), "all", CLIENTS), ((), "session", CLIENTS)],
)
def test_a_modern_server_hears_of_its_clients_extensions_with_each_call(
    tmp_path: Path, names: tuple[str, ...], share: str, wanted: Json
) -> None:
    record = tmp_path / "record"
    entry = {**server("modern", {}, record=str(record)), "share": share}
    with running({"mcpServers": {"own": entry}}) as daemon:
        eventually(lambda: record.exists() and heard(record, "tools/list"), daemon.said)
        with over_socket(daemon, "modern", *names, surface="full") as client:
            ask(client, "tools/call", {"name": "echo", "arguments": {}}, CLIENTS)
        (call,) = heard(record, "tools/call")
        assert call["_meta"][CAPABILITIES_KEY] == {"roots": {}, "extensions": wanted}
        for listed in heard(record, "tools/list"):
            # No list is a task.
            of_instance = {name: each for name, each in CLIENTS.items() if name != TASKS and share != "all"}
            assert listed["_meta"][CAPABILITIES_KEY]["extensions"] in (OF_MCPD, of_instance)


def test_a_shared_server_of_the_older_era_hears_of_apps_and_an_instance_of_its_own_client(
    tmp_path: Path,
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    servers = {
        "shared": server("handshake", {}, record=str(shared)),
        "own": {**server("handshake", {}, record=str(own)), "share": "session"},
    }
    with running({"mcpServers": servers}) as daemon:
        daemon.ready("shared")
        with over_socket(daemon, "handshake", surface="full") as client:
            large = {"com.example/large": {"x": "x" * 1_000_000}}
            assert "extensions" not in declared(client, {**large, **CLIENTS})
            ask(client, "tools/call", {"name": "own__echo", "arguments": {}})
        (told,) = heard(shared, "initialize")
        assert told["capabilities"]["extensions"] == OF_MCPD
        wanted = {name: value for name, value in CLIENTS.items() if name != TASKS}
        eventually(
            lambda: (
                [each["capabilities"].get("extensions") for each in heard(own, "initialize")][-1:] == [wanted]
            )
        )
        assert "mcpd drops these of the client's capabilities: extension 'com.example/large'" in daemon.said()


ON: Json = dict(rows_of(Path(__file__), "on"))
ASKED: list[tuple[str, Json]] = rows_of(Path(__file__), "asked")


def of_era(era: str) -> Json:
    """The script of a server that declares and refuses all sorts of things."""
    other = {"handshake": "server/discover", "modern": "initialize"}[era]
    return {
        "era": era,
        "tools": ["echo"],
        "on": {method: each for method, each in ON.items() if method != other},
    }


@contextmanager
def whole(era: str) -> Iterator[Lines]:
    """That server, connected directly."""
    with Spawned(command(**of_era(era))) as raw:
        yield Lines(era, raw)


@pytest.fixture(scope="module", params=ERAS)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[Daemon, str, int]]:
    """A daemon with that server, of an era, twice."""
    entry = scripted(**of_era(request.param))
    port, listen = listening()
    with serving({"mcpServers": {"one": entry, "two": entry}, "listen": listen}) as daemon:
        yield daemon, request.param, port


def test_a_handshake_is_the_servers_own_member_for_member(both: tuple[Daemon, str, int]) -> None:
    daemon, era, _port = both
    method = {"handshake": "initialize", "modern": "server/discover"}[era]
    added = {} if era == "handshake" else {"ttlMs": 0, "cacheScope": "private"}
    with whole(era) as direct, over_socket(daemon, era, "one") as through:
        assert ask(through, method)["result"] == {**ask(direct, method)["result"], **added}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("door", ["unix", "http"])
def test_answers_and_errors_are_the_servers_own(both: tuple[Daemon, str, int], door: str, era: str) -> None:
    daemon, own_era, port = both
    web = closing(Http(era, port, "/mcp/-/one"))
    with whole(own_era) as direct, web if door == "http" else over_socket(daemon, era, "one") as through:
        for client in (direct, through):
            ask(client, "server/discover" if client.modern else "initialize")
        for method, params in ASKED:
            wanted, answer = ask(direct, method, params), ask(through, method, params)
            if era == "modern" and "result" in wanted:
                wanted["result"]["resultType"] = "complete"
            if era == "modern" and method in DROPPED:
                assert answer["error"]["code"] == -32601
                continue
            if method == "logging/setLevel":
                # The scripted server takes a level that it does not declare.
                wanted = {**answer, "error": {"code": -32601, "message": "Method not found"}}
            assert answer == wanted, method
