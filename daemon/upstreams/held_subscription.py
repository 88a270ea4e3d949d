"""The subscription that is held with a modern server (MCP 2026-07-28, `subscriptions/listen`).

There is one: it names the lists whose changes count and the resources that somebody follows. When these are
others, a new one is opened before the old one is ended, so that nothing is missed in between; what is told
twice meanwhile does no harm, since a notification only says that something is to be looked at.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import trio
from loguru import logger
from msgspec import Raw, Struct

from daemon.errors import CallError
from daemon.upstreams.watched import UNSUPPORTED, tell_missed
from daemon.wire.envelope import METHOD_NOT_FOUND
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.kit.mailbox import Watch
    from daemon.model import StandingWishes
    from daemon.ports import Audience, UpstreamConnection

ACK_SECONDS = 5.0
"""Seconds that a server has to acknowledge a subscription; one that does not is taken to hold it."""

REOPEN_FIRST, REOPEN_LATEST = 1.0, 30.0
"""Seconds until a subscription that has ended is opened again, doubled each time: what changes meanwhile is
looked at once it is open."""


class _Filter(Struct):
    resourceSubscriptions: list[str] = []  # noqa: N815 - the wire's name


class _Acknowledged(Struct):
    notifications: _Filter


_decode_acknowledged = msgspec.json.Decoder(_Acknowledged).decode


class _Held:
    """One subscription, from the request on."""

    def __init__(self, uris: frozenset[str]) -> None:
        self.uris = uris
        self.is_first = False
        """Whether it is the first over its connection."""
        self.honoured = uris
        """Those that the server says it will tell of."""
        self.refusal: RemoteError | None = None
        """Why the server takes no subscription."""
        self.settled = trio.Event()
        """Set once it is acknowledged, or has ended."""
        self.has_ended = False
        """Whether it has ended, other than by being refused."""
        self.at_end: Callable[[], None] = lambda: None
        self.since = trio.current_time()
        self.scope = trio.CancelScope()

    async def run(self, connection: UpstreamConnection, lists: Mapping[str, bool]) -> None:
        """Hold it until it ends, or its scope is cancelled."""
        wanted: dict[str, object] = dict(lists)
        if self.uris:
            wanted["resourceSubscriptions"] = sorted(self.uris)
        with self.scope:
            try:
                await connection.request("subscriptions/listen", {"notifications": wanted}, timeout=math.inf)
            except RemoteError as refusal:
                self.refusal = None if self.settled.is_set() else refusal
            except CallError as error:
                # Over HTTP only this stream may have broken; the loss of the connection has a task of its own.
                logger.debug("a subscription ended: {}", error.message)
            self.has_ended = self.refusal is None
            self.settled.set()
            if self.has_ended:
                self.at_end()


class HeldSubscription:
    """Holds the subscription with one modern server, over all of its connections."""

    def __init__(self, server: str, audience: Audience, missed: Callable[[], None]) -> None:
        """Begin without a connection.

        Args:
            server: the server's name.
            audience: says which resources are followed, and is told of updates.
            missed: called when the server's lists may have changed unnoticed.
        """
        self._server = server
        self._audience = audience
        self._missed = missed
        self._log = logger.bind(server=server)
        self._held: _Held | None = None
        self._unsupported = RemoteError(METHOD_NOT_FOUND, UNSUPPORTED.format(server))
        self._followed: frozenset[str] = frozenset()
        """The resources that were followed last."""

    def acknowledged(self, params: Raw) -> None:
        """Take what the server says that it will tell."""
        held = self._held
        if held is not None and not held.settled.is_set():
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                held.honoured = frozenset(_decode_acknowledged(params).notifications.resourceSubscriptions)
            held.settled.set()

    async def keep(
        self,
        connection: UpstreamConnection,
        lists: Mapping[str, bool],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Hold a subscription to what is wanted, until cancelled; reports as started once it is asked for.

        Args:
            connection: the connection, which is up.
            lists: the members of the filter for the lists that the server announces changes of.
            task_status: trio's.
        """
        watch = self._audience.wishes(self._server)
        async with trio.open_nursery() as nursery:

            def opened() -> _Held:
                self._held = _Held(watch.value.uris)
                if lists or self._held.uris:
                    nursery.start_soon(self._held.run, connection, lists)
                else:
                    self._held.settled.set()
                return self._held

            before, held, pause, again = None, opened(), REOPEN_FIRST, False
            held.is_first = True
            await trio.lowlevel.checkpoint()
            task_status.started()
            while True:
                with trio.move_on_after(ACK_SECONDS):
                    await held.settled.wait()
                held.settled.set()
                if before is not None:
                    before.scope.cancel()
                self._tell(held, lists_too=again)
                again = await self._until_due(held, watch)
                if again:
                    with trio.move_on_after(pause):
                        await watch.wait_changed(watch.value)
                    lasted = trio.current_time() - held.since
                    pause = REOPEN_FIRST if lasted > REOPEN_LATEST else min(2 * pause, REOPEN_LATEST)
                before, held = held, opened()

    def _tell(self, held: _Held, *, lists_too: bool) -> None:
        """Tell who waits for a subscription, and who may have missed something before it."""
        self._settle(held)
        if held.refusal is not None:
            self._log.info("takes no subscription ({}); its lists are refreshed by time", held.refusal)
            return
        if lists_too:
            self._missed()
        followed = held.uris & held.honoured
        if lists_too or held.is_first:
            tell_missed(self._server, self._audience, followed & self._followed)
        self._followed = followed

    def _settle(self, held: _Held) -> None:
        for uri in held.uris:
            unsupported = None if uri in held.honoured else self._unsupported
            self._audience.settled(self._server, uri, held.refusal or unsupported)

    async def _until_due(self, held: _Held, watch: Watch[StandingWishes]) -> bool:
        """Return when another subscription is due: True if this one has ended, False if others are wished."""
        with trio.CancelScope() as scope:
            held.at_end = scope.cancel
            if held.has_ended:
                scope.cancel()
            while watch.value.uris == held.uris:
                wished = await watch.wait_changed(watch.value)
                if wished.uris == held.uris:
                    # Who has begun to follow one of them only now has not been told yet.
                    self._settle(held)
            return False
        return True
