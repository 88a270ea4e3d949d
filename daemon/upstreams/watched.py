"""What clients want of one server beside answers, asked of it again on each of its connections.

That is the level of its log and the resources whose updates somebody follows (`model.StandingWishes`), as a
server of the handshake era is asked for them; a modern one is told in a subscription
(`upstreams.held_subscription`). One of both eras is told which resources in its subscription, and the level
over its second connection (`upstreams.second`): over the first, each request names its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import trio
from loguru import logger
from msgspec import Raw

from daemon.errors import CallError
from daemon.protocol import RESOURCE_UPDATED
from daemon.wire.envelope import INTERNAL_ERROR, METHOD_NOT_FOUND
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.ports import Audience, UpstreamConnection
    from daemon.upstreams.handshake import Greeting

ASK_SECONDS = 15.0
"""Seconds that a server has to answer each of these requests: as long as for a page of a list."""

AT_ONCE = 8
"""Subscriptions that are asked for at a time: a server that comes back is asked for all of them again."""

RETRY_SECONDS = 30.0
"""Seconds after which a server is asked again for what it did not answer."""

LEAST_TALKATIVE = "info"
"""What is asked of a server once nobody is left who has set a level: it cannot be unset, and this is what most
servers begin with."""

UNSUPPORTED = "server {} does not tell of updated resources: it does not declare resources.subscribe"
"""Why a resource cannot be followed."""


class WatchedServer:
    """Asks one server of the handshake era for what clients want of it beside answers."""

    def __init__(self, server: str, audience: Audience) -> None:
        """Begin without a connection."""
        self._server = server
        self._audience = audience
        self._before: set[str] = set()
        """What was followed on an earlier connection, and not again since: it may have changed unnoticed."""

    async def keep(self, connection: UpstreamConnection, greeting: Greeting) -> None:
        """Ask for what is wanted, and whenever that changes, until cancelled."""
        async with trio.open_nursery() as nursery:
            if greeting.logs:
                nursery.start_soon(keep_level, connection, self._server, self._audience)
            if greeting.updates:
                nursery.start_soon(self._keep_following, connection)
            else:
                nursery.start_soon(refuse_all, self._server, self._audience)

    async def _keep_following(self, connection: UpstreamConnection) -> None:
        watch = self._audience.wishes(self._server)
        followed = _OfConnection(self._server, connection, self._audience, self._before)
        try:
            while True:
                wished = watch.value
                await followed.become(wished.uris)
                with trio.move_on_after(math.inf if followed.is_complete else RETRY_SECONDS):
                    await watch.wait_changed(wished)
        finally:
            self._before |= followed.held


class _OfConnection:
    """The resources that are followed over one connection."""

    def __init__(
        self, server: str, connection: UpstreamConnection, audience: Audience, before: set[str]
    ) -> None:
        self.held: set[str] = set()
        self.is_complete = True
        """Whether the server has answered whatever it was asked."""
        self._refused: dict[str, RemoteError] = {}
        self._server = server
        self._connection = connection
        self._audience = audience
        self._before = before
        self._limit = trio.CapacityLimiter(AT_ONCE)

    async def become(self, wished: frozenset[str]) -> None:
        """Follow these, and no others."""
        self._refused = {uri: refusal for uri, refusal in self._refused.items() if uri in wished}
        self._before &= wished
        for uri in wished & (self.held | self._refused.keys()):
            # Who has begun to follow it only now has not been told yet.
            self._audience.settled(self._server, uri, self._refused.get(uri))
        self.is_complete = True
        async with trio.open_nursery() as nursery:
            for uri in self.held - wished:
                nursery.start_soon(self._end, uri)
            for uri in wished - self.held - self._refused.keys():
                nursery.start_soon(self._begin, uri)

    async def _begin(self, uri: str) -> None:
        async with self._limit:
            refusal, answered = await _ask(self._connection, "resources/subscribe", {"uri": uri})
        if refusal is None:
            self.held.add(uri)
        elif answered:
            self._refused[uri] = refusal
        else:
            self.is_complete = False
        self._audience.settled(self._server, uri, refusal)
        if refusal is None and uri in self._before:
            self._before.discard(uri)
            tell_missed(self._server, self._audience, (uri,))

    async def _end(self, uri: str) -> None:
        self.held.discard(uri)
        async with self._limit:
            await _ask(self._connection, "resources/unsubscribe", {"uri": uri})


async def keep_level(
    connection: UpstreamConnection,
    server: str,
    audience: Audience,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Ask a server for the level of its log that clients wish, until cancelled.

    It has started once the server has answered for the level that is wished at the beginning.
    """
    watch = audience.wishes(server)
    asked: str | None = None
    while True:
        wished = watch.value
        if wished.level != asked:
            level = wished.level or LEAST_TALKATIVE
            refusal, _answered = await _ask(connection, "logging/setLevel", {"level": level})
            if refusal is not None:
                logger.bind(server=server).info("takes no level for its log: {}", refusal)
            asked = wished.level
        task_status.started()
        task_status = trio.TASK_STATUS_IGNORED
        await watch.wait_changed(wished)


async def refuse_all(server: str, audience: Audience) -> None:
    """Refuse whatever is to be followed at a server that tells of no updates, until cancelled."""
    watch = audience.wishes(server)
    refusal = RemoteError(METHOD_NOT_FOUND, UNSUPPORTED.format(server))
    while True:
        wished = watch.value
        for uri in wished.uris:
            audience.settled(server, uri, refusal)
        await watch.wait_changed(wished)


def tell_missed(server: str, audience: Audience, uris: Iterable[str]) -> None:
    """Tell who follows these resources that they may have changed while nobody was told."""
    for uri in uris:
        audience.hear(server, RESOURCE_UPDATED, Raw(msgspec.json.encode({"uri": uri})), None)


async def _ask(
    connection: UpstreamConnection, method: str, params: dict[str, object]
) -> tuple[RemoteError | None, bool]:
    """Ask. Returns the refusal, or why there is no answer, and whether there was an answer."""
    try:
        await connection.request(method, params, timeout=ASK_SECONDS)
    except RemoteError as refusal:
        return refusal, True
    except CallError as error:
        return RemoteError(INTERNAL_ERROR, error.message), False
    return None, True
