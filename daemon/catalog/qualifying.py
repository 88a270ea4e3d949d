"""MCP Apps (SEP-1865) and Skills (SEP-2640): URIs that name their server, as hosts cache by URI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
from msgspec import Raw

from daemon.catalog.naming import MCPD, app_uri, is_page, mcpd_uri
from daemon.model import NO_APP, AppLink
from daemon.protocol import UNREADABLE, decode_members, decode_text

META = "_meta"
UI = "ui"
RESOURCE_URI = "resourceUri"
FLAT = "ui/resourceUri"
"""The form of `_meta.ui.resourceUri` before 2026, which servers still write as well."""

_decode_many = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_ERRORS = (*UNREADABLE, KeyError)


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
        members = decode_members(meta)
        if FLAT in members:
            members[FLAT] = _qualified(members[FLAT], server)
        if UI in members:
            ui = decode_members(members[UI])
            members[UI] = Raw(msgspec.json.encode({**ui, RESOURCE_URI: _qualified(ui[RESOURCE_URI], server)}))
        return msgspec.json.encode(members)
    return meta


def _qualified(raw: Raw, server: str) -> Raw:
    return Raw(msgspec.json.encode(mcpd_uri(server, decode_text(raw))))


def skill_uri(server: str, own: str) -> str:
    """The URI of a skill's file that includes its server and ends like the server's own (SEP-2640, URIs)."""
    kept = app_uri(server, own)
    return f"{MCPD}{server}/{own}" if kept == own else kept


def skill_fault(entry: Mapping[str, object]) -> str:
    """The reason why a skill's entry is unusable; empty if it is not."""
    front, files = entry.get("frontmatter"), entry.get("resources")
    if not isinstance(front, dict) or not isinstance(front.get("name"), str):
        return "its frontmatter has no name, which SEP-2640 requires"
    listed = are_named(files, "uri") or files == "dynamic"
    return "" if listed else "its resources are no list of files with a uri"


def are_named(items: object, member: str) -> bool:
    """Whether a decoded value is a list of objects that all have a text as this member."""
    return isinstance(items, list) and all(
        isinstance(each, dict) and isinstance(each.get(member), str) for each in items
    )


def with_skill(raw: bytes | memoryview | Raw, name: Callable[[str], str]) -> bytes:
    """A raw result with the `skill` in it named by `name`."""
    said = bytes(raw)
    with suppress(*_ERRORS):
        members = decode_members(said)
        skill = decode_members(members["skill"])
        named = msgspec.json.encode({**skill, "uri": name(decode_text(skill["uri"]))})
        return msgspec.json.encode({**members, "skill": Raw(with_uris("resources", named, name))})
    return said


def with_uris(member: str, raw: bytes | memoryview | Raw, name: Callable[[str], str]) -> bytes:
    """A raw object in which `name` has named the `uri` of each object in the array `member`, if any."""
    said = bytes(raw)
    with suppress(*_ERRORS):
        members = decode_members(said)
        found = _decode_many(members[member])
        for each in found:
            each["uri"] = Raw(msgspec.json.encode(name(decode_text(each["uri"]))))
        return msgspec.json.encode({**members, member: found})
    return said
