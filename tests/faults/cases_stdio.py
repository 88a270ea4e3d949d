"""What a child can do wrong, and what can be done to it: ends, hangs, noise, floods, what it leaves behind."""

from typing import Any

from tests.faults.case import LATER
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
    Send,
    Served,
    Shows,
    Took,
    Withdraw,
    again,
    case,
    down,
    same,
    stdio,
)
from tests.faults.visits import Crowd, ProgressOf, SameId

Json = dict[str, Any]

LOST = "whether the call ran is unknown"
TREE = ({"kind": "plain", "ignore_term": True}, {"kind": "setsid"}, {"kind": "daemon", "keep_stdout": True})
SECRET = "canary-secret-73251"


def once(method: str, **action: Any) -> Json:
    """A script whose first run does this; the later ones are sound."""
    return {"runs": [{"on": {method: action}}, {}]}


def does(code: str = "UpstreamLost", says: str = "", **action: Any) -> Call:
    """A call in which it does something that costs the call."""
    return Call("act", action, code=code, says=says)


ENDS = (
    again("killed while idle", stdio(), Kill(), Ended("killed by SIGKILL")),
    again("killed with calls in flight", stdio(), Hold(20), Kill(), Answers("UpstreamLost", LOST)),
    case(
        "killed and not due for long, and a call wakes it",
        stdio({"restart": LATER}),
        *(UP, Kill(), Reaches("backoff", reason="killed by SIGKILL"), Served(), AGAIN),
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
        again(f"{what} during a call", stdio(), does(says=LOST, **action), Ended(reason))
        for what, action, reason in (
            ("SIGSEGV", {"signal": "SIGSEGV"}, "killed by SIGSEGV"),
            ("exit 0", {"exit": 0}, "exited with status 0"),
            ("exit 1", {"exit": 1}, "exited with status 1"),
        )
    ),
    *(
        down(
            f"exit {status} before it says anything",
            stdio(on={"start": {"exit": status}}),
            *("failed", f"exited with status {status}: ", "What helps"),
        )
        for status in (78, 127)
    ),
    case("exit 78 during a call", stdio(), UP, does(exit=78), Reaches("failed", reason="EX_CONFIG")),
    case(
        "exits after each answer",
        stdio(on={"tools/call": {"answer": 1, "exit": 0}}),
        *(Served(), Ended("exited with status 0", 1), Served(), Ended("exited with status 0", 2), Served()),
    ),
    case(
        "exits at once, again and again",
        stdio({"restart": {"base": 0.01, "intensity": 3, "cap": 60}}, on={"start": {"exit": 1}}),
        *(Reaches("crashloop", reason="exited with status 1"), Call(code="UpstreamUnavailable")),
    ),
    *(
        case(
            f"{kind} and exit {status}",
            stdio({"restart": {"type": kind}}),
            *(UP, does(exit=status), Reaches("stopped"), Call(code="UpstreamUnavailable")),
        )
        for kind, status in (("transient", 0), ("temporary", 1))
    ),
)

STARTS = (
    *(
        down(what, stdio({"args": [], **entry}), "failed", reason)
        for what, entry, reason in (
            ("no such command", {"command": "/no/such/program"}, "command not found"),
            ("a command that is a directory", {"command": "/tmp"}, "Permission denied"),
            ("a command that is not a program", {"command": "/etc/hostname"}, ""),
            ("a directory that does not exist", {"cwd": "/no/such/directory"}, "/no/such/directory"),
        )
    ),
    same("slow to start", stdio(**once("start", delay=0.3))),
    case("started by its first call", stdio({"start": "lazy"}), Reaches("dormant"), Call(), UP),
    case(
        "started by its first call, and killed then",
        stdio({"start": "lazy"}, **once("initialize", signal="SIGKILL")),
        *(Reaches("dormant"), Served()),
    ),
)

HANGS = (
    same(
        "frozen during a call, and thawed",
        stdio({"timeouts": {"call": 0.5}}),
        *(Kill("SIGSTOP"), Call(code="UpstreamTimeout", says="has cancelled the call"), Kill("SIGCONT")),
        Took("notifications/cancelled"),
    ),
    again(
        "frozen, and pings find it",
        stdio({"timeouts": {"pingInterval": 0.2, "ping": 0.5, "missedPings": 2}}),
        *(Kill("SIGSTOP"), Ended("no answer to 2 pings of 0.5 s")),
    ),
    case("frozen, and taken out of the configuration", stdio(), UP, Kill("SIGSTOP")),
    case(
        "never answers initialize",
        stdio({"timeouts": {"initialize": 0.3, "probe": 0.2}}, on={"initialize": {"never": True}}),
        *(Ended("no answer to initialize within 0.3 s"), Call(code="UpstreamUnavailable")),
    ),
    case(
        "never answers the listing",
        stdio({"timeouts": {"list": 0.3}}, on={"tools/list": {"never": True}}),
        Reaches("degraded", reason="no answer to tools/list within 0.3 s"),
    ),
    same(
        "never answers a call",
        stdio({"timeouts": {"call": 0.3}}),
        *(Call("sleep", code="UpstreamTimeout"), Took("notifications/cancelled")),
    ),
    same(
        "answers a call too late",
        stdio({"timeouts": {"call": 0.3}}),
        Call("sleep", {"seconds": 0.6}, code="UpstreamTimeout"),
    ),
    same(
        "reports progress for longer than a call may be silent",
        stdio({"timeouts": {"call": 1.5}}),
        ProgressOf("progress", {"count": 8, "interval": 0.25}, 8),
    ),
    again(
        "closes its stdin and is written a megabyte",
        stdio({"timeouts": {"call": 5}}),
        *(Send(1, "act", {"close_stdin": True}), Send(4, "echo", {"x": "x" * 1_000_000})),
        Answers("UpstreamLost|UpstreamTimeout|UpstreamUnavailable"),
    ),
)

NOBODYS = (
    '{"jsonrpc":"2.0","id":99,"result":{}}\n'
    '{"jsonrpc":"2.0","method":"notifications/nobody"}\n'
    '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":99,"progress":1}}\n'
)
HALF = '{"jsonrpc":"2.0","id":'

NOISE = (
    *(
        same(f"{what} on stdout", stdio(stdout=text), Call(), Shows("noise.count", least=least))
        for what, text, least in (
            ("a banner", "Welcome!\nVersion 1\n\n \r\n", 2),
            ("colours and a byte order mark", "\xef\xbb\xbf\n\x1b[31mred\x1b[0m\n\x1b]0;title\x07\n", 3),
            ("zeros and ones", "".join(map(chr, range(256))) * 20 + "\n", 1),
            ("bytes that are no UTF-8", "\xff\xfe{\xc3(\n", 1),
            ("JSON that is no message", '[]\n1\n"x"\nnull\n{}\n{"jsonrpc":"2.0","id":1\n', 6),
            ("JSON a thousand deep", "[" * 1000 + "]" * 1000 + "\n", 1),
        )
    ),
    same("ten thousand messages that concern nobody", stdio(), does("", write=NOBODYS * 3400)),
    same(
        "both directions full",
        stdio(),
        *(Send(4, "echo", {"x": "x" * 1_000_000}), ProgressOf("progress", {"count": 2000}, 2000)),
        *(Call("bytes", {"count": 4_000_000}), Answers()),
    ),
    same("lines that end as on Windows", stdio(crlf=True)),
    case(
        "too much noise",
        stdio(),
        *(UP, Call("noise", {"count": 2000}), Reaches("degraded", reason="floods its stdout"), Call()),
    ),
    again(
        "unbearable noise",
        stdio(),
        *(Call("noise", {"count": 160_000}, code="UpstreamLost"), Ended("floods its stdout")),
    ),
    same("thirty thousand lines on stderr", stdio(stderr="e\n" * 30_000), Shows("stderr", like="e")),
    same("ten megabytes on stderr without a line's end", stdio(stderr={"bytes": 10_000_000})),
    case(
        "half a line, then silence",
        stdio({"timeouts": {"call": 0.4}}),
        *(UP, does("UpstreamTimeout", write=HALF, never=True), Call(code="UpstreamTimeout|"), Call()),
    ),
    again("half a line, then the end", stdio(), does(write=HALF, exit=1)),
    same("every answer twice", stdio(on={"tools/call": {"answer": 2, "never": True}}), Call(times=5)),
    same(
        "ten thousand notifications",
        stdio(),
        Call("noise", {"count": 10_000, "text": '{"jsonrpc":"2.0","method":"notifications/x"}'}),
    ),
    same("five thousand announcements", stdio(), Call("announce", {"count": 5000})),
    same(
        "asks for what was not offered",
        stdio(requests=["sampling/createMessage", "roots/list", "elicitation/create", "ping", "no/such"]),
    ),
)

SMALL: Json = {"limits": {"messageBytes": 300_000}}
SIZES = (
    same("an answer of 65537 bytes", stdio(), Call("bytes", {"count": 65_537}, says="x{60}")),
    same("an answer just under the limit", stdio(SMALL), Call("bytes", {"count": 299_000})),
    same(
        "an answer over the limit",
        stdio(SMALL),
        *(Hold(), Call("bytes", {"count": 300_001}, code="RequestTooLarge"), Call(), Withdraw()),
    ),
    again(
        "a line over the limit of which nobody knows whose it is",
        stdio(SMALL),
        *(Call("line", {"bytes": 400_000}, code="UpstreamLost|"), Ended("over the limit")),
    ),
)

LISTED = Took("tools/list")
TREES = (
    *(
        again(f"a tree of the kind {each['kind']} is killed with its root", stdio(spawn=[each]), LISTED, Kill())
        for each in TREE
    ),
    case("a tree goes with its server", stdio(spawn=list(TREE)), UP),
    case("a tree of a server that can only be killed", stdio(spawn=list(TREE), ignore=["term", "eof"]), UP),
    again(
        "it ends, and a grandchild holds its stdout",
        stdio(spawn=list(TREE)),
        *(does(exit=1), Ended("exited with status 1")),
    ),
    case(
        "it dies of a fault, and leaves daemons",
        stdio(spawn=list(TREE), on={"tools/list": {"exit": 1}}),
        Ended("exited with status 1", 2),
    ),
)

REFUSED = {"error": {"code": -32000, "message": "not today"}}
GREETING: Json = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}

HANDSHAKES = (
    *(
        # With one connection: for clients of the other era there would be a second child.
        again(f"a server of the era {era} is killed", stdio({"era": "modern"}, era=era), Call(), Kill())
        for era in ("modern", "both")
    ),
    *(
        down(
            f"initialize is answered with {what}",
            stdio({"restart": LATER}, on={"initialize": {"result": result}}),
            *("backoff", reason),
        )
        for what, result, reason in (
            ("a number", 5, "not an object"),
            ("another revision", {**GREETING, "protocolVersion": "1999-01-01"}, "1999-01-01"),
        )
    ),
    *(
        same(f"initialize is answered {what}", stdio(on={"initialize": {"result": {**GREETING, **result}}}))
        for what, result in (
            ("in another revision that is known", {"protocolVersion": "2024-11-05"}),
            (
                "with a name of the wrong type",
                {"serverInfo": {"name": ["x"], "version": 7}, "protocolVersion": "2025-06-18"},
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
BAD_NAMES = ("", "../../etc/passwd", "a\u0000b", "n" * 300, "\u202egnp", "a\nb")
OTHERS = ["set_tools", "announce", "echo"]
RENEWS = (
    *(UP, Lists(OTHERS)),
    Call(
        "set_tools",
        {"tools": ["announce", {"name": "echo", "inputSchema": {"type": "object", "title": "new"}}]},
    ),
    Call("announce", {"count": 1}),
)
"""Its `echo` gets another schema."""

LISTINGS = (
    *(
        case(f"the listing is {what}", stdio(on={"tools/list": answer}), Reaches("degraded", reason=reason))
        for what, answer, reason in (
            ("a number", {"result": 5}, ""),
            ("tools that are no list", {"result": {"tools": {"a": 1}}}, ""),
            ("refused", REFUSED, "not today"),
        )
    ),
    case(
        "the cursor never ends",
        stdio({"timeouts": {"list": 120}}, cursor="endless", tools=1),
        Reaches("degraded", reason="1000 pages"),
    ),
    case("the cursor repeats", stdio(cursor="same", tools=1), Reaches("degraded", reason="repeats the cursor")),
    case(
        "three thousand tools in pages of a hundred",
        stdio(tools=3000, page=100),
        *(UP, Shows("tools", least=3000), Call("echo7")),
    ),
    same("nonsense among the tools", stdio(tools=[1, None, {}, {"name": 5}, [], "echo"]), Lists(["echo"])),
    same("two tools of one name", stdio(tools=["echo", "echo"]), Lists(["echo"])),
    same(
        "a schema that turns in a circle",
        stdio(tools=["echo", {"name": "turns", "inputSchema": SCHEMA}]),
        *(Call(), Call("turns", code="|InvalidArguments")),
    ),
    same(
        "names that nobody should have",
        stdio(tools=["echo", *({"name": name, "inputSchema": {}} for name in BAD_NAMES)]),
        Shows("quarantined", like="."),
    ),
    same(
        "a description of a hundred kilobytes",
        stdio(tools=["echo", {"name": "long", "description": "d" * 100_000, "inputSchema": {}}]),
    ),
    same(
        "other tools, announced",
        stdio(tools=OTHERS),
        *(Lists(OTHERS), EpochRises(0), Call("set_tools", {"tools": ["announce", "echo", "pid"]})),
        *(Call("announce", {"count": 3}), Lists(["announce", "echo", "pid"]), EpochRises(1)),
    ),
    same(
        "the same tools, announced",
        stdio(),
        *(EpochRises(0), Call("announce", {"count": 3}), Took("tools/list", 2), EpochRises(0)),
    ),
    case(
        "other tools after a restart",
        stdio(runs=[{"tools": ["echo", "act"]}, {"tools": ["echo", "pid"]}]),
        *(UP, Lists(["echo", "act"]), EpochRises(0), Kill(), AGAIN, Lists(["echo", "pid"]), EpochRises(1)),
    ),
    case("another schema, announced", stdio(tools=OTHERS), *RENEWS, Lists(["announce", "echo"]), Call()),
    case(
        "another schema, and a call before anybody has looked",
        stdio(tools=OTHERS),
        *(*RENEWS, Took("tools/list", 2), Call(code="ToolChanged", says="new"), Call()),
    ),
)

CALLS = (
    *(
        again(
            f"it commits, then {what}",
            stdio(),
            Call("effect", {"then": then}, code="UpstreamLost", says=LOST),
            effects=1,
        )
        for what, then in (
            ("exits", {"exit": 1}),
            ("is killed", {"signal": "SIGKILL"}),
            ("closes its stdout", {"close_stdout": True}),
        )
    ),
    same(
        "it commits and never says so",
        stdio({"timeouts": {"call": 0.4}}),
        Call("effect", {"then": {"never": True}}, code="UpstreamTimeout", says="may have run"),
        effects=1,
    ),
    same("it refuses a call", stdio(), Call("refuse", code="UpstreamCallError", says="I refuse")),
    same("a call fails", stdio(), Call("fail", code="isError")),
    same("a call is cancelled", stdio(), Hold(3), Withdraw(), Took("notifications/cancelled", 3)),
    same("a client goes away", stdio(), CallFromAnother(), Took("notifications/cancelled")),
    again(
        "more calls than it takes",
        stdio({"limits": {"inFlight": 2, "queue": 2}}),
        *(Hold(2), Send(5), Call(code="Overloaded", says="not sent"), Kill()),
        Answers("UpstreamLost|UpstreamUnavailable|Overloaded", some="Overloaded"),
    ),
    same("sixteen clients with the same ids", stdio({"limits": {"inFlight": 1000}}), Crowd(16, 40)),
    case(
        "sixteen clients, and it is killed",
        stdio(on={"tools/call": [*([None] * 100), {"signal": "SIGKILL"}]}),
        *(UP, Crowd(16, 20, code="|UpstreamLost|UpstreamUnavailable|Overloaded"), Ended("SIGKILL")),
    ),
    same("one id twice", stdio(), SameId()),
    same(
        "progress under a token that is a number", stdio(), ProgressOf("progress", {"count": 50}, 50, token=7)
    ),
    same(
        "progress under a token with the id of another call",
        stdio(),
        *(ProgressOf("progress", {"count": 3}, 3, token=token) for token in ("1", 1)),
    ),
)

SECRETS = (
    case(
        "a secret in stderr",
        stdio({"env": {"TOKEN": SECRET}}, stderr=f"using {SECRET} now\n"),
        *(UP, Shows("stderr", like="using")),
        secrets=(SECRET,),
    ),
    case(
        "a secret in the refusal of its listing",
        stdio(
            {"env": {"TOKEN": SECRET}}, on={"tools/list": {"error": {"code": 1, "message": f"bad {SECRET}"}}}
        ),
        Reaches("degraded", reason="bad"),
        secrets=(SECRET,),
    ),
)

CASES = (*ENDS, *STARTS, *HANGS, *NOISE, *SIZES, *TREES, *HANDSHAKES, *LISTINGS, *CALLS, *SECRETS)
