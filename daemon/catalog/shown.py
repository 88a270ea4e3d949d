"""The forms of tools that one client has seen, and the server that a URI of the client belongs to.

A client may send requests before it reads earlier answers, so the form before the latest is kept, with its
turn. A URI belongs to the first of these servers: one that the URI names, one that linked to it, one that lists
it, one with a template for it, the only one with a skill there, the only one with resources. If a server lists
the URI, links and templates of other servers do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from daemon.catalog.categories import NO_TOOLS, Table
from daemon.catalog.definitions import NEVER
from daemon.catalog.kinds import SHARING_NAMES, switch_of
from daemon.catalog.naming import Template, fitting, is_mcpd, read_mcpd_uri, skill_with
from daemon.kit.waiting import keep_latest
from daemon.model import Kind, Tool, ToolKey

if TYPE_CHECKING:
    from daemon.catalog.offer import Offer
    from daemon.catalog.snapshot import Catalog


def locate(catalog: Catalog, offer: Offer, uri: str, linked: Mapping[str, str]) -> ToolKey | None:
    """The server to read a URI from, and its own URI; None if unknown to the profile, switched off or held."""
    if not offer.reads_resources:
        return None
    key = _named(catalog, offer, uri) or _linked(catalog, offer, uri, linked)
    if key is None and not is_mcpd(uri):
        key = _listed(catalog, offer, uri) or _from_template(offer, uri) or _of_skill(catalog, offer, uri)
        key = key or _only_one(catalog, offer, uri)
    return None if key is None or _is_shut(catalog, key) else key


def _named(catalog: Catalog, offer: Offer, uri: str) -> ToolKey | None:
    if not is_mcpd(uri):
        return None
    key = catalog.names_of(Kind.RESOURCE).owners.get(uri) or read_mcpd_uri(uri)
    return key if key is not None and key[0] in offer.servers_of(Kind.RESOURCE) else None


def _linked(catalog: Catalog, offer: Offer, uri: str, linked: Mapping[str, str]) -> ToolKey | None:
    server = linked.get(uri)
    entry = None if server is None else catalog.servers.get(server)
    if server is None or entry is None or entry.disabled:
        return None
    listed = uri in catalog.lists[Kind.RESOURCE].get(server, ())
    return (server, uri) if listed or _listed(catalog, offer, uri) is None else None


def _listed(catalog: Catalog, offer: Offer, uri: str) -> ToolKey | None:
    """The server that lists a URI; of several, the owner of the name."""
    lists = [catalog.lists[kind] for kind in (Kind.RESOURCE, Kind.SKILL)]
    owner = catalog.names_of(Kind.RESOURCE).owners.get(uri)
    found = [
        server
        for server in offer.servers_of(Kind.RESOURCE)
        if any(uri in each.get(server, ()) for each in lists)
    ]
    if not found:
        return None
    return owner if owner is not None and owner[0] in found else (found[0], uri)


def _from_template(offer: Offer, uri: str) -> ToolKey | None:
    """The best fitting template's server; for a variable scheme, only if no other server has such templates."""
    found = next(fitting(offer.templates, uri), None)
    if found is None:
        return None
    if not found.has_scheme and len({each.server for each in offer.templates if not each.has_scheme}) > 1:
        return None
    return found.server, uri


def _of_skill(catalog: Catalog, offer: Offer, uri: str) -> ToolKey | None:
    skills = catalog.lists[Kind.SKILL]
    found = [each for each in offer.servers_of(Kind.SKILL) if skill_with(uri, skills.get(each, ())) != uri]
    return (found[0], uri) if len(found) == 1 else None


def _only_one(catalog: Catalog, offer: Offer, uri: str) -> ToolKey | None:
    with_some = [
        server
        for server in offer.servers_of(Kind.RESOURCE)
        if any(
            kind in (lists := catalog.servers[server].lists) and lists[kind].declared
            for kind in (*SHARING_NAMES[Kind.RESOURCE], Kind.SKILL)
        )
    ]
    return (with_some[0], uri) if len(with_some) == 1 else None


def _is_shut(catalog: Catalog, key: ToolKey) -> bool:
    """Whether a resource, its skill, or every template that could produce its URI is switched off or held."""
    server, own = key
    listed, entry = catalog.lists[Kind.RESOURCE].get(server, ()), catalog.servers[server]
    known, skills = entry.list_of(Kind.TEMPLATE), entry.list_of(Kind.SKILL)
    if switched_off(catalog, key) or own in known.held or skill_with(own, skills.all) in skills.held:
        return True
    if own in listed or not (known.held or any(each == server for each, _ in catalog.switched)):
        return False
    templates = [Template(server=server, text=text) for text in known.all]
    matching = [each.text for each in fitting(templates, own)]
    on = catalog.lists[Kind.TEMPLATE].get(server, {})
    return bool(matching) and not any(text in on for text in matching)


def switched_off(catalog: Catalog, key: ToolKey) -> Collection[tuple[str, str]]:
    """The operators' switches (`Catalog.switched`) of a resource and of the skill that it belongs to."""
    server, own = key
    skill = skill_with(own, catalog.servers[server].list_of(Kind.SKILL).all)
    return {(server, switch_of(Kind.RESOURCE, own)), (server, switch_of(Kind.SKILL, skill))} & catalog.switched


UNKNOWN = ""
"""Stands for the hash of a tool that was shown in an unknown form; no tool has it."""

MAX_SHOWN = 10_000
"""Tools recorded one by one, the latest: as many as one server lists. A list shown whole costs nothing."""


def shown_since(catalog: Catalog, key: ToolKey, began: float) -> str | None:
    """The hash of a tool for a client known since `began` (epoch seconds); `UNKNOWN` if it may differ."""
    entry = catalog.servers.get(key[0])
    tool = None if entry is None or entry.tools is None else entry.tools.get(key[1])
    if entry is None or tool is None:
        return None
    since = max(entry.tool_list.since.get(tool.name, NEVER), catalog.names.since(key))
    return tool.schema_hash if since < began else UNKNOWN


class Shown:
    """The schema hashes of the tools that a client has seen."""

    __slots__ = ("_before", "_earlier", "_list", "_single", "latest", "version")

    def __init__(self, before: Callable[[ToolKey], str | None] | None = None) -> None:
        self.version = 0
        """Rises whenever something is shown."""
        self.latest = -1
        """The latest turn in which a tool was shown in a changed form."""
        self._before = before
        self._list = NO_TOOLS
        self._single: dict[ToolKey, str] = {}
        self._earlier: dict[ToolKey, tuple[int, str]] = {}

    def hash_of(self, key: ToolKey, turn: int | None = None) -> str | None:
        """The hash of a tool as last shown, or as shown before `turn`; None if never shown."""
        if turn is not None and key in self._earlier:
            shown_in, digest = self._earlier[key]
            if turn <= shown_in:
                return digest
        single = self._single.get(key)
        if single is not None:
            return single
        listed = self._list.get(key)
        if listed is not None:
            return listed.schema_hash
        return None if self._before is None else self._before(key)

    def assume(self, key: ToolKey, digest: str) -> None:
        """Record the hash of a tool that counts as shown, unless one is recorded."""
        if self.hash_of(key) is None:
            self.version += 1
            self._single[key] = digest

    def add(self, tools: Iterable[Tool], turn: int = 0) -> None:
        """Record that these tools were shown in a turn."""
        self.version += 1
        for tool in tools:
            key = tool.server, tool.name
            self._note_earlier(key, tool.schema_hash, turn)
            keep_latest(self._single, key, tool.schema_hash, MAX_SHOWN)

    def add_list(self, table: Table, turn: int = 0) -> None:
        """Record that a whole list was shown in a turn."""
        known = self._list
        if known is table and not self._single:
            return
        if known or self._single or self._earlier or self._before is not None:
            # Most of a changed list was shown before in the same form, and in no other since.
            for key, tool in table.beyond(known):
                self._note_earlier(key, tool.schema_hash, turn)
            for key in self._single:
                if (same := table.get(key)) is not None:
                    self._note_earlier(key, same.schema_hash, turn)
        gone = {key: tool.schema_hash for key, tool in table.lacking(known)}
        single = {**gone, **{key: digest for key, digest in self._single.items() if key not in table}}
        self._single = dict([*single.items()][-MAX_SHOWN:])
        self._list = table
        self.version += 1

    def _note_earlier(self, key: ToolKey, digest: str, turn: int) -> None:
        before = self.hash_of(key, turn)
        if before not in {None, digest}:
            keep_latest(self._earlier, key, (turn, str(before)), MAX_SHOWN)
            self.latest = max(self.latest, turn)
