"""The front: the open connections of one door, each isolated from the faults of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from loguru import logger

from daemon.errors import RunError, leaf

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.clients.identity import Principal
    from daemon.wire.outbox import Link


class Runnable(Protocol):
    """Serves one connection: a client's session, or an operator's."""

    async def run(self) -> None:
        """Serve until the connection ends."""


R = TypeVar("R", bound=Runnable)


class Front(Generic[R]):
    """Serves each connection, and knows which are open."""

    def __init__(self, make: Callable[[Link, int, Principal], R]) -> None:
        """Start without connections; `make` makes what serves one, given its link, its number and who it is."""
        self.sessions: dict[int, R] = {}
        """The sessions of the open connections, by number."""
        self.count = 0
        """Connections so far."""
        self._make = make

    async def serve(self, link: Link, visitor: Principal) -> None:
        """Serve a connection until it ends, and contain its faults. Its door closes the link."""
        self.count += 1
        number = self.count
        try:
            session = self.sessions[number] = self._make(link, number, visitor)
            await session.run()
        except RunError as error:
            logger.bind(session=number).debug("ended: {}", error)
        except Exception as error:  # noqa: BLE001 - the boundary of each connection
            plain = leaf(error) if isinstance(error, BaseExceptionGroup) else error
            logger.bind(session=number).opt(exception=plain).error("a fault of mcpd's own ended a session")
        finally:
            self.sessions.pop(number, None)
