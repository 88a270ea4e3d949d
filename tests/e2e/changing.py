"""The test's side of a server whose tool changes (`changing_server`), and clients that know its versions."""

import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import attrs

from tests.e2e.harness import Daemon, RawClient
from tests.waiting import WAIT, eventually

Json = dict[str, Any]

SERVER = Path(__file__).with_name("changing_server.py")

SURFACES = ["category", "browse", "search", "load", "full"]

CATALOG = {
    "profiles": {"default": {}, **{surface: {"surface": surface} for surface in SURFACES}},
    "categories": {"forms": {"description": "Forms to be filled in.", "server": "changing"}},
}
"""A profile for each surface; `full` is the surface, not the switch: its clients also count as shown a tool."""

RESTART = {"freeAfter": 0, "base": 0.01, "floor": 0, "cap": 0.01, "intensity": 1000}
"""Settings for immediate restarts after any number of kills."""

TIMEOUTS = {"wake": WAIT, "probe": WAIT}
"""Timeouts long enough for a slow machine."""


TRIES = 15
"""Tries of a call to a server that is about to list its tools: each waits two seconds."""


class Changing:
    """Controls the server, and records its reports."""

    def __init__(self, **script: Any) -> None:
        """Listen for starts of the server; each run begins with `version`."""
        self.version = 1
        self.calls: list[Json] = []
        """All calls that the server ran, in order: "version" and "shown"."""
        self.lists: list[Json] = []
        self.pids: list[int] = []
        self._script = script
        self._directory = Path(tempfile.mkdtemp(prefix="mcpd-changing-"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._directory / "s"))
        self._listener.listen(10)
        self._link: socket.socket | None = None
        self._done = 0
        self._calm = threading.Event()
        self._holding: set[str] = set()
        self._news = threading.Condition()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def entry(self) -> Json:
        """The server's entry in `mcpServers`."""
        words = ["-S", "-E", str(SERVER), str(self._directory / "s"), json.dumps(self._script)]
        # It talks with one child: there must not be a second one for clients of the handshake era.
        one = {"era": "modern"}
        return {"command": sys.executable, "args": words, "restart": RESTART, "timeouts": TIMEOUTS, **one}

    def config(self, **entry: Any) -> Json:
        """A configuration with this server, and a profile for each surface."""
        return {"mcpServers": {"changing": {**self.entry, **entry}}, **CATALOG}

    def change(self, version: int | None = None, *, announce: bool = True) -> int:
        """Switch to the next form, or to the given one; returns its version when the server has it."""
        self.version = self.version + 1 if version is None else version
        self.command(version=self.version, announce=announce)
        return self.version

    def hold(self, what: str) -> None:
        """Hold answers back, also in later runs; "start": do nothing when started."""
        self._holding.add(what)
        if self._link is not None and what != "start":
            self.command(hold=what)

    def release(self, what: str) -> None:
        """Send the held answers."""
        self._holding.discard(what)
        if what == "start":
            self._begin()
        else:
            self.command(release=what)

    def command(self, **command: Any) -> None:
        """Send a command; returns when it is done."""
        with self._news:
            before = self._done
            assert self._link is not None
            self._link.sendall(json.dumps(command).encode() + b"\n")
            self._wait(lambda: self._done > before)

    def storm(self, seed: int, times: int) -> threading.Event:
        """Let the server change many times by itself; the event is set when it is finished."""
        self.command(storm=seed, times=times)
        return self._calm

    def wait_listed(self, count: int) -> None:
        """Wait until this many lists, or pages of lists, were requested in all."""
        with self._news:
            self._wait(lambda: len(self.lists) >= count)

    def wait_called(self, count: int) -> None:
        """Wait until this many calls have arrived in all."""
        with self._news:
            self._wait(lambda: len(self.calls) >= count)

    def kill(self) -> None:
        """Kill the server, like a crash; returns after its restart, so that mcpd knows its end."""
        with self._news:
            self._link = None
            os.kill(self.pids[-1], signal.SIGKILL)
            self._wait(lambda: self._link is not None)

    def forget(self) -> None:
        """Forget the calls of before, all of which have been told when a command is done."""
        self.command()
        self.calls.clear()

    def strange(self) -> list[Json]:
        """Calls that ran with a form other than the one that their caller was shown."""
        return [call for call in self.calls if call["version"] != call["shown"]]

    def close(self) -> None:
        """Stop listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(WAIT)
        shutil.rmtree(self._directory)

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._hear, args=(link,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _hear(self, link: socket.socket) -> None:
        with link, link.makefile("rb") as lines:
            for line in lines:
                event = json.loads(line)
                with self._news:
                    self._take(event, link)
                    self._news.notify_all()

    def _take(self, event: Json, link: socket.socket) -> None:
        match event.pop("event"):
            case "start":
                self._link = link
                self.pids.append(event["pid"])
                if "start" not in self._holding:
                    self._begin()
            case "call":
                self.calls.append(event)
            case "list":
                self.lists.append(event)
            case "calm":
                self._calm.set()
            case _:
                self._done += 1

    def _begin(self) -> None:
        """Send a started server its settings."""
        assert self._link is not None
        commands = [*({"hold": what} for what in self._holding), {"version": self.version}]
        self._link.sendall("".join(json.dumps(each) + "\n" for each in commands).encode())

    def _wait(self, holds: Callable[[], bool]) -> None:
        assert self._news.wait_for(holds, WAIT), (self.pids, self.lists, self.calls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@attrs.frozen
class Outcome:
    """The result of a call."""

    code: str
    """The error code; empty if the call ran."""
    version: int | None
    """The version that ran, or the version in the refusal."""
    announced: int = 0
    """If it ran: the latest version that the server had announced before its answer."""

    @property
    def ran(self) -> bool:
        """Whether the server ran it."""
        return not self.code


class Guest(RawClient):
    """A client of one surface. It calls with the version that it was shown last."""

    def __init__(self, daemon: Daemon, surface: str, *, look: bool = True, **hello: Any) -> None:
        """Connect, and get the tool's definition."""
        self._daemon = daemon
        self._last = 0
        self.notices = []
        self.surface = surface
        self.shown = 0
        self.announcements = 0
        self._answers: dict[int, Json] = {}
        self.reach({"profile": surface, **hello})
        client = {"name": surface, "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        if look:
            eventually(self.look, daemon.said)

    def reach(self, hello: Json) -> None:
        """Connect, and send the bridge's hello."""
        super().__init__(self._daemon.socket)
        self.hello(**hello)

    def post(self, method: str, params: Json) -> int:
        """Send a request without waiting."""
        (number,) = self.post_all((method, params))
        return number

    def post_all(self, *requests: tuple[str, Json]) -> list[int]:
        """Send requests in one write."""
        numbers = range(self._last + 1, self._last + 1 + len(requests))
        self._last += len(requests)
        lines = [
            json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            for number, (method, params) in zip(numbers, requests, strict=True)
        ]
        self.send("\n".join(lines).encode())
        return list(numbers)

    def answer(self, number: int) -> Json:
        """The answer to a request; other answers are kept."""
        while number not in self._answers:
            message = self.receive()
            if message.get("method") == "notifications/tools/list_changed":
                self.announcements += 1
            elif "id" in message:
                self._answers[message["id"]] = message
        return self._answers.pop(number)

    def ask(self, method: str, params: Json | None = None) -> Json:
        """Send a request and wait for its answer."""
        return self.answer(self.post(method, params or {}))

    def look(self) -> bool:
        """Get the tool's definition from the surface; False if it changed meanwhile and was not shown."""
        match self.surface:
            case "category":
                shown = self.call("get-category-tools", {"category": "forms"})["structuredContent"]["tools"]
            case "browse":
                shown = self.call("get_tools", {"category": "forms"})["structuredContent"]["tools"]
            case "load":
                loaded = self.call("load_mcp_tool", {"names": ["form"]})["structuredContent"]
                shown = loaded.get("tools", {})
            case _:
                if self.surface == "search":
                    self.call("search_tools", {"query": "form"})
                shown = self.definitions()
        if "form" in shown:
            self.shown = version_of(shown["form"])
        return "form" in shown

    def definitions(self) -> dict[str, Json]:
        """The listed tools by name."""
        return {tool["name"]: tool for tool in self.ask("tools/list")["result"]["tools"]}

    def invocation(self, **arguments: Any) -> tuple[str, Json]:
        """The request that calls the tool in the form that was shown."""
        arguments = {"shown": self.shown, **arguments}
        match self.surface:
            case "category":
                wrapped = {"category": "forms", "name": "form", "args": arguments}
                params = {"name": "call-category-tool", "arguments": wrapped}
            case "browse":
                params = {"name": "call_tool", "arguments": {"tool_name": "form", "arguments": arguments}}
            case _:
                params = {"name": "form", "arguments": arguments}
        return "tools/call", params

    def begin(self, **arguments: Any) -> int:
        """Call the tool in the form that was shown, without waiting."""
        return self.post(*self.invocation(**arguments))

    def outcome(self, number: int) -> Outcome:
        """The result of a call; a call that comes too early (on a slow machine) is repeated."""
        for _ in range(TRIES):
            outcome = self.first_outcome(number)
            if outcome.code != "UpstreamUnavailable":
                return outcome
            number = self.begin()
        raise AssertionError("it was too early all the time")

    def first_outcome(self, number: int) -> Outcome:
        """The result of a call; a definition in a refusal counts as shown."""
        result = self.answer(number)["result"]
        if not result["isError"]:
            said = json.loads(result["content"][0]["text"])
            return Outcome("", said["version"], said["announced"])
        error = result["structuredContent"]["error"]
        if error["code"] == "ToolChanged":
            version = self.shown = version_of(error["definition"])
            if self.surface == "load":
                self.look()
            return Outcome("ToolChanged", version)
        if error["code"] == "ToolNotLoaded" and self.surface == "load":
            # Of calls that were sent together the first one is told what has changed; the tool is loaded again.
            self.look()
            return Outcome("ToolChanged", self.shown)
        return Outcome(error["code"], None)

    def run_form(self, **arguments: Any) -> Outcome:
        """Call the tool in the form that was shown."""
        return self.outcome(self.begin(**arguments))


def version_of(definition: Json) -> int:
    """The version in a definition of the tool."""
    return int(definition["inputSchema"]["properties"]["shown"]["description"])
