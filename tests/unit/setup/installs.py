"""mcpd put into the clients of a made-up machine and taken out again, as the commands do it."""

from collections.abc import Callable, Collection
from pathlib import Path

import attrs

from daemon.setup.clients.file_plans import FileChange, apply, install_plans, uninstall_plans
from daemon.setup.clients.installing import Installation, Records
from daemon.setup.clients.programs import PROGRAMS, ClientPlace, Machine

MCPD = Installation(command="/opt/bin/mcpd", args=("connect",))


class _Everything:
    """Every name."""

    def __contains__(self, name: object) -> bool:
        return True


EVERYTHING = _Everything()


def knows(names: Collection[str] | _Everything) -> Callable[[ClientPlace, str, object], str | None]:
    """An mcpd that has the servers of these names."""
    return lambda _place, name, _entry: name if name in names else None


@attrs.frozen
class Installs:
    """What is done to the clients of one machine."""

    machine: Machine

    @property
    def records(self) -> Records:
        """What is kept of it, outside the home directory."""
        return Records(self.machine.home.parent / "state")

    def install(
        self,
        client: str,
        known: Collection[str] | _Everything = EVERYTHING,
        wanted: Installation = MCPD,
        scope: str = "user",
    ) -> list[FileChange]:
        """`mcpd install`."""
        program, records = PROGRAMS[client], self.records
        plans = install_plans(program, self.machine, wanted, scope, knows(known), records)
        return apply(plans, client, records)

    def uninstall(self, client: str) -> list[FileChange]:
        """`mcpd uninstall`."""
        records = self.records
        plans = uninstall_plans(PROGRAMS[client], self.machine, records)
        return apply(plans, client, records)

    def files(self) -> dict[str, bytes]:
        """Everything in the home directory."""
        paths = (path for path in self.machine.home.rglob("*") if path.is_file())
        return {str(path.relative_to(self.machine.home)): path.read_bytes() for path in paths}

    def kept(self) -> list[Path]:
        """The files that are kept of it."""
        found = (self.machine.home.parent / "state" / "clients").rglob("*")
        return sorted(path for path in found if path.is_file() and path.name != "lock")
