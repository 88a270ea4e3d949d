"""Prompts, resources, templates and completions through mcpd are what they are at the server itself.

Real servers of both eras, one over the other's transport, and the SDK's client in both eras, at each door.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.doors import HttpDoor
from tests.e2e.harness import ROOT, Daemon, node_server, running
from tests.pairwise import each_once
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
CLIENT = (sys.executable, str(HERE / "clients" / "beside.py"))
SERVERS = {
    "everything": node_server("server-everything"),
    "beside": {"command": sys.executable, "args": [str(HERE / "beside_server.py")]},
}
ERAS = {"everything": ["legacy"], "beside": ["legacy", "auto"]}
"""The eras that each server speaks itself."""

ASKED: dict[str, dict[str, Any]] = {
    "everything": {
        "prompts": {
            "simple-prompt": None,
            "args-prompt": {"city": "K\u00f6ln", "state": "NRW"},
            "completable-prompt": {"department": "Engineering", "name": "Alice"},
            "resource-prompt": {"resourceType": "Text", "resourceId": "1"},
        },
        "read": ["demo://resource/dynamic/text/1", "demo://resource/dynamic/blob/2"],
        "completions": [
            [{"type": "ref/prompt", "name": "completable-prompt"}, {"name": "department", "value": "E"}],
            [
                {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"},
                {"name": "resourceId", "value": "7"},
            ],
        ],
    },
    "beside": {
        "prompts": {"greet": {"who": "\U0001f389", "tone": "dry"}, "plain": None},
        "read": ["note://by-number/2"],
        "completions": [
            [{"type": "ref/prompt", "name": "greet"}, {"name": "tone", "value": "k"}],
            [{"type": "ref/resource", "uri": "note://by-number/{number}"}, {"name": "number", "value": ""}],
        ],
    },
}
NOW = re.compile(r"created at [^\"\\]*")
"""What server-everything writes into what it makes up."""


@pytest.fixture(scope="module")
def door() -> HttpDoor:
    return HttpDoor()


@pytest.fixture(scope="module")
def daemon(door: HttpDoor) -> Iterator[Daemon]:
    profiles = {name: {"categories": [name]} for name in SERVERS}
    without = {"prompts": False, "resources": False}
    config = {
        "mcpServers": SERVERS,
        "profiles": {**profiles, "without": without, "full": {"surface": "full"}},
        "listen": door.listen,
    }
    with running(config) as daemon:
        daemon.ready()
        yield daemon


def seen(server: str, era: str, **way: Any) -> dict[str, Any]:
    """What the client sees, without what differs from one moment to the next."""
    done = subprocess.run(
        [*CLIENT, json.dumps({"era": era, **ASKED[server], **way})],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin:/usr/local/bin"},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(NOW.sub("created at some time", done.stdout))
    for each in found["read"].values():
        for contents in each["contents"]:
            if "blob" in contents and "/dynamic/" in contents["uri"]:
                said = base64.b64decode(contents["blob"]).decode()
                contents["blob"] = NOW.sub("created at some time", said)
    return found


@pytest.fixture(scope="module")
def directly() -> dict[str, list[dict[str, Any]]]:
    """What the client sees of each server without mcpd, in the eras that it speaks."""
    return {
        name: [seen(name, era, command=[entry["command"], *entry["args"]]) for era in ERAS[name]]
        for name, entry in SERVERS.items()
    }


@pytest.mark.parametrize(
    ("door_of", "server", "era"), each_once(["socket", "connect", "http"], [*SERVERS], ["auto", "legacy"])
)
def test_a_client_is_given_what_the_server_would_give_it(
    daemon: Daemon,
    door: HttpDoor,
    directly: dict[str, list[dict[str, Any]]],
    server: str,
    door_of: str,
    era: str,
) -> None:
    connect = daemon.command("connect", "--socket", str(daemon.socket), "--profile", server)
    ways: dict[str, dict[str, Any]] = {
        "socket": {"socket": str(daemon.socket), "hello": {"profile": server}},
        "connect": {"command": connect, "env": {**daemon.environ, "PYTHONPATH": str(ROOT)}},
        "http": {"url": door.url(server), "headers": door.headers()},
    }
    found = seen(server, era, **ways[door_of])
    version, declared = found.pop("version"), found.pop("capabilities")
    assert version == ("2025-11-25" if era == "legacy" else "2026-07-28")
    # Tasks are for clients of the handshake era, and where a server has some.
    assert set(declared) - {"tasks"} == {"completions", "logging", "prompts", "resources", "tools"}
    for direct in directly[server]:
        assert found == {key: direct[key] for key in found}


def test_a_client_is_told_of_new_resources_and_reads_what_was_linked(daemon: Daemon) -> None:
    with daemon.client().hello(profile="full") as one, daemon.client().hello(profile="full") as modern:
        one.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        before = one.ask("resources/list")["result"]["resources"]
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        wanted = {"resourcesListChanged": True, "promptsListChanged": True}
        listen = {"jsonrpc": "2.0", "id": "sub", "method": "subscriptions/listen"}
        modern.send(json.dumps({**listen, "params": {"_meta": meta, "notifications": wanted}}).encode())
        acknowledged = modern.notice("notifications/subscriptions/acknowledged")
        assert acknowledged["params"]["notifications"] == wanted
        data = "data:text/plain;base64," + base64.b64encode(b"hello").decode()
        result = one.call("gzip-file-as-resource", {"name": "hello.gz", "data": data})
        (link,) = [each for each in result["content"] if each["type"] == "resource_link"]
        told = modern.notice("notifications/resources/list_changed")
        assert told["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "sub"}
        assert one.notice("notifications/resources/list_changed")["params"] == {}
        after = [each["uri"] for each in one.ask("resources/list")["result"]["resources"]]
        assert link["uri"] in after
        assert link["uri"] not in [each["uri"] for each in before]
        (contents,) = one.ask("resources/read", {"uri": link["uri"]})["result"]["contents"]
        assert contents["mimeType"] == "application/gzip"


def test_a_profile_does_without_them(daemon: Daemon) -> None:
    with daemon.client().hello(profile="without") as client:
        declared = client.ask("initialize", {"protocolVersion": "2025-11-25"})["result"]["capabilities"]
        assert set(declared) == {"tools", "logging", "tasks"}
        assert client.ask("prompts/list")["error"]["code"] == -32601
        assert client.ask("resources/read", {"uri": "note://index"})["error"]["code"] == -32601
