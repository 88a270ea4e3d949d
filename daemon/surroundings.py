"""The daemon's inputs: sockets, files, the service manager, its child processes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from daemon.processes.children import Children
from daemon.upstreams.transports.opening import OpenContext

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
    """Listening, non-blocking; for clients."""
    control: socket.socket
    """Listening, non-blocking; for operators."""
    http: socket.socket | None = None
    """Listening, non-blocking; for HTTP and WebSocket, if served.

    Its maker closes it. It is never shut down, since the service manager may pass it to the next daemon.
    """
    tls: ssl.SSLContext | None = None
    """The certificate of HTTP; None: no TLS."""
    facts: DaemonFacts
    """For reports."""
    redact: Redactors
    """Removes secrets from output."""
    notify: Callable[[str], None] = lambda _state: None
    """Notifies the service manager."""
    tell_event: Callable[[Event], None] = lambda _event: None
    """Logs each event; must neither block nor raise."""
    watchdog: float | None = None
    """Seconds between the service manager's expected signs of life."""
    place: StateUrl
    """The place of the state."""
    file: WatchedFile
    """The configuration's file."""
    logins: LoginRuns
    """All logins, running ones included."""
    unattended: bool = False
    """Whether it was started on demand, and ends when idle (`idle` of the configuration)."""
    children: Children = attrs.field(factory=Children)

    def opening(self, outbox: Outbox) -> Callable[..., OpenContext]:
        """Makes the context of a connection from its `server` and `events`."""
        return partial(OpenContext, outbox=outbox, children=self.children, logins=self.logins.logins)
