"""Starts the daemon in the background, unless one runs.

Where systemd has the user's units it is systemd that starts it, elsewhere `detached`. However many ask at once,
one daemon is started (`turns`).

A window that was connected before asks only for a daemon that has failed. That is told by the socket: a daemon
that ends as it should removes its file.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from daemon.errors import ConfigError, McpdError
from daemon.host import paths
from daemon.host.sockets import private_directory
from daemon.setup.running.detached import launch
from daemon.setup.running.presence import (
    EX_CONFIG,
    SHOW_LOG,
    NotForWindow,
    NotStarted,
    RunningDaemon,
    found,
    holder,
    pause,
)
from daemon.setup.running.systemctl import SERVICE, SHOW_JOURNAL, SOCKET, SystemdRefused, installed
from daemon.setup.running.turns import turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.config.model import Config
    from daemon.setup.running.systemctl import Systemctl


@attrs.frozen(kw_only=True)
class StartRequest:
    """What is to be started, and for whom."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    """The environment: of paths, and of the daemon."""
    read: Callable[[], Config]
    """Reads the configuration that the daemon will have. Raises ConfigError."""
    config: Path | None = None
    """The configuration, if it was named. Paths are absolute."""
    socket: Path | None = None
    """The clients' socket, if it was named."""
    state_dir: Path | None = None
    """The state directory, if it was named."""
    seconds: float = 30.0
    """How long to wait."""
    window: str = ""
    """`new` or `known` if a bridge asks, by whether it was connected before; empty: a person does."""

    @property
    def front(self) -> Path:
        """Where clients look for the daemon."""
        return self.socket or paths.client_socket(self.environ)

    def manager(self) -> Systemctl | None:
        """The systemd that is to start it; None if there is none, or another daemon than its own is named."""
        named = self.config or self.socket or self.state_dir or self.environ.get("MCPD_CONFIG")
        return None if named else installed(self.environ)


def start(request: StartRequest) -> RunningDaemon:
    """Start a daemon unless one runs, and wait until it serves.

    Raises:
        NotStarted: none runs, or not within the time.
        ConfigError: the configuration is faulty.
        OSError: the directory of the sockets cannot be used.
    """
    front = request.front
    if (running := _served(request)) is not None:
        return running
    if front in paths.SYSTEM[paths.FRONT]:
        raise NotStarted(
            f"nobody listens on {front}, which is the system's: `sudo systemctl start mcpd.socket` starts its"
            " daemon, or name a socket of your own with --socket P"
        )
    private_directory(front.parent)
    deadline = time.monotonic() + request.seconds
    with turn(front, deadline, shared=bool(request.window)) as record:
        # The one that had the turn before may have started it.
        if (running := _served(request)) is not None:
            return running
        try:
            return _started(request, deadline)
        except NotForWindow:
            raise
        except McpdError as error:
            record(error)
            raise


def _served(request: StartRequest) -> RunningDaemon | None:
    """The daemon that is there; None if there is none, also where systemd holds its socket in its place."""
    running = found(request.front)
    return None if running is not None and running.pid is None and request.manager() is not None else running


def _started(request: StartRequest, deadline: float) -> RunningDaemon:
    front = request.front
    manager = request.manager()
    if request.window == "known":
        if manager is not None:
            raise NotForWindow("systemd was told to stop it, or could not start it: `mcpd service status` says")
        _has_failed(front, deadline)
    if manager is not None:
        return _by_systemd(manager, request)
    serves = front
    if not request.window:
        listen = request.read().listen
        serves, _ = paths.served_sockets(request.environ, request.socket, listen.socket, listen.control_socket)
        if serves != front and (running := found(serves)) is not None:
            return running
    while (pid := holder(serves)) is not None:
        # It is ending, or has just been started by hand.
        if (running := found(serves)) is not None:
            return running
        pause(deadline, f"pid {pid} has held {serves} for too long: it neither serves nor ends")
    # The daemon itself reads the configuration for a window: to read it here first takes 0.15 s, of the second
    # that some clients wait for their tools.
    options = [*_options(request), *(["--window", str(front)] if request.window else [])]
    pid = launch(serves, options, request.environ, deadline)
    return RunningDaemon(how="detached", started=True, pid=pid, socket=str(serves), log=SHOW_LOG)


def _options(request: StartRequest) -> list[str]:
    """What was named, as options of `mcpd run`; a relative name would mean something else there."""
    config = request.config or request.environ.get("MCPD_CONFIG")
    named = {"--config": config, "--socket": request.socket, "--state-dir": request.state_dir}
    return [word for option, path in named.items() if path for word in (option, str(Path(path).absolute()))]


def _has_failed(front: Path, deadline: float) -> None:
    """Wait until no daemon holds a socket; check that the last one has failed.

    Raises:
        NotForWindow: it has ended as it should.
    """
    while holder(front) is not None:
        pause(deadline, "the daemon is still ending; see `mcpd logs --daemon`")
    if not os.path.lexists(front):
        raise NotForWindow(
            "the daemon was stopped; `mcpd start` starts it again, and so does a client that is opened anew"
        )


def _autostart(request: StartRequest) -> bool:
    """Whether the configuration lets windows start a daemon."""
    try:
        return request.read().autostart
    except ConfigError:
        # Its variables may be systemd's alone: whether it is faulty is for the daemon to say.
        return True


def _by_systemd(manager: Systemctl, request: StartRequest) -> RunningDaemon:
    """Have systemd start its units. A window is told so, too, if the configuration keeps it from that."""
    if request.window and not _autostart(request):
        raise NotForWindow("")
    try:
        manager.tell("start", SOCKET, SERVICE)
    except SystemdRefused as error:
        if manager.show(SERVICE).get("ExecMainStatus") == str(EX_CONFIG):
            request.read()
            raise NotStarted(f"the configuration is faulty: `{SHOW_JOURNAL}`", EX_CONFIG) from None
        raise NotStarted(f"systemd could not start it: {error} (`{SHOW_JOURNAL}`)") from None
    return RunningDaemon(
        how="systemd", started=True, pid=manager.pid(), socket=str(request.front), log=SHOW_LOG
    )
