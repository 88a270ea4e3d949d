"""What a server says about itself in its handshake, for clients that see it as if connected directly.

It is kept as one JSON object with what both eras have: `serverInfo`, `capabilities`, `instructions`; and `era`,
so that the next start need not find it out, unless `sure` is false.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.model import Era

MAX_INTRODUCTION = 64 * 1024
"""Bytes of an introduction that are kept: eight times the longest real instructions; icons in it may be longer
than all else."""

SHORT = ("name", "title", "version", "description", "websiteUrl")
"""The members of `serverInfo` that are kept of one that is longer."""

SHORT_TEXT = 4096
"""Characters that are kept of each of those, and of the instructions beside them."""


class _KeptIntroduction(Struct, omit_defaults=True):
    serverInfo: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name
    capabilities: Raw | UnsetType = UNSET
    instructions: str | UnsetType = UNSET
    era: str | UnsetType = UNSET
    sure: bool = True


_decode = msgspec.json.Decoder(_KeptIntroduction).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_objects = msgspec.json.Decoder(dict[str, object]).decode


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    """What a server has said about itself."""

    info: Raw | None = None
    """Its `serverInfo`, as it wrote that; None if it gave none."""
    capabilities: dict[str, object] = msgspec.field(default_factory=dict)
    """The capabilities that it declares."""
    instructions: str | None = None
    """How it is to be used; None if it does not say."""


def introduction_in(result: bytes, info: object) -> bytes:
    """What is kept of the result of a handshake; empty if that cannot be read.

    Args:
        result: the result of `initialize` or `server/discover`, raw.
        info: the `serverInfo` in it, decoded: the eras have it in different places.
    """
    try:
        said = _decode_members(result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b""
    kept: dict[str, object] = {}
    if isinstance(info, dict):
        # As it was written where it is a member, which is where all but the newest servers have it.
        kept["serverInfo"] = said.get("serverInfo", info)
    if _is_object(capabilities := said.get("capabilities", Raw(b"{}"))):
        kept["capabilities"] = capabilities
    if (instructions := said.get("instructions")) is not None and bytes(instructions)[:1] == b'"':
        kept["instructions"] = instructions
    written = msgspec.json.encode(kept)
    return written if len(written) <= MAX_INTRODUCTION else _shortened(written)


def read_introduction(kept: bytes) -> Introduction | None:
    """What was kept; None if there is nothing, or nothing that can be read."""
    try:
        said = _decode(kept)
        info = None if said.serverInfo is UNSET or not _is_object(said.serverInfo) else said.serverInfo
        capabilities = {} if said.capabilities is UNSET else _decode_objects(said.capabilities)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    instructions = None if said.instructions is UNSET else said.instructions
    return Introduction(info=info, capabilities=capabilities, instructions=instructions)


class KnownEra(msgspec.Struct, frozen=True):
    """The era that a server was last seen to speak."""

    era: Era | None = None
    """None: not known."""
    server: str = ""
    """The server's name and version then; empty if it gave none."""
    sure: bool = True
    """Whether the server has answered a probe, or died of two."""


def with_era(kept: bytes, era: Era, *, sure: bool = True) -> bytes:
    """An introduction with the era that the server speaks; empty if there is none."""
    return kept and msgspec.json.encode(msgspec.structs.replace(_decode(kept), era=era, sure=sure))


def era_in(kept: bytes) -> KnownEra:
    """The era in an introduction."""
    try:
        said = _decode(kept)
        era = Era(said.era) if isinstance(said.era, str) else None
        info = {} if said.serverInfo is UNSET else _decode_objects(said.serverInfo)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return KnownEra()
    return KnownEra(era, f"{info.get('name')} {info.get('version')}" if info else "", said.sure)


def _is_object(raw: Raw) -> bool:
    return bytes(raw)[:1] == b"{"


def _shortened(written: bytes) -> bytes:
    """An introduction that is too long, without its icons and the ends of its texts."""
    said = _decode(written)
    kept: dict[str, object] = {}
    if said.serverInfo is not UNSET:
        info = _decode_objects(said.serverInfo)
        texts = {key: info[key] for key in SHORT if isinstance(info.get(key), str)}
        kept["serverInfo"] = {key: str(text)[:SHORT_TEXT] for key, text in texts.items()}
    if said.capabilities is not UNSET and len(bytes(said.capabilities)) <= MAX_INTRODUCTION // 2:
        kept["capabilities"] = said.capabilities
    if said.instructions is not UNSET:
        kept["instructions"] = said.instructions[:SHORT_TEXT]
    return msgspec.json.encode(kept)
