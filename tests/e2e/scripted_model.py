"""A model that calls the tools that a script names, over the interfaces that Claude Code and Codex speak.

It answers Anthropic's Messages and OpenAI's Responses, streamed, as far as these two agents read them.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Step = tuple[str, dict[str, Any]]
"""The end of a tool's name, and the arguments for it."""

DONE = "That is all."
"""What the model says when its script has come to its end."""


class ScriptedModel(ThreadingHTTPServer):
    """The model, on a port of its own."""

    daemon_threads = True

    def __init__(self, steps: Sequence[Step]) -> None:
        """Begin to listen.

        Args:
            steps: the calls to make, each once the one before has its result.
        """
        super().__init__(("127.0.0.1", 0), _Answering)
        self.steps = steps
        self.offered: list[list[str]] = []
        """The tools of each request that had any."""
        self.results: list[str] = []
        """The results of the script's calls, as JSON."""

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_call(self, names: dict[str, str | None], results: list[Any]) -> tuple[str, dict[str, Any]] | None:
        """The call that follows these results; None at the script's end.

        Args:
            names: the tools that there are.
            results: of the calls so far.
        """
        self.offered.append(list(names))
        if len(results) > len(self.results):
            self.results = [json.dumps(result) for result in results]
        if len(results) >= len(self.steps) or not names:
            return None
        wanted, arguments = self.steps[len(results)]
        name = next((name for name in names if name.endswith(wanted)), None)
        return None if name is None else (name, arguments)


@contextmanager
def scripted_model(*steps: Step) -> Iterator[ScriptedModel]:
    """A model that makes these calls, as long as the block runs."""
    with ScriptedModel(steps) as model:
        thread = Thread(target=model.serve_forever, daemon=True)
        thread.start()
        try:
            yield model
        finally:
            model.shutdown()
            thread.join()


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedModel

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name for it
        pass

    def do_HEAD(self) -> None:
        self._send(b"", "text/plain")

    def do_GET(self) -> None:
        self._send(json.dumps({"object": "list", "data": [], "models": []}).encode(), "application/json")

    def do_POST(self) -> None:
        request = json.loads(self._body() or b"{}")
        if self.path.partition("?")[0].endswith("/messages"):
            self._stream((event["type"], event) for event in _message(self.server, request))
        elif self.path.endswith("/responses"):
            self._stream((event["type"], event) for event in _response(self.server, request))
        else:
            self._send(json.dumps({"input_tokens": 1}).encode(), "application/json")

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _stream(self, events: Iterator[tuple[str, dict[str, Any]]]) -> None:
        lines = "".join(f"event: {name}\ndata: {json.dumps(event)}\n\n" for name, event in events)
        self._send(lines.encode(), "text/event-stream")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _message(model: ScriptedModel, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of an answer of Anthropic's Messages."""
    contents = [message["content"] for message in request.get("messages", ())]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    results = [block.get("content") for block in blocks if block.get("type") == "tool_result"]
    call = model.next_call({tool["name"]: None for tool in request.get("tools", ())}, results)
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request.get("model"), "content": []}
    yield {
        "type": "message_start",
        "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage},
    }
    if call is None:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": DONE}
    else:
        block = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "end_turn" if call is None else "tool_use", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def _response(model: ScriptedModel, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of an answer of OpenAI's Responses."""
    items = [item for item in request.get("input", ()) if isinstance(item, dict)]
    results = [item.get("output") for item in items if item.get("type") == "function_call_output"]
    found = [tool for item in items if item.get("type") == "tool_search_output" for tool in item["tools"]]
    names = _names([*request.get("tools", ()), *found])
    call = model.next_call(names, results)
    if call is None and len(results) < len(model.steps) and not found and _SEARCH in names:
        # Codex shows a model that can search no tools of MCP servers until it has.
        item: dict[str, Any] = {"type": "tool_search_call", "call_id": "search_0", "execution": "client"}
        item["arguments"] = {"query": model.steps[len(results)][0]}
    elif call is None:
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        item["content"] = [{"type": "output_text", "text": DONE, "annotations": []}]
    else:
        item = {"type": "function_call", "id": f"fc_{len(results)}", "call_id": f"call_{len(results)}"}
        item |= {"name": call[0], "arguments": json.dumps(call[1]), "status": "completed"}
        if names[call[0]]:
            item["namespace"] = names[call[0]]
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {"type": "response.created", "response": response}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    done = {**response, "status": "completed", "output": [item], "usage": usage}
    yield {"type": "response.completed", "response": done}


_SEARCH = "tool_search"


def _names(tools: list[dict[str, Any]]) -> dict[str, str | None]:
    """The tools of a request of Codex's, each with the namespace that it has for the MCP server."""
    names: dict[str, str | None] = {}
    for tool in tools:
        if tool.get("type") == "namespace":
            names.update({inner["name"]: tool["name"] for inner in tool["tools"]})
        else:
            names[tool.get("name") or tool["type"]] = None
    return names
