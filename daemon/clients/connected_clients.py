"""Connects servers with all clients outside of calls: log lines, resource updates, roots and tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import attrs
import msgspec
import trio
from msgspec import Raw, Struct

from daemon import protocol
from daemon.catalog.authorship import UnsafeQuestion
from daemon.catalog.extensions import is_unknown
from daemon.catalog.naming import mcpd_uri
from daemon.clients.client_tasks import ClientTasks
from daemon.clients.notifications import ConnectedClient
from daemon.clients.server_requests import COMPLETE, ServerRequests
from daemon.config.labels import server_of
from daemon.errors import Overloaded
from daemon.history.event import Event, EventKind
from daemon.kit.waiting import Watch
from daemon.model import StandingWishes
from daemon.wire.envelope import INVALID_REQUEST, RemoteError, is_utf8
from daemon.wire.requests import NO_CLIENT, Exchange, PeerRequest

MAX_FOLLOWED = 1000
"""Subscriptions of one client: an editor that subscribes to each open file has a few hundred."""

MAX_FOLLOWED_AT_SERVER = 10_000
"""Subscribed URIs at one server: each is requested again on reconnection, at a millisecond apiece."""

MAX_PARTS = 32
"""Slashes of an updated URI, counted from the end, at which mcpd looks for a subscribed parent resource."""

MAX_PARAMS = 8 * 1024
"""Bytes of the longest update passed on whole; of a longer one, only the URI. For a client that reads slowly,
mcpd keeps one update per subscribed resource."""

MAX_URI = 16 * 1024
"""Characters of the longest URI in an update or a subscription."""


class _Updated(Struct):
    uri: str


_decode_updated = msgspec.json.Decoder(_Updated).decode
_encode = msgspec.json.encode


@attrs.frozen
class Following:
    """One subscription of a client to one resource."""

    subscriber: ConnectedClient
    server: str
    """The server that has the resource, or the instance that the client uses."""
    of: str
    own: str
    uri: str
    listen: bytes | None = None
    """The raw id of the `subscriptions/listen` request that asked for the updates (MCP 2026-07-28)."""
    resume: Callable[[Following], None] = attrs.field(default=lambda _: None, eq=False, repr=False)
    """Subscribes at another server or instance after this one was removed."""


class _Followed(msgspec.Struct, eq=False):
    by: dict[Following, None] = msgspec.field(default_factory=dict)
    settled: trio.Event = msgspec.field(default_factory=trio.Event)
    """Set once the server has accepted or refused the subscription."""
    refusal: RemoteError | None = None


class ResourceSubscriptions:
    """The resource subscriptions of all clients."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._servers: dict[str, dict[str, _Followed]] = {}
        self._of: dict[ConnectedClient, dict[Following, None]] = {}
        self._changed = changed

    def wished(self, server: str) -> frozenset[str]:
        """The URIs that clients subscribe to at a server, in the server's own spelling."""
        return frozenset(self._servers.get(server, ()))

    def subscriptions_of(self, subscriber: ConnectedClient) -> tuple[Following, ...]:
        """The subscriptions of a client."""
        return tuple(self._of.get(subscriber, ()))

    def begin(self, following: Following) -> None:
        """Add a subscription; idempotent. Raises Overloaded if the client or the server has too many."""
        own = self._of.setdefault(following.subscriber, {})
        if following in own:
            return
        at_server = self._servers.setdefault(following.server, {})
        if len(own) >= MAX_FOLLOWED:
            text = f"{MAX_FOLLOWED} resources are subscribed to by this client: unsubscribe from one first"
            raise Overloaded(text)
        if following.own not in at_server and len(at_server) >= MAX_FOLLOWED_AT_SERVER:
            text = f"{MAX_FOLLOWED_AT_SERVER} resources of server {following.server} are subscribed to already"
            raise Overloaded(text, server=following.server)
        own[following] = None
        is_first = following.own not in at_server
        at_server.setdefault(following.own, _Followed()).by[following] = None
        if is_first:
            self._changed(following.server)

    def end(self, following: Following) -> None:
        """Remove a subscription. Idempotent."""
        own = self._of.get(following.subscriber, {})
        if following not in own:
            return
        del own[following]
        following.subscriber.discard_pending(following)
        at_server = self._servers.get(following.server, {})
        followed = at_server.get(following.own)
        if followed is None:
            # The server was removed.
            return
        del followed.by[following]
        if not followed.by:
            del at_server[following.own]
            followed.settled.set()
            self._changed(following.server)

    def leave(self, subscriber: ConnectedClient) -> None:
        """Remove all subscriptions of a client."""
        for each in self.subscriptions_of(subscriber):
            self.end(each)
        self._of.pop(subscriber, None)

    async def wait_settled(self, following: Following) -> RemoteError | None:
        """Wait for the server's answer to a subscription, and return its refusal, if it refused."""
        followed = self._servers.get(following.server, {}).get(following.own)
        if followed is None:
            return None
        while not followed.settled.is_set():
            await followed.settled.wait()
        return followed.refusal

    def settled(self, server: str, uri: str, refusal: RemoteError | None) -> None:
        """Record a server's answer (`ports.Subscribers.settled`)."""
        if (followed := self._servers.get(server, {}).get(uri)) is not None:
            followed.refusal = refusal
            followed.settled.set()

    def lost(self, server: str) -> None:
        """Forget a server's answers to subscriptions, which must be requested again."""
        for each in self._servers.get(server, {}).values():
            if each.settled.is_set():
                each.settled, each.refusal = trio.Event(), None

    def gone(self, server: str) -> None:
        """Forget a removed server. Its subscribers get an update and subscribe to the resource elsewhere."""
        for each in self._servers.pop(server, {}).values():
            each.settled.set()
            for following in each.by:
                self._of.get(following.subscriber, {}).pop(following, None)
                params = _params_for(following, following.own, {})
                following.subscriber.enqueue(following, protocol.RESOURCE_UPDATED, params, following.listen)
                following.resume(following)

    def hear(self, server: str, params: Raw) -> None:
        """Deliver an update to the subscribers of the resource and of its parents (MCP)."""
        at_server = self._servers.get(server)
        if not at_server:
            return
        try:
            updated = _decode_updated(params).uri
            members = protocol.decode_members(params) if len(params) <= MAX_PARAMS else {}
        except protocol.UNREADABLE:
            return
        if len(updated) > MAX_URI:
            return
        for own in _with_wholes(updated):
            for each in list(at_server[own].by) if own in at_server else ():
                if each.subscriber.sees(server):
                    # A client that is behind may have missed other parts: report the whole.
                    what = own if each.subscriber.is_pending(each) else updated
                    each.subscriber.enqueue(
                        each, protocol.RESOURCE_UPDATED, _params_for(each, what, members), each.listen
                    )


def _with_wholes(uri: str) -> Iterator[str]:
    yield uri
    _scheme, _, path = uri.partition("://")
    start = len(uri) - len(path)
    end = len(uri)
    for _ in range(MAX_PARTS):
        end = uri.rfind("/", start, end)
        if end <= start:
            return
        yield uri[: end + 1]
        yield uri[:end]


def _params_for(following: Following, updated: str, members: dict[str, Raw]) -> bytes:
    params: dict[str, object] = {**members, "uri": _as_used(following, updated)}
    meta: dict[str, object] = {}
    with suppress(msgspec.MsgspecError, RecursionError):
        meta = dict(protocol.decode_members(members.get("_meta", Raw(b"{}"))))
    meta.pop(protocol.SUBSCRIPTION_KEY, None)
    if following.listen is not None:
        meta[protocol.SUBSCRIPTION_KEY] = Raw(following.listen)
    params.pop("_meta", None)
    return _encode({**params, "_meta": meta} if meta else params)


def _as_used(following: Following, updated: str) -> str:
    if updated == following.own:
        return following.uri
    if following.uri == following.own:
        return updated
    # A part of a resource that the client names by its server.
    return mcpd_uri(following.of, updated)


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Log levels, the most verbose first (RFC 5424)."""

_RANKS = {level: rank for rank, level in enumerate(LEVELS)}


class _Leveled(Struct):
    level: str


_decode_message = msgspec.json.Decoder(_Leveled).decode


def rank_of(name: str) -> int:
    """The rank of a log level; 0 is the most verbose. Raises ValidationError for an unknown level."""
    found = _RANKS.get(name)
    if found is None:
        raise msgspec.ValidationError(f"there is no level {name[:20]!r}; there are: {', '.join(LEVELS)}")
    return found


def rank_in(params: Raw) -> int | None:
    """The rank of a log line; None if its level is missing or unknown."""
    message = protocol.decoded(_decode_message, params)
    return None if message is None else _RANKS.get(message.level)


def wished_rank(level: Raw | None) -> int | None:
    """The rank of the level that a request names; None if missing or unknown."""
    name = None if level is None else protocol.decoded(protocol.decode_text, level)
    return None if name is None else _RANKS.get(name)


class LogLevels:
    """The log levels that clients have set."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._ranks: dict[ConnectedClient, int] = {}
        self._changed = changed

    def join(self, subscriber: ConnectedClient) -> None:
        """Record the level that a client has set."""
        if subscriber.level is not None and self._ranks.get(subscriber) != subscriber.level:
            self._ranks[subscriber] = subscriber.level
            self._changed()

    def leave(self, subscriber: ConnectedClient) -> None:
        """Forget a client."""
        if self._ranks.pop(subscriber, None) is not None:
            self._changed()

    def wished(self, server: str) -> str | None:
        """The most verbose level that a client of this server has set."""
        # Stops at the first that sees the server: this runs for all servers whenever a client sets a level.
        ranked = sorted(self._ranks.items(), key=lambda each: each[1])
        return next((LEVELS[rank] for each, rank in ranked if each.sees(server)), None)

    def hear(self, server: str, params: Raw, cause: Exchange | None) -> None:
        """Deliver a log line to its subscribers; a client whose exchange caused the line gets it there only."""
        asker = None
        if cause is not None:
            asker = cause.asker
            cause.notified(protocol.LOG_MESSAGE, params)
        if not self._ranks or (rank := rank_in(params)) is None:
            return
        for each, wanted in list(self._ranks.items()):
            if each.asker is not asker and rank >= wanted and each.sees(server):
                each.say(protocol.LOG_MESSAGE, bytes(params))


class RootsOfClients:
    """The clients that have roots."""

    def __init__(self) -> None:
        self._clients: dict[ConnectedClient, None] = {}
        self._refused: set[str] = set()

    def ask(self, request: PeerRequest) -> None:
        """Relay a request for roots to the server's only client with roots; refuse all other requests."""
        only = self._only(request.server) if request.method == protocol.LIST_ROOTS else None
        if only is not None:
            only.ask_roots(request)
            return
        if request.method == protocol.LIST_ROOTS:
            self._refused.add(request.server)
        request.refuse(INVALID_REQUEST, NO_CLIENT)

    def join(self, client: ConnectedClient) -> None:
        """Add a client that has roots."""
        self._clients[client] = None
        self._tell_refused()

    def leave(self, client: ConnectedClient) -> None:
        """Remove a client."""
        self._clients.pop(client, None)
        self._tell_refused()

    def gone(self, server: str) -> None:
        """Forget a server that was removed."""
        self._refused.discard(server)

    def _tell_refused(self) -> None:
        for server in list(self._refused):
            only = self._only(server)
            if only is not None:
                self._refused.discard(server)
                only.tell_roots_changed(server)

    def _only(self, server: str) -> ConnectedClient | None:
        found = [client for client in self._clients if client.sees(server)]
        return found[0] if len(found) == 1 else None


class ConnectedClients:
    """The connected clients, as the servers' subscribers (`ports.Subscribers`)."""

    def __init__(self, gather: Callable[[Event], None] = lambda _event: None) -> None:
        self.refused_host = self._gather = gather
        self._wishes: dict[str, Watch[StandingWishes]] = {}
        self.levels = LogLevels(self.refresh_levels)
        self.resources = ResourceSubscriptions(self.refresh_wishes)
        self.tasks = ClientTasks()
        self.roots = RootsOfClients()
        self.sent_to_urls: dict[ServerRequests, None] = {}
        self.connected: dict[ConnectedClient, None] = {}
        self.settled, self.owner_of, self.ask = self.resources.settled, self.tasks.owner_of, self.roots.ask

    def refresh_levels(self) -> None:
        """Recompute the wanted log levels, after a client has come, left or changed servers."""
        for server, watch in self._wishes.items():
            level = self.levels.wished(server)
            # Subscriptions do not depend on this, and may be ten thousand URIs.
            if level != watch.value.level:
                watch.set(msgspec.structs.replace(watch.value, level=level))

    def forget(self, client: ConnectedClient) -> None:
        """Forget a client that has disconnected."""
        self.connected.pop(client, None)
        self.roots.leave(client)
        # Servers keep the roots that they know: now they ask the remaining client, or the next one.
        client.roots_changed()
        self.levels.leave(client)
        self.resources.leave(client)
        self.tasks.leave(client.asker)

    # --- ports.Subscribers ----------------------------------------------------------------------------------

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        """Deliver a server's notification to its subscribers (`ports.Subscribers.hear`)."""
        if not is_utf8(bytes(params)):
            # Unread: the payload is the client's.
            return
        if method == protocol.LOG_MESSAGE:
            self.levels.hear(server, params, cause)
        elif method == protocol.RESOURCE_UPDATED:
            self.resources.hear(server, params)
        elif method == protocol.TASK_STATUS:
            self.tasks.hear(server, params)
        elif method == COMPLETE:
            for each in list(self.sent_to_urls):
                each.hear(server, params)
        elif is_unknown(method):
            for client in list(self.connected):
                if client.only and client.sees(server):
                    client.say(method, bytes(params))

    def wishes(self, server: str) -> Watch[StandingWishes]:
        """A watch of the log level and subscriptions wanted at a server (`ports.Subscribers.wishes`)."""
        if server not in self._wishes:
            self._wishes[server] = Watch(StandingWishes())
            self.refresh_wishes(server)
        return self._wishes[server]

    def unsafe(self, server: str, why: UnsafeQuestion) -> None:
        """Record a server's question that mcpd did not show to users (`ports.Subscribers.unsafe`)."""
        kind, details = EventKind.QUESTION_REFUSED, {"reason": why.reason}
        self._gather(Event(kind=kind, server=server_of(server), text=str(why), details=details))

    def uses(self, server: str) -> bool:
        """Whether a client needs a server outside of calls (`ports.Subscribers.uses`)."""
        return bool(self.resources.wished(server)) or self.tasks.are_open(server)

    def lost(self, server: str, *, wholly: bool = False) -> None:
        """Handle the end of a connection to a server (`ports.Subscribers.lost`)."""
        self.resources.lost(server)
        self.tasks.lost(server, wholly=wholly)

    def gone(self, server: str) -> None:
        """Forget a removed server or an ended instance (`ports.Subscribers.gone`)."""
        self.lost(server, wholly=True)
        self.resources.gone(server)
        self.roots.gone(server)
        self._wishes.pop(server, None)

    def refresh_wishes(self, server: str) -> None:
        """Recompute the wishes of all clients at a server."""
        watch = self._wishes.get(server)
        if watch is None:
            return
        wished = StandingWishes(level=self.levels.wished(server), uris=self.resources.wished(server))
        if wished != watch.value:
            watch.set(wished)
