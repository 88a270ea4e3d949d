"""Hashes of tools, as whoever is shown them sees them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.config.model import Server


def canonical(value: object) -> bytes:
    """JSON with sorted keys, no white space and UTF-8 unescaped, in the spirit of RFC 8785.

    Raises:
        RecursionError: the value is nested deeper than the interpreter follows.
    """
    return msgspec.json.encode(value, order="sorted")


def hashes(members: Mapping[str, object]) -> tuple[str, str]:
    """The `schema_hash` and the `content_hash` of a tool.

    Args:
        members: its definition, decoded: all of it counts, for whoever is shown it may depend on any of it.

    Returns:
        Hex SHA-256 of its canonical JSON (design.md §6); and the same without the name, which is equal for a
        tool before and after it is renamed.

    Raises:
        RecursionError: a member is nested too deeply.
    """
    # Each member once, and what is between them as `canonical` would write it.
    written = {name: b"%b:%b" % (canonical(name), canonical(members[name])) for name in sorted(members)}
    whole = hashlib.sha256(b"{%b}" % b",".join(written.values())).hexdigest()
    written.pop("name", None)
    return whole, hashlib.sha256(b"{%b}" % b",".join(written.values())).hexdigest()


def tools_digest(hashes: Iterable[str]) -> str:
    """Hex SHA-256 of a server's tools, in any order: what a summary of the server is made of."""
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()


def fingerprint(server: Server) -> str:
    """Hex SHA-256 of what decides which server answers: two configurations with one may share what was learned.

    Timeouts, limits, descriptions and the like do not count.
    """
    decisive = {
        "type": str(server.type),
        "command": server.command,
        "args": list(server.args),
        "env": dict(server.env),
        "cwd": server.cwd,
        "url": server.url,
        "headers": dict(server.headers),
    }
    return hashlib.sha256(canonical(decisive)).hexdigest()
