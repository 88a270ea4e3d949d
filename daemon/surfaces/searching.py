"""Servers' tools on surfaces of meta-tools: which ones are listed, and how a need or a name finds them.

`search_tools`, `mcpd search` and loading find tools in the same way (seed 002, FR-4).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import attrs
import msgspec
from msgspec import Raw

from daemon.config.names import read_reference
from daemon.errors import CallError, UnknownTool
from daemon.kit.wording import closest
from daemon.safety.legible import legible_tool
from daemon.surfaces import calling
from daemon.surfaces.answers import MAX_QUOTED, choices, cut, one_line, quoted, share_of
from daemon.surfaces.base import ALWAYS_LOAD, renamed
from daemon.surfaces.by_category import find_category, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from daemon.catalog.offer import Offer, Offered
    from daemon.catalog.snapshot import Catalog
    from daemon.config.model import Profile
    from daemon.model import ToolKey
    from daemon.surfaces.base import Means, View


MOST_USUAL = 7
"""Core tools that are chosen: as many as seed 000 has by default."""

SERENAS = (
    *("search_tools", "initial_instructions", "activate_project", "get_current_config"),
    *("check_onboarding_performed", "list_dir", "find_file"),
)
"""The core tools of seed 000 (`DEFAULT_CORE_TOOLS`), for as long as nothing was called."""


def usual_tools(means: Means, catalog: Catalog, profile: Profile) -> tuple[ToolKey, ...]:
    """The most called of the tools that a profile shows, or may once their servers have listed theirs.

    In the order of their names: as long as the set is the same, every client is told the same. Until one was
    called, those that seed 000 names.
    """
    offer = means.offers.of(catalog, profile)
    shown = (key for key in means.most_called() if _may_be_shown(catalog, offer, key))
    called = tuple(sorted(islice(shown, MOST_USUAL)))
    return called or tuple(sorted(key for key in offer.tools if key[1] in SERENAS))[:MOST_USUAL]


def core_tools(view: View) -> Sequence[Offered]:
    """The core tools whose definitions are known."""
    if view.profile.core_tools is not None:
        return view.offer.core
    return [offered for key in view.usual() if (offered := view.offer.tools.get(key)) is not None]


def core_references(view: View) -> Sequence[str]:
    """The core tools, named as in a configuration."""
    if view.profile.core_tools is not None:
        return view.profile.core_tools
    return [f"{server}/{tool}" for server, tool in view.usual()]


def core_names(view: View, meta_tools: Collection[str]) -> Iterator[str]:
    """The names to call core tools by; their configured names while their servers have not listed."""
    for name in core_references(view):
        offered = view.offer.find(name)
        if offered is None:
            yield read_reference(name, view.catalog.servers).tool
        else:
            yield calling.public_name(view, offered.key, meta_tools)


def _may_be_shown(catalog: Catalog, offer: Offer, key: ToolKey) -> bool:
    entry = catalog.servers.get(key[0])
    if entry is None or entry.disabled:
        return False
    return key in offer.tools if entry.tools is not None else offer.rules.allows(key)


KEPT = 1024
"""Definitions that are cached in this form: more than all sessions load at a time; 3 MB of real ones."""

_META = "_meta"
_ALWAYS_LOAD = {key: Raw(msgspec.json.encode(value)) for key, value in ALWAYS_LOAD.items()}
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_meta = msgspec.json.Decoder(dict[str, Raw] | None).decode


def as_listed(view: View, offered: Offered, meta_tools: Collection[str]) -> bytes:
    """The tool object for a list, raw JSON, under the name that it has beside these meta-tools."""
    name = calling.public_name(view, offered.key, meta_tools)
    return always_loaded(legible_tool(offered.listed(name), offered.description))


@lru_cache(maxsize=KEPT)
def always_loaded(raw: bytes) -> bytes:
    """A tool object with `ALWAYS_LOAD` added to its `_meta`; everything else stays."""
    members = _decode_members(raw)
    if _META not in members:
        return b'%b,"_meta":%b}' % (raw.rstrip()[:-1], msgspec.json.encode(ALWAYS_LOAD))
    try:
        said = _decode_meta(members[_META]) or {}
    except msgspec.MsgspecError:
        # Not an object, hence not valid: it is not ours to replace.
        return raw
    return msgspec.json.encode({**members, _META: {**said, **_ALWAYS_LOAD}})


@attrs.frozen(kw_only=True)
class Findings:
    """The result of a search."""

    tools: Sequence[tuple[Offered, float]]
    """The tools, best first, with their scores; 0.0 if everything was asked for."""
    total: int
    """How many tools fit, shown or not."""
    end: int
    """The position in the whole result at which `tools` ends."""
    suggestions: Sequence[str] = ()
    """Words that may have been meant if nothing fits."""

    @property
    def left(self) -> int:
        """How many tools come after these."""
        return max(0, self.total - self.end)

    def first(self, count: int) -> Findings:
        """The first `count` of these tools; the others count as left."""
        return attrs.evolve(
            self, tools=self.tools[:count], end=min(self.end, self.total) - len(self.tools) + count
        )


def find_tools(
    view: View, phrasings: Sequence[str], category: str | None, limit: int, start: int = 0
) -> Findings:
    """The offered tools that fit, best first.

    Args:
        view: the view of the session.
        phrasings: phrasings of one need, keywords or a name; empty is everything, in its order.
        category: only the tools of this category; None or empty is all.
        limit: most tools to return.
        start: how many of the best to skip.

    Raises:
        UnknownCategory: the profile has none of that name.
    """
    end = start + limit
    offer = view.offer
    among = _keys_in(view, category) if category else offer.tools
    asked = [text for text in phrasings if text.strip()]
    if not asked:
        known = [(offer.tools[key], 0.0) for key in among if key in offer.tools]
        return Findings(tools=known[start:end], total=len(known), end=end)
    index = view.means.index()
    # Checking each hit takes as long as finding it, which is saved if all tools are allowed.
    all_of_it = among is offer.tools and offer.is_everything and index.covers(view.catalog.servers)
    ranking = index.search(asked, within=None if all_of_it else among, limit=end)
    tools = [(offer.tools[hit.key], hit.score) for hit in ranking.hits if hit.key in offer.tools]
    return Findings(tools=tools[start:], total=ranking.total, end=end, suggestions=ranking.suggestions)


def scored(view: View, phrasings: Sequence[str], category: str | None, limit: int) -> dict[str, object]:
    """A search as an operator sees it.

    Returns:
        `{tools: [{name, server, tool, category, score, description}], total, suggestions}`.

    Raises:
        UnknownCategory: the profile has none of that name.
    """
    findings = find_tools(view, phrasings, category, limit)
    return {
        "tools": [
            {
                "name": offered.name,
                "server": offered.key[0],
                "tool": offered.key[1],
                "category": category or offered.category,
                "score": round(score, 3),
                "description": one_line(offered.description),
            }
            for offered, score in findings.tools
        ],
        "total": findings.total,
        "suggestions": list(findings.suggestions),
    }


def _keys_in(view: View, category: str) -> dict[ToolKey, None]:
    members = shown(view, find_category(view, category)).values()
    return {(member.server, member.tool): None for member in members}


MAX_FOUND = 3
"""Most servers or tools found for one need: a need that fits more is not precise enough."""

WORTH = 0.6
"""The share of the best hit's score that another hit must have to be shown beside it."""


class Wanted(msgspec.Struct):
    """The tools that names and needs resolve to."""

    tools: dict[str, Offered] = msgspec.field(default_factory=dict)
    """The tools, by the names to call them by."""
    failures: dict[str, CallError] = msgspec.field(default_factory=dict)
    """Errors about what was not found, by what was asked for."""
    alternatives: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """The names of tools that fit nearly as well, by need."""


def resolve(view: View, names: Iterable[str], servers: set[str], reserved: tuple[str, ...]) -> Wanted:
    """Find the tools that are meant: what is not the name of a tool is taken as a need.

    Args:
        view: the view of the session.
        names: names and needs.
        servers: only tools of these servers.
        reserved: the names of the surface's own tools.
    """
    wanted = Wanted()
    for name in names:
        try:
            calling.refuse_meta_tool(view, name, reserved)
            offered = _by_name(view, name, servers)
            if offered is None:
                offered = _by_need(view, name, servers, wanted, reserved)
            wanted.tools[calling.public_name(view, offered.key, reserved)] = offered
        except CallError as error:
            wanted.failures[cut(name, MAX_QUOTED)] = error
    return wanted


def _by_name(view: View, name: str, servers: set[str]) -> Offered | None:
    """The tool of that name on one of these servers; None if no tool has it."""
    key = view.catalog.names.key_of(name, view.catalog.servers)
    if key is not None and key[0] in servers:
        if key in view.offer.tools:
            return view.offer.tools[key]
        if not view.offer.rules.allows(key):
            # Raises the reason why a tool that exists is not offered.
            calling.find(view, name, patient=False)
        if (moved := renamed(view, name)) is not None:
            return moved[1]
    # A bare name that means another server's tool elsewhere is clear if only one server is meant.
    return view.offer.tools.get((next(iter(servers)), name)) if len(servers) == 1 else None


def _by_need(view: View, need: str, servers: set[str], wanted: Wanted, reserved: tuple[str, ...]) -> Offered:
    """The tool that fits a need best; others that fit nearly as well become alternatives.

    Raises:
        UnknownTool: no tool fits.
    """
    offer = view.offer
    within = {key for key in offer.tools if key[0] in servers}
    ranking = view.means.index().search([need], within=within, limit=MAX_FOUND)
    hits = [hit for hit in ranking.hits if hit.score >= WORTH * ranking.hits[0].score]
    if not hits:
        names = [
            calling.public_name(view, each.key, reserved) for key, each in offer.tools.items() if key in within
        ]
        near = closest(need, names)
        hint = (
            f"Did you mean: {', '.join(ranking.suggestions)}?"
            if ranking.suggestions
            else choices(names, need, near, room=share_of(view))
        )
        raise UnknownTool(f"no tool fits {quoted(need)}. {hint}", tool=cut(need, MAX_QUOTED), closest=near)
    best, *others = (offer.tools[hit.key] for hit in hits)
    if others:
        wanted.alternatives[cut(need, MAX_QUOTED)] = [
            calling.public_name(view, each.key, reserved) for each in others
        ]
    return best
