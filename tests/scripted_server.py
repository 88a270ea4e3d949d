"""A fake MCP server over stdio that does what a script says, also what no server should do.

Run as a real child: `python scripted_server.py SCRIPT`, where SCRIPT is a JSON object (or `@file` with one).
From a test: `command(era="modern", ignore=["term"])` is the whole argv. Hundreds are started by each run of the
tests, so that it is compiled already, and imports as little as it can.

    name, version, protocol   how it introduces itself; `protocol`: the revision that `initialize` answers
    era         "handshake" (default), "modern" or "both"
    record      a file or FIFO that gets one JSON object a line: {"event": "start", pid, cwd, env, fds,
                pdeathsig, blocked, pgid}, {"event": "message", "message"}, "spawned" (pid, kind), "cancelled"
                (id), "term", "eof", "unreadable"
    count, runs `count` is a file that counts the runs; `runs` is a list of scripts: the k-th is laid over this
                one in the k-th run, the last one in all later runs
    on          METHOD -> action, or a list of them: the k-th for the k-th request (the last one repeats; null
                is the normal answer). METHOD may also be "start" (before anything is read), "eof" and any
                notification. An action is an object of steps, taken in this order: "answer": times (so often
                the normal answer; with "never" there is no other), "delay": seconds,
                "garbage": n bytes, "write": text (raw, latin-1), "close_stdout": true, "close_stdin": true
                (without a look at it), "effect": true,
                "exit": status, "signal": name, "deaf": true (reads stdin no more), "never": true (no answer),
                "error": {code, message}, "result": {...} (instead of the normal one)
    stdout      text written before anything else (latin-1, so that it can be binary); `crlf`: lines end so
    stderr      {"bytes": n, "newline": bool} or a text, written before anything else
    ignore      of "term", "eof": which it ignores
    spawn       grandchildren, each {"kind": "plain" | "setsid" | "daemon", "ignore_term": bool,
                "keep_stdout": bool}; they sleep 1,000 s in a cleared environment
    tools       names (of the built-in behaviours below, others echo) or objects taken as they are; a number:
                so many echo tools; default: all the built-in ones. `lists`: the k-th for the k-th listing
    page        tools per page; `cursor`: "endless" (ever new) or "same" (repeats)
    no_tools    declares prompts instead of tools
    announces   false: does not declare tools.listChanged
    logs        true: declares `logging`, and takes any level
    changes     so many list_changed right after `initialized` (modern: after the subscription)
    requests    methods that it asks of the client right after `initialized`, ids "srv-0", "srv-1", ...
    effects     the file that counts side effects, one line each

Tools: `echo` · `pid` · `where` (if it is listed: its directory, words and pid) · `env` · `sleep` {seconds},
until cancelled · `progress` {count, interval} then `sleep`s {seconds} · `bytes` {count} · `effect` {then?:
action} · `fail` (isError) · `refuse` (JSON-RPC error) · `act` {an action} · `noise` {count, text} · `line`
{bytes}: one enormous line, then the answer · `announce` {count} · `set_tools` {tools}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, TypeAlias

    Json: TypeAlias = dict[str, Any]

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
PR_GET_PDEATHSIG = 2
BUILT_IN = [
    *("echo", "pid", "env", "sleep", "progress", "bytes", "effect", "fail"),
    *("refuse", "act", "noise", "line", "announce", "set_tools"),
]


def command(**script: Any) -> list[str]:
    """The argv of a server with this script. Isolated from site-packages, and compiled: it starts faster."""
    return [sys.executable, "-S", "-E", PROGRAM, json.dumps(script)]


def tool(name: str, **members: Any) -> Json:
    """A well-formed tool."""
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **members}


class Server:
    """One run of the script."""

    def __init__(self, script: Json) -> None:
        self.script = _of_this_run(script)
        self.modern = False
        path = self.script.get("record")
        circumstances = {} if path is None else _circumstances()
        self._record = None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lock = threading.Lock()
        self._times: dict[str, int] = {}
        self._cancelled: dict[str, threading.Event] = {}
        self._subscription: Any = None
        self._stdout_open = True
        self._tools = self.script.get("tools", BUILT_IN)
        self.record("start", **circumstances)

    # --- life -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """From the first side effect to the end of stdin."""
        if "term" in self.script.get("ignore", ()):
            signal.signal(signal.SIGTERM, lambda *_: self.record("term"))
        for child in self.script.get("spawn", ()):
            self.record("spawned", pid=_spawn(child), **child)
        self._say_first()
        self._take("start")
        for line in sys.stdin.buffer:
            self._receive(line)
        self.record("eof")
        self._take("eof")
        while "eof" in self.script.get("ignore", ()):
            time.sleep(1000)
        _end(0)

    def _say_first(self) -> None:
        stderr = self.script.get("stderr", "")
        if isinstance(stderr, dict):
            stderr = "e" * int(stderr["bytes"]) + ("\n" if stderr.get("newline") else "")
        _write_all(2, stderr.encode())
        if banner := self.script.get("stdout"):
            self.write(banner.encode("latin-1"))

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self.record("unreadable", size=len(line))
            return
        self.record("message", message=message)
        method = message.get("method")
        if method is not None and not self._take(method, message):
            self._serve(method, message)

    # --- actions --------------------------------------------------------------------------------------------

    def _take(self, method: str, message: Json | None = None) -> bool:
        """Do what the script wants for this method. True if nothing more is to be done."""
        k = self._times[method] = self._times.get(method, 0) + 1
        actions = self.script.get("on", {}).get(method)
        if isinstance(actions, list):
            actions = actions[min(k, len(actions)) - 1]
        return actions is not None and self.act(actions, message)

    def act(self, action: Json, message: Json | None) -> bool:
        """Take the steps of an action. True if the message is dealt with."""
        if message is not None:
            for _ in range(action.get("answer", 0)):
                self._serve(str(message.get("method")), message)
        time.sleep(action.get("delay", 0))
        self._put_out(action)
        self._shut(action)
        if action.get("effect"):
            self.effect()
        self._end(action)
        if message is not None and "id" in message:
            for key in ("error", "result"):
                if key in action:
                    self.send({"id": message["id"], key: action[key]})
                    break
        return bool(action.keys() & {"never", "error", "result"})

    def _put_out(self, action: Json) -> None:
        if "garbage" in action:
            self.write(os.urandom(action["garbage"]))
        if "write" in action:
            self.write(action["write"].encode("latin-1"))

    def _shut(self, action: Json) -> None:
        if action.get("close_stdout"):
            self._close_stdout()
        if action.get("close_stdin"):
            os.close(0)
            threading.Event().wait()

    def _end(self, action: Json) -> None:
        if "exit" in action:
            _end(action["exit"])
        if "signal" in action:
            _die_of(getattr(signal, action["signal"]))
        if action.get("deaf"):
            time.sleep(1000)

    def effect(self) -> None:
        """Leave one more line in the file of side effects."""
        fd = os.open(self.script["effects"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, f"{os.getpid()}\n".encode())
        os.close(fd)

    # --- protocol -------------------------------------------------------------------------------------------

    def _serve(self, method: str, message: Json) -> None:
        params = message.get("params") or {}
        match method:
            case "initialize" if self.script.get("era") != "modern":
                self.answer(message, self._initialized(params))
            case "server/discover" if self.script.get("era") in {"modern", "both"}:
                self.modern = True
                self.answer(message, self._discovered())
            case "notifications/initialized":
                self._open_conversation()
            case "notifications/cancelled":
                self._cancel(params.get("requestId"))
            case "ping" | "logging/setLevel":
                self.answer(message, {})
            case "tools/list":
                self.answer(message, self._page(params.get("cursor")))
            case "tools/call":
                self._call(message, params)
            case "subscriptions/listen" if self.modern:
                self._subscription = message["id"]
                self.notify("notifications/subscriptions/acknowledged", {"notifications": {}})
                self._open_conversation()
            case _ if "id" in message:
                self.send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
            case _:
                pass

    def _capabilities(self) -> Json:
        if self.script.get("no_tools"):
            return {"prompts": {}}
        logging: Json = {"logging": {}} if self.script.get("logs") else {}
        return {"tools": {"listChanged": self.script.get("announces", True)}, **logging}

    def _identity(self) -> Json:
        return {"name": self.script.get("name", "scripted"), "version": self.script.get("version", "1")}

    def _initialized(self, params: Json) -> Json:
        asked = params.get("protocolVersion")
        version = self.script.get("protocol", asked if asked in HANDSHAKE else HANDSHAKE[-1])
        return {
            "protocolVersion": version,
            "capabilities": self._capabilities(),
            "serverInfo": self._identity(),
        }

    def _discovered(self) -> Json:
        old = HANDSHAKE if self.script["era"] == "both" else []
        return {
            "supportedVersions": self.script.get("supported", [*old, MODERN]),
            "capabilities": self._capabilities(),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {META + "serverInfo": self._identity()},
        }

    def _open_conversation(self) -> None:
        self.announce(self.script.get("changes", 0))
        for number, method in enumerate(self.script.get("requests", ())):
            self.send({"id": f"srv-{number}", "method": method, "params": {}})

    def announce(self, times: int) -> None:
        """Say that the tools changed: all at once, however busy the machine is."""
        self.write(self._notification("notifications/tools/list_changed") * times)

    def _page(self, cursor: str | None) -> Json:
        lists = self.script.get("lists")
        listed = self._tools if lists is None else lists[min(self._times["tools/list"], len(lists)) - 1]
        if isinstance(listed, int):
            listed = [f"echo{number}" for number in range(listed)]
        tools = [tool(entry) if isinstance(entry, str) else entry for entry in listed]
        start = int(cursor or 0)
        size = self.script.get("page", len(tools) or 1)
        kind = self.script.get("cursor")
        if kind is not None:
            return {"tools": tools[:size], "nextCursor": str(start + 1) if kind == "endless" else "7"}
        page: Json = {"tools": tools[start : start + size]}
        if start + size < len(tools):
            page["nextCursor"] = str(start + size)
        return page

    # --- tools ----------------------------------------------------------------------------------------------

    def _call(self, message: Json, params: Json) -> None:
        name, arguments = params.get("name", ""), params.get("arguments") or {}
        patient = {"sleep": self._sleep, "progress": self._progress}.get(name)
        if patient is None:
            self._call_now(message, name, arguments)
            return
        cancelled = self._cancelled[json.dumps(message["id"])] = threading.Event()
        token = (params.get("_meta") or {}).get("progressToken")
        threading.Thread(target=patient, args=(message, arguments, token, cancelled), daemon=True).start()

    def _call_now(self, message: Json, name: str, arguments: Json) -> None:
        text = json.dumps(arguments)
        match name:
            case "pid":
                text = str(os.getpid())
            case "where":
                text = json.dumps({"cwd": os.getcwd(), "args": sys.argv[2:], "pid": os.getpid()})  # noqa: PTH109
            case "env":
                text = json.dumps(dict(os.environ))
            case "bytes":
                text = "x" * arguments["count"]
            case "refuse":
                self.send({"id": message["id"], "error": {"code": -32000, "message": "I refuse"}})
                return
            case _:
                if self._misbehave(message, name, arguments):
                    return
        self.reply(message, text, failed=name == "fail")

    def _misbehave(self, message: Json, name: str, arguments: Json) -> bool:
        """What has side effects. True if nothing is to be answered any more."""
        match name:
            case "effect":
                self.effect()
                return self.act(arguments.get("then", {}), message)
            case "act":
                return self.act(arguments, message)
            case "noise":
                self.write((arguments.get("text", "noise") + "\n").encode("latin-1") * arguments["count"])
            case "line":
                self.write(b"l" * arguments["bytes"] + b"\n")
            case "announce":
                self.announce(arguments["count"])
            case "set_tools":
                self._tools = arguments["tools"]
            case _:
                pass
        return False

    def _sleep(self, message: Json, arguments: Json, token: Any, cancelled: threading.Event) -> None:
        if not cancelled.wait(arguments.get("seconds", 1000)):
            self.reply(message, "awake")

    def _progress(self, message: Json, arguments: Json, token: Any, cancelled: threading.Event) -> None:
        for step in range(arguments["count"]):
            if cancelled.wait(arguments.get("interval", 0)):
                return
            if token is not None:
                params = {"progressToken": token, "progress": step + 1, "total": arguments["count"]}
                self.notify("notifications/progress", params)
        self._sleep(message, {"seconds": arguments.get("seconds", 0)}, token, cancelled)

    def _cancel(self, request_id: Any) -> None:
        self.record("cancelled", id=request_id)
        if (event := self._cancelled.get(json.dumps(request_id))) is not None:
            event.set()

    # --- output ---------------------------------------------------------------------------------------------

    def reply(self, message: Json, text: str, *, failed: bool = False) -> None:
        """Answer a call."""
        self.answer(message, {"content": [{"type": "text", "text": text}], "isError": failed})

    def answer(self, message: Json, result: Json) -> None:
        """Answer a request; the modern era wants a `resultType`."""
        if self.modern:
            result = {"resultType": "complete", **result}
        self.send({"id": message["id"], "result": result})

    def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification, within the subscription if there is one."""
        self.write(self._notification(method, params))

    def _notification(self, method: str, params: Json | None = None) -> bytes:
        params = dict(params or {})
        if self._subscription is not None:
            params["_meta"] = {META + "subscriptionId": self._subscription}
        return self._line({"method": method, "params": params})

    def send(self, message: Json) -> None:
        """Write a message."""
        self.write(self._line(message))

    def _line(self, message: Json) -> bytes:
        end = "\r\n" if self.script.get("crlf") else "\n"
        return (json.dumps({"jsonrpc": "2.0", **message}) + end).encode()

    def write(self, data: bytes) -> None:
        """Write bytes to stdout, one writer at a time."""
        with self._lock:
            if self._stdout_open:
                try:
                    _write_all(1, data)
                except BrokenPipeError:
                    _end(1)

    def _close_stdout(self) -> None:
        with self._lock:
            self._stdout_open = False
            os.close(1)

    # --- record ---------------------------------------------------------------------------------------------

    def record(self, event: str, **fields: Any) -> None:
        """Tell the test."""
        if self._record is not None:
            _write_all(self._record, (json.dumps({"event": event, **fields}) + "\n").encode())


def _of_this_run(script: Json) -> Json:
    if "runs" not in script:
        return script
    with open(script["count"], "ab") as counter:  # noqa: PTH123
        counter.write(b".")
        run = counter.tell()
    return {**script, **script["runs"][min(run, len(script["runs"])) - 1]}


def _circumstances() -> Json:
    import ctypes  # noqa: PLC0415 - takes as long as all the others

    death = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(death), 0, 0, 0)
    fds = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    return {
        "pid": os.getpid(),
        "cwd": os.getcwd(),  # noqa: PTH109
        "env": dict(os.environ),
        "fds": [fd for fd in sorted(fds) if _is_open(fd)],
        "pdeathsig": death.value,
        "blocked": sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "pgid": os.getpgid(0),
    }


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _spawn(child: Json) -> int:
    """Fork a grandchild that sleeps; tell its pid, even if it is a daemon that forked twice."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        if child["kind"] in {"setsid", "daemon"}:
            os.setsid()
        if child["kind"] == "daemon" and os.fork():
            os._exit(0)
        if child.get("ignore_term"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(write, str(os.getpid()).encode())
        os.closerange(3, 100)
        os.close(0)
        os.close(2)
        if not child.get("keep_stdout"):
            os.close(1)
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    os.close(write)
    found = int(os.read(read, 20))
    os.close(read)
    if child["kind"] == "daemon":
        os.waitpid(pid, 0)
    return found


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _die_of(number: signal.Signals) -> None:
    if number not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _end(status: int) -> NoReturn:
    os._exit(status)


if __name__ == "__main__":
    text = sys.argv[1]
    if text.startswith("@"):
        with open(text[1:]) as file:  # noqa: PTH123
            text = file.read()
    Server(json.loads(text)).run()
else:
    import py_compile

    try:
        # What the import has compiled may be of an earlier text: not everybody lets Python write such files.
        PROGRAM = str(py_compile.compile(__file__, doraise=True))
    except OSError:
        # A checkout that only may be read, as in a container.
        PROGRAM = __file__
