"""What operators do at the wrong moment, and configurations that are none."""

from __future__ import annotations

from typing import Any

from tests.faults.case import Case, Net, Stdio, Step
from tests.faults.steps import AGAIN, UP, Answers, Call, Ended, Hold, Kill, Reaches, Same, Served, Shows
from tests.faults.upstreams import NEVER
from tests.faults.visits import Asks, Floods, Operator, Reconfigures, Writes

Json = dict[str, Any]

SECRET = "canary-secret-55013"


def case(name: str, *steps: Step, server: Stdio | Net | None = None, **more: Any) -> Case:
    """A case whose server is a sound child, if nothing else is said."""
    return Case(name=name, server=server or Stdio(), steps=steps, **more)


CONFIGURATIONS = (
    *(
        case(
            f"the configuration becomes {what}",
            UP,
            Writes(text),
            Operator("reload", error=pattern),
            Call(),
            Same(),
        )
        for what, text, pattern in (
            ("nothing", None, "no such file"),
            ("empty", "", "\\$|empty|JSON"),
            ("half of itself", '{"mcpServers": {"a": {"comm', "JSON|line|\\$"),
            ("a list", "[]", "\\$"),
            ("zeros", "\0" * 100, "JSON|line|\\$"),
            ("no UTF-8", "\udcff", "UTF-8|decode"),
            ("a key that does not exist", '{"mcpServers": {}, "sevrers": {}}', "sevrers"),
            (
                "a type that does not exist",
                '{"mcpServers": {"a": {"type": "telepathy", "command": "x"}}, "lazy": 5}',
                "telepathy",
            ),
            ("a server without a command", '{"mcpServers": {"a": {}}, "lazy": 5}', "command"),
            (
                "a variable that is not set",
                '{"mcpServers": {"a": {"command": "${NO_SUCH_VARIABLE}"}}, "lazy": 5}',
                "NO_SUCH_VARIABLE",
            ),
            ("a name that is a path", '{"mcpServers": {"../..": {"command": "x"}}}', "\\.\\./"),
            (
                "a hundred faults",
                '{"mcpServers": {'
                + ",".join(f'"a{n}": {{"comand": "x"}}' for n in range(100))
                + '}, "lazy": 5}',
                "comand",
            ),
        )
    ),
    case("the same configuration, ten times", UP, *[Operator("reload")] * 10, Call(), Same()),
    case(
        "another environment",
        UP,
        Hold(2),
        Reconfigures({"env": {"A": "1"}}),
        Answers("UpstreamLost"),
        Reaches("ready"),
        Served(),
        Call("env", says="A"),
    ),
    case("another description only", UP, Hold(1), Reconfigures({"description": "new"}), Call(), Same()),
    case(
        "another command that does not exist, and back",
        UP,
        Reconfigures({"command": "/no/such"}),
        Reaches("failed"),
        Call(code="UpstreamUnavailable"),
    ),
    case("taken out while it starts", server=Stdio(script={"on": {"initialize": {"never": True}}})),
    case("taken out with calls in flight", UP, Hold(20)),
    case(
        "taken out while it waits for its next start",
        Ended("exited"),
        server=Stdio(script={"on": {"start": {"exit": 1}}}),
    ),
    case("taken out while its line is silent", UP, Hold(3), server=Net(kind="http")),
    case("taken out before its stream is open", server=Net(kind="sse", on={"GET": [NEVER]})),
)

WORDS = (
    case(
        "restarted with calls in flight",
        UP,
        Hold(5),
        Operator("restart", {"server": "{name}"}),
        Answers("UpstreamLost"),
        AGAIN,
        Call(),
    ),
    case(
        "restarted while it is down",
        Reaches("failed"),
        Operator("restart", {"server": "{name}"}),
        Reaches("failed", restarts=1),
        server=Stdio(script={"on": {"start": {"exit": 78}}}),
    ),
    case(
        "switched off with calls in flight, and on again",
        UP,
        Hold(5),
        Operator("switch", {"name": "{name}", "off": True}),
        Answers("UpstreamLost|UpstreamUnavailable"),
        Reaches("disabled"),
        Call(code="UnknownCategory"),
        Operator("switch", {"name": "{name}", "off": False}),
        UP,
        Served(),
    ),
    case(
        "a tool is switched off, and on again",
        UP,
        Operator("switch", {"name": "{name}/echo", "off": True}),
        Call(code="ToolDisabled"),
        Call("pid"),
        Operator("switch", {"name": "{name}/echo", "off": False}),
        Call(),
        Same(),
    ),
    case(
        "its list is asked for while it is down",
        Reaches("failed"),
        Operator("refresh", {"server": "{name}"}),
        server=Stdio(script={"on": {"start": {"exit": 78}}}),
    ),
    case(
        "its list is asked for while it is frozen",
        UP,
        Kill("SIGSTOP"),
        Operator("refresh", {"server": "{name}"}),
        Kill("SIGCONT"),
        Reaches("ready|degraded"),
        Call(),
        server=Stdio(entry={"timeouts": {"list": 0.3}}),
    ),
    *(
        case(f"{method} of nobody", UP, Operator(method, params, error="nobody"), Call(), Same())
        for method, params in (
            ("restart", {"server": "nobody"}),
            ("refresh", {"server": "nobody"}),
            ("switch", {"name": "nobody", "off": True}),
        )
    ),
    *(
        case(f"{method} with {what}", UP, Operator(method, params, error="."), Call(), Same())
        for method, params, what in (
            ("restart", {}, "nothing"),
            ("switch", {"name": 5, "off": "x"}, "the wrong types"),
            ("search", {"queries": 5}, "the wrong types"),
            ("sessions", {"key": 5}, "the wrong types"),
            ("no-such-word", {}, "anything"),
        )
    ),
    case("a hundred times the status", UP, Asks("status", 100), Call(), Same(), Shows("restarts", least=0)),
    case("sixty words at once", UP, Floods("status", 60), Call(), Same()),
    case("two hundred words at once", UP, Floods("status", 200, refused=True), Call(), Same()),
)

SECRETS = (
    case(
        "a secret in a faulty configuration",
        UP,
        Writes(
            '{"mcpServers": {"a": {"command": "x", "env": {"K": "' + SECRET + '"}, "comand": "y"}}, "lazy": 5}'
        ),
        Operator("reload", error="comand"),
        Call(),
        Same(),
        secrets=(SECRET,),
    ),
    case(
        "a secret in a command that does not exist",
        Reaches("failed"),
        Call(code="UpstreamUnavailable"),
        server=Stdio(entry={"command": "/no/such", "args": ["--token", SECRET], "env": {"TOKEN": SECRET}}),
        secrets=(SECRET,),
    ),
)

CASES = (*CONFIGURATIONS, *WORDS, *SECRETS)
