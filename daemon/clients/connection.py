"""The connection of one client: everything that its requests are served with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio
from loguru import logger

from daemon.clients.attachments import Attachments
from daemon.clients.client import Client
from daemon.clients.dispatch import Dispatch
from daemon.clients.list_changes import Announcements, ListChanges, Savings, Subscriptions
from daemon.clients.own_roots import OwnRoots
from daemon.clients.waits import Tasks
from daemon.history.event import Event, EventKind
from daemon.protocol import UNCACHED
from daemon.surfaces.base import View
from daemon.surfaces.table import ClientInfo, may_defer
from daemon.wire import envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from daemon.catalog.snapshot import Catalog
    from daemon.clients.calls import CallsInFlight
    from daemon.clients.client import Selection
    from daemon.clients.context import SessionContext
    from daemon.clients.identity import Principal
    from daemon.clients.server_requests import RelayedRequest
    from daemon.clients.subscribers import Following
    from daemon.config.model import Profile
    from daemon.history.event import Detail
    from daemon.model import Kind
    from daemon.wire.peer import Peer
    from daemon.wire.requests import PeerRequest


OWED_SECONDS = 0.5
"""Seconds between looks whether a client that was behind takes what is owed to it."""


class ClientNotifier:
    """The way to one client for what belongs to none of its requests: a `clients.identity.Subscriber`."""

    def __init__(
        self,
        peer: Peer,
        calls: CallsInFlight,
        client: Client,
        context: SessionContext,
        later: Callable[..., None],
    ) -> None:
        """Begin with nothing owed.

        Args:
            peer: the client's end.
            calls: the client's calls, which also identify it (`wire.requests.Exchange.asker`).
            client: what it gets.
            context: what all sessions share.
            later: starts a task that ends with the connection.
        """
        self._calls = calls
        self.waiting = 0
        """How many of its subscriptions wait for servers."""
        self.listens: set[bytes] = set()
        """The ids of its `subscriptions/listen` that are not acknowledged yet."""
        self.resuming: set[Following] = set()
        """What it followed at servers that are no more, and is about to follow elsewhere."""
        self._peer = peer
        self._client = client
        self._context = context
        self._later = later
        self._owed: dict[Hashable, tuple[str, bytes, bytes | None]] = {}
        self._repays = False
        self._seen: tuple[Catalog, Profile] | None = None
        self._servers: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<ClientNotifier {self._client.name or 'unnamed'}: {len(self._owed)} owed>"

    @property
    def asker(self) -> object:
        """The client, as its calls name it (`wire.requests.Exchange.asker`)."""
        return self._calls

    @property
    def level(self) -> int | None:
        """The level that the client has set for the logs of servers; None if it has set none."""
        return self._calls.log_level

    def sees(self, server: str) -> bool:
        """Whether its profile has this server, or it uses this instance of one."""
        selection = self._client.select(self._context.catalog.value.config)
        if selection.denied:
            return False
        catalog = self._context.means.offers.choices.of(self._context.catalog.value, selection.servers)
        if self._seen is None or self._seen[0] is not catalog or self._seen[1] is not selection.profile:
            view = View(
                catalog=catalog,
                profile=selection.profile,
                now=self._context.wall,
                means=self._context.means,
                keeps=False,
            )
            self._seen, self._servers = (catalog, selection.profile), frozenset(view.servers)
        return self._client.has(server, self._servers)

    def sees_others(self) -> bool:
        """Whether its profile has other servers than when that was last asked."""
        before = self._servers
        self.sees("")
        return self._servers != before

    def ask(self, request: PeerRequest, until: float) -> None:
        """Put a server's request to the client that belongs to none of its own, for a bounded time.

        Args:
            request: the request.
            until: when it ends without an answer, on trio's clock.
        """
        asked = self._calls.server_requests.ask(request, None)
        if asked is not None:
            self._later(_limit, request, asked, until)

    def say(self, method: str, params: bytes) -> None:
        """Send what the client can do without; dropped if it is behind, or takes nothing just now."""
        if self.has_room():
            self._peer.notify(method, params)

    def enqueue(self, key: Hashable, method: str, params: bytes, request_id: bytes | None = None) -> None:
        """Send what the client must learn, as soon as it takes it.

        Args:
            key: what it is about: of two that wait, only the newer is sent.
            method: the method of the notification.
            params: its params.
            request_id: the request of the client's that it belongs to, if any.
        """
        if not self._owed and self.has_room(request_id):
            self._peer.notify(method, params, request_id)
            return
        self._owed.pop(key, None)
        self._owed[key] = method, params, request_id
        if not self._repays:
            self._repays = True
            self._later(self._repay)

    def is_pending(self, key: Hashable) -> bool:
        """Whether something about this waits for the client."""
        return key in self._owed

    def discard_pending(self, key: Hashable) -> None:
        """Send no more what is owed about this."""
        self._owed.pop(key, None)

    def has_room(self, request_id: bytes | None = None) -> bool:
        """Whether the client takes what is sent now, and not too much waits for it already."""
        limit = self._context.catalog.value.config.limits.client_queue_bytes
        return self._peer.link.waiting(request_id) <= limit

    async def _repay(self) -> None:
        try:
            while self._owed:
                await trio.sleep(OWED_SECONDS)
                for key in list(self._owed):
                    method, params, request_id = self._owed[key]
                    if self.has_room(request_id):
                        del self._owed[key]
                        self._peer.notify(method, params, request_id)
                self._context.outbox.flush()
        finally:
            self._repays = False


async def _limit(request: PeerRequest, asked: RelayedRequest, until: float) -> None:
    if not request.is_open:
        return
    asked.limit = trio.CancelScope(deadline=until)
    with asked.limit:
        await trio.sleep_forever()
    if request.is_open:
        request.end("the task that it belongs to is no longer known")


CURSOR_DIGITS = 9
"""Digits of the longest cursor, a position in a list."""


class UnknownCursor(ValueError):
    """A cursor was never given out (MCP, pagination: answered as invalid params)."""


def list_page(items: Sequence[bytes], cursor: str | None, page_bytes: int) -> range:
    """The items in a page of a list: as many from the cursor on as fit, at least one.

    Args:
        items: raw JSON objects.
        cursor: the cursor that an earlier page gave out; None begins.
        page_bytes: how long a page may become.

    Raises:
        UnknownCursor: the cursor was never given out.
    """
    start = _position(cursor, len(items))
    end, size = start, 0
    while end < len(items) and (end == start or size + len(items[end]) <= page_bytes):
        size += len(items[end])
        end += 1
    return range(start, end)


def list_result(items: Sequence[bytes], page: range, *, modern: bool, member: str = "tools") -> bytes:
    """The answer to a request for a page of a list.

    Args:
        items: raw JSON objects.
        page: those in the answer (`list_page`).
        modern: whether the request belongs to the 2026-07-28 era.
        member: the member of the result that holds them.
    """
    rest = b"" if page.stop == len(items) else b',"nextCursor":"%d"' % page.stop
    shown = b'"%b":[%b]%b' % (member.encode(), b",".join(items[page.start : page.stop]), rest)
    if not modern:
        return b"{%b}" % shown
    return b'{"resultType":"complete",%b,%b}' % (shown, UNCACHED)


def _position(cursor: str | None, count: int) -> int:
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdigit() and len(cursor) <= CURSOR_DIGITS and int(cursor) <= count:
        return int(cursor)
    raise UnknownCursor("unknown cursor: begin again without one")


class ClientConnection:
    """What the requests of one client are served with."""

    def __init__(self, peer: Peer, number: int, context: SessionContext, visitor: Principal) -> None:
        """Attach to a client that has said nothing yet.

        Args:
            peer: the client.
            number: the connection's number, which the log names it by.
            context: what all sessions share.
            visitor: who it is, as its door has found out.
        """
        self.peer = peer
        self.context = context
        self.client_log = logger.bind(session=number, **({"token": visitor.token} if visitor.token else {}))
        self.protocol = ""
        """The protocol revision that the client speaks; empty until known."""
        self.info = b""
        """The `clientInfo` that was last given, raw (MCP 2026-07-28)."""
        self.waiting_lists = 0
        """How many requests for lists wait for what they depend on."""
        self.tasks = Tasks()
        self.level = "INFO" if visitor.keeps else "DEBUG"
        """How its beginning and end are logged: without a session, each request may have a connection."""
        self.client = Client(
            context.catalog.value.config,
            context.surfaces,
            visitor,
            count=lambda profile: len(context.means.offers.of(context.catalog.value, profile).tools),
            decided=context.decided,
        )
        self.client.number = number
        self._told_key = ""
        self.subscriptions = Subscriptions(peer, context.outbox)
        self.announcements = Announcements(self.subscriptions, context.habits, self.client)
        self.list_changes = ListChanges(self.subscriptions, self.listing_of)
        self.savings = Savings(context.tally)
        self.dispatch = Dispatch(
            peer, number, context, self.client, self.announcements, self.savings, self.tasks.later
        )
        self.calls = self.dispatch.calls
        self.told = ClientNotifier(peer, self.calls, self.client, context, self.tasks.later)
        self.roots = OwnRoots(self.calls.server_requests, context, self.client, self.tasks.later)
        self.attachments = Attachments(
            self.client,
            context,
            on_change=self.announcements.announce_if_changed,
            later=self.tasks.later,
            turn=lambda: peer.link.turns,
            busy=lambda: [call.request.session for call in self.calls.open.values()],
        )

    @property
    def selection(self) -> Selection:
        """What the client gets under the present configuration."""
        return self.client.select(self.context.catalog.value.config)

    def name_client(self, info: object) -> None:
        """Take over the name and version that a client gives (MCP, `clientInfo`)."""
        if isinstance(info, dict):
            said = ClientInfo(str(info.get("name", "")), str(info.get("version", "")))
            self.client.introduce(said)
            self.savings.client, self.savings.applies = said.name, not may_defer(said)
            log = self.client_log.bind(event=True) if self.client.visitor.keeps else self.client_log
            log.log(self.level, "session with {}", self.client.name)
            self._begin_told()

    def end_told(self, seconds: float) -> None:
        """Note that the client has left, if it was told that it came; `seconds` ago it connected."""
        if self._told_key:
            details: dict[str, Detail] = {"client": self.client.name, "seconds": seconds}
            details["calls"] = self.calls.total
            event = Event(kind=EventKind.SESSION_ENDED, session=self._told_key, details=details)
            self.context.note(event)

    def _begin_told(self) -> None:
        """Note once that the client has connected, except where each request may have a connection."""
        if self._told_key or not self.client.visitor.keeps:
            return
        selection = self.selection
        self._told_key = self.attachments.key or f"#{self.client.number}"
        details: dict[str, Detail] = {
            "client": self.client.name,
            "profile": selection.profile.name,
            "surface": selection.surface.name,
            "connection": self.client.number,
        }
        self.context.note(Event(kind=EventKind.SESSION_BEGAN, session=self._told_key, details=details))

    def fail(self, request_id: bytes, method: str, error: Exception) -> None:
        """Answer a request with what went wrong; a fault of ours costs the request, not the connection."""
        if isinstance(error, (msgspec.MsgspecError, UnknownCursor)):
            self.peer.refuse(request_id, envelope.INVALID_PARAMS, f"Invalid params: {error}")
            return
        self.client_log.opt(exception=error).error("a fault of mcpd's own while serving {}", method)
        self.peer.refuse(request_id, envelope.INTERNAL_ERROR, f"Internal error: {type(error).__name__}")

    def follow_catalog(self) -> None:
        """Tell the client if its list has changed, and let go of the catalog before."""
        self._announce_changes()
        self.attachments.forget_stale()

    def move(self, profile: str) -> None:
        """Give the client another profile, and notify it if that changes its list of tools."""
        self.client_log.info("moved to profile {}", profile)
        self.client.move(profile)
        self._announce_changes()

    def listing_of(self, kind: Kind) -> tuple[bytes, ...]:
        """The prompts, resources or templates that the client would be given now, each a raw JSON object."""
        return self.context.listings.of(self.attachments.own.view(), kind)

    def _announce_changes(self) -> None:
        self.announcements.announce_if_changed()
        self.list_changes.announce_if_changed()
        if self.told.level is not None and self.told.sees_others():
            # Their logs are asked for, too.
            self.context.audience.look()
