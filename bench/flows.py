"""`python -m bench.flows`: the number of files of `daemon/` that the daemon enters for one event.

A reader must open these files to follow the event, and a change may touch them. Each event happens a few times
in one daemon (`bench.trace` counts), and the run with the fewest files counts, since timers may add files to
the others. A crash and a reload include the time until all watchers know. The last row counts the modules of
`daemon` that `mcpd status` imports.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from bench.calls.daemons import servers
from bench.calls.targets import FEW_TOOLS
from bench.running import INTRODUCTION, Client, Unmeasurable
from bench.trace import Trace, Traced, traces, tracing
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALL, ELICITATION = "a warm tools/call on category", "an elicitation in a call"
STATUS = "mcpd status, modules that it imports"

MOST = {
    CALL: 15,
    "crash to ready": 80,
    "reload of one server": 90,
    "mcpd status, in the daemon": 35,
    ELICITATION: 18,
    STATUS: 25,
}
"""The most files that each event may enter."""

RUNS = 3

SETTLE_SECONDS = 1.5
"""Seconds after a kill or a change: for the restart, and half a second until its events are stored."""

QUIET_SECONDS = 0.2
"""Seconds before an event, in which the daemon sees that the request before it has hung up."""

SOON = {"base": 0.2, "floor": 0.1, "cap": 0.4}
"""An early restart, so that few other events happen during a crash."""

QUESTION = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}

_ASK = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"ask","arguments":{}}}'

_PROGRAM = f"""
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, answer = message.get("method"), {{"id": message.get("id"), "result": {{}}}}
    if method == "initialize":
        answer["result"] = {{
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {{"tools": {{}}}},
            "serverInfo": {{"name": "asking", "version": "1"}},
        }}
    elif method == "tools/list":
        answer["result"]["tools"] = [{{"name": "ask", "inputSchema": {{"type": "object"}}}}]
    elif method == "tools/call":
        call = message["id"]
        answer = {{"id": "q", "method": "elicitation/create", "params": {QUESTION}}}
    elif method is None:
        answer = {{"id": call, "result": {{"content": []}}}}
    elif "id" in message:
        answer = {{"id": message["id"], "error": {{"code": -32601, "message": "no such method"}}}}
    else:
        continue
    print(json.dumps({{"jsonrpc": "2.0", **answer}}), flush=True)
"""

ASKING = {"command": sys.executable, "args": ["-I", "-S", "-c", _PROGRAM]}
"""A server whose only tool first asks its client something."""


def traced(daemon: Traced, act: Callable[[], object]) -> Trace:
    """The daemon's Python calls during an action, without the end of the request before it."""
    time.sleep(QUIET_SECONDS)
    return daemon.traced(act)


def crash(daemon: Traced) -> Trace:
    """Kill a server and wait until it is ready again; nobody asks the daemon meanwhile."""
    pid = daemon.ask("status")["servers"]["s0"]["pid"]

    def happens() -> None:
        os.kill(pid, signal.SIGKILL)
        time.sleep(SETTLE_SECONDS)

    found = traced(daemon, happens)
    server = daemon.ask("status")["servers"]["s0"]
    if server["state"] != "ready" or server["pid"] == pid:
        raise Unmeasurable(f"s0 is not ready {SETTLE_SECONDS} s after it was killed")
    return found


def reload(daemon: Traced) -> Trace:
    """Change one server's entry and reload."""
    daemon.configured["mcpServers"]["s0"]["env"] = {"CHANGED": str(time.monotonic())}
    daemon.write()

    def happens() -> None:
        if daemon.ask("reload")["restarted"] != ["s0"]:
            raise Unmeasurable("s0 was not restarted")
        time.sleep(SETTLE_SECONDS)

    return traced(daemon, happens)


def status(daemon: Traced) -> Trace:
    """Make the request of `mcpd status`."""
    return traced(daemon, partial(daemon.ask, "status"))


def elicitation(daemon: Traced) -> Trace:
    """Call a tool that asks the client, and answer; the client has done so before."""
    with Client(daemon, "full") as client:
        client.ask("initialize", {**INTRODUCTION, "capabilities": {"elicitation": {}}})
        client.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        client.result_of("tools/list", {})

        def happens() -> None:
            client.send(_ASK)
            asked = client.notice("elicitation/create")
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {}}}
            client.send(json.dumps(answer).encode())
            if "result" not in client.receive():
                raise Unmeasurable("the call was not answered after the question was")

        happens()
        return daemon.traced(happens)


def imported(daemon: Traced) -> int:
    """The count of modules of `daemon` that `mcpd status` imports."""
    count = "print(sum(name.startswith('daemon') for name in sys.modules), file=sys.stderr)"
    program = f"import atexit, sys, daemon.cli; atexit.register(lambda: {count}); daemon.cli.main()"
    environ = {**daemon.environ, "PYTHONPATH": str(daemon.code)}
    words = [sys.executable, "-c", program, "status"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=WAIT, check=True)
    return int(done.stderr)


FLOWS: dict[str, Callable[[Traced], Trace]] = {
    "crash to ready": crash,
    "reload of one server": reload,
    "mcpd status, in the daemon": status,
    ELICITATION: elicitation,
}


def measured() -> Iterator[tuple[str, Trace]]:
    """Each event with its trace.

    Raises:
        Unmeasurable: something did not happen.
    """
    yield CALL, traces("category")["category"]
    known = servers([FEW_TOOLS, FEW_TOOLS])
    known["s0"]["restart"] = SOON
    known["asking"] = ASKING
    with tracing({"mcpServers": known}) as daemon, Client(daemon, "category") as watching:
        watching.introduce()
        watching.result_of("tools/list", {})
        for what, flow in FLOWS.items():
            yield what, min((flow(daemon) for _ in range(RUNS)), key=lambda trace: trace.files)
        print(f"{STATUS:<40}{imported(daemon):>7}{MOST[STATUS]:>8}")


def main(words: list[str]) -> int:
    """Print a line for each event; with `--files`, also its files in the order of entry."""
    print(f"{'what happens':<40}{'files':>7}{'wanted':>8}")
    for what, trace in measured():
        print(f"{what:<40}{trace.files:>7}{MOST[what]:>8}", flush=True)
        for file in dict.fromkeys(trace.order) if "--files" in words else ():
            print(f"    {file}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
