"""Stand-ins for the daemon: a control socket with scripted answers, a front that the test itself plays."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from daemon.causes import Cause, Reason
from daemon.supervision.lifecycle import by_cause
from tests.waiting import PATIENCE, run_to_end

ROOT = Path(__file__).parents[3]

SERVER: Any = {
    "state": "ready", "since": 1000.0, "attempt": 1, "nextRetryInMs": None, "reason": "", "cause": None,
    "causeData": {}, "happened": "", "helps": "", "waits": False, "stderr": [], "pid": 4711, "pids": [4711],
    "rssBytes": 50 * 1024**2, "tools": 12, "epoch": 3, "restarts": 0, "calls": 34, "errors": 0, "inFlight": 0,
    "p50Ms": 1.25, "p95Ms": 87.5, "recent": {"minutes": 5, "calls": 34, "errors": 0, "p50Ms": 1.25,
    "p95Ms": 87.5}, "pings": {"unanswered": 0, "lastMs": 0.4, "lastHeardAt": 990.0}, "type": "stdio",
    "protocol": "2025-11-25", "others": [], "serverInfo": "git 1.0", "quarantined": {}, "completed": [],
    "hidden": {}, "noise": {"count": 0, "first": ""}, "oneClientAtATime": False, "listingError": "",
    "prompts": 0, "resources": 0, "templates": 0, "skills": 0, "lists": {}, "instances": [],
}  # fmt: skip
"""One server as `status` answers it, well."""


def server(**changed: Any) -> Any:
    """`SERVER` with something changed."""
    return {**SERVER, **changed}


def down(cause: str | None = "exited", /, **changed: Any) -> Any:
    """A server that is not running."""
    gone = {"pid": None, "rssBytes": None, "p50Ms": None, "p95Ms": None, "calls": 0}
    why = {"reason": "exited with status 1", "cause": cause, "causeData": {"status": 1}}
    return server(**{"state": "backoff", **why, **gone, **changed})


def diagnosed(seen: Any) -> Any:
    """A server with the remedy that a daemon adds for its cause."""
    known = by_cause("git", Reason(seen["reason"], Cause(seen["cause"]), seen["causeData"]))
    return {**seen, **known.diagnosis}


def metrics_of(**changed: Any) -> Any:
    """What was counted, as `status` answers it."""
    nothing = {"loads": 0, "invalidations": {}, "estimatedTokensNotSent": 0}
    return {**nothing, "inAll": {**nothing, "since": 0.0}, **changed}


def status_of(servers: Mapping[str, Any], **more: Any) -> Any:
    """A whole answer to `status`."""
    daemon = {
        "version": "0.1.0", "pid": 99, "startedAt": 900.0, "uptimeSeconds": 3725.0,
        "socket": "/run/user/1/mcpd/mcpd.sock", "controlSocket": "/run/user/1/mcpd/control.sock",
        "config": "/home/me/.config/mcpd/mcpd.json", "lazy": True, "surfaces": {"default": "category"},
        "startsAtATime": 4, "dormant": 0, "off": 0, "unrecorded": "", "audit": "",
        "persistence": {"state": "ok", "reason": "", "since": 1000.0, "where": "", "waiting": 0},
        "tools": 120, "schemaBytes": 204800,
        "offeredTools": 120, "offeredBytes": 204800, "surfaceBytes": 2048, "estimatedTokensSaved": 50688,
        "servers": len(servers), "available": sum(entry["state"] == "ready" for entry in servers.values()),
    }  # fmt: skip
    return {
        "daemon": daemon, "servers": dict(servers), "sessions": [], "repairs": {}, "unresolved": [],
        "switchedOff": [], "metrics": metrics_of(), "connections": {}, "lately": {"seconds": 43_200.0,
        "servers": {}}, **more,
    }  # fmt: skip


def session_of(**changed: Any) -> Any:
    """A connection as `status` answers it."""
    known: Any = {
        "number": 1, "key": None, "client": "agent 1.0", "token": None, "protocol": "2025-06-18",
        "profile": "default", "surface": "category", "servers": [], "surfaceGrounds": "profile",
        "surfaceWhy": "the profile names it", "workspace": None, "instances": [], "since": 1000.0, "calls": 5,
        "inFlight": 0, "loadedTools": 0, "repairedCalls": 0, "estimatedTokensNotSent": 0,
        "defersTools": False,
    }  # fmt: skip
    return {**known, **changed}


def asked_for(asked: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """What a daemon was asked, without what every command says of where it was given, and the usual profile."""

    def told(key: str, value: object) -> bool:
        return key not in {"directory", "command"} and value is not None and value != "default"

    return [
        (method, {key: value for key, value in params.items() if told(key, value)}) for method, params in asked
    ]


class FakeControl:
    """Answers each method with what `answers` has for it.

    That is a result, `{"error": ...}`, raw bytes after which it hangs up, or `SILENCE`.
    """

    def __init__(self, path: Path, answers: Mapping[str, Any]) -> None:
        self.path = path
        self.answers = dict(answers)
        self.asked: list[tuple[str, Any]] = []
        """Method and params of every request, in order."""
        self._closing = False
        self._listener = listen(path)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        # A last connection wakes `accept`, which closing the socket under it does not.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as last:
            last.connect(str(self.path))
        self._thread.join(PATIENCE)
        self._listener.close()
        self.path.unlink()

    def _serve(self) -> None:
        while not self._closing:
            link, _ = self._listener.accept()
            with link, contextlib.suppress(OSError):
                link.settimeout(PATIENCE)
                self._converse(link)

    def _converse(self, link: socket.socket) -> None:
        with link.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                self.asked.append((request["method"], request["params"]))
                answer = self.answers.get(request["method"], {"error": METHOD_NOT_FOUND})
                if answer is SILENCE:
                    continue
                answer = answer(request["params"]) if callable(answer) else answer
                if request["method"] == "status" and isinstance(answer, dict) and "servers" in answer:
                    answer = _status(answer, request["params"].get("server"))
                link.sendall(answer if isinstance(answer, bytes) else _message(request["id"], answer))
                if isinstance(answer, bytes):
                    return


def _status(whole: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    """The answer about one server, if there is one of that name and it is asked for; else about all."""
    if name is None or name not in whole["servers"]:
        return whole
    return {
        "name": name, "server": whole["servers"][name], "events": [], "calls": [], "moreCalls": 0,
        "lastErrors": [],
    }  # fmt: skip


METHOD_NOT_FOUND = {"code": -32601, "message": "Method not found"}
SILENCE = object()
"""An answer that never comes."""


def _message(request_id: int, answer: Mapping[str, Any]) -> bytes:
    body = answer if set(answer) == {"error"} else {"result": answer}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, **body}).encode() + b"\n"


def listen(path: Path) -> socket.socket:
    """A listening socket at `path` whose waits are bounded."""
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    listener.settimeout(PATIENCE * 10)
    return listener


def environment(**more: str) -> dict[str, str]:
    """The environment of a command: nothing of the tester's own daemon or configuration."""
    ours = ("MCPD_", "XDG_", "RUNTIME_", "STATE_", "COLUMNS", "NO_COLOR", "PYTHON")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def mcpd(*words: str, said: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """`mcpd WORDS` as a child, run to its end; `said` is its stdin, `more` is for its environment."""
    return run_to_end([sys.executable, "-m", "daemon", *words], env=environment(**more), input=said)


@contextlib.contextmanager
def fake_control(path: Path, answers: Mapping[str, Any]) -> Iterator[FakeControl]:
    """A control socket at `path`."""
    control = FakeControl(path, answers)
    try:
        yield control
    finally:
        control.close()
