"""What operators do at the wrong moment, and configurations that are none."""

from typing import Any

from tests.faults.case import Case, Step
from tests.faults.steps import (
    UP,
    Answers,
    Call,
    Ended,
    Hold,
    Kill,
    Reaches,
    Served,
    Shows,
    again,
    case,
    down,
    net,
    same,
    stdio,
)
from tests.faults.upstreams import NEVER
from tests.faults.visits import Asks, Floods, Operator, Reconfigures, Writes

Json = dict[str, Any]

SECRET = "canary-secret-55013"
NO_START = stdio(on={"start": {"exit": 78}})
LOST = Answers("UpstreamLost|UpstreamUnavailable")


def unmoved(name: str, *steps: Step, **more: Any) -> Case:
    """A sound server that notices nothing."""
    return same(name, stdio(), *steps, **more)


def order(method: str, name: str = "{name}", **params: Any) -> Operator:
    """What an operator says of one server."""
    return Operator(method, {"name" if method == "switch" else "server": name, **params})


FAULTY = {
    "nothing": (None, "no such file"),
    "empty": ("", "\\$|empty|JSON"),
    "half of itself": ('{"mcpServers": {"a": {"comm', "JSON|line|\\$"),
    "a list": ("[]", "\\$"),
    "zeros": ("\0" * 100, "JSON|line|\\$"),
    "no UTF-8": ("\udcff", "UTF-8|decode"),
    "a key that does not exist": ('{"mcpServers": {}, "sevrers": {}}', "sevrers"),
    "a name that is a path": ('{"mcpServers": {"../..": {"command": "x"}}}', "\\.\\./"),
    "a hundred faults": (
        '{"mcpServers": {' + ",".join(f'"a{n}": {{"comand": "x"}}' for n in range(100)) + '}, "lazy": 5}',
        "comand",
    ),
}
SECRET_AND_FAULT = (
    '{"mcpServers": {"a": {"command": "x", "env": {"K": "' + SECRET + '"}, "comand": "y"}}, "lazy": 5}'
)

CONFIGURATIONS = (
    *(
        unmoved(f"the configuration becomes {what}", Writes(text), Operator("reload", error=pattern))
        for what, (text, pattern) in FAULTY.items()
    ),
    unmoved(
        "a secret in a faulty configuration",
        *(Writes(SECRET_AND_FAULT), Operator("reload", error="comand")),
        secrets=(SECRET,),
    ),
    unmoved("the same configuration, ten times", *[Operator("reload")] * 10),
    case(
        "another environment",
        stdio(),
        *(UP, Hold(2), Reconfigures({"env": {"A": "1"}}), Answers("UpstreamLost")),
        *(UP, Served(), Call("env", says="A")),
    ),
    unmoved("another description only", Hold(1), Reconfigures({"description": "new"})),
    case(
        "another command that does not exist, and back",
        stdio(),
        *(UP, Reconfigures({"command": "/no/such"}), Reaches("failed"), Call(code="UpstreamUnavailable")),
    ),
    down(
        "a secret in a command that does not exist",
        stdio({"command": "/no/such", "args": ["--token", SECRET], "env": {"TOKEN": SECRET}}),
        "failed",
        secrets=(SECRET,),
    ),
    case("taken out while it starts", stdio(on={"initialize": {"never": True}})),
    case("taken out with calls in flight", stdio(), UP, Hold(20, args={"seconds": 0.3})),
    case("taken out while it waits for its next start", stdio(on={"start": {"exit": 1}}), Ended("exited")),
    case("taken out while its line is silent", net("http"), UP, Hold(3)),
    case("taken out before its stream is open", net("sse", on={"GET": [NEVER]})),
)

WORDS = (
    again("restarted with calls in flight", stdio(), Hold(5), order("restart"), Answers("UpstreamLost")),
    case(
        "restarted while it is down",
        NO_START,
        *(Reaches("failed"), order("restart"), Reaches("failed", restarts=1)),
    ),
    case(
        "switched off with calls in flight, and on again",
        stdio(),
        *(UP, Hold(5), order("switch", off=True), LOST, Reaches("disabled"), Call(code="UnknownCategory")),
        *(order("switch", off=False), UP, Served()),
    ),
    unmoved(
        "a tool is switched off, and on again",
        *(order("switch", "{name}/echo", off=True), Call(code="ToolDisabled"), Call("pid")),
        order("switch", "{name}/echo", off=False),
    ),
    case("its list is asked for while it is down", NO_START, Reaches("failed"), order("refresh")),
    case(
        "its list is asked for while it is frozen",
        stdio({"timeouts": {"list": 0.3}}),
        *(UP, Kill("SIGSTOP"), order("refresh"), Kill("SIGCONT"), Reaches("ready|degraded"), Call()),
    ),
    *(
        unmoved(f"{method} with {what}", Operator(method, params, error=error))
        for method, what, params, error in (
            ("restart", "the name of nobody", {"server": "nobody"}, "nobody"),
            ("refresh", "the name of nobody", {"server": "nobody"}, "nobody"),
            ("switch", "the name of nobody", {"name": "nobody", "off": True}, "nobody"),
            ("search", "the wrong types", {"queries": 5}, "."),
            ("no-such-word", "anything", {}, "."),
        )
    ),
    unmoved("a hundred times the status", Asks("status", 100), Call(), Shows("restarts", least=0)),
    unmoved("sixty words at once", Floods("status", 60)),
    unmoved("two hundred words at once", Floods("status", 200, refused=True)),
)

CASES = (*CONFIGURATIONS, *WORDS)
