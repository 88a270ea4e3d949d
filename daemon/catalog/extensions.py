"""A server's self-description in its handshake, and extensions of the protocol (SEP-2133).

mcpd passes on an extension with methods only where it passes on the methods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from daemon import protocol
from daemon.catalog.kinds import CHANGED
from daemon.model import Era

KNOWN: Mapping[str, tuple[str, ...]] = {
    protocol.UI: (),
    protocol.TASKS_EXTENSION: ("tasks/get", "tasks/update", "tasks/cancel", protocol.TASK_CHANGED),
    protocol.SKILLS: ("skills/list", protocol.GET_SKILL, protocol.READ_DIRECTORY),
}
"""The extensions that pass on every surface, and the methods and notifications of each, which mcpd routes.

An extension without any is metadata. Others pass between a client and its only server, with their methods.
"""

METHOD = re.compile(r"[A-Za-z0-9_.:$/-]{1,128}")
"""Matches methods that are passed on unread: frames and headers hold them unescaped."""

BASE = frozenset(each.casefold() for each in (*protocol.ASKED_OF_CLIENTS, "notifications", "mcpd"))
"""Methods, or beginnings of methods, of the base protocol that no client may call."""

NOTIFICATIONS = frozenset(
    {
        *(protocol.LOG_MESSAGE, protocol.PROGRESS, protocol.CANCEL, protocol.RESOURCE_UPDATED),
        *(protocol.TASK_STATUS, protocol.ACKNOWLEDGED, protocol.INITIALIZED, protocol.ROOTS_CHANGED),
        "notifications/elicitation/complete",
    }
)
"""Notifications of the base protocol, without those of changed lists."""

KEPT = frozenset(chain.from_iterable(KNOWN.values()))
"""Methods and notifications of known extensions."""

MAX_BYTES = 16 * 1024
"""Bytes of all extensions in one declaration, which modern clients repeat in each request."""

MAX_CACHED = 4 * MAX_BYTES
"""Bytes of the longest declaration whose filtered form is cached."""

SHOWN = 100
"""Characters of a dropped extension's name in the log."""

_encode = msgspec.json.encode


def passes(name: str, *, alone: bool, modern: bool = True) -> bool:
    """Whether an extension passes, `alone` between a client and its only server, or between `modern` sides.

    Tasks pass between modern sides alone: those of MCP 2025-11-25 are no extension.
    """
    return (alone or name in KNOWN) and (modern or name != protocol.TASKS_EXTENSION)


def may_pass(method: str, served: Iterable[str]) -> bool:
    """Whether a method goes unread to a client's only server: no spelling of it is in `served` or mcpd's."""
    plain = method.casefold()
    known = plain in BASE or plain.partition("/")[0] in BASE or plain in map(str.casefold, (*served, *KEPT))
    return not known and METHOD.fullmatch(method) is not None


def is_unknown(notification: str) -> bool:
    """Whether a server's notification goes unread to clients that see the server as itself."""
    known = notification in NOTIFICATIONS or notification in KEPT or notification in CHANGED
    is_own = notification.casefold().startswith("mcpd/")
    return not known and not is_own and METHOD.fullmatch(notification) is not None


def bounded(capabilities: Raw, keeps: Callable[[str], bool] = lambda _name: True) -> tuple[Raw, str]:
    """The capabilities with the usable extensions that `keeps` accepts, and a text about the unusable ones."""
    raw = bytes(capabilities)
    members = protocol.decoded(protocol.decode_members, raw) if may_extend(raw) else None
    if members is None or "extensions" not in members:
        return capabilities, ""
    declared = protocol.decoded(protocol.decode_members, members["extensions"])
    kept: dict[str, Raw] = {}
    dropped, size = [], 0
    for name, own in (declared or {}).items():
        length = len(name.encode()) + len(own)
        if size + length > MAX_BYTES or bytes(own)[:1] != b"{":
            dropped.append(name[:SHOWN])
            continue
        size += length
        if keeps(name):
            kept[name] = own
    about = "" if declared is not None else "`extensions`, which is not an object"
    if dropped:
        more = f" and {len(dropped) - 1} more" if len(dropped) > 1 else ""
        about = f"extension {dropped[0]!r}{more}: not an object, or over {MAX_BYTES} bytes of extensions"
    same = declared is not None and len(kept) == len(declared)
    return (capabilities if same else Raw(_encode({**members, "extensions": kept}))), about


def carried(declared: Raw, *, alone: bool) -> bytes:
    """A client's `ClientCapabilities` with the extensions that are passed on; unchanged if unreadable."""
    raw = bytes(declared)
    return _carried(raw, alone) if len(raw) <= MAX_CACHED else _carried.__wrapped__(raw, alone)


@lru_cache(maxsize=64)
def _carried(raw: bytes, alone: bool) -> bytes:  # noqa: FBT001 - a key of the cache
    return bytes(bounded(Raw(raw), partial(passes, alone=alone))[0])


def with_tasks(declared: bytes) -> bytes:
    """Add the tasks extension (SEP-2663) to `ClientCapabilities`; unchanged if unreadable."""
    try:
        members = protocol.decode_members(declared)
        extensions = protocol.decode_members(members.get("extensions", b"{}"))
    except protocol.UNREADABLE:
        return declared
    return _encode({**members, "extensions": {**extensions, protocol.TASKS_EXTENSION: {}}})


def passed_on(capabilities: Mapping[str, object], *, alone: bool, modern: bool) -> dict[str, Any]:
    """The capabilities without extensions that are not passed on (`passes`)."""
    if "extensions" not in capabilities:
        return {**capabilities}
    found = capabilities["extensions"]
    extensions = found if isinstance(found, dict) else {}
    kept = {name: own for name, own in extensions.items() if passes(name, alone=alone, modern=modern)}
    return {**capabilities, "extensions": kept}


def may_extend(raw: bytes) -> bool:
    """Whether raw JSON may have the member `extensions`."""
    return b"extensions" in raw or b"\\u" in raw


MAX_INTRODUCTION = 64 * 1024
"""Bytes of an introduction: eight times the longest real instructions. One with larger icons is shortened."""

SHORT = ("name", "title", "version", "description", "websiteUrl")
"""Members that are kept of an oversized `serverInfo`."""

SHORT_TEXT = 4096
"""Characters of each text in `SHORT` and of the instructions, and bytes of all other members."""


class Introduction(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server's self-description, as mcpd keeps it."""

    info: Raw | UnsetType = field(name="serverInfo", default=UNSET)
    capabilities: dict[str, object] = {}
    instructions: str | None = None
    others: dict[str, Raw] = {}
    """The other members of the result, including versions."""
    era: str | None = None
    """The era that the server last spoke, if known, and whether that is certain (`KnownEra`)."""
    sure: bool = True

    @property
    def modern(self) -> bool:
        """Whether the server answered `server/discover`."""
        return self.era == Era.MODERN


_decode = msgspec.json.Decoder(Introduction).decode


OWN = frozenset({"serverInfo", "capabilities", "instructions", "resultType", "ttlMs", "cacheScope"})
"""Members of a handshake's result that mcpd keeps in another form, or writes itself."""


def introduction_in(result: bytes, info: object) -> bytes:
    """The part of a handshake's result to keep; empty if unreadable. `info` is its decoded `serverInfo`."""
    members = protocol.decoded(protocol.decode_members, result)
    if members is None:
        return b""
    kept: dict[str, object] = {}
    if isinstance(info, dict):
        # The server's bytes if `serverInfo` is a member, as in all but the newest era.
        kept["serverInfo"] = members.get("serverInfo", info)
    if _is_object(capabilities := members.get("capabilities", Raw(b"{}"))):
        kept["capabilities"] = bounded(capabilities)[0]
    if (instructions := members.get("instructions")) is not None and bytes(instructions)[:1] == b'"':
        kept["instructions"] = instructions
    others: dict[str, object] = {name: own for name, own in members.items() if name not in OWN}
    if "_meta" in others and _is_object(members["_meta"]):
        meta = protocol.decode_members(members["_meta"])
        others["_meta"] = {key: own for key, own in meta.items() if key != protocol.SERVER_INFO_KEY}
    if others:
        kept["others"] = others
    written = _encode(kept)
    return written if len(written) <= MAX_INTRODUCTION else _shortened(written)


def read_introduction(kept: bytes) -> Introduction | None:
    """Decode a kept introduction; None if it is absent or unreadable."""
    return protocol.decoded(_decode, kept)


class KnownEra(msgspec.Struct, frozen=True):
    """The era that a server last spoke."""

    era: Era | None = None
    server: str = ""
    """The server's name and version when it spoke that era."""
    sure: bool = True
    """Whether the era is certain: the server has answered a probe, or exited during two."""


def with_era(kept: bytes, era: Era, *, sure: bool = True) -> bytes:
    """Add the server's era to an introduction; an unreadable one stays as it is."""
    known = read_introduction(kept)
    return kept if known is None else _encode(msgspec.structs.replace(known, era=era, sure=sure))


def era_in(kept: bytes) -> KnownEra:
    """The era in a kept introduction."""
    known = read_introduction(kept)
    if known is None or known.era not in {None, *Era}:
        return KnownEra()
    info = None if known.info is UNSET else protocol.decoded(protocol.decode_object, known.info)
    server = f"{info.get('name')} {info.get('version')}" if info else ""
    return KnownEra(Era(known.era) if known.era else None, server, known.sure)


def _is_object(raw: Raw) -> bool:
    return bytes(raw)[:1] == b"{"


def _shortened(written: bytes) -> bytes:
    if (whole := read_introduction(written)) is None:
        return b""
    info = None if whole.info is UNSET else protocol.decoded(protocol.decode_object, whole.info)
    texts = {key: text[:SHORT_TEXT] for key in SHORT if isinstance(text := (info or {}).get(key), str)}
    capabilities, others = whole.capabilities, whole.others
    return _encode(
        Introduction(
            info=UNSET if info is None else Raw(_encode(texts)),
            capabilities=capabilities if len(_encode(capabilities)) <= MAX_INTRODUCTION // 2 else {},
            instructions=whole.instructions and whole.instructions[:SHORT_TEXT],
            others=others if len(_encode(others)) <= SHORT_TEXT else {},
        )
    )
