"""The sockets that the daemon listens on: systemd's where it has made them, its own otherwise.

They are bound before anything heavy is imported, and closed when the daemon ends; systemd's go on listening.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from daemon.errors import ConfigError, CoreFailed, Fault
from daemon.host import paths
from daemon.host.sockets import bind, unbind

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from daemon.config.config_model import Config

FRONT, CONTROL, HTTP = NAMES = ("front", "control", "http")
"""The sockets that systemd may hand over, by their FileDescriptorName."""


def turn_away(listeners: Iterable[socket.socket]) -> None:
    """Hang up on clients that wait in systemd's socket: it would start us again for each of them at once."""
    for listener in listeners:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()
        listener.close()


class Listeners(msgspec.Struct, frozen=True):
    """The listening sockets, with the paths of those that have one."""

    front: socket.socket
    """Where clients connect."""
    control: socket.socket
    """Where operators connect."""
    front_path: Path
    """The path of `front`."""
    control_path: Path
    """The path of `control`."""
    http: socket.socket | None = None
    """Where HTTP is served; None: nowhere."""
    tls: ssl.SSLContext | None = None
    """The certificate of `http`; None: without TLS."""


def held_address(inherited: Mapping[str, socket.socket]) -> str | None:
    """The address of the socket for HTTP that systemd made, if it made one.

    Raises:
        ConfigError: it is not fit for that, or there is a socket that nobody here would accept from.
    """
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
    """The listening sockets, until the end of the block.

    Args:
        wanted: where clients connect, by the command line.
        config: the configuration.
        inherited: the sockets that systemd has made, by name.

    Raises:
        DaemonRunning: another daemon serves a path.
        OSError: a path or an address cannot be had; the text says why.
    """
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
    """What closes a socket at the end, and removes its file unless the daemon has failed.

    A file that nobody listens on tells bridges that the daemon has failed (`setup.running.starting`).
    """

    def release(_kind: object, error: object, _traceback: object) -> None:
        if isinstance(error, CoreFailed):
            listener.close()
        else:
            unbind(listener, path)

    return release


def _certificate(config: Config) -> ssl.SSLContext | None:
    """The certificate of HTTP, if it has one.

    Raises:
        OSError: its files cannot be used; the text says which and why.
    """
    if config.listen.http is None or config.listen.http.tls is None:
        return None
    from daemon.clients.doors.tls import tls_context  # noqa: PLC0415 - see `held_address`

    return tls_context(config.listen.http.tls)
