"""What the results that a client was given link to: such a resource is read from the server that linked it.

Two servers may mean different things by one URI, and most links are to resources that no server lists. Results
are looked through only if their server has resources, and decoded only if they say so: no other pays for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.kit.waiting import keep_latest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.wire.envelope import Buffer

MAX_LINKS = 1000
"""Links of one session that are remembered, the newest: a model reads what it was just told of."""

MAX_OWNERS = 64
"""Visitors without sessions whose links are remembered, those that came last: there are as many as tokens."""

LOOKED_THROUGH = 256 * 1024
"""Bytes of the longest result in which links are looked for, in a millisecond at most: a thousand links have
fewer. What a longer one links to is found as if it had not been linked."""

LONGEST = 4096
"""Characters of the longest URI that is remembered: a server may link to a thousand."""

MARKERS = (b'"resource', b'"contents"')
"""What a result with a resource in it has in it: both types of content that name one begin with the first (MCP,
`resource` and `resource_link`), what was read of one is the second."""


def note_links(links: dict[str, str], server: str, uris: Iterable[str]) -> None:
    """Remember that a server has linked to these; `links` has the servers by URI, the newest last."""
    for uri in uris:
        keep_latest(links, uri, server, MAX_LINKS)


def links_of(principals: dict[tuple[str, str], dict[str, str]], owner: str, profile: str) -> dict[str, str]:
    """The links of all clients without sessions that are one principal, and use one profile.

    Nothing tells such clients apart (`clients.client.Principal.keeps`); they are allowed the same.
    """
    links = principals.get((owner, profile), {})
    keep_latest(principals, (owner, profile), links, MAX_OWNERS)
    return links


def linked_in(result: Buffer) -> tuple[str, ...]:
    """The URIs of the resources that a result links to, embeds or is the contents of; most have none."""
    if len(result) > LOOKED_THROUGH:
        return ()
    raw = bytes(result)
    if not any(marker in raw for marker in MARKERS):
        return ()
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    named = (
        *map(_named_by, _objects_in(found, "content")),
        *(_named_by(each.get("content")) for each in _objects_in(found, "messages")),
        *(each.get("uri") for each in _objects_in(found, "contents")),
    )
    return tuple(uri for uri in named[:MAX_LINKS] if isinstance(uri, str) and 0 < len(uri) < LONGEST)


def _objects_in(found: object, key: str) -> list[dict[str, object]]:
    """The objects in a member that is a list of nothing else."""
    listed = found.get(key) if isinstance(found, dict) else None
    return listed if isinstance(listed, list) and all(isinstance(each, dict) for each in listed) else []


def _named_by(block: object) -> object:
    """The URI of what a block of content links to or embeds."""
    if not isinstance(block, dict):
        return None
    embedded = block.get("resource")
    if block.get("type") == "resource_link":
        return block.get("uri")
    return embedded.get("uri") if block.get("type") == "resource" and isinstance(embedded, dict) else None
