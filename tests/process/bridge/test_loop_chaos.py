"""Daemons that die at any byte: every request is answered once, and no call is executed twice.

A client writes requests in portions of any size through a real bridge. The daemons on the other side read some
of it, answer some of that in any order, and hang up: in the middle of a line of theirs or of the client's,
before the greeting or after it. The last one behaves. A seed says what they do.
"""

import json
import os
import random
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from daemon.bridge.frames import LONG_BYTES
from tests.process.bridge.bridged import Bridged, bridged
from tests.waiting import PATIENCE

Json = dict[str, Any]
RequestId = str | int

SEEDS = range(3)
REQUESTS = 400
DEATHS = 12
METHODS = ("tools/call", "tools/call", "tools/list", "ping")
LONG_ONES = 6

IDLE = 0.2
"""Seconds without a request after which a daemon that is to die does so: it has answered what it was to."""


class Daemons:
    """One after the other, until `DEATHS` of them have died."""

    def __init__(self, ends: Bridged, seed: int) -> None:
        self.executed: Counter[RequestId] = Counter()
        self.deaths = 0
        self._ends = ends
        self._over = False
        self._random = random.Random(f"daemons {seed}")

    def run(self) -> None:
        with self._ends.daemon as link:
            # Who never said a word is not believed in.
            link.sendall(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}\n')
            self._serve(link, self._some_bytes())
        while not self._over:
            with self._ends.accept() as link:
                self.deaths += 1
                self._serve(link, self._some_bytes() if self.deaths < DEATHS else None)

    def end(self, path: Path) -> None:
        """There is no bridge any more: whoever is waited for is us."""
        self._over = True
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
            last.sendall(self._ends.hello)

    def _some_bytes(self) -> int:
        return self._random.choice((0, 30, 500, 5_000, 20_000, 400_000, 2_000_000))

    def _serve(self, link: socket.socket, until: int | None) -> None:
        """Read so many bytes at the most, and answer what was complete; None: until the client ends."""
        link.settimeout(PATIENCE if until is None else IDLE)
        rest, seen, held = b"", 0, list[bytes]()
        while until is None or seen < until:
            size = self._random.choice((10, 1000, 300_000))
            try:
                data = link.recv(size if until is None else min(size, until - seen))
            except TimeoutError:
                break
            if not data:
                return
            seen += len(data)
            *lines, rest = (rest + data).split(b"\n")
            held += [self._execute(json.loads(line)) for line in lines]
            held = [answer for answer in held if answer]
            self._random.shuffle(held)
            keep = 0 if until is None or b"mcpd-connect" in b"".join(held) else self._random.randrange(10)
            while len(held) > keep:
                self._send(link, held.pop())
        if held and self._random.random() < 0.5:
            self._send(link, held[-1][: self._random.randrange(len(held[-1]))])

    def _execute(self, message: Json) -> bytes:
        if "id" not in message:
            return b""
        if message["method"] == "tools/call":
            self.executed[message["id"]] += 1
        body = {"said": "x" * (LONG_BYTES + 1 if self._random.random() < 0.02 else 10)}
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % tuple(
            json.dumps(part).encode() for part in (message["id"], body)
        )

    def _send(self, link: socket.socket, answer: bytes) -> None:
        idle = link.gettimeout()
        link.settimeout(PATIENCE)
        link.sendall(answer)
        link.settimeout(idle)


def requests(seed: int) -> tuple[bytes, dict[RequestId, str]]:
    """What the client writes, and the method by id: every other client counts, as most do."""
    chance = random.Random(f"client {seed}")
    ids: list[RequestId] = [number if seed % 2 else f"request {number}" for number in range(REQUESTS)]
    methods = {request_id: chance.choice(METHODS) for request_id in ids}
    calls = [request_id for request_id, method in methods.items() if method == "tools/call"]
    long = set(chance.sample(calls, LONG_ONES))
    lines = []
    for request_id, method in methods.items():
        padding = "x" * (chance.randrange(2 * LONG_BYTES) if request_id in long else chance.randrange(400))
        members = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {"padding": padding}}
        order = chance.choice((list(members), ["method", "params", "jsonrpc", "id"]))
        lines.append(
            json.dumps({name: members[name] for name in order}, separators=(",", ":")).encode() + b"\n"
        )
    return b"".join(lines), methods


def write(stream: IO[bytes], data: bytes, seed: int) -> None:
    chance = random.Random(f"portions {seed}")
    while data:
        size = chance.choice((1, 50, 3_000, 100_000))
        portion, data = data[:size], data[size:]
        view = memoryview(portion)
        while view:
            view = view[stream.write(view) :]


def outcome(message: Json) -> str:
    """The code of an answer that the bridge gave, or `answered`."""
    if "error" in message:
        code: str = message["error"]["data"]["code"]
        return code
    error = message["result"].get("structuredContent", {}).get("error")
    return error["code"] if error else "answered"


def collect(stream: IO[bytes], count: int) -> dict[RequestId, str]:
    """The outcome of each request; a line that is not JSON is the end of a long answer that never came."""
    found: dict[RequestId, str] = {}
    while len(found) < count:
        line = stream.readline()
        assert line, f"the bridge ended; {count - len(found)} requests are not answered"
        try:
            message = json.loads(line)
        except ValueError:
            assert len(line) > LONG_BYTES
            continue
        if "id" not in message:
            continue
        assert message["id"] not in found
        found[message["id"]] = outcome(message)
    return found


def test_every_request_is_answered_once_and_no_call_is_executed_twice(sockets: Path) -> None:
    """Side by side, for most of it is waiting."""
    with ThreadPoolExecutor(len(SEEDS)) as side_by_side:
        for seed, each in [(seed, side_by_side.submit(converse, sockets / str(seed), seed)) for seed in SEEDS]:
            fault = each.exception()
            assert fault is None, f"seed {seed}: {fault}"


def converse(sockets: Path, seed: int) -> None:
    """A client's conversation with daemons that die as the seed says."""
    data, methods = requests(seed)
    with bridged(sockets) as ends, os.fdopen(os.dup(ends.from_bridge.fileno()), "rb") as answers:
        ends.listener.settimeout(PATIENCE)
        ends.daemon.settimeout(None)
        daemons = Daemons(ends, seed)
        workers = [
            threading.Thread(target=daemons.run),
            threading.Thread(target=write, args=(ends.to_bridge, data, seed)),
        ]
        for worker in workers:
            worker.start()
        found = collect(answers, len(methods))
        ends.to_bridge.close()
        workers[1].join(PATIENCE)
        assert ends.end()[0] == 0
        daemons.end(sockets / "mcpd" / "mcpd.sock")
        workers[0].join(PATIENCE)

    assert found.keys() == methods.keys()
    assert set(daemons.executed.values()) <= {1}
    for request_id, code in found.items():
        if methods[request_id] == "tools/call":
            assert (code == "UpstreamUnavailable") <= (daemons.executed[request_id] == 0)
            assert (code == "answered") <= (daemons.executed[request_id] == 1)
        else:
            assert code != "UpstreamLost"
