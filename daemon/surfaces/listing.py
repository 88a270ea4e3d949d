"""How a server's tool stands in a list of ours, beside meta-tools: legible, and never hidden from the model.

Some clients show their models only the names of tools, unless a tool says otherwise in its `_meta`. What a
model has loaded or found, and what its profile names as core, it is to see at once, as it sees the meta-tools.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon.catalog.legible import legible_tool
from daemon.surfaces import calling
from daemon.surfaces.base import ALWAYS_LOAD

if TYPE_CHECKING:
    from collections.abc import Collection

    from daemon.catalog.offer import Offered
    from daemon.surfaces.base import View

KEPT = 1024
"""Definitions that are kept in this form: more than all sessions have loaded at a time; 3 MB of real ones."""

_META = "_meta"
_ALWAYS_LOAD = {key: Raw(msgspec.json.encode(value)) for key, value in ALWAYS_LOAD.items()}
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_meta = msgspec.json.Decoder(dict[str, Raw] | None).decode


def as_listed(view: View, offered: Offered, meta_tools: Collection[str]) -> bytes:
    """The tool object, under the name that it has beside these meta-tools."""
    name = calling.public_name(view, offered.key, meta_tools)
    return always_loaded(legible_tool(offered.listed(name), offered.description))


@lru_cache(maxsize=KEPT)
def always_loaded(raw: bytes) -> bytes:
    """A tool object with `ALWAYS_LOAD` in its `_meta`; nothing else of what its server says is lost."""
    members = _decode_members(raw)
    if _META not in members:
        return b'%b,"_meta":%b}' % (raw.rstrip()[:-1], msgspec.json.encode(ALWAYS_LOAD))
    try:
        said = _decode_meta(members[_META]) or {}
    except msgspec.MsgspecError:
        # No object: whatever a client makes of it, it is not ours to replace.
        return raw
    return msgspec.json.encode({**members, _META: {**said, **_ALWAYS_LOAD}})
