"""What clients do that they should not: what is not JSON-RPC, what is not MCP, floods, silence, bad lines."""

import json
from typing import Any

from tests.faults.case import Case, Step
from tests.faults.steps import same, stdio
from tests.faults.visits import Connects, Crowd, NeverReads, Says
from tests.faults.wire import Fate, Toxic

PARSE, INVALID, NO_METHOD, PARAMS = "-32700", "-32600", "-32601", "-32602"


def line(**message: Any) -> bytes:
    """A message."""
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def call(name: str, arguments: Any, identity: Any = 1) -> bytes:
    """A call to a meta-tool."""
    return line(id=identity, method="tools/call", params={"name": name, "arguments": arguments})


CANCELLED: list[dict[str, Any]] = [{}, {"requestId": 99}, {"requestId": {}}, {"requestId": None}]
PING = line(id="p", method="ping")
PONG = ('"p"', "")
IDS: list[Any] = [0, "", "1", 1, -1, 2**63, "\u202e"]


def says(name: str, data: bytes, *answers: tuple[str, str], **more: Any) -> Case:
    """A case in which a client says something, and is served on."""
    return Case(name=name, steps=[Says(data, answers, **more)])


MESSAGES = (
    says("no JSON", b"hello\n", ("null", PARSE)),
    says("half of JSON", b'{"jsonrpc":"2.0","id":1\n', ("null", PARSE)),
    says("a line of zeros", b"\0" * 1000 + b"\n", ("null", PARSE)),
    says("blank lines", b"\n\r\n  \n" + PING, PONG),
    says("lines that end as on Windows", PING[:-1] + b"\r\n", PONG),
    says("a number", b"5\n", ("null", INVALID)),
    says("an empty object", b"{}\n", ("null", INVALID)),
    says("another JSON-RPC", b'{"jsonrpc":"1.0","id":1,"method":"ping"}\n', ("1", INVALID)),
    says("no JSON-RPC at all", b'{"id":1,"method":"ping"}\n', ("1", INVALID)),
    says("a method that is a number", b'{"jsonrpc":"2.0","id":1,"method":5}\n', ("1", INVALID)),
    says("params that are a list", line(id=1, method="tools/call", params=[1]), ("1", PARAMS)),
    says("depth 100,000", b"[" * 100_000 + b"]" * 100_000 + b"\n", ("null", PARSE)),
    says("an id that is null", b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', ("null", INVALID)),
    says("an id that is an object", b'{"jsonrpc":"2.0","id":{},"method":"ping"}\n', ("null", INVALID)),
    says("an id that is true", b'{"jsonrpc":"2.0","id":true,"method":"ping"}\n', ("null", INVALID)),
    says(
        "ids of all kinds",
        b"".join(line(id=each, method="ping") for each in IDS),
        *((json.dumps(each), "") for each in IDS),
    ),
    says("an unknown method", line(id=1, method="no/such"), ("1", NO_METHOD)),
    says("an unknown notification", line(method="notifications/none") + PING, PONG),
    says(
        "an answer that nobody asked for",
        line(id=7, result={}) + line(id=8, error={"code": 1, "message": ""}) + PING,
        PONG,
    ),
    says(
        "cancellations of nothing",
        b"".join(line(method="notifications/cancelled", params=p) for p in CANCELLED) + PING,
        PONG,
    ),
    says("a bad hello", line(method="mcpd/hello", params={"session": 5, "lazy": "x"}) + PING, PONG),
    says("a thousand messages in one piece", PING * 1000, *[PONG] * 1000),
    says(
        "a message in a thousand pieces",
        line(id="p", method="ping", params={"x": "x" * 2000}),
        PONG,
        up=Toxic(slice=3),
    ),
    says("a message over the limit", line(id=1, method="ping", params={"x": "x" * 5_000_000}), ("1", INVALID)),
    says("a long message without an id", b'{"x":"' + b"x" * 5_000_000 + b'","id":1}\n', ("null", INVALID)),
    says("a hundred lines of nonsense", b"nonsense\n" * 100, *[("null", PARSE)] * 100, cut_off=True),
)

TOMORROW = {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
CALLED = {"call-category-tool": {"name": "x", "args": {}}}
ARGUMENTS = (
    *(
        says(f"{name} with {what}", call(name, arguments), ("1", code))
        for name in ("get-category-tools", "call-category-tool")
        for what, arguments, code in (
            ("nothing", {}, "InvalidArguments"),
            ("a list", [], "InvalidArguments"),
            ("a number for a category", {"category": 5, "name": "x", "args": {}}, "InvalidArguments"),
            (
                "a category that does not exist",
                {"category": "nobody", **CALLED.get(name, {})},
                "UnknownCategory",
            ),
            ("a long name", {"category": "n" * 10_000, **CALLED.get(name, {})}, "UnknownCategory"),
        )
    ),
    says("a tool that does not exist", call("no-such-tool", {}), ("1", "UnknownTool")),
    says("a tool without a name", line(id=1, method="tools/call", params={}), ("1", PARAMS)),
    says("a tool whose name is a number", line(id=1, method="tools/call", params={"name": 5}), ("1", PARAMS)),
    says("a false cursor", line(id=1, method="tools/list", params={"cursor": "nobody's"}), ("1", PARAMS)),
    says(
        "a revision of tomorrow", line(id=1, method="tools/list", params={"_meta": TOMORROW}), ("1", "-32022")
    ),
    says("meta that is a number", line(id=1, method="tools/list", params={"_meta": 5}), ("1", PARAMS)),
    says("initialize without anything", line(id=1, method="initialize"), ("1", "")),
    says("initialize twice", b"".join(line(id=n, method="initialize") for n in (1, 2)), ("1", ""), ("2", "")),
)

CALL = call("call-category-tool", {"category": "%NAME%", "name": "echo", "args": {"a": 1}})
LARGE = {"category": "%NAME%", "name": "bytes", "args": {"count": 300_000}}


def served(name: str, *steps: Step) -> Case:
    """A case with a sound server, which stays as it was."""
    return same(name, stdio(), *steps)


LINES = (
    served("a call in small pieces, slowly", Says(CALL, [("1", "")], up=Toxic(slice=9, latency=0.001))),
    served("an answer that crawls", Says(CALL, [("1", "")], down=Toxic(slice=9, latency=0.001))),
    *(
        served(f"{fate.name} in the middle of a call", Says(CALL, (), True, up=Toxic(spare=90, fate=fate)))
        for fate in (Fate.CUT, Fate.RESET, Fate.HALF_CLOSE)
    ),
    *(
        served(f"{fate.name} in the middle of an answer", Says(CALL, (), True, down=Toxic(spare=30, fate=fate)))
        for fate in (Fate.CUT, Fate.RESET)
    ),
)

CROWDS = (
    served("a client that never reads", NeverReads(line(id=1, method="initialize") * 1000, 200)),
    served(
        "a client that never reads large answers",
        NeverReads(b"".join(call("call-category-tool", LARGE, n) for n in range(100)), 1, cut_off=True),
    ),
    served("two hundred connections that say nothing", Connects(200)),
    served("two hundred connections with half a line", Connects(200, b'{"jsonrpc":"2.0","id":1')),
    served("thirty-two clients that all use id 1", Crowd(32, 1), Crowd(32, 1), Crowd(32, 1)),
)

CASES = (*MESSAGES, *ARGUMENTS, *LINES, *CROWDS)
