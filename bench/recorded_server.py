"""An MCP server over stdio that lists recorded tools and answers every call with a few words.

Run as `python -S -E recorded_server.py LIST`, where LIST is a JSON file `{"tools": [...]}`. Standard library
only, and little of it: a benchmark starts dozens of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

METHOD_NOT_FOUND = -32601
"""JSON-RPC's code: also how a server says that it does not know a later revision's first request."""


def main(path: Path) -> None:
    """Serve until stdin ends."""
    tools = json.loads(path.read_bytes())["tools"]
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer = _answer(message["method"], message.get("params") or {}, tools, path.stem)
            text = json.dumps(
                {"jsonrpc": "2.0", "id": message["id"], **answer}, separators=(",", ":"), ensure_ascii=False
            )
            sys.stdout.buffer.write(text.encode() + b"\n")
            sys.stdout.buffer.flush()


def _answer(method: str, params: dict[str, Any], tools: list[Any], name: str) -> dict[str, Any]:
    match method:
        case "initialize":
            result: dict[str, Any] = {
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": name, "version": "1"},
            }
        case "tools/list":
            result = {"tools": tools}
        case "tools/call":
            text = f"{name} ran {params.get('name')}"
            result = {"content": [{"type": "text", "text": text}]}
        case "ping":
            result = {}
        case _:
            return {"error": {"code": METHOD_NOT_FOUND, "message": f"Method not found: {method}"}}
    return {"result": result}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
