"""The fastest MCP server that we can write, so that no target waits for it: it runs behind every target.

Run as `python -I -S echo_server.py NUMBER TOOLS`. Of its tools, `echo_NUMBER` returns `text`, `answer_NUMBER`
returns `bytes` bytes, and `change_NUMBER` changes the descriptions of a tenth of the tools; the others are only
listed.

It answers calls without decoding them: our clients and proxies write `id`, `text` and `bytes` in one form. It
parses only the messages that come once per connection. It answers all lines of a chunk with one write.
"""

import json
import os
import re
import sys
from typing import Any

READ_BYTES = 1024 * 1024
"""As many as a pipe holds."""

METHOD_NOT_FOUND = -32601
"""JSON-RPC's code, which also tells a client that the server does not know a later revision's first request."""

CHANGED_SHARE = 10
"""`change_NUMBER` changes one description in as many."""

VERBS = ["Read", "Write", "List", "Move", "Copy", "Find", "Count", "Send", "Open", "Close", "Split", "Sort"]
NOUNS = ["file", "mail", "branch", "ticket", "table", "page", "image", "user", "invoice", "event", "note"]
"""Words of the tools' descriptions: with one vocabulary for all, every search would find every tool."""

HEAD = b'{"jsonrpc":"2.0","id":'
_ANSWER = HEAD + b'%b,"result":{"content":[{"type":"text","text":"%b"}]}}\n'
_BYTES = re.compile(rb'"bytes":\s?(\d+)')
_TEXT = re.compile(rb'"text":\s?"')


class Server:
    """Lists tools and answers calls."""

    def __init__(self, number: int, count: int) -> None:
        self._number = number
        self._count = count
        self._version = 0
        self._padding: dict[bytes, bytes] = {}
        self._echo = b'"echo_%d"' % number
        self._give = b'"answer_%d"' % number

    def answer(self, line: bytes) -> bytes:
        """The answer to one line; empty for a notification."""
        end = line.find(b",", len(HEAD), 100)
        head = line[:300]
        if line.startswith(HEAD) and b'"tools/call"' in head:
            request_id = line[len(HEAD) : end]
            if self._echo in head and (begin := _TEXT.search(line)):
                return _ANSWER % (request_id, line[begin.end() : line.index(b'"', begin.end())])
            if self._give in head and (size := _BYTES.search(line)):
                return _ANSWER % (request_id, self._pad(size[1]))
        return self._slowly(json.loads(line)) if line else b""

    def _pad(self, size: bytes) -> bytes:
        if size not in self._padding:
            self._padding[size] = b"x" * int(size)
        return self._padding[size]

    def _slowly(self, message: dict[str, Any]) -> bytes:
        if "id" not in message or "method" not in message:
            return b""
        params = message.get("params") or {}
        answer = self._result(message["method"], params)
        whole = {"jsonrpc": "2.0", "id": message["id"], **answer}
        return json.dumps(whole, separators=(",", ":")).encode() + b"\n"

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                return {"result": self._introduction(params)}
            case "tools/list":
                return {"result": {"tools": self._tools()}}
            case "tools/call":
                return {"result": {"content": [{"type": "text", "text": self._call(params)}]}}
            case "ping":
                return {"result": {}}
        return {"error": {"code": METHOD_NOT_FOUND, "message": f"Method not found: {method}"}}

    def _introduction(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": f"echo {self._number}", "version": "1"},
        }

    def _call(self, params: dict[str, Any]) -> str:
        arguments = params.get("arguments") or {}
        if params.get("name") == f"change_{self._number}":
            self._version += 1
        return arguments.get("text") or "x" * int(arguments.get("bytes", 0))

    def _tools(self) -> list[dict[str, Any]]:
        own = [f"{name}_{self._number}" for name in ("echo", "answer", "change")]
        others = [f"tool_{self._number}_{each}" for each in range(self._count - len(own))]
        return [self._tool(name, each) for each, name in enumerate([*own, *others])]

    def _tool(self, name: str, number: int) -> dict[str, Any]:
        """A tool of 600 bytes, as large as real ones."""
        version = self._version if number and number % CHANGED_SHARE == 0 else 0
        verb, noun = VERBS[number % len(VERBS)], NOUNS[number // len(VERBS) % len(NOUNS)]
        path = {
            "type": "string",
            "description": "What is to be read: an absolute path, or a pattern of several.",
        }
        text = {"type": "string", "description": "What is given back as it is, without any change to it."}
        count = {
            "type": "integer",
            "minimum": 0,
            "description": "How many bytes there are to be in the answer.",
        }
        return {
            "name": name,
            "description": f"{verb}s {noun} {number} of what it knows, in version {version}. " * 3,
            "inputSchema": {"type": "object", "properties": {"path": path, "text": text, "bytes": count}},
        }


def write(data: bytes) -> None:
    """Write all of the data, even if the pipe takes it in parts."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def main(number: int, count: int) -> None:
    """Serve until stdin ends."""
    server = Server(number, count)
    room = memoryview(bytearray(READ_BYTES))
    held: list[bytes] = []
    while size := os.readv(0, [room]):
        chunk = bytes(room[:size])
        if b"\n" not in chunk:
            held.append(chunk)
            continue
        lines = chunk.split(b"\n")
        if held:
            lines[0] = b"".join((*held, lines[0]))
        tail = lines.pop()
        held = [tail] if tail else []
        answers = list(map(server.answer, lines))
        write(answers[0] if len(answers) == 1 else b"".join(answers))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
