"""What a daemon is given from outside: sockets, files, the service manager, its child processes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from daemon.processes.children import Children
from daemon.upstreams.transports.connection import OpenContext

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
    """What the daemon is given from outside: sockets, files, the service manager, its processes."""

    front: socket.socket
    """Where clients connect: listening, non-blocking."""
    control: socket.socket
    """Where operators connect: listening, non-blocking."""
    http: socket.socket | None = None
    """Where HTTP and WebSocket are served: listening, non-blocking; None: nowhere. Its maker closes it, and it
    is never shut down: it may be the service manager's, who hands it to the next daemon, too."""
    tls: ssl.SSLContext | None = None
    """The certificate of HTTP; None: without TLS."""
    facts: DaemonFacts
    """Facts about the daemon for reports."""
    redact: Redactors
    """Takes secrets out of what is shown."""
    notify: Callable[[str], None] = lambda _state: None
    """Tells the service manager."""
    tell_event: Callable[[Event], None] = lambda _event: None
    """Takes each event for the daemon's log; must neither block nor raise."""
    watchdog: float | None = None
    """Seconds within which the service manager expects a sign of life; None: it expects none."""
    place: StateUrl
    """Where the state is stored."""
    file: WatchedFile
    """The configuration's file."""
    logins: LoginRuns
    """The logins at servers, those under way included."""
    unattended: bool = False
    """Whether it was started by itself, and ends when it is not used (`idle` of the configuration)."""
    children: Children = attrs.field(factory=Children)
    """The daemon's child processes."""

    def opening(self, outbox: Outbox) -> Callable[..., OpenContext]:
        """What makes the context of a connection, of its `server` and `events`."""
        return partial(OpenContext, outbox=outbox, children=self.children, logins=self.logins.logins)
