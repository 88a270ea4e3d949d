"""Binds the HTTP address, or takes the service manager's socket; connections inherit TCP_NODELAY (tcp(7))."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from daemon.config.listen import DEFAULT_HTTP_ADDRESS, MAX_PORT, numeric, split_authority
from daemon.errors import ConfigError, Fault
from daemon.kit.wording import quoted
from daemon.processes import proc

UNSENT_BYTES = 128 * 1024
"""Bytes per connection in the kernel; its default of megabytes makes slow peers look stuck (`wire.link`)."""

BACKLOG = 4096
"""Connections that wait in the kernel, its own limit since Linux 5.4: all agents may reconnect at once."""

UNIT = "mcpd-http.socket"  # the systemd unit that hands the socket over

LOOPBACK = "127.0.0.1"  # meaning of `localhost`, whatever a resolver says


def bind_http(address: str) -> socket.socket:
    """Listen as `listen_at`. Blocks: an `OSError` names the port's holder, found in /proc, and a remedy."""
    try:
        return listen_at(address)
    except OSError as error:
        number = error.errno or errno.EINVAL
        reason = os.strerror(number) + _what_to_do(number, _split(address)[1])
        raise OSError(number, f"cannot listen on {address}: {reason}") from None


def listen_at(address: str) -> socket.socket:
    """Listen on HOST:PORT (IPv6 in brackets) despite TIME_WAIT. Raises `OSError`, `ValueError` if malformed."""
    host, port = _split(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def adopt(listener: socket.socket) -> str:
    """Prepare the manager's socket, never to be shut down; return HOST:PORT. ConfigError unless it is TCP."""
    is_stream = listener.type == socket.SOCK_STREAM and listener.family in {socket.AF_INET, socket.AF_INET6}
    if not is_stream or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        message = "the socket named http is not a listening TCP socket: write ListenStream="
        raise ConfigError(UNIT, [Fault(path="[Socket]", message=message + DEFAULT_HTTP_ADDRESS)])
    listener.setblocking(False)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return address_of(listener)


def address_of(listener: socket.socket) -> str:
    """The address that a socket is bound to, as HOST:PORT."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_of(connection: socket.socket) -> str | None:
    """Prepare a connection and return its peer's address; None if the peer has reset the connection."""
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        return str(connection.getpeername()[0])
    except OSError:
        return None


def _split(address: str) -> tuple[str, int]:
    host, port = split_authority(address)
    if host is not None and host.lower() == "localhost":
        host = LOOPBACK
    if host is None or port is None or port > MAX_PORT or numeric(host) is None:
        raise ValueError(
            f"{quoted(address)} is not ADDRESS:PORT, as in 127.0.0.1:7337, [::1]:7337 or localhost:7337"
        )
    return host, port


def _what_to_do(number: int, port: int) -> str:
    match number:
        case errno.EADDRINUSE:
            return f". {_holders(port)}, or choose another address"
        case errno.EACCES:
            return (
                ". Ports below 1024 are root's: take a higher one, or let systemd hold it (systemd/"
                + UNIT
                + ")"
            )
        case errno.EADDRNOTAVAIL:
            return ". This machine has no such address: `ip address` lists the addresses that it has"
        case errno.EAFNOSUPPORT:
            return ". This machine has no such family of addresses: take 127.0.0.1"
    return ""


def _holders(port: int) -> str:
    pids = proc.port_holders(port)
    if not pids:
        return f"`ss -ltnp 'sport = :{port}'`, as root, names what listens there: stop it"
    named = [f"{Path(proc.command_line(pid)[0]).name or 'its program is hidden'}, pid {pid}" for pid in pids]
    return f"A process listens there ({'; '.join(named)}): stop it"
