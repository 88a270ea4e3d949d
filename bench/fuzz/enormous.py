"""Messages around the limits and far beyond: what they get, how long others wait, what stays in memory."""

from __future__ import annotations

import json
import mmap
import socket
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1024 * 1024
CLIENT_LIMIT = 4 * MIB
"""`limits.clientMessageBytes` by default."""
SERVER_LIMIT = 16 * MIB
"""`limits.messageBytes` of a server by default."""

STALL = 100.0
"""Milliseconds that one turn of the loop may take of its thread's processor time. What others wait is shown
as well: on a busy machine that is also everybody else's doing."""

KEPT = 32.0
"""MiB that may stay in memory afterwards."""

PATIENCE = 60.0
"""Seconds for one answer: a 100 MB line through a pipe, on a machine that has other things to do."""

CALM = 1.0
"""Seconds before memory is looked at: what is given back is given back by then."""

PIECE = 256 * 1024


class Line:
    """A plain connection: bytes out, lines in."""

    def __init__(self, path: Path) -> None:
        """Connect."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self.send(b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{"surface":"full"}}\n')

    @property
    def peer(self) -> int:
        """The process at the other end."""
        found = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", found)[0]
        return pid

    def send(self, *pieces: bytes) -> None:
        """Say something."""
        for piece in pieces:
            self._socket.sendall(piece)

    def line(self) -> bytes:
        """The next line; empty at the end."""
        return self._lines.readline()

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()


def _call(name: str, arguments: str, request_id: str = "7", method: str = "tools/call") -> bytes:
    head = f'{{"jsonrpc":"2.0","id":{request_id},"method":"{method}"'
    return f'{head},"params":{{"name":"{name}","arguments":{arguments}}}}}\n'.encode()


def _keys(count: int) -> str:
    return json.dumps({f"{number:x}": 0 for number in range(count)}, separators=(",", ":"))


def _brackets(count: int) -> bytes:
    return _call("echo", '{"x":[' + "[[]]," * count + "0]}")


def _texts(count: int) -> bytes:
    return _call("echo", '{"x":[' + '"a",' * count + "[]" + ",[]" * 200 + "]}")


def _refused_for(reason: str) -> Callable[[bytes], str]:
    def check(line: bytes) -> str:
        told = b'"id":7,"error"' in line[:60] and reason.encode() in line
        return "" if told else f"not refused for its {reason}: {line[:150]!r}"

    return check


def _refused(line: bytes) -> str:
    message = json.loads(line)
    told = message.get("id") == 7 and "RequestTooLarge" in message.get("error", {}).get("message", "")
    return "" if told else f"not refused as too large: {line[:150]!r}"


def _answered(least: int) -> Callable[[bytes], str]:
    def check(line: bytes) -> str:
        whole = len(line) >= least and line.startswith(b'{"jsonrpc":"2.0","id":7,"result":')
        return "" if whole else f"{len(line)} bytes instead of {least}: {line[:150]!r}"

    return check


def _failed(code: str) -> Callable[[bytes], str]:
    def check(line: bytes) -> str:
        return "" if len(line) < PIECE and code.encode() in line else f"no {code}: {line[:150]!r}"

    return check


@attrs.frozen
class Case:
    """One thing to say, and what must come of it."""

    title: str
    says: tuple[bytes, ...] = attrs.field(repr=False)
    check: Callable[[bytes], str] = attrs.field(repr=False)


def cases() -> list[Case]:
    """Made when they are needed: they are large."""
    filler = (b"x" * PIECE,)
    hundred = 100_000_000 // PIECE + 1
    open_call = _call("echo", '{"x":"')[:-3]
    fits = CLIENT_LIMIT - len(_call("echo", '{"x":""}')) + 1

    def sized(size: int) -> str:
        return '{"x":"' + "y" * size + '"}'

    return [
        Case("client: a line of 100 MB", (open_call, *filler * hundred, b'"}}}\n'), _refused),
        Case("client: a line one byte over 4 MiB", (_call("echo", sized(fits + 1)),), _refused),
        Case("client: a line of 4 MiB", (_call("echo", sized(fits)),), _answered(fits)),
        Case("client: an object of 1,000,000 keys (10 MB)", (_call("echo", _keys(1_000_000)),), _refused),
        Case(
            "client: an object of 390,000 keys (4 MB)",
            (_call("echo", _keys(390_000)),),
            _refused_for("members"),
        ),
        Case("client: an object of 99,000 keys", (_call("echo", _keys(99_000)),), _answered(MIB // 2)),
        Case(
            "client: 3.9 MB, its method spelt tools\\/call",
            (_call("echo", sized(3_900_000), method="tools\\/call"),),
            _answered(3_900_000),
        ),
        Case("client: 4 MB of brackets", (_brackets(800_000),), _refused_for("objects and lists")),
        Case("client: 400,000 lists within lists", (_brackets(200_000),), _answered(MIB)),
        Case("client: 4 MB of short texts", (_texts(850_000),), _answered(3 * MIB)),
        Case(
            "server: an answer of 15.9 MiB",
            (_call("big", f'{{"bytes":{int(15.9 * MIB)}}}'),),
            _answered(15 * MIB),
        ),
        Case(
            "server: an answer of 16 MiB",
            (_call("big", f'{{"bytes":{SERVER_LIMIT}}}'),),
            _failed("RequestTooLarge"),
        ),
        Case("server: an answer of 100 MB", (_call("big", '{"bytes":100000000}'),), _failed("RequestTooLarge")),
        Case("server: an object of 1,000,000 keys", (_call("big", '{"keys":1000000}'),), _answered(9 * MIB)),
        Case(
            "server: a line of 100 MB that is no JSON",
            (_call("line", '{"bytes":100000000}'),),
            _failed("Upstream"),
        ),
    ]


class Pinger:
    """Somebody else, who only wants a ping answered."""

    def __init__(self, path: Path) -> None:
        """Start it."""
        command = [sys.executable, "-S", "-E", str(Path(__file__).with_name("pinging.py")), str(path)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def longest(self) -> float:
        """Milliseconds of the longest wait since the last look."""
        told, tells = self._pipes()
        told.write(b"?\n")
        told.flush()
        return float((tells.readline() or b"inf").split()[0])

    def stop(self) -> None:
        """End it."""
        told, tells = self._pipes()
        told.close()
        self._child.wait(PATIENCE)
        tells.close()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        return self._child.stdin, self._child.stdout


@contextmanager
def pinging(path: Path) -> Iterator[Pinger]:
    """A pinger for as long as the block."""
    pinger = Pinger(path)
    try:
        yield pinger
    finally:
        pinger.stop()


def memory(pid: int) -> float:
    """MiB of a process that are in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / MIB


class Turns:
    """The longest turn of the daemon's loop, as `watched.py` tells it."""

    def __init__(self, path: Path) -> None:
        """Look at its file."""
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8)

    def longest(self) -> float:
        """Milliseconds, since the last look."""
        (found,) = struct.unpack("d", self._shared)
        self._shared[:] = bytes(8)
        return float(found)


def measure(path: Path) -> list[str]:
    """Say all of it to the daemon at a socket, print a table. Returns what was not as promised."""
    broken: list[str] = []
    turns = Turns(path.parents[1] / "turns")
    with pinging(path) as pinger:
        line = Line(path)
        pid = line.peer
        _expect_echo(line)
        line.close()
        before = memory(pid)
        print(f"{'':46}{'answered':>10}{'longest turn':>13}{'others waited':>16}{'memory':>12}")
        for case in cases():
            broken += _one(case, path, pinger, turns)
        time.sleep(CALM)
        kept = memory(pid) - before
        print(f"{'memory kept after all of it':46}{kept:+50.1f} MiB")
        if kept > KEPT:
            broken.append(f"{kept:.1f} MiB are kept")
    return broken


def _one(case: Case, path: Path, pinger: Pinger, turns: Turns) -> list[str]:
    line = Line(path)
    time.sleep(CALM)
    before = memory(line.peer)
    pinger.longest()
    turns.longest()
    begun = time.perf_counter()
    line.send(*case.says)
    fault = case.check(line.line())
    took = (time.perf_counter() - begun) * 1000
    wait, turn = pinger.longest(), turns.longest()
    time.sleep(CALM)
    grown = memory(line.peer) - before
    print(f"{case.title:46}{took:7.0f} ms{turn:10.1f} ms{wait:13.1f} ms{grown:+8.1f} MiB", flush=True)
    problems = [fault] if fault else []
    if turn > STALL:
        problems.append(f"the loop stood still for {turn:.0f} ms")
    if not _expect_echo(line):
        problems.append("the next valid call is not answered")
    line.close()
    return [f"{case.title}: {problem}" for problem in problems]


def _expect_echo(line: Line) -> bool:
    line.send(_call("echo", '{"nonce":"still here"}', request_id='"next"'))
    heard: Any = b"-"
    while heard and b'"id":"next"' not in heard[:40]:
        heard = line.line()
    return b"still here" in heard
