"""What is taken of the servers that were found: each once, under a name of its own, without its secrets."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from daemon.config.command_lines import completed, isolating, runners
from daemon.config.names import slug
from daemon.config.parse import parse
from daemon.config.redaction import secrets_of
from daemon.config.translation import translated
from daemon.errors import ConfigError
from daemon.setup.clients.found import FoundServer, LeftServer, Origin, read_entry
from daemon.setup.moved_secrets import Variables, is_read_by_programs, refer, references, with_references

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from daemon.config.command_lines import Advice
    from daemon.config.model import Server
    from daemon.config.translation import Note
    from daemon.setup.clients.found import ClientServers
    from daemon.setup.clients.programs import ClientPlace, ClientProgram, Known, Machine


_REFERENCE = re.compile(r"(\$\$\{)|\$\{:-([^}]*)\}|\$\{(?:env:)?([A-Za-z_]\w*)\}", re.ASCII)
T = TypeVar("T")

_UNASKED = frozenset({"-y", "--yes", "-q", "--quiet"})
"""Options of npx and others that change nothing for a server: it has nobody to ask."""

_NEWEST = "@latest"
"""What a package without a version is, too."""


@attrs.frozen(kw_only=True)
class ConfiguredServers:
    """The servers of mcpd's configuration."""

    servers: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Their entries, as written."""
    variables: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """What `${NAME}` stands for in them."""

    def lookup(self, program: ClientProgram, machine: Machine) -> Known:
        """Which of a client's servers mcpd has; one that cannot run counts only if it is off there, too."""
        there = dict[tuple[object, ...], tuple[str, bool]]()
        for name, written in self.servers.items():
            if isinstance(written, dict):
                entry = translated(written).entry
                runs = all(needed in self.variables for needed in references(entry))
                is_on = runs and entry.get("enabled") is not False
                there |= dict.fromkeys(_placed_identities(entry, self.variables), (name, is_on))

        def known(place: ClientPlace, name: str, written: object) -> str | None:
            read = read_entry(Origin(program=program, place=place, name=name), written, machine)
            if not isinstance(read, FoundServer):
                return None
            ours, is_on = _same_as(read.entry, there, self.variables) or (None, False)
            return ours if is_on or read.entry.get("enabled") is False else None

        return known


def _placed_identities(entry: Mapping[str, Any], variables: Mapping[str, str]) -> list[tuple[object, ...]]:
    """The identities of an entry for `_same_as`: in each directory, by the values of variables and by names."""
    kinds = identity(entry, None), identity(entry, variables)
    return [(where, kind) for where in entry.get("workspaces") or [None] for kind in kinds]


def _same_as(
    entry: Mapping[str, Any], there: Mapping[tuple[object, ...], T], variables: Mapping[str, str]
) -> T | None:
    """What is there for a client's entry, for all or in its directory; by names if variables are not set."""
    kinds = [identity(entry, variables)]
    if any(name not in variables for name in references(entry)):
        kinds.append(identity(entry, None))
    keys = [(where, kind) for kind in kinds for where in (None, *entry.get("workspaces", ()))]
    return next((there[key] for key in keys if key in there), None)


def identity(entry: Mapping[str, Any], variables: Mapping[str, str] | None) -> tuple[object, ...]:
    """What two entries have in common that start the same program in the same way, or reach the same address.

    Other versions, other arguments or their order, other tokens and other directories make another server.
    Limits, descriptions and switches do not. It holds secrets, so it is never to be shown.

    Args:
        entry: in mcpd's keys.
        variables: what `${NAME}` stands for. One that is not among them is equal to itself only, and to
            `${SERVER__NAME}`, under which mcpd keeps it; None: so is each.
    """
    url = entry.get("url")
    if isinstance(url, str) and not entry.get("command"):
        headers = {name.lower(): value for name, value in _resolved(entry.get("headers"), variables)}
        return ("url", _with_values(url, variables).rstrip("/"), frozenset(headers.items()))
    given = (word for word in map(str, entry.get("args") or ()) if word not in isolating())
    words = [str(entry.get("command", "")), *given]
    return (
        "command",
        tuple(_plain([_with_values(word, variables) for word in words])),
        frozenset(_resolved(entry.get("env"), variables)),
        _with_values(str(entry.get("cwd") or ""), variables),
        str(entry.get("envFile") or ""),
    )


def _resolved(members: object, variables: Mapping[str, str] | None) -> list[tuple[str, str]]:
    items = members.items() if isinstance(members, dict) else ()
    return [(str(name), _with_values(str(value), variables)) for name, value in items]


def _with_values(text: str, variables: Mapping[str, str] | None) -> str:
    def said(found: re.Match[str]) -> str:
        brace, plain, name = found.groups()
        if name is None:
            return "${" if brace else plain
        # No value can hold a NUL.
        unset = f"\0{name.rpartition('__')[2]}"
        return unset if variables is None else variables.get(name, unset)

    return _REFERENCE.sub(said, text)


def _plain(words: Sequence[str]) -> list[str]:
    """A command line without what only differs by who wrote it."""
    first, rest = words[0], [*words[1:]]
    if PurePath(first).name not in {runner.words[0] for runner in runners()}:
        return [*words]
    first = PurePath(first).name
    if first == "uv" and rest[:2] == ["tool", "run"]:
        first, rest = "uvx", rest[2:]
    while rest and rest[0] in _UNASKED:
        rest = rest[1:]
    return [first, *(word.removesuffix(_NEWEST) for word in rest[:1]), *rest[1:]]


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
            for key in _placed_identities(taken, variables.known)
        }
        self._planned: dict[tuple[object, ...], int] = {}
        """Where in `servers` each stands."""

    def missing(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        """The variables that an entry needs and that are set nowhere."""
        return tuple(each for each in references(entry) if each not in self.variables.known)

    def take(self, servers: Sequence[FoundServer]) -> None:
        """Take over servers that are the same one, as far as mcpd does not have it."""
        known = [(_same_as(server.entry, self._there, self.variables.known), server) for server in servers]
        for there in dict.fromkeys(each for each, _ in known if each is not None):
            origins = tuple(server.origin for each, server in known if each == there)
            name, is_on = there
            entry = {"enabled": is_on}
            self.servers.append(PlannedServer(name=name, entry=entry, origins=origins, is_there=True))
        if left := [server for each, server in known if each is None]:
            self._add(left)

    def _add(self, servers: Sequence[FoundServer]) -> None:
        origins = tuple(server.origin for server in servers)
        on = [server for server in servers if server.entry.get("enabled") is not False] or servers
        # What clients have in some directories alone is for these, unless somebody has the same everywhere.
        first = min(on, key=lambda server: "workspaces" in server.entry)
        where = [each for server in on for each in server.entry.get("workspaces", ())]
        taken = {**first.entry, **({"workspaces": where} if "workspaces" in first.entry else {})}
        key = identity(taken, self.variables.known)
        if (at := self._planned.get(key)) is not None:
            planned = self.servers[at]
            self.servers[at] = attrs.evolve(planned, origins=(*planned.origins, *origins))
            return
        # What most clients call it; of several the first.
        title = Counter(origin.name for origin in origins).most_common(1)[0][0]
        wanted = slug(title) or _UNNAMED
        name = slug(wanted, self._names) or _UNNAMED
        try:
            server = self._as_read(name, taken)
            entry = with_references(taken, name, secrets_of(server)[0], self.variables)
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
