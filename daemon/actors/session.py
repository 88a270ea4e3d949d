"""The session actor: one client's connection; each message goes to its function in `clients.requests`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import trio
from msgspec import Raw

from daemon import protocol
from daemon.catalog.extensions import may_pass
from daemon.clients.attachment import Attachment, Request
from daemon.clients.client import LOCAL_USER, Principal
from daemon.clients.connection import MAX_HELD, ClientConnection
from daemon.clients.context import SessionContext, SessionStatistics
from daemon.clients.requests.forwarding import ask_about_uri, complete, get_prompt, pass_on
from daemon.clients.requests.initialize import accept_version, declared, discover, hello, initialize, ping
from daemon.clients.requests.subscriptions import cancel, listen, set_level, subscribe, unsubscribe
from daemon.clients.requests.tasks import ask_about_task, list_tasks
from daemon.clients.requests.tools import NOT_FOUND, call_tool, list_definitions
from daemon.counting.tally import tokens_in
from daemon.errors import CallError, RunError, leaf
from daemon.model import Kind
from daemon.wire import envelope
from daemon.wire.envelope import BadMessage
from daemon.wire.outbox import Link
from daemon.wire.requests import Peer

MAX_METHOD = 100
"""Characters of an unknown method that an answer repeats."""

OF_CONNECTIONS: Mapping[str, Callable[[ClientConnection, bytes, Raw | None], None]] = {
    "initialize": initialize,
    "server/discover": discover,
    "ping": ping,
}
"""Methods that concern the connection, and no session."""

OF_SESSIONS: Mapping[str, Callable[[ClientConnection, Raw | None, Request], None]] = {
    "logging/setLevel": set_level,
    "tasks/get": partial(ask_about_task, protocol.GET_TASK),
    "tasks/result": partial(ask_about_task, protocol.TASK_RESULT),
    "tasks/cancel": partial(ask_about_task, protocol.CANCEL_TASK),
    "tasks/update": partial(ask_about_task, protocol.UPDATE_TASK),
    "tasks/list": list_tasks,
    "tools/list": partial(list_definitions, Kind.TOOL),
    "tools/call": call_tool,
    "prompts/list": partial(list_definitions, Kind.PROMPT),
    "prompts/get": get_prompt,
    "resources/list": partial(list_definitions, Kind.RESOURCE),
    "resources/templates/list": partial(list_definitions, Kind.TEMPLATE),
    "resources/read": partial(ask_about_uri, protocol.READ_RESOURCE),
    protocol.READ_DIRECTORY: partial(ask_about_uri, protocol.READ_DIRECTORY),
    "skills/list": partial(list_definitions, Kind.SKILL),
    protocol.GET_SKILL: partial(ask_about_uri, protocol.GET_SKILL),
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
    "completion/complete": complete,
    "subscriptions/listen": listen,
}

# Requests that are no calls and end with their answer.
TRACED = {*OF_CONNECTIONS, *(each for each in OF_SESSIONS if each.endswith(("/list", "subscribe", "setLevel")))}

SERVED = dict.fromkeys((*OF_CONNECTIONS, *OF_SESSIONS))  # in the order in which refusals name them

OPTIONAL: Mapping[str, str] = {
    "prompts": "prompts",
    "resources": "resources",
    "skills": "resources",
    "completion": "completions",
    "logging": "logging",
    "tasks": "tasks",
}
"""By prefix of a method, the capability needed, which a profile or a client's only server may lack."""


class Session:
    """Serves one client over one link."""

    def __init__(
        self, link: Link, number: int, context: SessionContext, principal: Principal = LOCAL_USER
    ) -> None:
        self.number = number
        self._context = context
        self._link = link
        self._peer = Peer(link, context.outbox, self, strict=True)
        self._connection = ClientConnection(self._peer, number, context, principal)
        self._attachments = self._connection.attachments
        self._client = self._connection.client
        self.calls = self._connection.calls
        self._settled = False
        """Whether a hello or a request has arrived; after that, a hello is ignored."""
        self._late_hello = False
        self._bridge_sends = False
        """Whether a bridge may have sent requests before it learned that it must hold them back."""
        self._since = context.wall()

    async def run(self) -> None:
        """Serve until the client hangs up, then cancel its calls at the servers."""
        connection, watchers = self._connection, self._context.sessions.watchers
        watchers[self] = connection.follow_catalog
        self._context.subscribers.connected[connection.notifier] = None
        try:
            async with trio.open_nursery() as connection.nursery:
                await self._peer.run()
        except BaseExceptionGroup as group:
            error = leaf(group)
            if not isinstance(error, RunError):
                raise
            connection.client_log.log(
                connection.level, "session of {} ended: {}", self._client.name or "an unnamed client", error
            )
        finally:
            connection.nursery = None
            self.calls.abandon_all("the client is gone")
            self._context.subscribers.forget(connection.notifier)
            self._context.outbox.flush()
            connection.note_end(self._context.wall() - self._since)
            self._attachments.leave()
            watchers.pop(self, None)

    @property
    def key(self) -> str | None:
        """The key of the client's session; None if the session ends with the connection."""
        return self._attachments.key

    @property
    def in_flight(self) -> int:
        """The number of unanswered calls."""
        return len(self.calls.open)

    @property
    def is_awaited(self) -> bool:
        """Whether a call is in flight, or may be on its way to mcpd."""
        return self._bridge_sends or bool(self.calls.open)

    def move(self, profile: str) -> None:
        """Switch the client to another profile, and notify it if its tools change."""
        self._connection.move(profile)

    def give_back(self) -> None:
        """Return unsent requests to a bridge, which holds them and later ones for the next daemon."""
        if self._client.holds:
            self._bridge_sends = True
            ids = b",".join(self.calls.give_back())
            self._peer.notify(protocol.UNSENT, b'{"ids":[%b]}' % ids)
            self._context.outbox.flush()

    def lose_calls(self, error: CallError) -> None:
        """Answer all calls with an error, and end subscriptions over HTTP, because the daemon is stopping."""
        self.calls.lose_all(error)
        if not self._client.principal.keeps:
            # Elsewhere the end of the connection says it, and a bridge subscribes again with the next daemon.
            self._connection.lists.end_all()

    def statistics(self) -> SessionStatistics:
        """The session's statistics for `mcpd status`."""
        connection = self._connection
        selection = connection.selection
        return SessionStatistics(
            number=self.number,
            key=self.key,
            client=self._client.name,
            protocol=self._client.protocol,
            token=self._client.token,
            profile=selection.profile.name,
            surface=selection.surface.name,
            servers=selection.servers,
            choice=selection.choice,
            since=self._since,
            calls=self.calls.total,
            in_flight=self.in_flight,
            loaded=self._attachments.loaded,
            own=self._attachments.own.state,
            repaired=connection.dispatch.repaired,
            tokens_not_sent=tokens_in(connection.savings.spared) if connection.savings.applies else None,
            workspace=self._client.workspace.shown,
            instances=tuple(name for name, each in self._client.instances.items() if not each.is_gone),
        )

    # --- wire.requests.PeerEvents --------------------------------------------------------------------------

    def on_request(self, request_id: bytes, method: str, params: Raw | None) -> None:
        """Answer a request, now or later."""
        self._settled = True
        # From now on, plain calls pass this actor by (`Dispatch.take_plain`).
        self._connection.dispatch.direct = self._attachments.direct
        if denied := self._connection.selection.denied:
            self._peer.refuse(request_id, envelope.INVALID_REQUEST, denied)
            return
        if self._lacks(method) or not (method in SERVED or self._passes(method)):
            here = ", ".join(each for each in SERVED if not self._lacks(each))
            text = f"Method not found: {method[:MAX_METHOD]}. mcpd serves here: {here}"
            if self._connection.selection.only:
                text = NOT_FOUND
            self._peer.refuse(request_id, envelope.METHOD_NOT_FOUND, text)
            return
        try:
            self._serve(request_id, method, params)
        except Exception as error:  # noqa: BLE001 - the boundary of a request
            self._connection.fail(request_id, method, error)
        self._connection.end_trace(request_id)

    def _passes(self, method: str) -> bool:
        """Whether an unknown method goes to the client's only server; never if permission rules apply."""
        selection = self._connection.selection
        return bool(selection.only) and not selection.profile.permissions and may_pass(method, SERVED)

    def _lacks(self, method: str) -> bool:
        if (wanted := OPTIONAL.get(method.partition("/")[0])) is None:
            return False
        said = declared(self._connection)
        if wanted == "tasks":
            entry = self._context.catalog.value.servers.get(self._connection.selection.only)
            extended = protocol.TASKS_EXTENSION in said.get("extensions", ())
            # A server that has just been changed may keep tasks before it has introduced itself again.
            known = entry is not None and bool(entry.said.introduction)
            return known and not (wanted in said or extended)
        own = said.get(wanted)
        subscribes = method in {"resources/subscribe", "resources/unsubscribe"}
        return not isinstance(own, dict) or (subscribes and not own.get("subscribe"))

    def on_notification(self, method: str, params: Raw | None) -> None:
        """Handle cancellations, notifications about servers' requests, and the bridge's hello."""
        try:
            if method == protocol.CANCEL and params is not None:
                cancel(self._connection, params)
            elif method == protocol.PROGRESS and params is not None:
                self._peer.requests.progress(params)
            elif method == protocol.HELD:
                self._bridge_sends = False
            elif method == protocol.INITIALIZED:
                self._connection.begin_roots()
            elif method == protocol.ROOTS_CHANGED:
                self._connection.notifier.roots_changed()
            elif method == protocol.HELLO and params is not None:
                said = msgspec.json.decode(params, type=dict[str, object])
                if not self._settled:
                    self._settled = True
                    hello(self._connection, said)
                elif not self._late_hello:
                    self._late_hello = True
                    self._connection.client_log.warning(
                        "refused a hello: a client may send one, before its first request"
                    )
        except msgspec.MsgspecError as error:
            self._connection.client_log.warning("cannot read a {}: {}", method, error)

    def on_lost(self, reason: str) -> None:
        """Do nothing, since `run` ends next."""

    def on_bad_message(self, fault: BadMessage, line: bytes) -> None:
        """Refuse a malformed message; the connection stays for a while (`Peer.refuse_malformed`)."""
        self._peer.refuse_malformed(fault)

    def _serve(self, request_id: bytes, method: str, params: Raw | None) -> None:
        connection, meta = self._connection, protocol.meta_of(params)
        if method in TRACED:
            connection.trace(request_id, method, meta)
        modern = protocol.VERSION_KEY in meta
        if modern and not accept_version(connection, request_id, meta):
            connection.end_trace(request_id, "UnsupportedVersion")
            return
        if modern and (instead := protocol.DROPPED.get(method)):
            text = f"Method not found: {method}. Since {protocol.MODERN_VERSION}, {instead}"
            raise envelope.RemoteError(envelope.METHOD_NOT_FOUND, text)
        if method in OF_CONNECTIONS:
            OF_CONNECTIONS[method](connection, request_id, params)
        else:
            serve = partial(OF_SESSIONS.get(method) or partial(pass_on, method), connection, params)
            self._in_session(meta, request_id, serve, modern=modern)

    def _in_session(
        self, meta: dict[str, Raw], request_id: bytes, serve: Callable[[Request], None], *, modern: bool = False
    ) -> None:
        """Serve a request in the session that it names, now or once the session is recalled."""

        def serve_held(attachment: Attachment) -> None:
            try:
                serve(attachment.request(request_id, self._link.turns, modern=modern))
            except Exception as error:  # noqa: BLE001 - the boundary of a request
                method = "a request of a session that had to be recalled"
                self._connection.fail(request_id, method, error)
            self._connection.end_trace(request_id)

        key = self._attachments.key_of(meta)
        attachment = self._attachments.present(key)
        if attachment is not None:
            serve(attachment.request(request_id, self._link.turns, modern=modern))
        elif not self._attachments.hold(key or "", request_id, serve_held):
            text = f"{MAX_HELD} requests wait for their sessions to be recalled; try again in a moment"
            self._peer.refuse(request_id, envelope.INVALID_REQUEST, text)
