"""mcpd's own command line as a child of the daemon, so that the console changes things as a terminal does.

A person's text becomes a positional word or standard input, never an option; no shell reads it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from daemon.operators.base import OperatorContext, Refused
from daemon.processes.children import MOST_PRINTED

ALLOWED = frozenset({"add", "set", "unset", "remove", "rename", "pin", "upgrade", "enable", "up", "search"}) | {
    *("disable", "restart", "secret", "install", "uninstall", "allow-host")
}
"""Sub-commands that the console may run: each tests its change, can be undone, or changes no file."""

LINE_SECONDS = 600.0
"""Most seconds of a command line: a server's first start may download its package, which takes minutes."""

_BEGIN = (
    "import os, sys; from daemon.processes.own import end_with; end_with(int(sys.argv.pop(1)));"
    " os.dup2(1, 2); os.read(0, 1); from daemon.cli import main; main()"
)
"""The child ends with the daemon, even a killed one; merges stderr into stdout; waits until output is read."""

_OF_UNITS = ("NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_", "JOURNAL_STREAM", "INVOCATION_ID", "MCPD_DELEGATED")
"""Prefixes of variables that only the daemon may have."""

_STOPPED = b"mcpd: the daemon is stopping: look at the result when it runs again"


@attrs.frozen
class Printed:
    """The outcome of a mcpd command line."""

    status: int
    """The exit status; 0 means done."""
    text: str
    """Stdout and stderr in the order in which they arrived."""

    @property
    def data(self) -> dict[str, Any]:
        """The JSON that `--json` printed after any remarks; empty if there is no JSON."""
        _, brace, rest = f"\n{self.text}".partition("\n{")
        try:
            return dict(json.loads(brace + rest))
        except ValueError:
            return {}

    @property
    def remarks(self) -> str:
        """The text that was printed before the JSON of `--json`; without JSON, the whole text."""
        return (f"\n{self.text}".partition("\n{")[0] if self.data else self.text).strip()


async def run_line(
    context: OperatorContext, words: Sequence[str], given: str = "", *, options: Sequence[str] = ()
) -> Printed:
    """Run a sub-command of mcpd and wait for its end, even if the caller is cancelled.

    - `words`: the sub-command, then positional words, perhaps typed by a user; `-` is the only option allowed.
    - `given`: standard input.
    - `options`: chosen by the calling code, such as `--yes`.

    Raises `McpdError`: another line runs, this one is not allowed, or no process can be started.
    """
    (command, *rest), lines, facts = words, context.lines, context.facts
    if command not in ALLOWED:
        raise Refused(f"the console does not run `mcpd {command}`: type it in a terminal")
    if not all(each == "-" or (each.isprintable() and each[:1] not in {"", "-"}) for each in rest):
        raise Refused("a name or address is empty, begins with a dash, or has an invisible character")
    if lines is None or await trio.to_thread.run_sync(facts.replaced):
        raise Refused("the installed mcpd is not the one that runs: first type `mcpd start --restart`")
    if lines.running or lines.scope.cancel_called:
        raise Refused(f"`mcpd {lines.running or 'stop'}` is under way: try again when it has ended")
    environ = {each: text for each, text in facts.environ.items() if not each.startswith(_OF_UNITS)}
    for each, place in ("CONFIG", facts.config), ("SOCKET", facts.socket), ("CONTROL", facts.control_socket):
        environ[f"MCPD_{each}"] = str(Path(facts.directory or "/", place))
    line = [sys.executable, "-Pu", "-c", _BEGIN, str(os.getpid()), command, *options, *rest]
    ran: tuple[int | None, bytearray, bytearray] = 1, bytearray(_STOPPED), bytearray()
    lines.running = command
    try:
        # A browser that leaves does not end a change half way; the daemon's end does.
        with trio.CancelScope(shield=True) as lines.scope:
            ran = await lines.children.run(line, environ, LINE_SECONDS, b"\n" + given.encode())
    finally:
        lines.running = ""
    status, printed = ran[0], ran[2] + ran[1]
    # Nobody would recognise the rest of a secret that is cut apart.
    printed = printed.partition(b"\n")[2] if len(printed) > MOST_PRINTED else printed
    text = printed[-MOST_PRINTED:].decode(errors="replace").strip()
    text += "" if status is not None else "\nmcpd: the command took too long and was ended: check the result"
    return Printed(1 if status is None else status, context.redact(text, MOST_PRINTED))
