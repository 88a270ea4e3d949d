"""The exposition: metrics over HTTP on the loopback address that `metrics.listen` names, if it names one.

It follows the configuration from one reload to the next. An address that cannot be bound is tried again, and
the daemon serves clients meanwhile. What is served there, and to whom, is in `clients.doors.http.metrics`.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.config.listen import is_loopback, split_authority
from daemon.errors import leaf
from daemon.kit.later import later
from daemon.kit.mailbox import Watch

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from daemon.catalog.snapshot import Catalog
    from daemon.clients.doors.http.binding import address_of, listen_at
    from daemon.clients.doors.http.metrics import MetricsDoor
    from daemon.config.model import Metrics
    from daemon.host.notify import Readiness
    from daemon.wire.outbox import Outbox
else:  # 15 ms, needed only where HTTP is served
    address_of = later("daemon.clients.doors.http.binding", "address_of")
    listen_at = later("daemon.clients.doors.http.binding", "listen_at")
    MetricsDoor = later("daemon.clients.doors.http.metrics", "MetricsDoor")

RETRY_SECONDS = 30.0
"""Seconds between attempts to bind an address that is taken."""


class Exposition:
    """Opens the door of metrics while the configuration asks for it."""

    def __init__(
        self,
        catalog: Watch[Catalog],
        export: Callable[[], Awaitable[str]],
        *,
        readiness: Callable[[], Readiness],
        outbox: Outbox,
    ) -> None:
        """Start with nothing opened.

        Args:
            catalog: the newest catalog, for its configuration.
            export: makes the text.
            readiness: whether the daemon takes new clients.
            outbox: the daemon's outbox.
        """
        self.address: Watch[tuple[str, int] | None] = Watch(None)
        """The address it listens on; None while it does not."""
        self._catalog = catalog
        self._door = partial(MetricsDoor, export=export, readiness=readiness, outbox=outbox)

    async def run(self) -> None:
        """Serve as the current configuration says, until cancelled."""
        while True:
            metrics = self._catalog.value.config.metrics
            async with trio.open_nursery() as nursery:
                if metrics.enabled and metrics.listen is not None:
                    nursery.start_soon(self._keep_open, metrics.listen)
                await self._catalog.wait_until(partial(_differs, metrics))
                nursery.cancel_scope.cancel()

    async def _keep_open(self, listen: str) -> None:
        told = ""
        while True:
            problem = await self._open(listen)
            # Once for each reason: a line twice a minute for days would hide other lines.
            if problem != told:
                logger.warning(
                    "metrics are not served on {}: {}. Tried again every {:g} s; metrics.listen in the"
                    " configuration names another address",
                    listen,
                    problem,
                    RETRY_SECONDS,
                )
            told = problem
            await trio.sleep(RETRY_SECONDS)

    async def _open(self, listen: str) -> str:
        """Serve until that fails; return why."""
        try:
            with closing(_bound(listen)) as listener:
                self.address.set(listener.getsockname()[:2])
                logger.info("metrics: http://{}/metrics", address_of(listener))
                await self._door(listener).run()
        except OSError as error:
            return error.strerror or str(error)
        except Exception as error:  # noqa: BLE001 - the boundary: clients are served without metrics
            plain = leaf(error) if isinstance(error, BaseExceptionGroup) else error
            logger.opt(exception=plain).error("a fault of mcpd's own while serving metrics")
            return f"mcpd's own fault: {type(plain).__name__}"
        finally:
            self.address.set(None)


def _bound(listen: str) -> socket.socket:
    """A socket that listens on an address.

    Raises:
        OSError: the address cannot be bound.
        ValueError: it is not HOST:PORT on loopback, which the configuration's reader refuses already.
    """
    host, _port = split_authority(listen)
    if host is None or not is_loopback(host):
        raise ValueError(f"{listen!r} is not HOST:PORT on a loopback address")
    return listen_at(listen)


def _differs(metrics: Metrics, catalog: Catalog) -> bool:
    return catalog.config.metrics != metrics
