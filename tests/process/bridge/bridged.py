"""The bridge as a real child, between a client and a daemon that a test plays."""

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import IO, NamedTuple

from tests.unit.cli.daemons import environment, listen
from tests.waiting import PATIENCE

MIB = 1024 * 1024


class Bridged(NamedTuple):
    """A running bridge and both its ends."""

    child: subprocess.Popen[bytes]
    listener: socket.socket
    daemon: socket.socket
    """The first connection."""
    hello: bytes
    """What was said first over it."""
    to_bridge: IO[bytes]
    from_bridge: IO[bytes]

    def end(self) -> tuple[int, bytes]:
        """Wait for the bridge's end: its exit status and what it said on stderr."""
        assert self.child.stderr is not None
        code = self.child.wait(PATIENCE)
        return code, self.child.stderr.read()

    def accept(self) -> socket.socket:
        """The bridge's next connection, after its hello: the first one, and since when a daemon was there."""
        self.listener.settimeout(PATIENCE)
        daemon, _ = self.listener.accept()
        daemon.settimeout(PATIENCE)
        first, now = (json.loads(hello)["params"] for hello in (self.hello, receive_line(daemon)))
        assert 0 < time() - now.pop("resumed", time() - 1) < 3600
        assert now == first
        return daemon


@contextmanager
def bridged(directory: Path, *words: str, **more: str) -> Iterator[Bridged]:
    """Start one; `words` are its options, `more` is for its environment."""
    path = directory / "mcpd" / "mcpd.sock"
    with (
        listen(path) as listener,
        subprocess.Popen(
            [sys.executable, "-m", "daemon", "connect", *words],
            env=environment(**{"XDG_RUNTIME_DIR": str(directory), "HOME": str(directory), **more}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        ) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            daemon, _ = listener.accept()
            with daemon:
                daemon.settimeout(PATIENCE)
                hello = receive_line(daemon)
                yield Bridged(child, listener, daemon, hello, child.stdin, child.stdout)
        finally:
            child.kill()


def read_exactly(stream: IO[bytes], count: int) -> bytes:
    """So many bytes, or what there was in time."""
    parts = []
    while count and select.select([stream], [], [], PATIENCE)[0] and (part := stream.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive_all(link: socket.socket) -> bytes:
    """Everything until the bridge hangs up."""
    return b"".join(iter(lambda: link.recv(MIB), b""))


def receive_line(link: socket.socket) -> bytes:
    """The bytes up to the end of a line, or of the connection."""
    parts = []
    while part := link.recv(1):
        parts.append(part)
        if part == b"\n":
            break
    return b"".join(parts)


def receive_exactly(link: socket.socket, count: int) -> bytes:
    """So many bytes."""
    parts = []
    while count and (part := link.recv(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def resident(process: int) -> int:
    """Bytes of memory that a process uses."""
    fields = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def is_asleep(process: int) -> bool:
    """Whether a process waits for something, rather than for its turn on a busy machine."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return fields[0] == "S"


def cpu_ticks(process: int) -> int:
    """Ticks of the processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
