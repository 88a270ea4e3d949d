"""One client conversation: its requests, its view of the catalog, its calls in flight.

The session speaks the protocol, in both eras; what a call means is its surface's to say, and how a call gets to
a server and back is `callpath`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio
from loguru import logger
from msgspec import Raw

from daemon import protocol
from daemon.callpath import Calls, SessionStatistics
from daemon.errors import (
    ProtocolFault,
    RunError,
    leaf,
)
from daemon.surfaces.base import View
from daemon.wire import envelope
from daemon.wire.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.callpath import SessionContext
    from daemon.catalog.snapshot import Catalog
    from daemon.config.model import Profile
    from daemon.errors import CallError
    from daemon.surfaces.base import Surface
    from daemon.wire.envelope import BadMessage
    from daemon.wire.link import Link

MAX_SUBSCRIPTIONS = 16
"""Open `subscriptions/listen` of one client: each gets every announcement, one is all that a client needs."""

MAX_FAULTS = 100
"""Malformed messages after which a client is cut off: it does not speak JSON-RPC (reliability.md §4)."""

DEFAULT_SURFACE = "category"
"""What a profile gets that names a surface which this version does not have."""

HELLO = "mcpd/hello"
"""The notification with which `mcpd connect` names a profile or surface, before the client's first message."""


class Session:
    """Serves one client over one link."""

    def __init__(self, link: Link, number: int, context: SessionContext) -> None:
        """Attach to a link; `run` does the work."""
        self.number = number
        self._context = context
        self._peer = Peer(link, context.outbox, self, strict=True)
        self._log = logger.bind(session=number)
        self._calls = Calls(self, self._peer, number, context)
        self._subscriptions: list[bytes] = []
        self._profile = context.config.profiles["default"]
        self.surface = self._surface_named(self._profile.surface)
        self._shown: bytes | None = None
        self._handshaken = False
        self._denied = ""
        self._client = ""
        self._protocol = ""
        self._faults = 0
        self._since = context.wall()

    async def run(self) -> None:
        """Serve until the client hangs up; its calls are then cancelled at the servers."""
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._calls.run)
                nursery.start_soon(self._announce_changes, self._context.catalog.value)
                await self._peer.run()
        except BaseExceptionGroup as group:
            error = leaf(group)
            if not isinstance(error, RunError):
                raise
            self._log.info("session of {} ended: {}", self._client or "an unnamed client", error)
        finally:
            self._calls.abandon_all("the client is gone")

    @property
    def in_flight(self) -> int:
        """Calls without an answer yet."""
        return self._calls.in_flight

    def lose_calls(self, error: CallError) -> None:
        """Answer what is in flight with an error: the daemon goes down."""
        self._calls.lose_all(error)

    def statistics(self) -> SessionStatistics:
        """A snapshot for `mcpd status`."""
        return SessionStatistics(
            number=self.number,
            client=self._client,
            protocol=self._protocol,
            profile=self._profile.name,
            surface=self.surface.name,
            since=self._since,
            calls=self._calls.total,
            in_flight=self._calls.in_flight,
        )

    # --- wire.peer.Handler ---------------------------------------------------------------------------------

    def on_request(self, request_id: bytes, method: str, params: Raw | None) -> None:
        """Answer a request, now or in time."""
        if self._denied:
            self._peer.refuse(request_id, envelope.INVALID_REQUEST, self._denied)
            return
        serve = _METHODS.get(method)
        if serve is None:
            text = f"Method not found: {method}. mcpd serves tools: {', '.join(_METHODS)}"
            self._peer.refuse(request_id, envelope.METHOD_NOT_FOUND, text)
            return
        try:
            meta = protocol.meta_of(params)
            modern = protocol.VERSION_KEY in meta
            if not modern or self._accept_version(request_id, meta):
                serve(self, request_id, params, modern)
        except msgspec.MsgspecError as error:
            self._peer.refuse(request_id, envelope.INVALID_PARAMS, f"Invalid params: {error}")
        except Exception as error:  # noqa: BLE001 - a bug of ours costs this request, not the session
            self._log.exception("a fault of mcpd's own while serving {}", method)
            self._peer.refuse(request_id, envelope.INTERNAL_ERROR, f"Internal error: {type(error).__name__}")

    def on_notification(self, method: str, params: Raw | None) -> None:
        """Take in cancellations and the bridge's hello; the rest concerns nothing that we do."""
        try:
            if method == "notifications/cancelled" and params is not None:
                self._cancel(params)
            elif method == HELLO and params is not None:
                self._greet(msgspec.json.decode(params, type=dict[str, object]))
        except msgspec.MsgspecError as error:
            self._log.warning("a {} that cannot be read: {}", method, error)

    def on_lost(self, reason: str) -> None:
        """`run` ends next; nothing to do before."""

    def on_bad_message(self, fault: BadMessage, line: bytes) -> None:
        """Refuse what is no JSON-RPC; keep the connection, but not for ever."""
        self._faults += 1
        self._peer.refuse(fault.request_id, fault.code, fault.message)
        if self._faults >= MAX_FAULTS:
            self._context.outbox.flush()
            raise ProtocolFault(f"{self._faults} malformed messages")

    # --- requests ------------------------------------------------------------------------------------------

    def _initialize(self, request_id: bytes, params: Raw | None, modern: bool) -> None:  # noqa: FBT001
        fields = {} if params is None else msgspec.json.decode(params, type=dict[str, object])
        self._name_client(fields.get("clientInfo"))
        result = protocol.initialize_result(fields.get("protocolVersion"), self._instructions())
        self._protocol = msgspec.json.decode(result)["protocolVersion"]
        self._handshaken = True
        self._peer.answer(request_id, result)

    def _discover(self, request_id: bytes, params: Raw | None, modern: bool) -> None:  # noqa: FBT001
        self._peer.answer(request_id, protocol.discover_result(self._instructions()))

    def _ping(self, request_id: bytes, params: Raw | None, modern: bool) -> None:  # noqa: FBT001
        self._peer.answer(request_id, b"{}")

    def _list_tools(self, request_id: bytes, params: Raw | None, modern: bool) -> None:  # noqa: FBT001
        self._shown = self.surface.list_tools(self.view())
        self._peer.answer(request_id, protocol.list_result(self._shown, modern=modern))

    def _listen(self, request_id: bytes, params: Raw | None, modern: bool) -> None:  # noqa: FBT001
        """A 2026-07-28 subscription: acknowledged first, then open until the client cancels it."""
        if self._calls.holds(request_id) or request_id in self._subscriptions:
            self._refuse_second(request_id)
            return
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            text = f"{MAX_SUBSCRIPTIONS} subscriptions are open; cancel one first"
            self._peer.refuse(request_id, envelope.INVALID_REQUEST, text)
            return
        fields = msgspec.json.decode(params or b"{}", type=dict[str, object])
        wanted = fields.get("notifications")
        honoured = {}
        if isinstance(wanted, dict) and wanted.get("toolsListChanged") is True:
            honoured["toolsListChanged"] = True
            self._subscriptions.append(request_id)
        params_out = {"notifications": honoured, "_meta": {protocol.SUBSCRIPTION_KEY: Raw(request_id)}}
        self._peer.notify("notifications/subscriptions/acknowledged", msgspec.json.encode(params_out))

    def _call_tool(self, request_id: bytes, params: Raw | None, modern: bool) -> None:  # noqa: FBT001
        if self._calls.holds(request_id) or request_id in self._subscriptions:
            self._refuse_second(request_id)
        else:
            self._calls.begin(request_id, protocol.decode_call(params or b"{}"), modern=modern)

    def _refuse_second(self, request_id: bytes) -> None:
        text = f"Invalid Request: id {request_id.decode(errors='replace')} is already in flight"
        self._peer.refuse(request_id, envelope.INVALID_REQUEST, text)

    async def _announce_changes(self, seen: Catalog) -> None:
        """Tell the client when what it was shown is not what it would be shown now."""
        while True:
            seen = await self._context.catalog.wait_changed(seen)
            if self._shown is not None and self._shows_other_tools():
                self._shown = None
                self._announce()

    def _shows_other_tools(self) -> bool:
        try:
            return self._shown != self.surface.list_tools(self.view())
        except Exception:  # noqa: BLE001 - a bug of ours costs an announcement, not the session
            self._log.exception("a fault of mcpd's own while listing tools")
            return False

    def _announce(self) -> None:
        if self._handshaken:
            self._peer.notify("notifications/tools/list_changed")
        for subscription in self._subscriptions:
            meta = {"_meta": {protocol.SUBSCRIPTION_KEY: Raw(subscription)}}
            self._peer.notify("notifications/tools/list_changed", msgspec.json.encode(meta))
        self._context.outbox.flush()

    # --- small parts ---------------------------------------------------------------------------------------

    def view(self) -> View:
        """What the client sees of the catalog now."""
        return View(catalog=self._context.catalog.value, profile=self._profile, now=self._context.wall())

    def _instructions(self) -> str:
        text = self._profile.instructions or self.surface.instructions(self.view())
        return f"{text}\n{self._profile.prompt}" if self._profile.prompt else text

    def _accept_version(self, request_id: bytes, meta: dict[str, Raw]) -> bool:
        version = msgspec.json.decode(meta[protocol.VERSION_KEY])
        if version != protocol.MODERN_VERSION:
            supported = [*protocol.HANDSHAKE_VERSIONS, protocol.MODERN_VERSION]
            text = f"Unsupported protocol version: {version}"
            data = {"supported": supported, "requested": version}
            self._peer.refuse(request_id, protocol.UNSUPPORTED_VERSION, text, data)
            return False
        self._protocol = version
        if not self._client and protocol.CLIENT_INFO_KEY in meta:
            self._name_client(msgspec.json.decode(meta[protocol.CLIENT_INFO_KEY]))
        return True

    def _name_client(self, info: object) -> None:
        if isinstance(info, dict):
            self._client = f"{info.get('name', '')} {info.get('version', '')}".strip()[:100]
            self._log.info("session with {}", self._client)

    def _greet(self, hello: dict[str, object]) -> None:
        """The bridge names a profile, without which nothing is served, and a surface."""
        profile, surface = hello.get("profile"), hello.get("surface")
        if isinstance(profile, str):
            found: Profile | None = self._context.config.profiles.get(profile)
            if found is None:
                # A profile restricts: showing more than it would because of a typo is no way out.
                known = ", ".join(self._context.config.profiles)
                self._denied = f"there is no profile {profile!r} in mcpd's configuration; there are: {known}"
                self._log.warning("{}", self._denied)
            else:
                self._profile = found
                self.surface = self._surface_named(found.surface)
        if isinstance(surface, str):
            self.surface = self._surface_named(surface)

    def _surface_named(self, name: str) -> Surface:
        surfaces = self._context.surfaces
        if name not in surfaces:
            self._log.warning("this version has no surface {}: using {}", str(name), DEFAULT_SURFACE)
        return surfaces.get(name, surfaces[DEFAULT_SURFACE])

    def _cancel(self, params: Raw) -> None:
        request_id = bytes(msgspec.json.decode(params, type=dict[str, Raw]).get("requestId", b""))
        self._calls.cancel(request_id, "the client cancelled it")
        if request_id in self._subscriptions:
            self._subscriptions.remove(request_id)


_METHODS: dict[str, Callable[[Session, bytes, Raw | None, bool], None]] = {
    "initialize": Session._initialize,  # noqa: SLF001
    "server/discover": Session._discover,  # noqa: SLF001
    "ping": Session._ping,  # noqa: SLF001
    "tools/list": Session._list_tools,  # noqa: SLF001
    "tools/call": Session._call_tool,  # noqa: SLF001
    "subscriptions/listen": Session._listen,  # noqa: SLF001
}
