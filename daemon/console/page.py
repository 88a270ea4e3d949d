"""A page of the console: its address, title, links, and fragments, which are HTML with an id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import attrs
import msgspec

from daemon.errors import InvalidArguments
from daemon.operators.base import Command, OperatorContext


def server_page(server: str) -> str:
    """The address of a server's page, below `/ui`."""
    return f"/servers/{quote(server, safe='')}"


def tool_page(server: str, tool: str) -> str:
    """The address of a tool's page, below `/ui`."""
    return f"/tools/{quote(server, safe='')}/{quote(tool, safe='')}"


def session_page(session: str) -> str:
    """The address of a session's page, below `/ui`; `session` is a key, or `#` and a connection's number."""
    return f"/sessions/{quote(session, safe='')}"


def with_query(address: str, **query: str | int) -> str:
    """Add the values that are not empty to an address, as its query."""
    words = urlencode({name: value for name, value in query.items() if value}, quote_via=quote)
    return f"{address}?{words}" if words else address


def element_id(kind: str, *names: str) -> str:
    """A unique element id, without blanks, for something with these names."""
    return "-".join([kind, *(quote(name, safe="") for name in names)])


LONGEST_NUMBER = 6
"""Digits of a page number: no list has more pages, and Python refuses numbers of thousands of digits."""


def page_number(written: str, most: int = 10**LONGEST_NUMBER) -> int:
    """The page number in a query, at most `most`; 1 for any other text."""
    sound = written.isascii() and written.isdecimal() and len(written) <= LONGEST_NUMBER
    return min(max(int(written), 1), most) if sound else 1


def steady(report: Mapping[str, Any], *passing: str) -> dict[str, Any]:
    """A report without the members that differ at each request: with them, the page would never be at rest."""
    return {key: value for key, value in report.items() if key not in passing}


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """The viewer of a page, and the part of it that is viewed."""

    context: OperatorContext
    may_change: bool
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    path: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The variable parts of the address: `{"server": "git"}`."""
    typed: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The page's form, as this viewer has sent it (`ConsoleAction.keeps`)."""
    last: Notice | None = None


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a page, which is replaced when it changes."""

    id: str
    template: str
    values: Mapping[str, object]
    """Values for the template, besides `element` (the id) and `may_change`; they are compared with the last
    ones. Write a time, which the template shows with `since`, instead of an age in seconds."""


Holders: TypeAlias = "Mapping[str, Sequence[Fragment]]"
"""A page's fragments in order, by the id of the element that holds them."""


def part(name: str, template: str = "", /, **values: object) -> Fragment:
    """Make a fragment with an id and values. Its template, without `.html`, is by default named like the id."""
    return Fragment(id=name, template=f"{template or name.replace('-', '_')}.html", values=values)


Undo: TypeAlias = "Callable[[Viewer], Awaitable[Notice]]"


class Notice(msgspec.Struct, frozen=True):
    """The outcome of a form, which the next page shows."""

    text: str
    is_error: bool = False
    undo: Undo | None = None
    """Undoes the change. Kept in the session, never on a page: it may know secrets."""
    key: str = ""
    """Identifies the notice in the form that undoes the change."""
    server: str = ""
    """The server that was changed, for the audit."""
    leads_to: str = ""
    """The next page, below `/ui`; if empty, the form's page."""
    shown: str = ""
    """The digest of the shown content; the next step must repeat the digest to agree."""


@attrs.frozen(kw_only=True)
class ConsolePage:
    """A page of the console."""

    path: str
    title: str
    template: str
    """The frame around the fragments: extends `layout.html`; `fragments("ID")` draws a holder's fragments."""
    fragments: Callable[[Viewer], Awaitable[Holders]]
    """Returns the fragments in order, by holder. Raises `McpdError` if the subject does not exist."""
    own: Callable[[Viewer], Awaitable[Mapping[str, object]]] | None = None
    """Values of the frame, for this viewer and moment."""
    calls_every: float | None = 5.0
    """Seconds between two computations while only calls happen; None for a page that shows no calls."""
    in_navigation: bool = True


class ConsoleAction(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a viewer makes with a form, a `POST` to the action's address."""

    path: str
    act: Callable[[Viewer, Mapping[str, str]], Awaitable[str | Notice]]
    """Acts on the form's fields by an operators' command, and returns a sentence about the outcome. The viewer
    sees the text of the `McpdError` that it may raise."""
    keeps: bool = False
    """Whether the page shows the typed values until another form is sent or another page follows."""


def command_action(
    path: str, command: Command[Any], words: Callable[[Any], Iterable[str]], **fixed: object
) -> ConsoleAction:
    """An action that runs a command with the address's variable parts, the form's fields, and `fixed`."""

    async def act(viewer: Viewer, fields: Mapping[str, str]) -> str:
        try:
            params = msgspec.convert({**viewer.path, **fields, **fixed}, command.params, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidArguments(f"this form does not fit the command {command.name}: {error}") from None
        return "\n".join(words(await command.run(viewer.context, params)))

    return ConsoleAction(path=path, act=act)
