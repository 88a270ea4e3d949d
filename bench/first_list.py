"""Measures how soon a client has its tools if no daemon runs: `python -m bench.first_list`.

The daemon has listed its servers before, so its store knows them. Each round begins without a daemon, opens
`mcpd connect` as a client does, and measures the time until the answers to `tools/list` and `prompts/list`. The
CPU time is that of the bridge, of its child processes, and of the daemon until then, without servers. With
`--against DIR` both checkouts take turns. Python keeps its bytecode, as in every installation of mcpd.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import attrs

from bench.calls.wires import cpu_of
from bench.running import INTRODUCTION, Unmeasurable
from tests.e2e.harness import ROOT, scripted
from tests.scripted_server import tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVERS, TOOLS = 8, 10
"""Servers, and tools of each server."""

KNOWN_SECONDS = 60.0
"""Seconds that the first daemon has to list and store all servers."""

METHODS = {"tools/list": "tools", "prompts/list": "prompts"}


@attrs.frozen
class Round:
    """The waiting times of a client in seconds; infinity if a bridge answered for a late daemon."""

    tools: float
    prompts: float
    cpu: float
    load: float

    def __str__(self) -> str:
        """One line of the output."""
        waited = f"tools {self.tools:.2f} s, prompts {self.prompts:.2f} s"
        return f"{waited}, CPU {self.cpu:.2f} s, load {self.load:.1f}"


def main() -> None:
    """Print each round, and the medians of each checkout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout, in turn with this one")
    options = parser.parse_args()
    checkouts = [ROOT, *([options.against.resolve()] if options.against else [])]
    rounds: dict[Path, list[Round]] = {each: [] for each in checkouts}
    with TemporaryDirectory(prefix="mcpd-", dir="/tmp") as home:
        environs = {code: _environ(Path(home) / str(number), code) for number, code in enumerate(checkouts)}
        for environ in environs.values():
            _know(environ)
        for _ in range(options.rounds):
            for code, environ in environs.items():
                rounds[code].append(_round(environ))
                print(code.name, rounds[code][-1], flush=True)
    for code, each in rounds.items():
        print("median", code.name, _median(each))


def _median(rounds: Sequence[Round]) -> Round:
    return Round(*(statistics.median(column) for column in zip(*map(attrs.astuple, rounds), strict=True)))


def _environ(home: Path, code: Path) -> dict[str, str]:
    """The environment of a user with these servers and no daemon."""
    places = {"XDG_RUNTIME_DIR": "run", "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state"}
    found = {name: str(home / each) for name, each in places.items()}
    (home / "run").mkdir(mode=0o700, parents=True)
    (home / "config" / "mcpd").mkdir(parents=True)
    servers = {
        f"s{number}": scripted(tools=[tool(f"t{number}_{each}") for each in range(TOOLS)])
        for number in range(SERVERS)
    }
    configured = {"mcpServers": servers, "profiles": {"default": {"surface": "full"}}}
    (home / "config" / "mcpd" / "mcpd.json").write_text(json.dumps(configured))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found |= {"HOME": str(home), "PYTHONPATH": str(code), "PYTHONPYCACHEPREFIX": str(home / "pyc")}
    return {**kept, **found}


def _mcpd(environ: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "daemon", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def _know(environ: Mapping[str, str]) -> None:
    """Let a daemon list all servers and store the lists, then stop it."""
    _mcpd(environ, "start")
    until = time.monotonic() + KNOWN_SECONDS
    while True:
        servers = json.loads(_mcpd(environ, "status", "--json").stdout or "{}").get("servers", {})
        if len(servers) == SERVERS and all(each["state"] == "ready" for each in servers.values()):
            break
        if time.monotonic() > until:
            raise Unmeasurable(f"the servers did not come up within {KNOWN_SECONDS:g} s")
    _mcpd(environ, "stop")


def _round(environ: Mapping[str, str]) -> Round:
    """Measure a bridge from its start to its tools and prompts; no daemon runs before or after."""
    began, before = time.monotonic(), _cpu_of_children()
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
        daemon = cpu_of(_daemon(environ))
    # The bridge has waited for `mcpd start`, if it ran that, so its time is in there.
    cpu = daemon + _cpu_of_children() - before
    _mcpd(environ, "stop")
    tools, prompts = took
    return Round(tools, prompts, cpu, os.getloadavg()[0])


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _daemon(environ: Mapping[str, str]) -> int:
    """The pid of the daemon."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(Path(environ["XDG_RUNTIME_DIR"], "mcpd", "mcpd.sock")))
        raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(raw[:4], sys.byteorder)


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
