"""What one instance lists: told to the catalog as its server's, and kept where it differs from the others."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import attrs
import msgspec

from daemon.catalog.snapshot import fold_all
from daemon.facts import DefinitionsListed
from daemon.protocol import CLIENT_CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.catalog.entry import ServerEntry
    from daemon.catalog.snapshot import Catalog
    from daemon.config.config_model import Server
    from daemon.facts import Fact
    from daemon.model import Kind


ROOTS: Mapping[str, object] = {"listChanged": True}
"""The capability to tell roots, as it is declared for a client that has declared none but has a workspace."""


def capabilities_of(server: Server) -> Mapping[str, object]:
    """The capabilities (MCP, `ClientCapabilities`) that a server is told.

    Those that some client may have; for an instance that one client has to itself, that client's. With a
    workspace there are roots, whoever the client is (`roots_of`).
    """
    instance = server.instance
    if instance is None or instance.capabilities is None:
        return CLIENT_CAPABILITIES
    # Only what mcpd can pass on: a client may declare more, and would never be asked.
    declared = {key: instance.capabilities[key] for key in CLIENT_CAPABILITIES if key in instance.capabilities}
    return declared if instance.workspace is None else {"roots": ROOTS, **declared}


def roots_of(server: Server) -> bytes | None:
    """What an instance is answered that asks for roots and whose client has none; None without a workspace."""
    if server.instance is None or server.instance.workspace is None:
        return None
    directory = PurePosixPath(server.instance.workspace)
    return msgspec.json.encode({"roots": [{"uri": directory.as_uri(), "name": directory.name}]})


class OwnLists:
    """The lists of one instance: where its actor tells its facts."""

    def __init__(self, server: str, tell: Callable[[Fact], None], run: Callable[[], int]) -> None:
        """Begin with an instance that has listed nothing.

        Args:
            server: the name of its server.
            tell: leaves a fact with the registry, as long as the instance speaks for its server.
            run: returns the number of the server's newest run: what an instance lists now counts now.
        """
        self._server = server
        self._tell = tell
        self._run = run
        self._is_gone = False
        self._kept: dict[Kind, DefinitionsListed] = {}
        self._seen: tuple[Catalog, Catalog] | None = None
        self._alike: object = None
        """The lists of an entry in the catalog that says the same."""

    def tell(self, fact: Fact) -> None:
        """Leave a fact with the registry, as one of the server."""
        if self._is_gone:
            return
        if isinstance(fact, DefinitionsListed):
            if not fact.problem:
                self._kept[fact.kind] = fact
                self._seen = self._alike = None
            fact = attrs.evolve(fact, incarnation=self._run())
        self._tell(fact)

    def forget(self) -> None:
        """Keep and tell nothing any more: the instance is gone."""
        self._is_gone = True
        self._kept, self._seen, self._alike = {}, None, None

    def own_catalog(self, catalog: Catalog) -> Catalog:
        """The catalog with what this instance lists (`ports.Upstream.own_catalog`)."""
        entry = catalog.servers.get(self._server)
        if not self._kept or entry is None:
            return catalog
        if self._alike is entry.lists:
            # Catalogs are made anew with every status of any server.
            return catalog
        if self._seen is None or self._seen[0] is not catalog:
            self._seen = catalog, self._folded(catalog, entry)
        return self._seen[1]

    def _folded(self, catalog: Catalog, entry: ServerEntry) -> Catalog:
        facts = [attrs.evolve(fact, incarnation=entry.first_run) for fact in self._kept.values()]
        own = fold_all(catalog, facts)
        if own.servers[self._server].epoch != entry.epoch:
            return own
        # What it says of itself may differ: nothing is called by that.
        self._alike = entry.lists
        return catalog
