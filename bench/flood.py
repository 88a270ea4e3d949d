"""Measures the delay of local clients and operators while others flood HTTP, or a server floods its list.

The daemon serves a local client over the unix socket, one call after the other with pauses, first alone, then
under each attack: `CONNECTIONS` connections of another process that send as fast as the daemon reads, read
every answer, and reconnect when the daemon disconnects them. That process gets only the processor time that
daemon and client leave, as if it ran on another machine. The last attacker is a server whose tools all get new
names twice a second. During each attack, `mcpd status` runs as well.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs

from bench.calls.daemons import TOKEN, connected, environment, listening, mcpd, servers
from bench.calls.wires import Request
from bench.running import Unmeasurable, running
from bench.tables import aligned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.calls.wires import Wire
    from bench.running import Daemon

CONNECTIONS = 100
PAUSE = 0.002
"""Seconds between the answer to a call and the next call."""
BUFFER = 300_000
"""Bytes of requests or chunks that each connection has prepared."""
CHUNKS = b"1\r\nx\r\n"

TIMES_QUIET, STATUS_SECONDS = 5.0, 1.0
"""The bars: p99 of a call relative to calm, and seconds for `mcpd status`."""
NAMES, NAMES_MS = 9_900, 100.0
"""The number of tools of the server that renames them, and the bar: the longest call in milliseconds."""

RENAMING = f"""
import json, os, sys, threading, time

turn = 0

def say(message):
    sys.stdout.write(json.dumps({{"jsonrpc": "2.0", **message}}) + "\\n")
    sys.stdout.flush()

def rename():
    global turn
    while True:
        time.sleep(0.5)
        if os.path.exists(sys.argv[1]):
            turn += 1
            say({{"method": "notifications/tools/list_changed"}})

threading.Thread(target=rename, daemon=True).start()
for line in sys.stdin:
    message = json.loads(line)
    result, params = {{}}, message.get("params", {{}})
    if message["method"] == "initialize":
        result = {{
            "protocolVersion": params["protocolVersion"],
            "capabilities": {{"tools": {{"listChanged": True}}}},
            "serverInfo": {{"name": "renaming", "version": "1"}},
        }}
    elif message["method"] == "tools/list":
        names = [f"tool_{{turn}}_{{each}}" for each in range({NAMES})]
        result = {{"tools": [{{"name": name, "inputSchema": {{"type": "object"}}}} for name in names]}}
    if "id" in message:
        say({{"id": message["id"], "result": result}})
"""
"""A server that renames all its tools twice a second while the file in its argument exists."""


@attrs.frozen
class Attack:
    """The bytes that every connection of an attack sends: a beginning, then a part that it repeats."""

    name: str
    begin: bytes
    again: bytes
    console: bool = False
    """Whether the attack goes to the console, on a daemon that serves no other HTTP."""
    waits: bool = False
    """Whether the attacker waits for the answer to the beginning."""


def _upload(token: str) -> bytes:
    return (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Accept: application/json, text/event-stream\r\nTransfer-Encoding: chunked\r\n"
        b"Authorization: Bearer " + token.encode() + b"\r\n\r\n"
    )


OPENING = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: mcp\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
)
MASKED = b"\x80\0\0\0\0"
"""The bytes after the first byte of a client's empty frame."""

ATTACKS = (
    Attack("WebSocket, pings", OPENING, b"\x89" + MASKED, waits=True),
    Attack("WebSocket, pongs", OPENING, b"\x8a" + MASKED, waits=True),
    Attack(
        "WebSocket, empty fragments",
        OPENING,
        b"\x01" + MASKED + 1000 * (b"\0" + MASKED) + b"\x80" + MASKED,
        waits=True,
    ),
    Attack(
        "WebSocket, notifications",
        OPENING,
        b"\x81\xb2\0\0\0\0" + b'{"jsonrpc":"2.0","method":"notifications/unheard"}',
        waits=True,
    ),
    Attack("pipelined GET /healthz", b"", b"GET /healthz HTTP/1.1\r\nHost:\r\n\r\n"),
    Attack("pipelined OPTIONS", b"", b"OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    Attack("wrong token, chunks of a byte", _upload("wrong"), CHUNKS),
    Attack("right token, chunks of a byte", _upload(TOKEN), CHUNKS),
    Attack("pipelined GET /ui", b"", b"GET /ui HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    Attack("console alone, pipelined GET /x", b"", b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", console=True),
    Attack(
        "console alone, pipelined GET /ui", b"", b"GET /ui HTTP/1.1\r\nHost: localhost\r\n\r\n", console=True
    ),
)
RENAMES = f"a server with {NAMES:,} new names twice a second"


@attrs.frozen
class Row:
    """The measurements during one attack."""

    name: str
    calls: int
    p50: float
    """In milliseconds, as all times here."""
    p99: float
    longest: float
    status: float
    megabytes: float = 0.0
    """Megabytes that the attack sent."""


def main(argv: Sequence[str]) -> int:
    """Measure and print.

    Returns:
        0: every bar is met; 1: one is not; 2: usage; 3: nothing could be measured.
    """
    parser = argparse.ArgumentParser(
        prog="python -m bench.flood",
        description="Calls over the unix socket and `mcpd status` while HTTP is flooded.",
        allow_abbrev=False,
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="of each attack (default: 8)")
    parser.add_argument("--only", default="", metavar="WORD", help="only attacks that have this in their names")
    options = parser.parse_args(argv)
    attacks = [each for each in ATTACKS if options.only in each.name]
    met = True
    try:
        for console in (False, True):
            if chosen := [each for each in attacks if each.console == console]:
                met &= _measured(chosen, options.seconds, console=console)
        if options.only in RENAMES:
            met &= _renamed(options.seconds)
    except Unmeasurable as error:
        print(f"bench.flood: {error}", file=sys.stderr)
        return 3
    return 0 if met else 1


def _measured(attacks: Sequence[Attack], seconds: float, *, console: bool) -> bool:
    config = {"mcpServers": servers([1]), **({} if console else listening())}
    with running(config) as daemon:
        port = _console_port(daemon) if console else int(config["listen"]["http"]["address"].rpartition(":")[2])
        wire = connected(daemon, "full")
        quiet = _row("quiet", daemon, wire, seconds)
        rows = [quiet]
        for attack in attacks:
            with _attacking(port, attack) as sent:
                row = _row(attack.name, daemon, wire, seconds)
            rows.append(attrs.evolve(row, megabytes=sent.value / 1e6))
        wire.close()
    _show(rows)
    return all(each.p99 < TIMES_QUIET * quiet.p99 and each.status < STATUS_SECONDS for each in rows[1:])


def _renamed(seconds: float) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        begun = Path(directory) / "begun"
        renaming = {"command": sys.executable, "args": ["-c", RENAMING, str(begun)]}
        with running({"mcpServers": {**servers([1]), "renaming": renaming}}) as daemon:
            wire = connected(daemon, "full")
            quiet = _row("quiet", daemon, wire, seconds)
            begun.touch()
            row = _row(RENAMES, daemon, wire, seconds)
            wire.close()
    _show([quiet, row])
    return row.longest < NAMES_MS and row.status < STATUS_SECONDS


def _show(rows: Sequence[Row]) -> None:
    head = ["", "calls", "p50 ms", "p99 ms", "x quiet", "max ms", "status s", "sent MB"]
    cells = [
        [
            each.name,
            str(each.calls),
            f"{each.p50:.2f}",
            f"{each.p99:.2f}",
            f"{each.p99 / rows[0].p99:.1f}",
            f"{each.longest:.0f}",
            f"{each.status:.2f}",
            f"{each.megabytes:.1f}",
        ]
        for each in rows
    ]
    print(aligned([head, *cells]), flush=True)


def _console_port(daemon: Daemon) -> int:
    port = urlsplit(daemon.run("ui", "--print").split()[0]).port
    assert port is not None
    return port


def _row(name: str, daemon: Daemon, wire: Wire, seconds: float) -> Row:
    request = Request.of("echo_0", {"text": "x" * 100})
    request = wire.wrap(request)
    size = wire.try_out(request)
    times: list[float] = []
    began = time.monotonic()
    with subprocess.Popen(
        mcpd("status"), env=environment(daemon), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as operator:
        status = None
        while (now := time.monotonic()) < began + seconds or status is None:
            if status is None and operator.poll() is not None:
                if operator.returncode:
                    raise Unmeasurable(f"{name}: mcpd status ended with {operator.returncode}")
                status = now - began
            wire.number += 1
            asked = time.perf_counter()
            wire.exchange(request.line(wire.number), size)
            times.append(1000 * (time.perf_counter() - asked))
            time.sleep(PAUSE)
    times.sort()
    return Row(name, len(times), times[len(times) // 2], times[len(times) * 99 // 100], times[-1], status)


@contextmanager
def _attacking(port: int, attack: Attack) -> Iterator[multiprocessing.sharedctypes.Synchronized[float]]:
    """Attack during the block; yields the number of sent bytes in shared memory."""
    sent = multiprocessing.Value("d", 0.0)
    attacker = multiprocessing.Process(target=_attack, args=(port, attack, sent), daemon=True)
    attacker.start()
    try:
        time.sleep(1.0)  # until all are connected
        yield sent
    finally:
        attacker.kill()
        attacker.join()
        time.sleep(1.0)  # until the daemon has seen them leave


def _attack(port: int, attack: Attack, sent: multiprocessing.sharedctypes.Synchronized[float]) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    again = attack.again * (BUFFER // len(attack.again))
    at: dict[socket.socket, int] = {}
    while True:
        while len(at) < CONNECTIONS:
            connection = socket.create_connection(("127.0.0.1", port))
            with suppress(OSError):
                connection.sendall(attack.begin)
                if attack.waits:
                    connection.recv(4096)
            connection.setblocking(False)
            at[connection] = 0
        readable, writable, _ = select.select([*at], [*at], [], 0.2)
        for connection in readable:
            try:
                if connection.recv(1 << 20):
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            del at[connection]
            connection.close()
        for connection in writable:
            if connection in at:
                with suppress(OSError):
                    count = connection.send(again[at[connection] :])
                    at[connection] = (at[connection] + count) % len(again)
                    sent.value += count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
