"""How names are spelt where the tools, the prompts or the resources of several servers are listed together.

A name that is taken, or that reads as another server's, is spelt with its server's: `server__tool`. A URI is
spelt `mcpd://SERVER/<percent-encoded>` then, as is one without a scheme, which is no URI: clients refuse a
whole list for it. A template follows `mcpd://SERVER/` as it is, so that what a client expands it to can be read
as exactly what the server's own template would have become.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import attrs

from daemon.config.names import CLIENT_PREFIX, SERVER_NAME, read_reference, read_shown, spellings
from daemon.model import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from daemon.model import ToolKey

MCPD = "mcpd://"
"""How the URIs begin that say themselves whose they are."""

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""The scheme that a URI begins with (RFC 3986, 3.1)."""

_OWN = re.compile(r"(?!mcpd://)(?:[a-z][a-z0-9+.-]*:|[^{]*\{)", re.IGNORECASE)
"""What may stay as it is: a URI or a template, but none that begins like ours."""

_QUOTED = tuple(quote(bytes([byte]), safe="") for byte in range(256))
"""Each byte as it is written in a URI; `quote` takes ten times as long, and there may be ten thousand URIs."""


@attrs.frozen
class Spelling:
    """The rules for the names of one kind."""

    kind: Kind
    """The kind that is stored with a name."""
    ways: Callable[[ToolKey], Iterator[str]]
    """The possible names of a server's own name, the best first; one of them is always free."""
    misleads: Callable[[str, str, Collection[str]], bool]
    """Whether a name, given to one server's, reads as a reference to another's of these servers."""


def of_tool(key: ToolKey) -> Iterator[str]:
    """Possible names of a tool or a prompt, its own first. Endless: servers may have others of such names."""
    server, own = key
    bare, slashed, prefixed = spellings(server, own)
    yield from (bare, f"{server}__{own}", slashed, prefixed)
    for number in count(2):
        # A server's name has no slash: this one reads as no other server's tool.
        yield from (f"{server}__{own}_{number}", f"{server}/{own}_{number}")


def misleads(name: str, server: str, servers: Collection[str]) -> bool:
    """Whether a name for a tool of one server reads as a reference to a tool of another one."""
    if "/" not in name and "__" not in name:
        return False
    key = referred(name, servers)
    if key is None and (rest := without_client_prefix(name)):
        key = referred(rest, servers)
    return key is not None and key[0] != server


def referred(name: str, servers: Collection[str]) -> ToolKey | None:
    """The tool that `server/tool`, `server__tool` or `mcp__server__tool` means; None for an unknown server."""
    for read in (read_reference, read_shown):
        reference = read(name, servers)
        if reference.server is not None and reference.server in servers:
            return reference.server, reference.tool
    return None


def without_client_prefix(name: str) -> str:
    """`name` in `mcp__us__name`, as clients write the names that we give; empty for other spellings."""
    if not name.startswith(CLIENT_PREFIX):
        return ""
    rest = name.removeprefix(CLIENT_PREFIX).partition("__")[2]
    return "" if rest.startswith(CLIENT_PREFIX) else rest


def of_uri(key: ToolKey) -> Iterator[str]:
    """Possible names of a URI or a template: itself, unless it is no URI or one of ours, and `mcpd_uri`."""
    server, own = key
    if _OWN.match(own):
        yield own
    yield mcpd_uri(server, own)


def mcpd_uri(server: str, own: str) -> str:
    """The URI that says itself whose it is."""
    return f"{MCPD}{server}/{own if '{' in own else ''.join(map(_QUOTED.__getitem__, own.encode()))}"


def is_mcpd(uri: str) -> bool:
    """Whether a URI has our scheme, in whatever case: clients may write schemes in lower case."""
    return uri[: len(MCPD)].lower() == MCPD


def read_mcpd_uri(uri: str) -> ToolKey | None:
    """The server, and its own URI, that one of our URIs means; None if it is malformed."""
    server, slash, rest = uri[len(MCPD) :].partition("/")
    server = server.lower()
    if not is_mcpd(uri) or not slash or not SERVER_NAME.fullmatch(server):
        return None
    if SCHEME.match(rest):
        # A colon is always encoded in `mcpd_uri`: this is an expanded template, or was written by hand.
        return server, rest
    try:
        own = unquote(rest, errors="strict")
    except UnicodeDecodeError:
        return None
    return (server, own) if own else None


TOOLS = Spelling(Kind.TOOL, of_tool, misleads)
PROMPTS = Spelling(Kind.PROMPT, of_tool, misleads)
URIS = Spelling(Kind.RESOURCE, of_uri, lambda _name, _server, _servers: False)
