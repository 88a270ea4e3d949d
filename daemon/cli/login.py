"""`mcpd login`: logs in to a server by OAuth, with a browser on this machine or elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, TextIO

from daemon.cli.asking.elicitation import Interrupted, Terminal, forget_typed
from daemon.cli.command import browse, has_display
from daemon.cli.control import CommandFailed, Message, Wire, ask_with, note
from daemon.cli.options import is_coloured
from daemon.cli.table import ANSWER_SECONDS
from daemon.kit.wording import some
from daemon.safety.escape import document, visible
from daemon.states import COMING, in_sentence

if TYPE_CHECKING:
    import argparse

    from daemon.operators.change_reports import LoginReport

SHOWN_TOOLS = 8
"""Names of tools shown after a login; `mcpd tools` shows all."""

LINK, DEVICE_CODE = "notifications/login/link", "notifications/login/device"
_ANSWER_ID = "answer"


class Over(Exception):
    """Raised when the login ends while the person could still type."""


def log_in(options: argparse.Namespace) -> int:
    """Log in, and wait until the server is up."""
    params = {"server": options.server, "scope": options.scope, "device": options.device}
    params["seconds"] = options.timeout
    # The daemon times the login out, and says so.
    options.timeout += ANSWER_SECONDS
    there = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    companion = LoginCompanion(
        options.server,
        stdin=sys.stdin if there else None,
        stderr=sys.stderr,
        opens=not options.no_browser and has_display(os.environ),
    )
    answer: LoginReport = ask_with(options, "login", params, companion.take)
    print(document(answer) if options.json else in_words(answer))
    name, state = answer["server"], answer["state"]
    if state in COMING:
        note(f"{name} is still {state}: `mcpd status {name}` tells when it is up")
    if state in {"ready", "dormant", *COMING}:
        return 0
    raise CommandFailed(f"{name} is {in_sentence(state)}: {answer['reason']}")


def in_words(answer: LoginReport) -> str:
    """The outcome of a login, with the tools that the server offers."""
    tools = answer["tools"]
    offers = f"; it offers {len(tools)} tools: {some(tools, SHOWN_TOOLS)}" if tools else ""
    return visible(f"logged in to {answer['server']}{offers}")


class LoginCompanion(NamedTuple):
    """Shows the login page, and passes on the pasted address; `take` is a `control.Companion`."""

    server: str
    stdin: TextIO | None
    """The terminal to read pasted addresses from, or None."""
    stderr: TextIO
    opens: bool

    def take(self, message: Message, wire: Wire) -> float:
        """Handle a message of the daemon's; returns the seconds that the person took."""
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if message.get("method") == LINK:
            self._show(str(params.get("url")), "Open this page to log in")
            begun = time.monotonic()
            self._take_pasted(wire)
            return time.monotonic() - begun
        if message.get("method") == DEVICE_CODE:
            self._show(str(params.get("url")), "Open this page on any device", params.get("completeUrl"))
            self._say(f"and type this code there: {params.get('code')}")
        return 0.0

    def _show(self, url: str, words: str, complete: object = None) -> None:
        self._say(f"{words}:\n\n  {url}\n")
        page = complete if isinstance(complete, str) else url
        if self.opens and page.startswith(("https://", "http://")):
            # In a thread: some browsers return only when they are closed.
            threading.Thread(target=browse, args=(page,), daemon=True).start()

    def _say(self, text: str) -> None:
        print("\n".join(map(visible, text.split("\n"))), file=self.stderr, flush=True)

    def _take_pasted(self, wire: Wire) -> None:
        """Pass on pasted addresses until the login ends; Ctrl-C aborts the login."""
        if self.stdin is None:
            return
        forget_typed(self.stdin)
        meanwhile = wire.fileno(), lambda: _attend(wire)
        colour = is_coloured(self.stderr, os.environ)
        person = Terminal(self.stdin, self.stderr, colour=colour, meanwhile=meanwhile)
        prompt = "If your browser runs on another machine, paste the address that it ends at: "
        try:
            while True:
                if wire.has_line:
                    _attend(wire)
                if pasted := person.line(prompt).strip():
                    params = {"server": self.server, "url": pasted}
                    wire.send({"id": _ANSWER_ID, "method": "login_answer", "params": params})
                prompt = ""
        except Over:
            self._say("")
        except Interrupted:
            raise KeyboardInterrupt from None


def _attend(wire: Wire) -> None:
    """Handle the daemon's messages while the person types. Raises Over, with the answer kept."""
    for message in wire.readable():
        if "method" not in message and message.get("id") != _ANSWER_ID:
            wire.keep(message)
            raise Over
