"""Finds clients' rules about tools that one shared entry for mcpd would break (`Installation.apart`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import attrs

from daemon.config.client_keys import fold, keys_of_servers
from daemon.documents.edited import value_at
from daemon.documents.files import DocumentError, look
from daemon.documents.formats import read_document
from daemon.setup.clients.file_plans import SCOPES, without_mcpd
from daemon.setup.clients.installing import Installation, NamedEntry, Records, members
from daemon.setup.clients.programs import ClientPlace, ClientProgram, Known, Machine, RulePlace

MOST_APART = 64
"""Servers with their own entries: as many as `mcpd connect` accepts (`MAX_CHOSEN`)."""

SHOWN = 3
"""Rules named in a sentence."""

_WILD = re.compile(r"[*?\[({.\\^$+]")
_BARE = re.compile(r"(?!mcp_)(?!.*__)[\w-]+")
_KEY = re.compile(r"(\w+):")
_ONLY = frozenset({"enabledtools", "includetools"})
"""Lists of allowed tools, which have an effect even when empty."""


@attrs.frozen(kw_only=True)
class ToolRule:
    """A client's rule about tools of servers."""

    text: str
    """The rule as written, `mcp__memory__delete_entities`; for a key of an entry, its trail."""
    path: Path
    servers: frozenset[str]
    """The servers by mcpd's names."""
    allows: bool = False
    """Whether the rule only spares the user a question."""


def held_rules(
    program: ClientProgram,
    machine: Machine,
    known: Known,
    ours: Collection[str],
    records: Records,
    scope: str = "user",
) -> tuple[frozenset[str], list[ToolRule]]:
    """The client's servers that mcpd has, and the rules that one shared entry would break.

    A rule that denies a server in `ours` always counts. Raises ConfigError and DocumentError.
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
            values[place.path] = _content(place)
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
    """Change an installation so that the client's rules still apply. Raises DocumentError."""
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
        f"its own rules would no longer apply ({listed(rules)}): {how}; or write them as `permissions` of a"
        " profile (docs/permissions.md), remove them there, and try again. Nothing was changed"
    )


def listed(rules: Collection[ToolRule]) -> str:
    """Name the rules, as a part of a sentence."""
    texts = list(dict.fromkeys(f"{rule.text} in {rule.path}" for rule in rules))
    more = f", and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return f"{', '.join(texts[:SHOWN])}{more}"


def _members(
    program: ClientProgram, machine: Machine, records: Records
) -> Iterator[tuple[ClientPlace, NamedEntry, object]]:
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


def _content(place: RulePlace) -> object:
    text = look(place.path, foreign=True).text() or ""
    if place.path.suffix == ".md":
        return _front_matter(text)
    return read_document(text, place.form, source=str(place.path)).value()


def _front_matter(text: str) -> dict[str, list[str]]:
    """The head of a Markdown file, as lines by key; clients accept text there that is not YAML."""
    made, key = dict[str, list[str]](), ""
    head = text.partition("\n---")[0] if text.startswith("---") else ""
    for line in head.splitlines()[1:]:
        if found := _KEY.match(line):
            key = found[1]
        made.setdefault(key, []).append(line.strip())
    return made


def _written(place: RulePlace, content: object) -> Iterator[tuple[str, bool]]:
    values = [content]
    for step in place.trail:
        inner = (
            each for value in values for each in (_parts(value) if step == "*" else [value_at(value, (step,))])
        )
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
    """Whether a client's rule (a name, glob or regex) may match a tool of a server.

    `called` is the prefix of the server's tools, with the server as `{}`; a bare `{}` means that rules are
    servers' names.
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
