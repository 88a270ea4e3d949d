"""Opens the console's own listener, on loopback, when somebody first asks for it and HTTP is not served."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.kit.later import later

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from daemon.clients.doors.http.asgi import WebApplication
    from daemon.clients.doors.http.binding import address_of, listen_at
    from daemon.clients.doors.http.console import ConsoleDoor
    from daemon.wire.outbox import Outbox
else:  # 15 ms, needed only where HTTP is served
    address_of = later("daemon.clients.doors.http.binding", "address_of")
    listen_at = later("daemon.clients.doors.http.binding", "listen_at")
    ConsoleDoor = later("daemon.clients.doors.http.console", "ConsoleDoor")

ADDRESS = "127.0.0.1:0"
"""Loopback, with any port that is free."""


class ConsoleOpening:
    """Serves the console on a port of its own from the first time that somebody asks."""

    def __init__(
        self,
        console: Callable[[], WebApplication],
        outbox: Outbox,
        vet: Callable[[socket.socket], Awaitable[bool]] | None = None,
    ) -> None:
        """Start with nothing opened.

        Args:
            console: makes what serves the pages.
            outbox: the daemon's outbox.
            vet: says whether the process at the other end of a connection may come in; None: any.
        """
        self._console = console
        self._outbox = outbox
        self._vet = vet
        self._wanted = trio.Event()
        self._tried = trio.Event()
        self._address = ""
        self._problem: OSError | None = None

    async def address(self) -> str:
        """Have it served; returns where, as in `http://127.0.0.1:43210`.

        Raises:
            OSError: no socket can be opened.
        """
        self._wanted.set()
        await self._tried.wait()
        if self._problem is not None:
            raise self._problem
        return self._address

    async def run(self) -> None:
        """Wait until it is wanted, then serve until cancelled."""
        while True:
            await self._wanted.wait()
            try:
                with closing(await trio.to_thread.run_sync(listen_at, ADDRESS)) as listener:
                    self._address, self._problem = f"http://{address_of(listener)}", None
                    self._tried.set()
                    logger.info("console: served on {}", self._address)
                    door = ConsoleDoor(listener, self._console(), outbox=self._outbox, vet=self._vet)
                    await door.run()
            except OSError as error:  # Tried again when somebody asks again.
                self._problem, self._wanted = error, trio.Event()
                self._tried.set()
