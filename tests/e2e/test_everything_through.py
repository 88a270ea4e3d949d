"""server-everything, used by the TypeScript SDK's client with all capabilities: through mcpd as directly.

What differs by nature is told apart here: times of day, the ids and times of tasks, and the environment, which
is that of whoever starts the server.
"""

import base64
import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import NODE, NODE24, ROOT, node_server, serving
from tests.e2e.raw_http import HttpDoor
from tests.waiting import run_to_end

Json = dict[str, Any]

SCRIPT = str(Path(__file__).parent / "clients" / "everything.mjs")
HANDSHAKE = ("node", SCRIPT, str(NODE / "@modelcontextprotocol" / "sdk"))
MODERN = (NODE24, SCRIPT, str(NODE / "@modelcontextprotocol" / "client"))
HANDSHAKE_ONLY = {"level": True, "tasks": True}
"""What the modern era has in another form, or not at all: levels, subscriptions, tasks."""

TIME = re.compile(r"\d{1,2}:\d\d:\d\d [AP]M")
OF_TASKS = re.compile(
    r'(?<="taskId":)"[^"]+"|\d{4}-\d\d-\d\dT[\d:.]+Z|"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"'
)
BLOB = re.compile(r'(?<="blob":")UmVzb3VyY2U[^"]+')
"""A text with a time of day."""

URL_FIRST = "17 trigger-url-elicitation"
OF_THE_MODERN_ERA = {"resultType", "ttlMs", "cacheScope", "_meta"}


@pytest.fixture(scope="module")
def seen() -> Json:
    """What the client saw, by the way that it took. All at once: half of the time is waiting.

    Two daemons, since tools of this server are switches, and two clients would switch each other's.
    """
    ways: dict[str, Callable[[], Json]] = {
        "directly": lambda: _directly(HANDSHAKE, **HANDSHAKE_ONLY),
        "handshake": _in_the_handshake_era,
        "directly, by the newer SDK": lambda: _directly(MODERN),
        "modern": _in_the_modern_era,
    }
    with ThreadPoolExecutor(len(ways)) as beside:
        return dict(zip(ways, beside.map(lambda way: way(), ways.values()), strict=True))


def _directly(client: tuple[str, ...], **more: Any) -> Json:
    entry = node_server("server-everything")
    job = {"command": [entry["command"], *entry["args"]], "env": {"PATH": os.environ["PATH"]}}
    return _used(client, {**job, **more})


def _in_the_handshake_era() -> Json:
    with serving({"mcpServers": {"everything": node_server("server-everything")}}) as daemon:
        used = _used(HANDSHAKE, {"socket": str(daemon.socket), "hello": {"surface": "full"}, **HANDSHAKE_ONLY})
        return {**used, "log": daemon.said()}


def _in_the_modern_era() -> Json:
    door = HttpDoor()
    with serving(
        {"mcpServers": {"everything": node_server("server-everything")}, "listen": door.listen}
    ) as daemon:
        job = {"url": door.url("default", "full"), "headers": door.headers(), "mode": "2026-07-28"}
        return {**_used(MODERN, job), "log": daemon.said()}


def _used(client: tuple[str, ...], job: Json) -> Json:
    done = run_to_end(client, input=json.dumps(job), cwd=ROOT)
    assert done.stdout, done.stderr
    used: Json = json.loads(done.stdout.splitlines()[-1])
    return used


def _plain(name: str, result: Any) -> str:
    """A result as it was, but for what differs by nature."""
    if name.endswith("get-env"):
        return "an environment"
    if name.endswith("progress"):
        # Whether the last one still comes before the answer is decided by the machine.
        result = result[:1]
    text = json.dumps(result, separators=(",", ":"))
    text = BLOB.sub(lambda blob: base64.b64decode(blob[0]).decode(), text)
    return OF_TASKS.sub("?", TIME.sub("TIME", text))


def _unsigned(text: str) -> str:
    """What a server asks without the words that say which server asks."""
    return text.replace("Server everything asks: ", "")


def _differences(directly: Json, through: Json) -> dict[str, tuple[str, str]]:
    wanted = {name: _plain(name, result) for name, result in directly["results"].items()}
    got = {name: _unsigned(_plain(name, result)) for name, result in through["results"].items()}
    return {name: (each, got.get(name, "nothing")) for name, each in wanted.items() if each != got.get(name)}


def test_a_client_of_the_handshake_era_gets_what_it_gets_directly(seen: Json) -> None:
    assert _differences(seen["directly"], seen["handshake"]) == {}, seen["handshake"]["log"]


def test_a_client_of_the_handshake_era_is_asked_and_told_what_it_is_directly(seen: Json) -> None:
    directly, through = seen["directly"], seen["handshake"]
    asked = [_plain("", each) for each in directly["asked"]]
    assert [_unsigned(_plain("", each)) for each in through["asked"]] == asked
    of_calls = {
        "notifications/resources/updated",
        "notifications/resources/list_changed",
        "notifications/tasks/status",
    }
    told = {each["method"] for each in directly["told"]} & of_calls
    assert told <= {each["method"] for each in through["told"]}


def test_it_sees_the_servers_capabilities(seen: Json) -> None:
    declared = seen["handshake"]["capabilities"]
    assert {**declared, **seen["directly"]["capabilities"]} == declared


def test_a_modern_client_of_the_same_server_gets_the_same(seen: Json) -> None:
    directly = seen["directly, by the newer SDK"]["results"]
    through = {name: _of_both_eras(result) for name, result in seen["modern"]["results"].items()}
    # An error of 2025-11-25 that sends the user to a URL; 2026-07-28 has another way to do that.
    assert "-32042" in _plain("", through.pop(URL_FIRST))
    shared = {name: result for name, result in directly.items() if name != URL_FIRST}
    # This SDK decodes tools of the two eras differently: in another order, and in one era without `execution`.
    shared, through = _sorted(shared), _sorted(through)
    for tool in shared["tools/list"]["tools"]:
        del tool["execution"]
    assert _differences({"results": shared}, {"results": through}) == {}, seen["modern"]["log"]


def _sorted(results: Json) -> Json:
    found: Json = json.loads(json.dumps(results, sort_keys=True))
    return found


def _of_both_eras(result: Any) -> Any:
    if not isinstance(result, dict):
        return result
    return {name: member for name, member in result.items() if name not in OF_THE_MODERN_ERA}
