"""Malformed requests over HTTP to a real daemon: each gets a status that says so, or a closed connection."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from tests.e2e.harness import scripted, serving
from tests.e2e.raw_http import INITIALIZE, META, MODERN, TOKEN, RawHttp, listening, message, request, tool_call
from tests.faults.stage import resident_kib
from tests.fuzz.mutation import FROM_CLIENTS, OF_BYTES, Malformed, one
from tests.fuzz.talking import OWN_FAULTS, PIECES, Results
from tests.unit.cases import rows_of
from tests.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AT_ONCE = 16
"""Connections at once."""

A_MOMENT = 0.05
"""Seconds that an answer may take before the client hangs up: half a request has none."""


KNOWN = frozenset(
    {200, 202, 204, 400, 401, 403, 404, 405, 406, 408, 411, 413, 415, 421, 426, 429, 431, 501, 503, 505}
)
"""Statuses that say what is wrong; 500 is none of them."""

MORE_MEMORY = 64 * 1024
"""KiB that the daemon may hold more afterwards: what its allocator keeps."""

_READ = 1 << 20

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n(?:[!-9;-~]+: ?[^\r\n\0]*\r\n)*\r\n")

_HEADERS = (
    *rows_of(Path(__file__), "headers"),
    "Cookie: " + "a" * 8000,
    "X: " + "x" * 17_000,
    "\r\n".join(f"X{n}: {n}" for n in range(1000)),
)
_TARGETS = (*rows_of(Path(__file__), "targets"), "/" + "a" * 9000)
_METHODS = tuple(rows_of(Path(__file__), "methods"))
_VERSIONS = tuple(rows_of(Path(__file__), "versions"))


class Requests:
    """Makes the malformed requests of a seed; `session` is the id of one that exists."""

    def __init__(self, seed: int, session: str) -> None:
        self._seed = seed
        named: dict[str, Any] = {"Mcp_Session_Id": session}
        listing = message("tools/list", {"_meta": META})
        self._sound = (
            request(body=message("ping"), **named),
            request(body=tool_call("s", "echo"), **named),
            request(body=message("initialize", INITIALIZE)),
            request(body=message("notifications/cancelled", {"requestId": 1}, None), **named),
            request(body=listing, MCP_Protocol_Version=MODERN, Mcp_Method="tools/list"),
            request("GET", Accept="text/event-stream", **named),
            request("GET", Accept="text/event-stream", Last_Event_ID="0-1", **named),
            request("DELETE", Mcp_Session_Id="guessed"),
            request("GET", "/healthz"),
            request("OPTIONS", Origin="http://localhost"),
        )

    def one(self, number: int) -> Malformed:
        """The request of this number."""
        rng = Random(f"http:{self._seed}:{number}")
        data, kinds = rng.choice(self._sound), []
        for _ in range(rng.randint(1, 3)):
            change = rng.choice(_CHANGES)
            data = change(rng, data)
            kinds.append(change.__name__.strip("_"))
        if rng.random() < 0.3:
            data += rng.choice([*self._sound, b"\r\n", b"\0" * 100])
        return Malformed(number, "+".join(kinds), data)


def _cut(data: bytes) -> tuple[bytes, list[bytes], bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    return first, headers, body


def _joined(first: bytes, headers: list[bytes], body: bytes) -> bytes:
    return b"\r\n".join([first, *headers, b"", body])


def _header_added(rng: Random, data: bytes) -> bytes:
    first, headers, body = _cut(data)
    headers.insert(rng.randint(0, len(headers)), rng.choice(_HEADERS).encode("latin-1"))
    return _joined(first, headers, body)


def _header_lost_or_doubled(rng: Random, data: bytes) -> bytes:
    first, headers, body = _cut(data)
    place = rng.randrange(len(headers)) if headers else 0
    headers[place : place + 1] = headers[place : place + 1] * rng.choice([0, 2])
    return _joined(first, headers, body)


def _request_line(rng: Random, data: bytes) -> bytes:
    first, headers, body = _cut(data)
    words = [*first.decode("latin-1").split(" "), "", "", ""][:3]
    part = rng.randrange(3)
    words[part] = rng.choice((_METHODS, _TARGETS, _VERSIONS)[part])
    return _joined(" ".join(words).encode("latin-1"), headers, body)


def _other_body(rng: Random, data: bytes) -> bytes:
    first, headers, _ = _cut(data)
    body = one(rng.randrange(1 << 30), FROM_CLIENTS, rng.randrange(1 << 30)).data
    kept = [each for each in headers if not each.lower().startswith(b"content-length")]
    return _joined(first, [*kept, b"Content-Length: %d" % len(body)], body)


def _chunks(rng: Random, data: bytes) -> bytes:
    first, headers, body = _cut(data)
    kept = [each for each in headers if not each.lower().startswith(b"content-length")]
    size = rng.choice(
        [b"%x" % len(body), b"%x;a=b" % len(body), b"-1", b"zz", b"f" * 30, b"0", b"1" * 5000, b""]
    )
    end = rng.choice(
        [
            b"\r\n0\r\n\r\n",
            b"0\r\n\r\n",
            b"\r\n0\r\nX: y\r\n\r\n",
            b"\n0\n\n",
            b"\r\n0\r\n" + b"X: y\r\n" * 5000,
        ]
    )
    return _joined(first, [*kept, b"Transfer-Encoding: chunked"], size + b"\r\n" + body + end)


def _line_ends(rng: Random, data: bytes) -> bytes:
    return data.replace(b"\r\n", rng.choice([b"\n", b"\r", b"\r\r\n", b"\n\r"]), rng.choice([1, -1]))


def _bytes(rng: Random, data: bytes) -> bytes:
    return rng.choice(OF_BYTES)(rng, data)


_CHANGES: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(_header_added, _header_added, _header_lost_or_doubled, _request_line, _other_body),
    *(_chunks, _line_ends, _bytes, _bytes),
)


async def _send(port: int, each: Malformed, results: Results) -> None:
    rng = Random(each.data)
    heard = b""
    with trio.move_on_after(PATIENCE) as scope:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            try:
                places = sorted(rng.randrange(len(each.data) + 1) for _ in range(rng.randrange(PIECES)))
                for start, end in zip([0, *places], [*places, len(each.data)], strict=True):
                    await stream.send_all(each.data[start:end])
                with trio.move_on_after(A_MOMENT):
                    heard += await stream.receive_some(_READ)
                await stream.send_eof()
                while chunk := await stream.receive_some(_READ):
                    heard += chunk
            except trio.BrokenResourceError:
                pass  # Closing with unread bytes is a reset.
    if scope.cancelled_caught:
        results.blame(each, f"the connection is not closed: {heard[:200]!r}")
        return
    _judge(each, heard, results)


def _judge(each: Malformed, heard: bytes, results: Results) -> None:
    results.inputs += 1
    found = _STATUS.match(heard)
    if heard and found is None:
        results.blame(each, f"no response: {heard[:200]!r}")
    results.outcomes[found[1].decode() if found else "closed"] += 1
    while found is not None and found[1] == b"100":
        heard = heard[found.end() :]
        found = _STATUS.match(heard)
    if found is None:
        return
    if int(found[1]) not in KNOWN:
        results.blame(each, f"status {found[1].decode()}: {heard[:300]!r}")
    if TOKEN.encode() in heard:
        results.blame(each, "the token is repeated")
    length = re.search(rb"content-length: (\d+)", found[0].lower())
    body = heard[found.end() : found.end() + int(length[1])] if length else b""
    if (
        b"content-type: application/json\r\n" in found[0].lower()
        and length
        and len(body) == int(length[1]) != 0
    ):
        try:
            json.loads(body, parse_int=str)
        except ValueError:
            results.blame(each, f"no JSON: {body[:200]!r}")


async def _ask_all(port: int, inputs: Iterator[Malformed], results: Results) -> None:
    places = trio.Semaphore(AT_ONCE)

    async def send(each: Malformed) -> None:
        try:
            await _send(port, each, results)
        finally:
            places.release()

    async with trio.open_nursery() as nursery:
        for each in inputs:
            await places.acquire()
            nursery.start_soon(send, each)


def fuzz(count: int, *, seed: int = 1, first: int = 0) -> Results:
    """Send so many requests of a seed, from the number `first` on; another client is served all the while."""
    port, listen = listening()
    results = Results("http", seed)
    with serving({"mcpServers": {"s": scripted(tools=["echo"])}, "listen": listen}) as daemon:
        assert daemon.process is not None
        process = Path(f"/proc/{daemon.process.pid}")
        with RawHttp(port) as neighbour:
            session = neighbour.initialize()
            held, open_before = resident_kib(daemon.process.pid), len(list((process / "fd").iterdir()))
            for start in range(first, first + count, 200):
                requests = Requests(seed, neighbour.initialize())  # They may delete it.
                batch = [requests.one(number) for number in range(start, min(start + 200, first + count))]
                trio.run(_ask_all, port, iter(batch), results)
                neighbour.send(request(body=tool_call("s", "echo", "n", text="still"), Mcp_Session_Id=session))
                if "still" not in str(neighbour.json()):
                    results.blame(batch[-1], "the next valid call is not answered")
            eventually(
                lambda: len(list((process / "fd").iterdir())) <= open_before, lambda: "descriptors are left"
            )
            if (grown := resident_kib(daemon.process.pid) - held) > MORE_MEMORY:
                results.faults.append(f"the daemon holds {grown} KiB more")
        results.faults += [
            line for line in daemon.said().splitlines() if any(sign in line for sign in OWN_FAULTS)
        ]
    return results
