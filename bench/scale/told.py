"""Measures how soon a daemon knows another one's writes on the same PostgreSQL, as their clients see it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from bench.calls.daemons import servers
from bench.running import Client, running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.running import Daemon

TIMES = 200
"""Loads, switches and calls, each timed; two of them lie beyond the 99th percentile."""

TOOLS = TIMES + 1
"""Tools: each is loaded once, and the last one is switched off and on."""

KEY = "told"
CHANGED = "notifications/tools/list_changed"


def tellings(url: str) -> dict[str, Sequence[float]]:
    """Measure with two daemons: the seconds of each kind of news.

    Args:
        url: a PostgreSQL database for this measurement only.

    Raises:
        Unmeasurable: something did not start or answer.
    """
    config = {"mcpServers": servers([TOOLS]), "state": {"url": url}}
    with ExitStack() as stack:
        one, other = (stack.enter_context(running(config)) for _ in range(2))
        here, there = (stack.enter_context(Client(daemon, "load", session=KEY)) for daemon in (one, other))
        (server,) = config["mcpServers"]
        with Client(one, "full") as wide:
            names = [tool["name"] for tool in wide.result_of("tools/list", {}).result["tools"]]
        there.introduce()
        loads = [_load(here, there, name) for name in names[:TIMES]]
        switched = f"{server}/{names[0]}"
        switches = [_switch(one, there, switched, off=number % 2 == 0) for number in range(TIMES)]
        pair = [stack.enter_context(Client(daemon, "load", session="turns")) for daemon in (one, other)]
        turns = []
        for name in names[:TIMES]:
            turns.append(_turn(pair[0], pair[1], name))
            pair.reverse()
    return {
        "from the answer to a load at one to the notification of a client at the other": loads,
        "from the answer to an operator at one to the same": switches,
        "a call at one, right after its tool was loaded at the other": [first for first, _ in turns],
        "the same call again": [again for _, again in turns],
    }


def _load(here: Client, there: Client, name: str) -> float:
    there.result_of("tools/list", {})
    here.result_of("tools/call", {"name": "load_mcp_tool", "arguments": {"names": [name]}})
    return _until_told(there)


def _switch(one: Daemon, there: Client, name: str, *, off: bool) -> float:
    there.result_of("tools/list", {})
    one.ask("switch", name=name, off=off)
    return _until_told(there)


def _until_told(client: Client) -> float:
    began = time.perf_counter()
    client.notice(CHANGED)
    return time.perf_counter() - began


def _turn(loading: Client, calling: Client, name: str) -> tuple[float, float]:
    loading.result_of("tools/call", {"name": "load_mcp_tool", "arguments": {"names": [name]}})
    took = []
    for _ in range(2):
        began = time.perf_counter()
        calling.result_of("tools/call", {"name": name, "arguments": {}})
        took.append(time.perf_counter() - began)
    return took[0], took[1]
