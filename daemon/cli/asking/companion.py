"""Shows a server's progress and answers its questions while a command waits for the daemon's answer."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from daemon import version
from daemon.cli.asking.elicitation import Interrupted, Terminal, answer, forget_typed
from daemon.cli.command import browse
from daemon.cli.control import OTHER_VERSION, DaemonSilent, Message, RemoteFault, Wire, ask, ask_with, explained
from daemon.cli.options import is_coloured
from daemon.safety.escape import visible

MAX_ROUNDS = 20
"""Rounds of questions that a server of MCP 2026-07-28 may ask before it answers."""

METHOD_NOT_FOUND = -32601
URL_REQUIRED = -32042
"""Code of a server's error that sends the user to a web page first (MCP 2025-11-25)."""
INVALID_REQUEST = -32600

OURS = "mcpd asks: "
"""The beginning of mcpd's own questions (`catalog.authorship`)."""

ELICITATION: Message = {"form": {}, "url": {}}
"""The forms of elicitation that a terminal can show (MCP, `ClientCapabilities.elicitation`)."""


class Withdrawn(Exception):
    """Raised when a question is withdrawn while the person reads it."""


def converse(options: argparse.Namespace, server: str, method: str, params: Message) -> Message:
    """Send a request for a server and answer the server's questions meanwhile. Raises as `control.ask_with`."""
    if options.profile not in {None, "default"} and "replaced" not in ask_with(options, "status", {})["daemon"]:
        raise RemoteFault(0, f"the daemon follows no profile: {OTHER_VERSION}")  # mcpd 0.1.0
    companion = CallCompanion.of(options, server)
    wishes: Message = {"progress": True} if companion.progress is not None else {}
    if capabilities := companion.capabilities:
        wishes["capabilities"] = capabilities
    # All rounds of a command go to one instance.
    here = {**_place(options.workspace), "command": os.urandom(8).hex(), "profile": options.profile}
    params = {**params, **here}
    asked = {**params, **wishes}
    for _ in range(MAX_ROUNDS):
        result = companion.conversing(options, partial(ask_with, options, method, asked))
        if result.get("resultType") == "input_required":
            asked = {**params, **wishes, **companion.inputs(result)}
        elif not companion.visits(pages_of(result)):
            return result
    raise RemoteFault(
        INVALID_REQUEST,
        f"server {server} has asked questions {MAX_ROUNDS} times without an answer to the request",
    )


def converse_as_client(options: argparse.Namespace, server: str, tool: str, arguments: Message) -> Message:
    """Call a tool as a client does, since only a client can run a script. Raises as `converse`."""
    companion = CallCompanion.of(options, server)
    hello = {**_place(options.workspace), "profile": options.profile, "surface": "full"}
    greeting = {
        "protocolVersion": "2025-11-25",
        "capabilities": companion.capabilities,
        "clientInfo": {"name": "mcpd call", "version": version()},
    }
    before = {"method": "mcpd/hello", "params": hello}, {"id": 0, "method": "initialize", "params": greeting}
    meta = {} if companion.progress is None else {"_meta": {"progressToken": tool}}
    params = {"name": f"{server}/{tool}", "arguments": arguments, **meta}
    path = ask_with(options, "status", {})["daemon"]["socket"]
    call = partial(ask, "tools/call", params, path=path, timeout=options.timeout, before=before)
    return companion.conversing(options, call)


def _place(workspace: Path | None) -> Message:
    if workspace is not None:
        return {"workspace": str(workspace.absolute())}
    try:
        return {"directory": str(Path.cwd())}
    except OSError:
        # The directory was removed.
        return {}


def pages_of(result: Message) -> list[Message]:
    """The web pages to open before the call is repeated (MCP 2025-11-25); usually none."""
    place = result
    for key in ("structuredContent", "error", "upstream"):
        place = members(place.get(key))
    if place.get("code") != URL_REQUIRED:
        return []
    pages = members(place.get("data")).get("elicitations")
    return [each for each in pages if isinstance(each, dict)] if isinstance(pages, list) else []


def members(value: object) -> Message:
    """The members of a JSON object; empty for any other value."""
    return value if isinstance(value, dict) else {}


class CallCompanion(NamedTuple):
    """Takes a server's progress and questions during a call; `take` is a `control.Companion`."""

    server: str
    stdin: TextIO | None
    """The terminal to read answers from; None declines every question."""
    stderr: TextIO
    progress: Progress | None
    """None requests no progress."""
    roots: Sequence[Path] = ()
    colour: bool = False

    def person(self, meanwhile: tuple[int, Callable[[], None]] | None = None) -> Terminal | None:
        """The person to ask, if there is a terminal; `meanwhile` as for `Terminal`."""
        if self.stdin is None:
            return None
        return Terminal(self.stdin, self.stderr, colour=self.colour, meanwhile=meanwhile)

    @classmethod
    def of(cls, options: argparse.Namespace, server: str) -> CallCompanion:
        """Make the companion for a command line."""
        stderr = sys.stderr
        there = not options.no_input and sys.stdin is not None and sys.stdin.isatty() and stderr.isatty()
        columns = None
        if stderr.isatty() and os.environ.get("TERM") != "dumb":
            import shutil  # noqa: PLC0415 - only with a terminal

            columns = shutil.get_terminal_size().columns
        shows = not options.quiet and not options.json
        return cls(
            server,
            stdin=sys.stdin if there else None,
            stderr=stderr,
            progress=Progress(stderr, columns=columns, clock=time.monotonic) if shows else None,
            roots=[path.resolve() for path in options.root],
            colour=is_coloured(stderr, os.environ),
        )

    @property
    def capabilities(self) -> Message:
        """The questions that the server may ask (MCP, `ClientCapabilities`)."""
        asked = {"elicitation": ELICITATION} if self.stdin is not None else {}
        return {**asked, **({"roots": {}} if self.roots else {})}

    def conversing(self, options: argparse.Namespace, ask: Callable[..., Message]) -> Message:
        """Call `ask` with this companion and return the answer. Raises as `control.ask_with`."""
        try:
            return ask(companion=self.take)
        except DaemonSilent as silent:
            raise explained(options, self.server, silent) from None
        finally:
            self.clear()

    def clear(self) -> None:
        """Remove the progress bar."""
        if self.progress is not None:
            self.progress.clear()

    def take(self, message: Message, wire: Wire) -> float:
        """Handle a message of the daemon's; returns the seconds that the person took."""
        method, request_id, params = message.get("method"), message.get("id"), members(message.get("params"))
        if request_id is None:
            if method == "notifications/progress" and self.progress is not None:
                self.progress.show(params)
            return 0.0
        begun = time.monotonic()
        try:
            answered = self._answer(str(method), params, (wire, request_id))
        except Withdrawn as reason:
            print(f"mcpd: {reason}", file=self.stderr)
        else:
            wire.send({"id": request_id, **answered})
        return time.monotonic() - begun

    def inputs(self, wants: Message) -> Message:
        """Answer an `input_required` result: the members to put into the next request (MCP 2026-07-28)."""
        responses = {}
        for key, request in members(wants.get("inputRequests")).items():
            asked = members(request)
            answered = self._answer(str(asked.get("method")), members(asked.get("params")), None)
            if "error" in answered:
                raise RemoteFault(METHOD_NOT_FOUND, f"server {self.server}: {answered['error']['message']}")
            responses[key] = answered["result"]
        state = {"requestState": wants["requestState"]} if "requestState" in wants else {}
        return {"inputResponses": responses, **state}

    def visits(self, pages: list[Message]) -> bool:
        """Offer web pages to the person. Returns whether all were accepted, so that the call is repeated."""
        person = self.person()
        if not pages or person is None:
            return False
        if any(self._elicit({**page, "mode": "url"}, None)["action"] != "accept" for page in pages):
            return False
        try:
            person.line("Press Enter when you are done there: the call is then repeated. ")
        except Interrupted:
            return False
        return True

    def _answer(self, method: str, params: Message, asked: tuple[Wire, object] | None) -> Message:
        if method == "elicitation/create":
            return {"result": self._elicit(params, asked)}
        if method == "roots/list" and self.roots:
            roots = [{"uri": path.as_uri(), "name": path.name or str(path)} for path in self.roots]
            return {"result": {"roots": roots}}
        return {"error": {"code": METHOD_NOT_FOUND, "message": f"nobody at a terminal can answer {method}"}}

    def _elicit(self, params: Message, asked: tuple[Wire, object] | None) -> Message:
        meanwhile = None if asked is None else (asked[0].fileno(), lambda: _attend(*asked))
        person = self.person(meanwhile)
        if self.stdin is None or person is None:
            return {"action": "decline"}
        self.clear()
        forget_typed(self.stdin)
        if asked is not None and asked[0].has_line:
            _attend(*asked)
        # On the way, the daemon marks servers' questions, so that none can pass for its own.
        ours = asked is not None and str(params.get("message")).startswith(OURS)
        return answer("mcpd" if ours else self.server, params, person, browse)


def _attend(wire: Wire, request_id: object) -> None:
    """Handle the daemon's messages while the person reads a question. Raises Withdrawn if it is withdrawn."""
    for message in wire.readable():
        if "method" not in message:
            # The call's end voids its other questions.
            wire.forget_all()
            wire.keep(message)
            raise Withdrawn("the call ended before this was answered")
        if message["method"] == "notifications/cancelled":
            cancelled = members(message.get("params")).get("requestId")
            if cancelled == request_id:
                raise Withdrawn("the server no longer wants an answer")
            wire.forget(cancelled)
        elif "id" in message:
            wire.keep(message)


BAR = 24

REDRAW_SECONDS = 0.1
"""Seconds between two drawings of the bar: servers may send thousands of reports."""

LINE_SECONDS = 2.0
"""Seconds between two lines where no bar can be redrawn, as in a log file."""

_CLEAR = "\r\x1b[K"


class Progress:
    """Shows the progress of one call."""

    def __init__(self, stream: TextIO, *, columns: int | None, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._columns = columns
        self._clock = clock
        self._next = -math.inf
        self._drawn = False

    def show(self, report: dict[str, Any]) -> None:
        """Show a `notifications/progress`, unless the last one was shown a moment ago."""
        done, total = _number(report.get("progress")), _number(report.get("total"))
        message, now = report.get("message"), self._clock()
        ended = done is not None and total is not None and done >= total
        if now < self._next and not ended:
            return
        words = visible(message) if isinstance(message, str) else ""
        if self._columns is None:
            self._next = now + LINE_SECONDS
            line = "  ".join(each for each in (_counted(done, total), words) if each)
            self._write(f"mcpd: {line}\n" if line else "")
            return
        self._next, self._drawn = now + REDRAW_SECONDS, True
        self._write(_CLEAR + _cut(_drawn(done, total, words), self._columns - 1))

    def clear(self) -> None:
        """Remove the bar."""
        if self._drawn:
            self._drawn = False
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _drawn(done: float | None, total: float | None, words: str) -> str:
    if done is None or total is None or total <= 0:
        return "  ".join(each for each in (_counted(done, total), words) if each) or "..."
    share = min(max(done / total, 0.0), 1.0)
    full = int(share * BAR)
    return f"[{'#' * full}{'-' * (BAR - full)}] {int(share * 100):3d} %  {words}".rstrip()


def _counted(done: float | None, total: float | None) -> str:
    if done is None:
        return ""
    return f"{done:g}" if total is None or total <= 0 else f"{done:g} of {total:g}"


def _cut(text: str, columns: int) -> str:
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 - only where a bar is drawn

    return text if cell_len(text) <= columns else f"{set_cell_size(text, columns - 1).rstrip()}…"


def _number(value: object) -> float | None:
    """A reported number; None for other values and infinities."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
