"""The address of HTTP: what can be bound, what is told when it cannot, and a socket that was handed over."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon.clients.doors.http.binding import address_of, adopt, bind_http
from daemon.errors import ConfigError
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator


LISTEN = """
import socket, sys
held = socket.create_server((sys.argv[1], 0))
print(held.getsockname()[1], flush=True)
sys.stdin.read()
"""


def has_ipv6() -> bool:
    """Machines and containers without are common."""
    try:
        with closing(socket.create_server(("::1", 0), family=socket.AF_INET6)):
            return True
    except OSError:
        return False


@pytest.fixture
def somebody() -> Iterator[subprocess.Popen[str]]:
    """Another process, which listens on 127.0.0.1 and prints where."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN, "127.0.0.1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("address", "bound"),
    [
        ("127.0.0.1:0", "127.0.0.1"),
        ("localhost:0", "127.0.0.1"),
        ("LOCALHOST:0", "127.0.0.1"),
        ("0.0.0.0:0", "0.0.0.0"),
        *([("[::1]:0", "[::1]"), ("[::]:0", "[::]")] if has_ipv6() else []),
    ],
)
def test_what_is_bound_listens_and_does_not_block(address: str, bound: str) -> None:
    with bind_http(address) as listener:
        assert address_of(listener) == f"{bound}:{listener.getsockname()[1]}"
        assert not listener.getblocking()
        assert not listener.get_inheritable()
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_an_address_can_be_had_again_at_once_although_a_connection_was_closed_here_first() -> None:
    with bind_http("127.0.0.1:0") as first, socket.create_connection(first.getsockname()) as client:
        address = address_of(first)
        first.settimeout(PATIENCE)
        first.accept()[0].close()
        assert client.recv(1) == b""
    bind_http(address).close()


def test_whoever_holds_the_port_is_named(somebody: subprocess.Popen[str]) -> None:
    assert somebody.stdout is not None
    port = int(somebody.stdout.readline())
    for address in (f"127.0.0.1:{port}", f"0.0.0.0:{port}"):
        with pytest.raises(OSError, match=address) as refused:
            bind_http(address)
        assert refused.value.errno == errno.EADDRINUSE
        program = Path(sys.executable).name
        assert str(refused.value).endswith(
            f"cannot listen on {address}: Address already in use. A process listens there"
            f" ({program}, pid {somebody.pid}): stop it, or choose another address"
        )


def test_if_nobody_can_be_named_it_is_told_how_to_find_out() -> None:
    """It is this process itself, which does not look for itself."""
    with bind_http("127.0.0.1:0") as taken, pytest.raises(OSError, match="as root, names what listens there"):
        bind_http(address_of(taken))


def test_a_socket_that_was_handed_over_goes_on_listening_when_our_descriptor_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        ours = socket.socket(fileno=os.dup(theirs.fileno()))
        assert adopt(ours) == f"127.0.0.1:{theirs.getsockname()[1]}"
        assert not ours.getblocking()
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        ours.close()
        with socket.create_connection(theirs.getsockname(), timeout=PATIENCE):
            theirs.settimeout(PATIENCE)
            theirs.accept()[0].close()


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_DGRAM),
        # Not listening: what Accept=yes hands over is a connection.
        (socket.AF_INET, socket.SOCK_STREAM),
    ],
)
def test_what_is_no_listening_tcp_socket_is_a_fault_of_the_unit(
    family: socket.AddressFamily, kind: socket.SocketKind
) -> None:
    with (
        socket.socket(family, kind) as wrong,
        pytest.raises(ConfigError, match="is not a listening TCP socket") as told,
    ):
        adopt(wrong)
    assert "mcpd-http.socket" in str(told.value)
    assert "ListenStream=127.0.0.1:7337" in str(told.value)
