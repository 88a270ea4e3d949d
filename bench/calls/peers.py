"""`python -m bench.calls.peers NAME=COMMAND...`: compares mcpd's calls with those of other proxies, in one run.

    python -m bench.calls.peers 'fastmcp=fastmcp run {config} --no-banner' 'modular=modular-mcp {config}'

COMMAND is a proxy that speaks MCP over stdio; `{config}` becomes a file with `mcpServers`, which has one echo
server. The benchmark calls the tool whose name ends with `echo_0`, or the meta-tool of `--wrapped`: its `name`
and `arguments`, where "$ARGUMENTS" stands for the arguments of the tool. The last column is the median of the
rounds' ratios to direct calls.
"""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench.calls.daemons import servers
from bench.calls.rounds import Case, measured
from bench.calls.targets import CATEGORY, CONNECT, FEW_TOOLS, SOCKET, Direct, Mcpd, over_stdio
from bench.calls.wires import Request
from bench.running import Unmeasurable, running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.calls.targets import Target
    from bench.calls.wires import Wire

ROUNDS = 15
SECONDS = 0.3
"""Length of each turn."""


class Peer:
    """Another proxy in front of the same server."""

    pid = None

    def __init__(self, name: str, command: Sequence[str], wrapped: Mapping[str, object] | None) -> None:
        """Name the proxy; `wrapped` is the call of its meta-tool, if it has one."""
        self.name = name
        self._command = command
        self._wrapped = wrapped
        self._tool = ""

    def connect(self, number: int) -> Wire:
        """A separate process of the proxy, as is usual for such proxies."""
        wire = over_stdio(self._command, {})
        names = [tool["name"] for tool in wire.ask("tools/list", {})["tools"]]
        self._tool = next((name for name in names if name.endswith("echo_0")), "")
        if not self._tool and self._wrapped is None:
            raise Unmeasurable(f"{self.name} lists no echo_0 and needs --wrapped: {', '.join(names)}")
        return wire

    def request(self, number: int, arguments: Mapping[str, object], tool: str) -> Request:
        """A call by the tool's name, or through the meta-tool."""
        if self._wrapped is None:
            return Request.of(self._tool, arguments)
        said = json.dumps(self._wrapped["arguments"]).replace('"$ARGUMENTS"', json.dumps(arguments))
        return Request.of(str(self._wrapped["name"]), json.loads(said))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("peers", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("--wrapped", action="append", default=[], metavar="NAME=JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    config = {
        "mcpServers": {name: {**each, "description": "Echo."} for name, each in servers([FEW_TOOLS]).items()}
    }
    wrapped = {name: json.loads(said) for name, _, said in (each.partition("=") for each in asked.wrapped)}
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpd-"))) / "peer.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        daemon = stack.enter_context(running(config))
        peers = [
            Peer(name, shlex.split(command.replace("{config}", str(path))), wrapped.get(name))
            for name, _, command in (each.partition("=") for each in asked.peers)
        ]
        targets: list[Target] = [
            Direct(),
            *(Mcpd(way, daemon, way) for way in (SOCKET, CATEGORY, CONNECT)),
            *peers,
        ]
        names = tuple(target.name for target in targets)
        cases = [Case(name=f"{window} in flight, 100 B", targets=names, window=window) for window in (1, 32)]
        rows = measured(targets, cases, asked.rounds, SECONDS)
    print("| calls | target | p50 us | calls/s | to direct |\n|---|---|---|---|---|")
    for row in rows:
        p50 = "-" if row.p50_us is None else f"{row.p50_us:.1f}"
        to_direct = row.p50_ratio if row.p50_ratio is not None else row.rate_ratio
        print(f"| {row.case} | {row.target} | {p50} | {row.rate:,.0f} | {to_direct or 0:.2f} |")


if __name__ == "__main__":
    main()
