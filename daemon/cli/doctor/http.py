"""Checks `listen.http`: can the address be bound, who has it, who can read the tokens, is TLS in order.

Nobody is connected to. An address is bound for a moment and not listened on, which keeps nobody else from it.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from typing import TYPE_CHECKING

from daemon.cli.doctor import certificates
from daemon.cli.doctor.findings import found
from daemon.config.addresses import is_loopback, split_authority
from daemon.host.tokens import TokenFile, TokenTrouble
from daemon.processes import proc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.cli.doctor.findings import Finding
    from daemon.cli.doctor.scene import Running, Scene

SERVICE_MANAGERS = ("systemd", "init")
"""Programs that hold a socket for a daemon that is to be started (systemd.socket(5))."""


def check(scene: Scene) -> Iterator[Finding]:
    """Findings about `listen.http`; none if it is off."""
    http = None if scene.config is None else scene.config.listen.http
    if http is None:
        return
    host, port = split_authority(http.address)
    assert host is not None, "the reader of the configuration refuses it"
    if port:
        yield _address("127.0.0.1" if host.lower() == "localhost" else host, port, scene.running)
    if not is_loopback(host):
        yield found("http-beyond-loopback", address=http.address)
        if not http.hosts:
            yield found("http-without-names")
    if http.tls is not None:
        yield from certificates.check(http.tls, time.time())
    yield from _tokens(TokenFile(scene.state), scene.running)


def _address(host: str, port: int, running: Running | None) -> Finding:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    problem = _problem(host, port)
    if problem == errno.EADDRINUSE:
        return _taken(address, port, running)
    if problem:
        return found("http-address-impossible", address=address, problem=os.strerror(problem))
    if running is not None:
        return found("http-not-served", address=address)
    return found("http-free", address=address)


def _taken(address: str, port: int, running: Running | None) -> Finding:
    holders = proc.port_holders(port)
    names = {pid: os.path.basename(proc.command_line(pid)[0]) for pid in holders}  # noqa: PTH119 - a word, no path
    if any(name in SERVICE_MANAGERS for name in names.values()):
        return found("http-held", address=address)
    # A daemon shows its descriptors to nobody: where it answers and nobody else is seen, it is the one.
    if running is not None and (not holders or running.pid in holders):
        return found("http-served", address=address)
    who = ", ".join(f"{name or 'a program'} (pid {pid})" for pid, name in names.items())
    return found("http-taken", address=address, who=who or "a program of another user")


def _problem(host: str, port: int) -> int:
    """The number of the error with which an address cannot be bound; 0 if it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the daemon does: what a connection left behind is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno or errno.EINVAL
    return 0


def _tokens(file: TokenFile, running: Running | None) -> Iterator[Finding]:
    try:
        status = file.path.lstat()
    except OSError:
        return  # none has been made yet, or the state directory is closed, which is another check's
    if status.st_uid not in {0, os.geteuid(), running and running.uid}:
        yield found("tokens-of-another-user", path=file.path, uid=status.st_uid)
    elif stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
        yield found("tokens-open", path=file.path)
    elif proc.may(file.path, os.R_OK):
        try:
            file.read()
        except TokenTrouble as error:
            yield found("tokens-unusable", problem=error)
