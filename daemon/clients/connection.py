"""The connection of one client, and everything that serves its requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
from loguru import logger

from daemon.clients.attachments import Attachments
from daemon.clients.client import Client, Principal, Selection
from daemon.clients.dispatch import Dispatch
from daemon.clients.list_changes import ListChanges, Savings
from daemon.clients.notifications import ConnectedClient
from daemon.clients.server_requests import has
from daemon.clients.waits import Tasks
from daemon.errors import CallError, ResourceDisabled, UnknownResource
from daemon.history.event import Event, EventKind
from daemon.protocol import RESOURCE_NOT_FOUND
from daemon.surfaces.surface import View
from daemon.surfaces.table import ClientInfo, may_defer
from daemon.wire import envelope
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog
    from daemon.clients.context import SessionContext
    from daemon.clients.subscribers import Following
    from daemon.config.config_model import Profile
    from daemon.history.event import Detail
    from daemon.model import Kind
    from daemon.wire.peer import Peer


class UnknownCursor(ValueError):
    """The cursor was never given out (MCP, pagination: invalid params)."""


class ClientConnection:
    """One client's connection: its sessions, calls, lists and notifications."""

    def __init__(self, peer: Peer, number: int, context: SessionContext, principal: Principal) -> None:
        self.peer = peer
        self.context = context
        self.client_log = logger.bind(session=number, **({"token": principal.token} if principal.token else {}))
        self.protocol = ""
        """The protocol revision; empty until known."""
        self.info = b""
        self.waiting_lists = 0
        self.tasks = Tasks()
        self.level = "INFO" if principal.keeps else "DEBUG"
        """The log level of its beginning and end: without a session, each request may have a connection."""
        self.client = Client(
            context.catalog.value.config,
            context.surfaces,
            principal,
            count=lambda profile: len(context.services.offers.of(context.catalog.value, profile).tools),
            decided=context.decided,
        )
        self.client.number = number
        self._noted_key = ""
        self.lists = ListChanges(peer, context.outbox, self.client, context.habits)
        self.savings = Savings(context.tally)
        later = self.tasks.later
        self.dispatch = Dispatch(peer, context, self.client, self.lists, self.savings, later)
        self.calls = self.dispatch.calls
        asking = self.calls.server_requests
        self.notifier = ConnectedClient(
            peer, self.client, asking, self.sees, context.catalog, context.upstreams, context.outbox, later
        )
        self.waiting_follows = 0
        self.listens: set[bytes] = set()
        """The ids of `subscriptions/listen` requests not acknowledged yet."""
        self.resuming: set[Following] = set()
        """Subscriptions at removed servers that are about to move elsewhere."""
        self._seen: tuple[Catalog, Profile] | None = None
        self._servers: frozenset[str] = frozenset()
        self.attachments = Attachments(
            self.client,
            context,
            on_change=self.lists.announce_if_changed,
            later=later,
            turn=lambda: peer.link.turns,
            busy=lambda: [call.request.session for call in self.calls.open.values()],
        )

    @property
    def selection(self) -> Selection:
        """The client's selection under the present configuration."""
        return self.client.select(self.context.catalog.value.config)

    def name_client(self, info: object) -> None:
        """Record the client's name and version (MCP, `clientInfo`)."""
        if isinstance(info, dict):
            said = ClientInfo(str(info.get("name", "")), str(info.get("version", "")))
            self.client.introduce(said)
            self.savings.client, self.savings.applies = said.name, not may_defer(said)
            log = self.client_log.bind(event=True) if self.client.principal.keeps else self.client_log
            log.log(self.level, "session with {}", self.client.name)
            self._note_beginning()

    def note_end(self, seconds: float) -> None:
        """Record that the client has left, if its arrival was recorded; `seconds` is how long it stayed."""
        if self._noted_key:
            details: dict[str, Detail] = {"client": self.client.name, "seconds": seconds}
            details["calls"] = self.calls.total
            event = Event(kind=EventKind.SESSION_ENDED, session=self._noted_key, details=details)
            self.context.note(event)

    def _note_beginning(self) -> None:
        """Record the client's arrival once, except where each request may have a connection."""
        if self._noted_key or not self.client.principal.keeps:
            return
        selection = self.selection
        self._noted_key = self.attachments.key or f"#{self.client.number}"
        details: dict[str, Detail] = {
            "client": self.client.name,
            "profile": selection.profile.name,
            "surface": selection.surface.name,
            "connection": self.client.number,
        }
        self.context.note(Event(kind=EventKind.SESSION_BEGAN, session=self._noted_key, details=details))

    def begin_roots(self) -> None:
        """Make the client's roots available to servers: its handshake is over."""
        if has(self.calls.server_requests.capabilities, "roots"):
            self.context.subscribers.roots.join(self.notifier)
            self.client.workspace.have_roots(self.notifier.roots)

    def sees(self, server: str) -> bool:
        """Whether the client's profile has this server, or the client uses this instance."""
        selection, context = self.selection, self.context
        if selection.denied:
            return False
        choices = context.services.offers.choices
        catalog = choices.of(context.catalog.value, selection.servers, selection.elsewhere)
        if self._seen is None or self._seen[0] is not catalog or self._seen[1] is not selection.profile:
            view = View(
                catalog=catalog,
                profile=selection.profile,
                now=context.wall,
                services=context.services,
                keeps=False,
            )
            self._seen, self._servers = (catalog, selection.profile), frozenset(view.servers)
        return self.client.has(server, self._servers)

    def serve_later(self, request_id: bytes, what: str, serve: Callable[[], Awaitable[None]]) -> None:
        """Serve a request in a task that ends with the connection; `what` names the request in the log."""
        self.tasks.later(self._serve, request_id, what, serve)

    async def _serve(self, request_id: bytes, what: str, serve: Callable[[], Awaitable[None]]) -> None:
        try:
            await serve()
        except Exception as error:  # noqa: BLE001 - the boundary of a request that has waited
            self.fail(request_id, what, error)
        self.context.outbox.flush()

    def fail(self, request_id: bytes, method: str, error: Exception) -> None:
        """Answer a request with its error; a fault of mcpd's costs the request, not the connection."""
        if isinstance(error, (msgspec.MsgspecError, UnknownCursor)):
            self.peer.refuse(request_id, envelope.INVALID_PARAMS, f"Invalid params: {error}")
            return
        if isinstance(error, RemoteError):
            self.peer.refuse(request_id, error.code, error.message)
            return
        if isinstance(error, CallError):
            unknown = isinstance(error, UnknownResource | ResourceDisabled)
            code = RESOURCE_NOT_FOUND if unknown else envelope.INTERNAL_ERROR
            data = {"code": error.code, **error.details}
            self.peer.refuse(request_id, code, f"{error.code}: {error.message}", data)
            return
        self.client_log.opt(exception=error).error("internal error in mcpd while serving {}", method)
        self.peer.refuse(request_id, envelope.INTERNAL_ERROR, f"Internal error: {type(error).__name__}")

    def follow_catalog(self) -> None:
        """Notify the client of changed lists, and drop the previous catalog."""
        self._announce_changes()
        self.attachments.forget_stale()

    def move(self, profile: str) -> None:
        """Give the client another profile, and notify it of a changed list."""
        self.client_log.info("moved to profile {}", profile)
        self.client.move(profile)
        self._announce_changes()

    def listing_of(self, kind: Kind) -> tuple[bytes, ...]:
        """The client's prompts, resources or templates at present, each a raw JSON object."""
        return self.attachments.own.view().offer.listed(kind)

    def _announce_changes(self) -> None:
        self.lists.announce_if_changed()
        before = self._servers
        if self.client.log_level is not None and (self.sees(""), self._servers)[1] != before:
            # The newly visible servers' logs are wanted, too.
            self.context.subscribers.refresh_levels()
