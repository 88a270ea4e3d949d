"""Measures calls to servers that are down: their refusals (R4), and the time until clients know (R5)."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import attrs

from bench.reliability.promise import Finding, milliseconds, percentile, sliding
from bench.reliability.stage import at_work, code_of, server, when

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.reliability.promise import Scale
    from bench.reliability.stage import Line, Watched

CALLS = 10_000
"""Calls in each state, in the full measurement."""

AT_ONCE = 200
"""Concurrent calls while each waits for the server to wake: a client may have 256."""

UP_ONCE: dict[str, Any] = {"tools": ["echo"]}

SOONER = {"stopEof": 0.1, "stopTerm": 0.1}


@attrs.frozen
class State:
    """A state in which a server is down."""

    name: str
    """The name of the state in `mcpd status`."""
    wakes: bool
    """Whether a call waits for another start of the server."""
    later: dict[str, Any] | None = None
    """The server's script for all runs after the first; None if it never starts."""
    state: str = ""
    """The state in the status, if it is not `name`."""


STATES = (
    State("failed", wakes=False, later={"on": {"start": {"exit": 127}}}),
    State("needs_auth", wakes=False),
    State("disabled", wakes=False, later={}),
    State("backoff", wakes=True, later={"on": {"start": {"exit": 1}}}, state="backoff|crashloop|starting"),
    State("starting", wakes=True, later={"on": {"initialize": {"never": True}}}),
)


def refusals(scale: Scale) -> Iterator[Finding]:
    """R4: calls to servers that are down, in every state."""
    calls = scale.of(CALLS, least=20)
    found: dict[str, list[float]] = {}
    bare = 0
    with (
        unauthorized() as url,
        at_work(partial(_servers, url), ready=False) as daemon,
        daemon.client() as line,
    ):
        for state in STATES:
            bring_down(daemon, state)
            # Each of them waits for 2 s: a tenth says as much.
            many = max(20, calls // 10) if state.name == "starting" else calls
            found[state.name], without = refused(line, state, many)
            bare += without
    yield r4(found, bare)


def _servers(url: str, directory: Path) -> dict[str, Any]:
    servers: dict[str, Any] = {"needs_auth": {"url": url}}
    for state in STATES:
        if state.later is not None:
            runs = [UP_ONCE, {**UP_ONCE, **state.later}]
            counted = str(directory / f"runs-{state.name}")
            servers[state.name] = server(tools=["echo"], count=counted, runs=runs, timeouts=SOONER)
    return servers


def bring_down(daemon: Watched, state: State) -> None:
    """Take a server down in this way, if it was up."""
    if state.later is None:
        when(lambda: daemon.server(state.name)["state"] == state.name)
        return
    when(lambda: daemon.server(state.name)["state"] == "ready")
    if state.name == "disabled":
        daemon.ask("switch", name=state.name, off=True)
    else:
        os.kill(daemon.server(state.name)["pid"], signal.SIGKILL)
    wanted = (state.state or state.name).split("|")
    when(lambda: daemon.server(state.name)["state"] in wanted)


REFUSALS = {"UpstreamUnavailable", "UnknownCategory"}
"""Error codes of calls that were not sent; to a client, a disabled server does not exist."""


def refused(line: Line, state: State, calls: int) -> tuple[list[float], int]:
    """Call a number of times: the seconds of each refusal, and the count without a reason or a next try."""
    seconds: list[float] = []
    bare = 0
    at_once = AT_ONCE if state.wakes else 1
    for many in sliding(calls, max(1, calls // at_once)):
        for number, sent in [(line.begin(state.name, "echo"), time.perf_counter()) for _ in range(many)]:
            at, message = line.end(number)
            seconds.append(at - sent)
            assert code_of(message) in REFUSALS, message
            bare += not says_enough(message, state)
    return seconds, bare


def says_enough(message: dict[str, Any], state: State) -> bool:
    """Whether a refusal has a reason, and the time of the next try, if there is one."""
    error = (message["result"].get("structuredContent") or {}).get("error", {})
    if state.name in {"disabled", "starting"}:
        return bool(error.get("message"))
    # Between two tries none is due: one is under way.
    due = error.get("nextRetryInMs") is not None or error.get("state") == "starting"
    return bool(error.get("reason")) and due


def r4(found: dict[str, list[float]], bare: int) -> Finding:
    """The finding about refused calls."""
    late = {name: percentile(seconds, 0.99) for name, seconds in found.items()}
    waking = {state.name for state in STATES if state.wakes}
    longest = max(max(found[name]) for name in waking)
    worst = max(value for name, value in late.items() if name not in waking)
    each = ", ".join(f"{name} {milliseconds(late[name])}" for name in found if name not in waking)
    return Finding(
        name="R4",
        measured=f"p99 {each}; with wake {milliseconds(longest)} at most; {bare} refusals without a reason or"
        f" a next try ({sum(map(len, found.values())):,} calls)",
        kept=worst <= 0.050 and longest <= 2.1 and not bare,
    )


class _Refuses(BaseHTTPRequestHandler):
    """Answers every request with 401."""

    def do_POST(self) -> None:
        """Refuse the request."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST
    do_DELETE = do_POST

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def unauthorized() -> Iterator[str]:
    """An HTTP server that refuses everybody."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refuses) as listener:
        thread = Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_port}/mcp"
        finally:
            listener.shutdown()
            thread.join()


EXITS = 100
"""Servers killed in the full measurement of R5."""

HANGING = 8
"""Servers that hang at the same time, at different times after their last message."""

HANG_BAR = 60.0
"""Most seconds until mcpd notices a silent hang."""

SMALL = 0.1
"""The factor of ping times in a reduced measurement: a tenth of the wait."""

SLOW_BACK = {"base": 5, "cap": 5, "floor": 5, "freeAfter": 1000, "intensity": 1_000_000}
"""Restart settings that keep servers down long enough to be seen."""


def visibility(scale: Scale) -> Iterator[Finding]:
    """R5: the time until models learn that a server is down."""
    exits = scale.of(EXITS, least=2)
    factor = 1.0 if scale.is_full else SMALL
    ping = {} if scale.is_full else {"timeouts": scaled_pings(SMALL)}
    servers = {f"exit{number}": server(SLOW_BACK, tools=["echo"]) for number in range(min(exits, 10))}
    hanging = {f"hang{number}": {**server(SLOW_BACK, tools=["echo"]), **ping} for number in range(HANGING)}
    with at_work({**servers, **hanging}) as daemon, daemon.client() as line:
        gone = [seen_down(daemon, line, f"exit{number % len(servers)}") for number in range(exits)]
        hung = hangs(daemon, line, list(hanging), HANG_BAR * factor)
    yield r5(gone, [each / factor for each in hung], factor)


def scaled_pings(factor: float) -> dict[str, float]:
    """The daemon's default ping times, multiplied by a factor."""
    from daemon.config.tuning import Timeouts  # noqa: PLC0415

    usual = Timeouts()
    return {"pingInterval": usual.ping_interval * factor, "ping": usual.ping * factor}


def seen_down(daemon: Watched, line: Line, name: str) -> float:
    """Kill a server: seconds until a model that asks learns that it is unavailable."""
    pid = daemon.server(name)["pid"]
    killed = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    known = when(lambda: is_shown_down(line, name)) - killed
    daemon.ask("restart", server=name)
    when(lambda: daemon.server(name)["state"] == "ready")
    return known


def is_shown_down(line: Line, name: str) -> bool:
    """Whether the answer for this server's tools says that they cannot be called, and why."""
    meta = line.get(name)["meta"]
    down = meta.get("unavailableServers", {}).get(name, {})
    return "echo" in meta.get("unavailableTools", []) and bool(down.get("reason"))


def hangs(daemon: Watched, line: Line, names: Sequence[str], bar: float) -> list[float]:
    """Stop servers soon after a message: seconds until each is shown as down."""
    stopped: dict[str, float] = {}
    for name in names:
        line.succeeds(name)
        pid = daemon.server(name)["pid"]
        stopped[name] = time.perf_counter()
        os.kill(pid, signal.SIGSTOP)
        # At different phases of whatever looks after them.
        time.sleep(bar / 200)
    found: dict[str, float] = {}

    def look() -> bool:
        for name in names:
            if name not in found and is_shown_down(line, name):
                found[name] = time.perf_counter() - stopped[name]
        return len(found) == len(names)

    when(look, seconds=2 * bar + 10)
    return list(found.values())


def r5(gone: list[float], hung: list[float], factor: float) -> Finding:
    """The finding about the visibility of servers that are down."""
    scaled = "" if factor == 1 else f", scaled from {factor:g} of the ping times"
    return Finding(
        name="R5",
        measured=f"exit: p99 {milliseconds(percentile(gone, 0.99))}, longest {milliseconds(max(gone))}"
        f" ({len(gone):,} kills); hang: {min(hung):.1f} to {max(hung):.1f} s ({len(hung)} servers{scaled})",
        kept=max(gone) <= 0.100 and max(hung) <= HANG_BAR,
    )
