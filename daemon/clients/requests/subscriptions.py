"""Subscriptions to resources, log levels and lists in both eras, and cancellation of requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import trio
from msgspec import Raw

from daemon import protocol
from daemon.catalog.kinds import LISTS
from daemon.clients.attachment import Attachment, Request
from daemon.clients.client import owner_in
from daemon.clients.connected_clients import MAX_FOLLOWED, Following, rank_of
from daemon.clients.connection import ClientConnection
from daemon.clients.notifications import MAX_SUBSCRIPTIONS, PENDING
from daemon.clients.requests.forwarding import find_resource, text_in, uri_in
from daemon.clients.requests.initialize import declared
from daemon.clients.requests.tasks import lacks_tasks, watch_task
from daemon.clients.waits import wait_known, wait_up
from daemon.counting.tally import CANCELLED
from daemon.errors import CallError, Overloaded, UnknownResource, UpstreamTimeout, UpstreamUnavailable
from daemon.model import Kind
from daemon.surfaces.describing import unlisted
from daemon.surfaces.surface import AwaitListing
from daemon.wire import envelope
from daemon.wire.envelope import RemoteError

SETTLED_SECONDS = 10.0
"""Seconds for a running server to accept a subscription."""

MAX_WAITING = 64
"""Subscriptions of one client that may wait for their servers at a time."""

KINDS = (Kind.RESOURCE, Kind.TEMPLATE)


def subscribe(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Subscribe a client to a resource, and answer once the resource's server has agreed.

    Raises MsgspecError if the params name no resource, and `Overloaded` if too many subscriptions wait.
    """
    uri = uri_in(protocol.members_of(params))
    if connection.waiting_follows >= MAX_WAITING:
        raise Overloaded(f"{MAX_WAITING} subscriptions wait for their servers already")
    connection.waiting_follows += 1
    connection.serve_later(request.id, "resources/subscribe", partial(_subscribe, connection, request, uri))


def unsubscribe(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Unsubscribe a client from a resource; idempotent. Raises MsgspecError if the params name no resource."""
    uri = uri_in(protocol.members_of(params))
    _end_all(connection, lambda each: each.uri == uri and each.listen is None)
    connection.peer.answer(request.id, b"{}")


def unfollow(connection: ClientConnection, request_id: bytes) -> None:
    """End the resource subscriptions of a `subscriptions/listen`."""
    _end_all(connection, lambda each: each.listen == request_id)


def _end_all(connection: ClientConnection, are_unwanted: Callable[[Following], bool]) -> None:
    followed = connection.context.subscribers.resources.subscriptions_of(connection.notifier)
    for each in (*followed, *connection.resuming):
        if are_unwanted(each):
            _end(connection, each)


def _end(connection: ClientConnection, following: Following) -> None:
    connection.resuming.discard(following)
    connection.context.subscribers.resources.end(following)


async def _begin(
    connection: ClientConnection, session: Attachment, uri: str, listen: bytes | None, request_id: bytes | None
) -> Following:
    context = connection.context
    view = session.view()
    try:
        server, own = find_resource(view, uri, session.links)
    except UnknownResource:
        if not (unknown := unlisted(view.servers.values(), KINDS)):
            raise
        awaited = AwaitListing(servers=unknown, calling=True, kinds=KINDS)
        await wait_known(context, awaited, session, request_id)
        await context.settled()
        server, own = find_resource(session.view(), uri, session.links)
    upstream = context.upstreams.get(server)
    if upstream is not None:
        upstream = await session.instances.find(upstream, request_id)
    name = server if upstream is None else upstream.name
    resume = partial(_resume_later, connection, session)
    following = Following(connection.notifier, name, server, own, uri, listen, resume)
    context.subscribers.resources.begin(following)
    return following


async def _agree(connection: ClientConnection, following: Following) -> None:
    try:
        await _settled(connection, following)
    except BaseException:
        _end(connection, following)
        raise


async def _subscribe(connection: ClientConnection, request: Request, uri: str) -> None:
    try:
        await _agree(connection, await _begin(connection, request.session, uri, None, request.id))
    finally:
        connection.waiting_follows -= 1
    connection.peer.answer(request.id, b"{}")


async def _follow_all(
    connection: ClientConnection, request: Request, uris: Sequence[str], honoured: dict[str, object]
) -> None:
    """Subscribe to the resources of a `subscriptions/listen`, and acknowledge those that servers accept."""
    settled, limit = set[str](), trio.CapacityLimiter(MAX_WAITING)

    async def settle(uri: str) -> None:
        try:
            async with limit:
                following = await _begin(connection, request.session, uri, request.id, request.id)
            # If the request has been cancelled meanwhile, all its subscriptions end below.
            if connection.lists.open.get(request.id) is PENDING:
                await _agree(connection, following)
                settled.add(uri)
        except (CallError, RemoteError) as error:
            connection.client_log.debug("a resource that cannot be subscribed to: {}", error.message)

    async with trio.open_nursery() as nursery:
        for uri in dict.fromkeys(uris):
            nursery.start_soon(settle, uri)
    if connection.lists.open.get(request.id) is PENDING:
        _acknowledge(connection, request, honoured, [uri for uri in dict.fromkeys(uris) if uri in settled])
    else:
        unfollow(connection, request.id)


def _resume_later(connection: ClientConnection, session: Attachment, following: Following) -> None:
    connection.resuming.add(following)
    connection.later(_resume, connection, session, following)


async def _resume(connection: ClientConnection, session: Attachment, following: Following) -> None:
    subscriptions, found = connection.context.subscribers.resources, None
    try:
        found = await _begin(connection, session, following.uri, following.listen, None)
        if following in connection.resuming:
            # A server that is down is asked once it is up again.
            with suppress(CallError):
                await _settled(connection, found)
        else:
            subscriptions.end(found)
    except (CallError, RemoteError) as error:
        if found is not None:
            subscriptions.end(found)
        why = connection.context.redact.of(following.of)(error.message)
        connection.client_log.info("a subscription to a resource of {} has ended: {}", following.of, why)
    finally:
        connection.resuming.discard(following)
    connection.context.outbox.flush()


async def _settled(connection: ClientConnection, following: Following) -> None:
    context, server = connection.context, following.server
    upstream = context.upstreams.get(server)
    if upstream is None or not await wait_up(upstream):
        text = "cannot be subscribed to just now" if upstream is None else upstream.outlook
        raise UpstreamUnavailable(f"server {server}: {text}. Try again later.", server=server)
    with trio.move_on_after(SETTLED_SECONDS):
        refusal = await context.subscribers.resources.wait_settled(following)
        if refusal is not None:
            raise RemoteError(refusal.code, context.redact.of(following.of)(refusal.message))
        return
    raise UpstreamTimeout(f"server {server} has not answered within {SETTLED_SECONDS:g} s", server=server)


def set_level(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Set the client's log level for its servers. Raises MsgspecError if the params name no level."""
    connection.client.log_level = rank_of(text_in(protocol.members_of(params), "level"))
    connection.context.subscribers.levels.join(connection.notifier)

    async def answer() -> None:
        # The client's next call comes after the servers were asked for the level: the tasks that ask them are
        # scheduled by now.
        await trio.lowlevel.checkpoint()
        connection.peer.answer(request.id, b"{}")

    connection.serve_later(request.id, "logging/setLevel", answer)


def listen(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Open a subscription to later changes, until it is cancelled. Raises MsgspecError for malformed params."""
    opened, peer = connection.lists.open, connection.peer
    if request.id in connection.calls.open or request.id in opened:
        peer.refuse(request.id, envelope.INVALID_REQUEST, protocol.already_in_flight(request.id))
        return
    if len(opened) >= MAX_SUBSCRIPTIONS:
        text = f"{MAX_SUBSCRIPTIONS} subscriptions are open; cancel one first"
        peer.refuse(request.id, envelope.INVALID_REQUEST, text)
        return
    wanted, offered = protocol.wanted_notifications(params), declared(connection)
    honoured: dict[str, object] = {
        each.wish: True
        for each in LISTS.values()
        if wanted.get(each.wish) is True and each.capability in offered
    }
    if task_ids := protocol.texts_in(wanted.get("taskIds")):
        if lacks_tasks(connection, params, request):
            return
        capabilities = protocol.meta_of(params)[protocol.CAPABILITIES_KEY].copy()
        known, owner = connection.context.subscribers.tasks, owner_in(request.key, connection.client)
        tasks = [task for each in dict.fromkeys(task_ids) if (task := known.find(each, owner)) is not None]
        honoured["taskIds"] = [task.id for task in tasks]
        for task in tasks:
            watch = partial(watch_task, connection, request.id, task, honoured, capabilities)
            connection.serve_later(request.id, "subscriptions/listen", watch)
    uris = protocol.texts_in(wanted.get("resourceSubscriptions")) if "resources" in offered else []
    if uris:
        opened[request.id] = PENDING
        serve = partial(_follow_all, connection, request, uris[:MAX_FOLLOWED], honoured)
        connection.serve_later(request.id, "subscriptions/listen", serve)
    else:
        _acknowledge(connection, request, honoured, [])


def _acknowledge(
    connection: ClientConnection, request: Request, honoured: dict[str, object], uris: list[str]
) -> None:
    if uris:
        honoured["resourceSubscriptions"] = uris
    if honoured:
        for kind in (each for each in Kind if LISTS[each].wish in honoured):
            connection.lists.follow(*connection.list_of(kind, request))
        connection.lists.open[request.id] = honoured
    else:
        connection.lists.open.pop(request.id, None)
    acknowledged = protocol.of_subscription(request.id, notifications=honoured)
    connection.peer.notify(protocol.ACKNOWLEDGED, acknowledged, request.id)


def cancel(connection: ClientConnection, params: Raw) -> None:
    """Cancel a request of any kind (MCP, cancellation). Raises MsgspecError for malformed params."""
    request_id = protocol.cancelled_id(params)
    connection.calls.cancel(request_id)
    connection.attachments.forget(request_id)
    connection.end_trace(request_id, CANCELLED)
    unfollow(connection, request_id)
    if connection.lists.open.pop(request_id, None) is not None:
        connection.lists.unfollow()
