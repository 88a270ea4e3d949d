"""Pages and fragments as HTML: the templates, and the filters that they use.

What is the same for all who look at a page is drawn once. What differs between them stands in the HTML as a
marker that only this process knows: the token of forms, and the address of the page. Drawing takes
milliseconds: call it in a thread.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from markupsafe import Markup, escape

from daemon.console.page import server_page, session_page, tool_page, with_query
from daemon.history.event_words import phrase
from daemon.kit.wording import bytes_in_words, counted, span
from daemon.operators.report_words import AWAITED, SOURCES, STATUSES, advice, session_name
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2.runtime import Context

    from daemon.console.live import Snapshot
    from daemon.console.page import Fragment

FORM_TOKEN, HERE = (f"mcpd-{secrets.token_hex(16)}" for _ in range(2))
"""Markers of the token of forms and of the page's address; replaced in all that is sent."""

KINDS = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""The media types of static files, by the ends of their names."""


class StaticFile:
    """A file that pages refer to, under a name that changes with its content."""

    def __init__(self, name: str, content: bytes) -> None:
        """Take a file's content."""
        self.content = content
        self.kind = KINDS[name.rpartition(".")[2]]
        self.path = f"/ui/static/{hashlib.sha256(content).hexdigest()[:16]}/{name}"
        """Its address."""


class Rendering:
    """Draws pages, fragments and other templates."""

    def __init__(self) -> None:
        """Read templates and static files. Blocks."""
        folder = files("daemon.console").joinpath("static")
        static = {each.name: StaticFile(each.name, each.read_bytes()) for each in folder.iterdir()}
        self.static = {each.path: each for each in static.values()}
        """Static files by address."""
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
        }

    def fragment(self, fragment: Fragment) -> str:
        """The HTML of a fragment."""
        return self._templates.get_template(fragment.template).render(fragment.values, element=fragment.id)

    def page(self, template: str, snapshot: Snapshot | None, values: Mapping[str, object]) -> str:
        """The HTML of a page, around the fragments of a snapshot."""
        return self._templates.get_template(template).render(values, snapshot=snapshot)


def sent(html: str, form_token: str, here: str) -> str:
    """What was drawn, for one viewer.

    Args:
        html: what was drawn.
        form_token: what the viewer's forms carry.
        here: the address of the page.
    """
    return html.replace(FORM_TOKEN, form_token).replace(HERE, str(escape(here)))


def sent_in_json(text: str, form_token: str, here: str) -> str:
    """JSON with HTML in its strings, for one viewer; see `sent`.

    Browsers leave a backslash in an address as it is, so what it says must not become an escape of the JSON.
    """
    written = msgspec.json.encode(str(escape(here))).decode()[1:-1]
    return text.replace(FORM_TOKEN, form_token).replace(HERE, written)


@pass_context
def _fragments(context: Context, holder: str, tag: str = "div", **attributes: str) -> Markup:
    """The fragments of a holder, inside an element with its id."""
    drawn = context["snapshot"].holders.get(holder, {})
    more = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_"), value) for name, value in attributes.items()
    )
    inner = Markup("\n").join(Markup(each.html) for each in drawn.values())  # noqa: S704 - drawn by `fragment`
    return Markup('<{0} id="{1}"{2}>{3}</{0}>').format(Markup(tag), holder, more, inner)  # noqa: S704 - a template's


def foreign(text: object, *, lines: bool = False) -> Markup:
    """Text that a server or a client wrote, marked as such, with everything hidden in it spelt out."""
    return Markup('<bdi class="foreign">{}</bdi>').format(visible(str(text), lines=lines))


_CODE = re.compile("`([^`\\n]+)`")


def marked(text: object, *, lines: bool = False) -> Markup:
    """A sentence of mcpd's, which may repeat others' words; what stands in backticks is shown as code."""
    told = str(escape(visible(str(text), lines=lines)))
    written = _CODE.sub(r"<code>\1</code>", told)
    return Markup('<bdi class="foreign">{}</bdi>').format(Markup(written))  # noqa: S704 - escaped above


def by_button(text: str, server: str) -> str:
    """A sentence for whoever has buttons: commands that a button of this server gives are told by its word."""
    for command, word in _BUTTONS.items():
        text = text.replace(f"`mcpd {command} {server}`", f"press {word}")
    return text


_BUTTONS = {"restart": "Restart", "login": "Log in", "enable": "Enable", "refresh": "Refresh"}


def since(at: float) -> Markup:
    """A time in seconds since the epoch, as how long ago it was; the page's script keeps that fresh."""
    return _time(at, Markup(" data-since"), f"{span(time.time() - at, parts=1)} ago")


def age(at: float) -> Markup:
    """How long something has lasted that began at a time in seconds since the epoch."""
    return _time(at, Markup(" data-age"), span(time.time() - at, parts=1))


def until(at: float) -> Markup:
    """A time to come in seconds since the epoch, as how soon it is."""
    return _time(at, Markup(" data-until"), f"in {span(at - time.time(), parts=1)}")


def clock(at: float) -> Markup:
    """A time in seconds since the epoch, as date and time of the daemon's machine."""
    return _time(at, Markup(""), time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)))


def hour(at: float) -> Markup:
    """A time in seconds since the epoch, as the time of day on the daemon's machine."""
    return _time(at, Markup(""), time.strftime("%H:%M:%S", time.localtime(at)))


def _time(at: float, kind: Markup, words: str) -> Markup:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    return Markup('<time datetime="{0}" title="{0}"{1}>{2}</time>').format(stamp, kind, words)


def milliseconds(value: float | None) -> str:
    """A latency in milliseconds: `0.4 ms`, `12 ms`, `3.2 s`; a dash if there is none."""
    if value is None:
        return "\N{EN DASH}"
    if value < 10:  # noqa: PLR2004 - one digit before the point: one after it
        return f"{value:.1f} ms"
    return f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.1f} s"  # noqa: PLR2004 - a second


def size(count: int | None) -> str:
    """A number of bytes in words; a dash if it is not known."""
    return "\N{EN DASH}" if count is None else bytes_in_words(count)


FILTERS: dict[str, Any] = {
    "foreign": foreign,
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
    "count": lambda number: f"{number:,}",
    "plural": counted,
    "phrase": phrase,
    "awaited": AWAITED.__getitem__,
    "session": session_name,
    "loaded": STATUSES.__getitem__,
    "loader": SOURCES.__getitem__,
    "advice": advice,
}
"""The filters of templates, besides those of Jinja."""
