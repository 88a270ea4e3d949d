"""Servers' tools in a list beside meta-tools: which ones are listed, and how.

Core tools are listed from the start on the surface `search`. A profile names them; if it does not, they are
chosen once for each client from the tools that were called most until then: what a client was told in the
handshake stays true as long as it is connected, whatever is called in the meantime.

Some clients show their models only the names of tools, unless a tool says otherwise in its `_meta`. A model is
to see at once what it has loaded or found and what its profile names as core, as it sees the meta-tools.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon.config.names import read_reference
from daemon.safety.legible import legible_tool
from daemon.surfaces import calling
from daemon.surfaces.base import ALWAYS_LOAD

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

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
