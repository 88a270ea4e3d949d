"""Which servers of clients mcpd has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from daemon.config.translation import translated
from daemon.setup.clients.found import FoundServer, Origin, read_entry
from daemon.setup.clients.same import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.setup.clients.programs import ClientPlace, ClientProgram, Machine


@attrs.frozen(kw_only=True)
class TakenOver:
    """The servers of mcpd's configuration."""

    servers: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Their entries, as written."""
    variables: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """What `${NAME}` stands for in them."""

    def lookup(
        self, program: ClientProgram, machine: Machine
    ) -> Callable[[ClientPlace, str, object], str | None]:
        """The name that a client's server has in mcpd, by its place, its name and its entry there.

        None if mcpd does not have it, or has it switched off while the client uses it.
        """
        there = dict[tuple[object, ...], tuple[str, bool]]()
        for name, written in self.servers.items():
            if isinstance(written, dict):
                entry = translated(written).entry
                there[identity(entry, self.variables)] = name, entry.get("enabled") is not False

        def known(place: ClientPlace, name: str, written: object) -> str | None:
            read = read_entry(Origin(program=program, place=place, name=name), written, machine)
            if not isinstance(read, FoundServer):
                return None
            ours, is_on = there.get(identity(read.entry, self.variables), (None, False))
            return ours if is_on or read.entry.get("enabled") is False else None

        return known
