"""Answers in the daemon's place: the bridge refuses requests, and answers a client's first ones.

Agents request handshake and tools only once, then drop a failing server, and their models never learn why.
Here they get a handshake and one tool, which names the trouble; once a daemon is there, the list changes.
"""

from __future__ import annotations

from daemon import __version__
from daemon.bridge import requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]


INTERNAL_ERROR = -32603  # JSON-RPC's code for an error that is not the client's; `data.code` specifies it

LOST = (
    "UpstreamLost",
    (
        "the connection to the daemon ended before the answer came; whether the call ran is unknown. Check its"
        " effects before you call again."
    ),
)  # refuses a request that was sent and never answered

TORN = (
    "UpstreamUnavailable",
    (
        "the daemon ended before it passed on this request, which is too long to keep. The request did not"
        " run: it is safe to send it again."
    ),
)  # refuses a request that was sent in part, or that the daemon has not forwarded

FULL = (
    "UpstreamUnavailable",
    (
        "the daemon is not running, and too many requests wait for it already. This request was not sent: it"
        " is safe to try again in a moment."
    ),
)  # refuses a request without a daemon and without room to keep it

_ABSENT = (
    "{trouble}\n{lasted}The request was not sent: it is safe to try again once that is corrected. If you cannot"
    " do that yourself, tell the user."
)

Refusal = tuple[str, str]  # A code of `daemon.errors`, and the remedy


def absent(trouble: str, seconds: float = 0.0) -> Refusal:
    """The refusal of a request that has waited `seconds` for a daemon in vain."""
    lasted = f"This has lasted for {seconds:.0f} s. " if seconds else ""
    return "UpstreamUnavailable", _ABSENT.format(trouble=trouble, lasted=lasted)


def refuse(request_id: bytes, method: bytes | None, refusal: Refusal, *, modern: bool) -> bytes:
    """The line that refuses a request: a call with a result for the model, others with a JSON-RPC error."""
    code, text = refusal
    if method != requests.CALL:
        return error_line(request_id, INTERNAL_ERROR, f"{code}: {text}", {"code": code})
    structured = {"structuredContent": {"error": {"code": code, "message": text}}}
    return result_line(request_id, {**_text(f"{code}: {text}", modern=modern), **structured, "isError": True})


def _text(text: str, *, modern: bool) -> dict[str, object]:
    content: dict[str, object] = {"content": [{"type": "text", "text": text}]}
    return {"resultType": "complete", **content} if modern else content


def result_line(request_id: bytes, result: object) -> bytes:
    """The JSON-RPC line of a result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (request_id, _encode(result))


def error_line(request_id: bytes, code: int, message: str, data: object) -> bytes:
    """The JSON-RPC line of an error."""
    error = {"code": code, "message": message, "data": data}
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (request_id, _encode(error))


def _encode(body: object) -> bytes:
    import json  # noqa: PLC0415 - 6 ms, for which no starting client should wait

    return json.dumps(body, separators=(",", ":")).encode()


HANDSHAKE_SECONDS = 1.0
"""Seconds that a handshake waits for a starting daemon, which binds in 0.2 s and has better instructions."""

LIST_SECONDS = 3.0
"""Seconds that non-calls wait: with the handshake's, less than 5 s, after which the first agents give up."""

_PATIENCE = {
    requests.PING: 0.0,
    requests.LISTEN: 0.0,
    requests.INITIALIZE: HANDSHAKE_SECONDS,
    requests.DISCOVER: HANDSHAKE_SECONDS,
    requests.CALL: requests.WAIT_SECONDS,
}

_LISTS = {
    requests.TOOLS_LIST: "tools",
    requests.PROMPTS_LIST: "prompts",
    requests.RESOURCES_LIST: "resources",
    requests.TEMPLATES_LIST: "resourceTemplates",
}

ASKED_FIRST = frozenset({requests.INITIALIZE, requests.DISCOVER, *_LISTS})
"""A client's first requests, which the bridge answers even if a daemon has accepted but is silent."""

_ANSWERED = ASKED_FIRST | {requests.PING, requests.LISTEN}

STATUS = "mcpd_status"
"""The only tool in the list; the daemon's tool about servers that are down has the same name."""

LISTED = b'"name":"%b"' % STATUS.encode()  # the beginning of that tool in the daemon's list

INSTRUCTIONS = (
    "The mcpd daemon, which brings the tools of this server, did not answer when this session began. Until it"
    f" does there is one tool, {STATUS}: it waits for the daemon and says what to do. Then the daemon's own"
    " tools take its place in the list."
)

_DESCRIPTION = (
    "Call this if you miss a tool. The mcpd daemon, which brings the tools of this server, did not answer when"
    " this list was made. This tool says that the tools are there, or what the user has to do; where mcpd"
    f" starts its daemon by itself, it waits up to {requests.WAIT_SECONDS:.0f} s for it.\nWhat was wrong: "
)

ARRIVED = (
    f"The mcpd daemon is running now, and its tools have taken the place of {STATUS} in the list. If you do not"
    " see them, this client has not asked for the list again: ask the user to reconnect it to mcpd, or to begin"
    " a new session."
)  # the tool's text when a daemon is there

REFUSED = (
    "The mcpd daemon is running now, and refuses this client: {reason}\nIf you cannot correct that yourself,"
    " tell the user, who has to reconnect this client to mcpd afterwards."
)  # the tool's text when that daemon refuses this client

# As in `daemon.protocol`, whose import costs too much here; a test compares them.
_HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_MODERN_VERSION = "2026-07-28"
_META = "io.modelcontextprotocol/"
_CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}
_WISHES = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
_IDENTITY = {"name": "mcpd", "version": __version__}
_UNSUPPORTED_VERSION = -32022
_NO_REASON = "it gave no reason; see its log."
_UNCACHED = {"ttlMs": 0, "cacheScope": "private"}


def patience(method: bytes | None) -> float:
    """Seconds that a request waits for the first daemon."""
    return _PATIENCE.get(method or b"", LIST_SECONDS)


def answer(item: requests.Item, trouble: str) -> bytes | None:
    """The line that answers a request after waiting for a daemon; None if it can only be refused."""
    if not item.id or item.method not in _ANSWERED:
        return None
    params = _params(item.line)
    if params is None:
        return None
    meta = params.get("_meta")
    version = meta.get(_META + "protocolVersion") if isinstance(meta, dict) else None
    if version not in (None, _MODERN_VERSION):
        supported = {"supported": [*_HANDSHAKE_VERSIONS, _MODERN_VERSION], "requested": version}
        return error_line(item.id, _UNSUPPORTED_VERSION, f"Unsupported protocol version: {version}", supported)
    if item.method == requests.LISTEN:
        return _acknowledged(item.id, params)
    return result_line(item.id, _result(item.method, params, trouble, modern=version is not None))


def asks_for_status(line: bytes) -> bool:
    """Whether a call is for the bridge's own tool."""
    if STATUS.encode() not in line:
        return False
    return (_params(line) or {}).get("name") == STATUS


def arrived(request_id: bytes, refusal: str, *, modern: bool) -> bytes:
    """The line that answers the bridge's own tool once a daemon is there; `refusal` is the daemon's, if any."""
    text = REFUSED.format(reason=refusal) if refusal else ARRIVED
    return result_line(request_id, {**_text(text, modern=modern), "isError": bool(refusal)})


def reason(line: bytes | bytearray) -> str:
    """The message in a daemon's error; never empty."""
    import json  # noqa: PLC0415 - 6 ms, for which no starting client should wait

    try:
        return str(json.loads(line)["error"]["message"]) or _NO_REASON
    except (ValueError, KeyError, TypeError, RecursionError):
        return _NO_REASON


def _params(line: bytes) -> Json | None:
    import json  # noqa: PLC0415 - 6 ms, for which no starting client should wait

    try:
        params = json.loads(line).get("params", {})
    except (ValueError, AttributeError, RecursionError):
        return None
    return params if isinstance(params, dict) else None


def _result(method: bytes, params: Json, trouble: str, *, modern: bool) -> Json:
    if method == requests.INITIALIZE:
        wanted = params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in _HANDSHAKE_VERSIONS else _HANDSHAKE_VERSIONS[-1],
            "capabilities": _CAPABILITIES,
            "serverInfo": {**_IDENTITY, "title": "mcpd, the init system for MCP servers"},
            "instructions": INSTRUCTIONS,
        }
    if method == requests.DISCOVER:
        return {
            "resultType": "complete",
            "supportedVersions": [*_HANDSHAKE_VERSIONS, _MODERN_VERSION],
            "capabilities": _CAPABILITIES,
            "instructions": INSTRUCTIONS,
            **_UNCACHED,
            "_meta": {_META + "serverInfo": _IDENTITY},
        }
    if method == requests.PING:
        return {}
    tool = {
        "name": STATUS,
        "description": _DESCRIPTION + trouble,
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "_meta": {"anthropic/alwaysLoad": True},
    }
    listed: Json = {_LISTS[method]: [tool] if method == requests.TOOLS_LIST else []}
    return {"resultType": "complete", **listed, **_UNCACHED} if modern else listed


def _acknowledged(request_id: bytes, params: Json) -> bytes:
    import json  # noqa: PLC0415 - 6 ms, for which no starting client should wait

    wanted = params.get("notifications")
    asked = wanted if isinstance(wanted, dict) else {}
    acknowledgement = {
        "notifications": {each: True for each in _WISHES if asked.get(each) is True},
        "_meta": {_META + "subscriptionId": json.loads(request_id)},
    }
    return b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":%b}\n' % _encode(
        acknowledgement
    )
