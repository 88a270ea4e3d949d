"""The bridge as a real child, between a client and a daemon that this test plays."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import pytest

from daemon import __version__
from daemon.catalog import remembered
from daemon.cli.connect import BUFFERED_BYTES, MAX_KEY, READ_BYTES
from tests.cli.daemons import PATIENCE, environment, listen, mcpd

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1024 * 1024

KERNEL_BYTES = 2 * MIB
"""More than the kernel keeps in a pipe (64 KiB) and in both directions of a unix socket (208 KiB each)."""

STILL = 0.5
"""Seconds in which a descriptor that takes nothing counts as full: a bound on a wait, not a pause."""


class Bridged(NamedTuple):
    """A running bridge and both its ends."""

    child: subprocess.Popen[bytes]
    daemon: socket.socket
    to_bridge: IO[bytes]
    from_bridge: IO[bytes]

    def end(self) -> tuple[int, bytes]:
        """Wait for the bridge's end: its exit status and what it said on stderr."""
        assert self.child.stderr is not None
        code = self.child.wait(PATIENCE)
        return code, self.child.stderr.read()


@contextmanager
def bridged(directory: Path, *words: str, **more: str) -> Iterator[Bridged]:
    path = directory / "mcpd" / "mcpd.sock"
    with (
        listen(path) as listener,
        subprocess.Popen(
            [sys.executable, "-m", "daemon", "connect", *words],
            env=environment(XDG_RUNTIME_DIR=str(directory), **more),
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
                yield Bridged(child, daemon, child.stdin, child.stdout)
        finally:
            child.kill()


def read_exactly(stream: IO[bytes], count: int) -> bytes:
    parts = []
    while count and select.select([stream], [], [], PATIENCE)[0] and (part := stream.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive_all(link: socket.socket) -> bytes:
    return b"".join(iter(lambda: link.recv(MIB), b""))


def test_bytes_pass_both_ways_unchanged(sockets: Path) -> None:
    with bridged(sockets) as ends:
        ends.to_bridge.write(b'{"a":"\xff\x00"}\n')
        assert ends.daemon.recv(100) == b'{"a":"\xff\x00"}\n'
        ends.daemon.sendall(b"\r\nanswer")
        assert read_exactly(ends.from_bridge, 8) == b"\r\nanswer"


def test_ten_mebibytes_each_way_at_once_arrive_whole(sockets: Path) -> None:
    up, down = os.urandom(MIB) * 10, os.urandom(MIB) * 10
    got: dict[str, bytes] = {}
    with bridged(sockets) as ends:

        def client() -> None:
            view = memoryview(up)
            while view:
                view = view[ends.to_bridge.write(view) :]
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


def test_a_client_that_has_finished_writing_still_gets_its_answers(sockets: Path) -> None:
    with bridged(sockets) as ends:
        ends.to_bridge.write(b"last request\n")
        ends.to_bridge.close()
        assert receive_all(ends.daemon) == b"last request\n"
        ends.daemon.sendall(b"late answer\n")
        assert read_exactly(ends.from_bridge, 12) == b"late answer\n"
        ends.daemon.close()
        assert ends.end() == (0, b"")


def say_and_close(link: socket.socket, said: bytes) -> None:
    link.sendall(said)
    link.close()


def test_what_the_daemon_said_before_it_closed_is_written_before_the_end(sockets: Path) -> None:
    said = os.urandom(MIB)
    with bridged(sockets) as ends:
        sender = threading.Thread(target=say_and_close, args=(ends.daemon, said))
        sender.start()
        assert read_exactly(ends.from_bridge, len(said)) == said
        assert ends.from_bridge.read(1) == b""
        sender.join(PATIENCE)
        assert ends.end() == (0, b"mcpd connect: the daemon closed the connection.\n")


def test_a_daemon_that_hangs_up_without_a_word_is_a_failure_with_advice(sockets: Path) -> None:
    with bridged(sockets) as ends:
        ends.daemon.close()
        code, said = ends.end()
    assert code == 1
    assert b"before it said anything" in said
    assert b"mcpd check" in said


def test_a_daemon_that_resets_the_connection_ends_it_too(sockets: Path) -> None:
    with bridged(sockets) as ends:
        ends.daemon.sendall(b"hello")
        ends.to_bridge.write(b"never read by the daemon")
        assert select.select([ends.daemon], [], [], PATIENCE)[0]
        ends.daemon.close()
        assert read_exactly(ends.from_bridge, 5) == b"hello"
        assert ends.end()[0] == 0


def test_a_daemon_that_stops_reading_can_still_be_heard(sockets: Path) -> None:
    with bridged(sockets) as ends:
        ends.daemon.shutdown(socket.SHUT_RD)
        ends.to_bridge.write(b"into the void")
        ends.daemon.sendall(b"overloaded")
        assert read_exactly(ends.from_bridge, 10) == b"overloaded"
        ends.daemon.close()
        assert ends.end()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_clean_end(sockets: Path, number: signal.Signals) -> None:
    with bridged(sockets) as ends:
        ends.child.send_signal(number)
        assert ends.end() == (0, b"")
        assert ends.daemon.recv(1) == b""


def test_a_client_that_went_away_ends_it_quietly_even_while_it_is_idle(sockets: Path) -> None:
    with bridged(sockets) as ends:
        ends.from_bridge.close()
        assert ends.end() == (0, b"")


def test_a_client_that_goes_away_in_the_middle_of_an_answer_ends_it_quietly(sockets: Path) -> None:
    with bridged(sockets) as ends:
        ends.daemon.sendall(b"x" * 200_000)
        assert read_exactly(ends.from_bridge, 10)
        ends.from_bridge.close()
        assert ends.end() == (0, b"")


def fill(writer: socket.socket | IO[bytes]) -> int:
    """Write until nothing has been taken for `STILL` seconds; how much was taken."""
    descriptor, taken = writer.fileno(), 0
    os.set_blocking(descriptor, False)
    # No divisor of what a pipe holds: the last block must fit in part, which is where a blocking write hangs.
    block = b"x" * 50_000
    while select.select([], [descriptor], [], STILL)[1]:
        try:
            taken += os.write(descriptor, block)
        except BlockingIOError:
            continue
        assert taken < 64 * MIB, "the bridge takes everything and gives nothing"
    return taken


def resident(process: int) -> int:
    """Bytes of memory that a process uses."""
    fields = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_slow_client_slows_the_daemon_and_costs_no_memory(sockets: Path) -> None:
    with bridged(sockets) as ends:
        taken = fill(ends.daemon)
        assert taken <= BUFFERED_BYTES + READ_BYTES + KERNEL_BYTES
        assert resident(ends.child.pid) < 40 * MIB
        assert len(read_exactly(ends.from_bridge, taken)) == taken


def test_a_slow_daemon_slows_the_client_and_costs_no_memory(sockets: Path) -> None:
    with bridged(sockets) as ends:
        taken = fill(ends.to_bridge)
        assert taken <= BUFFERED_BYTES + READ_BYTES + KERNEL_BYTES
        assert resident(ends.child.pid) < 40 * MIB
        ends.to_bridge.close()
        assert len(receive_all(ends.daemon)) == taken


def test_full_in_both_directions_is_no_deadlock(sockets: Path) -> None:
    with bridged(sockets) as ends:
        down, up = fill(ends.daemon), fill(ends.to_bridge)
        # One side begins to read, and only then the other.
        ends.daemon.settimeout(PATIENCE)
        ends.to_bridge.close()
        assert len(receive_all(ends.daemon)) == up
        assert len(read_exactly(ends.from_bridge, down)) == down


def test_a_full_bridge_that_waits_does_not_spin(sockets: Path) -> None:
    with bridged(sockets) as ends:
        fill(ends.daemon)
        fill(ends.to_bridge)
        ends.to_bridge.close()
        before = cpu_ticks(ends.child.pid)
        # Bounded waiting on what cannot happen: nobody reads, and the hangup of stdin must not wake the bridge.
        assert select.select([ends.daemon.fileno()], [], [], STILL)[0]
        assert not select.select([], [ends.daemon], [], STILL)[1]
        assert cpu_ticks(ends.child.pid) - before < STILL * os.sysconf("SC_CLK_TCK") / 2


def cpu_ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_without_options_nothing_is_added_to_what_the_client_says(sockets: Path) -> None:
    with bridged(sockets) as ends:
        ends.to_bridge.close()
        assert receive_all(ends.daemon) == b""


@pytest.mark.parametrize(
    ("words", "params"),
    [
        (("--profile", "review"), {"profile": "review"}),
        (("--surface=load", "--session", "k"), {"surface": "load", "session": "k"}),
        (("--lazy",), {"lazy": True}),
        (("--no-lazy", "--profile", "ä"), {"profile": "ä", "lazy": False}),
    ],
)
def test_options_are_told_to_the_daemon_before_anything_else(
    sockets: Path, words: tuple[str, ...], params: dict[str, object]
) -> None:
    with bridged(sockets, *words) as ends:
        ends.to_bridge.write(b"first\n")
        ends.to_bridge.close()
        hello, rest = receive_all(ends.daemon).split(b"\n", 1)
    assert json.loads(hello) == {
        "jsonrpc": "2.0",
        "method": "mcpd/hello",
        "params": {**params, "version": __version__},
    }
    assert rest == b"first\n"


@pytest.mark.parametrize(("words", "session"), [((), "env"), (("--session", "option"), "option")])
def test_the_session_may_come_from_the_environment(sockets: Path, words: tuple[str, ...], session: str) -> None:
    with bridged(sockets, *words, MCPD_SESSION="env") as ends:
        ends.to_bridge.close()
        assert json.loads(receive_all(ends.daemon))["params"]["session"] == session


LONGEST = "ä" * remembered.MAX_KEY

BAD_KEYS = [
    "x" * (remembered.MAX_KEY + 1),
    "a\tb",
    "line\nbreak",
    "\x1b[31m",
    "\u202egnp",
    "zero\u200bwidth",
    "\udcff",
]


@pytest.mark.parametrize("key", ["k", "/home/me/a project", "ä 世界", LONGEST])
@pytest.mark.parametrize("where", ["option", "environment"])
def test_a_key_is_any_short_printable_text(sockets: Path, key: str, where: str) -> None:
    words, more = (("--session", key), {}) if where == "option" else ((), {"MCPD_SESSION": key})
    with bridged(sockets, *words, **more) as ends:
        ends.to_bridge.close()
        assert json.loads(receive_all(ends.daemon))["params"]["session"] == key


@pytest.mark.parametrize("key", BAD_KEYS)
@pytest.mark.parametrize("where", ["option", "environment"])
def test_a_key_that_nobody_could_read_is_a_usage_error(key: str, where: str) -> None:
    ran = mcpd("connect", "--session", key) if where == "option" else mcpd("connect", MCPD_SESSION=key)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "1 to 200 printable characters" in ran.stderr
    assert ("--session" if where == "option" else "MCPD_SESSION") in ran.stderr
    assert all(line.isprintable() for line in ran.stderr.splitlines())


def test_an_empty_key_is_a_usage_error_and_an_empty_variable_is_none(sockets: Path) -> None:
    assert mcpd("connect", "--session=").returncode == 2
    with bridged(sockets, MCPD_SESSION="") as ends:
        ends.to_bridge.close()
        assert receive_all(ends.daemon) == b""


def test_the_bridge_and_the_daemon_agree_on_how_long_a_key_may_be() -> None:
    assert MAX_KEY == remembered.MAX_KEY


def test_no_socket_says_what_was_tried_and_what_to_do(sockets: Path) -> None:
    path = sockets / "mcpd" / "mcpd.sock"
    # Named, so that a daemon that the system runs is not found instead.
    ran = mcpd("connect", MCPD_SOCKET=str(path))
    assert ran.returncode == 1
    assert ran.stdout == ""
    for part in (str(path), "ENOENT", "mcpd run", "systemctl --user start mcpd.socket", "--socket"):
        assert part in ran.stderr


def test_a_socket_that_was_left_behind_is_told_from_a_missing_one(sockets: Path) -> None:
    path = sockets / "left.sock"
    listen(path).close()
    ran = mcpd("connect", "--socket", str(path))
    assert ran.returncode == 1
    assert os.strerror(errno.ECONNREFUSED) not in ran.stderr
    assert "nobody listens on it (ECONNREFUSED)" in ran.stderr


def test_a_closed_stdin_is_an_end_and_does_not_become_the_socket(sockets: Path) -> None:
    path = sockets / "mcpd.sock"
    with (
        listen(path) as listener,
        subprocess.Popen(
            ["/bin/sh", "-c", f'exec "{sys.executable}" -m daemon connect --socket "{path}" <&-'],
            env=environment(),
            stdout=subprocess.PIPE,
        ) as child,
    ):
        daemon, _ = listener.accept()
        with daemon:
            daemon.settimeout(PATIENCE)
            assert daemon.recv(1) == b""
            daemon.sendall(b"bye")
        assert child.communicate(timeout=PATIENCE)[0] == b"bye"
        assert child.returncode == 0
