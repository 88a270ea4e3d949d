"""Tools that a session has loaded, their stored form, and whether they can still be used.

Loaded tools are listed for their session as long as they are valid. `Loaded` is immutable, so that it can be
kept with the session across connections. One pure function, `judge`, decides from the present state whether a
tool is valid; it is asked at each request, and in bulk when an epoch rises.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

import attrs
import msgspec

from daemon.config.names import spellings

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from daemon.catalog.snapshot import Catalog
    from daemon.model import Tool, ToolKey


OTHERS = "uid "
"""Prefix of the keys of other users' sessions; no key that a client names begins so."""

TOKENS = "token "
"""Prefix of the keys of sessions that belong to a token with a name; no key that a client names begins so."""

MAX_KEY = 200
"""Most characters of a session's key: a UUID has 36, a path used as a key may have more."""

ANONYMOUS = "\tanonymous "
"""Marks the keys of unnamed sessions, before the token that their bridge generated; no key that a client names
has a tab in it."""

TOKEN = re.compile(r"[0-9a-f]{32}")
"""A token that a bridge generates for its lifetime: 128 random bits, which cannot be guessed."""


def anonymous_key(token: object) -> str | None:
    """The session key of a bridge that names none; None if `token` is not one that a bridge generates."""
    return f"{ANONYMOUS}{token}" if isinstance(token, str) and TOKEN.fullmatch(token) else None


def is_anonymous(key: str) -> bool:
    """Whether this session has no name of its own."""
    return ANONYMOUS in key


@attrs.frozen(kw_only=True)
class SessionRecord:
    """A session with a key, or of a bridge."""

    key: str
    """What its connections name it by."""
    loaded: Loaded
    """The tools that the session has loaded."""
    client: str = ""
    """What the client that last used it calls itself."""
    created_at: float = 0.0
    """When it was first named, in seconds since the epoch."""
    seen_at: float = 0.0
    """When it was last used, in seconds since the epoch."""
    partial: bool = False
    """Whether it began while the store could not be read: what is stored of it precedes this."""


MAX_LOADED = 512
"""Most tools that one session has loaded; beyond that, those loaded first leave the list. A model that was
shown more schemas has lost its context to them."""


class Source(StrEnum):
    """Who loaded a tool (seed 002, §7.1.3)."""

    MANUAL = "manual"
    """The model asked for the tool."""
    AUTO = "auto"
    """A call to the tool loaded it, or keeps it among what searches have found."""
    POLICY_PRELOAD = "policy_preload"
    """The session's profile names the tool in `preload`."""


class LoadedStatus(StrEnum):
    """Whether a loaded tool can still be used (seed 002, §7.1.3)."""

    VALID = "valid"
    INVALID_CHANGED = "invalid_changed"
    INVALID_DELETED = "invalid_deleted"
    INVALID_DISABLED = "invalid_disabled"
    INVALID_SERVER_DISABLED = "invalid_server_disabled"
    INVALID_RENAMED = "invalid_renamed"


@attrs.frozen(kw_only=True)
class Verdict:
    """Whether a loaded tool can still be used, and why not."""

    status: LoadedStatus = LoadedStatus.VALID
    """Whether it can be used."""
    reason: str = ""
    """The reason in words; empty if it can be used."""
    renamed_to: str | None = None
    """Its present name, if its server renamed it."""

    @property
    def valid(self) -> bool:
        """Whether it can be used."""
        return self.status is LoadedStatus.VALID


VALID = Verdict()


@attrs.frozen(kw_only=True)
class LoadedTool:
    """A tool as it was when a session loaded it."""

    key: ToolKey
    """The tool, by server and name."""
    schema_hash: str
    """The schema hash of the tool as it was shown."""
    epoch: int
    """Its server's epoch at that time."""
    source: Source
    """What loaded the tool: a model, a search, a profile."""
    at: float
    """When it was loaded, in seconds since the epoch."""
    verdict: Verdict = VALID
    """Whether the tool can still be called, and why not."""
    judged_at: float = 0.0
    """When its verdict last changed, in seconds since the epoch; 0 if it never did."""


class Loaded(msgspec.Struct, frozen=True):
    """The tools that a session has loaded, in order of loading."""

    tools: Mapping[ToolKey, LoadedTool] = msgspec.field(default_factory=dict)
    """The loaded tools by key, including invalid ones."""

    def __contains__(self, key: ToolKey) -> bool:
        return key in self.tools

    def adding(self, tools: Iterable[tuple[Tool, int]], source: Source, at: float) -> Loaded:
        """With these tools as they are now; the same object if all of them are loaded already.

        Args:
            tools: each with the epoch of its server.
            source: what loads them. A call is also recorded of a tool that is loaded already.
            at: seconds since the epoch.
        """
        fresh = {}
        for tool, epoch in tools:
            key = tool.server, tool.name
            if not self.has(key, tool.schema_hash):
                fresh[key] = LoadedTool(
                    key=key, schema_hash=tool.schema_hash, epoch=epoch, source=source, at=at
                )
            elif source is Source.AUTO and self.tools[key].source is Source.MANUAL:
                fresh[key] = attrs.evolve(self.tools[key], source=source)
        if not fresh:
            return self
        return self.joined(Loaded(fresh))

    def joined(self, later: Loaded) -> Loaded:
        """With what was loaded later; the same object if that is nothing."""
        if not later.tools:
            return self
        kept = {key: each for key, each in self.tools.items() if key not in later.tools}
        merged = {**kept, **later.tools}
        return Loaded(dict(islice(merged.items(), max(0, len(merged) - MAX_LOADED), None)))

    def used(self, keys: Iterable[ToolKey]) -> Loaded:
        """With these tools as the latest ones; the same object if they are that already."""
        latest = {key: self.tools[key] for key in keys if key in self.tools}
        order = [*self.tools]
        return self if order[len(order) - len(latest) :] == [*latest] else self.joined(Loaded(latest))

    def without(self, keys: Container[ToolKey]) -> Loaded:
        """Without these tools; the same object if none of them is loaded."""
        left = {key: each for key, each in self.tools.items() if key not in keys}
        return Loaded(left) if len(left) < len(self.tools) else self

    def judged(self, judge: Callable[[LoadedTool], Verdict], at: float) -> Loaded:
        """With each tool's present verdict; the same object if none changed.

        Args:
            judge: gives the verdict on a tool.
            at: seconds since the epoch.
        """
        changed = {
            key: attrs.evolve(each, verdict=verdict, judged_at=at)
            for key, each in self.tools.items()
            if (verdict := judge(each)) != each.verdict
        }
        return Loaded({**self.tools, **changed}) if changed else self

    def has(self, key: ToolKey, schema_hash: str) -> bool:
        """Whether a tool is loaded and valid in this form."""
        known = self.tools.get(key)
        return known is not None and known.schema_hash == schema_hash and known.verdict.valid


_S = LoadedStatus


@attrs.frozen(kw_only=True)
class Standing:
    """The present state of one tool, as far as its validity depends on it."""

    server_configured: bool
    """Whether its server is in the configuration."""
    server_enabled: bool = True
    """Whether its server is switched on."""
    listed: bool = True
    """Whether the server's tools are known; until they are, a tool counts as valid."""
    schema_hash: str | None = None
    """The tool's schema hash; None if the server has no such tool."""
    enabled: bool = True
    """Whether the tool is switched on."""
    renamed_to: str | None = None
    """The name of the one tool that has its contents now, if it was renamed."""


def judge(loaded_hash: str, server: str, tool: str, now: Standing) -> Verdict:
    """The verdict on a tool that a session has loaded.

    Args:
        loaded_hash: its schema hash when it was loaded.
        server: its server's name, for the reason.
        tool: its name, for the reason.
        now: its present state.
    """
    gone = now.schema_hash is None
    is_so = (
        (
            not now.server_configured,
            _S.INVALID_DELETED,
            "server {server} is no longer in mcpd's configuration",
        ),
        (not now.server_enabled, _S.INVALID_SERVER_DISABLED, "server {server} is switched off"),
        (not now.listed, _S.VALID, ""),
        (gone and now.renamed_to, _S.INVALID_RENAMED, "server {server} calls it {renamed_to} now"),
        (gone, _S.INVALID_DELETED, "server {server} no longer has it"),
        (not now.enabled, _S.INVALID_DISABLED, "{tool} is switched off"),
        (
            now.schema_hash != loaded_hash,
            _S.INVALID_CHANGED,
            "server {server} has changed it since it was loaded",
        ),
    )
    status, reason = next(((status, reason) for holds, status, reason in is_so if holds), (_S.VALID, ""))
    if status is _S.VALID:
        return VALID
    return Verdict(
        status=status,
        reason=reason.format(server=server, tool=tool, renamed_to=now.renamed_to),
        renamed_to=now.renamed_to if status is _S.INVALID_RENAMED else None,
    )


def standing(catalog: Catalog, key: ToolKey) -> Standing:
    """The present state of a tool in a catalog, whatever any profile makes of it."""
    server, name = key
    entry = catalog.servers.get(server)
    if entry is None:
        return Standing(server_configured=False)
    tool = None if entry.tools is None else entry.tools.get(name)
    return Standing(
        server_configured=True,
        server_enabled=not entry.disabled,
        listed=entry.tools is not None,
        schema_hash=None if tool is None else tool.schema_hash,
        enabled=key not in catalog.off or _is_wanted(catalog, key),
        renamed_to=entry.tool_list.renamed.get(name),
    )


def _is_wanted(catalog: Catalog, key: ToolKey) -> bool:
    """Whether a profile includes what the categories switch off, so that its sessions may have loaded it.

    A profile that does not offer the tool never hands it out, whatever the verdict. What an operator switched
    off stays off.
    """
    server, tool = key
    written = {*spellings(server, tool), f"{server}__{tool}"}
    profiles = catalog.config.profiles.values()
    return key not in catalog.switched_tools and any(
        not written.isdisjoint(profile.included_optional_tools) for profile in profiles
    )


def judge_stored(catalog: Catalog, server: str, tool: str, loaded_hash: str) -> Verdict:
    """`judge` by a catalog, for every session that has loaded the tool in that form."""
    return judge(loaded_hash, server, tool, standing(catalog, (server, tool)))


def judge_in(catalog: Catalog, loaded: LoadedTool) -> Verdict:
    """`judge` by a catalog; a rename that was known before stays known."""
    now = standing(catalog, loaded.key)
    known = loaded.verdict.renamed_to
    if known is not None and now.renamed_to is None and _has(catalog, loaded.key[0], known):
        now = attrs.evolve(now, renamed_to=known)
    return judge(loaded.schema_hash, *loaded.key, now)


def _has(catalog: Catalog, server: str, tool: str) -> bool:
    entry = catalog.servers.get(server)
    return entry is not None and tool in (entry.tools or {})
