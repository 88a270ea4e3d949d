"""The sockets that the daemon listens on, bound before heavy imports: systemd's, else its own."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from daemon.config.config_model import Config
from daemon.errors import ConfigError, CoreFailed, Fault
from daemon.host import paths
from daemon.host.sockets import bind, unbind

FRONT, CONTROL, HTTP = NAMES = ("front", "control", "http")
"""FileDescriptorNames of the sockets that systemd may hand over."""


def turn_away(listeners: Iterable[socket.socket]) -> None:
    """Hang up on clients that wait in systemd's sockets, which would start the daemon for each of them."""
    for listener in listeners:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()
        listener.close()


class Listeners(msgspec.Struct, frozen=True):
    """The listening sockets and their paths."""

    front: socket.socket
    """For clients."""
    control: socket.socket
    """For operators."""
    front_path: Path
    control_path: Path
    http: socket.socket | None = None
    tls: ssl.SSLContext | None = None
    """The certificate of `http`."""


def held_address(inherited: Mapping[str, socket.socket]) -> str | None:
    """The address of systemd's socket for HTTP. Raises ConfigError for an unfit or unknown socket."""
    for name in sorted(inherited.keys() - set(NAMES)):
        which = f"a second socket for {name.split()[0]!r}" if name.split()[0] in NAMES else f"a socket {name!r}"
        message = f"{which} was handed over: only {', '.join(NAMES)} are known, with one ListenStream= each"
        raise ConfigError("systemd", [Fault(path="FileDescriptorName", message=message)])
    if HTTP not in inherited:
        return None
    from daemon.clients.doors.http.binding import adopt  # noqa: PLC0415 - only a daemon that serves HTTP needs it

    return adopt(inherited[HTTP])


@contextlib.contextmanager
def opened_listeners(
    wanted: Path | None, config: Config, inherited: Mapping[str, socket.socket]
) -> Iterator[Listeners]:
    """The listening sockets, until the end of the block. Raises DaemonRunning or OSError."""
    listen = config.listen
    front_path, control_path = paths.served_sockets(os.environ, wanted, listen.socket, listen.control_socket)
    with contextlib.ExitStack() as stack:
        bound: list[tuple[socket.socket, Path]] = []
        for name, path in ((FRONT, front_path), (CONTROL, control_path)):
            listener = inherited.get(name)
            if listener is None:
                listener = bind(path)
                stack.push(_released(listener, path))
            else:
                path = Path(listener.getsockname())  # noqa: PLW2901 - systemd chose another one
                stack.callback(listener.close)
            bound.append((listener, path))
        (front, front_path), (control, control_path) = bound
        http = inherited.get(HTTP)
        if http is None and listen.http is not None:
            from daemon.clients.doors.http.binding import bind_http  # noqa: PLC0415 - see `held_address`

            http = bind_http(listen.http.address)
        if http is not None:
            stack.callback(http.close)
        yield Listeners(front, control, front_path, control_path, http, _certificate(config))


def _released(listener: socket.socket, path: Path) -> Callable[[object, object, object], None]:
    """Closes a socket, and removes its file unless the daemon failed: bridges go by the file."""

    def release(_kind: object, error: object, _traceback: object) -> None:
        if isinstance(error, CoreFailed):
            listener.close()
        else:
            unbind(listener, path)

    return release


def _certificate(config: Config) -> ssl.SSLContext | None:
    """The certificate of HTTP, if any. Raises OSError, whose text names the file and the reason."""
    if config.listen.http is None or config.listen.http.tls is None:
        return None
    from daemon.clients.doors.tls import tls_context  # noqa: PLC0415 - see `held_address`

    return tls_context(config.listen.http.tls)
