"""A page of the console: its address, title, fragments and links.

A fragment is a piece of HTML with an id. The page is drawn whole for a browser that asks for it, with or
without JavaScript. To a browser that stays, only fragments that have changed are sent, so a page says how it is
made of them and nothing about what changes when (`live`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode

import attrs
import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from daemon.operators.base import OperatorContext


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
    """An address with the values of a query that are not empty."""
    words = urlencode({name: value for name, value in query.items() if value}, quote_via=quote)
    return f"{address}?{words}" if words else address


def element_id(kind: str, *names: str) -> str:
    """The id of an element about something with these names: no blanks, and unlike any other's."""
    return "-".join([kind, *(quote(name, safe="") for name in names)])


LONGEST_NUMBER = 6
"""Digits of a page's number: there are no such pages, and Python refuses to read a number of thousands."""


def page_number(written: str, most: int = 10**LONGEST_NUMBER) -> int:
    """The number of a page in a query, at most so many; 1 for what is none."""
    sound = written.isascii() and written.isdecimal() and len(written) <= LONGEST_NUMBER
    return min(max(int(written), 1), most) if sound else 1


def steady(report: Mapping[str, Any], *passing: str) -> dict[str, Any]:
    """A report without what of it differs at each look: a page would seem to change all the time."""
    return {key: value for key, value in report.items() if key not in passing}


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks at a page, and at what of it."""

    context: OperatorContext
    """The daemon, as operators' commands see it."""
    may_change: bool
    """Whether its controls work for the viewer; without, they are not drawn."""
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The query of the address: filters, orders, what is unfolded."""
    path: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The variable parts of the address: `{"server": "git"}`."""


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a page that is replaced when it changes."""

    id: str
    """Its id in the page; the template draws one element that has it."""
    template: str
    """The template, relative to `templates/`; it is given the values, and the id as `element`."""
    values: Mapping[str, object]
    """What the template is given. Compared with those of before: nothing that always differs, such as an age
    in seconds, belongs in here; give a time, which the template shows with `since`."""


Holders: TypeAlias = "Mapping[str, Sequence[Fragment]]"
"""The fragments of a page in order, by the id of the element that holds them."""


def part(name: str, template: str = "", /, **values: object) -> Fragment:
    """The fragment with an id and these values; its template, without `.html`, is named as it unless given."""
    return Fragment(id=name, template=f"{template or name.replace('-', '_')}.html", values=values)


@attrs.frozen(kw_only=True)
class ConsolePage:
    """A page of the console."""

    path: str
    """Its address below `/ui`, with variables as Starlette writes them: `/servers/{server}`."""
    title: str
    """What the browser and the navigation call it."""
    template: str
    """The template of what stands around its fragments, relative to `templates/`; extends `layout.html`. Where
    `fragments("ID")` stands in it, those of the holder with that id are drawn, inside an element with it."""
    fragments: Callable[[Viewer], Awaitable[Holders]]
    """Its fragments in order, by the id of the element that holds them. Raises `McpdError` if there is none."""
    calls_every: float | None = 5.0
    """Seconds between two computations while calls are made and nothing else happens, so that those who look
    cost calls little; None: it shows nothing that calls change."""
    in_navigation: bool = True
    """Whether the navigation of all pages has it."""


class ConsoleAction(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a viewer who may change things does with a form: `POST` to its address."""

    path: str
    """Its address below `/ui`: `/servers/{server}/restart`."""
    act: Callable[[Viewer, Mapping[str, str]], Awaitable[str]]
    """Does it, by an operator's command, given the fields of the form; returns a sentence that says what was
    done. Raises `McpdError` to refuse: the viewer is shown its text."""
