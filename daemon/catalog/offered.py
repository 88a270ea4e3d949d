"""Prompts, resources and templates as a profile offers them, by the names that clients use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import msgspec
from msgspec import Raw

from daemon.catalog.kinds import LISTS
from daemon.catalog.lazy import Lazily
from daemon.model import Kind
from daemon.safety.legible import legible_definition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from daemon.catalog.snapshot import Catalog
    from daemon.model import Definition

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


@attrs.frozen(kw_only=True, eq=False)
class OfferedDefinition:
    """One prompt, resource or template as a profile shows it."""

    definition: Definition = attrs.field(repr=False)
    """It as its server described it."""
    name: str
    """The name or URI by which clients ask for it."""

    def listed(self) -> bytes:
        """Its object for the list: the server's own bytes, unless it has another name or hides characters."""
        shown = legible_definition(self.definition.raw)
        if self.name == self.definition.name:
            return shown
        return msgspec.json.encode({**_decode_members(shown), LISTS[self.definition.kind].key: self.name})


def offered(catalog: Catalog, servers: Collection[str], kind: Kind) -> Mapping[str, OfferedDefinition]:
    """What a profile offers of one kind, by the name or URI that clients use.

    Args:
        catalog: the present catalog.
        servers: the servers whose definitions of this kind the profile shows.
        kind: which kind, but tools.

    Returns:
        Those of each server in its order, and the servers in the configuration's.
    """
    given = (catalog.prompt_names if kind is Kind.PROMPT else catalog.uris).given
    found = {
        given.get((server, own), own): definition
        for server, definitions in catalog.lists[kind].items()
        if server in servers
        for own, definition in definitions.items()
    }
    return Lazily(found, lambda name: OfferedDefinition(definition=found[name], name=name))
