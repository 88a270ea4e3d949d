"""What servers behind HTTP, SSE, WebSocket and unix sockets answer that they should not."""

import gzip
import json
from typing import Any

from tests.faults.case import LATER
from tests.faults.steps import (
    UP,
    Behaves,
    Call,
    Ended,
    ForgetsSessions,
    Hold,
    Reaches,
    Served,
    Shows,
    Took,
    again,
    back,
    case,
    down,
    net,
    same,
)
from tests.faults.upstreams import NEVER, Act, http

Json = dict[str, Any]

SECRET = "canary-secret-88112"
WAITS_LONG: Json = {"restart": LATER}
SOON_GIVEN_UP: Json = {**WAITS_LONG, "timeouts": {"connect": 0.5}}
SMALL: Json = {"limits": {"messageBytes": 100_000}}
HASTY: Json = {"timeouts": {"call": 0.4}}
LARGE = Call("bytes", {"count": 200_000}, code="UpstreamLost|RequestTooLarge")


def once(act: Act) -> dict[str, list[Act | None]]:
    """The first call meets this, later ones are answered."""
    return {"tools/call": [act, None]}


def effect(code: str, says: str = "") -> Call:
    """A call that has an effect, and what becomes of it."""
    return Call("effect", code=code, says=says)


def greets(act: Act) -> dict[str, list[Act]]:
    """Every handshake meets this."""
    return {"server/discover": [act], "initialize": [act]}


def error(code: int, message: str) -> bytes:
    """A JSON-RPC error."""
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}).encode()


STATUSES = (
    *(
        back(f"{status} to a call", net("http", on=once(http(status, body))), effect(code, says))
        for status, body, code, says in (
            ("500 Internal Server Error", b"<h1>oh no</h1>", "UpstreamCallError", "HTTP 500"),
            ("502 Bad Gateway", b"", "UpstreamLost", "unknown"),
            ("503 Service Unavailable", b"", "UpstreamUnavailable", "not run"),
            ("429 Too Many Requests", b"", "UpstreamUnavailable", "not run"),
            ("403 Forbidden", b"", "UpstreamCallError|UpstreamUnavailable", "403"),
            ("413 Content Too Large", b"", "RequestTooLarge", "413"),
            ("404 Not Found", b"", "UpstreamCallError", "404"),
        )
    ),
    back(
        "an error in 500 to a call",
        net("http", on=once(http("500 Internal Server Error", error(-32000, "not today")))),
        effect("UpstreamCallError", "not today"),
    ),
    case(
        "401 to a call",
        net("http", on=once(http("401 Unauthorized"))),
        *(UP, effect("UpstreamUnavailable"), Reaches("needs_auth", reason="401")),
    ),
    *(
        down(f"{status} to the handshake", net("http", WAITS_LONG, on=greets(http(status))), state, status[:3])
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
        net("http", on=greets(http("503 Service Unavailable"))),
        *(Ended("503", 2), Behaves(), Served(), Call()),
    ),
)

OTHERS_ANSWER = b'{"jsonrpc":"2.0","id":"nobody","result":{}}'
SHORT = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
BODIES = (
    *(
        back(
            f"{what} instead of an answer",
            # No time only for what is waited for in vain.
            net("http", HASTY if "UpstreamTimeout" in code else None, on=once(act)),
            effect(code),
        )
        for what, act, code in (
            ("a web page", http("200 OK", b"<html>", "text/html"), "UpstreamLost|UpstreamCallError"),
            ("nothing", http("200 OK", b"", "application/json"), "UpstreamLost|UpstreamCallError"),
            (
                "half of JSON",
                http("200 OK", b'{"jsonrpc', "application/json"),
                "UpstreamLost|UpstreamCallError",
            ),
            (
                "another's answer",
                http("200 OK", OTHERS_ANSWER, "application/json"),
                "UpstreamLost|UpstreamTimeout",
            ),
            ("202", http("202 Accepted"), "UpstreamLost|UpstreamTimeout|UpstreamCallError"),
            (
                "an error in 200",
                http("200 OK", error(-5, "no"), "application/json"),
                "UpstreamCallError|UpstreamLost",
            ),
            ("no HTTP", Act(raw=b"SSH-2.0-OpenSSH_9.2\r\n", close=1), "UpstreamLost"),
            ("nothing, and the end,", Act(close=1), "UpstreamLost"),
            ("less than was announced", Act(raw=SHORT, close=1), "UpstreamLost"),
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
    same(
        "what unpacks to far more than the limit",
        net(
            "http",
            SMALL,
            on=once(
                http("200 OK", gzip.compress(b" " * 20_000_000), "application/json", content_encoding="gzip")
            ),
        ),
        effect("RequestTooLarge"),
    ),
    same(
        "an answer over the limit",
        net("http", SMALL),
        Call("bytes", {"count": 200_000}, code="RequestTooLarge"),
    ),
)

BAD_REQUEST = http("400 Bad Request", error(-32600, "Session not found"))
"""A server in use says so of a session that it does not know, and of what it does not like in a request."""

SESSIONS = (
    again(
        "it has forgotten the session",
        net("http", session=True),
        *(Call(), ForgetsSessions(), effect("UpstreamUnavailable", "not run"), Served(), Call("effect")),
        effects=1,
    ),
    again(
        "it has forgotten the session with calls in flight",
        net("http", session=True),
        *(Hold(2), ForgetsSessions(), Call(code="UpstreamUnavailable")),
    ),
    *(
        again(
            f"it ends the session with {status}",
            net("http", session=True, on=on),
            *(effect("UpstreamUnavailable"), Served()),
        )
        for status, on in (
            ("404 Not Found", once(http("404 Not Found"))),
            ("410 Gone", once(http("410 Gone"))),
            ("400 Bad Request", {"tools/call": [BAD_REQUEST, None], "tools/list": [None, BAD_REQUEST, None]}),
        )
    ),
    same(
        "it refuses a call alone with 400 Bad Request",
        net("http", session=True, on=once(BAD_REQUEST)),
        effect("UpstreamCallError", "Session not found"),
    ),
)

ELSEWHERE = http("307 Temporary Redirect", location="http://127.0.0.1:9/elsewhere")
IN_CIRCLES = http("307 Temporary Redirect", location="/mcp")

REDIRECTS = (
    same(
        "a redirect to another origin",
        net("http", on=once(ELSEWHERE)),
        effect("UpstreamCallError|UpstreamLost"),
    ),
    back(
        "a redirect to itself for ever",
        net("http", on={"tools/call": [IN_CIRCLES] * 30 + [None]}),
        effect("UpstreamCallError|UpstreamLost"),
    ),
    down(
        "TLS to a server that speaks none",
        net("http", SOON_GIVEN_UP, url="https://127.0.0.1:{port}/mcp"),
        *("backoff", r"no answer within 0\.5 s"),
    ),
    down(
        "a name that does not exist",
        net("http", {**WAITS_LONG, "timeouts": {"connect": 5}}, url="http://no-such-host.invalid:1/mcp"),
        *("backoff", "cannot connect"),
    ),
    down(
        "a secret in its url",
        net(
            "http",
            {**WAITS_LONG, "headers": {"Authorization": f"Bearer {SECRET}"}},
            url="http://user:" + SECRET + "@127.0.0.1:{port}/" + SECRET + "?key=" + SECRET,
            listens=False,
        ),
        *("backoff", "cannot connect"),
        secrets=(SECRET,),
    ),
)

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
ENDPOINT = b"event: endpoint\ndata: /messages\n\n"
ABROAD = b"event: endpoint\ndata: http://127.0.0.2:1/x\n\n"

SSE = (
    *(
        down(f"the stream is {what}", net("sse", entry, on={"GET": [act]}), state, reason)
        for what, act, entry, state, reason in (
            ("401", http("401 Unauthorized"), WAITS_LONG, "needs_auth", "401"),
            ("a web page", http("200 OK", b"<html>", "text/html"), WAITS_LONG, "backoff", ""),
            ("empty", Act(raw=HEAD, close=1), WAITS_LONG, "backoff", "ended its stream"),
            ("of another origin", Act(raw=HEAD + ABROAD), WAITS_LONG, "backoff", "another origin"),
            ("no HTTP", Act(raw=b"SSH-2.0-OpenSSH_9.2\r\n", close=1), WAITS_LONG, "backoff", "broke"),
            (
                "without an endpoint",
                Act(raw=HEAD + b": hello\n\n"),
                *(SOON_GIVEN_UP, "backoff", r"did not open its stream within 0\.5 s"),
            ),
        )
    ),
    *(
        same(name, net("sse", on={"GET": [Act(raw=HEAD + text)]}), Shows("noise.count", least=noise))
        for name, text, noise in (
            (
                "comments and unknown events",
                b": hello\n\nevent: odd\ndata: 1\n\nretry: 5\n\n" + ENDPOINT + b": more\n\n",
                0,
            ),
            ("nonsense in the stream", ENDPOINT + b"data: {\n\ndata: [1]\n\n", 2),
        )
    ),
    again("the stream ends during a call", net("sse", on=once(Act(close=1))), effect("UpstreamLost")),
    *(
        back(
            f"{status} to a call", net("sse", on={"POST": [*([None] * 4), http(status), None]}), Call(code=code)
        )
        for status, code in (
            ("500 Internal Server Error", "UpstreamCallError"),
            ("503 Service Unavailable", "UpstreamUnavailable"),
            ("502 Bad Gateway", "UpstreamLost"),
        )
    ),
    back("an event over the limit", net("sse", SMALL), LARGE),
)

WEBSOCKET = (
    *(
        down(f"{what} instead of the upgrade", net("ws", WAITS_LONG, on={"upgrade": [act]}), state, reason)
        for what, act, state, reason in (
            ("401 Unauthorized", http("401 Unauthorized"), "needs_auth", "401"),
            ("404 Not Found", http("404 Not Found"), "backoff", "404"),
            ("200 OK", http("200 OK"), "backoff", "200"),
            ("no HTTP", Act(raw=b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "backoff", ""),
        )
    ),
    *(
        again(
            f"closed with {code} during a call",
            net("ws", on=once(Act(close=code))),
            *(effect("UpstreamLost"), Ended(str(code))),
        )
        for code in (1000, 1009, 1011)
    ),
    same("nonsense", net("ws", on={"tools/list": [Act(raw=b"{ nonsense")]}), Shows("noise.count", least=1)),
    back("a message over the limit", net("ws", SMALL), LARGE, Ended("1009")),
)

UNIX = (
    same(
        "half a line, then silence",
        net("unix", HASTY, on=once(Act(raw=b'{"jsonrpc":"2.0",', never=True))),
        *(effect("UpstreamTimeout"), Call(code="|UpstreamTimeout")),
    ),
    again(
        "half a line, then the end",
        net("unix", on=once(Act(raw=b'{"jsonrpc":"2.0",', close=1))),
        effect("UpstreamLost"),
    ),
    *(
        same(
            name,
            net("unix", entry, on=once(Act(raw=b'{"jsonrpc":"2.0","id":' + text + b"}\n", never=never))),
            effect(code),
        )
        for name, text, never, entry, code in (
            ("every answer twice", b'%ID%,"result":{"content":[]}', False, None, ""),
            ("an answer that is no UTF-8", b'%ID%,"result":{"x":"\xff"}', True, None, "UpstreamCallError"),
            ("an answer with NaN", b'%ID%,"result":{"x":NaN}', True, None, "UpstreamCallError"),
            ("half a character", b'%ID%,"result":{"content":[],"x":"\\ud83d"}', True, None, ""),
            ("an answer with an id as a string", b'"%ID%","result":{"content":[]}', True, None, ""),
            ("an answer with neither result nor error", b"%ID%", True, HASTY, "UpstreamTimeout"),
        )
    ),
    case(
        "a socket that is not a socket",
        net("unix", WAITS_LONG, url="/etc/hostname"),
        Reaches("backoff", reason="cannot connect"),
    ),
    case(
        "its ping is never answered, and calls are",
        net(
            "unix", {"timeouts": {"pingInterval": 0.1, "ping": 0.2, "missedPings": 1000}}, on={"ping": [NEVER]}
        ),
        # Ready until pings are missed, which may be before anybody looks.
        *(Reaches("ready|degraded"), Took("ping", 3), Call(), Served()),
    ),
)

CASES = (*STATUSES, *BODIES, *SESSIONS, *REDIRECTS, *SSE, *WEBSOCKET, *UNIX)
