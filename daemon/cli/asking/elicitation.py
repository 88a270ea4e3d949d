"""Shows servers' elicitations at the terminal and reads the answers."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from daemon.cli.asking.forms import Field, Unaskable, Unfit, fields_of, read, shown, wanted
from daemon.config.listen import is_loopback, web_address
from daemon.config.redaction import names_credential
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from daemon.cli.control import Message


MAX_LINE = 64 * 1024
"""Bytes of a typed line: more than a terminal passes on at once."""


class Declined(Exception):
    """Raised when the person declines to answer."""


class Interrupted(Exception):
    """Raised when the person ends a question with Ctrl-C or the end of the input."""


class Terminal:
    """Reads lines from a terminal while it watches another descriptor."""

    def __init__(
        self,
        stdin: TextIO,
        stderr: TextIO,
        *,
        colour: bool,
        meanwhile: tuple[int, Callable[[], None]] | None = None,
    ) -> None:
        """`meanwhile` is the descriptor to watch, and a function to call when it is readable."""
        self._stdin = stdin.fileno()
        self._stderr = stderr
        self._colour = colour
        self._meanwhile = meanwhile

    def say(self, text: str) -> None:
        """Print a text, which the caller has escaped."""
        print(text, file=self._stderr, flush=True)

    def loud(self, text: str) -> str:
        """Make an escaped text bold."""
        return f"\x1b[1m{text}\x1b[0m" if self._colour else text

    def line(self, prompt: str) -> str:
        """Ask for a line. Raises Interrupted on Ctrl-C and Ctrl-D."""
        try:
            # Inside the block: a Ctrl-C right after the prompt appears means the prompt.
            print(prompt, end="", file=self._stderr, flush=True)
            typed = self._read()
        except KeyboardInterrupt:
            typed = b""
        if not typed:
            self.say("")
            raise Interrupted
        return typed.decode(errors="replace").rstrip("\r\n")

    def _read(self) -> bytes:
        other, attend = self._meanwhile or (self._stdin, lambda: None)
        while True:
            ready, _, _ = select.select([self._stdin, other], [], [])
            if other in ready:
                attend()
            if self._stdin in ready:
                # In canonical mode a terminal hands over a line at a time.
                return os.read(self._stdin, MAX_LINE)


def forget_typed(stdin: TextIO) -> None:
    """Drop characters typed before the question was shown."""
    import termios  # noqa: PLC0415 - only with a terminal

    with suppress(termios.error):
        termios.tcflush(stdin.fileno(), termios.TCIFLUSH)


MAX_TEXT = 4000
"""Characters shown of a server's message or description: two screens."""

DECLINE = "decline"
"""Typing this word declines; a backslash before it makes it a text."""

_HELP = (
    f"Enter takes the value in brackets, or leaves an optional one out; {DECLINE!r} declines, Ctrl-C cancels."
)
_ABSENT = object()
_WARNING = (
    "! This looks like a secret. MCP forbids servers to ask for one like this: decline, unless you are sure."
)


def answer(server: str, params: Message, person: Terminal, browse: Callable[[str], bool]) -> Message:
    """Ask the person; returns the result of `elicitation/create`. `browse` opens a page, or returns False."""
    try:
        message = params.get("message")
        said = message if isinstance(message, str) else ""
        if params.get("mode") == "url":
            return _url(server, said, params.get("url"), person, browse)
        content = _form(server, said, params.get("requestedSchema"), person)
    except Declined:
        return {"action": "decline"}
    except Interrupted:
        return {"action": "cancel"}
    return {"action": "accept", "content": content}


def lacking_in(schema: Message, given: Message) -> list[str]:
    """The required arguments that are missing."""
    required = schema.get("required")
    names = required if isinstance(required, list) else ()
    return [each for each in names if isinstance(each, str) and each not in given]


def missing(schema: Message, given: Message, person: Terminal) -> Message:
    """Ask for missing required arguments that a form can ask for. Raises Declined or Interrupted."""
    properties, asked = schema.get("properties"), dict[str, Any]()
    members = properties if isinstance(properties, dict) else {}
    for name in lacking_in(schema, given):
        with suppress(Unaskable):
            form = {"properties": {name: members.get(name)}, "required": [name]}
            asked[name] = _ask(fields_of(form)[0], person)
    return asked


def _form(server: str, message: str, schema: object, person: Terminal) -> Message:
    try:
        fields = fields_of(schema)
    except Unaskable as error:
        person.say(f"{visible(server)} asks: {_message(server, message)}")
        person.say(f"  Declined: this form cannot be shown here, because {visible(str(error))}.")
        raise Declined from None
    person.say(f"{person.loud(visible(server))} asks: {_message(server, message)}")
    if not fields:
        if not _agrees(person, f"Agree? [y/N, {DECLINE}] ", default=False):
            raise Declined
        return {}
    person.say(_HELP)
    while True:
        answers = [(field, value) for field in fields if (value := _ask(field, person)) is not _ABSENT]
        person.say("")
        for field, value in answers:
            person.say(f"  {visible(field.title)}: {visible(shown(field, value))}")
        if _agrees(person, f"Send this to {visible(server)}? [Y/n, {DECLINE}] ", default=True):
            return {field.name: value for field, value in answers}


def _ask(field: Field, person: Terminal) -> object:
    person.say("")
    optional = "" if field.required else " (optional)"
    about = f": {_cut(field.about)}" if field.about else ""
    person.say(f"{person.loud(visible(field.title))}{optional}{about}")
    if names_credential(field.name) or names_credential(field.title):
        person.say(f"  {person.loud(_WARNING)}")
    for number, choice in enumerate(field.choices, 1):
        person.say(f"  {f'{number})' if field.numbered else '-'} {visible(choice.title)}")
    default = "" if field.default is None else f" [{visible(shown(field, field.default))}]"
    while True:
        line = _line(person, f"  {visible(wanted(field))}{default}: ")
        if not line.strip():
            if field.default is not None or not field.required:
                return _ABSENT if field.default is None else field.default
            person.say("  This value is required.")
            continue
        try:
            return read(field, "decline" if line.strip() == f"\\{DECLINE}" else line)
        except Unfit as error:
            person.say(f"  {visible(str(error)).capitalize()}.")


def _message(server: str, message: str) -> str:
    return _cut(message.removeprefix("Server ").removeprefix(f"{server} asks: "))


def _url(server: str, message: str, url: object, person: Terminal, browse: Callable[[str], bool]) -> Message:
    parts = _page(url)
    if parts is None:
        person.say(f"{visible(server)} asks: {_message(server, message)}")
        person.say(f"  Declined: {visible(str(url)[:MAX_TEXT])} is not the address of a web page.")
        raise Declined
    host = parts.hostname or ""
    person.say(f"{person.loud(visible(server))} asks you to open a page: {_message(server, message)}")
    before, _, after = parts.geturl().partition(parts.netloc)
    around = parts.netloc.rpartition(parts.netloc.rpartition("@")[2])
    person.say(f"  {before}{around[0]}{person.loud(around[1])}{after}")
    person.say(f"  Host: {person.loud(host)}")
    for warning in _warnings(parts):
        person.say(f"  {person.loud('! ' + warning)}")
    while True:
        word = _line(person, "Open it? [y: in a browser, m: I open it myself, N] ").strip().casefold()
        if word in {"m", "myself"}:
            return {"action": "accept"}
        if word in {"y", "yes"}:
            if not browse(parts.geturl()):
                person.say("  No browser could be started here: open it yourself.")
            return {"action": "accept"}
        if word in {"", "n", "no"}:
            raise Declined


def _page(url: object) -> SplitResult | None:
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return None
    return web_address(url)


def _warnings(parts: SplitResult) -> list[str]:
    host, warnings = parts.hostname or "", []
    if "@" in parts.netloc:
        warnings.append(f"The part before the @ is only a user name. The page is on {host}.")
    if any(label.startswith("xn--") for label in host.split(".")):
        warnings.append("The host's name has letters beyond ASCII, which may look like others.")
    if parts.scheme == "http" and not is_loopback(host):
        warnings.append("The page is not encrypted (http).")
    return warnings


def _line(person: Terminal, prompt: str) -> str:
    line = person.line(prompt)
    if line.strip() == DECLINE:
        raise Declined
    return line


def _agrees(person: Terminal, prompt: str, *, default: bool) -> bool:
    while True:
        word = _line(person, prompt).strip().casefold()
        if word in {"", "y", "yes", "n", "no"}:
            return default if not word else word.startswith("y")


def _cut(text: str) -> str:
    cut = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… (cut)"
    return visible(cut.strip(), lines=True).replace("\n", "\n  ")
