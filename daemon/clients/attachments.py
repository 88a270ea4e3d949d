"""The sessions of one connection: its own and those that its requests name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import msgspec
from msgspec import Raw

from daemon import protocol
from daemon.catalog.loaded import anonymous_key
from daemon.clients.attachment import Attachment
from daemon.clients.client import Client
from daemon.clients.context import SessionContext
from daemon.clients.sessions import SessionState, fault_of_key

MAX_KEYS = 64
"""Sessions of one connection; beyond, the one joined first without a call in flight is left. A client with
several conversations over one connection has a few."""

MAX_HELD = 256
"""Requests of one client that wait for their sessions to be recalled: as many as may be in flight."""


@attrs.define(eq=False)
class Attachments:
    """The sessions of one connection."""

    _client: Client
    _context: SessionContext
    _on_change: Callable[[], None] = attrs.field(kw_only=True)
    _later: Callable[..., None] = attrs.field(kw_only=True)
    _turn: Callable[[], int] = attrs.field(default=lambda: 0, kw_only=True)
    _busy: Callable[[], Iterable[Attachment]] = attrs.field(default=tuple, kw_only=True)
    key: str | None = attrs.field(default=None, init=False)
    """The session key of requests that name none; None is the connection's own session."""
    own: Attachment = attrs.field(init=False)
    direct: Attachment | None = attrs.field(init=False)
    """The session of requests that name none, if it is the connection's own and needs no recall."""
    _named: dict[str, Attachment] = attrs.field(factory=dict, init=False)
    _held: dict[str, dict[bytes, Callable[[Attachment], None]]] = attrs.field(factory=dict, init=False)
    _returning: str | None = attrs.field(default=None, init=False)
    """The key that the connection's own session is stored under, until it is recalled."""

    def __attrs_post_init__(self) -> None:
        state = self._context.sessions.unnamed()
        self.own = self.direct = Attachment(self._client, state, self._context, self._turn)
        state.listen(self._on_change, self)

    @property
    def loaded(self) -> int:
        """The number of tools loaded in all its sessions."""
        return sum(len(each.state.loaded.tools) for each in (self.own, *self._named.values()))

    def forget_stale(self) -> None:
        """Drop views of earlier catalogs and instances that have ended."""
        self._client.forget_gone()
        for each in (self.own, *self._named.values()):
            each.forget_stale()

    def take_hello(self, hello: dict[str, object]) -> str:
        """Take the session keys from a bridge's hello. Returns what is wrong with them, empty if nothing."""
        key, anonymous = hello.get("session"), anonymous_key(hello.get("anonymous"))
        fault = "" if key is None else fault_of_key(key)
        if isinstance(key, str) and not fault:
            self.key, self.direct = self._client.principal.own_key(key), None
            if not self.own.selection.on_demand:
                self._context.sessions.identify(self.own.state, self.key, stored=False)
        elif anonymous is not None:
            self._identify(self._client.principal.own_key(anonymous))
        return fault

    def _identify(self, key: str) -> None:
        """Make the connection's own session resumable under this key, or resume the one that has it."""
        sessions = self._context.sessions
        if self._client.began is None and sessions.find(key) is None:
            sessions.identify(self.own.state, key)
            return
        self._returning, self.direct = key, None
        if self.own.selection.on_demand:
            # At once: a session without a connection is kept for minutes only.
            self._held[key] = {}
            self._later(self._serve_held, key)
        else:
            # Not stored, but still the same session to the server instances that are kept for it.
            sessions.identify(self.own.state, key, stored=False)

    def key_of(self, meta: dict[str, Raw]) -> str | None:
        """The key of a request's session; None is the connection's. Raises ValidationError: invalid."""
        if not self.own.selection.on_demand:
            return None
        if protocol.SESSION_KEY not in meta:
            return self.key or self._returning
        key = msgspec.json.decode(meta[protocol.SESSION_KEY])
        fault = fault_of_key(key)
        if fault or not isinstance(key, str):
            raise msgspec.ValidationError(f"_meta {protocol.SESSION_KEY}: {fault}")
        return self._client.principal.own_key(key)

    def present(self, key: str | None) -> Attachment | None:
        """The session with that key; None if it must be recalled first."""
        if key is None:
            return self.own
        if key in self._held:
            return None
        state = self._context.sessions.find(key)
        return None if state is None else self._join(key, state)

    def hold(self, key: str, request_id: bytes, serve: Callable[[Attachment], None]) -> bool:
        """Serve a request once its session is recalled, in order for each session.

        Returns False if too many requests wait. Raises ValidationError: a request with that id is already
        waiting.
        """
        if any(request_id in held for held in self._held.values()):
            raise msgspec.ValidationError(f"id {request_id.decode(errors='replace')} is already in flight")
        if sum(map(len, self._held.values())) >= MAX_HELD:
            return False
        if key in self._held:
            self._held[key][request_id] = serve
        else:
            self._held[key] = {request_id: serve}
            self._later(self._serve_held, key)
        return True

    def forget(self, request_id: bytes) -> None:
        """Drop a waiting request that its client has cancelled."""
        for held in self._held.values():
            held.pop(request_id, None)

    def leave(self) -> None:
        """Leave all sessions: the connection has ended."""
        for attachment in (self.own, *self._named.values()):
            self._part(attachment)

    async def _serve_held(self, key: str) -> None:
        try:
            attachment = self._join(key, await self._context.sessions.recall(key))
            # The store must know first that the session may have been shown something.
            await self._context.sessions.kept(attachment.state)
        finally:
            held = self._held.pop(key)
        for serve in held.values():
            serve(attachment)
        if key == self._returning and attachment.state.whole:
            self._part(self.own)
            self.own, self._returning = self._named.pop(key), None
            self.direct = self.own if self.key is None else None
        self._context.outbox.flush()

    def _join(self, key: str, state: SessionState) -> Attachment:
        known = self._named.get(key)
        if known is not None and known.state is state:
            return known
        if known is not None:
            self._part(self._named.pop(key))
        self._make_room()
        self._context.sessions.join(state, self._client.name)
        state.listen(self._on_change, self)
        attachment = self._named[key] = Attachment(self._client, state, self._context, self._turn)
        return attachment

    def _make_room(self) -> None:
        if len(self._named) >= MAX_KEYS:
            # A call loads into the session as it is when the call ends, so the session must not be left
            # meanwhile; nor may one that is about to serve held requests.
            busy = set(map(id, self._busy()))
            idle = [
                key
                for key, attachment in self._named.items()
                if id(attachment) not in busy and key not in self._held
            ]
            for key in idle[: len(self._named) - MAX_KEYS + 1]:
                self._part(self._named.pop(key))

    def _part(self, attachment: Attachment) -> None:
        attachment.state.leave(self)
        self._context.sessions.part(attachment.state)
