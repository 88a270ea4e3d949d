"""A browser in memory, which speaks ASGI with an application, and pages for it to show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import attrs
import trio

from daemon.console.access import ConsoleSessions
from daemon.console.application import Application
from daemon.console.live import ChangeSignal, Views
from daemon.console.page import ConsoleAction, ConsolePage, Fragment, Notice
from daemon.errors import McpdError
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import operator_context

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from daemon.clients.doors.http.asgi import Message
    from daemon.console.page import Viewer
    from daemon.operators.base import OperatorContext

HOST = "127.0.0.1:7337"
OWN = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"}


@attrs.frozen
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def form_token(self) -> str:
        """What the first form of a page carries."""
        found = re.search(r'name="form_token" value="([^"]+)"', self.text)
        assert found is not None, self.text
        return found[1]


@attrs.define
class Shown:
    """What the pages of a test show, and what was done on them."""

    rows: dict[str, dict[str, object]] = attrs.field(factory=dict)
    """By id, what the rows of the page `list` are given; empty: it does not exist."""
    done: list[tuple[Viewer, Mapping[str, str]]] = attrs.field(factory=list)
    refusal: str = ""
    """Why nothing can be done."""
    fault: Exception | None = None
    """What is wrong with the daemon."""
    computed: int = 0
    typed: list[Mapping[str, str]] = attrs.field(factory=list)
    """What each computation was to show of a form."""
    leads_to: str = ""
    """The page after the action `keep`."""

    async def fragments(self, viewer: Viewer) -> Mapping[str, Sequence[Fragment]]:
        """Its rows."""
        self.computed += 1
        self.typed.append(viewer.typed)
        await trio.lowlevel.checkpoint()
        if self.fault is not None:
            raise self.fault
        if not self.rows:
            raise McpdError("there is no such list")
        rows = [Fragment(id=key, template="masthead.html", values=row) for key, row in self.rows.items()]
        return {"rows": rows}

    async def act(self, viewer: Viewer, fields: Mapping[str, str]) -> str:
        """Note it."""
        await trio.lowlevel.checkpoint()
        if self.refusal:
            raise McpdError(self.refusal)
        self.done.append((viewer, fields))
        return "It is done."

    async def keep(self, viewer: Viewer, fields: Mapping[str, str]) -> Notice:
        """Note it, and lead on."""
        return Notice(await self.act(viewer, fields), leads_to=self.leads_to)

    @property
    def pages(self) -> tuple[ConsolePage, ...]:
        """All pages of the test."""
        listed = ConsolePage(path="/list", title="List", template="layout.html", fragments=self.fragments)
        named = attrs.evolve(listed, path="/list/{name}", in_navigation=False)
        return listed, named

    @property
    def actions(self) -> tuple[ConsoleAction, ...]:
        """All actions of the test."""
        keep = ConsoleAction(path="/list/{name}/keep", act=self.keep, keeps=True)
        return ConsoleAction(path="/list/{name}/do", act=self.act), keep


class Browser:
    """A browser that keeps the cookie it was given."""

    def __init__(self, serve: Callable[..., Any]) -> None:
        self.cookie = ""
        self._serve = serve

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Make a request; returns the response."""
        told: list[Message] = []

        async def send(message: Message) -> None:
            await trio.lowlevel.checkpoint()
            told.append(message)

        await self.follow(method, target, send, headers, body)
        named = {name.decode(): value.decode() for name, value in told[0]["headers"]}
        if cookie := re.match(r"(?:__Host-)?mcpd_console_7337=([^;]*);", named.get("set-cookie", "")):
            self.cookie = cookie[1].strip('"')
        text = b"".join(each.get("body", b"") for each in told[1:]).decode()
        return Answer(told[0]["status"], named, text)

    async def follow(
        self,
        method: str,
        target: str,
        send: Callable[[Message], Any],
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        """Make a request whose response is a test's to take."""
        path, _, query = target.partition("?")
        named = {"host": HOST, **({"cookie": f"mcpd_console_7337={self.cookie}"} if self.cookie else {})}
        bodies = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if not bodies:
                await trio.sleep_forever()
            return bodies.pop()

        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1",
            "method": method, "scheme": "http", "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "root_path": "",
            "headers": [(key.encode(), text.encode()) for key, text in {**named, **(headers or {})}.items()],
            "client": ("192.0.2.1", 0), "server": None,
        }  # fmt: skip
        await self._serve(scope, receive, send)

    async def get(self, target: str, **headers: str) -> Answer:
        """Ask for a page."""
        return await self.ask("GET", target, {name.replace("_", "-"): text for name, text in headers.items()})

    async def post(self, target: str, fields: Mapping[str, str], **headers: str) -> Answer:
        """Send a form, as one of our own pages does."""
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return await self.ask("POST", target, {**OWN, **kind, **named}, urlencode(fields).encode())


class Desk:
    """An application with the pages of a test, and what a test needs of its insides."""

    def __init__(self, sign_in: Callable[[str, str], tuple[str | None, float]] | None = None) -> None:
        self.now = 0.0
        self.stage = Stage()
        self.shown = Shown({"one": {"available": 1, "total": 1}})
        self.context: OperatorContext = operator_context(self.stage)
        self.sessions = ConsoleSessions(lambda: self.now, self.context.audit)
        self.views = Views(ChangeSignal(self.stage.catalog, self.context.history.newest))
        self.application = Application(
            self.context, self.sessions, self.views, sign_in, pages=self.shown.pages, actions=self.shown.actions
        )

    def browser(self, *, may_change: bool | None = True) -> Browser:
        """A browser; with None not signed in."""
        made = Browser(self.application.serve)
        if may_change is not None:
            made.cookie = self.sessions.begin("a test", may_change=may_change)
        return made
