"""A page of the console: address, title, links and fragments, which are HTML with an id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import attrs
import msgspec

from daemon.operators.base import OperatorContext


def server_page(server: str) -> str:
    """Address of a server's page, below `/ui`."""
    return f"/servers/{quote(server, safe='')}"


def tool_page(server: str, tool: str) -> str:
    """Address of a tool's page, below `/ui`."""
    return f"/tools/{quote(server, safe='')}/{quote(tool, safe='')}"


def session_page(session: str) -> str:
    """Address of a session's page, below `/ui`; `session` is a key, or `#` and a connection's number."""
    return f"/sessions/{quote(session, safe='')}"


def with_query(address: str, **query: str | int) -> str:
    """An address with a query of the non-empty values."""
    words = urlencode({name: value for name, value in query.items() if value}, quote_via=quote)
    return f"{address}?{words}" if words else address


def element_id(kind: str, *names: str) -> str:
    """The unique id of an element about something with these names, without blanks."""
    return "-".join([kind, *(quote(name, safe="") for name in names)])


LONGEST_NUMBER = 6
"""Digits of a page's number: no list is longer, and Python refuses numbers of thousands of digits."""


def page_number(written: str, most: int = 10**LONGEST_NUMBER) -> int:
    """The page number of a query, at most `most`; 1 for anything else."""
    sound = written.isascii() and written.isdecimal() and len(written) <= LONGEST_NUMBER
    return min(max(int(written), 1), most) if sound else 1


def steady(report: Mapping[str, Any], *passing: str) -> dict[str, Any]:
    """A report without members that differ at each look, which would keep a page changing."""
    return {key: value for key, value in report.items() if key not in passing}


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """The viewer of a page, and the wanted part of it."""

    context: OperatorContext
    """The daemon, as for operators' commands."""
    may_change: bool
    """Whether controls are drawn, and work."""
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    path: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Variable parts of the address: `{"server": "git"}`."""
    typed: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The page's form as this viewer sent it (`ConsoleAction.keeps`)."""
    last: Notice | None = None
    """The session's last change that can be undone."""


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a page, replaced when it changes."""

    id: str
    template: str
    values: Mapping[str, object]
    """For the template, and compared with the last ones: no age in seconds, but a time, which the template
    shows with `since`."""


Holders: TypeAlias = "Mapping[str, Sequence[Fragment]]"
"""The fragments of a page in order, by the id of their holder."""


def part(name: str, template: str = "", /, **values: object) -> Fragment:
    """The fragment with an id and values; the template, without `.html`, has the id's name by default."""
    return Fragment(id=name, template=f"{template or name.replace('-', '_')}.html", values=values)


Undo: TypeAlias = "Callable[[Viewer], Awaitable[Notice]]"


class Notice(msgspec.Struct, frozen=True):
    """The outcome of a form, shown on the next page."""

    text: str
    is_error: bool = False
    undo: Undo | None = None
    """Takes the change back. It stays with the session, and on no page, as it may know secrets."""
    key: str = ""
    """Names the notice to the form that undoes it."""
    server: str = ""
    """The server that was changed, for the audit."""
    leads_to: str = ""
    """The page after it, below `/ui`; empty: the one of the form."""
    shown: str = ""
    """The digest of what the text shows, which the next step agrees to."""


@attrs.frozen(kw_only=True)
class ConsolePage:
    """A page of the console."""

    path: str
    title: str
    template: str
    """The frame around the fragments, extends `layout.html`; `fragments("ID")` draws those of a holder."""
    fragments: Callable[[Viewer], Awaitable[Holders]]
    """Fragments in order, by holder. Raises `McpdError` if the subject does not exist."""
    own: Callable[[Viewer], Awaitable[Mapping[str, object]]] | None = None
    """Values of the frame, for this viewer and moment."""
    calls_every: float | None = 5.0
    """Seconds between two computations while only calls happen; None: the page shows no calls."""
    in_navigation: bool = True


class ConsoleAction(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a viewer makes with a form: `POST` to its address."""

    path: str
    act: Callable[[Viewer, Mapping[str, str]], Awaitable[str | Notice]]
    """Acts through an operators' command, given the form's fields; returns a sentence about the outcome. Raises
    `McpdError`, whose text the viewer sees."""
    keeps: bool = False
    """Whether the page shows what was typed, until another form is sent or the outcome leads elsewhere."""
