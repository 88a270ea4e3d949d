"""A server's self-description from its handshake, for clients that see it as if connected directly."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.catalog.extensions import bounded
from daemon.model import Era
from daemon.protocol import SERVER_INFO_KEY, UNREADABLE, decode_members, decode_object, decoded

MAX_INTRODUCTION = 64 * 1024
"""Bytes of an introduction: eight times the longest real instructions; icons may be longer."""

SHORT = ("name", "title", "version", "description", "websiteUrl")
"""Members kept of an oversized `serverInfo`."""

SHORT_TEXT = 4096
"""Characters of each of those, and of the instructions; bytes of all other members."""


class _KeptIntroduction(Struct, omit_defaults=True):
    serverInfo: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name
    capabilities: Raw | UnsetType = UNSET
    instructions: str | UnsetType = UNSET
    others: Raw | UnsetType = UNSET
    era: str | UnsetType = UNSET
    sure: bool = True


_decode = msgspec.json.Decoder(_KeptIntroduction).decode


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    """A kept self-description of a server."""

    info: Raw | None = None
    capabilities: dict[str, object] = msgspec.field(default_factory=dict)
    instructions: str | None = None
    modern: bool = False
    """Whether the server has introduced itself by `server/discover`."""
    others: dict[str, Raw] = msgspec.field(default_factory=dict)
    """The other members of the result, the versions among them."""


OWN = frozenset({"serverInfo", "capabilities", "instructions", "resultType", "ttlMs", "cacheScope"})
"""Members of a handshake's result that are kept in another form, or written by mcpd itself."""


def introduction_in(result: bytes, info: object) -> bytes:
    """The part of a handshake's raw result to keep; empty if unreadable. `info` is its decoded `serverInfo`."""
    said = decoded(decode_members, result)
    if said is None:
        return b""
    kept: dict[str, object] = {}
    if isinstance(info, dict):
        # The server's bytes if `serverInfo` is a member, as in all but the newest era.
        kept["serverInfo"] = said.get("serverInfo", info)
    if _is_object(capabilities := said.get("capabilities", Raw(b"{}"))):
        kept["capabilities"] = bounded(capabilities)[0]
    if (instructions := said.get("instructions")) is not None and bytes(instructions)[:1] == b'"':
        kept["instructions"] = instructions
    others: dict[str, object] = {name: own for name, own in said.items() if name not in OWN}
    if "_meta" in others and _is_object(said["_meta"]):
        others["_meta"] = {
            key: own for key, own in decode_members(said["_meta"]).items() if key != SERVER_INFO_KEY
        }
    if others:
        kept["others"] = others
    written = msgspec.json.encode(kept)
    return written if len(written) <= MAX_INTRODUCTION else _shortened(written)


def read_introduction(kept: bytes) -> Introduction | None:
    """The kept introduction; None if absent or unreadable."""
    try:
        said = _decode(kept)
        info = None if said.serverInfo is UNSET or not _is_object(said.serverInfo) else said.serverInfo
        capabilities = {} if said.capabilities is UNSET else decode_object(said.capabilities)
        others = {} if said.others is UNSET else decode_members(said.others)
    except UNREADABLE:
        return None
    instructions = None if said.instructions is UNSET else said.instructions
    modern = said.era == Era.MODERN
    return Introduction(
        info=info, capabilities=capabilities, instructions=instructions, modern=modern, others=others
    )


class KnownEra(msgspec.Struct, frozen=True):
    """The era that a server last spoke."""

    era: Era | None = None
    server: str = ""
    """The server's name and version then."""
    sure: bool = True
    """Whether the server answered a probe, or died of two."""


def with_era(kept: bytes, era: Era, *, sure: bool = True) -> bytes:
    """An introduction with the server's era; empty stays empty."""
    return kept and msgspec.json.encode(msgspec.structs.replace(_decode(kept), era=era, sure=sure))


def era_in(kept: bytes) -> KnownEra:
    """The era in a kept introduction."""
    try:
        said = _decode(kept)
        era = Era(said.era) if isinstance(said.era, str) else None
        info = {} if said.serverInfo is UNSET else decode_object(said.serverInfo)
    except (*UNREADABLE, ValueError):
        return KnownEra()
    return KnownEra(era, f"{info.get('name')} {info.get('version')}" if info else "", said.sure)


def _is_object(raw: Raw) -> bool:
    return bytes(raw)[:1] == b"{"


def _shortened(written: bytes) -> bytes:
    said = _decode(written)
    kept: dict[str, object] = {}
    if said.serverInfo is not UNSET:
        info = decode_object(said.serverInfo)
        texts = {key: info[key] for key in SHORT if isinstance(info.get(key), str)}
        kept["serverInfo"] = {key: str(text)[:SHORT_TEXT] for key, text in texts.items()}
    if said.capabilities is not UNSET and len(bytes(said.capabilities)) <= MAX_INTRODUCTION // 2:
        kept["capabilities"] = said.capabilities
    if said.instructions is not UNSET:
        kept["instructions"] = said.instructions[:SHORT_TEXT]
    if said.others is not UNSET and len(bytes(said.others)) <= SHORT_TEXT:
        kept["others"] = said.others
    return msgspec.json.encode(kept)
