"""The daemon's inputs: sockets, files, the service manager, its child processes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from daemon.processes.children import Children
from daemon.upstreams.transports.server_connection import OpenContext

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from daemon.authorization.login_runs import LoginRuns
    from daemon.config.redaction import Redactors
    from daemon.config.state_url import StateUrl
    from daemon.history.event import Event
    from daemon.operators.base import DaemonFacts
    from daemon.ports import WatchedFile
    from daemon.wire.outbox import Outbox


@attrs.frozen(kw_only=True)
class Surroundings:
    """The daemon's inputs."""

    front: socket.socket
    control: socket.socket
    http: socket.socket | None = None
    """For HTTP and WebSocket; closed by its maker, never shut down: the next daemon may inherit it."""
    tls: ssl.SSLContext | None = None
    facts: DaemonFacts
    redact: Redactors
    notify: Callable[[str], None] = lambda _state: None
    tell_event: Callable[[Event], None] = lambda _event: None
    """Logs each event; must neither block nor raise."""
    watchdog: float | None = None
    """Seconds between the service manager's expected signs of life."""
    place: StateUrl
    file: WatchedFile
    logins: LoginRuns
    unattended: bool = False
    """Whether it was started on demand, and ends when idle (`idle` of the configuration)."""
    children: Children = attrs.field(factory=Children)

    def opening(self, outbox: Outbox) -> Callable[..., OpenContext]:
        """Makes the context of a connection from its `server` and `events`."""
        return partial(OpenContext, outbox=outbox, children=self.children, logins=self.logins.logins)
