"""The parts of MCP that mcpd writes itself: versions, reserved keys, both eras' handshakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon import __version__

Decoded = TypeVar("Decoded")

UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Errors of a decoder: not JSON, another shape, not UTF-8, or nested too deeply."""

decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
"""Decodes an object, leaving its members raw."""
decode_object = msgspec.json.Decoder(dict[str, object]).decode
decode_text = msgspec.json.Decoder(str).decode

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Versions with `initialize`, oldest first; mcpd offers the newest."""

MODERN_VERSION = "2026-07-28"
"""The stateless version."""

DROPPED: Mapping[str, str] = {
    "logging/setLevel": "each request names its level in _meta",
    "resources/subscribe": "subscriptions/listen names the resources",
    "resources/unsubscribe": "subscriptions/listen names the resources",
    "tasks/list": "each client knows its tasks",
    "tasks/result": "tasks/get has the result",
}
"""The replacement of each method that `MODERN_VERSION` lacks, except the methods of the handshake."""

META = "io.modelcontextprotocol/"
"""The prefix of the protocol's keys in `_meta`."""

VERSION_KEY = META + "protocolVersion"
CAPABILITIES_KEY = META + "clientCapabilities"
CLIENT_INFO_KEY = META + "clientInfo"
SERVER_INFO_KEY = META + "serverInfo"
SUBSCRIPTION_KEY = META + "subscriptionId"
LOG_LEVEL_KEY = META + "logLevel"
RELATED_TASK_KEY = META + "related-task"
"""The `_meta` key that names a request's task (MCP 2025-11-25, tasks)."""

UI = META + "ui"
"""The extension for MCP Apps (SEP-1865)."""

SKILLS = META + "skills"
"""The extension for skills (SEP-2640)."""

SESSION_KEY = "mcpd/session"
"""The `_meta` key that names a request's session; never sent to servers."""

SUBPROTOCOL = "mcp"
"""The subprotocol of a WebSocket that carries MCP."""

HELLO = "mcpd/hello"
"""The notification with which `mcpd connect` sends its profile, surface and session, only as the first message
of a connection."""

UNSENT = "mcpd/unsent"
"""Notification from a stopping daemon: the requests that a bridge keeps for the next one, `{"ids": [...]}`."""

HELD = "mcpd/held"
"""Notification from a bridge after `UNSENT`: it has sent its last line to the stopping daemon."""

TASKS_EXTENSION = META + "tasks"
"""The tasks extension (SEP-2663): a server may answer a call with a task, which the client polls."""

IDENTITY = {"name": "mcpd", "version": __version__}
TASKS: Mapping[str, object] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
"""The tasks capability (MCP 2025-11-25), declared to clients of a server that has it."""

CLIENT_CAPABILITIES: Mapping[str, object] = {
    "roots": {"listChanged": True},
    "sampling": {"context": {}, "tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}},
}
"""The capabilities declared to servers, the union of all clients': without them, servers show fewer tools."""

LIST_ROOTS = "roots/list"
ROOTS_CHANGED = "notifications/roots/list_changed"
ASKED_OF_CLIENTS = frozenset({"sampling/createMessage", "elicitation/create", LIST_ROOTS})
"""Requests of servers to clients (MCP, client features)."""

CALL_TOOL = "tools/call"
GET_TASK = "tasks/get"
TASK_RESULT = "tasks/result"
"""The request that waits for a task's result."""

CANCEL_TASK = "tasks/cancel"
UPDATE_TASK = "tasks/update"
"""The request that answers a task's question (SEP-2663)."""

INITIALIZED = "notifications/initialized"
GET_PROMPT = "prompts/get"
READ_RESOURCE = "resources/read"
NAMED_BY = {CALL_TOOL: "name", GET_PROMPT: "name", READ_RESOURCE: "uri"}
NAMED_BY |= dict.fromkeys((GET_TASK, UPDATE_TASK, CANCEL_TASK), "taskId")
"""The member of `params` that the header `Mcp-Name` repeats, by method."""
GET_SKILL = "skills/get"
READ_DIRECTORY = "resources/directory/read"
COMPLETE = "completion/complete"
RESOURCE_NOT_FOUND = -32002
"""The JSON-RPC code for an unknown resource before 2026-07-28, which uses -32602."""

CANCEL = "notifications/cancelled"
PROGRESS = "notifications/progress"
LOG_MESSAGE = "notifications/message"
"""A line of a server's log."""

RESOURCE_UPDATED = "notifications/resources/updated"
TASK_STATUS = "notifications/tasks/status"
TASK_CHANGED = "notifications/tasks"
"""The notification with a task's whole state (SEP-2663)."""

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
"""The notification that confirms the filter of a `subscriptions/listen` (MCP 2026-07-28)."""

UNSUPPORTED_VERSION = -32022
"""The JSON-RPC code of 2026-07-28."""

LIST_TTL_MS = 0
"""Milliseconds that clients may cache mcpd's lists (`ttlMs`): none, as any server can change a category."""

UNCACHED = b'"ttlMs":%d,"cacheScope":"private"' % LIST_TTL_MS
"""The raw members that forbid caching (2026-07-28)."""

_encode = msgspec.json.encode


class CallParams(Struct):
    """The `params` of `tools/call`, with a raw payload."""

    name: str
    arguments: Raw
    meta: dict[str, Raw] | None
    others: Mapping[str, Raw]
    """Other members, which are passed on: `task`, `inputResponses`, `requestState`, unknown ones."""


class NamedParams(Struct):
    """The `params` of a request that names its subject (`NAMED_BY`)."""

    name: str = ""
    uri: str = ""
    taskId: str = ""  # noqa: N815 - the wire's name
    arguments: Raw | UnsetType = UNSET


decode_named = msgspec.json.Decoder(NamedParams).decode


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
    """The `params` of a list request."""

    cursor: str | None = None


class _ResultType(Struct):
    resultType: str | UnsetType = UNSET  # noqa: N815 - the wire's name


decode_initialize = msgspec.json.Decoder(InitializeParams).decode
decode_list = msgspec.json.Decoder(ListParams).decode
_decode_named = msgspec.json.Decoder(_NameAndMeta).decode
_decode_meta = msgspec.json.Decoder(_MetaOnly).decode
decode_result_type = msgspec.json.Decoder(_ResultType).decode


def decode_call(params: bytes | Raw) -> CallParams:
    """Decode the `params` of `tools/call`; raises `msgspec.MsgspecError`."""
    named, members = _decode_named(params), decode_members(params)
    others = {key: members[key] for key in members if key not in _OF_CALLS}
    return CallParams(named.name, members.get("arguments", NO_ARGUMENTS), named.meta, others)


def members_before(others: Mapping[str, Raw]) -> bytes:
    """Raw members of an object, each followed by a comma."""
    return b"".join(b"%b:%b," % (_encode(key), bytes(value)) for key, value in others.items())


def members_of(params: Raw | None) -> dict[str, Raw]:
    """The raw members of any request's `params` except `_meta`; raises `msgspec.MsgspecError`."""
    members = {} if params is None else decode_members(params)
    return {key: value for key, value in members.items() if key != "_meta"}


def meta_of(params: Raw | None) -> dict[str, Raw]:
    """The `_meta` of any request, or empty; raises `msgspec.MsgspecError`."""
    return {} if params is None else _decode_meta(params).meta or {}


def foreign_meta(meta: dict[str, Raw]) -> dict[str, Raw]:
    """The members of a caller's `_meta` that do not belong to its own connection."""
    own = {"progressToken", SESSION_KEY}
    return {key: value for key, value in meta.items() if key not in own and not key.startswith(META)}


def tool_params(tool: str, arguments: bytes | memoryview | Raw) -> tuple[bytes, bytes | memoryview | Raw]:
    """The raw members of `tools/call` for `ports.CallToSend.params`; arguments pass byte for byte."""
    return tool_head(tool), arguments


def tool_head(tool: str) -> bytes:
    """The raw bytes before the arguments of `tools/call`."""
    return b'"name":%b,"arguments":' % _encode(tool)


def cancelled(request_id: int, reason: str) -> tuple[str, bytes]:
    """Method and params of a cancellation (MCP, cancellation)."""
    return CANCEL, _encode({"requestId": request_id, "reason": reason})


def cancelled_id(params: Raw) -> bytes:
    """The raw id in a `notifications/cancelled`, or empty; raises `msgspec.MsgspecError`."""
    return bytes(msgspec.json.decode(params, type=dict[str, Raw]).get("requestId", b""))


def unsupported(version: object) -> tuple[int, str, dict[str, object]]:
    """Code, text and data of the error about an unsupported version."""
    data = {"supported": [*HANDSHAKE_VERSIONS, MODERN_VERSION], "requested": version}
    return UNSUPPORTED_VERSION, f"Unsupported protocol version: {version}", data


def wanted_notifications(params: Raw | None) -> dict[str, object]:
    """The filter of a `subscriptions/listen`, or empty; raises `msgspec.MsgspecError`."""
    wanted = msgspec.json.decode(params or b"{}", type=dict[str, object]).get("notifications")
    return wanted if isinstance(wanted, dict) else {}


def decoded(
    decode: Callable[[Any], Decoded], raw: bytes | bytearray | memoryview | Raw | str
) -> Decoded | None:
    """A peer's decoded JSON; None if unreadable: not JSON, another shape, not UTF-8, or nested too deeply."""
    try:
        return decode(raw)
    except UNREADABLE:
        return None


def texts_in(value: object) -> list[str]:
    """The strings in a decoded array; empty for any other value."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def already_in_flight(request_id: bytes) -> str:
    """The error text for a request with the id of another request that is still open."""
    return f"Invalid Request: id {request_id.decode(errors='replace')} is already in flight"


def of_subscription(subscription: bytes, **params: object) -> bytes:
    """The params of a notification for a subscription."""
    return _encode({**params, "_meta": {SUBSCRIPTION_KEY: Raw(subscription)}})


def completed(result: bytes, more: bytes = b"") -> bytes:
    """A result with the `resultType` of 2026-07-28 and the raw members `more`, unless it has a `resultType`."""
    try:
        if decode_result_type(result).resultType is not UNSET:
            return result
    except (msgspec.MsgspecError, RecursionError):
        # No object, hence no MCP result: pass it on unjudged.
        return result
    head = b'{"resultType":"complete"' + (b"," + more if more else b"")
    rest = result.lstrip()[1:].lstrip()
    return head + (b"" if rest.startswith(b"}") else b",") + rest


MAX_SEARCHED = 64 * 1024
"""Bytes of the longest result searched for `isError`, in a quarter of a millisecond. Errors are shorter; a
longer result counts as a success."""

_SAYS_ERROR = re.compile(rb'"isError"\s*:\s*true')
"""Results without a match, which are most, need not be decoded."""


class _IsError(Struct):
    isError: bool = False  # noqa: N815 - the wire's name


_decode_is_error = msgspec.json.Decoder(_IsError).decode


def is_error(result: bytes | memoryview, most: int = MAX_SEARCHED) -> bool:
    """Whether a result reports an error. Results of more than `most` bytes count as successes."""
    if len(result) > most:
        return False
    # A plain search is three times faster, and most results lack the member.
    raw = bytes(result)
    if b"isError" not in raw or _SAYS_ERROR.search(raw) is None:
        return False
    said = decoded(_decode_is_error, result)
    return said is not None and said.isError


def envelope_meta(version: str, can: Mapping[str, object] = CLIENT_CAPABILITIES) -> dict[str, object]:
    """The `_meta` of the daemon's requests to a modern server, with all capabilities that any client has."""
    return {VERSION_KEY: version, CAPABILITIES_KEY: can, CLIENT_INFO_KEY: IDENTITY}


def brackets_of(line: bytes | bytearray) -> bytes:
    """The structure of valid JSON: all brackets outside strings, braces written as square brackets."""
    if b"\\" in line:
        line = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two adjacent quotes do not change the inside and the outside of strings.
    marks = line.translate(_AS_LISTS, _NOT_NESTING).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def depth_of(brackets: bytes) -> int:
    """Measure the nesting: remove innermost pairs while there are many, then step from pair to pair."""
    folded = 0
    while brackets.count(b"[]") * _WORTH_FOLDING > len(brackets):
        brackets = brackets.replace(b"[]", b"")
        folded += 1
    if not brackets:
        return folded
    valleys = brackets.split(b"[]")
    return folded + 1 + max(accumulate(len(valley) - 2 * valley.count(b"]") for valley in valleys))


_WORTH_FOLDING = 12  # brackets per innermost pair; above this, stepping costs less than folding
_AS_LISTS = bytes.maketrans(b"{}", b"[]")
_NOT_NESTING = bytes(set(range(256)) - set(b'{}[]"'))
