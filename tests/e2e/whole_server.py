"""A server with all features of MCP, in either era, over stdio; `whole_serving` has the other transports.

Its tools, prompts and URIs contain its name, so that many can run side by side. If its tools need something of
a client, they ask by a request in the handshake era, and by a result that asks for another call in the modern
one.
"""

import base64
import json
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any

Work = Generator[tuple[str, "Json"], Any, "Json"]
"""A tool's work: it yields requests to the client, receives the answers, and returns its result."""

Json = dict[str, Any]

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
UNKNOWN: Json = {"x-unknown": {"kept": [1, 2.50, "\u00fc"]}}
"""A member that no specification has."""

TOOLS = (
    *("echo", "ask", "open", "sample", "roots", "steps", "log", "touch", "change", "link"),
    *("show", "trace", "work", "later"),
)
TRACES: Json = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "tracestate": "vendor=1,other@2=3",
    "baggage": "user=me,tenant=%C3%BC",
}
"""The trace context in `_meta` of a server's requests and notifications (SEP-414)."""

PAGE = "ui://app/page.html"
"""The app that shows `show`: each server has one, in no list."""

POLL = "poll"
"""A tool for apps only, with the same name at every server."""

UI: Json = {"_meta": {"ui": {"resourceUri": PAGE}, "ui/resourceUri": PAGE, "example.com/x": [1]}}
SKILL = "skill://acme/refunds"
"""The directory of a skill, which no list of resources contains."""

FILES = ("SKILL.md", "templates/email.md")
FOR_APPS: Json = {"_meta": {"ui": {"visibility": ["app"]}}}
FORM: Json = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class WholeServer:
    """One server, for all its connections."""

    def __init__(self, name: str, *, modern: bool) -> None:
        self.name = name
        self.modern = modern
        self.prompts = ["greet"]
        self.resources = ["a"]
        self.tasks: dict[str, str] = {}
        self.answers: dict[str, Json] = {}
        """Clients' answers to tasks of the extension."""

    def uri(self, name: str) -> str:
        """The URI of one of its resources."""
        return f"mem://{self.name}/{name}"

    def listed(self, method: str) -> Json | None:
        """The result of a method that lists something."""
        match method:
            case "tools/list":
                poll = {"name": POLL, "inputSchema": {"type": "object"}, **FOR_APPS}
                return {"tools": [*(self._tool(each) for each in TOOLS), poll]}
            case "prompts/list":
                arguments = [{"name": "who", "required": True}]
                return {
                    "prompts": [
                        {"name": f"{self.name}_{each}", "title": "T", "arguments": arguments, **UNKNOWN}
                        for each in self.prompts
                    ]
                }
            case "resources/list":
                return {
                    "resources": [
                        {
                            "uri": self.uri(each),
                            "name": f"{self.name} {each}",
                            "mimeType": "text/plain",
                            **UNKNOWN,
                        }
                        for each in self.resources
                    ]
                }
            case "resources/templates/list":
                template = self.uri("by/{key}")
                return {
                    "resourceTemplates": [{"uriTemplate": template, "name": f"{self.name} by key", **UNKNOWN}]
                }
            case "skills/list":
                return {"skills": [self.skill]}
            case _:
                return None

    def _tool(self, name: str) -> Json:
        schema = {"type": "object", "properties": {}}
        execution = {"execution": {"taskSupport": "optional"}} if name == "work" and not self.modern else {}
        return {
            "name": f"{self.name}_{name}",
            "description": name,
            "inputSchema": schema,
            **execution,
            **(UI if name == "show" else {}),
            **UNKNOWN,
        }

    @property
    def skill(self) -> Json:
        """A skill that each server has under the same URI."""
        front = {"name": "refunds", "description": f"Refunds by {self.name}", "license": "MIT"}
        files = [{"uri": f"{SKILL}/{each}", "digest": f"sha256:{0:064}", "size": 2} for each in FILES]
        return {"uri": f"{SKILL}/SKILL.md", "frontmatter": front, "resources": files}

    @property
    def capabilities(self) -> Json:
        """The capabilities that it declares."""
        tasks: Json = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
        return {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "completions": {},
            "logging": {},
            "extensions": {META + "skills": {"directoryRead": True}},
            **({} if self.modern else tasks),
        }


class Conversation:
    """The state of a client's connection or session; in the modern era, all requests share one."""

    def __init__(self, server: WholeServer, outside: Callable[[Json], None]) -> None:
        """`outside` sends messages that belong to no request."""
        self.server = server
        self._outside = outside
        self._level = "emergency"
        self._subscribed: set[str] = set()
        self._listening: list[tuple[Any, Json, Callable[[Json], None]]] = []
        self._waiting: dict[str, Callable[[Json], None]] = {}
        self._heard: dict[str, list[Any]] = {}
        self._asked = 0

    def receive(self, message: Json, send: Callable[[Json], None]) -> None:
        """Handle a message; `send` sends the messages that belong to it."""
        method, params = message.get("method"), message.get("params") or {}
        if method is None:
            if (go_on := self._waiting.pop(message["id"], None)) is not None:
                go_on(message)
        elif "id" not in message:
            if method == "notifications/progress":
                self._heard.setdefault(params["progressToken"], []).append(params["progress"])
        else:
            self._serve(Request(self.server, message["id"], method, params, send))

    def _serve(self, request: "Request") -> None:
        server, params = self.server, request.params
        listed = server.listed(request.method)
        if listed is not None:
            request.reply(listed, cacheable=True)
            return
        match request.method:
            case "initialize" if not server.modern:
                request.reply({**_identity(server), "protocolVersion": params["protocolVersion"]})
            case "server/discover" if server.modern:
                request.reply({**_identity(server), "supportedVersions": [MODERN]}, cacheable=True)
            case "ping" | "resources/unsubscribe" | "logging/setLevel" | "resources/subscribe":
                self._note(request)
                request.reply({})
            case "subscriptions/listen" if server.modern:
                self._listening.append((request.id, params["notifications"], request.send))
                acknowledged = {
                    "notifications": params["notifications"],
                    "_meta": {META + "subscriptionId": request.id},
                }
                request.send({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
            case "tools/call" if "task" in params:
                server.tasks[f"task-{len(server.tasks)}"] = "completed"
                request.reply({"task": _task(server, f"task-{len(server.tasks) - 1}", "working"), **UNKNOWN})
            case "tools/call":
                self._call(request)
            case method if method.startswith("tasks/"):
                (_about_later if server.modern else _about_tasks)(request)
            case _:
                self._read(request)

    def _read(self, request: "Request") -> None:
        server, params = self.server, request.params
        match request.method:
            case "completion/complete":
                value = params["argument"]["value"]
                request.reply({"completion": {"values": [f"{value} {server.name}"], "total": 1, **UNKNOWN}})
            case "prompts/get":
                said = f"hello {params['arguments']['who']} from {params['name']}"
                request.reply(
                    {
                        "messages": [{"role": "user", "content": {"type": "text", "text": said}}],
                        "x-traces": request.traces,
                        **UNKNOWN,
                    }
                )
            case "skills/get":
                request.reply({"skill": server.skill, **UNKNOWN}, cacheable=True)
            case "resources/directory/read":
                found = {"uri": f"{params['uri']}/email.md", "name": "email.md"}
                request.reply({"resources": [found], "nextCursor": params.get("cursor", "none"), **UNKNOWN})
            case "resources/read":
                of = f" of {server.name}" if params["uri"].startswith(("ui:", "skill:")) else ""
                contents = [{"uri": params["uri"], "text": f"in {params['uri']}{of}"}]
                request.reply({"contents": contents, "x-traces": request.traces, **UNKNOWN}, cacheable=True)
            case _:
                request.send({"id": request.id, "error": {"code": -32601, "message": "Method not found"}})

    def _note(self, request: "Request") -> None:
        match request.method:
            case "logging/setLevel":
                self._level = request.params["level"]
            case "resources/subscribe":
                self._subscribed.add(request.params["uri"])
            case "resources/unsubscribe":
                self._subscribed.discard(request.params["uri"])
            case _:
                pass

    # --- tools ----------------------------------------------------------------------------------------------

    def _call(self, request: "Request") -> None:
        name = request.params["name"].removeprefix(f"{self.server.name}_")
        if name == "later" and self.server.modern:
            _begin_later(request)
            return
        work = self._work(name, request)
        if self.server.modern:
            _in_rounds(work, request)
        else:
            self._go_on(work, None, request)

    def _work(self, name: str, request: "Request") -> Work:
        match name:
            case "ask":
                return _text((yield "elicitation/create", {"message": "who?", "requestedSchema": FORM}))
            case "open":
                url = {
                    "mode": "url",
                    "url": "https://example.com/",
                    "message": "open it",
                    "elicitationId": "e-1",
                }
                return _text((yield "elicitation/create", url))
            case "sample":
                text = {"type": "text", "text": "say"}
                asked: Json = {"messages": [{"role": "user", "content": text}], "maxTokens": 5, **UNKNOWN}
                token = f"{self.server.name}-{id(request)}"
                if not self.server.modern:
                    asked["_meta"] = {"progressToken": token}
                answer = yield "sampling/createMessage", asked
                return _text({"answer": answer, "progress": self._heard.pop(token, [])})
            case "roots":
                return _text((yield "roots/list", {}))
            case "trace":
                token, meta = request.meta["progressToken"], {"_meta": TRACES}
                told = {"progressToken": token, "progress": 1, **meta}
                request.send({"method": "notifications/progress", "params": told})
                yield "elicitation/create", {"message": "who?", "requestedSchema": FORM, **meta}
                yield "sampling/createMessage", {"messages": [], "maxTokens": 5, **meta}
                yield "roots/list", meta
                return _text(request.traces)
            case _:
                return self._at_once(name, request)

    def _at_once(self, name: str, request: "Request") -> Json:
        server = self.server
        match name:
            case "steps":
                token = request.meta["progressToken"]
                for step in (1, 2):
                    told = {"progressToken": token, "progress": step, "total": 2, "message": f"step {step}"}
                    request.send({"method": "notifications/progress", "params": told})
            case "log":
                level = request.meta.get(META + "logLevel") if server.modern else self._level
                for each in LEVELS[LEVELS.index(level) :] if level else []:
                    told = {"level": each, "logger": server.name, "data": {"at": each}, "_meta": TRACES}
                    request.send({"method": "notifications/message", "params": told})
            case "touch":
                self._tell("notifications/resources/updated", {"uri": server.uri("a"), "_meta": TRACES})
            case "change":
                kind = request.params["arguments"]["kind"]
                kinds = getattr(server, kind)
                kinds.append(f"new{len(kinds)}")
                self._tell(f"notifications/{kind}/list_changed", {})
            case "poll":
                return _text(f"polled {server.name}")
            case "link":
                return {"content": [{"type": "resource_link", "uri": server.uri("linked"), "name": "linked"}]}
            case _:
                pass
        return {**_text(request.params.get("arguments")), "_meta": {"example.com/x": 1}, **UNKNOWN}

    def _tell(self, method: str, params: Json) -> None:
        if not self.server.modern:
            if params.get("uri") in {None, *self._subscribed}:
                self._outside({"method": method, "params": params})
            return
        wish = method.split("/")[1] + "ListChanged"
        for listen_id, filters, send in self._listening:
            if filters.get(wish) or params.get("uri") in filters.get("resourceSubscriptions", ()):
                meta = {**params.get("_meta", {}), META + "subscriptionId": listen_id}
                send({"method": method, "params": {**params, "_meta": meta}})

    def _go_on(self, work: Work, answer: Any, request: "Request") -> None:
        try:
            method, params = work.send(answer)
        except StopIteration as end:
            request.reply(end.value)
            return
        self._asked += 1
        asked = f"{self.server.name}-{self._asked}"
        self._waiting[asked] = lambda message: self._go_on(
            work, message.get("result", message.get("error")), request
        )
        request.send({"id": asked, "method": method, "params": params})


class Request:
    """A client's request."""

    def __init__(
        self, server: WholeServer, request_id: Any, method: str, params: Json, send: Callable[[Json], None]
    ) -> None:
        self._server = server
        self.id = request_id
        self.method = method
        self.params = params
        self.meta: Json = params.get("_meta") or {}
        self.traces = {key: self.meta[key] for key in TRACES if key in self.meta}
        self.send = send

    def reply(self, result: Json, *, cacheable: bool = False) -> None:
        """Answer it."""
        if self._server.modern:
            hints = {"ttlMs": 0, "cacheScope": "private"} if cacheable else {}
            result = {"resultType": "complete", **hints, **result}
        self.send({"id": self.id, "result": result})


def _in_rounds(work: Work, request: Request) -> None:
    """Continue the work as far as the answers in the state allow."""
    answers: list[Any] = json.loads(base64.b64decode(request.params.get("requestState", "W10=")))
    answers += (request.params.get("inputResponses") or {}).values()
    try:
        asked = next(work)
        for answer in answers:
            asked = work.send(answer)
    except StopIteration as end:
        request.reply(end.value)
        return
    state = base64.b64encode(json.dumps(answers).encode()).decode()
    wanted = {f"k{len(answers)}": {"method": asked[0], "params": asked[1]}}
    request.reply({"resultType": "input_required", "inputRequests": wanted, "requestState": state})


def _about_tasks(request: Request) -> None:
    server, task = request._server, request.params.get("taskId")
    match request.method:
        case "tasks/list":
            request.reply({"tasks": [_task(server, *each) for each in server.tasks.items()]})
        case "tasks/result":
            request.reply({**_text(task), "_meta": {META + "related-task": {"taskId": task}}})
        case "tasks/cancel":
            server.tasks[str(task)] = "cancelled"
            request.reply(_task(server, str(task), "cancelled"))
        case _:
            request.reply(_task(server, str(task), server.tasks[str(task)]))


def _begin_later(request: Request) -> None:
    """A call that only begins a task of the extension (SEP-2663)."""
    server, extension = request._server, META + "tasks"
    if extension in request.meta[META + "clientCapabilities"].get("extensions", {}):
        server.tasks[task := f"later-{len(server.tasks)}"] = "input_required"
        request.reply({"resultType": "task", **_task(server, task, "working"), "ttlMs": 60000})
    else:
        lacks: Json = {"requiredCapabilities": {"extensions": {extension: {}}}}
        error = {"code": -32021, "message": "Missing required client capability", "data": lacks}
        request.send({"id": request.id, "error": error})


def _about_later(request: Request) -> None:
    server, task = request._server, request.params.get("taskId")
    if task not in server.tasks:
        request.send({"id": request.id, "error": {"code": -32602, "message": f"no task {task}"}})
        return
    match request.method:
        case "tasks/update":
            server.answers[task] = request.params["inputResponses"]["who"]
            server.tasks[task] = "completed"
            request.reply({})
        case "tasks/cancel":
            server.tasks[task] = "cancelled"
            request.reply({})
        case _:
            state = _task(server, task, server.tasks[task])
            who = {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": FORM}}
            more = {"input_required": {"inputRequests": {"who": who}}}
            if task in server.answers:
                more["completed"] = {"result": _text(server.answers[task])}
            request.reply({**state, **more.get(state["status"], {}), "pollIntervalMs": 300})


def _task(server: WholeServer, task: str, status: str) -> Json:
    when = "2026-11-23T00:00:00Z"
    return {"taskId": task, "status": status, "createdAt": when, "lastUpdatedAt": when, "ttl": 60000}


def _identity(server: WholeServer) -> Json:
    info = {"name": server.name, "version": "1"}
    meta = {"_meta": {META + "serverInfo": info}} if server.modern else {"serverInfo": info}
    return {"capabilities": server.capabilities, "instructions": f"Instructions of {server.name}.", **meta}


def _text(said: Any) -> Json:
    return {"content": [{"type": "text", "text": json.dumps(said)}]}


def over_stdio(name: str, era: str) -> None:
    """Serve standard input."""
    lock = threading.Lock()

    def send(message: Json) -> None:
        with lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    conversation = Conversation(WholeServer(name, modern=era == "modern"), send)
    for line in sys.stdin:
        conversation.receive(json.loads(line), send)


if __name__ == "__main__":
    over_stdio(*sys.argv[1:])
