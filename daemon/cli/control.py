"""Client of the control socket: sends a JSON-RPC 2.0 request and reads the answer, one line of JSON each.

Synchronous, and standard library only: importing an event loop takes five times as long as a request.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from daemon import version
from daemon.bridge.unreachable import OPERATORS, explain
from daemon.cli.table import EX_CONFIG
from daemon.host.paths import control_socket, distrust
from daemon.kit.wording import span
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse

    from daemon.operators.reports import ServerReport


EX_FAULT = 1
"""The daemon refused the request, or a part of it failed."""
EX_UNKNOWN = 66
"""There is no such server, tool, prompt or resource (sysexits.h)."""
_KINDS = {
    65: "InvalidArguments",
    EX_UNKNOWN: "UnknownServer UnknownTool UnknownCategory UnknownPrompt UnknownResource",
    69: "UpstreamUnavailable SchemaFetchError NoWorkspace Overloaded",
    77: "ToolDisabled PromptDisabled ResourceDisabled PermissionDenied ToolHeld AuditUnavailable",
    124: "UpstreamTimeout UpstreamLost",
}
KINDS = {code: status for status, codes in _KINDS.items() for code in codes.split()}
"""Exit statuses by error code, for commands that use servers; all other codes give `EX_FAULT`."""
EX_UNREACHABLE = 3
"""No daemon answers on the control socket, or the socket cannot be trusted."""

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of the largest answer: a tool's result has at most 16 MiB, so a larger answer is a fault."""

STATUS_SECONDS = 10.0
"""Seconds for the daemon to report its state, which takes milliseconds if the daemon is well."""

REST_SECONDS = 10.0
"""Seconds for the rest of a message of which some bytes have come."""

OTHER_SOCKET = "Name the socket of its clients with --socket P."

_CHUNK = 64 * 1024
_ID = 1
_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_DECODER = " - at `$"
"""Found in the error of a daemon that cannot read the parameters: it has another version."""

Message = dict[str, Any]


class DaemonUnreachable(Exception):
    """Raised when no daemon answers; the text names the socket, the reason and the remedy."""

    def __init__(self, problem: str, helps: str = "") -> None:
        super().__init__(f"{problem}.\n{helps}" if helps else problem)
        self.problem = problem
        """The socket and the reason, as a clause."""


class DaemonSilent(DaemonUnreachable):
    """Raised when a daemon listens but does not answer in time: it hangs, or the request takes longer."""


class DaemonHungUp(DaemonUnreachable):
    """Raised when a daemon closes the connection without an answer."""


class CommandFailed(Exception):
    """Raised when a command fails; the text says why and what to do."""

    kind = ""


class RemoteFault(CommandFailed):
    """Raised when the daemon answers with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.kind = data.get("code", "") if isinstance(data, dict) else ""

    def __str__(self) -> str:
        """The message alone: in a subclass, `KeyError` would put quotes around it."""
        return self.message

    @property
    def is_of_the_file(self) -> bool:
        """Whether the error reports a faulty configuration."""
        return isinstance(self.data, dict) and "faults" in self.data


class MissingMember(RemoteFault, KeyError):
    """Raised if the daemon's answer lacks a member, because the daemon has another version."""


class _Members(dict[str, Any]):
    def __missing__(self, name: str) -> object:
        raise MissingMember(0, f"the daemon's answer lacks {name!r}: {OTHER_VERSION}")


OTHER_VERSION = "daemon and `mcpd` differ in version. `mcpd start --restart` restarts the daemon."


class Wire:
    """A connection to the control socket, which carries one message per line."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._received = bytearray()
        self._searched = 0
        self._kept: deque[Message] = deque()

    def fileno(self) -> int:
        """The descriptor for `select`."""
        return self._link.fileno()

    def send(self, message: Message) -> None:
        """Send a message."""
        self._link.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def keep(self, message: Message) -> None:
        """Keep a received message for a later `next`."""
        self._kept.append(message)

    def forget(self, request_id: object) -> None:
        """Drop a kept request, by its id."""
        self._kept = deque(message for message in self._kept if message.get("id") != request_id)

    def forget_all(self) -> None:
        """Drop all kept messages."""
        self._kept.clear()

    def next(self, deadline: float) -> Message:
        """The next kept message, or else the next message from the socket (`receive`)."""
        return self._kept.popleft() if self._kept else self.receive(deadline)

    def receive(self, deadline: float) -> Message:
        """The next message from the socket; `deadline` is on the clock `time.monotonic`.

        Raises TimeoutError; EOFError if the connection ends first; ValueError for a line that is too long or
        holds no JSON object.
        """
        while (end := self._received.find(b"\n", self._searched)) < 0:
            self._searched = len(self._received)
            if self._searched > MAX_ANSWER:
                raise ValueError(f"its answer is larger than {MAX_ANSWER // 1024**2} MiB")
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._link.settimeout(left)
            chunk = self._link.recv(_CHUNK)
            if not chunk:
                raise EOFError
            self._received += chunk
        try:
            message = json.loads(self._received[:end], object_hook=_Members)
        except RecursionError:
            raise ValueError("a line of the answer is nested too deeply") from None
        del self._received[: end + 1]
        self._searched = 0
        if not isinstance(message, dict):
            raise ValueError("a line of the answer is not a JSON object")
        return message

    def readable(self) -> Iterator[Message]:
        """The messages of a connection that is readable; waits only for the rest of a message."""
        while True:
            yield self.receive(time.monotonic() + REST_SECONDS)
            if not self.has_line:
                return

    @property
    def has_line(self) -> bool:
        """Whether a whole message is buffered here, which `select` would not report."""
        return b"\n" in self._received


Companion = Callable[[Message, Wire], float]
"""Handles a message that the daemon sends before its answer; returns the seconds of a person, which no timeout
counts."""


def ask(
    method: str,
    params: Message,
    *,
    path: str,
    timeout: float,
    companion: Companion | None = None,
    before: Iterable[Message] = (),
) -> Message:
    """Send `before` and the request; wait `timeout` s for its answer. Raises DaemonUnreachable, RemoteFault."""
    # Words of the command line may have undecodable bytes (PEP 383), which no daemon could read.
    readable = {
        key: value.encode(errors="surrogateescape").decode(errors="replace")
        if isinstance(value, str)
        else value
        for key, value in params.items()
    }
    request = {"id": _ID, "method": method, "params": readable}
    deadline = time.monotonic() + timeout
    with _connected(path, timeout) as link:
        try:
            wire = Wire(link)
            for each in (*before, request):
                wire.send(each)
            answer = _answer(wire, deadline, companion)
        except TimeoutError:
            raise DaemonSilent(
                f"the daemon at {path} did not answer `{method}` within {timeout:g} s",
                "It may be overloaded or hang: see its log; --timeout SECONDS waits longer.",
            ) from None
        except (OSError, EOFError):
            raise DaemonHungUp(
                f"the daemon at {path} closed the connection without an answer: it is stopping, does not"
                " serve this user (`listen.uids`), or runs this process or its ancestor as a server:"
                " servers may give no orders (`listen.servers` lets it be a client)",
                "See its log, then try again.",
            ) from None
        except ValueError as error:
            raise DaemonUnreachable(f"{path} is not mcpd's control socket ({error})", OTHER_SOCKET) from None
    return _result(answer, method, path)


def ask_with(
    options: argparse.Namespace,
    method: str,
    params: Message,
    companion: Companion | None = None,
    *,
    timeout: float | None = None,
) -> Any:
    """Call `ask` with the socket and timeout of the command line (`add_control`)."""
    path = options.control or str(control_socket(os.environ, options.socket))
    try:
        return ask(method, params, path=path, timeout=timeout or options.timeout, companion=companion)
    except RemoteFault as fault:
        if fault.is_of_the_file and (why := other_version(options)):
            fault.message += f"\nThe daemon finds these faults: {why}"
        raise


def other_version(options: argparse.Namespace) -> str:
    """A sentence if the daemon runs another version than this command or the installed program; else empty."""
    with suppress(DaemonUnreachable, RemoteFault):
        running = ask_with(options, "status", {}, timeout=STATUS_SECONDS)["daemon"]
        if running["version"] != version() or running.get("replaced"):
            return OTHER_VERSION
    return ""


def say(*lines: str) -> None:
    """Print lines, with words from outside escaped."""
    for line in lines:
        print(visible(line, lines=True))


def note(text: str, *, lines: bool = False) -> None:
    """Print a remark to stderr, since programs read stdout."""
    print(f"mcpd: {visible(text, lines=lines)}", file=sys.stderr, flush=True)


def guarded(
    action: Callable[[], int], changing: str | None = None, kinds: Mapping[str, int] | None = None
) -> int:
    """Run a command, report its failures, and return its exit status; `kinds` maps error codes to statuses."""
    try:
        return action()
    except DaemonUnreachable as error:
        note(str(error), lines=True)
        return EX_UNREACHABLE
    except CommandFailed as error:
        is_of_the_file = isinstance(error, RemoteFault) and error.is_of_the_file
        note(f"{error}{_UNCHANGED if is_of_the_file else ''}", lines=is_of_the_file)
        return EX_CONFIG if is_of_the_file else (kinds or {}).get(error.kind, EX_FAULT)
    except Exception as error:
        from daemon.errors import ConfigError, McpdError  # noqa: PLC0415 - imports attrs

        if not isinstance(error, McpdError):
            raise
        is_of_the_file = isinstance(error, ConfigError)
        unchanged = is_of_the_file and changing is not None
        note(f"{error}{f'{_UNCHANGED}{changing}' if unchanged else ''}", lines=True)
        return EX_CONFIG if is_of_the_file else EX_FAULT


_UNCHANGED = "\nmcpd: nothing was changed"


def _connected(path: str, timeout: float) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(timeout)
    try:
        link.connect(path)
    except OSError as error:
        link.close()
        raise DaemonUnreachable(*explain(path, error, OPERATORS)) from None
    if reason := distrust(link, path):
        link.close()
        raise DaemonUnreachable(reason)
    return link


def _answer(wire: Wire, deadline: float, companion: Companion | None) -> Message:
    while True:
        message = wire.next(deadline)
        if "method" in message:
            if companion is not None:
                deadline += companion(message, wire)
        elif message.get("id") == _ID:
            return message


def _result(answer: Message, method: str, path: str) -> Message:
    error = answer.get("error")
    if isinstance(error, dict):
        code, message = error.get("code", 0), str(error.get("message", ""))
        if code == _METHOD_NOT_FOUND:
            # The daemon's text lists its commands, without reason and remedy.
            message = f"the daemon does not know `{method}`: {OTHER_VERSION}"
        elif code == _INVALID_PARAMS and _DECODER in message:
            message = f"the daemon does not accept this `{method}` ({message}): {OTHER_VERSION}"
        raise RemoteFault(code, message, error.get("data"))
    result = answer.get("result")
    if not isinstance(result, dict):
        raise DaemonUnreachable(f"{path} is not mcpd's control socket", OTHER_SOCKET)
    return result


def explained(
    options: argparse.Namespace, server: str, silent: DaemonSilent, seconds: float = STATUS_SECONDS
) -> DaemonUnreachable | RemoteFault:
    """The error for a request to a server that timed out; it says whether server or daemon is silent."""
    try:
        answer = ask_with(options, "status", {"server": server}, timeout=seconds)
    except DaemonSilent:
        return DaemonSilent(
            f"{silent.problem}, nor `status` within {seconds:g} s: the daemon hangs",
            "Its log may say why (`mcpd logs --daemon`); `mcpd stop` and `mcpd start` start another one.",
        )
    except DaemonUnreachable as gone:
        return DaemonUnreachable(f"{silent.problem}; now {gone.problem}")
    except RemoteFault:
        return silent
    text = _of_server(server, answer["server"], options.timeout)
    return RemoteFault(EX_FAULT, text, {"code": "UpstreamTimeout"})


def _of_server(server: str, seen: ServerReport, seconds: float) -> str:
    facts = [f"is {seen['state']}" + (f": {seen['reason']}" if seen["reason"] else "")]
    if seen["pid"] is not None:
        facts.append(f"pid {seen['pid']}")
    if (pings := seen["pings"]) and not seen["reason"]:
        facts.append(f"last heard {span(time.time() - pings['lastHeardAt'], parts=1)} ago")
    return (
        f"server {server} did not answer within {seconds:g} s (--timeout); the daemon did. It"
        f" {', '.join(facts)}. The call was given up; whether it ran is unknown."
        f" `mcpd status {server}` shows more."
    )
