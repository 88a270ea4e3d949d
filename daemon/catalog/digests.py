"""Hashes of what a caller of a tool depends on."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.config.model import Server

HASHED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""The members of a tool that a model reads or a client acts on (design.md §6)."""


def canonical(value: object) -> bytes:
    """JSON with sorted keys, no white space and UTF-8 unescaped, in the spirit of RFC 8785.

    Raises:
        RecursionError: the value is nested deeper than the interpreter follows.
    """
    return msgspec.json.encode(value, order="sorted")


def schema_hash(parts: Mapping[str, bytes]) -> str:
    """Hex SHA-256 of the canonical JSON of a tool's `HASHED` members; an absent member is left out.

    Args:
        parts: the tool's top-level members, each raw JSON.

    Raises:
        msgspec.DecodeError: a member is no JSON.
        RecursionError: a member is nested too deeply.
    """
    relevant = {name: msgspec.json.decode(parts[name]) for name in HASHED if name in parts}
    return hashlib.sha256(canonical(relevant)).hexdigest()


def content_hash(parts: Mapping[str, bytes]) -> str:
    """`schema_hash` without the name: equal for a tool before and after it is renamed.

    Raises:
        msgspec.DecodeError: a member is no JSON.
        RecursionError: a member is nested too deeply.
    """
    return schema_hash({name: value for name, value in parts.items() if name != "name"})


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
