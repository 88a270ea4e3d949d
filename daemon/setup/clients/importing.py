"""What is taken of the servers that were found: each once, under a name of its own, without its secrets."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs

from daemon.config.command_lines import completed
from daemon.config.names import slug
from daemon.config.parse import parse
from daemon.config.redaction import secrets_of
from daemon.config.translation import translated
from daemon.errors import ConfigError
from daemon.setup.clients.found import LeftServer
from daemon.setup.clients.identity import identities, identity, same_as
from daemon.setup.moved_secrets import Variables, is_read_by_programs, refer, references, with_references

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from daemon.config.command_lines import Advice
    from daemon.config.model import Server
    from daemon.config.translation import Note
    from daemon.setup.clients.found import ClientServers, FoundServer, Origin

_UNSET = "x"
"""What stands for a variable that is set nowhere while an entry is judged: too short to be a secret."""

_UNNAMED = "server"
"""What a server is called of whose name nothing can be kept."""


@attrs.frozen(kw_only=True)
class PlannedServer:
    """A server as mcpd would have it."""

    name: str
    """Its name in mcpd; of one that is there already, the name that it has there."""
    entry: Mapping[str, Any]
    """Its entry, with references in place of secrets; of one that is there already, whether it is enabled."""
    origins: tuple[Origin, ...]
    """Where it was found; all of them start the same."""
    secrets: tuple[str, ...] = ()
    """The variables that it needs and that are kept for it."""
    missing: tuple[str, ...] = ()
    """Those that are set nowhere: until they are, it is not started."""
    notes: tuple[Note, ...] = ()
    """What its clients say in another way, or what has no meaning here."""
    known: tuple[Advice, ...] = ()
    """What its entry says because it is known of such a server."""
    beside: str | None = None
    """The server of the same name that starts something else: another version, or another token."""
    is_there: bool = False
    """Whether mcpd has it already."""


@attrs.frozen(kw_only=True)
class ImportPlan:
    """What would be added to mcpd's configuration."""

    servers: tuple[PlannedServer, ...]
    """Each different server once, in the order in which they were found."""
    left: tuple[LeftServer, ...]
    """Entries that cannot be taken, and why."""
    variables: Mapping[str, str] = attrs.field(repr=False)
    """What is to be written to the file `env`."""

    @property
    def added(self) -> tuple[PlannedServer, ...]:
        """The servers that mcpd does not have yet."""
        return tuple(server for server in self.servers if not server.is_there)


def plan(
    findings: ClientServers,
    *,
    written: Mapping[str, Any],
    kept: Mapping[str, str],
    environ: Mapping[str, str],
    source: Path,
) -> ImportPlan:
    """What would be taken of these findings. Reads the files that entries refer to, and writes nothing.

    Args:
        findings: what clients have.
        written: the servers of mcpd's configuration.
        kept: the variables of the file `env` beside it.
        environ: the environment, which counts more.
        source: the configuration, from whose directory relative paths start.
    """
    planning = _Planning(written, Variables(known={**kept, **environ}), environ, source)
    same: dict[tuple[object, ...], list[FoundServer]] = {}
    for server in findings.servers:
        same.setdefault(identity(server.entry, planning.variables.known), []).append(server)
    for servers in same.values():
        planning.take(servers)
    return ImportPlan(
        servers=tuple(planning.servers),
        left=(*findings.left, *planning.left),
        variables=planning.variables.kept,
    )


class _Planning:
    """A plan that is being made."""

    def __init__(
        self, written: Mapping[str, Any], variables: Variables, environ: Mapping[str, str], source: Path
    ) -> None:
        self.servers: list[PlannedServer] = []
        self.left: list[LeftServer] = []
        self.variables = variables
        self._environ = environ
        self._source = source
        self._names: set[str] = set(written)
        self._there = {
            key: (name, taken.get("enabled") is not False)
            for name, taken in (
                (name, translated(entry).entry) for name, entry in written.items() if isinstance(entry, dict)
            )
            for key in identities(taken, variables.known)
        }
        self._planned: dict[tuple[object, ...], int] = {}
        """Where in `servers` each stands."""

    def missing(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        """The variables that an entry needs and that are set nowhere."""
        return tuple(each for each in references(entry) if each not in self.variables.known)

    def take(self, servers: Sequence[FoundServer]) -> None:
        """Take over servers that are the same one."""
        origins = tuple(server.origin for server in servers)
        # What a client has in one directory alone is divided, unless somebody has the same everywhere.
        ordered = sorted(servers, key=lambda server: server.origin.place.scope == "local")
        first = next((server for server in ordered if server.entry.get("enabled") is not False), ordered[0])
        key = identity(first.entry, self.variables.known)
        if (there := same_as(first.entry, self._there, self.variables.known)) is not None:
            name, is_on = there
            entry = {"enabled": is_on}
            self.servers.append(PlannedServer(name=name, entry=entry, origins=origins, is_there=True))
            return
        if (at := self._planned.get(key)) is not None:
            planned = self.servers[at]
            self.servers[at] = attrs.evolve(planned, origins=(*planned.origins, *origins))
            return
        # What most clients call it; of several the first.
        title = Counter(origin.name for origin in origins).most_common(1)[0][0]
        wanted = slug(title) or _UNNAMED
        name = slug(wanted, self._names) or _UNNAMED
        try:
            server = self._as_read(name, first.entry)
            entry = with_references(first.entry, name, secrets_of(server)[0], self.variables)
        except ConfigError as error:
            why = f"cannot be used: {'; '.join(fault.message for fault in error.faults)}"
            self.left += [LeftServer(origin=origin, why=why) for origin in origins]
        except ValueError as error:
            self.left += [LeftServer(origin=origin, why=f"cannot be used: {error}") for origin in origins]
        else:
            self._names.add(name)
            self._planned[key] = len(self.servers)
            notes = tuple(dict.fromkeys(note for each in servers for note in each.notes))
            entry, known = completed(entry, server)
            planned = self._server_of(name, title, entry, origins, notes)
            self.servers.append(attrs.evolve(planned, known=known))

    def _server_of(
        self,
        name: str,
        title: str,
        entry: dict[str, Any],
        origins: tuple[Origin, ...],
        notes: tuple[Note, ...],
    ) -> PlannedServer:
        missing = self.missing(entry)
        for each in references(entry):
            # A service does not have what is exported in this shell.
            if each in self._environ and not is_read_by_programs(each):
                entry = refer(entry, each, self.variables.keep(name, each, self._environ[each]))
        needed = [each for each in references(entry) if not is_read_by_programs(each)]
        entry = {key: value for key, value in entry.items() if not _says_nothing(key, value)}
        wanted = slug(title) or _UNNAMED
        if title not in {name, wanted} and title.isprintable():
            entry.setdefault("title", title)
        return PlannedServer(
            name=name,
            entry=entry,
            origins=origins,
            secrets=tuple(each for each in needed if each not in missing),
            missing=missing,
            notes=notes,
            beside=wanted if name != wanted else None,
        )

    def _as_read(self, name: str, entry: Mapping[str, Any]) -> Server:
        """The server of an entry, whatever the variables stand for that are set nowhere.

        Raises:
            ConfigError: it has faults.
        """
        environ = {**dict.fromkeys(references(entry), _UNSET), **self.variables.known}
        text = json.dumps({"mcpServers": {name: {**entry, "enabled": True}}})
        return parse(text, source=str(self._source), environ=environ).mcp_servers[name]


def _says_nothing(key: str, value: object) -> bool:
    """Whether a client writes this only because it writes it of every server."""
    return value in ({}, []) or [key, value] in (["type", "stdio"], ["enabled", True])
