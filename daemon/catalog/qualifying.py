"""MCP Apps (SEP-1865) and Skills (SEP-2640): URIs that name their server, in definitions and results.

Two servers may have the same `ui://` or `skill://` URI, and need not list either, so that a collision stays
unseen; hosts cache both by URI. Where a client sees several servers, these URIs name theirs from the start.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon.catalog.naming import is_page, mcpd_uri
from daemon.model import NO_APP, AppLink

if TYPE_CHECKING:
    from collections.abc import Callable


META = "_meta"
UI = "ui"
RESOURCE_URI = "resourceUri"
FLAT = "ui/resourceUri"
"""The form of `_meta.ui.resourceUri` before 2026, which servers still write beside it."""

_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_many = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_decode_text = msgspec.json.Decoder(str).decode
_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError)


def app_link(meta: object) -> AppLink:
    """A tool's app and audience by its decoded `_meta`; faulty members count as missing."""
    if not isinstance(meta, dict):
        return NO_APP
    said = meta.get(UI)
    ui = said if isinstance(said, dict) else {}
    page, audience = ui.get(RESOURCE_URI, meta.get(FLAT)), ui.get("visibility")
    page = page if isinstance(page, str) and is_page(page) else ""
    audience = audience if isinstance(audience, list) else ["model", "app"]
    return AppLink(page=page, for_models="model" in audience, for_apps="app" in audience)


def with_own_page(meta: bytes, server: str) -> bytes:
    """A tool's raw `_meta` with its app's URI qualified by the server."""
    with suppress(*_ERRORS):
        members = _decode(meta)
        if FLAT in members:
            members[FLAT] = _qualified(members[FLAT], server)
        if UI in members:
            ui = _decode(members[UI])
            members[UI] = Raw(msgspec.json.encode({**ui, RESOURCE_URI: _qualified(ui[RESOURCE_URI], server)}))
        return msgspec.json.encode(members)
    return meta


def _qualified(raw: Raw, server: str) -> Raw:
    return Raw(msgspec.json.encode(mcpd_uri(server, _decode_text(raw))))


def with_uris(raw: bytes | memoryview | Raw, member: str, name: Callable[[str], str]) -> bytes:
    """A raw object in which `name` has named the `uri` of each object in the array `member`.

    An object without such an array stays as it is.
    """
    said = bytes(raw)
    with suppress(*_ERRORS):
        members = _decode(said)
        found = _decode_many(members[member])
        for each in found:
            each["uri"] = Raw(msgspec.json.encode(name(_decode_text(each["uri"]))))
        return msgspec.json.encode({**members, member: found})
    return said
