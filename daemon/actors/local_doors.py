"""Doors on loopback that open on demand: metrics at `metrics.listen`, and the console if HTTP is off.

If mcpd cannot bind an address, it tries again later, and serves its clients meanwhile.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

import attrs
import trio
from loguru import logger

from daemon.config.listen import is_loopback, split_authority
from daemon.errors import leaf
from daemon.kit.later import later
from daemon.kit.waiting import Watch, serve_wanted

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from daemon.clients.doors.http.asgi import WebApplication
    from daemon.clients.doors.http.binding import address_of, listen_at
    from daemon.clients.doors.http.local import console_door, metrics_door
    from daemon.config.config_model import Config
    from daemon.host.notify import Readiness
    from daemon.wire.outbox import Outbox
else:  # 15 ms, needed only where HTTP is served
    address_of = later("daemon.clients.doors.http.binding", "address_of")
    listen_at = later("daemon.clients.doors.http.binding", "listen_at")
    console_door = later("daemon.clients.doors.http.local", "console_door")
    metrics_door = later("daemon.clients.doors.http.local", "metrics_door")


ADDRESS = "127.0.0.1:0"
"""Loopback, with any free port."""


@attrs.define(eq=False, repr=False)
class ConsoleOpening:
    """Serves the console on a separate port, from the console's first use on."""

    _console: Callable[[], WebApplication]
    _outbox: Outbox
    _vet: Callable[[socket.socket], Awaitable[bool]] | None = None
    """Vets the process at a connection's other end."""
    _wanted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _tried: trio.Event = attrs.field(factory=trio.Event, init=False)
    _address: str = attrs.field(default="", init=False)
    _problem: OSError | None = attrs.field(default=None, init=False)

    async def address(self) -> str:
        """Have the console served, and return its address, as `http://127.0.0.1:43210`; raises `OSError`."""
        self._wanted.set()
        await self._tried.wait()
        if self._problem is not None:
            raise self._problem
        return self._address

    async def run(self) -> None:
        """Wait for the first use, then serve until cancelled."""
        while True:
            await self._wanted.wait()
            try:
                with closing(await trio.to_thread.run_sync(listen_at, ADDRESS)) as listener:
                    self._address, self._problem = f"http://{address_of(listener)}", None
                    self._tried.set()
                    logger.info("console: served on {}", self._address)
                    door = console_door(listener, self._console(), outbox=self._outbox, vet=self._vet)
                    await door.run()
            except OSError as error:  # Tried again when somebody asks again.
                self._tried.set()
                self._problem, self._wanted, self._tried = error, trio.Event(), trio.Event()


RETRY_SECONDS = 30.0
"""Seconds between attempts to bind an address that is in use."""


@attrs.define(eq=False, repr=False)
class Exposition:
    """Opens the door for metrics while the configuration asks for it."""

    _config: Watch[Config]
    _export: Callable[[], Awaitable[str]]
    _readiness: Callable[[], Readiness] = attrs.field(kw_only=True)
    _outbox: Outbox = attrs.field(kw_only=True)
    address: Watch[tuple[str, int] | None] = attrs.field(factory=lambda: Watch(None), init=False)

    async def run(self) -> NoReturn:
        """Serve as the current configuration says, until cancelled."""
        await serve_wanted(self._config, _wanted, self._keep_open)

    async def _keep_open(self, listen: str) -> None:
        told = ""
        while True:
            problem = await self._open(listen)
            # Once for each reason: a line twice a minute for days would hide other lines.
            if problem != told:
                logger.warning(
                    "cannot serve metrics on {}: {}. mcpd retries every {:g} s; to choose another address, set"
                    " metrics.listen in the configuration",
                    listen,
                    problem,
                    RETRY_SECONDS,
                )
            told = problem
            await trio.sleep(RETRY_SECONDS)

    async def _open(self, listen: str) -> str:
        try:
            with closing(_bound(listen)) as listener:
                self.address.set(listener.getsockname()[:2])
                logger.info("metrics: http://{}/metrics", address_of(listener))
                door = metrics_door(listener, self._export, readiness=self._readiness, outbox=self._outbox)
                await door.run()
        except OSError as error:
            return error.strerror or str(error)
        except Exception as error:  # noqa: BLE001 - the boundary: clients are served without metrics
            plain = leaf(error)
            logger.opt(exception=plain).error("internal error in mcpd while serving metrics")
            return f"internal error in mcpd: {type(plain).__name__}"
        finally:
            self.address.set(None)


def _bound(listen: str) -> socket.socket:
    host, _port = split_authority(listen)
    if host is None or not is_loopback(host):
        raise ValueError(f"{listen!r} is not HOST:PORT on a loopback address")
    return listen_at(listen)


def _wanted(config: Config) -> str | None:
    return config.metrics.listen if config.metrics.enabled else None
