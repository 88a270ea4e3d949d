"""Programs that nobody here wrote, over streamable HTTP: the MCP Inspector, and the curl of docs/http.md."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import NODE, NODE24, ROOT, Daemon, program, scripted, serving
from tests.e2e.raw_http import HttpDoor
from tests.pairwise import at_night
from tests.waiting import eventually, run_to_end

INSPECTOR = NODE / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"


@pytest.fixture(scope="module")
def door() -> HttpDoor:
    return HttpDoor()


@pytest.fixture(scope="module")
def daemon(door: HttpDoor) -> Iterator[Daemon]:
    """It keeps a token of its own, which `mcpd token` shows."""
    listen = {"http": {"address": f"127.0.0.1:{door.port}"}}
    with serving({"mcpServers": {"time": scripted(tools=["get_current_time"])}, "listen": listen}) as daemon:
        yield daemon


def inspect(daemon: Daemon, door: HttpDoor, era: str, *words: str) -> dict[str, Any]:
    """What the Inspector prints."""
    token = daemon.run("token").splitlines()[-1]
    command = [NODE24, str(INSPECTOR), "--cli", door.url(), "--transport", "http", "--protocol-era", era]
    done = run_to_end(
        [*command, "--header", f"Authorization: Bearer {token}", *words],
        env={"PATH": os.environ["PATH"], "HOME": str(daemon.directory)},
    )
    assert done.returncode == 0, done.stderr + daemon.said()
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.mark.parametrize("era", at_night(["legacy", "modern", "auto"], "modern"))
def test_the_inspector_finds_no_fault_in_the_tools_and_calls_one(
    daemon: Daemon, door: HttpDoor, era: str
) -> None:
    listed = inspect(daemon, door, era, "--method", "tools/list", "--strict")
    call = ["--tool-arg", "category=time", "name=get_current_time", 'args={"timezone": "UTC"}']
    called = inspect(daemon, door, era, "--method", "tools/call", "--tool-name", "call-category-tool", *call)

    assert [tool["name"] for tool in listed["tools"]] == [
        "get-category-tools",
        "call-category-tool",
        "call-read-only-tool",
    ]
    assert json.loads(called["content"][0]["text"]) == {"timezone": "UTC"}


def documented() -> str:
    """The commands with curl in docs/http.md, as a script."""
    blocks = re.findall(
        r"^```console\n(.*?)^```$", (ROOT / "docs" / "http.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return re.sub(r"^\$ ", "", "".join(each for each in blocks if "curl" in each), flags=re.MULTILINE)


def clients_of(daemon: Daemon) -> list[str]:
    """The names of those that have a session."""
    return [session["client"] for session in daemon.ask("status")["sessions"]]


def decoded(printed: str) -> list[dict[str, Any]]:
    """The JSON objects that stand in it one after the other."""
    found, decoder = [], json.JSONDecoder()
    while printed := printed.lstrip():
        message, end = decoder.raw_decode(printed)
        found.append(message)
        printed = printed[end:]
    return found


def test_the_curl_commands_of_the_page_do_what_they_are_shown_for(daemon: Daemon, door: HttpDoor) -> None:
    """As they stand there, but for the port: another daemon may have the usual one."""
    script = documented().replace(":7337/", f":{door.port}/")

    done = run_to_end(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=daemon.directory,
        env={**daemon.environ, "PATH": f"{Path(program('mcpd')).parent}:{os.environ['PATH']}"},
    )

    assert done.returncode == 0, done.stderr + daemon.said()
    modern, opened, called = decoded(done.stdout)
    assert "get-category-tools" in [tool["name"] for tool in modern["result"]["tools"]]
    assert opened["result"]["protocolVersion"] == "2025-11-25"
    assert "get_current_time" in called["result"]["structuredContent"]["tools"]
    # The Inspector leaves its sessions to expire.
    eventually(lambda: "curl 8" not in clients_of(daemon), daemon.said)
    assert (daemon.directory / "headers").stat().st_mode & 0o077 == 0
