"""Which servers are the same, however each client writes them, and which of a client's mcpd has."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from daemon.config.command_lines import isolating, runners
from daemon.config.translation import translated
from daemon.setup.clients.found import FoundServer, Origin, read_entry
from daemon.setup.moved_secrets import references

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
                there |= dict.fromkeys(identities(entry, self.variables), (name, is_on))

        def known(place: ClientPlace, name: str, written: object) -> str | None:
            read = read_entry(Origin(program=program, place=place, name=name), written, machine)
            if not isinstance(read, FoundServer):
                return None
            ours, is_on = same_as(read.entry, there, self.variables) or (None, False)
            return ours if is_on or read.entry.get("enabled") is False else None

        return known


def identities(entry: Mapping[str, Any], variables: Mapping[str, str]) -> list[tuple[object, ...]]:
    """The identities of an entry: by the values of its variables, and by their names, for `same_as`."""
    return [identity(entry, None), identity(entry, variables)]


def same_as(
    entry: Mapping[str, Any], there: Mapping[tuple[object, ...], T], variables: Mapping[str, str]
) -> T | None:
    """What is there for an entry, by `identities`; one with variables that are not set goes by their names."""
    found = there.get(identity(entry, variables))
    if found is None and any(name not in variables for name in references(entry)):
        found = there.get(identity(entry, None))
    return found


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
