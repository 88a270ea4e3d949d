"""The parts of MCP that mcpd writes itself: versions, reserved keys, and the answers of both eras' handshakes.

Sources: the MCP specification, revisions 2024-11-05 to 2025-11-25 (`initialize`) and 2026-07-28
(`server/discover`, an envelope in each request's `_meta`, `resultType`, `ttlMs`, `cacheScope`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions with `initialize`, oldest first; the newest is offered."""

MODERN_VERSION = "2026-07-28"
"""The stateless revision."""

META = "io.modelcontextprotocol/"
"""The prefix of the keys in `_meta` that belong to the protocol."""

VERSION_KEY = META + "protocolVersion"
CAPABILITIES_KEY = META + "clientCapabilities"
CLIENT_INFO_KEY = META + "clientInfo"
SERVER_INFO_KEY = META + "serverInfo"
SUBSCRIPTION_KEY = META + "subscriptionId"
LOG_LEVEL_KEY = META + "logLevel"
RELATED_TASK_KEY = META + "related-task"

SESSION_KEY = "mcpd/session"
"""The key in the `_meta` of a request that names its session. It concerns us and no server."""

SUBPROTOCOL = "mcp"
"""Of a WebSocket that carries MCP."""

HELLO = "mcpd/hello"
"""The notification with which `mcpd connect` names a profile, a surface and a session. Only the first message
of a connection may be one, or the client behind a bridge could leave the profile that it was given."""

UNSENT = "mcpd/unsent"
"""The notification with which a daemon that stops names a bridge the requests that it has passed on to nobody:
`{"ids": [...]}`. The bridge sends this daemon nothing more, and holds those requests for the next one."""

IDENTITY = {"name": "mcpd", "version": __version__}
"""How mcpd introduces itself, to servers and to clients."""

TASKS: Mapping[str, object] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
"""The capability that mcpd declares to clients of whose servers one has it (MCP 2025-11-25, tasks)."""

CLIENT_CAPABILITIES: Mapping[str, object] = {
    "roots": {"listChanged": True},
    "sampling": {"context": {}, "tools": {}},
    "elicitation": {"form": {}, "url": {}},
}
"""The capabilities that mcpd declares to servers: what some client may have. Servers show fewer tools to a
client without them, and each request goes only to a client that has said it can answer."""

LIST_ROOTS = "roots/list"
"""The request for a client's roots."""

ROOTS_CHANGED = "notifications/roots/list_changed"
"""The notification that a client's roots have changed."""

ASKED_OF_CLIENTS = frozenset({"sampling/createMessage", "elicitation/create", LIST_ROOTS})
"""The requests that servers make of clients (MCP, client features)."""

CALL_TOOL = "tools/call"
"""The method that calls a tool."""

GET_TASK = "tasks/get"
"""The method that tells how a task is."""

TASK_RESULT = "tasks/result"
"""The method that waits for a task and answers with its result."""

CANCEL_TASK = "tasks/cancel"
"""The method that ends a task."""

INITIALIZED = "notifications/initialized"
"""The notification that ends a handshake."""

GET_PROMPT = "prompts/get"
"""The method that fills in a prompt."""

READ_RESOURCE = "resources/read"
"""The method that reads a resource."""

COMPLETE = "completion/complete"
"""The method that completes an argument of a prompt or of a template."""

RESOURCE_NOT_FOUND = -32002
"""JSON-RPC code for an unknown resource before 2026-07-28, which has -32602 for it."""

CANCEL = "notifications/cancelled"
"""The notification that a request is cancelled."""

PROGRESS = "notifications/progress"
"""The notification of a request's progress."""

LOG_MESSAGE = "notifications/message"
"""The notification with a line of a server's log."""

RESOURCE_UPDATED = "notifications/resources/updated"
"""The notification that a resource has changed that somebody follows."""

TASK_STATUS = "notifications/tasks/status"
"""The notification of a task's state."""

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
"""The notification of what a `subscriptions/listen` will be sent (MCP 2026-07-28)."""

UNSUPPORTED_VERSION = -32022
"""JSON-RPC code of 2026-07-28 for a protocol version that the server does not speak."""

LIST_TTL_MS = 0
"""Clients may not cache our lists (`ttlMs`): a category can change with any server."""

UNCACHED = b'"ttlMs":%d,"cacheScope":"private"' % LIST_TTL_MS
"""The members of a result of 2026-07-28 that say that it may not be cached, raw."""

_encode = msgspec.json.encode


class CallParams(Struct):
    """The `params` of `tools/call`, with the payload raw."""

    name: str
    arguments: Raw
    meta: dict[str, Raw] | None
    others: Mapping[str, Raw]
    """All other members, which travel on: `task`, `inputResponses`, `requestState`, and what is unknown."""


class _NameAndMeta(Struct):
    name: str
    meta: dict[str, Raw] | None = msgspec.field(name="_meta", default=None)


_OF_CALLS = frozenset({"name", "arguments", "_meta"})
NO_ARGUMENTS = Raw(b"{}")


class _MetaOnly(Struct):
    meta: dict[str, Raw] | None = msgspec.field(name="_meta", default=None)


class InitializeParams(Struct):
    """The `params` of `initialize`."""

    protocolVersion: object = None  # noqa: N815 - the wire's name
    clientInfo: object = None  # noqa: N815 - the wire's name
    capabilities: Raw | UnsetType = UNSET


class ListParams(Struct):
    """The `params` of a request for a list."""

    cursor: str | None = None


class _ResultType(Struct):
    resultType: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name


decode_initialize = msgspec.json.Decoder(InitializeParams).decode
decode_list = msgspec.json.Decoder(ListParams).decode
_decode_named = msgspec.json.Decoder(_NameAndMeta).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_meta = msgspec.json.Decoder(_MetaOnly).decode
_decode_result_type = msgspec.json.Decoder(_ResultType).decode


def decode_call(params: bytes | Raw) -> CallParams:
    """The `params` of `tools/call`.

    Raises:
        msgspec.MsgspecError: they are not those of a call.
    """
    named, members = _decode_named(params), _decode_members(params)
    others = {key: members[key] for key in members if key not in _OF_CALLS}
    return CallParams(named.name, members.get("arguments", NO_ARGUMENTS), named.meta, others)


def members_before(others: Mapping[str, Raw]) -> bytes:
    """Members of an object, raw, each with the comma that separates it from what follows; empty for none."""
    return b"".join(b"%b:%b," % (_encode(key), bytes(value)) for key, value in others.items())


def members_of(params: Raw | None) -> dict[str, Raw]:
    """The members of the `params` of any request, raw, except `_meta`.

    Raises:
        msgspec.MsgspecError: they are no object.
    """
    members = {} if params is None else _decode_members(params)
    return {key: value for key, value in members.items() if key != "_meta"}


def meta_of(params: Raw | None) -> dict[str, Raw]:
    """The `_meta` of any request; empty if there is none.

    Raises:
        msgspec.MsgspecError: it is not an object.
    """
    return {} if params is None else _decode_meta(params).meta or {}


def foreign_meta(meta: dict[str, Raw]) -> dict[str, Raw]:
    """The members of a caller's `_meta` that travel on: all that do not belong to its own connection."""
    own = {"progressToken", SESSION_KEY}
    return {key: value for key, value in meta.items() if key not in own and not key.startswith(META)}


def tool_params(tool: str, arguments: bytes | memoryview | Raw) -> tuple[bytes, bytes | memoryview | Raw]:
    """The members of the `params` of `tools/call` except `_meta`, raw, for `ports.CallToSend.params`.

    Args:
        tool: the bare name of the tool.
        arguments: a JSON object, passed on byte for byte.
    """
    return tool_head(tool), arguments


def tool_head(tool: str) -> bytes:
    """The raw bytes before the arguments in the `params` of `tools/call`, for a tool's bare name."""
    return b'"name":%b,"arguments":' % _encode(tool)


def cancelled(request_id: int, reason: str) -> tuple[str, bytes]:
    """Method and params of the notification that a request is cancelled (MCP, cancellation)."""
    return CANCEL, _encode({"requestId": request_id, "reason": reason})


def cancelled_id(params: Raw) -> bytes:
    """The id of the request that a `notifications/cancelled` is about, raw; empty if it names none.

    Raises:
        msgspec.MsgspecError: the params are no object.
    """
    return bytes(msgspec.json.decode(params, type=dict[str, Raw]).get("requestId", b""))


def unsupported(version: object) -> tuple[int, str, dict[str, object]]:
    """Code, text and data of the error about an unsupported protocol version."""
    data = {"supported": [*HANDSHAKE_VERSIONS, MODERN_VERSION], "requested": version}
    return UNSUPPORTED_VERSION, f"Unsupported protocol version: {version}", data


def wanted_notifications(params: Raw | None) -> dict[str, object]:
    """The notifications that a `subscriptions/listen` asks for; empty if they cannot be read.

    Raises:
        msgspec.MsgspecError: its params are no object.
    """
    wanted = msgspec.json.decode(params or b"{}", type=dict[str, object]).get("notifications")
    return wanted if isinstance(wanted, dict) else {}


def texts_in(value: object) -> list[str]:
    """The strings in a decoded array; empty if it is none."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def already_in_flight(request_id: bytes) -> str:
    """The error text about a request that has the id of an open one."""
    return f"Invalid Request: id {request_id.decode(errors='replace')} is already in flight"


def of_subscription(subscription: bytes, **params: object) -> bytes:
    """The params of a notification within a subscription."""
    return _encode({**params, "_meta": {SUBSCRIPTION_KEY: Raw(subscription)}})


def completed(result: bytes, more: bytes = b"") -> bytes:
    """A result with the `resultType` that 2026-07-28 requires, added only if its author left it out.

    Args:
        result: raw JSON.
        more: the other members, raw, that this revision requires of such a result.
    """
    try:
        if _decode_result_type(result).resultType is not UNSET:
            return result
    except (msgspec.MsgspecError, RecursionError):
        # Not an object, hence not a result of MCP's: there is nothing to add to, and it is not ours to judge.
        return result
    head = b'{"resultType":"complete"' + (b"," + more if more else b"")
    rest = result.lstrip()[1:].lstrip()
    return head + (b"" if rest.startswith(b"}") else b",") + rest


def envelope_meta(version: str, can: Mapping[str, object] = CLIENT_CAPABILITIES) -> dict[str, object]:
    """The `_meta` members of each request of the daemon's own to a modern server.

    All that some client `can` is declared: it decides what servers list.
    """
    return {VERSION_KEY: version, CAPABILITIES_KEY: can, CLIENT_INFO_KEY: IDENTITY}
