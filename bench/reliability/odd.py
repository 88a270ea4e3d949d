"""Measures input that no peer should send: enormous (R11) and malformed (R10)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench.calls.memory import forget_peak
from bench.reliability.promise import Finding, mebibytes, milliseconds
from bench.reliability.stage import FREE, at_work, code_of, memory_of, server
from tests.fuzz.__main__ import fuzz
from tests.scripted_server import command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.reliability.promise import Scale
    from bench.reliability.stage import Json, Line, Watched

MIB = 2**20

LINE = 100 * 10**6
"""Bytes of the long line."""

KEYS = 1_000_000
"""Keys of the large object."""

MOST_KEYS = 280_000
"""Most keys in a message of 4 MiB, the limit for clients."""

MALFORMED = 10_000
"""Malformed inputs from each side."""

STALL_SECONDS = 0.100
"""Most seconds for which one input may block the loop."""


def enormous(scale: Scale) -> Iterator[Finding]:
    """R11: a line of 100 MB and an object of a million keys, each from a server and from a client."""
    line, keys = scale.of(LINE, least=20 * MIB), scale.of(KEYS, least=10_000)
    found: dict[str, tuple[float, int, int]] = {}

    def servers(directory: Path) -> dict[str, Json]:
        return {"s": server(FREE, tools=["echo", "line"]), "keys": answering(directory / "keys", keys)}

    with at_work(servers) as daemon:
        found["line from a server"] = watch(daemon, lambda client: long_line_of_server(client, line))
        found["line from a client"] = watch(daemon, lambda client: long_line_of_client(client, line))
        found["keys from a client"] = watch(daemon, lambda client: keys_of_client(client, min(keys, MOST_KEYS)))
        found["keys from a server"] = watch(daemon, lambda client: keys_of_server(client, keys))
    yield r11(found)


def answering(script: Path, keys: int) -> Json:
    """A server that answers its first call with an object of `keys` keys."""
    result = {"content": [], "structuredContent": dict.fromkeys((f"k{number:07}" for number in range(keys)), 1)}
    script.write_text(json.dumps({"tools": ["big"], "on": {"tools/call": [{"result": result}, None]}}))
    program, *words = command()
    return {"command": program, "args": [*words[:-1], f"@{script}"]}


def watch(daemon: Watched, action: Callable[[Line], None]) -> tuple[float, int, int]:
    """Run an action: the loop's longest stall, and the growth of memory, at its peak and in the end."""
    with daemon.client() as client:
        client.ask("ping")
        daemon.look()
        before = memory_of(daemon.pid)
        forget_peak(daemon.pid)
        action(client)
    stall = daemon.look()["stall"]
    return stall, memory_of(daemon.pid, peak=True) - before, memory_of(daemon.pid) - before


def long_line_of_server(client: Line, size: int) -> None:
    """A server writes one line of this size, and is then called again."""
    _took, message = client.took("s", "line", bytes=size)
    assert code_of(message) in {"UpstreamLost", "RequestTooLarge", ""}, message
    client.succeeds("s")


def long_line_of_client(client: Line, size: int) -> None:
    """A client writes one line of this size; mcpd refuses it and serves the client again."""
    client.send(b"x" * size)
    message = client.receive()
    assert "error" in message, message
    client.succeeds("s")


def keys_of_client(client: Line, keys: int) -> None:
    """A client sends a tool an object with very many keys; mcpd must serve the next call."""
    _took, message = client.took("s", "echo", **dict.fromkeys((f"k{number:06}" for number in range(keys)), 1))
    assert code_of(message) in {"", "rpc -32600"}, str(message)[:500]
    client.succeeds("s")


def keys_of_server(client: Line, keys: int) -> None:
    """A server answers with an object with very many keys; mcpd forwards it whole."""
    _took, message = client.took("keys", "big")
    assert code_of(message) == "", str(message)[:500]
    assert len(message["result"]["structuredContent"]) == keys


def r11(found: dict[str, tuple[float, int, int]]) -> Finding:
    """The finding about enormous input: the loop's stalls, and memory."""
    stall = max(stall for stall, _, _ in found.values())
    lines = max(peak for name, (_, peak, _) in found.items() if name.startswith("line"))
    after = max(after for _, _, after in found.values())
    said = f"stall {milliseconds(stall)}, memory of a line {mebibytes(lines)} at most, {mebibytes(after)} after"
    kept = stall <= STALL_SECONDS and lines <= 32 * MIB and after <= 32 * MIB
    return Finding(name="R11", measured=said, kept=kept)


def malformed(scale: Scale) -> Iterator[Finding]:
    """R10: the results of malformed input to a daemon."""
    count = scale.of(MALFORMED, least=50)
    found = fuzz(count)
    told = [
        f"{each.side}: {each.inputs:,} inputs (seed {each.seed}), {len(each.faults)} faults"
        for each in found.results
    ]
    told.append(f"longest stall {milliseconds(found.stall)}")
    yield Finding(name="R10", measured="; ".join(told), kept=not found.faults and found.stall <= STALL_SECONDS)
