"""Processes that connect over TCP from this machine: real ones, told apart by the kernel."""

import os
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from daemon.processes import marks, proc
from daemon.processes.peers import Peers, TcpPeers, other_end, shares

WAIT = 30.0

HOLDS = "link.connect(address)\nsys.stdin.read()"
BELOW = "if os.fork() == 0:\n    link.connect(address)\n    link.recv(1)\n    os._exit(0)\nos.wait()"
HANGS_UP = "link.connect(address)\nlink.send(b'x')\nlink.close()\nsys.stdin.read()"
IN_FLIGHT = (
    "a, b = socket.socketpair()\nlink.connect(address)\n"
    "socket.send_fds(a, [b'x'], [link.fileno()])\nlink.close()\nsys.stdin.read()"
)
"""The connection lies in the queue of another socket, where no descriptor shows it."""


@contextmanager
def connected(
    script: str, family: socket.AddressFamily = socket.AF_INET
) -> Iterator[tuple[int, socket.socket]]:
    """The pid of a child of ours, and our end of a connection that its script makes."""
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    begin = (
        f"import os, socket, sys\nlink = socket.socket(socket.{family.name})\n"
        f"address = ({host!r}, int(sys.argv[1]))\n"
    )
    with socket.create_server((host, 0), family=family) as listener:
        words = [sys.executable, "-c", begin + script, str(listener.getsockname()[1])]
        with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
            listener.settimeout(WAIT)
            ours, _ = listener.accept()
            with ours:
                yield process.pid, ours
            process.communicate()


def door(servers: Collection[int] = ()) -> tuple[Peers, TcpPeers]:
    peers = Peers("http", shares(0), uids=(), servers=lambda: servers)
    return peers, TcpPeers(peers)


async def seen_as(script: str, link: socket.socket) -> None:
    """Wait until what the script does after it has connected has happened."""
    held = script in {HOLDS, BELOW}
    with trio.fail_after(WAIT):
        while (end := other_end(link)) is None or bool(
            proc.socket_holders([end.inode] if end.inode else [])
        ) != held:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("script", [HOLDS, BELOW], ids=["a server", "what it started"])
async def test_a_servers_process_is_refused_unless_it_is_named(
    script: str, family: socket.AddressFamily
) -> None:
    with connected(script, family) as (pid, link):
        peers, tcp = door()
        assert await tcp.admit(link), "a child of ours that is not a server may come in"
        mark = marks.new()
        marks.started(mark, pid)
        try:
            assert not await tcp.admit(link)
            assert peers.report()["refused"] == {"server": 1}
            assert await door({pid})[1].admit(link)
        finally:
            marks.forget(mark)


@pytest.mark.parametrize("script", [HANGS_UP, IN_FLIGHT], ids=["hung up", "in flight"])
async def test_a_connection_that_nobody_is_seen_to_hold_is_refused(script: str) -> None:
    with connected(script) as (_, link):
        await seen_as(script, link)
        peers, tcp = door()
        assert not await tcp.admit(link)
        assert peers.report()["refused"] == {"gone": 1}


async def test_a_servers_proxy_that_hangs_up_during_the_search_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as proxy,
        listener.accept()[0] as ours,
    ):
        search = proc.socket_holders

        def searched(*given: Any) -> dict[int, int]:
            found = search(*given)
            proxy.close()
            return found

        monkeypatch.setattr(proc, "socket_holders", searched)
        peers, _ = door()
        assert not await TcpPeers(peers, lambda _inode: proxy.fileno() >= 0).admit(ours)
        assert peers.report()["refused"] == {"server": 1}


def test_the_kernel_names_owner_and_inode() -> None:
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener,
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])) as client,
        listener.accept()[0] as ours,
    ):
        assert other_end(ours) == (os.getuid(), os.fstat(client.fileno()).st_ino)
