"""Lists of prompts, resources and templates as clients are given them, each written once for all clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.catalog.offer import MAX_OFFERS
from daemon.kit.latest import keep_latest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.offer import OfferedDefinition
    from daemon.model import Kind
    from daemon.surfaces.base import View

MAX_LISTINGS = 3 * MAX_OFFERS
"""Most lists that are kept: of three kinds, for as many offers as are kept."""


class Listings:
    """What the present offers of profiles are as lists: thousands of clients may be compared with one."""

    def __init__(self) -> None:
        """Begin without any."""
        self._made: dict[
            tuple[str, tuple[str, ...], Kind], tuple[Mapping[str, OfferedDefinition], tuple[bytes, ...]]
        ] = {}

    def of(self, view: View, kind: Kind) -> tuple[bytes, ...]:
        """A list of a view, each a raw JSON object; the same tuple as long as nothing in it changes."""
        key, offered = (view.profile.name, view.catalog.chosen, kind), view.offer.definitions(kind)
        made = self._made.get(key)
        if made is not None and made[0] is offered:
            return made[1]
        listing = tuple(each.listed() for each in offered.values())
        if made is not None and made[1] == listing:
            listing = made[1]
        keep_latest(self._made, key, (offered, listing), MAX_LISTINGS)
        return listing
