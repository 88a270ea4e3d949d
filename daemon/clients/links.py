"""Resources that results link to, which clients read from the linking server: URIs may repeat elsewhere.

Results are searched only if their server has resources, and decoded only if the markers occur.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from daemon.catalog.qualifying import app_link
from daemon.kit.waiting import keep_latest
from daemon.protocol import decoded
from daemon.wire.envelope import Buffer

MAX_LINKS = 1000
"""Links kept for one session, the newest: a model reads what it has just seen."""

MAX_OWNERS = 64
"""Principals without sessions whose links are kept, the latest: about one for each token."""

MAX_SEARCHED = 256 * 1024
"""Bytes of the longest result searched, in a millisecond: a thousand links take fewer. Links in a longer result
are not kept."""

LONGEST = 4096
"""Characters of the longest URI kept: a server may link to a thousand."""

MARKERS = (b'"resource', b'"contents"')
"""The markers of a result that names resources: content (MCP, `resource` and `resource_link`), and contents of
a read."""


def note_links(links: dict[str, str], server: str, uris: Iterable[str]) -> None:
    """Record that a server has linked to these URIs; `links` maps URIs to servers, the newest last."""
    for uri in uris:
        keep_latest(links, uri, server, MAX_LINKS)


def links_of(principals: dict[tuple[str, str], dict[str, str]], owner: str, profile: str) -> dict[str, str]:
    """The links of the clients of one principal and profile without sessions, who cannot be told apart."""
    links = principals.get((owner, profile), {})
    keep_latest(principals, (owner, profile), links, MAX_OWNERS)
    return links


def linked_in(result: Buffer) -> tuple[str, ...]:
    """The URIs of the resources that a result links to, embeds, reads or is shown by; mostly empty."""
    if len(result) > MAX_SEARCHED:
        return ()
    raw = bytes(result)
    if not any(marker in raw for marker in MARKERS):
        return ()
    found = decoded(msgspec.json.decode, raw)
    named = (
        *map(_named_by, _objects_in(found, "content")),
        *(_named_by(each.get("content")) for each in _objects_in(found, "messages")),
        *(each.get("uri") for each in _objects_in(found, "contents")),
        app_link(found.get("_meta") if isinstance(found, dict) else None).page,
    )
    return tuple(uri for uri in named[:MAX_LINKS] if isinstance(uri, str) and 0 < len(uri) < LONGEST)


def _objects_in(found: object, key: str) -> list[dict[str, object]]:
    listed = found.get(key) if isinstance(found, dict) else None
    return listed if isinstance(listed, list) and all(isinstance(each, dict) for each in listed) else []


def _named_by(block: object) -> object:
    if not isinstance(block, dict):
        return None
    embedded = block.get("resource")
    if block.get("type") == "resource_link":
        return block.get("uri")
    return embedded.get("uri") if block.get("type") == "resource" and isinstance(embedded, dict) else None
