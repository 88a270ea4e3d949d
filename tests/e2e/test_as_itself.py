"""A server through mcpd, as itself, against the same server connected directly: the bytes of both are compared.

The scripted server speaks either era, and so do the clients, over a unix socket and over HTTP. Another server
lists the same, so that on every other surface names would be qualified.
"""

import http.client
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from tests.e2e.harness import Daemon, RawClient, Spawned, running, scripted, serving
from tests.e2e.raw_http import INITIALIZE, META, MODERN, TOKEN, listening
from tests.scripted_server import command
from tests.unit.cases import cases, rows_of
from tests.waiting import WAIT, eventually

Json = dict[str, Any]

INFO = {
    "name": "Git",
    "title": "Git für alle",
    "version": "1.2.3",
    "websiteUrl": "https://git.example",
    "icons": [{"src": "data:image/png;base64,AAAA", "mimeType": "image/png", "sizes": ["48x48"]}],
}
CAPABILITIES = {
    "tools": {"listChanged": False},
    "prompts": {},
    "resources": {"subscribe": False, "listChanged": True},
    "completions": {},
    "logging": {},
}
SAID = {"capabilities": CAPABILITIES, "instructions": "  Use git_status first.\n\n Then commit. "}
TOOLS = rows_of(Path(__file__), "tools")
PROMPTS = rows_of(Path(__file__), "prompts")
RESOURCES = rows_of(Path(__file__), "resources")
TEMPLATES = [{"uriTemplate": "git://show/{hash}", "name": "show", "mimeType": "text/x-diff"}]
PROMPT = {"messages": [{"role": "user", "content": {"type": "text", "text": "r\u00e9"}}], "_meta": {"a": 1}}
CONTENTS = {"contents": [{"uri": "git://log", "text": "c0ffee", "_meta": {"b": [2]}}]}
ERROR = {"code": -32010, "message": "not a repository", "data": {"path": "/x", "tried": [1, 2.5, None]}}

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
RESULTS: dict[str, tuple[str, Json]] = dict(rows_of(Path(__file__), "results"))
ADDED = {"resultType", "ttlMs", "cacheScope"}
"""Members of results that only the later era has."""


def script(era: str, **more: Any) -> Json:
    """A server with something of everything."""
    versions = {"protocolVersion": "2025-11-25", "serverInfo": INFO}
    modern = {"supportedVersions": [MODERN], "_meta": {"io.modelcontextprotocol/serverInfo": INFO}}
    listed = zip(LISTS.values(), (TOOLS, PROMPTS, RESOURCES, TEMPLATES), strict=True)
    lists = {member: {"result": {member: items}} for member, items in listed}
    return {
        "era": era,
        "tools": TOOLS,
        "page": 2,
        "on": {
            "initialize": {"result": {**SAID, **versions}},
            **({"server/discover": {"result": {**SAID, **modern}}} if era == "modern" else {}),
            **{method: lists[member] for method, member in LISTS.items() if member != "tools"},
            "prompts/get": {"result": PROMPT},
            "resources/read": {"result": CONTENTS},
            "completion/complete": {"result": {"completion": {"values": ["main"], "total": 1}}},
            **more,
        },
    }


class Client(ABC):
    """A client that sees the bytes of answers."""

    def __init__(self, era: str) -> None:
        self.modern = era == "modern"
        self._last = 0

    @abstractmethod
    def exchange(self, method: str, said: bytes) -> bytes:
        """Send a request, and return the line that answers it."""

    def ask(self, method: str, params: Json | None = None) -> dict[str, Raw]:
        """The members of an answer, but for its id."""
        self._last += 1
        meta = {"_meta": META} if self.modern else {}
        request = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": {**(params or {}), **meta}}
        members = msgspec.json.decode(self.exchange(method, json.dumps(request).encode()), type=dict[str, Raw])
        assert int(bytes(members.pop("id"))) == self._last
        return members

    def begin(self, name: str = "raw") -> dict[str, Raw]:
        """The handshake: `serverInfo`, `capabilities` and `instructions`, raw."""
        if self.modern:
            result = _members(self.ask("server/discover")["result"])
            info = _members(result["_meta"])["io.modelcontextprotocol/serverInfo"]
            return {**_only(result, SAID), "serverInfo": info}
        result = _members(
            self.ask("initialize", {**INITIALIZE, "clientInfo": {"name": name, "version": "1"}})["result"]
        )
        return _only(result, {**SAID, "serverInfo": None})

    def all_of(self, method: str) -> list[bytes]:
        """The items of a list, over all its pages."""
        items: list[bytes] = []
        cursor: Json = {}
        while True:
            result = _members(self.ask(method, cursor)["result"])
            items += map(bytes, msgspec.json.decode(result[LISTS[method]], type=list[Raw]))
            if "nextCursor" not in result:
                return items
            cursor = {"cursor": json.loads(bytes(result["nextCursor"]))}


class Lines(Client):
    """A client of lines: a server's own stdio, or a daemon's socket."""

    def __init__(self, era: str, raw: RawClient) -> None:
        super().__init__(era)
        self._raw = raw

    def exchange(self, method: str, said: bytes) -> bytes:
        """Pass over what is no answer."""
        self._raw.send(said)
        while True:
            line = self._raw.line()
            if b'"method"' not in line[:60]:
                return line


class Http(Client):
    """A client over HTTP."""

    def __init__(self, era: str, port: int, path: str) -> None:
        super().__init__(era)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
        self._path = path
        self._session: dict[str, str] = {}

    def exchange(self, method: str, said: bytes) -> bytes:
        """As a POST."""
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self._session,
        }
        params = json.loads(said)["params"]
        if self.modern:
            named = params.get("name") or params.get("uri")
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            headers |= {"Mcp-Name": named} if named else {}
        self._connection.request("POST", self._path, said, headers)
        response = self._connection.getresponse()
        if session := response.headers.get("Mcp-Session-Id"):
            self._session = {"Mcp-Session-Id": session}
        body = response.read()
        data = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
        return data[-1] if data else body

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


@contextmanager
def directly(era: str, **more: Any) -> Iterator[Lines]:
    """The server itself, over its stdio."""
    with Spawned(command(**script(era, **more))) as raw:
        yield Lines(era, raw)


@contextmanager
def over_socket(daemon: Daemon, era: str, *servers: str, **more: Any) -> Iterator[Lines]:
    """Through a daemon, as `mcpd connect --server` would."""
    with daemon.client() as raw:
        raw.hello(**{**({"servers": list(servers)} if servers else {}), **more})
        yield Lines(era, raw)


def _members(raw: bytes | Raw) -> dict[str, Raw]:
    return msgspec.json.decode(raw, type=dict[str, Raw])


def _only(members: dict[str, Raw], names: Json) -> dict[str, Raw]:
    return {name: members[name] for name in names if name in members}


def passed_on(capabilities: Any) -> Json:
    """What a server declares, as mcpd tells it: that a list may change is always said."""
    changing = {"tools", "prompts", "resources"}
    return {
        name: {**own, "listChanged": True} if name in changing else own for name, own in capabilities.items()
    }


def compare(direct: Client, through: Client) -> None:
    """Everything that both say must be the same."""
    own, told = direct.begin(), through.begin()
    assert json.loads(bytes(told["serverInfo"])) == json.loads(bytes(own["serverInfo"])) == INFO
    assert json.loads(bytes(told["instructions"])) == SAID["instructions"]
    assert json.loads(bytes(told["capabilities"])) == passed_on(json.loads(bytes(own["capabilities"])))
    for method in LISTS:
        assert through.all_of(method) == direct.all_of(method), method
    for what, (method, params) in RESULTS.items():
        answer, wanted = through.ask(method, params), direct.ask(method, params)
        assert answer.keys() == wanted.keys(), what
        if "error" in wanted:
            assert json.loads(bytes(answer["error"])) == json.loads(bytes(wanted["error"])) == ERROR
        elif through.modern:
            # What the later era wants besides stands before what the server wrote.
            assert bytes(answer["result"]).endswith(bytes(wanted["result"])[1:]), what
            more = _members(answer["result"]).keys() - _members(wanted["result"]).keys()
            assert more <= ADDED, what
        else:
            assert bytes(answer["result"]) == bytes(wanted["result"]), what


ERAS = ("handshake", "modern")


@pytest.fixture(scope="module", params=ERAS)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Daemon, int, str]]:
    """A daemon with a server of an era, and another that lists the same."""
    port, listen = listening()
    servers = {"git": scripted(**script(request.param)), "other": scripted(**script(request.param))}
    with running({"mcpServers": servers, "listen": listen}) as daemon:
        yield daemon, port, request.param


@pytest.mark.parametrize("era", ERAS)
def test_a_server_is_over_a_socket_what_it_is_directly(served: tuple[Daemon, int, str], era: str) -> None:
    daemon, _port, own_era = served
    with directly(own_era) as direct, over_socket(daemon, era, "git") as through:
        compare(direct, through)


@pytest.mark.parametrize("era", ERAS)
def test_a_server_is_over_http_what_it_is_directly(served: tuple[Daemon, int, str], era: str) -> None:
    _daemon, port, own_era = served
    with directly(own_era) as direct, closing(Http(era, port, "/mcp/-/git")) as through:
        compare(direct, through)


def refusal_of(client: Client, method: str = "tools/list") -> str:
    """Why a client is served nothing."""
    return str(json.loads(bytes(client.ask(method)["error"]))["message"])


def names(client: Client, method: str = "tools/list") -> list[str]:
    """What a client is given in a list."""
    return [json.loads(item)["name"] for item in client.all_of(method)]


RESTRICTED = {
    "mcpServers": {name: scripted(**script("handshake")) for name in ("git", "other")},
    "categories": {"some": {"server": "git", "tools": {"excludePatterns": ["git__*"]}}},
    "profiles": {"some": {"categories": ["some"], "prompts": False, "excludedTools": ["act"]}},
}


@pytest.fixture(scope="module")
def restricted() -> Iterator[tuple[Daemon, int]]:
    """A daemon with a profile that shows little, and a token for it."""
    port, listen = listening(tokens=[{"name": "some", "value": TOKEN, "profiles": ["some"]}])
    with serving({**RESTRICTED, "listen": listen}) as daemon:
        yield daemon, port


def test_what_a_profile_restricts_stays_restricted(restricted: tuple[Daemon, int]) -> None:
    daemon, port = restricted
    with over_socket(daemon, "handshake", "git", profile="some") as client:
        assert b"prompts" not in bytes(client.begin()["capabilities"])
        assert names(client) == ["git_status", "other__echo"]
        assert "Method not found" in refusal_of(client, "prompts/list")
        called = client.ask("tools/call", {"name": "act", "arguments": {}})
        assert b"ToolDisabled" in bytes(called["result"])
    with over_socket(daemon, "handshake", "other", profile="some") as client:
        assert "profile 'some' shows nothing of server 'other'" in refusal_of(client)
    with closing(Http("modern", port, "/mcp/-/git")) as web:
        assert names(web) == ["git_status", "other__echo"]


@cases("servers", "reason")
def test_bad_input_is_served_nothing_and_told_why(
    restricted: tuple[Daemon, int], servers: Any, reason: str
) -> None:
    with over_socket(restricted[0], "handshake", servers=servers) as client:
        for method in ("initialize", "tools/list", "ping"):
            assert refusal_of(client, method).startswith(reason)


@cases("path", "text")
def test_over_http_a_wrong_path_is_not_found(restricted: tuple[Daemon, int], path: str, text: str) -> None:
    with closing(Http("modern", restricted[1], path)) as client:
        assert client.exchange("ping", b'{"params":{}}').decode().startswith(text)


def test_several_servers_are_qualified_only_where_they_clash_among_themselves(
    served: tuple[Daemon, int, str],
) -> None:
    daemon, port, _era = served
    with over_socket(daemon, "handshake", "other", "git") as client:
        begun = client.begin()
        assert json.loads(bytes(begun["serverInfo"]))["name"] == "mcpd"
        assert "git: Use git_status first." in json.loads(bytes(begun["instructions"]))
        listed = names(client)
        assert len(listed) == len(set(listed)) == 2 * len(TOOLS)
        assert {"git_status", "other__git_status"} <= set(listed)
        for name in listed:
            assert b"error" not in bytes(client.ask("tools/call", {"name": name})["result"])
    with closing(Http("handshake", port, "/mcp/-/other,git")) as web:
        web.begin()
        assert names(web) == listed


def test_a_server_that_is_switched_off_shows_nothing_and_comes_back() -> None:
    with (
        serving({"mcpServers": {"git": scripted(**script("handshake"))}}) as daemon,
        RawClient(daemon.socket) as client,
    ):
        client.hello(servers=["git"])
        client.greet()
        assert len(client.listed()) == len(TOOLS)
        daemon.run("disable", "git")
        client.notice("notifications/tools/list_changed")
        assert client.listed() == []
        assert "mcpd enable git" in json.dumps(client.call("git_status", {}))
        with over_socket(daemon, "handshake", "git") as other:
            said = other.begin()
            assert json.loads(bytes(said["serverInfo"])) == INFO
            assert "switched off by an operator" in bytes(said["instructions"]).decode()
        daemon.run("enable", "git")
        client.notice("notifications/tools/list_changed")
        assert len(client.listed()) == len(TOOLS)


def test_a_server_that_was_never_up_is_waited_for_and_one_that_was_is_not() -> None:
    slow = {"start": {"delay": 1.0}}
    lazy = {**scripted(**script("handshake", **slow)), "start": "lazy"}
    with running({"mcpServers": {"git": lazy}}) as daemon:
        with over_socket(daemon, "handshake", "git") as client:
            assert json.loads(bytes(client.begin()["serverInfo"])) == INFO
            assert names(client) == [each["name"] for each in TOOLS]
        eventually(lambda: daemon.persistence()["waiting"] == 0, daemon.said)
        daemon.restart()
        with over_socket(daemon, "modern", "git") as client:
            said = client.begin()
            assert json.loads(bytes(said["serverInfo"])) == INFO
            assert json.loads(bytes(said["instructions"])) == SAID["instructions"]
            # Nothing was started for that: it was stored.
            assert daemon.ask("status")["servers"]["git"]["state"] == "dormant"


def test_a_server_that_does_not_come_up_holds_no_client_up_for_long() -> None:
    stuck = scripted(**script("handshake", initialize={"never": True}))
    with running({"mcpServers": {"git": stuck}}) as daemon, over_socket(daemon, "handshake", "git") as client:
        # One that is known to give up after five seconds.
        said = client.begin("opencode")
        assert json.loads(bytes(said["serverInfo"]))["name"] == "mcpd"
        assert json.loads(bytes(said["instructions"])).startswith("git: not there yet")


@contextmanager
def bridged(daemon: Daemon, *arguments: str) -> Iterator[Lines]:
    """Through `mcpd connect`."""
    with daemon.bridge(*arguments) as raw:
        yield Lines("handshake", raw)


def test_bridges_with_different_servers_share_one_daemon_and_its_processes() -> None:
    entries = {name: scripted(**{**script("handshake"), "tools": ["pid", name]}) for name in ("git", "other")}
    with serving({"mcpServers": entries}) as daemon:
        known = {name: str(each["pid"]) for name, each in daemon.ask("status")["servers"].items()}
        with bridged(daemon, "--server", "git") as one, bridged(daemon, "--server", "other") as two:
            for name, bridge in (("git", one), ("other", two)):
                assert json.loads(bytes(bridge.begin()["serverInfo"])) == INFO
                assert names(bridge) == ["pid", name]
                called = bridge.ask("tools/call", {"name": "pid", "arguments": {}})
                assert json.loads(bytes(called["result"]))["content"][0]["text"] == known[name]
            sessions = daemon.ask("status")["sessions"]
            assert {(each["surface"], *each["servers"]) for each in sessions} == {
                ("itself", "git"),
                ("itself", "other"),
            }
            assert "itself: git" in daemon.run("status")


def test_a_bridge_waits_for_a_server_that_was_never_up() -> None:
    slow = scripted(**script("handshake", start={"delay": 2.0}))
    with running({"mcpServers": {"git": slow}}) as daemon, bridged(daemon, "--server", "git") as bridge:
        # The bridge's own stand-in would have answered after a second, as mcpd.
        assert json.loads(bytes(bridge.begin()["serverInfo"])) == INFO
