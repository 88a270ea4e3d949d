"""One server in a client's file: where it stands there, whether the servers are an object or a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.documents.edited import Trail
    from daemon.documents.formats import Document

_NAME = "name"
"""The key of an item of a list that is a server's name."""


@attrs.frozen
class NamedEntry:
    """A server of a file, by its name."""

    trail: tuple[str, ...]
    """Where the servers stand, as in `ClientPlace`."""
    name: str
    listed: bool = False
    """Whether they are a list whose items have a `name`, as in `ClientPlace`."""

    def entry(self, value: object) -> object:
        """Its entry in the value of a file; None if it has none."""
        place = self.place(value)
        return None if place is None else at(value, place)

    def place(self, value: object) -> Trail | None:
        """The trail to its entry in the value of a file; None if it has none."""
        servers = at(value, self.trail)
        if isinstance(servers, list):
            named = (index for index, item in enumerate(servers) if _named(item) == self.name)
            index = next(named, None)
            return None if index is None else (*self.trail, index)
        return (*self.trail, self.name) if isinstance(servers, dict) and self.name in servers else None

    def put(self, document: Document, entry: Mapping[str, Any]) -> None:
        """Set its entry, which replaces one that is there.

        Raises:
            DocumentError: something on the way to it is no object.
        """
        value = document.value()
        written = {_NAME: self.name, **entry} if self.listed else dict(entry)
        place = self.place(value)
        if place is not None:
            document.put(place, written)
        elif not self.listed:
            document.put((*self.trail, self.name), written)
        elif isinstance(servers := at(value, self.trail), list) and servers:
            document.put((*self.trail, len(servers)), written)
        else:
            document.put(self.trail, [written])

    def remove(self, document: Document) -> None:
        """Remove its entry; nothing if there is none."""
        place = self.place(document.value())
        if place is not None:
            document.remove(place)


def members(value: object, trail: tuple[str, ...], *, listed: bool) -> list[NamedEntry]:
    """The servers at a place of a file."""
    servers = at(value, trail)
    names = [_named(item) for item in servers] if isinstance(servers, list) else servers
    # What is neither holds no servers, whatever it is.
    found = names if isinstance(names, dict | list) else ()
    return [NamedEntry(trail, name, listed) for name in found if isinstance(name, str)]


def at(value: object, trail: Trail) -> object:
    """What stands at a trail of a value; None if nothing does."""
    for step in trail:
        match value, step:
            case dict(), _:
                value = value.get(step)
            case list(), int() if step < len(value):
                value = value[step]
            case _:
                return None
    return value


def _named(item: object) -> str | None:
    name = item.get(_NAME) if isinstance(item, dict) else None
    return name if isinstance(name, str) else None
