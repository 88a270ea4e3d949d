"""The export, for whoever may ask: operators on their socket, Prometheus over TCP.

What is read on the event loop are numbers that are there already. The client library, and the memory of the
children, which stands in /proc, are a worker thread's business; the library is loaded when first needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import trio

from daemon.errors import InvalidArguments
from daemon.metrics.readings import read
from daemon.processes.effort import memory_by_mark

if TYPE_CHECKING:
    from daemon.metrics.readings import Reading, Sources

RENDERING = "daemon.metrics.rendering"
"""Has `render(reading)`."""

AT_ONCE = 1
"""Exports under way: a sweep of /proc takes a core for some milliseconds, and askers must not multiply that."""

OFF = (
    'metrics are off. Put `"metrics": {"enabled": true}` into the configuration and `mcpd reload`; with'
    ' `"listen": "127.0.0.1:9464"` beside it they are served over HTTP, too.'
)
"""What somebody is told who asks for them nevertheless."""


class Exporter:
    """Makes exports."""

    def __init__(self, sources: Sources) -> None:
        """Nothing is read, nor loaded, before somebody asks."""
        self._sources = sources
        self._limiter = trio.CapacityLimiter(AT_ONCE)

    async def text(self) -> str:
        """All metrics in the text format of Prometheus.

        Raises:
            InvalidArguments: the configuration has them off.
        """
        if not self._sources.catalog().config.metrics.enabled:
            raise InvalidArguments(OFF)
        async with self._limiter:
            # The limiter is ours for the thread, and held from before the reading: nobody is given old numbers.
            return await trio.to_thread.run_sync(_rendered, read(self._sources))

    async def answer(self) -> dict[str, str]:
        """The same, as the answer to an operator: `{"text": ...}`.

        Raises:
            InvalidArguments: as `text`.
        """
        return {"text": await self.text()}


def _rendered(reading: Reading) -> str:
    module: Any = importlib.import_module(RENDERING)
    text: str = module.render(reading.with_memory(memory_by_mark()))
    return text
