"""What the results that a client was given link to: such a resource is read from the server that linked it.

Two servers may mean different things by one URI, and most links are to resources that no server lists. Results
are looked through only if their server has resources, and decoded only if they say so: no other pays for it.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.kit.mailbox import keep_latest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from daemon.wire.envelope import Buffer

MAX_LINKS = 1000
"""Links of one session that are remembered, the newest: a model reads what it was just told of."""

MAX_OWNERS = 64
"""Visitors without sessions whose links are remembered, those that came last: there are as many as tokens."""

LOOKED_THROUGH = 256 * 1024
"""Bytes of the longest result in which links are looked for, in a millisecond at most: a thousand links have
fewer. What a longer one links to is found as if it had not been linked."""

LONGEST = 4096
"""Bytes of the longest URI that is remembered: a server may link to a thousand."""

MARKERS = (b'"resource', b'"contents"')
"""What a result with a resource in it has in it: both types of content that name one begin with the first (MCP,
`resource` and `resource_link`), what was read of one is the second."""


class _ContentBlock(Struct):
    type: Raw = Raw(b"null")
    uri: Raw = Raw(b"null")
    resource: Raw = Raw(b"null")


class _PromptMessage(Struct):
    content: Raw = Raw(b"null")


class _Result(Struct):
    content: list[_ContentBlock] | UnsetType = UNSET
    messages: list[_PromptMessage] | UnsetType = UNSET
    contents: list[_ContentBlock] | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Result).decode
_decode_block = msgspec.json.Decoder(_ContentBlock).decode
_decode_text = msgspec.json.Decoder(str).decode
_FAULTS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


LINK, EMBEDDED = Raw(b'"resource_link"'), Raw(b'"resource"')
"""The types of those blocks of content, raw."""

_B = TypeVar("_B")


class Links:
    """The servers that have linked to resources, by the resources' URIs."""

    def __init__(self) -> None:
        """Begin without any."""
        self.servers: dict[str, str] = {}
        """The servers by the URIs that they have linked to, the newest last."""

    def note(self, server: str, uris: Iterable[str]) -> None:
        """Remember that a server has linked to these."""
        for uri in uris:
            keep_latest(self.servers, uri, server, MAX_LINKS)


class LinksOfVisitors:
    """The links of clients whose requests have no session, together for all that are one visitor.

    Nothing tells such clients apart (`clients.client.Principal.keeps`); they are allowed the same.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._links: dict[tuple[str, str], Links] = {}

    def of(self, owner: str, profile: str) -> Links:
        """The links of one owner's requests with a profile (`clients.client.Principal.owner`)."""
        key = owner, profile
        links = self._links.get(key) or Links()
        keep_latest(self._links, key, links, MAX_OWNERS)
        return links


def linked_in(result: Buffer) -> tuple[str, ...]:
    """The URIs of the resources that a result links to, embeds or is the contents of; most have none."""
    if len(result) > LOOKED_THROUGH:
        return ()
    raw = bytes(result)
    if not any(marker in raw for marker in MARKERS):
        return ()
    try:
        found = _decode(raw)
    except _FAULTS:
        return ()
    named = chain(
        chain.from_iterable(map(_named_by, _listed(found.content))),
        chain.from_iterable(_named_by(block) for each in _listed(found.messages) for block in _blocks_of(each)),
        (each.uri for each in _listed(found.contents)),
    )
    return tuple(uri for uri in map(_text, islice(named, MAX_LINKS)) if uri)


def _listed(blocks: list[_B] | UnsetType) -> list[_B]:
    return [] if blocks is UNSET else blocks


def _blocks_of(message: _PromptMessage) -> Iterator[_ContentBlock]:
    """The content of a prompt's message: one block, or a list of them."""
    with suppress(*_FAULTS):
        yield _decode_block(message.content)


def _named_by(block: _ContentBlock) -> Iterator[Raw]:
    """The URI of what a block of content links to or embeds, raw."""
    if block.type == LINK:
        yield block.uri
    elif block.type == EMBEDDED:
        with suppress(*_FAULTS):
            yield _decode_block(block.resource).uri


def _text(uri: Raw) -> str:
    if len(uri) > LONGEST:
        return ""
    try:
        return _decode_text(uri)
    except _FAULTS:
        return ""
