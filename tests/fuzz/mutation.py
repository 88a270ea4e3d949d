"""Malformed messages, made of real ones: the same for the same seed, and each can be made again alone."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

UID = 987_654_321
"""The id of a request that a server's messages answer: whoever says them puts the real one in its place."""

MOST_CHANGES = 3
"""Mutations laid over one another: more of them, and little is left of a message but noise."""

OF_VALUES = 0.75
"""The share in which a value is changed, which mostly leaves JSON; bytes mostly leave none."""

LATER_CHANGES = (0, 0, 0, 0, 1, 2)
"""So many changes of bytes after one of a value."""

_HERE = "@@here@@"
_TOOL = {"name": "echo", "arguments": {"text": 'Grüße 🙂 \\ "quoted"', "n": [1, -2.5e3, True, None]}}
_CALLED = {
    "name": "call-category-tool",
    "arguments": {"category": "s", "name": "echo", "args": {"a": {"b": [0]}}},
}
_MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "1"},
}


def _request(method: str, params: object = None, request_id: object = 7) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return message if params is None else {**message, "params": params}


def _notification(method: str, params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


_CLIENT_INFO = {"name": "fuzz", "version": "1"}

FROM_CLIENTS: tuple[dict[str, Any], ...] = (
    _request(
        "initialize",
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": _CLIENT_INFO},
        "init-0",
    ),
    _notification("notifications/initialized", {}),
    _request("ping"),
    _request("server/discover", {"_meta": _MODERN}),
    _request("tools/list", {"cursor": "0"}),
    _request("tools/list", {"_meta": {**_MODERN, "mcpd/session": "a-key"}}, "list"),
    _request("tools/call", _TOOL),
    _request(
        "tools/call", {**_CALLED, "_meta": {"progressToken": 5, "mcpd/session": "another", "x": [{}]}}, 'c"é'
    ),
    _request("tools/call", {**_CALLED, "_meta": _MODERN}, -1),
    _request("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": _MODERN}, "sub"),
    _notification("notifications/cancelled", {"requestId": 7, "reason": "tired"}),
    _notification("mcpd/hello", {"surface": "category", "profile": "default", "lazy": True, "session": "k"}),
    _request("resources/read", {"uri": "file:///etc/passwd"}),
    {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}},
)
"""What clients say, of every kind that a session tells apart."""

_CONTENT = {"content": [{"type": "text", "text": 'Grüße 🙂 \\ "quoted"'}], "isError": False}

FROM_SERVERS: tuple[dict[str, Any], ...] = (
    {"jsonrpc": "2.0", "id": UID, "result": {**_CONTENT, "structuredContent": {"a": [1, {"b": None}]}}},
    {"jsonrpc": "2.0", "id": UID, "result": _CONTENT},
    {"jsonrpc": "2.0", "id": str(UID), "result": {"content": []}},
    {"jsonrpc": "2.0", "id": UID, "error": {"code": -32000, "message": "no", "data": {"why": ["é"]}}},
    {"jsonrpc": "2.0", "id": UID + 1, "result": {"content": []}},
    _notification(
        "notifications/progress", {"progressToken": UID, "progress": 0.5, "total": 1, "message": "…"}
    ),
    _notification("notifications/message", {"level": "info", "data": "text", "logger": "a"}),
    _request("ping", request_id="srv-1"),
    _request("sampling/createMessage", {"messages": [], "maxTokens": 1}, 12),
    _request("roots/list", None, 13),
    _notification("notifications/cancelled", {"requestId": 12}),
)
"""What servers say while a call is in flight."""


PASSWORD = "a-password-in-the-file"
"""Stands in configurations where values are secret: in an environment, a header, a URL."""

CONFIGS: tuple[dict[str, Any], ...] = (
    {
        "mcpServers": {
            "git": {
                "command": "git-mcp",
                "args": ["--token", "${TOKEN:-none}"],
                "env": {"A": "${TOKEN:-none}", "B": PASSWORD},
            },
            "web": {"url": f"https://u:{PASSWORD}@example.org/mcp?k=${{TOKEN}}", "headers": {"X": PASSWORD}},
            "ws": {"type": "ws", "url": "ws://localhost/${EMPTY}", "limits": {"inFlight": 2}},
        },
        "categories": {"c": {"description": "d", "server": "git", "tools": {"includeNames": ["git_*", "log"]}}},
        "profiles": {"p": {"surface": "full", "categories": ["c"]}},
    },
    {
        "mcpServers": {"a": {"command": "${file:secret}", "env": {"K": PASSWORD}, "enabled": False}},
        "limits": {},
    },
    {"$schema": "x", "mcpServers": {"a": {"url": "unix:///tmp/x", "restart": {"cap": 5}, "start": "lazy"}}},
)
"""Configurations with everything that the reader does something about."""


@attrs.frozen
class Malformed:
    """One input."""

    number: int
    """Which one of its seed."""
    kind: str
    """What was done to a real message."""
    data: bytes = attrs.field(repr=False)
    """The bytes, without a last newline; there may be newlines within."""


def malformed(seed: int, messages: Sequence[dict[str, Any]], count: int, first: int = 0) -> Iterator[Malformed]:
    """So many inputs of a seed, from the number `first` on."""
    return (one(seed, messages, number) for number in range(first, first + count))


def one(seed: int, messages: Sequence[dict[str, Any]], number: int) -> Malformed:
    """The input of this number."""
    rng = Random(f"{seed}:{number}")
    message = rng.choice(messages)
    kinds = []
    if rng.random() < OF_VALUES:
        change = rng.choice(_OF_VALUES)
        data = change(rng, message)
        kinds.append(change.__name__)
    else:
        data = written(message, rng)
    changes = rng.choice(LATER_CHANGES) if kinds else rng.randint(1, MOST_CHANGES)
    for _ in range(changes):
        alter = rng.choice(OF_BYTES)
        data = alter(rng, data)
        kinds.append(alter.__name__)
    return Malformed(number, "+".join(kinds).replace("_", " ").strip(), data)


def written(message: object, rng: Random) -> bytes:
    """As one of the many JSON writers would write it."""
    separators = rng.choice([(",", ":"), (", ", ": "), (" ,\t", " : ")])
    return json.dumps(message, ensure_ascii=rng.random() < 0.5, separators=separators).encode()


# --- of a message's values ----------------------------------------------------------------------------------

_IDS = (
    *("null", "0", "-0", "-1", "1.0", "1.5", "1e3", "1E400", "true", "false", "[]", "[7]", "{}", '{"id":7}'),
    *('""', '"7"', '" "', '"\\u0000"', '"\\ud83d\\ude42"', '"\\ud800"', '"a\\"b"', '"' + "i" * 5000 + '"'),
    *(
        "9007199254740993",
        "9223372036854775808",
        "18446744073709551616",
        "9" * 400,
        "1" * 5000,
        "007",
        "+7",
        "0x7",
    ),
)
_WRONG = (
    *("null", "true", "0", "1.5", "1e400", '""', '"text"', "[]", "[{}]", "{}", '{"id":8,"method":"m"}'),
    *('"2.0"', "2.0", '"1.0"', '"2.00"', '"tools/call"', '"rpc.discover"', '"\\u0000"', '"\\ud800x"', '"é"'),
)
_NUMBERS = (
    *("1e400", "-1e400", "1e-400", "9" * 5000, "-" + "9" * 400, "0." + "1" * 5000, "1E+5", "-0", "-0.0", "2e0"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "NaN",
        "-NaN",
        "Infinity",
        "-Infinity",
        "01",
        "1.",
        ".5",
        "+1",
    ),
    *("0x10", "1_000", "1e", "--1", "undefined", "True", "None", "'x'", "// c", "/* */ 1", "1 /* c */"),
)
_DEPTHS = (60, 100, 124, 126, 127, 128, 130, 300, 900, 990, 1000, 1024, 2000, 20_000)
_MEMBERS = ("jsonrpc", "id", "method", "params", "result", "error")


def _placed(rng: Random, message: object, raw: bytes) -> bytes:
    """`message` with raw text where `_HERE` stands."""
    return written(message, rng).replace(json.dumps(_HERE).encode(), raw)


def _somewhere(rng: Random, value: Any) -> Any:
    """`value` with `_HERE` in some place, as deep as it goes."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.2:
        return _HERE
    if isinstance(value, dict):
        key = rng.choice(list(value))
        return {**value, key: _somewhere(rng, value[key])}
    place = rng.randrange(len(value))
    return [*value[:place], _somewhere(rng, value[place]), *value[place + 1 :]]


def _strange_number(rng: Random, message: dict[str, Any]) -> bytes:
    return _placed(rng, _somewhere(rng, message), rng.choice(_NUMBERS).encode())


def _strange_id(rng: Random, message: dict[str, Any]) -> bytes:
    return _placed(rng, {**message, "id": _HERE}, rng.choice(_IDS).encode())


def _wrong_member(rng: Random, message: dict[str, Any]) -> bytes:
    return _placed(rng, {**message, rng.choice(_MEMBERS): _HERE}, rng.choice(_WRONG).encode())


def _wrong_value(rng: Random, message: dict[str, Any]) -> bytes:
    return _placed(rng, _somewhere(rng, message), rng.choice(_WRONG).encode())


def _member_left_out(rng: Random, message: dict[str, Any]) -> bytes:
    gone = rng.choice(list(message))
    return written({key: value for key, value in message.items() if key != gone}, rng)


def _key_doubled(rng: Random, message: dict[str, Any]) -> bytes:
    """Twice in the envelope or deeper, the second time perhaps in another spelling."""
    key = rng.choice(list(message))
    spelt = json.dumps(key)
    if rng.random() < 0.4:
        spelt = f'"\\u{ord(key[0]):04x}{key[1:]}"'
    again = rng.choice([*_WRONG, written(message[key], rng).decode()])
    whole = written(message, rng)
    extra = f"{spelt}:{again}".encode()
    return b"{" + extra + b"," + whole[1:] if rng.random() < 0.5 else whole[:-1] + b"," + extra + b"}"


def _key_escaped(rng: Random, message: dict[str, Any]) -> bytes:
    key = rng.choice(list(message))
    place = rng.randrange(len(key))
    spelt = f'"{key[:place]}\\u{ord(key[place]):04x}{key[place + 1 :]}"'
    return written(message, rng).replace(json.dumps(key).encode(), spelt.encode(), 1)


def _nested(rng: Random, message: dict[str, Any]) -> bytes:
    depth = rng.choice(_DEPTHS)
    opening, closing = rng.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"":', b"}]")])
    less = rng.choice([0, 0, 0, 1, depth])
    inner = opening * depth + b"0" + closing * (depth - less)
    return _placed(rng, _somewhere(rng, message), inner)


def _giant(rng: Random, message: dict[str, Any]) -> bytes:
    size = rng.choice([300, 5000, 70_000])
    raw = rng.choice(
        [f'{{"{"k" * size}":1}}', json.dumps({str(n): n for n in range(size // 10)}), f'"{"x" * size}"']
    )
    place = rng.choice([_somewhere(rng, message), {"extra": _HERE, **message}, {**message, "extra": _HERE}])
    return _placed(rng, place, raw.encode())


def _batch(rng: Random, message: dict[str, Any]) -> bytes:
    return written(rng.choice([[], [message], [message, message], [[message]], [1, message], [None]]), rng)


def _not_a_message(rng: Random, _message: dict[str, Any]) -> bytes:
    return rng.choice(
        [*_WRONG, *_NUMBERS, "", " ", "\r", "\t \r", "Listening on stdio", "\x1b[31mred", "{", "}"]
    ).encode()


_OF_VALUES: tuple[Callable[[Random, dict[str, Any]], bytes], ...] = (
    *(_strange_number, _strange_id, _strange_id, _wrong_member, _wrong_member, _wrong_value, _member_left_out),
    *(_key_doubled, _key_escaped, _nested, _giant, _batch, _not_a_message),
)


# --- of its bytes -------------------------------------------------------------------------------------------

_PIECES = (
    *(b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f", b"\x80"),
    *(
        b"\xef\xbb\xbf",
        b"\0",
        b"\r\n",
        b"\n",
        b"\r",
        b"\x0b",
        b"\x7f",
        b"\xc2\xa0",
        b"\xe2\x80\xa8",
        b"\x1b[2J",
    ),
    *(
        b"\\ud800",
        b"\\udc00",
        b"\\u00",
        b"\\q",
        b"\\",
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"/**/",
        b"//",
    ),
)
_ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "latin-1")


def _place(rng: Random, data: bytes) -> int:
    return rng.randrange(len(data) + 1)


def _truncated(rng: Random, data: bytes) -> bytes:
    place = _place(rng, data)
    return data[:place] if rng.random() < 0.8 else data[place:]


def _flipped(rng: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8]) if out else 0):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _inserted(rng: Random, data: bytes) -> bytes:
    place = _place(rng, data)
    return data[:place] + rng.choice(_PIECES) + data[place:]


def _cut_out(rng: Random, data: bytes) -> bytes:
    place = _place(rng, data)
    return data[:place] + data[place + rng.choice([1, 1, 2, 10]) :]


def _repeated(rng: Random, data: bytes) -> bytes:
    start, end = sorted((_place(rng, data), _place(rng, data)))
    return data[:end] + data[start:end] + data[end:]


def _at_the_ends(rng: Random, data: bytes) -> bytes:
    piece = rng.choice(_PIECES)
    return piece + data if rng.random() < 0.5 else data + piece


def _in_another_encoding(rng: Random, data: bytes) -> bytes:
    return data.decode(errors="replace").encode(rng.choice(_ENCODINGS), errors="replace")


def _joined(rng: Random, data: bytes) -> bytes:
    return data + rng.choice([b"", b" ", b",", b"\r", b"\n", b"\x1e"]) + data


def _comma(rng: Random, data: bytes) -> bytes:
    closing = rng.choice([b"}", b"]"])
    return data.replace(closing, b"," + closing, 1)


OF_BYTES: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(_truncated, _flipped, _flipped, _inserted, _inserted, _cut_out, _repeated),
    *(_at_the_ends, _in_another_encoding, _joined, _comma),
)
