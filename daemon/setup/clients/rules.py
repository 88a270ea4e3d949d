"""The rules that a client has about tools by their names, as far as they are about servers that mcpd has.

Behind one entry for all servers, tools have other names: `mcp__memory__delete_entities` is
`mcp__mcpd__delete_entities`, or an argument of a meta-tool, and a rule about the former holds no more. So the
servers that rules are about keep their names, and are left out of that entry (`Installation.apart`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from daemon.config.client_keys import fold, keys_of_servers
from daemon.documents.files import DocumentError, look
from daemon.documents.formats import read_document
from daemon.setup.clients.file_plans import SCOPES, without_mcpd
from daemon.setup.clients.installing import NamedEntry, at, members

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from daemon.setup.clients.installing import Installation, Records
    from daemon.setup.clients.programs import ClientPlace, ClientProgram, Known, Machine, RulePlace

MOST_APART = 64
"""Servers that are left out of the entry for all: as many as `mcpd connect` may be told (`MAX_CHOSEN`)."""

SHOWN = 3
"""Rules that a sentence names: enough to see which are meant."""

_WILD = re.compile(r"[*?\[({.\\^$+]")
_BARE = re.compile(r"(?!mcp_)(?!.*__)[\w-]+")
"""The name of a tool, without that of a server."""
_KEY = re.compile(r"(\w+):")
_ONLY = frozenset({"enabledtools", "includetools"})
"""Lists of what alone is to be shown: an empty one says something, too."""


@attrs.frozen(kw_only=True)
class ToolRule:
    """What a client says about tools of servers."""

    text: str
    """As it is written: `mcp__memory__delete_entities`; of a key of a server's entry, its trail."""
    path: Path
    """The file."""
    servers: frozenset[str]
    """The servers that it is about, by mcpd's names."""
    allows: bool = False
    """Whether all that it does is to let calls through: without it the client asks."""


def held_rules(
    program: ClientProgram,
    machine: Machine,
    known: Known,
    ours: Collection[str],
    records: Records,
    scope: str = "user",
) -> tuple[frozenset[str], list[ToolRule]]:
    """The servers of a client that mcpd has, and the rules that would hold no more behind one entry for all.

    The servers go by mcpd's names.

    Args:
        program: the client.
        machine: where it looks for its files.
        known: which of the client's servers mcpd has.
        ours: the names of mcpd's servers: what denies one of these counts also where the client has no such
            server itself.
        records: what is kept of clients' files: mcpd may be there already.
        scope: one of `SCOPES`.

    Raises:
        ConfigError, DocumentError: a file cannot be read, so nobody knows what it forbids.
    """
    found = list(_members(program, machine, records))
    theirs = dict[str, set[str]]()
    for listed_in, member, entry in found:
        if listed_in.scope in SCOPES[scope] and (name := known(listed_in, member.name, entry)):
            theirs.setdefault(member.name, set()).add(name)
    own = frozenset[str]().union(*theirs.values())
    rules = [
        ToolRule(text=f"{member.name}.{key}", path=place.path, servers=frozenset(theirs[member.name]))
        for place, member, entry in found
        if member.name in theirs and isinstance(entry, dict)
        for key, value in entry.items()
        if (meant := keys_of_servers().get(fold(key)))
        and meant.rules
        and (value or (fold(key) in _ONLY and value == []))
    ]
    values = dict[Path, object]()
    for place in program.rules(machine):
        if place.path not in values:
            values[place.path] = _said(place)
        for text, allows in _written(place, values[place.path]):
            names = theirs.keys() if allows else theirs.keys() | set(ours)
            about = {name for name in names if any(_is_about(text, name, each) for each in place.called)}
            servers = frozenset(() if allows else about.intersection(ours))
            servers = servers.union(*(theirs[name] for name in about & theirs.keys()))
            if theirs and place.own and _BARE.fullmatch(text) and text not in place.own:
                servers = own.union(ours)
            if servers:
                rules.append(ToolRule(text=text, path=place.path, servers=servers, allows=allows))
    return own, list(dict.fromkeys(rules))


def keeping(
    wanted: Installation, theirs: Collection[str], rules: Collection[ToolRule], ours: Collection[str]
) -> Installation:
    """How mcpd is put into a client with rules, so that they go on to hold.

    Args:
        wanted: how it is to be put in.
        theirs: the client's servers that mcpd has (`held_rules`).
        rules: its rules.
        ours: the names of mcpd's servers.

    Raises:
        DocumentError: they cannot, in the way that is asked for.
    """
    if not rules or wanted.one_to_one:
        return wanted
    apart = frozenset[str]().union(*(rule.servers for rule in rules))
    if not apart.issuperset(ours) and len(apart) <= MOST_APART:
        return attrs.evolve(wanted, apart=apart)
    if wanted.keep or wanted.surface:
        how = "leave out --keep and --surface, so that its servers keep their names"
    elif not theirs:
        how = "mcpd would show it the tools of these servers under other names"
    else:
        return attrs.evolve(wanted, one_to_one=True)
    raise DocumentError(
        f"its own rules would hold no more ({listed(rules)}): {how}; or write them as `permissions` of a"
        " profile (docs/permissions.md), remove them there, and try again. Nothing was changed"
    )


def listed(rules: Collection[ToolRule]) -> str:
    """Some of these rules, as a sentence names them."""
    texts = list(dict.fromkeys(f"{rule.text} in {rule.path}" for rule in rules))
    more = f", and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return f"{', '.join(texts[:SHOWN])}{more}"


def _members(
    program: ClientProgram, machine: Machine, records: Records
) -> Iterator[tuple[ClientPlace, NamedEntry, object]]:
    """Every server that a client has, or would have without mcpd."""
    places = program.places(machine)
    for path in dict.fromkeys(place.path for place in places):
        here = [place for place in places if place.path == path]
        current = look(path).text()
        if current is None:
            continue
        base = without_mcpd(current, here, records.find(program.name, path)) or ""
        value = read_document(base, here[0].form, source=str(path)).value()
        for place in here:
            for member in members(value, place.trail, listed=place.listed):
                yield place, member, member.entry(value)


def _said(place: RulePlace) -> object:
    """What a file with rules says.

    Raises:
        ConfigError, DocumentError: it cannot be read.
    """
    text = look(place.path, foreign=True).text() or ""
    if place.path.suffix == ".md":
        return _front_matter(text)
    return read_document(text, place.form, source=str(place.path)).value()


def _front_matter(text: str) -> dict[str, list[str]]:
    """The lines at the head of a Markdown file, by the key that they belong to.

    Clients take text there that YAML does not, such as a description with a colon.
    """
    made, key = dict[str, list[str]](), ""
    head = text.partition("\n---")[0] if text.startswith("---") else ""
    for line in head.splitlines()[1:]:
        if found := _KEY.match(line):
            key = found[1]
        made.setdefault(key, []).append(line.strip())
    return made


def _written(place: RulePlace, said: object) -> Iterator[tuple[str, bool]]:
    """The patterns at a place of what a file says, each with whether it only allows."""
    values = [said]
    for step in place.trail:
        inner = (each for value in values for each in (_parts(value) if step == "*" else [at(value, (step,))]))
        values = list(inner)
    for value in values:
        if isinstance(value, dict):
            yield from ((str(key), place.allows or each in ("allow", True)) for key, each in value.items())
        else:
            texts = value if isinstance(value, list) else [value]
            yield from ((each, place.allows) for each in texts if isinstance(each, str))


def _parts(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _is_about(text: str, server: str, called: str) -> bool:
    """Whether a pattern of a client's may be about tools of a server.

    Args:
        text: the pattern: a name, a glob, or a regex with alternatives.
        server: the server's name.
        called: what the names of its tools begin with, the server's name as `{}`; `{}` alone: the pattern is
            the name of a server.
    """
    names = {server, re.sub(r"[^\w-]", "_", server, flags=re.ASCII)}
    if called == "{}":
        return text in names
    base = called.partition("{}")[0]
    for part in (each.strip("^$() ") for each in text.split("|")):
        # `Mcp(` is no beginning of a group.
        plain = len(base) if part.startswith(base) else 0
        head = part[:plain] + _WILD.split(part[plain:], maxsplit=1)[0]
        for stem in map(called.format, names):
            if stem in part or re.search(rf"{re.escape(stem.rstrip('_:,'))}(?![\w-])", part):
                return True
            # One for the tools of all servers is for those of mcpd, too.
            is_for_all = base.startswith(head) and not part[len(head) :].strip("*.")
            if head != part and stem.startswith(head) and not is_for_all:
                return True
    return False
