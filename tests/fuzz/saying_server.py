"""An MCP server over stdio that says whatever a call asks it to say, and then its sound answer.

Run as `python -S -E saying_server.py`. Standard library only. Its tools:

    echo                    answers with its arguments
    say {line: base64}      writes these bytes, in pieces, with the call's own id in the place of `UID`, then
                            answers "sound"
    heard                   {heard: the ids that mcpd has answered or refused, unreadable: lines without JSON}
    big {bytes} or {keys}   a result of so many bytes, or with so many members
    line {bytes}            a line of so many bytes that is no message, then the answer
"""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any

UID = b"987654321"

NOT_FOUND = -32601

DIGITS = 1000
"""Of an integer that is read as one."""

PIECE = 7
"""Bytes written at once of what is short: a message comes in many reads."""


class Server:
    """One run."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.unreadable = 0

    def run(self) -> None:
        """Serve until stdin ends."""
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line.decode(), parse_int=number, parse_float=str, parse_constant=str)
            except ValueError:
                self.unreadable += 1
                continue
            if "method" not in message:
                self.heard.append(message.get("id"))
            elif "id" in message:
                self.serve(message["id"], message["method"], message.get("params") or {})

    def serve(self, uid: object, method: str, params: dict[str, Any]) -> None:
        """Answer a request."""
        match method:
            case "initialize":
                server = {"name": "says", "version": "1"}
                version = params.get("protocolVersion")
                answer(uid, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server})
            case "tools/list":
                names = ("echo", "say", "heard", "big", "line")
                answer(uid, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]})
            case "tools/call":
                self.call(uid, params["name"], params.get("arguments") or {})
            case "ping":
                answer(uid, {})
            case _:
                write({"id": uid, "error": {"code": NOT_FOUND, "message": method}})

    def call(self, uid: object, name: str, arguments: dict[str, Any]) -> None:
        """Do what a tool does."""
        match name:
            case "say":
                data = base64.b64decode(arguments["line"]).replace(UID, str(uid).encode())
                say(data + b"\n")
                text = "sound"
            case "heard":
                text = json.dumps({"heard": self.heard, "unreadable": self.unreadable})
            case "big" if "keys" in arguments:
                answer(
                    uid, {"content": [], "structuredContent": {f"{n:x}": 0 for n in range(arguments["keys"])}}
                )
                return
            case "big":
                text = "x" * arguments["bytes"]
            case "line":
                for _ in range(arguments["bytes"] >> 20):
                    say(b"l" * (1 << 20))
                say(b"\n")
                text = "after the line"
            case _:
                text = json.dumps(arguments)
        answer(uid, {"content": [{"type": "text", "text": text}]})


def number(digits: str) -> int | str:
    """An integer, unless Python refuses to read so many digits, or would write it in another way."""
    return int(digits) if len(digits) < DIGITS and digits != "-0" else digits


def answer(uid: object, result: dict[str, Any]) -> None:
    """Answer a request."""
    write({"id": uid, "result": result})


def write(message: dict[str, Any]) -> None:
    """Write a message."""
    say(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")


def say(data: bytes) -> None:
    """Write bytes: the first few in small pieces, which may be read one by one."""
    view = memoryview(data)
    for _ in range(3):
        view = view[os.write(1, view[:PIECE]) :] if view else view
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    Server().run()
