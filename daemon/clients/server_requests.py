"""Relays servers' requests (sampling, elicitation, roots) to one client; each ends with the call behind it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon import protocol
from daemon.catalog.authorship import UnsafeQuestion, authored_elicitation, words_of
from daemon.clients.input_required import InputRequest
from daemon.errors import CallError, InputRefused, UpstreamCallError
from daemon.kit.waiting import keep_latest
from daemon.wire import envelope
from daemon.wire.envelope import RemoteError
from daemon.wire.requests import OwnExchange, Peer, PeerRequest

# --- what a client can be asked -----------------------------------------------------------------------------

NOTHING = Raw(b"{}")

DECLINED = b'{"action":"decline"}'
"""Answers an elicitation for a client that cannot ask its user (MCP, elicitation)."""

MAX_DECLARED = 64 * 1024
"""Bytes of the longest declared capabilities that mcpd reads; real ones have some hundred bytes."""


class _Asked(Struct):
    mode: object = None
    tools: Raw | UnsetType = UNSET
    toolChoice: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name


_decode_asked = msgspec.json.Decoder(_Asked).decode


def has(capabilities: Raw, *wanted: str) -> bool:
    """Whether a client has declared a capability, or a part of it named by further keys."""
    return _has(declared_in(capabilities), wanted)


def declared_in(capabilities: Raw) -> Mapping[str, object]:
    """The declared capabilities, decoded; empty if they are unreadable or too long."""
    if len(capabilities) > MAX_DECLARED:
        return {}
    return protocol.decoded(protocol.decode_object, capabilities) or {}


def lacking(capabilities: Raw, request: PeerRequest | InputRequest) -> str:
    """Name the capability that a client lacks for a request; empty if it lacks none."""
    declared = declared_in(capabilities)
    asked = _Asked() if request.params is None else protocol.decoded(_decode_asked, request.params)
    if asked is None:
        return "params that can be read"
    wanted = next((part for part in _needed(request.method, asked) if not _has(declared, part)), ())
    return ".".join(wanted)


def answerable(capabilities: bytes) -> frozenset[str]:
    """The methods of servers' requests that a client can answer in at least one form."""
    return _answerable(capabilities) if len(capabilities) <= MAX_DECLARED else frozenset()


@lru_cache(maxsize=64)
def _answerable(capabilities: bytes) -> frozenset[str]:
    declared = declared_in(Raw(capabilities))
    return frozenset(
        each for each in protocol.ASKED_OF_CLIENTS if declared.get(each.partition("/")[0]) is not None
    )


def answer_instead(request: PeerRequest, lacks: str) -> None:
    """Answer for a client that lacks a capability: decline an elicitation, refuse any other request."""
    if request.method == "elicitation/create":
        request.answer(DECLINED)
    else:
        text = f"the client that called does not support {request.method}: it has not declared {lacks}"
        request.refuse(envelope.METHOD_NOT_FOUND, text)


def _needed(method: str, asked: _Asked) -> list[tuple[str, ...]]:
    if method == "roots/list":
        return [("roots",)]
    if method == "sampling/createMessage":
        with_tools = asked.tools is not UNSET or asked.toolChoice is not UNSET
        return [("sampling",), ("sampling", "tools")] if with_tools else [("sampling",)]
    return [("elicitation", "url")] if asked.mode == "url" else [("elicitation", "form")]


def _has(declared: Mapping[str, object], wanted: tuple[str, ...]) -> bool:
    members = declared.get(wanted[0])
    if not isinstance(members, dict):
        return False
    if wanted == ("elicitation", "form"):
        # Until 2025-11-25 an empty object was the whole declaration, and still means forms.
        return "form" in members or "url" not in members
    return len(wanted) == 1 or wanted[1] in members


# --- requests to the client, and refusals by the server -----------------------------------------------------

COMPLETE = "notifications/elicitation/complete"
"""The notification that a user has finished at a URL."""

REQUIRED = -32042
"""The JSON-RPC code of a call whose user must open a URL first (MCP 2025-11-25)."""

MISSING_CAPABILITY = -32021
"""The JSON-RPC code of a call that needs a capability the client has not declared (MCP 2026-07-28)."""


def read_refusal(error: envelope.Buffer, redact: Callable[[str], str]) -> UpstreamCallError:
    """Turn a server's error into one for models, without secrets; `upstream` has its code, message and data."""
    remote = RemoteError.from_wire(error)
    message = redact(remote.message)
    data: object = redact(remote.data.decode(errors="replace"))
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        data = msgspec.json.decode(str(data))
    told = {"code": remote.code, "message": message, "data": data}
    return UpstreamCallError(f"the server refused the call: {message} ({remote.code})", upstream=told)


def with_author(server: str, told: UpstreamCallError) -> tuple[int, str, object]:
    """A refusal's code, message and data, with the server's name put before. Raises UnsafeQuestion."""
    refusal: Any = told.details["upstream"]
    code, message, data = refusal["code"], refusal["message"], refusal["data"]
    if code != REQUIRED or not isinstance(data, dict) or not isinstance(data.get("elicitations"), list):
        return code, message, data
    asked = [authored_elicitation(server, each) for each in data["elicitations"] if isinstance(each, dict)]
    return code, words_of(server, message), {**data, "elicitations": asked}


def concerns_client(error: envelope.Buffer, others: Mapping[str, Raw]) -> bool:
    """Whether an error is about the form of a modern client's request, whose other params are `others`."""
    code = envelope.read_error(error)[0]
    return code == MISSING_CAPABILITY or (code == envelope.INVALID_PARAMS and "requestState" in others)


def needs_tasks(error: envelope.Buffer) -> bool:
    """Whether an error says that the call needs the tasks extension (SEP-2663)."""
    names_tasks = protocol.TASKS_EXTENSION.encode() in bytes(error)
    return names_tasks and envelope.read_error(error)[0] == MISSING_CAPABILITY


MAX_KNOWN = 64
"""Newest URLs, of all servers, that one client's user may still have open."""


class _Elicitation(Struct):
    elicitationId: object = None  # noqa: N815 - the wire's name
    mode: object = None


class _Data(Struct):
    elicitations: list[_Elicitation] = []


class _Required(Struct):
    code: int
    data: _Data


_decode = msgspec.json.Decoder(_Elicitation).decode
_decode_required = msgspec.json.Decoder(_Required).decode


MAX_OPEN = 32
"""Requests open at one client: more than a user answers."""

MAX_OF_SERVER = 8
"""Open requests of one server at a client, which leave room for other servers."""


@attrs.define(eq=False)
class ServerRequests:
    """The servers' requests open at one client of a revision up to 2025-11-25."""

    _peer: Peer
    _calls: Container[bytes]
    _sent_to_urls: dict[ServerRequests, None]
    unsafe: Callable[[str, UnsafeQuestion], None]
    capabilities: Raw = NOTHING
    roots_known_to: set[str] = attrs.field(factory=set, init=False)
    urls: dict[tuple[str, str], None] = attrs.field(factory=dict, init=False)
    """Open elicitations at a URL, by server and id."""
    _open: set[RelayedRequest] = attrs.field(factory=set, init=False)

    def withheld(self, server: str, why: UnsafeQuestion) -> InputRefused:
        """Record that a question must not be shown to users, and return the error for its call."""
        self.unsafe(server, why)
        return InputRefused(f"server {server} sent a question that mcpd does not show to users: {why}")

    def ask(self, request: PeerRequest, request_id: bytes | None) -> RelayedRequest | None:
        """Send the client a request that belongs to its own request `request_id`. None if mcpd answered it."""
        server = request.server
        if lacks := lacking(self.capabilities, request):
            answer_instead(request, lacks)
        elif sum(each.server == server for each in self._open) >= MAX_OF_SERVER:
            text = f"{MAX_OF_SERVER} requests of this server are open at this client already"
            request.refuse(envelope.INVALID_REQUEST, text)
        elif len(self._open) >= MAX_OPEN:
            request.refuse(envelope.INVALID_REQUEST, f"{MAX_OPEN} requests are open at this client already")
        else:
            if request.method == protocol.LIST_ROOTS:
                self.roots_known_to.add(server)
            if request.params is not None and b"elicitationId" in bytes(request.params):
                with suppress(*protocol.UNREADABLE):
                    self._remember(server, _decode(request.params))
            asked = RelayedRequest(self, request, request_id)
            self._open.add(asked)
            asked.uid = self._peer.requests.open(asked, forwarded=False)
            self._peer.send_request(asked.uid, request.method, _params(request, asked), request_id)
            return asked
        return None

    def close(self, asked: RelayedRequest, reason: str) -> None:
        """Withdraw a request that is open at the client, with a reason."""
        if self._peer.requests.take(asked.uid) is not None:
            self.ended(asked)
            # Over HTTP, the stream that it went out on ends with its call.
            stream = asked.request_id if asked.request_id in self._calls else None
            self._peer.notify(*protocol.cancelled(asked.uid, reason), stream)

    def ended(self, asked: RelayedRequest) -> None:
        """Forget a request that has ended."""
        self._open.discard(asked)

    def is_asked_about(self, request_id: bytes) -> bool:
        """Whether a server's request that belongs to this request of the client is open."""
        return any(each.request_id == request_id for each in self._open)

    def takes_url(self, server: str, error: envelope.Buffer) -> bool:
        """Whether a server's error sends the user to a URL (`REQUIRED`) and the client can show URLs."""
        if not has(self.capabilities, "elicitation", "url"):
            return False
        found = protocol.decoded(_decode_required, error)
        if found is None or found.code != REQUIRED:
            return False
        for each in found.data.elicitations:
            self._remember(server, each)
        return True

    def hear(self, server: str, params: Raw) -> None:
        """Tell the client that its user has finished at a URL, if the client has shown that URL."""
        with suppress(*protocol.UNREADABLE):
            found = _decode(params).elicitationId
            if isinstance(found, str) and (server, found) in self.urls:
                del self.urls[server, found]
                self._peer.notify(COMPLETE, bytes(params))

    def leave(self) -> None:
        """Stop listening, because the client has left."""
        self._sent_to_urls.pop(self, None)

    def _remember(self, server: str, elicitation: _Elicitation) -> None:
        if elicitation.mode == "url" and isinstance(elicitation.elicitationId, str):
            self._sent_to_urls[self] = None
            keep_latest(self.urls, (server, elicitation.elicitationId), None, MAX_KNOWN)


class RelayedRequest(OwnExchange):
    """A server's request open at a client, as the exchange behind mcpd's request (`wire.requests.Exchange`)."""

    def __init__(self, asking: ServerRequests, request: PeerRequest, request_id: bytes | None) -> None:
        self.uid = 0
        self.server = request.server
        self.request_id = request_id
        self.token = _token_of(request)
        self.limit: trio.CancelScope | None = None
        """The scope of the task that times the request; None if a call does."""
        self._asking = asking
        self._request = request
        request.on_withdrawn = self.withdraw

    def withdraw(self, reason: str) -> None:
        """Withdraw the request from the client."""
        self._release()
        self._asking.close(self, reason)

    def answered(self, result: envelope.Buffer) -> None:
        """Pass the client's answer to the server; MCP requires an object."""
        self._ended()
        if bytes(memoryview(result)[:1]) == b"{":
            self._request.answer(result)
        else:
            self._request.refuse(envelope.INTERNAL_ERROR, "the client's answer is not an object")

    def refused(self, error: envelope.Buffer) -> None:
        """Pass the client's error to the server."""
        self._ended()
        if envelope.is_error_object(error):
            self._request.refuse_as(error)
        else:
            self._request.refuse(envelope.INTERNAL_ERROR, "the client's error is not an error object")

    def lost(self, error: CallError) -> None:
        """Refuse the server's request, because no answer will come."""
        self._ended()
        self._request.refuse(envelope.INTERNAL_ERROR, f"the client has not answered: {error.message}")

    def progressed(self, params: dict[str, Raw]) -> None:
        """Pass the client's progress to the server, under the server's own token."""
        if self.token is not None:
            self._request.report({**params, "progressToken": self.token})

    def _ended(self) -> None:
        self._release()
        self._asking.ended(self)

    def _release(self) -> None:
        if self.limit is not None:
            self.limit.cancel()


def _token_of(request: PeerRequest) -> Raw | None:
    if request.params is None or b"progressToken" not in bytes(request.params):
        return None
    token = (protocol.decoded(protocol.meta_of, request.params) or {}).get("progressToken")
    return None if token is None else token.copy()


def _params(request: PeerRequest, asked: RelayedRequest) -> tuple[envelope.Buffer, ...]:
    if request.params is None:
        return (b"{}",)
    if asked.token is None:
        return (request.params,)
    members = protocol.decode_members(request.params)
    meta = {**protocol.meta_of(request.params), "progressToken": asked.uid}
    return (msgspec.json.encode({**members, "_meta": meta}),)
