"""What a child can do wrong, and what can be done to it: ends, hangs, noise, floods, what it leaves behind."""

from __future__ import annotations

from typing import Any

from tests.faults.arena import BOUND
from tests.faults.case import LATER, Case, Stdio, Step
from tests.faults.steps import (
    AGAIN,
    UP,
    Answers,
    Call,
    CallFromAnother,
    Ended,
    EpochRises,
    Hold,
    Kill,
    Lists,
    Reaches,
    Same,
    Send,
    Served,
    Shows,
    Took,
    Withdraw,
)
from tests.faults.visits import Crowd, ProgressOf, SameId

Json = dict[str, Any]

LOST = "whether the call ran is unknown"
PINGS: Json = {"pingInterval": 0.2, "ping": 0.5, "missedPings": 2}
TREE = ({"kind": "plain", "ignore_term": True}, {"kind": "setsid"}, {"kind": "daemon", "keep_stdout": True})
SECRET = "canary-secret-73251"


def stdio(entry: Json | None = None, **script: Any) -> Stdio:
    """A child with this script, and these keys of its configuration."""
    return Stdio(script=script, entry=entry or {})


def case(name: str, server: Stdio, *steps: Step, **more: Any) -> Case:
    """A case in one line."""
    return Case(name=name, server=server, steps=steps, **more)


def once(method: str, **action: Any) -> Json:
    """A script whose first run does this; the later ones are sound."""
    return {"runs": [{"on": {method: action}}, {}]}


# --- ends -----------------------------------------------------------------------------------------------------

ENDS = (
    case("killed while idle", stdio(), UP, Kill(), Ended("killed by SIGKILL"), AGAIN, Call()),
    case(
        "killed with calls in flight",
        *(stdio(), UP, Hold(20), Kill(), Answers("UpstreamLost", LOST), AGAIN, Call()),
    ),
    case(
        "killed and not due for long, and a call wakes it",
        *(
            stdio({"restart": LATER}),
            UP,
            Kill(),
            Reaches("backoff", reason="killed by SIGKILL"),
            Served(),
            AGAIN,
        ),
    ),
    case(
        "killed by the question for its era", stdio(on={"server/discover": {"signal": "SIGKILL"}}), UP, Call()
    ),
    *(
        case(
            f"killed during {method}", stdio(**once(method, signal="SIGKILL")), Ended("SIGKILL"), AGAIN, Call()
        )
        for method in ("initialize", "notifications/initialized", "tools/list")
    ),
    case(
        "killed during a listing that was asked for, over and over",
        stdio(on={"tools/list": {"signal": "SIGKILL"}}),
        *(Ended("SIGKILL", 3), Call(code="UpstreamUnavailable")),
    ),
    *(
        case(
            f"{number} during a call",
            stdio(),
            UP,
            Call("act", {"signal": number}, code="UpstreamLost"),
            Ended(f"killed by {number}"),
            AGAIN,
            Call(),
        )
        for number in ("SIGSEGV", "SIGTERM")
    ),
    *(
        case(
            f"exit {status} during a call",
            stdio(),
            *(UP, Call("act", {"exit": status}, code="UpstreamLost", says=LOST)),
            *(Ended(f"exited with status {status}"), AGAIN, Call()),
        )
        for status in (0, 1)
    ),
    *(
        case(
            f"exit {status} before it says anything",
            stdio(on={"start": {"exit": status}}),
            Reaches("failed", reason=f"exited with status {status}: "),
            Call(code="UpstreamUnavailable", says="What helps"),
        )
        for status in (78, 127)
    ),
    case(
        "exit 78 during a call",
        stdio(),
        UP,
        Call("act", {"exit": 78}, code="UpstreamLost"),
        Reaches("failed", reason="EX_CONFIG"),
    ),
    case(
        "exits after each answer",
        stdio(on={"tools/call": {"answer": 1, "exit": 0}}),
        *(Served(), Ended("exited with status 0", 1), Served(), Ended("exited with status 0", 2), Served()),
    ),
)

RESTART_TYPES = (
    *(
        case(
            f"{kind} and {end}",
            stdio({"restart": {"type": kind}}),
            UP,
            Call("act", action, code="UpstreamLost"),
            AGAIN,
            Call(),
        )
        for kind, end, action in (
            ("permanent", "exit 0", {"exit": 0}),
            ("transient", "exit 1", {"exit": 1}),
            ("transient", "a signal", {"signal": "SIGKILL"}),
        )
    ),
    *(
        case(
            f"{kind} and {end}",
            stdio({"restart": {"type": kind}}),
            UP,
            Call("act", action, code="UpstreamLost"),
            Reaches("stopped"),
            Call(code="UpstreamUnavailable"),
        )
        for kind, end, action in (
            ("transient", "exit 0", {"exit": 0}),
            ("temporary", "exit 0", {"exit": 0}),
            ("temporary", "exit 1", {"exit": 1}),
        )
    ),
)

STARTS = (
    case(
        "no such command",
        stdio({"command": "/no/such/program", "args": []}),
        Reaches("failed", reason="command not found"),
        Call(code="UpstreamUnavailable"),
    ),
    case(
        "a command that is a directory",
        stdio({"command": "/tmp", "args": []}),
        Reaches("failed", reason="Permission denied"),
        Call(code="UpstreamUnavailable"),
    ),
    case(
        "a command that is no program",
        stdio({"command": "/etc/hostname", "args": []}),
        Reaches("failed"),
        Call(code="UpstreamUnavailable"),
    ),
    case(
        "a directory that does not exist",
        stdio({"cwd": "/no/such/directory"}),
        Reaches("failed", reason="/no/such/directory"),
        Call(code="UpstreamUnavailable"),
    ),
    case("slow to start", stdio(**once("start", delay=0.3)), UP, Call(), Same()),
    case("started by its first call", stdio({"start": "lazy"}), Reaches("dormant"), Call(), UP),
    case(
        "started by its first call, and killed then",
        stdio({"start": "lazy"}, **once("initialize", signal="SIGKILL")),
        Reaches("dormant"),
        Served(),
    ),
)

# --- hangs ----------------------------------------------------------------------------------------------------

HANGS = (
    case(
        "frozen during a call, and thawed",
        stdio({"timeouts": {"call": 0.5}}),
        *(UP, Kill("SIGSTOP"), Call(code="UpstreamTimeout", says="told to cancel"), Kill("SIGCONT")),
        *(Took("notifications/cancelled"), Call(), Same()),
    ),
    case("frozen, and taken out of the configuration", stdio(), UP, Kill("SIGSTOP")),
    case(
        "never answers initialize",
        stdio({"timeouts": {"initialize": 0.3, "probe": 0.2}}, on={"initialize": {"never": True}}),
        Ended("no answer to initialize within 0.3 s"),
        Call(code="UpstreamUnavailable"),
    ),
    case(
        "never answers the listing",
        stdio({"timeouts": {"list": 0.3}}, on={"tools/list": {"never": True}}),
        Reaches("degraded", reason="no answer to tools/list within 0.3 s"),
    ),
    case(
        "never answers a call",
        stdio({"timeouts": {"call": 0.3}}),
        UP,
        Call("sleep", code="UpstreamTimeout"),
        Took("notifications/cancelled"),
        Call(),
        Same(),
    ),
    case(
        "answers a call too late",
        stdio({"timeouts": {"call": 0.3}}),
        UP,
        Call("sleep", {"seconds": 0.6}, code="UpstreamTimeout"),
        Call(),
        Same(),
    ),
    case(
        "reports progress for longer than a call may be silent",
        stdio({"timeouts": {"call": 1.5}}),
        UP,
        ProgressOf("progress", {"count": 8, "interval": 0.25}, 8),
        Same(),
    ),
    case(
        "closes its stdin and is written a megabyte",
        stdio({"timeouts": {"call": 5}}),
        UP,
        Send(1, "act", {"close_stdin": True}),
        Send(4, "echo", {"x": "x" * 1_000_000}),
        Answers("UpstreamLost|UpstreamTimeout|UpstreamUnavailable"),
        AGAIN,
        Call(),
    ),
)

# --- noise and floods -----------------------------------------------------------------------------------------

NOBODYS = (
    '{"jsonrpc":"2.0","id":99,"result":{}}\n'
    '{"jsonrpc":"2.0","method":"notifications/nobody"}\n'
    '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":99,"progress":1}}\n'
)

NOISE = (
    *(
        case(f"{what} on stdout", stdio(stdout=text), UP, Call(), Same(), Shows("noise.count", least=least))
        for what, text, least in (
            ("a banner", "Welcome!\nVersion 1\n\n \r\n", 2),
            ("colours and a byte order mark", "\xef\xbb\xbf\n\x1b[31mred\x1b[0m\n\x1b]0;title\x07\n", 3),
            ("zeros and ones", "".join(map(chr, range(256))) * 20 + "\n", 1),
            ("bytes that are no UTF-8", "\xff\xfe{\xc3(\n", 1),
            ("JSON that is no message", '[]\n1\n"x"\nnull\n{}\n{"jsonrpc":"2.0","id":1\n', 6),
            ("JSON a thousand deep", "[" * 1000 + "]" * 1000 + "\n", 1),
            ("messages that concern nobody", NOBODYS * 100, 0),
        )
    ),
    case(
        "ten thousand messages that concern nobody",
        stdio(),
        *(UP, Call("act", {"write": NOBODYS * 3400}), Call(), Same(), Shows("noise.count", least=0)),
    ),
    case(
        "both directions full",
        stdio(),
        UP,
        Send(4, "echo", {"x": "x" * 1_000_000}),
        ProgressOf("progress", {"count": 2000}, 2000),
        Call("bytes", {"count": 4_000_000}),
        Answers(),
        Same(),
    ),
    case("lines that end as on Windows", stdio(crlf=True), UP, Call(), Same(), Shows("noise.count", least=0)),
    case(
        "too much noise",
        stdio(),
        UP,
        Call("noise", {"count": 2000}),
        Reaches("degraded", reason="floods its stdout"),
        Call(),
    ),
    case(
        "unbearable noise",
        stdio(),
        UP,
        Call("noise", {"count": 160_000}, code="UpstreamLost"),
        Ended("floods its stdout"),
        AGAIN,
        Call(),
    ),
    case(
        "thirty thousand lines on stderr",
        stdio(stderr="e\n" * 30_000),
        UP,
        Call(),
        Same(),
        Shows("stderr", like="e"),
    ),
    case(
        "half a line, then silence",
        stdio({"timeouts": {"call": 0.4}}),
        UP,
        Call("act", {"write": '{"jsonrpc":"2.0","id":', "never": True}, code="UpstreamTimeout"),
        Call(code="UpstreamTimeout|"),
        Call(),
        Same(),
    ),
    case(
        "half a line, then the end",
        stdio(),
        UP,
        Call("act", {"write": '{"jsonrpc":"2.0","id":', "exit": 1}, code="UpstreamLost"),
        AGAIN,
        Call(),
    ),
    case(
        "every answer twice", stdio(on={"tools/call": {"answer": 2, "never": True}}), UP, Call(times=5), Same()
    ),
    case(
        "ten thousand notifications",
        stdio(),
        UP,
        Call("noise", {"count": 10_000, "text": '{"jsonrpc":"2.0","method":"notifications/x"}'}),
        Same(),
    ),
    case("five thousand announcements", stdio(), UP, Call("announce", {"count": 5000}), Call(), Same()),
    case(
        "asks for what was not offered",
        stdio(requests=["sampling/createMessage", "roots/list", "elicitation/create", "ping", "no/such"]),
        UP,
        Call(),
        Same(),
    ),
)

SIZES = (
    *(
        case(f"an answer of {size} bytes", stdio(), UP, Call("bytes", {"count": size}, says="x{60}"), Same())
        for size in (65_537, 1_048_576)
    ),
    case(
        "an answer just under the limit",
        stdio({"limits": {"messageBytes": 300_000}}),
        UP,
        Call("bytes", {"count": 299_000}),
        Same(),
    ),
    case(
        "an answer over the limit",
        stdio({"limits": {"messageBytes": 300_000}}),
        UP,
        Hold(),
        Call("bytes", {"count": 300_001}, code="RequestTooLarge"),
        Call(),
        Withdraw(),
        Same(),
    ),
    case(
        "a line over the limit of which nobody knows whose it is",
        stdio({"limits": {"messageBytes": 300_000}}),
        UP,
        Call("line", {"bytes": 400_000}, code="UpstreamLost|"),
        Ended("over the limit"),
        AGAIN,
        Call(),
    ),
)

# --- what it leaves behind ------------------------------------------------------------------------------------

TREES = (
    *(
        case(
            f"a tree of the kind {kind['kind']} is killed with its root",
            stdio(spawn=[kind]),
            UP,
            Took("tools/list"),
            Kill(),
            AGAIN,
            Call(),
        )
        for kind in TREE
    ),
    case("a tree goes with its server", stdio(spawn=list(TREE)), UP),
    case("a tree of a server that can only be killed", stdio(spawn=list(TREE), ignore=["term", "eof"]), UP),
    case(
        "it ends, and a grandchild holds its stdout",
        stdio(spawn=list(TREE)),
        UP,
        Call("act", {"exit": 1}, code="UpstreamLost"),
        Ended("exited with status 1"),
        AGAIN,
        Call(),
    ),
    case(
        "it dies of a fault, and leaves daemons",
        stdio(spawn=list(TREE), on={"tools/list": {"exit": 1}}),
        Ended("exited with status 1", 2),
    ),
)

# --- the protocol ---------------------------------------------------------------------------------------------

REFUSED = {"error": {"code": -32000, "message": "not today"}}
GREETING: Json = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}

ONE = {"era": "modern"}
HANDSHAKES = (
    *(
        # With one connection: for clients of the other era there would be a second child.
        case(f"a server of the era {era} is killed", stdio(ONE, era=era), UP, Call(), Kill(), AGAIN, Call())
        for era in ("modern", "both")
    ),
    *(
        case(
            f"initialize is answered with {what}",
            stdio({"restart": LATER}, on={"initialize": action}),
            Reaches("backoff", reason=reason),
            Call(code="UpstreamUnavailable"),
        )
        for what, action, reason in (
            ("a number", {"result": 5}, "no object"),
            ("a list", {"result": []}, "no object"),
            ("another revision", {"result": {**GREETING, "protocolVersion": "1999-01-01"}}, "1999-01-01"),
        )
    ),
    *(
        case(
            f"initialize is answered {what}",
            stdio(on={"initialize": {"result": {**GREETING, **result}}}),
            UP,
            Call(),
        )
        for what, result in (
            ("in another revision that is known", {"protocolVersion": "2024-11-05"}),
            (
                "with a name of the wrong type",
                {"protocolVersion": "2025-06-18", "serverInfo": {"name": ["x"], "version": 7}},
            ),
        )
    ),
    case("it has no tools", stdio(no_tools=True, on={"tools/list": REFUSED}), UP, Lists(0)),
)

SCHEMA = {
    "type": "object",
    "$ref": "#/$defs/a",
    "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
}

LISTINGS = (
    *(
        case(
            f"the listing is {what}",
            stdio(on={"tools/list": {"result": result}}),
            Reaches("degraded", reason=reason),
        )
        for what, result, reason in (
            ("a number", 5, ""),
            ("without tools", {}, ""),
            ("tools that are no list", {"tools": {"a": 1}}, ""),
        )
    ),
    case("the listing is refused", stdio(on={"tools/list": REFUSED}), Reaches("degraded", reason="not today")),
    case(
        "the cursor never ends",
        # A thousand pages are half a second, on a very busy machine half a minute.
        stdio({"timeouts": {"list": 120}}, cursor="endless", tools=1),
        Reaches("degraded", reason="1000 pages"),
        bound=4 * BOUND,
    ),
    case("the cursor repeats", stdio(cursor="same", tools=1), Reaches("degraded", reason="repeats the cursor")),
    case(
        "three thousand tools in pages of a hundred",
        stdio(tools=3000, page=100),
        UP,
        Shows("tools", least=3000),
        Call("echo7"),
    ),
    case(
        "nonsense among the tools",
        stdio(tools=[1, None, {}, {"name": 5}, [], "echo"]),
        UP,
        Lists(["echo"]),
        Call(),
    ),
    case("two tools of one name", stdio(tools=["echo", "echo"]), UP, Lists(["echo"]), Call()),
    case(
        "a schema that turns in a circle",
        stdio(tools=["echo", {"name": "turns", "inputSchema": SCHEMA}]),
        UP,
        Call(),
        Call("turns", code="|InvalidArguments"),
        Same(),
    ),
    case(
        "names that nobody should have",
        stdio(
            tools=[
                "echo",
                *(
                    {"name": name, "inputSchema": {}}
                    for name in ("", "../../etc/passwd", "a\u0000b", "n" * 300, "\u202egnp", "a\nb")
                ),
            ]
        ),
        UP,
        Shows("quarantined", like="."),
        Call(),
        Same(),
    ),
    case(
        "a description of a hundred kilobytes",
        stdio(tools=["echo", {"name": "long", "description": "d" * 100_000, "inputSchema": {}}]),
        UP,
        Call(),
        Same(),
    ),
    case(
        "other tools, announced",
        stdio(tools=["set_tools", "announce", "echo"]),
        UP,
        Lists(["set_tools", "announce", "echo"]),
        EpochRises(0),
        Call("set_tools", {"tools": ["announce", "echo", "pid"]}),
        Call("announce", {"count": 3}),
        Lists(["announce", "echo", "pid"]),
        EpochRises(1),
        Same(),
    ),
    case(
        "the same tools, announced",
        stdio(),
        UP,
        EpochRises(0),
        Call("announce", {"count": 3}),
        Took("tools/list", 2),
        EpochRises(0),
        Same(),
    ),
    case(
        "other tools after a restart",
        stdio(runs=[{"tools": ["echo", "act"]}, {"tools": ["echo", "pid"]}]),
        UP,
        Lists(["echo", "act"]),
        EpochRises(0),
        Kill(),
        AGAIN,
        Lists(["echo", "pid"]),
        EpochRises(1),
    ),
    case(
        "another schema, announced",
        stdio(tools=["set_tools", "announce", "echo"]),
        UP,
        Lists(["set_tools", "announce", "echo"]),
        Call(
            "set_tools",
            {"tools": ["announce", {"name": "echo", "inputSchema": {"type": "object", "title": "new"}}]},
        ),
        Call("announce", {"count": 1}),
        Lists(["announce", "echo"]),
        Call(),
    ),
    case(
        "another schema, and a call before anybody has looked",
        stdio(tools=["set_tools", "announce", "echo"]),
        UP,
        Lists(["set_tools", "announce", "echo"]),
        Call(
            "set_tools",
            {"tools": ["announce", {"name": "echo", "inputSchema": {"type": "object", "title": "new"}}]},
        ),
        Call("announce", {"count": 1}),
        Took("tools/list", 2),
        Call(code="ToolChanged", says="new"),
        Call(),
        Same(),
    ),
)

# --- calls ----------------------------------------------------------------------------------------------------

CALLS = (
    *(
        case(
            f"it commits, then {what}",
            stdio(),
            UP,
            Call("effect", {"then": then}, code="UpstreamLost", says=LOST),
            AGAIN,
            Call(),
            effects=1,
        )
        for what, then in (
            ("exits", {"exit": 1}),
            ("is killed", {"signal": "SIGKILL"}),
            ("closes its stdout", {"close_stdout": True}),
        )
    ),
    case(
        "it commits and never says so",
        stdio({"timeouts": {"call": 0.4}}),
        UP,
        Call("effect", {"then": {"never": True}}, code="UpstreamTimeout", says="unknown"),
        Call(),
        effects=1,
    ),
    case(
        "it refuses a call",
        stdio(),
        UP,
        Call("refuse", code="UpstreamCallError", says="I refuse"),
        Call(),
        Same(),
    ),
    case("a call fails", stdio(), UP, Call("fail", code="isError"), Call(), Same()),
    case(
        "a call is cancelled",
        stdio(),
        UP,
        Hold(3),
        Withdraw(),
        Took("notifications/cancelled", 3),
        Call(),
        Same(),
    ),
    case("a client goes away", stdio(), UP, CallFromAnother(), Took("notifications/cancelled"), Call(), Same()),
    case(
        "more calls than it takes",
        stdio({"limits": {"inFlight": 2, "queue": 2}}),
        UP,
        Hold(2),
        Send(5),
        Call(code="Overloaded", says="not sent"),
        Kill(),
        Answers("UpstreamLost|UpstreamUnavailable|Overloaded", some="Overloaded"),
        AGAIN,
        Call(),
    ),
    case("sixteen clients with the same ids", stdio({"limits": {"inFlight": 1000}}), UP, Crowd(16, 40), Same()),
    case(
        "sixteen clients, and it is killed",
        stdio(on={"tools/call": [*([None] * 100), {"signal": "SIGKILL"}]}),
        UP,
        Crowd(16, 20, code="|UpstreamLost|UpstreamUnavailable|Overloaded"),
        Ended("SIGKILL"),
    ),
    case("one id twice", stdio(), UP, SameId(), Call(), Same()),
    case(
        "progress under a token that is a number",
        stdio(),
        UP,
        ProgressOf("progress", {"count": 50}, 50, token=7),
        Same(),
    ),
    case(
        "progress under a token with the id of another call",
        stdio(),
        UP,
        ProgressOf("progress", {"count": 3}, 3, token="1"),
        ProgressOf("progress", {"count": 3}, 3, token=1),
        Same(),
    ),
)

SECRETS = (
    *(
        case(
            f"a secret in {what}",
            stdio({"env": {"TOKEN": SECRET}, "restart": LATER}, **script),
            *steps,
            secrets=(SECRET,),
        )
        for what, script, steps in (
            ("stderr", {"stderr": f"using {SECRET} now\n"}, (UP, Shows("stderr", like="using"))),
            ("noise", {"stdout": f"using {SECRET} now\n"}, (UP, Shows("noise.first", like="using"))),
            ("its name", {"name": f"name {SECRET}"}, (UP, Shows("serverInfo", like="name"))),
            (
                "the refusal of initialize",
                {"on": {"initialize": {"error": {"code": 1, "message": f"bad {SECRET}"}}}},
                (Reaches("backoff", reason="bad"), Call(code="UpstreamUnavailable")),
            ),
            (
                "the refusal of its listing",
                {"on": {"tools/list": {"error": {"code": 1, "message": f"bad {SECRET}"}}}},
                (Reaches("degraded", reason="bad"),),
            ),
            (
                "the name of a tool that cannot be used",
                {"tools": ["echo", {"name": f"{SECRET} ", "inputSchema": 5}]},
                (UP, Shows("quarantined", like="..")),
            ),
        )
    ),
)

CASES = (
    *(*ENDS, *RESTART_TYPES, *STARTS, *HANGS, *NOISE, *SIZES),
    *(*TREES, *HANDSHAKES, *LISTINGS, *CALLS, *SECRETS),
)
