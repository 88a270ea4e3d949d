"""Writes `mcpd.lock`: sorted JSON with a line for each definition; unknown members stay (docs/trust.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from daemon.catalog.forms import Change, form_of, parts_changed, steady
from daemon.catalog.kinds import switch_of
from daemon.config.config_files import read_lock
from daemon.config.lock_file import MEMBERS, VERSION, Lock, LockedPackage, LockedServer, lock_in
from daemon.documents.files import DocumentError, look, replace
from daemon.model import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.catalog.entry import ServerEntry
    from daemon.config.config_model import Server
    from daemon.model import Definition

INLINE = 4
"""Levels of nesting from which a value is on one line, such as a definition."""

SAYS = 80
"""Most characters of a description in a line."""

_STEADY = re.compile(r"[^\d,;:|\[\](){}<>\n]*")
"""Matches the part of a text before a number or list, which may vary."""

Content = dict[str, Any]


def empty() -> Content:
    """The content of a new lock."""
    return {"lockfileVersion": VERSION, "servers": {}}


def approve(content: Content, definitions: Iterable[Definition], identities: Mapping[str, str]) -> None:
    """Add lines, or replace their forms. A server with another identity than before starts without lines."""
    servers = content.setdefault("servers", {})
    for each in definitions:
        identity = identities[each.server]
        if servers.get(each.server, {}).get("identity") != identity:
            servers[each.server] = {"identity": identity}
        lines = servers[each.server].setdefault(MEMBERS[each.kind], {})
        lines[each.name] = {**lines.get(each.name, {}), **line_of(each)}


def line_of(definition: Definition) -> Content:
    """The content of a definition's line."""
    form = form_of(definition.kind, definition.raw)
    members = msgspec.json.decode(definition.raw)
    description = (members["frontmatter"] if definition.kind is Kind.SKILL else members).get("description")
    found = _STEADY.match(steady(description)) if isinstance(description, str) else None
    says = " ".join(found[0].split())[:SAYS].rstrip() if found else ""
    return {"hash": form.digest, "parts": dict(form.parts), "says": says}


def renew(content: Content, configured: Mapping[str, Server]) -> list[str]:
    """Remove servers that are not configured, and return them; a renamed server keeps its lines."""
    servers, removed = content.setdefault("servers", {}), []
    for name in [name for name in servers if name not in configured]:
        lines = servers.pop(name)
        same = [each.name for each in configured.values() if each.identity == lines["identity"]]
        if new := [each for each in same if each not in servers]:
            servers[new[0]] = lines
        else:
            removed.append(name)
    return removed


class ServersNow(NamedTuple):
    """The configured servers, with the entries and packages of those whose present lists are known."""

    servers: Mapping[str, Server]
    entries: Mapping[str, ServerEntry]
    packages: Mapping[str, Mapping[str, LockedPackage]]


def offer(content: Content, now: ServersNow, *, approve: bool = False) -> None:
    """Make servers' lines equal to what they list. Lines of held definitions stay, unless all are approved."""
    servers = content.setdefault("servers", {})
    for name, entry in now.entries.items():
        before, identity = servers.get(name, {}), now.servers[name].identity
        same = before.get("identity") == identity
        held = {kind: () if approve else entry.list_of(kind).held for kind in MEMBERS}
        if before and not same and any(held.values()):
            # Nobody has approved anything of the edited entry: the former agreement stays to compare with.
            continue
        after = {**before, "identity": identity, "packages": {}}
        for each, package in now.packages[name].items():
            # A failed lookup leaves the hashes of the same version.
            line = msgspec.to_builtins(package)
            after["packages"][each] = {**_alike(before.get("packages", {}), each, line, "version"), **line}
        for kind, member in MEMBERS.items():
            old, listed = before.get(member, {}) if same else {}, entry.list_of(kind).all
            after[member] = {each: old[each] for each in held[kind] if each in old}
            for each in listed.keys() - held[kind]:
                # The words of an equal form may vary from start to start.
                line = line_of(listed[each])
                after[member][each] = {**old.get(each, {}), **line, **_alike(old, each, line, "hash")}
        ours = {"packages", *MEMBERS.values()}
        servers[name] = {key: value for key, value in after.items() if value or key not in ours}


def _alike(lines: Content, name: str, line: Content, key: str) -> Content:
    was: Content = lines.get(name, {})
    return was if was.get(key) == line.get(key) else {}


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between a server and the lock."""

    server: str
    what: str
    """`edited` for the entry; `changed`, `new` or `gone` for a definition, a package or the server."""
    name: str = ""
    change: Change = {}


def drift(lock: Lock, now: ServersNow, *, are_all: bool) -> Iterator[Drift]:
    """The differences between servers and the lock, including those of held definitions."""
    yield from (Drift(server=name, what="gone") for name in lock.servers if are_all and name not in now.servers)
    for name in sorted(now.entries):
        part = lock.servers.get(name)
        yield from [Drift(server=name, what="new")] if part is None else _of_server(name, part, now)


def _of_server(server: str, part: LockedServer, now: ServersNow) -> Iterator[Drift]:
    packages, entry = now.packages[server], now.entries[server]
    if part.identity != now.servers[server].identity:
        yield Drift(server=server, what="edited")
    for each in sorted({*part.packages, *packages}):
        was, has = (found.get(each, LockedPackage()) for found in (part.packages, packages))
        # A hash that could not be looked up is no difference.
        member = "version" if was.version != has.version else "hashes"
        if member == "version" or (was.hashes and has.hashes and was.hashes != has.hashes):
            yield Drift(server=server, what="changed", name=f"package {each}", change={"members": [member]})
    for kind in MEMBERS:
        lines, listed = part.lines(kind), entry.list_of(kind).all
        for each in sorted({*lines, *listed}):
            what, change = "new" if each in listed else "gone", dict[str, list[str]]()
            if each in lines and each in listed:
                form = form_of(kind, listed[each].raw)
                if form.digest == lines[each].hash:
                    continue
                what, change = "changed", dict(parts_changed(lines[each].parts, form.parts))
            yield Drift(server=server, what=what, name=switch_of(kind, each), change=change)


def written(content: Mapping[str, Any]) -> str:
    """The text of a lock file; equal contents have equal texts."""
    return "\n".join(_lines(content, 0)) + "\n"


def _lines(value: Any, depth: int) -> Iterable[str]:
    if not isinstance(value, dict) or not value or depth >= INLINE:
        yield json.dumps(value, ensure_ascii=True, sort_keys=True)
        return
    yield "{"
    last = max(value)
    for key in sorted(value):
        first, *rest = _lines(value[key], depth + 1)
        indent = "  " * (depth + 1)
        lines = [f"{indent}{json.dumps(key)}: {first}", *rest]
        lines[-1] += "" if key == last else ","
        yield from lines
    yield f"{'  ' * depth}}}"


def changed(path: Path, change: Callable[[Content], None]) -> tuple[bool, Lock]:
    """Change a lock file; returns whether the file differs now, and its lock. Raises DocumentError."""
    found, present = look(path), read_lock(path)
    before = written(empty()).encode() if found.content is None else found.content
    if problem := (present.problem if present else "") or lock_in(before).problem:
        raise DocumentError(f"{problem}. Repair it, or remove it; then `mcpd reload`")
    try:
        change(content := json.loads(before))
        text = written(content).encode()
    except (ValueError, RecursionError) as error:  # a number of thousands of digits
        raise DocumentError(f"it cannot be read: {error}") from None
    lock = lock_in(text)
    if lock.problem:
        raise DocumentError(f"the lock can no longer be read, so nothing was written: {lock.problem}")
    if text != found.content:
        replace(found, text)
    return text != found.content, lock
