"""The console before its first request: its sessions, and the deferred loading of the application."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import trio

from daemon.audit.record import acting
from daemon.clients.doors.http.admission import Attempts
from daemon.config.listen import ConsoleRole
from daemon.console.access import ConsoleSessions
from daemon.console.live import ChangeSignal, Views
from daemon.kit.later import later
from daemon.operators.call_commands import is_any_under_way

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.clients.client import Principal
    from daemon.clients.doors.http.asgi import Message, Receive, Send
    from daemon.console.access import cookie_in
    from daemon.console.application import Application
    from daemon.operators.base import OperatorContext
else:  # 150 ms and 10 MB with Starlette and Jinja
    Application = later("daemon.console.application", "Application")
    cookie_in = later("daemon.console.access", "cookie_in")


class Console:
    """Signs people in, and serves pages to them."""

    def __init__(
        self,
        context: OperatorContext,
        *,
        address: Callable[[], Awaitable[str]],
        match: Callable[[str], Principal | None] | None,
    ) -> None:
        """`address` serves the console if necessary, and returns its base URL, as `http://127.0.0.1:7337`."""
        self.strangers = trio.Lock()
        self._context = context
        self._sessions = ConsoleSessions(time.monotonic, context.audit)
        seldom, calls = (context.registry.catalog, context.history.newest), context.counters.recent.newest
        self._views = Views(ChangeSignal(*seldom, calls=calls, busy=partial(is_any_under_way, context)))
        self._address = address
        self._match = match
        self._attempts = Attempts(time.monotonic)
        self._application: Application | None = None
        self._loading = trio.Lock()

    async def link(self, who: str, *, may_change: bool) -> str:
        """Make a link that lets one browser in as `who`, once. Raises OSError if nothing can serve it."""
        address = await self._address()
        await self._load()
        return f"{address}/ui/enter?{urlencode({'once': self._sessions.invite(who, may_change=may_change)})}"

    def end_all(self) -> int:
        """End all sessions, and return their number."""
        return self._sessions.end_all()

    def revoked(self, token: str) -> None:
        """End the sessions of a revoked token."""
        self._sessions.revoke(token)

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether a request with these headers belongs to a session."""
        if not self._sessions:
            return False
        return any(self._sessions.find(cookie_in(headers, tls=tls)) is not None for tls in (False, True))

    def sign_in(self, token: str, address: str) -> tuple[str | None, float]:
        """Begin a session for a token. Returns a cookie, or None and the seconds to delay the answer."""
        visitor = self._match(token) if self._match is not None and token else None
        if visitor is None or not visitor.console:
            self._attempts.say(address, "a token that may not see the console")
            return None, self._attempts.failed(address)
        may_change = visitor.console is ConsoleRole.CONTROL
        who = acting(None, visitor.token, "console")
        return self._sessions.begin(who, token=visitor.token, may_change=may_change), 0.0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""
        application = await self._load()
        await application.serve(scope, receive, send)

    async def _load(self) -> Application:
        async with self._loading:
            if self._application is None:
                self._application = await trio.to_thread.run_sync(self._made)
            return self._application

    def _made(self) -> Application:
        sign_in = None if self._match is None else self.sign_in
        return Application(self._context, self._sessions, self._views, sign_in)
