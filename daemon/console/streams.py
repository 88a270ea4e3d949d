"""Streams that keep pages up to date in browsers: server-sent events, each what has changed since the last.

Source: HTML Standard, 9.2 (Server-sent events).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.console.live import Snapshot
from daemon.console.page import Fragment
from daemon.console.rendering import Rendering, sent_in_json
from daemon.errors import McpdError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from daemon.console.access import ConsoleSession, ConsoleSessions
    from daemon.console.live import LiveView, Views
    from daemon.console.page import ConsolePage, Viewer
    from daemon.operators.base import OperatorContext

    Tell = Callable[[str], Awaitable[None]]

COMMENT_SECONDS = 15.0
"""Seconds after which a quiet stream says something, so that neither proxies nor browsers give it up."""

MAX_STREAMS = 64
"""Pages that are kept up to date at once: a browser has a few."""

AT_ONCE = 4
"""Pages that are computed at once when all of them change: each takes the loop for up to 25 ms with ten
thousand tools, and calls of clients get their turn between two rounds."""

RETRY = "retry: 2000\n\n"
"""Has browsers come back two seconds after a stream broke, as at a restart of the daemon."""

COMMENT = ": nothing has changed\n\n"

OVER = "event: over\ndata: {}\n\n"
"""Has a browser not come back: the session has ended, or the page shows what there is no longer."""


async def drawn(
    page: ConsolePage, viewer: Viewer, rendering: Rendering, before: Snapshot | None = None
) -> Snapshot:
    """A page's fragments as they are now.

    Args:
        page: the page.
        viewer: who looks at it, and at what of it.
        rendering: draws them.
        before: an earlier snapshot: what has not changed since is not drawn again.

    Raises:
        McpdError: there is no such page.
    """
    holders = {"masthead": [_masthead(viewer.context)], **await page.fragments(viewer)}
    return await trio.to_thread.run_sync(Snapshot.drawn, holders, rendering.fragment, before)


def _masthead(context: OperatorContext) -> Fragment:
    """How many servers are of use, as `mcpd status` counts them, and how many are switched off."""
    servers = context.catalog.servers.values()
    off = sum(entry.disabled for entry in servers)
    values = {"available": sum(entry.of_use for entry in servers), "total": len(servers), "off": off}
    return Fragment(id="servers-available", template="masthead.html", values=values)


class LiveStreams:
    """All streams that are open."""

    def __init__(self, views: Views, sessions: ConsoleSessions, rendering: Rendering) -> None:
        """Start with none.

        Args:
            views: the pages that are followed.
            sessions: who was let in.
            rendering: draws fragments.
        """
        self.views = views
        """The pages that are followed."""
        self._sessions = sessions
        self._rendering = rendering
        self._open = 0
        self._computing = trio.CapacityLimiter(AT_ONCE)

    @property
    def full(self) -> bool:
        """Whether there is no room for another."""
        return self._open >= MAX_STREAMS

    async def run(
        self, tell: Tell, session: ConsoleSession, page: ConsolePage, viewer: Viewer, *, here: str, since: str
    ) -> None:
        """Tell what changes of a page, until the session ends or there is no such page any longer.

        Args:
            tell: sends a piece of the stream; waits while the browser is behind.
            session: who is told.
            page: the page.
            viewer: the same, and what of the page they look at.
            here: the page's address.
            since: by what the browser names the snapshot that it has; empty: it has none.
        """

        async def compute(before: Snapshot | None) -> Snapshot:
            async with self._computing:
                return await drawn(page, viewer, self._rendering, before)

        self._open += 1
        try:
            await tell(RETRY)
            key = page, here, viewer.may_change
            async with self.views.following(key, since, compute, page.calls_every) as (view, seen):
                await self._follow(
                    view, seen, session, lambda text: tell(sent_in_json(text, session.form_token, here))
                )
        except McpdError:
            pass
        finally:
            self._open -= 1
        await tell(OVER)

    async def _follow(self, view: LiveView, seen: Snapshot | None, session: ConsoleSession, tell: Tell) -> None:
        while not self._sessions.has_ended(session):
            newest = await _next(view, seen, session)
            if newest is None:
                await tell(COMMENT)
            else:
                await tell(f"data: {newest.told_since(seen)}\n\n")
                seen = newest


async def _next(view: LiveView, seen: Snapshot | None, session: ConsoleSession) -> Snapshot | None:
    """The next snapshot; None if nothing has changed for a while, or the session has ended."""
    with trio.move_on_after(COMMENT_SECONDS) as scope:
        session.waits.add(scope)
        try:
            return await view.next(seen)
        finally:
            session.waits.discard(scope)
    return None
