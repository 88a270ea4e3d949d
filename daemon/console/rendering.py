"""Draws pages and fragments as HTML, once for all viewers, with markers for each viewer's tokens. Blocks."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from html import unescape
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from markupsafe import Markup, escape

from daemon.config.labels import server_of
from daemon.console.charts import spark
from daemon.console.page import Fragment, element_id, server_page, session_page, tool_page, with_query
from daemon.history.event_words import phrase
from daemon.kit.wording import bytes_in_words, camel, counted, span
from daemon.operators import report_words
from daemon.operators.report_words import advice, session_name
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from jinja2.runtime import Context

    from daemon.console.live import Snapshot

FORM_TOKEN, HERE = (f"mcpd-{secrets.token_hex(16)}" for _ in range(2))
"""Markers that are replaced on sending by the viewer's form token and the page's address."""

KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


TABLES = {
    "servers": report_words.chosen(report_words.SERVERS, "server state calls errors latency memory tools"),
    "in_flight": report_words.chosen(report_words.CALLS_IN_FLIGHT, "tool server client session age waitsFor"),
    "server_in_flight": report_words.chosen(report_words.CALLS_IN_FLIGHT, "tool client session age waitsFor"),
    "ended": report_words.chosen(report_words.ENDED_CALLS, "tool server client session time took outcome why"),
    "connections": report_words.chosen(
        report_words.CONNECTIONS,
        "session client profile surface worksIn protocol since calls inFlight loaded",
    ),
    "session_connections": report_words.chosen(
        report_words.CONNECTIONS, "session client profile surface worksIn protocol calls inFlight"
    ),
    "sessions": report_words.SESSIONS,
    "loaded": report_words.LOADED_TOOLS,
    "tool_loaded": report_words.chosen(
        {**report_words.SESSIONS, **report_words.LOADED_TOOLS}, "session client status loadedBy age"
    ),
}
"""The columns of each table, in order; the first one names its row."""


class StaticFile:
    """A file that pages refer to; its address holds a digest of its content."""

    def __init__(self, name: str, content: bytes) -> None:
        self.content = content
        self.kind = KINDS[name.rpartition(".")[2]]
        self.path = f"/ui/static/{hashlib.sha256(content).hexdigest()[:16]}/{name}"


class Rendering:
    """Draws pages, fragments and other templates."""

    def __init__(self) -> None:
        folder = files("daemon.console").joinpath("static")
        static = {each.name: StaticFile(each.name, each.read_bytes()) for each in folder.iterdir()}
        self.static = {each.path: each for each in static.values()}
        self._templates = Environment(
            loader=PackageLoader("daemon.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= FILTERS
        self._templates.globals |= {
            "fragments": _fragments,
            "server_page": server_page,
            "session_page": session_page,
            "tool_page": tool_page,
            "with_query": with_query,
            "form_token": FORM_TOKEN,
            "here": HERE,
            "static": {name: each.path for name, each in static.items()},
            "tables": TABLES,
            "element_id": element_id,
        }

    def fragment(self, fragment: Fragment, *, may_change: bool) -> str:
        """The HTML of a fragment, for viewers who may change things or may not."""
        template = self._templates.get_template(fragment.template)
        return template.render(fragment.values, element=fragment.id, may_change=may_change)

    def page(self, template: str, snapshot: Snapshot | None, values: Mapping[str, object]) -> str:
        """The HTML of a page, with a snapshot's fragments."""
        return self._templates.get_template(template).render(values, snapshot=snapshot)


def sent(html: str, form_token: str, here: str) -> str:
    """Put a viewer's form token and page address into drawn HTML."""
    return html.replace(FORM_TOKEN, form_token).replace(HERE, str(escape(here)))


def sent_in_json(text: str, form_token: str, here: str) -> str:
    """Like `sent`, for HTML in JSON, where a backslash in the address must not become an escape."""
    written = msgspec.json.encode(str(escape(here))).decode()[1:-1]
    return text.replace(FORM_TOKEN, form_token).replace(HERE, written)


@pass_context
def _fragments(context: Context, holder: str, tag: str = "div", **attributes: str) -> Markup:
    """Draw the fragments of a holder within an element that has its id."""
    drawn = context["snapshot"].holders.get(holder, {})
    more = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_"), value) for name, value in attributes.items()
    )
    inner = Markup("\n").join(Markup(each.html) for each in drawn.values())  # noqa: S704 - drawn by `fragment`
    return Markup('<{0} id="{1}"{2}>{3}</{0}>').format(Markup(tag), holder, more, inner)  # noqa: S704 - a template's


def foreign(text: object, *, lines: bool = False) -> Markup:
    """Mark a text as a server's or client's, and spell out hidden characters."""
    return Markup('<bdi class="foreign">{}</bdi>').format(visible(str(text), lines=lines))


_CODE = re.compile("`([^`\\n]+)`")

_PLACES = {
    "logs": ("Logs", "/servers/{}?tab=logs"),
    "sandbox": ("Settings", "/servers/{}?tab=settings"),
    "restart": ("Restart", "/servers/{}"),
    "refresh": ("Refresh tools", "/servers/{}"),
    "enable": ("Enable", "/servers/{}"),
    "login": ("Log in", "/servers/{}"),
    "reload": ("Reload", "/settings"),
    "check": ("Settings", "/settings"),
    "approve": ("Approve", "/approvals"),
    "set": ("The field on its page", "/servers/{}"),
}
"""The console's word and address for `mcpd COMMAND`, or for `mcpd COMMAND SERVER` with {}."""

_FIELD = re.compile(r"(mcpd set \S+) env\.\w+\Z")
"""Matches a command that asks for a value, for which the server's page has a field."""


def _in_console(command: str) -> Markup:
    """Show a command as a link to the page that does the same, else as code."""
    words = _FIELD.sub(r"\1", unescape(command)).split()
    title, address = _PLACES.get(words[1] if words[:1] == ["mcpd"] and words[1:] else "", ("", ""))
    if title and len(words) == 2 + address.count("{}") and "/" not in "".join(words):
        return Markup('<a href="/ui{}">{}</a>').format(address.format(quote(server_of(words[-1]))), title)
    code = Markup("<code>{}</code>").format(Markup(command))  # noqa: S704 - escaped by the caller
    if words[:2] == ["mcpd", "set"] and words[3:] and words[2] != ".":
        return Markup('<a href="/ui/servers/{}?tab=settings">{}</a>').format(quote(words[2]), code)
    return code


def marked(text: object, *, lines: bool = False) -> Markup:
    """A sentence of mcpd, which may quote others; words in backticks become code or links."""
    told = str(escape(visible(str(text), lines=lines)))
    written = _CODE.sub(lambda found: _in_console(found[1]), told)
    return Markup('<bdi class="foreign">{}</bdi>').format(Markup(written))  # noqa: S704 - escaped above


def by_button(text: str, server: str) -> Markup:
    """Like `marked`, but with buttons of the page's forms in place of links to these forms."""
    told = marked(text)
    forms = {f"mcpd restart {server}": element_id("restart", server), "mcpd reload": "reload"}
    for command, form in forms.items():
        link = _in_console(escape(command))
        button = Markup('<button class="quiet" form="{}">{}</button>').format(form, link.striptags())
        told = told.replace(link, button)
    return told


def since(at: float) -> Markup:
    """The time since `at` (epoch seconds), which the page's script keeps current."""
    return _time(at, Markup(" data-since"), f"{span(time.time() - at, parts=1)} ago")


def age(at: float) -> Markup:
    """The duration since `at` (epoch seconds)."""
    return _time(at, Markup(" data-age"), span(time.time() - at, parts=1))


def until(at: float) -> Markup:
    """The time left until `at` (epoch seconds)."""
    return _time(at, Markup(" data-until"), f"in {span(at - time.time(), parts=1)}")


def clock(at: float) -> Markup:
    """The local date and time of `at` (epoch seconds)."""
    return _time(at, Markup(""), time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)))


def hour(at: float) -> Markup:
    """The local time of day of `at` (epoch seconds)."""
    return _time(at, Markup(""), time.strftime("%H:%M:%S", time.localtime(at)))


def _time(at: float, kind: Markup, words: str) -> Markup:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    return Markup('<time datetime="{0}" title="{0}"{1}>{2}</time>').format(stamp, kind, words)


def milliseconds(value: float | None) -> str:
    """A latency as text: `0.4 ms`, `12 ms`, `3.2 s`, or a dash."""
    if value is None:
        return "\N{EN DASH}"
    is_short = value < 1000  # noqa: PLR2004 - a second
    return f"{report_words.milliseconds(value)} ms" if is_short else f"{value / 1000:.1f} s"


def size(count: int | None) -> str:
    """A number of bytes as text, or a dash."""
    return "\N{EN DASH}" if count is None else bytes_in_words(count)


def heading(column: report_words.ReportColumn) -> str:
    """A column's heading, with a capital letter if it begins with a word."""
    text = column.heading
    return text if text[1].isdigit() else text[0].upper() + text[1:]


FILTERS: dict[str, Any] = {
    "heading": heading,
    "camel": camel,
    "headings": lambda columns: [heading(column) for column in columns.values()],
    "foreign": foreign,
    "visible": visible,
    "marked": marked,
    "by_button": by_button,
    "since": since,
    "age": age,
    "until": until,
    "clock": clock,
    "hour": hour,
    "ms": milliseconds,
    "size": size,
    "span": span,
    "spark": spark,
    "count": lambda number: f"{number:,}",
    "grouped": lambda words: f"{int(words):,}" if words.isdecimal() else words,
    "plural": counted,
    "phrase": phrase,
    "session": session_name,
    "advice": advice,
}
