"""A server over stdio whose tool changes its form when the test says so, and that reports which form ran.

Run as a child: `python changing_server.py SOCKET SCRIPT`. The test (`Changing`) listens on SOCKET; each message
is a JSON object in a line; the server answers each command with {"event": "done"} when it has taken effect.

    SCRIPT      {"era": "handshake" | "modern", "pages": 1 | 2}
    commands    {"version": n}      `form` has this form from now on (nothing is served before)
                {"announce": true}  announces that the tools have changed
                {"hold": what}      "list": holds answers to `tools/list` back, page by page, after making them;
                                    "calls": holds answers of calls that ask for it ("hold": true)
                {"release": what}   sends them, and holds no more
                {"storm": seed, "times": n}  changes and announces n times by itself, at random times
    events      "start" pid · "list" page, version · "call" version, shown · "done" · "calm": the storm is over

Tools: `form`, whose schema has its version, and which is to be called with the version that its caller was
shown; with two pages, `other` is on the first. Answers of calls hold "version", which ran, and "announced", the
latest version announced before the answer: a reader of the answer knows what the reader of our stdout knew by
then.
"""

import json
import os
import random
import socket
import sys
import threading
import time
from typing import Any

Json = dict[str, Any]

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
LEAST, MOST = 0.002, 0.3
"""Seconds between two changes in a storm."""


def form(version: int) -> Json:
    """The tool that changes, in one version."""
    schema = {
        "type": "object",
        "properties": {"shown": {"type": "integer", "description": str(version)}, "hold": {"type": "boolean"}},
        "required": ["shown"],
    }
    return {"name": "form", "description": f"Takes a form in version {version}.", "inputSchema": schema}


OTHER = {"name": "other", "description": "Stays as it is.", "inputSchema": {"type": "object"}}


class Server:
    """One run of the server."""

    def __init__(self, control: socket.socket, script: Json) -> None:
        self.script = script
        self.version = 0
        self.announced = 0
        self._lines = control.makefile("rb")
        self._control = control
        self._saying = threading.Lock()
        self._writing = threading.Lock()
        self._changing = threading.Lock()
        self._gates = {"list": threading.Event(), "calls": threading.Event()}
        for gate in self._gates.values():
            gate.set()
        self._subscription: Any = None

    def run(self) -> None:
        """Take the first command, then serve until stdin ends."""
        self.tell("start", pid=os.getpid())
        while not self.version:
            self.obey(json.loads(self._lines.readline()))
        threading.Thread(target=self._obey_all, daemon=True).start()
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "method" in message:
                self._serve(message["method"], message, message.get("params") or {})
        os._exit(0)

    # --- the test's side --------------------------------------------------------------------------------------

    def tell(self, event: str, **fields: Any) -> None:
        """Report an event to the test."""
        with self._saying:
            self._control.sendall(json.dumps({"event": event, **fields}).encode() + b"\n")

    def obey(self, command: Json) -> None:
        """Execute a command of the test."""
        if "hold" in command:
            self._gates[command["hold"]].clear()
        if "version" in command or "announce" in command:
            self.change(command.get("version"), announce=command.get("announce", False))
        if "storm" in command:
            threading.Thread(target=self._storm, args=(command["storm"], command["times"]), daemon=True).start()
        if "release" in command:
            self._gates[command["release"]].set()
        self.tell("done")

    def _obey_all(self) -> None:
        for line in self._lines:
            self.obey(json.loads(line))

    def change(self, version: int | None, *, announce: bool) -> None:
        """Take another form, and announce it."""
        with self._changing:
            if version is not None:
                self.version = version
            if announce:
                version = self.version
                self._announce()
                self.announced = version

    def _storm(self, seed: int, times: int) -> None:
        chance = random.Random(seed)
        for _ in range(times):
            # Now and then bursts, now and then long breaks: the logarithm is spread evenly.
            time.sleep(LEAST * (MOST / LEAST) ** chance.random())
            self.change(self.version + 1, announce=True)
        self.tell("calm")

    # --- the daemon's side ------------------------------------------------------------------------------------

    def _serve(self, method: str, message: Json, params: Json) -> None:
        modern = self.script.get("era") == "modern"
        match method:
            case "initialize" if not modern:
                version = params["protocolVersion"]
                self._answer(message, {"protocolVersion": version, **self._introduction()})
            case "server/discover" if modern:
                self._answer(message, {"supportedVersions": [MODERN], "ttlMs": 0, **self._introduction()})
            case "subscriptions/listen":
                self._subscription = message["id"]
                self._notify("notifications/subscriptions/acknowledged")
            case "ping":
                self._answer(message, {})
            case "tools/list":
                self._list(message, params)
            case "tools/call":
                self._call(message, params["arguments"])
            case _ if "id" in message:
                self._write({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
            case _:
                pass

    def _introduction(self) -> Json:
        identity = {"name": "changing", "version": "1"}
        return {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": identity}

    def _list(self, message: Json, params: Json) -> None:
        page = int(params.get("cursor", 1))
        pages = self.script.get("pages", 1)
        tools = [form(self.version)] if page == pages else [OTHER]
        result = {"tools": tools, **({"nextCursor": "2"} if page < pages else {})}
        self.tell("list", page=page, version=self.version)
        self._answer_through("list", message, lambda: result)

    def _call(self, message: Json, arguments: Json) -> None:
        version = self.version
        self.tell("call", version=version, shown=arguments["shown"])

        def result() -> Json:
            text = json.dumps({"version": version, "announced": self.announced})
            return {"content": [{"type": "text", "text": text}], "isError": False}

        if arguments.get("hold"):
            self._answer_through("calls", message, result)
        else:
            self._answer(message, result())

    def _answer_through(self, gate: str, message: Json, result: Any) -> None:
        """Answer once the gate is open; other requests are served meanwhile."""
        if self._gates[gate].is_set():
            self._answer(message, result())
            return

        def answer() -> None:
            self._gates[gate].wait()
            self._answer(message, result())

        threading.Thread(target=answer, daemon=True).start()

    def _answer(self, message: Json, result: Json) -> None:
        if self.script.get("era") == "modern":
            result = {"resultType": "complete", **result}
        self._write({"id": message["id"], "result": result})

    def _announce(self) -> None:
        self._notify("notifications/tools/list_changed")

    def _notify(self, method: str) -> None:
        meta = {} if self._subscription is None else {"_meta": {META + "subscriptionId": self._subscription}}
        self._write({"method": method, "params": meta})

    def _write(self, message: Json) -> None:
        with self._writing:
            sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    link = socket.socket(socket.AF_UNIX)
    link.connect(sys.argv[1])
    Server(link, json.loads(sys.argv[2])).run()
