"""Compares HTTP servers that the daemon could use: `python -m bench.http_servers`.

Each candidate answers every POST with the same 100 bytes. Measured are calls one at a time over a persistent
connection, calls over 32 such connections, and the memory of 1,000 idle ones after one request. Requests are
those of an MCP client; all candidates run at once and take turns.
"""

from __future__ import annotations

import argparse
import socket
import sys
from contextlib import ExitStack, closing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import h11
import trio

from bench.calls.rounds import MB, Case, measured
from bench.calls.targets import DOOR, application
from bench.calls.web import LOOPBACK
from bench.calls.wires import Request, kilobytes
from bench.tables import aligned, number
from daemon.clients.doors.http.http_connection import Bounds, HttpConnection
from daemon.clients.doors.http.http_sessions import JSON
from daemon.clients.doors.listening import Listener
from daemon.wire.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.calls.targets import Yardstick
    from daemon.clients.doors.http.http_connection import HttpExchange

BODY = b'{"jsonrpc":"2.0","id":10000000,"result":{"content":[{"type":"text","text":"' + b"x" * 20 + b'"}]}}'
"""A hundred bytes that look like an answer."""
assert len(BODY) == 100

HEADERS = [(b"Content-Type", b"application/json"), (b"Content-Length", b"100")]

READ_BYTES = 16 * 1024

BACKLOG = 1024

CONNECTIONS, IDLE = 32, 1000


async def by_tasks(listener: socket.socket) -> None:
    """h11 over trio's streams, a task for each connection."""
    answer = [h11.Response(status_code=200, headers=HEADERS), h11.Data(data=BODY), h11.EndOfMessage()]

    async def serve(stream: trio.SocketStream) -> None:
        http = h11.Connection(h11.SERVER)
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some(READ_BYTES)))
            elif type(event) is h11.EndOfMessage:
                await stream.send_all(b"".join(http.send(each) or b"" for each in answer))
                http.start_next_cycle()
            elif type(event) is h11.ConnectionClosed:
                return

    await trio.serve_listeners(serve, [trio.SocketListener(trio.socket.from_stdlib_socket(listener))])


async def by_hypercorn(listener: socket.socket) -> None:
    """Hypercorn's own server on trio, with an ASGI application."""
    from hypercorn.config import Config  # noqa: PLC0415 - only this candidate is to carry it
    from hypercorn.trio import serve  # noqa: PLC0415

    async def application(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                await send({"type": f"{(await receive())['type']}.complete"})
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": BODY})

    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.backlog = BACKLOG
    config.keep_alive_timeout = 3600
    config.keep_alive_max_requests = sys.maxsize
    await serve(application, config, mode="asgi")


async def by_door(listener: socket.socket) -> None:
    """The daemon's connection: llhttp in the poll of all links."""
    outbox, bounds = Outbox(), Bounds(door="bench", strangers=sys.maxsize, queue=MB, pause=MB, body=MB)

    def answer(exchange: HttpExchange) -> None:
        exchange.on_body = lambda _body: exchange.respond(HTTPStatus.OK, (BODY,), JSON)

    async def serve(link: socket.socket, peer: str) -> None:
        connection = HttpConnection(link, answer, peer=peer, outbox=outbox, bounds=bounds)
        try:
            await connection.run()
        finally:
            connection.close()

    await Listener("bench", listener, places=sys.maxsize, admit=lambda _: LOOPBACK, serve=serve).run()


CANDIDATES: dict[str, Callable[[socket.socket], Any]] = {
    "hypercorn on trio": by_hypercorn,
    "h11, a task for each connection": by_tasks,
    DOOR: by_door,
}


def idle_kilobytes(candidate: Yardstick, count: int) -> float:
    """Kilobytes of an idle connection after one request."""
    assert candidate.pid is not None
    with ExitStack() as stack:
        before = kilobytes(candidate.pid, "VmRSS")
        for each in range(count):
            wire = stack.enter_context(closing(candidate.connect(each)))
            wire.try_out(wire.wrap(Request.of("echo_0", {"text": "x" * 100})))
        return (kilobytes(candidate.pid, "VmRSS") - before) / count


def table(rounds: int, seconds: float, idle: int) -> list[list[str]]:
    """A row for each candidate."""
    names = tuple(CANDIDATES)
    cases = [Case(name="1", targets=names), Case(name="32", targets=names, connections=CONNECTIONS)]
    with ExitStack() as stack:
        targets = [stack.enter_context(application(name, name)) for name in names]
        rows = measured(targets, cases, rounds, seconds)
        memory = [idle_kilobytes(target, idle) for target in targets]
    return [
        [one.target, *map(number, (one.p50_us, one.cpu_us, many.rate, many.cpu_us, kept))]
        for one, many, kept in zip(rows[: len(names)], rows[len(names) :], memory, strict=True)
    ]


HEADS = ["server", "p50 us, one at a time", "CPU us", "calls/s, 32 connections", "CPU us", "KB of an idle one"]


def main(argv: list[str]) -> int:
    """Serve, or measure and print."""
    if argv[:1] == ["--serve"]:
        with socket.create_server((LOOPBACK, int(argv[2])), backlog=BACKLOG) as listener:
            listener.setblocking(False)
            trio.run(CANDIDATES[argv[1]], listener)
    made = argparse.ArgumentParser(prog="python -m bench.http_servers", description=__doc__.splitlines()[0])
    made.add_argument("--rounds", type=int, default=9)
    made.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    made.add_argument("--idle", type=int, default=IDLE, help="connections that are kept")
    asked = made.parse_args(argv)
    print(aligned([HEADS, *table(asked.rounds, asked.seconds, asked.idle)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
