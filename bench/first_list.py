"""How soon a client has its tools where no daemon runs: `python -m bench.first_list`.

The daemon has listed its servers before, so its store knows them. Each round begins without a daemon, opens
`mcpd connect` as a client does, and measures until the answers to `tools/list` and `prompts/list` are there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.running import INTRODUCTION, Unmeasurable
from tests.e2e.harness import ROOT, scripted
from tests.scripted_server import tool

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVERS, TOOLS = 8, 10
"""Servers, and tools of each."""

KNOWN_SECONDS = 60.0
"""How long the first daemon has to list and store all servers."""

METHODS = {"tools/list": "tools", "prompts/list": "prompts"}


def main() -> None:
    """Print the times of each round, and the load that it was measured at."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--against", type=Path, default=ROOT, metavar="DIR", help="another checkout")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="mcpd-", dir="/tmp") as home:
        environ = _environ(Path(home), options.against)
        _know(environ)
        for _ in range(options.rounds):
            tools, prompts = _round(environ)
            print(f"tools {tools:.2f} s, prompts {prompts:.2f} s, load {os.getloadavg()[0]:.1f}", flush=True)


def _environ(home: Path, code: Path) -> dict[str, str]:
    """The environment of a user who has such servers and no daemon."""
    places = {"XDG_RUNTIME_DIR": "run", "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state"}
    found = {name: str(home / each) for name, each in places.items()}
    (home / "run").mkdir(mode=0o700)
    (home / "config" / "mcpd").mkdir(parents=True)
    servers = {
        f"s{number}": scripted(tools=[tool(f"t{number}_{each}") for each in range(TOOLS)])
        for number in range(SERVERS)
    }
    configured = {"mcpServers": servers, "profiles": {"default": {"surface": "full"}}}
    (home / "config" / "mcpd" / "mcpd.json").write_text(json.dumps(configured))
    return {**os.environ, **found, "HOME": str(home), "PYTHONPATH": str(code)}


def _mcpd(environ: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "daemon", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def _know(environ: Mapping[str, str]) -> None:
    """Have a daemon list all servers and store that, and stop it."""
    _mcpd(environ, "start")
    until = time.monotonic() + KNOWN_SECONDS
    while True:
        servers = json.loads(_mcpd(environ, "status", "--json").stdout or "{}").get("servers", {})
        if len(servers) == SERVERS and all(each["state"] == "ready" for each in servers.values()):
            break
        if time.monotonic() > until:
            raise Unmeasurable(f"the servers did not come up within {KNOWN_SECONDS:g} s")
    _mcpd(environ, "stop")


def _round(environ: Mapping[str, str]) -> tuple[float, float]:
    """Seconds from the start of the client's bridge to its tools and its prompts; no daemon runs after it.

    Infinity where the bridge stood in for a daemon that was not there in time.
    """
    began = time.monotonic()
    command = [sys.executable, "-P", "-m", "daemon", "connect"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environ, **pipes) as bridge:
        _ask(bridge, "initialize", INTRODUCTION)
        assert bridge.stdin is not None
        bridge.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        took = []
        for method, member in METHODS.items():
            listed = _ask(bridge, method, {})[member]
            came = method != "tools/list" or len(listed) == SERVERS * TOOLS
            took.append(time.monotonic() - began if came else math.inf)
    _mcpd(environ, "stop")
    return took[0], took[1]


def _ask(bridge: subprocess.Popen[bytes], method: str, params: object) -> dict[str, Any]:
    assert bridge.stdin is not None
    assert bridge.stdout is not None
    request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    bridge.stdin.write(json.dumps(request).encode() + b"\n")
    bridge.stdin.flush()
    for line in bridge.stdout:
        answer: dict[str, Any] = json.loads(line)
        if answer.get("id") == method:
            found: dict[str, Any] = answer["result"]
            return found
    raise Unmeasurable("the bridge has ended")


if __name__ == "__main__":
    main()
