"""Checks sockets, the HTTP port and its certificate."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import version
from daemon.checks.findings import found, is_same
from daemon.config.listen import is_loopback, split_authority
from daemon.host import paths
from daemon.host.tokens import TokenFile, TokenTrouble, confirming
from daemon.kit.later import later
from daemon.kit.wording import counted
from daemon.processes import proc

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from cryptography import x509

    from daemon.checks.findings import Finding, Running, Scene
    from daemon.config.listen import Tls
else:
    x509 = later("cryptography.x509")


LONGEST = 107
"""Bytes of a unix socket's path without the final NUL (unix(7): sun_path has 108)."""


def sockets(scene: Scene) -> Iterator[Finding]:
    """Findings on the sockets."""
    if scene.running is not None:
        yield from _daemon(scene.running)
    elif scene.silence:
        yield _silent(scene)
    else:
        yield found("daemon-absent", path=scene.control)
    for users, path in (("clients", scene.front), ("operators", scene.control)):
        problems = list(_socket(path, scene))
        yield from problems or [_sound(path, users)]
    looked = paths.client_socket(scene.environ)
    if not is_same(looked, scene.front):
        yield found("clients-look-elsewhere", looked=looked, path=scene.front)


def _daemon(running: Running) -> Iterator[Finding]:
    theirs, own = running.status["daemon"]["version"], version()
    yield found("daemon-runs", version=theirs, pid=running.pid)
    if theirs != own or running.status["daemon"].get("replaced"):
        yield found("daemon-version", version=theirs, own=own)
    if running.uid not in {None, os.geteuid()}:
        yield found("daemon-user", uid=running.uid, own=os.geteuid())


def _silent(scene: Scene) -> Finding:
    if proc.listens(scene.control) is False:
        return found("daemon-ended", path=scene.control)
    holder = proc.lock_holder(scene.control.with_name(scene.control.name + ".lock"))
    who = f"pid {holder}" if holder else "the process that listens there"
    return found("daemon-silent", silence=scene.silence, who=who)


def _socket(path: Path, scene: Scene) -> Iterator[Finding]:
    length = len(os.fsencode(path))
    if length > LONGEST:
        yield found("socket-path-too-long", path=path, length=length, longest=LONGEST)
        return
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            yield found("socket-is-none", path=path)
    except FileNotFoundError:
        pass
    except OSError as error:
        yield found("socket-closed", path=path, problem=error.strerror)
    yield from _directory(path.parent, {0, os.geteuid(), scene.running and scene.running.uid})


def _directory(directory: Path, owners: Container[object]) -> Iterator[Finding]:
    """Findings on a directory that `host.sockets.bind` would refuse."""
    try:
        status = directory.stat()
    except FileNotFoundError:
        above = next(parent for parent in directory.parents if parent.exists())
        if not proc.may(above, os.W_OK | os.X_OK):
            yield found("socket-directory-impossible", path=directory, above=above)
        return
    except OSError:
        return
    if not stat.S_ISDIR(status.st_mode):
        yield found("socket-directory-is-none", path=directory)
    elif status.st_uid not in owners:
        yield found("socket-directory-of-another-user", path=directory, uid=status.st_uid)
    elif status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        yield found("socket-directory-open", path=directory)


def _sound(path: Path, users: str) -> Finding:
    if not os.path.lexists(path):
        return found("socket-absent", path=path, users=users)
    listens = proc.listens(path)
    if listens is None:
        return found("socket-present", path=path, users=users)
    return found("socket-served" if listens else "socket-left-over", path=path, users=users)


SERVICE_MANAGERS = ("systemd", "init")
"""Programs that hold a socket open for a daemon (systemd.socket(5))."""


def http_port(scene: Scene) -> Iterator[Finding]:
    """Findings on `listen.http`."""
    http = None if scene.config is None else scene.config.listen.http
    if http is None:
        return
    host, port = split_authority(http.address)
    assert host is not None, "the configuration's reader refuses it"
    if port:
        yield _address("127.0.0.1" if host.lower() == "localhost" else host, port, scene.running)
    if not is_loopback(host):
        yield found("http-beyond-loopback", address=http.address)
        if not http.hosts:
            yield found("http-without-names")
    if http.tls is not None:
        yield from certificate(http.tls, time.time())
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
    if doubted := running and running.status["daemon"].get("doubtedTokens"):
        yield found("tokens-doubted", count=counted(len(doubted), "token"), words=confirming(doubted))
    try:
        status = file.path.lstat()
    except OSError:
        return  # none has been made yet, or the state directory is closed, which another check finds
    if status.st_uid not in {0, os.geteuid(), running and running.uid}:
        yield found("tokens-of-another-user", path=file.path, uid=status.st_uid)
    elif stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
        yield found("tokens-open", path=file.path)
    elif proc.may(file.path, os.R_OK):
        try:
            file.read()
        except TokenTrouble as error:
            yield found("tokens-unusable", problem=error)


SOON_DAYS = 14
"""Days before expiry at which to warn: automatic renewal comes long before."""


def certificate(tls: Tls, now: float) -> Iterator[Finding]:
    """Findings on `listen.http.tls`, each with its `key`; `now` is epoch seconds."""
    problems = [*_unreadable("cert", tls.cert), *_unreadable("key", tls.key)]
    yield from problems or _loaded(tls, now)


def _unreadable(key: str, path: str) -> Iterator[Finding]:
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        yield found("tls-file-unreadable", key=key, path=path, problem=error.strerror)


def _loaded(tls: Tls, now: float) -> Iterator[Finding]:
    try:
        # The password keeps OpenSSL from asking for one at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert, tls.key, password="-")  # noqa: S106
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            yield found("tls-does-not-fit", cert=tls.cert, path=tls.key)
        else:
            yield found("tls-unusable", cert=tls.cert, path=tls.key, problem=error.reason or "no PEM")
        return
    try:
        served = x509.load_pem_x509_certificate(Path(tls.cert).read_bytes())
    except ValueError:  # Stricter than OpenSSL, which has loaded it: its days are unknown, and it is served.
        return
    begin, end = served.not_valid_before_utc, served.not_valid_after_utc
    at = datetime.fromtimestamp(now, UTC)
    if at < begin:
        yield found("tls-not-yet-valid", path=tls.cert, date=f"{begin:%Y-%m-%d}")
    elif at >= end:
        yield found("tls-expired", path=tls.cert, date=f"{end:%Y-%m-%d}")
    elif (end - at).days < SOON_DAYS:
        yield found("tls-expires-soon", path=tls.cert, date=f"{end:%Y-%m-%d}")
