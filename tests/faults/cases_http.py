"""What servers behind HTTP, SSE, WebSocket and unix sockets answer that they should not."""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests.faults.case import LATER, Case, Net
from tests.faults.steps import (
    AGAIN,
    UP,
    Behaves,
    Call,
    Ended,
    ForgetsSessions,
    Hold,
    Reaches,
    Same,
    Served,
    Shows,
    Took,
)
from tests.faults.upstreams import NEVER, Act, http

Json = dict[str, Any]

SECRET = "canary-secret-88112"


def case(name: str, kind: str, *steps: Any, entry: Json | None = None, **more: Any) -> Case:
    """A case of one transport."""
    secrets = more.pop("secrets", ())
    effects = more.pop("effects", None)
    server = Net(kind=kind, entry=entry or {}, **more)
    return Case(name=f"{kind}: {name}", server=server, steps=steps, secrets=secrets, effects=effects)


def calls(act: Act) -> dict[str, list[Act | None]]:
    """The first call meets this, later ones are answered."""
    return {"tools/call": [act, None]}


ERROR = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "not today"}}).encode()

STATUSES = (
    *(
        case(
            f"{status} to a call",
            "http",
            UP,
            Call("effect", code=code, says=says),
            Served(),
            Call(),
            on=calls(http(status, body)),
        )
        for status, body, code, says in (
            ("500 Internal Server Error", b"<h1>oh no</h1>", "UpstreamCallError", "HTTP 500"),
            ("500 Internal Server Error", ERROR, "UpstreamCallError", "not today"),
            ("502 Bad Gateway", b"", "UpstreamLost", "unknown"),
            ("503 Service Unavailable", b"", "UpstreamUnavailable", "not run"),
            ("429 Too Many Requests", b"", "UpstreamUnavailable", "not run"),
            ("403 Forbidden", b"", "UpstreamCallError|UpstreamUnavailable", "403"),
            ("413 Content Too Large", b"", "RequestTooLarge", "413"),
            ("404 Not Found", b"", "UpstreamCallError", "404"),
        )
    ),
    case(
        "401 to a call",
        "http",
        UP,
        Call("effect", code="UpstreamUnavailable"),
        Reaches("needs_auth", reason="401"),
        on=calls(http("401 Unauthorized")),
    ),
    *(
        case(
            f"{status} to the handshake",
            "http",
            Reaches(state, reason=status[:3]),
            Call(code="UpstreamUnavailable"),
            entry={"restart": LATER},
            on={"server/discover": [http(status)], "initialize": [http(status)]},
        )
        for status, state in (
            ("401 Unauthorized", "needs_auth"),
            ("403 Forbidden", "needs_auth"),
            ("500 Internal Server Error", "backoff"),
            ("502 Bad Gateway", "backoff"),
            ("404 Not Found", "backoff"),
        )
    ),
    case(
        "503 for a while",
        "http",
        Ended("503", 2),
        Behaves(),
        Served(),
        Call(),
        on={
            "server/discover": [http("503 Service Unavailable")],
            "initialize": [http("503 Service Unavailable")],
        },
    ),
)

BODIES = (
    *(
        case(
            f"{what} instead of an answer",
            "http",
            UP,
            Call("effect", code=code),
            Served(),
            Call(),
            # No time only for what is waited for in vain.
            entry={"timeouts": {"call": 0.5}} if "UpstreamTimeout" in code else None,
            on=calls(act),
        )
        for what, act, code in (
            (
                "a web page",
                http("200 OK", b"<html>hello</html>", "text/html"),
                "UpstreamLost|UpstreamCallError",
            ),
            ("nothing", http("200 OK", b"", "application/json"), "UpstreamLost|UpstreamCallError"),
            (
                "half of JSON",
                http("200 OK", b'{"jsonrpc":"2.0","id', "application/json"),
                "UpstreamLost|UpstreamCallError",
            ),
            (
                "another's answer",
                http("200 OK", b'{"jsonrpc":"2.0","id":"nobody","result":{}}', "application/json"),
                "UpstreamLost|UpstreamTimeout",
            ),
            ("202", http("202 Accepted"), "UpstreamLost|UpstreamTimeout|UpstreamCallError"),
            (
                "an error in 200",
                http(
                    "200 OK",
                    b'{"jsonrpc":"2.0","id":null,"error":{"code":-5,"message":"no"}}',
                    "application/json",
                ),
                "UpstreamCallError|UpstreamLost",
            ),
            ("no HTTP", Act(raw=b"SSH-2.0-OpenSSH_9.2\r\n", close=1), "UpstreamLost"),
            ("nothing, and the end,", Act(close=1), "UpstreamLost"),
            (
                "less than was announced",
                Act(
                    raw=b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{",
                    close=1,
                ),
                "UpstreamLost",
            ),
            (
                "an event stream that ends",
                http("200 OK", b": nothing\n\n", "text/event-stream"),
                "UpstreamLost",
            ),
            (
                "an event stream of nonsense",
                http("200 OK", b"data: {\n\nevent: x\ndata: y\n\n", "text/event-stream"),
                "UpstreamLost|UpstreamCallError",
            ),
        )
    ),
    case(
        "what unpacks to far more than the limit",
        "http",
        UP,
        Call("effect", code="RequestTooLarge"),
        Call(),
        Same(),
        entry={"limits": {"messageBytes": 100_000}},
        on=calls(http("200 OK", gzip.compress(b" " * 20_000_000), "application/json", content_encoding="gzip")),
    ),
    case(
        "an answer over the limit",
        "http",
        UP,
        Call("bytes", {"count": 200_000}, code="RequestTooLarge"),
        Call(),
        Same(),
        entry={"limits": {"messageBytes": 100_000}},
    ),
)

BAD_REQUEST = http(
    "400 Bad Request", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Session not found"}}'
)
"""A server in use says so of a session that it does not know, and of what it does not like in a request."""

SESSIONS = (
    case(
        "it has forgotten the session",
        "http",
        UP,
        Call(),
        ForgetsSessions(),
        Call("effect", code="UpstreamUnavailable", says="not run"),
        AGAIN,
        Call("effect"),
        session=True,
        effects=1,
    ),
    case(
        "it has forgotten the session with calls in flight",
        "http",
        UP,
        Hold(2),
        ForgetsSessions(),
        Call(code="UpstreamUnavailable"),
        AGAIN,
        Call(),
        session=True,
    ),
    *(
        case(
            f"it ends the session with {status}",
            "http",
            UP,
            Call("effect", code="UpstreamUnavailable"),
            Served(),
            AGAIN,
            session=True,
            on=calls(http(status, body)),
        )
        for status, body in (
            ("404 Not Found", b""),
            ("410 Gone", b""),
        )
    ),
    case(
        "it ends the session with 400 Bad Request",
        "http",
        UP,
        Call("effect", code="UpstreamUnavailable"),
        Served(),
        AGAIN,
        session=True,
        on={"tools/call": [BAD_REQUEST, None], "tools/list": [None, BAD_REQUEST, None]},
    ),
    case(
        "it refuses a call alone with 400 Bad Request",
        "http",
        UP,
        Call("effect", code="UpstreamCallError", says="Session not found"),
        Call(),
        Same(),
        session=True,
        on=calls(BAD_REQUEST),
    ),
)

REDIRECTS = (
    case(
        "a redirect to another origin",
        "http",
        UP,
        Call("effect", code="UpstreamCallError|UpstreamLost"),
        Call(),
        Same(),
        on=calls(http("307 Temporary Redirect", location="http://127.0.0.1:9/elsewhere")),
    ),
    case(
        "a redirect to itself for ever",
        "http",
        UP,
        Call("effect", code="UpstreamCallError|UpstreamLost"),
        Served(),
        on={"tools/call": [http("307 Temporary Redirect", location="/mcp")] * 30 + [None]},
    ),
    case(
        "TLS to a server that speaks none",
        "http",
        Reaches("backoff", reason=r"no answer within 0\.5 s"),
        Call(code="UpstreamUnavailable"),
        url="https://127.0.0.1:{port}/mcp",
        entry={"restart": LATER, "timeouts": {"connect": 0.5}},
    ),
    case(
        "a name that does not exist",
        "http",
        Reaches("backoff", reason="cannot connect"),
        Call(code="UpstreamUnavailable"),
        url="http://no-such-host.invalid:1/mcp",
        entry={"restart": LATER, "timeouts": {"connect": 5}},
    ),
    case(
        "a secret in its url",
        "http",
        Reaches("backoff", reason="cannot connect"),
        Call(code="UpstreamUnavailable"),
        url="http://user:" + SECRET + "@127.0.0.1:{port}/" + SECRET + "?key=" + SECRET,
        listens=False,
        entry={"restart": LATER, "headers": {"Authorization": "Bearer " + SECRET}},
        secrets=(SECRET,),
    ),
)

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
ENDPOINT = b"event: endpoint\ndata: /messages\n\n"

SSE = (
    *(
        case(
            f"the stream is {what}",
            "sse",
            Reaches(state, reason=reason),
            Call(code="UpstreamUnavailable"),
            entry={"restart": LATER},
            on={"GET": [act]},
        )
        for what, act, state, reason in (
            ("401", http("401 Unauthorized"), "needs_auth", "401"),
            ("a web page", http("200 OK", b"<html>", "text/html"), "backoff", ""),
            ("empty", Act(raw=HEAD, close=1), "backoff", "ended its stream"),
            (
                "of another origin",
                Act(raw=HEAD + b"event: endpoint\ndata: http://127.0.0.2:1/x\n\n"),
                "backoff",
                "another origin",
            ),
            ("no HTTP", Act(raw=b"SSH-2.0-OpenSSH_9.2\r\n", close=1), "backoff", "broke"),
        )
    ),
    case(
        "the stream is without an endpoint",
        "sse",
        Reaches("backoff", reason=r"did not open its stream within 0\.5 s"),
        Call(code="UpstreamUnavailable"),
        entry={"restart": LATER, "timeouts": {"connect": 0.5}},
        on={"GET": [Act(raw=HEAD + b": hello\n\n")]},
    ),
    case(
        "comments and unknown events",
        "sse",
        UP,
        Call(),
        Same(),
        on={
            "GET": [
                Act(raw=HEAD + b": hello\n\nevent: odd\ndata: 1\n\nretry: 5\n\n" + ENDPOINT + b": more\n\n")
            ]
        },
    ),
    case(
        "nonsense in the stream",
        "sse",
        UP,
        Call(),
        Same(),
        Shows("noise.count", least=2),
        on={"GET": [Act(raw=HEAD + ENDPOINT + b"data: {\n\ndata: [1]\n\n")]},
    ),
    case(
        "the stream ends during a call",
        "sse",
        UP,
        Call("effect", code="UpstreamLost"),
        AGAIN,
        Call(),
        on=calls(Act(close=1)),
    ),
    *(
        case(
            f"{status} to a call",
            "sse",
            UP,
            Call(code=code),
            Served(),
            on={"POST": [*([None] * before), http(status), None]},
        )
        for status, code, before in (
            ("500 Internal Server Error", "UpstreamCallError", 4),
            ("503 Service Unavailable", "UpstreamUnavailable", 4),
            ("502 Bad Gateway", "UpstreamLost", 4),
        )
    ),
    case(
        "an event over the limit",
        "sse",
        UP,
        Call("bytes", {"count": 200_000}, code="UpstreamLost|RequestTooLarge"),
        Served(),
        entry={"limits": {"messageBytes": 100_000}},
    ),
)

WEBSOCKET = (
    *(
        case(
            f"{status} instead of the upgrade",
            "ws",
            Reaches(state, reason=status[:3]),
            Call(code="UpstreamUnavailable"),
            entry={"restart": LATER},
            on={"upgrade": [http(status)]},
        )
        for status, state in (
            ("401 Unauthorized", "needs_auth"),
            ("404 Not Found", "backoff"),
            ("200 OK", "backoff"),
        )
    ),
    case(
        "no HTTP instead of the upgrade",
        "ws",
        Reaches("backoff"),
        Call(code="UpstreamUnavailable"),
        entry={"restart": LATER},
        on={"upgrade": [Act(raw=b"SSH-2.0-OpenSSH_9.2\r\n\r\n")]},
    ),
    *(
        case(
            f"closed with {code} during a call",
            "ws",
            UP,
            Call("effect", code="UpstreamLost"),
            Ended(str(code)),
            AGAIN,
            Call(),
            on=calls(Act(close=code)),
        )
        for code in (1000, 1009, 1011)
    ),
    case(
        "nonsense",
        "ws",
        UP,
        Call(),
        Same(),
        Shows("noise.count", least=1),
        on={"tools/list": [Act(raw=b"{ nonsense")]},
    ),
    case(
        "a message over the limit",
        "ws",
        UP,
        Call("bytes", {"count": 200_000}, code="UpstreamLost"),
        Ended("1009"),
        Served(),
        entry={"limits": {"messageBytes": 100_000}},
    ),
)

UNIX = (
    case(
        "half a line, then silence",
        "unix",
        UP,
        Call("effect", code="UpstreamTimeout"),
        Call(code="|UpstreamTimeout"),
        Call(),
        Same(),
        entry={"timeouts": {"call": 0.4}},
        on=calls(Act(raw=b'{"jsonrpc":"2.0",', never=True)),
    ),
    case(
        "half a line, then the end",
        "unix",
        UP,
        Call("effect", code="UpstreamLost"),
        AGAIN,
        Call(),
        on=calls(Act(raw=b'{"jsonrpc":"2.0",', close=1)),
    ),
    case(
        "every answer twice",
        "unix",
        UP,
        Call("effect"),
        Call(),
        Same(),
        on=calls(Act(raw=b'{"jsonrpc":"2.0","id":%ID%,"result":{"content":[]}}\n')),
    ),
    case(
        "an answer that is no UTF-8",
        "unix",
        UP,
        Call("effect", code="UpstreamCallError"),
        Call(),
        Same(),
        on=calls(Act(raw=b'{"jsonrpc":"2.0","id":%ID%,"result":{"x":"\xff"}}\n', never=True)),
    ),
    case(
        "an answer with an id as a string",
        "unix",
        UP,
        Call("effect"),
        Call(),
        Same(),
        on=calls(Act(raw=b'{"jsonrpc":"2.0","id":"%ID%","result":{"content":[]}}\n', never=True)),
    ),
    case(
        "an answer with neither result nor error",
        "unix",
        UP,
        Call("effect", code="UpstreamTimeout"),
        Call(),
        Same(),
        entry={"timeouts": {"call": 0.4}},
        on=calls(Act(raw=b'{"jsonrpc":"2.0","id":%ID%}\n', never=True)),
    ),
    case(
        "a socket that is no socket",
        "unix",
        Reaches("backoff", reason="cannot connect"),
        url="/etc/hostname",
        entry={"restart": LATER},
    ),
    case(
        "its ping is never answered, and calls are",
        "unix",
        # Ready until pings are missed, which may be before anybody looks.
        Reaches("ready|degraded"),
        Took("ping", 3),
        Call(),
        Served(),
        entry={"timeouts": {"pingInterval": 0.1, "ping": 0.2, "missedPings": 1000}},
        on={"ping": [NEVER]},
    ),
)

CASES = (*STATUSES, *BODIES, *SESSIONS, *REDIRECTS, *SSE, *WEBSOCKET, *UNIX)
