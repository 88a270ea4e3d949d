"""A model that makes the calls of a script, one after the other: `scripted_model.py PORT CALLS.json [SEEN]`.

It serves the Messages API of Anthropic (`/v1/messages`), for Claude Code and OpenCode, the Responses API of
OpenAI (`/v1/responses`), for Codex, and Gemini's API. Each call is `{"name", "arguments"}`, with `"namespace"`
for Codex, which also has a tool to find others: `{"search": "words"}`. The number of results in the
conversation selects the next call; after the last one the model says DONE. It appends each request to the file
SEEN, one a line. Standard library only.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Events = list[tuple[str, Json]]

SAID = "DONE"
"""The model's text after its last call."""

CALLS: list[Json] = []
SEEN: list[Path] = []
"""The file for requests, if any."""


def messages(request: Json) -> Events:
    """The events of an answer of the Messages API."""
    contents = [message["content"] for message in request.get("messages", [])]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    made = sum(block.get("type") == "tool_result" for block in blocks)
    usage = {"input_tokens": 1, "output_tokens": 1}
    begun: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request.get("model"),
        "content": [],
    }
    block: Json = {"type": "text", "text": ""}
    delta: Json = {"type": "text_delta", "text": SAID}
    stop = "end_turn"
    # Without tools it is asked for a title or the like.
    if request.get("tools") and made < len(CALLS):
        call, stop = CALLS[made], "tool_use"
        block = {"type": "tool_use", "id": f"toolu_{made}", "name": call["name"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call["arguments"])}
    return [
        ("message_start", {"message": {**begun, "stop_reason": None, "stop_sequence": None, "usage": usage}}),
        ("content_block_start", {"index": 0, "content_block": block}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        (
            "message_delta",
            {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 1}},
        ),
        ("message_stop", {}),
    ]


def responses(request: Json) -> Events:
    """The events of an answer of the Responses API."""
    given = request.get("input")
    items = given if isinstance(given, list) else []
    made = sum(str(item.get("type", "")).endswith("_output") for item in items)
    item: Json = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    if made >= len(CALLS):
        item["content"] = [{"type": "output_text", "text": SAID, "annotations": []}]
    elif "search" in (call := CALLS[made]):
        arguments = {"query": call["search"], "limit": 5}
        item = {"type": "tool_search_call", "id": f"ts_{made}", "call_id": f"ts_{made}", "execution": "client"}
        item |= {"arguments": arguments, "status": "completed"}
    else:
        item = {"type": "function_call", "id": f"fc_{made}", "call_id": f"call_{made}", "name": call["name"]}
        item |= {
            "namespace": call["namespace"],
            "arguments": json.dumps(call["arguments"]),
            "status": "completed",
        }
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    ended = {**response, "status": "completed", "output": [item], "usage": usage}
    return [
        ("response.created", {"response": response}),
        ("response.output_item.added", {"output_index": 0, "item": item}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": ended}),
    ]


def gemini(request: Json) -> Events:
    """The one event of an answer of Gemini's API."""
    parts = [part for content in request.get("contents", []) for part in content.get("parts", [])]
    made = sum("functionResponse" in part for part in parts)
    part: Json = {"text": SAID}
    if request.get("tools") and made < len(CALLS):
        part = {"functionCall": {"name": CALLS[made]["name"], "args": CALLS[made]["arguments"]}}
    said = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return [("", {"candidates": [said], "usageMetadata": usage})]


APIS = {"/messages": messages, "/responses": responses, "GenerateContent": gemini, ":generateContent": gemini}


class Model(BaseHTTPRequestHandler):
    """Answers a request for a model's next message."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """List no models."""
        self._send(b'{"object": "list", "data": [], "models": []}')

    def do_HEAD(self) -> None:
        """Answer that the server is up."""
        self._send(b"")

    def do_POST(self) -> None:
        """Make the next call, or say that all are made."""
        body = self.rfile.read(int(self.headers["content-length"]))
        path = self.path.partition("?")[0]
        api = next((api for ending, api in APIS.items() if path.endswith(ending)), None)
        if api is None:
            self._send(b'{"input_tokens": 1}')
            return
        for seen in SEEN:
            with seen.open("ab") as file:
                file.write(body + b"\n")
        answer = api(json.loads(body))
        if path.endswith(":generateContent"):
            self._send(json.dumps(answer[0][1]).encode())
            return
        events = "".join(
            f"event: {name}\ndata: {json.dumps({'type': name, **event})}\n\n"
            if name
            else f"data: {json.dumps(event)}\n\n"
            for name, event in answer
        )
        self._send(events.encode(), "text/event-stream")

    def _send(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(port: str, calls: str, *seen: str) -> None:
    """Serve on a port of the loopback address until killed."""
    CALLS.extend(json.loads(Path(calls).read_text()))
    SEEN.extend(map(Path, seen))
    with ThreadingHTTPServer(("127.0.0.1", int(port)), Model) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
