"""What the tests of pages share: a page drawn as browsers get it, and what stands in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html.parser import HTMLParser
from types import ModuleType
from typing import Any

import pytest
import trio

from daemon.console.page import ConsolePage, Viewer
from daemon.console.rendering import Rendering
from daemon.operators.base import OperatorContext, Refused
from daemon.operators.own_lines import Printed

HOSTILE = "<script>alert(1)</script>\"' onload=x \u202e&amp;"
"""What a server or a client may say, and must not become markup, nor hide."""

_RENDERING = Rendering()


def viewer_of(context: OperatorContext, *, may_change: bool = True, query: str = "", **path: str) -> Viewer:
    """Somebody who looks; the query as `name=value`, with `&` between several."""
    words = dict(each.split("=", 1) for each in query.split("&") if each)
    return Viewer(context=context, may_change=may_change, query=words, path=path)


async def values_of(page: ConsolePage, viewer: Viewer) -> dict[str, Mapping[str, Any]]:
    """The values of a page's fragments, by their ids."""
    holders = await page.fragments(viewer)
    return {each.id: each.values for fragments in holders.values() for each in fragments}


async def drawn(page: ConsolePage, viewer: Viewer) -> Seen:
    """All fragments of a page as HTML."""
    holders = await page.fragments(viewer)
    draw = partial(_RENDERING.fragment, may_change=viewer.may_change)
    return Seen("".join(draw(each) for fragments in holders.values() for each in fragments))


class Lines:
    """Stands in for mcpd's own command lines, as a page's module runs them: what was to run."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, *outcomes: Printed | Refused
    ) -> None:
        monkeypatch.setattr(module, "run_line", self)
        self.ran: list[tuple[list[str], str, list[str]]] = []
        self.outcomes = [*outcomes]

    async def __call__(
        self, _context: OperatorContext, words: Sequence[str], given: str = "", *, options: Sequence[str] = ()
    ) -> Printed:
        await trio.lowlevel.checkpoint()
        self.ran.append(([*words], given, [*options]))
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Refused):
            raise outcome
        return outcome


class Seen(HTMLParser):
    """HTML as a browser reads it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.text += data

    @property
    def links(self) -> list[str | None]:
        """Where its links lead to."""
        return [attributes["href"] for tag, attributes in self.tags if tag == "a"]

    @property
    def forms(self) -> list[str | None]:
        """Where its forms lead to."""
        return [attributes["action"] for tag, attributes in self.tags if tag == "form"]

    def is_harmless(self) -> bool:
        """Whether nothing of what others wrote has become an element, an attribute or a hidden character."""
        return (
            not any(tag in {"script", "img", "style", "iframe"} for tag, _ in self.tags)
            and not any(name.startswith("on") or name == "style" for _, each in self.tags for name in each)
            and "\u202e" not in self.html
        )
