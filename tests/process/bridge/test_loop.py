"""The bridge as a real child: bytes both ways, and daemons that come and go."""

import json
import os
import random
import select
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from time import monotonic
from typing import IO, Any

import pytest

from daemon.bridge.ends import LONGEST_SECONDS
from daemon.bridge.frames import LONG_BYTES
from daemon.bridge.loop import BUFFERED_BYTES, GREETING_SECONDS, READ_BYTES, WORDLESS, Bridge
from daemon.bridge.requests import EACH_BYTES, WAITING_BYTES
from daemon.bridge.stand_in import HANDSHAKE_SECONDS, STATUS
from tests.process.bridge.bridged import (
    MIB,
    Bridged,
    bridged,
    cpu_ticks,
    is_asleep,
    read_exactly,
    receive_all,
    receive_exactly,
    receive_line,
    resident,
)
from tests.unit.cli.daemons import listen
from tests.waiting import PATIENCE

KERNEL_BYTES = 2 * MIB
"""More than the kernel keeps in a pipe (64 KiB) and in both directions of a unix socket (208 KiB each)."""

HELD_BYTES = BUFFERED_BYTES + READ_BYTES + LONG_BYTES
"""What the bridge holds of one direction, at the most."""

STILL = 0.5
"""Seconds in which a descriptor that takes nothing counts as full: a bound on a wait, not a pause."""

GREETING = b'{"jsonrpc":"2.0","id":"mcpd-connect","method":"ping"}\n'
GREETED = b'{"jsonrpc":"2.0","id":"mcpd-connect","result":{}}\n'
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay"}}\n'
LIST = b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n'
HANDSHAKE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}\n'
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
CHANGED = [f"notifications/{each}/list_changed" for each in ("tools", "prompts", "resources")]


def heard(ends: Bridged) -> None:
    """The daemon says something: from then on the bridge believes in it."""
    ends.daemon.sendall(b"{}\n")
    assert read_exactly(ends.from_bridge, 3) == b"{}\n"


def message(ends: Bridged) -> dict[str, Any]:
    """The next line that the client gets."""
    line = b""
    while not line.endswith(b"\n"):
        byte = read_exactly(ends.from_bridge, 1)
        assert byte, line
        line += byte
    found: dict[str, Any] = json.loads(line)
    return found


def welcome(ends: Bridged) -> socket.socket:
    """Take the next connection as a daemon does."""
    daemon = ends.accept()
    assert receive_line(daemon) == GREETING
    daemon.sendall(GREETED)
    return daemon


def write_all(stream: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[stream.write(view) :]


# --- bytes ----------------------------------------------------------------------------------------------------


def test_ten_mebibytes_each_way_at_once_arrive_whole(sockets: Path) -> None:
    up, down = os.urandom(MIB) * 10, os.urandom(MIB) * 10 + b"\n"
    got: dict[str, bytes] = {}
    with bridged(sockets) as ends:

        def client() -> None:
            write_all(ends.to_bridge, up)
            ends.to_bridge.close()

        def daemon_reads() -> None:
            got["up"] = receive_all(ends.daemon)

        def daemon_writes() -> None:
            ends.daemon.sendall(down)

        workers = [threading.Thread(target=work) for work in (client, daemon_reads, daemon_writes)]
        for worker in workers:
            worker.start()
        got["down"] = read_exactly(ends.from_bridge, len(down))
        for worker in workers:
            worker.join(PATIENCE)
        ends.daemon.shutdown(socket.SHUT_WR)
        assert ends.end() == (0, b"")
    assert got["up"] == up
    assert got["down"] == down


def say_and_close(link: socket.socket, said: bytes) -> None:
    link.sendall(said)
    link.close()


def test_what_the_daemon_said_before_it_went_is_written(sockets: Path) -> None:
    said = os.urandom(MIB) + b"\n"
    with bridged(sockets) as ends:
        sender = threading.Thread(target=say_and_close, args=(ends.daemon, said))
        sender.start()
        assert read_exactly(ends.from_bridge, len(said)) == said
        sender.join(PATIENCE)


def test_a_daemon_that_stops_reading_can_still_be_heard_and_the_next_one_gets_the_request(
    sockets: Path,
) -> None:
    with bridged(sockets) as ends:
        ends.daemon.shutdown(socket.SHUT_RD)
        ends.to_bridge.write(LIST)
        ends.daemon.sendall(b"overloaded\n")
        assert read_exactly(ends.from_bridge, 11) == b"overloaded\n"
        ends.daemon.close()
        with welcome(ends) as daemon:
            assert receive_exactly(daemon, len(LIST)) == LIST


# --- the client goes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "away"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_a_signal_is_a_clean_end(sockets: Path, number: signal.Signals, *, away: bool) -> None:
    with bridged(sockets) as ends:
        if away:
            lose_for_good(ends)
        ends.child.send_signal(number)
        assert ends.end()[0] == 0
        if not away:
            assert ends.daemon.recv(1) == b""


@pytest.mark.parametrize("away", [False, True])
def test_a_client_that_went_away_ends_it_quietly_even_while_it_is_idle(sockets: Path, *, away: bool) -> None:
    with bridged(sockets) as ends:
        if away:
            lose_for_good(ends)
        ends.from_bridge.close()
        assert ends.end() == (0, b"")


def lose_for_good(ends: Bridged) -> None:
    """No daemon, and nobody listens; returns when the bridge has taken note."""
    heard(ends)
    ends.listener.close()
    ends.daemon.close()
    assert ends.child.stderr is not None
    assert b"waiting for it to come back" in ends.child.stderr.readline()


# --- those who are slow ---------------------------------------------------------------------------------------


LINE_BYTES = 999


def fill(ends: Bridged, writer: socket.socket | IO[bytes]) -> int:
    """Write until nothing is taken for `STILL` seconds by a bridge that waits; how much was taken."""
    descriptor, taken = writer.fileno(), 0
    os.set_blocking(descriptor, False)
    # No divisor of what a pipe holds: the last block must fit in part, which is where a blocking write hangs.
    block = (b"x" * (LINE_BYTES - 1) + b"\n") * 50
    while select.select([], [descriptor], [], STILL)[1] or not is_asleep(ends.child.pid):
        try:
            taken += os.write(descriptor, block)
        except BlockingIOError:
            continue
        assert taken < 64 * MIB, "the bridge takes everything and gives nothing"
    return taken


def test_a_slow_client_and_a_slow_daemon_slow_each_other_cost_no_memory_and_do_not_spin(sockets: Path) -> None:
    with bridged(sockets) as ends:
        down, up = fill(ends, ends.daemon), fill(ends, ends.to_bridge)
        assert max(down, up) <= HELD_BYTES + KERNEL_BYTES
        assert resident(ends.child.pid) < 40 * MIB
        ends.to_bridge.close()
        before = cpu_ticks(ends.child.pid)
        # Bounded waiting on what cannot happen: nobody reads, and the hangup of stdin must not wake the bridge.
        assert select.select([ends.daemon.fileno()], [], [], PATIENCE)[0]
        assert not select.select([], [ends.daemon], [], STILL)[1]
        assert cpu_ticks(ends.child.pid) - before < STILL * os.sysconf("SC_CLK_TCK") / 2
        # One side begins to read, and only then the other.
        ends.daemon.settimeout(PATIENCE)
        assert len(receive_all(ends.daemon)) == up
        assert len(read_exactly(ends.from_bridge, down - 3 * LINE_BYTES)) == down - 3 * LINE_BYTES


# --- the daemon goes ------------------------------------------------------------------------------------------


def test_a_daemon_that_hangs_up_without_a_word_again_and_again_is_a_failure_with_advice(sockets: Path) -> None:
    with bridged(sockets) as ends:
        ends.daemon.close()
        for _ in range(WORDLESS - 1):
            ends.accept().close()
        code, said = ends.end()
    assert code == 1
    assert b"closed the connection without an answer" in said
    assert b"listen.servers" in said


def test_a_client_that_asks_once_and_ends_is_told_of_a_daemon_that_hangs_up_without_a_word(
    sockets: Path,
) -> None:
    with bridged(sockets) as ends:
        ends.to_bridge.write(LIST)
        ends.to_bridge.close()
        assert receive_all(ends.daemon) == LIST
        ends.daemon.close()
        code, said = ends.end()
    assert code == 1
    assert b"listen.servers" in said
    assert b"mcpd check" in said


def test_a_client_keeps_its_stdio_and_goes_on_with_the_next_daemon(sockets: Path) -> None:
    with bridged(sockets) as ends:
        heard(ends)
        ends.to_bridge.write(CALL + LIST)
        assert receive_exactly(ends.daemon, len(CALL + LIST)) == CALL + LIST
        ends.daemon.close()
        lost = message(ends)
        assert lost["result"]["structuredContent"]["error"]["code"] == "UpstreamLost"
        with welcome(ends) as daemon:
            assert receive_exactly(daemon, len(LIST)) == LIST
            daemon.sendall(b'{"jsonrpc":"2.0","id":2,"result":{}}\n')
            assert message(ends) == {"jsonrpc": "2.0", "id": 2, "result": {}}
            ends.to_bridge.close()
            assert receive_all(daemon) == b""
        code, said = ends.end()
    assert code == 0
    assert said.splitlines() == [
        b"mcpd connect: the daemon closed the connection; waiting for it to come back.",
        b"mcpd connect: connected again.",
    ]


def test_a_bridge_without_a_daemon_does_not_spin(sockets: Path) -> None:
    with bridged(sockets) as ends:
        lose_for_good(ends)
        ends.to_bridge.write(LIST)
        before = cpu_ticks(ends.child.pid)
        assert not select.select([ends.from_bridge], [], [], 2 * STILL)[0]
        assert cpu_ticks(ends.child.pid) - before < STILL * os.sysconf("SC_CLK_TCK") / 2


def test_a_flood_without_a_daemon_costs_no_memory_and_what_finds_no_room_is_answered(sockets: Path) -> None:
    flood = [CALL.replace(b'"id":1', b'"id":%d' % number) for number in range(20_000)]
    sizes = accumulate(len(line) + EACH_BYTES for line in flood)
    kept = sum(size <= WAITING_BYTES for size in sizes)
    with bridged(sockets) as ends, os.fdopen(os.dup(ends.from_bridge.fileno()), "rb") as answers:
        lose_for_good(ends)
        writer = threading.Thread(target=write_all, args=(ends.to_bridge, b"".join(flood)))
        writer.start()
        refused = [json.loads(answers.readline()) for _ in range(len(flood) - kept)]
        writer.join(PATIENCE)
        assert resident(ends.child.pid) < 40 * MIB
    assert [each["id"] for each in refused] == list(range(kept, len(flood)))
    assert {each["result"]["structuredContent"]["error"]["code"] for each in refused} == {"UpstreamUnavailable"}


# --- before the first daemon ----------------------------------------------------------------------------------


def test_a_client_of_a_daemon_that_takes_the_connection_and_hangs_is_answered_and_then_served(
    sockets: Path,
) -> None:
    with bridged(sockets) as ends:
        ends.to_bridge.write(HANDSHAKE)
        assert receive_line(ends.daemon) == HANDSHAKE
        assert message(ends)["result"]["serverInfo"]["name"] == "mcpd"
        ends.to_bridge.write(INITIALIZED + LIST)
        assert "has not answered yet" in message(ends)["result"]["tools"][0]["description"]
        ends.daemon.sendall(b'{"jsonrpc":"2.0","id":0,"result":{"late":true}}\n')
        assert receive_line(ends.daemon) == INITIALIZED
        assert [message(ends)["method"] for _ in CHANGED] == CHANGED
        for _ in range(2):
            ends.to_bridge.write(CALL.replace(b"pay", STATUS.encode()))
            assert "running now" in message(ends)["result"]["content"][0]["text"]
        ends.to_bridge.write(CALL)
        assert receive_line(ends.daemon) == CALL
        ends.to_bridge.close()
        assert receive_all(ends.daemon) == b""
        ends.daemon.close()
        code, said = ends.end()
    assert code == 0
    assert b"mcpd connect: the daemon at " in said
    assert said.endswith(b"mcpd connect: connected.\n")


# --- time, in the same process --------------------------------------------------------------------------------


@contextmanager
def reconnecting(directory: Path) -> Iterator[tuple[Bridge, socket.socket]]:
    """A bridge whose first daemon has gone, and what the next one sees of it."""
    path = directory / "mcpd.sock"
    with listen(path) as listener:
        bridge = Bridge(str(path), b"")
        bridge._daemon.said(b"{}\n")
        listener.accept()[0].close()
        bridge._lose("it closed the connection")
        bridge._tend(monotonic() + LONGEST_SECONDS)
        daemon, _ = listener.accept()
        with daemon:
            daemon.settimeout(PATIENCE)
            yield bridge, daemon
        if bridge._link is not None:
            bridge._link.close()


def test_a_daemon_that_takes_the_connection_and_says_nothing_is_given_up_in_the_end(sockets: Path) -> None:
    with reconnecting(sockets) as (bridge, daemon):
        since = bridge._since
        bridge._tend(since + GREETING_SECONDS - 1)
        assert b'"resumed":' in receive_line(daemon)
        assert receive_line(daemon) == GREETING
        bridge._tend(since + GREETING_SECONDS)
        assert daemon.recv(1) == b""


def test_a_client_that_was_answered_is_not_given_up_however_often_a_daemon_hangs_up(sockets: Path) -> None:
    path = sockets / "mcpd.sock"
    bridge = Bridge(str(path), b"")
    now = monotonic()
    bridge._client.said(HANDSHAKE, now)
    bridge._conversation.expire(now + HANDSHAKE_SECONDS)
    with listen(path) as listener:
        for _ in range(WORDLESS):
            bridge._tend(now + LONGEST_SECONDS)
            listener.accept()[0].close()
            bridge._told(b"")
    assert not bridge._is_over()
    assert "listen.uids" in bridge._conversation.trouble


# --- daemons that come and go at random ----------------------------------------------------------------------


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
