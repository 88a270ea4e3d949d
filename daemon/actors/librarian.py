"""The librarian: updates the search index, and then its vectors, from the catalog in a worker thread."""

from __future__ import annotations

import trio
from loguru import logger

from daemon.catalog.snapshot import Catalog
from daemon.config.config_model import Search
from daemon.kit.waiting import Watch
from daemon.search.index import Index
from daemon.search.vectors import SemanticUnavailable, Vectors, open_encoder


class Librarian:
    """Keeps an index of the catalog's tools."""

    def __init__(self, catalog: Watch[Catalog], search: Search) -> None:
        self.index = Watch(Index())
        self._catalog = catalog
        self._search = search
        self._vectors: Vectors | None = None

    async def run(self) -> None:
        """Follow the catalog until cancelled. After an internal error, searches lack only the newest tools."""
        async with trio.open_nursery() as nursery:
            if self._search.semantic:
                nursery.start_soon(self._follow_with_vectors)
            while True:
                catalog = self._catalog.value
                if not self.index.value.covers(catalog.servers):
                    await self._follow(catalog)
                await self._catalog.wait_changed(catalog)

    async def _follow(self, catalog: Catalog) -> None:
        try:
            index = await trio.to_thread.run_sync(self.index.value.updated, catalog.servers)
        except Exception:  # noqa: BLE001 - the boundary: tools can be listed and called without an index
            logger.exception("internal error in mcpd while indexing tools for the search")
        else:
            self._publish(index)

    async def _follow_with_vectors(self) -> None:
        try:
            vectors = Vectors(await trio.to_thread.run_sync(open_encoder, self._search.model))
            while True:
                catalog = self._catalog.value
                vectors = self._vectors = await trio.to_thread.run_sync(vectors.updated, catalog.servers)
                self._publish(self.index.value)
                await self._catalog.wait_changed(catalog)
        except SemanticUnavailable as error:
            logger.warning("semantic search is off, tools are found by words only: {}", error)
        except Exception:  # noqa: BLE001 - the boundary, as above
            logger.exception("internal error in mcpd while encoding tools: tools are found by words only")

    def _publish(self, index: Index) -> None:
        self.index.set(index if self._vectors is None else index.with_vectors(self._vectors))
