"""Extensions of the protocol (SEP-2133); one with methods passes only as far as its methods do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache

import msgspec
from msgspec import Raw

from daemon import protocol
from daemon.catalog.kinds import CHANGED
from daemon.protocol import GET_SKILL, READ_DIRECTORY, SKILLS, TASKS_EXTENSION, UI, UNREADABLE, decode_members


class Reach(IntEnum):
    """The surfaces on which an extension passes."""

    ALONE = 1
    """Between a client and the one server that it has chosen, where unknown methods pass, too."""
    SHARED = 2


class Extension(msgspec.Struct, frozen=True):
    """A known extension: metadata if it has no methods."""

    reach: Reach
    methods: tuple[str, ...] = ()
    modern: bool = False
    """Whether both sides must speak MCP 2026-07-28."""


KNOWN: Mapping[str, Extension] = {
    UI: Extension(Reach.SHARED),
    TASKS_EXTENSION: Extension(
        Reach.SHARED,
        ("tasks/get", "tasks/update", "tasks/cancel", protocol.TASK_CHANGED),
        modern=True,
    ),
    SKILLS: Extension(Reach.SHARED, ("skills/list", GET_SKILL, READ_DIRECTORY)),
}

UNKNOWN = Extension(Reach.ALONE)

METHOD = re.compile(r"[A-Za-z0-9_.:$/-]{1,128}")
"""Methods that pass unread: frames and headers hold them unescaped."""

BASE = frozenset(each.casefold() for each in (*protocol.ASKED_OF_CLIENTS, "notifications", "mcpd"))
"""Methods of the base protocol that no client may call, and beginnings of such."""

NOTIFICATIONS = frozenset(
    {
        *(protocol.LOG_MESSAGE, protocol.PROGRESS, protocol.CANCEL, protocol.RESOURCE_UPDATED),
        *(protocol.TASK_STATUS, protocol.ACKNOWLEDGED, protocol.INITIALIZED, protocol.ROOTS_CHANGED),
        "notifications/elicitation/complete",
    }
)
"""Notifications of the base protocol, except of changed lists."""

KEPT = frozenset(method for each in KNOWN.values() if each.reach is not Reach.ALONE for method in each.methods)
"""Methods and notifications of known extensions that pass as mcpd routes them."""

MAX_BYTES = 16 * 1024
"""Bytes of all extensions in one declaration, which modern clients repeat in each request."""

MAX_CACHED = 4 * MAX_BYTES
"""Bytes of the longest declaration whose filtered form is kept."""

SHOWN = 100
"""Characters of a dropped extension's name in the log."""

_encode = msgspec.json.encode


def passes(name: str, *, alone: bool, modern: bool = True) -> bool:
    """Whether an extension passes, `alone` between a client and its only server, or between `modern` sides."""
    known = KNOWN.get(name, UNKNOWN)
    return known.reach >= (Reach.ALONE if alone else Reach.SHARED) and (modern or not known.modern)


def may_pass(method: str, served: Iterable[str]) -> bool:
    """Whether a method outside of `served`, in any case, goes unread to a client's only server."""
    plain = method.casefold()
    known = plain in BASE or plain.partition("/")[0] in BASE or plain in map(str.casefold, (*served, *KEPT))
    return not known and METHOD.fullmatch(method) is not None


def is_unknown(notification: str) -> bool:
    """Whether a server's notification goes unread to clients that have chosen the server alone."""
    known = notification in NOTIFICATIONS or notification in KEPT or notification in CHANGED
    is_own = notification.casefold().startswith("mcpd/")
    return not known and not is_own and METHOD.fullmatch(notification) is not None


def read_extensions(said: Raw) -> tuple[dict[str, Raw], str]:
    """The usable extensions of a declaration, and in words which others are dropped and why."""
    try:
        members = decode_members(said)
    except UNREADABLE:
        return {}, "`extensions`, which is no object"
    kept: dict[str, Raw] = {}
    dropped, size = [], 0
    for name, own in members.items():
        length = len(name.encode()) + len(own)
        if size + length <= MAX_BYTES and bytes(own)[:1] == b"{":
            kept[name], size = own, size + length
        else:
            dropped.append(name[:SHOWN])
    if not dropped:
        return kept, ""
    more = f" and {len(dropped) - 1} more" if len(dropped) > 1 else ""
    return kept, f"extension {dropped[0]!r}{more}: no object, or beyond {MAX_BYTES} bytes of extensions"


def bounded(capabilities: Raw) -> tuple[Raw, str]:
    """Capabilities with their usable extensions alone, and what was dropped in words."""
    told = bytes(capabilities)
    try:
        members = decode_members(told) if may_extend(told) else {}
    except UNREADABLE:
        return capabilities, ""
    if "extensions" not in members:
        return capabilities, ""
    kept, dropped = read_extensions(members["extensions"])
    return Raw(_encode({**members, "extensions": kept})) if dropped else capabilities, dropped


def carried(declared: Raw, *, alone: bool) -> bytes:
    """A client's `ClientCapabilities` with the extensions that pass; unreadable ones stay as they are."""
    told = bytes(declared)
    if not may_extend(told):
        return told
    return _carried(told, alone) if len(told) <= MAX_CACHED else _carried.__wrapped__(told, alone)


def with_tasks(declared: bytes) -> bytes:
    """`ClientCapabilities` with the tasks extension (SEP-2663); unreadable ones stay as they are."""
    try:
        members = decode_members(declared)
        extensions = decode_members(members.get("extensions", b"{}"))
    except UNREADABLE:
        return declared
    return _encode({**members, "extensions": {**extensions, TASKS_EXTENSION: {}}})


@lru_cache(maxsize=64)
def _carried(told: bytes, alone: bool) -> bytes:  # noqa: FBT001 - a key of the cache
    try:
        members = decode_members(told)
    except UNREADABLE:
        return told
    if "extensions" not in members:
        return told
    said, dropped = read_extensions(members["extensions"])
    kept = {name: own for name, own in said.items() if passes(name, alone=alone)}
    if len(kept) == len(said) and not dropped:
        return told
    return _encode({**members, "extensions": kept})


def passed_on(declared: Mapping[str, object], *, alone: bool, modern: bool) -> dict[str, object]:
    """The extensions in decoded capabilities that pass (`passes`)."""
    said = declared.get("extensions")
    extensions = said if isinstance(said, dict) else {}
    return {name: own for name, own in extensions.items() if passes(name, alone=alone, modern=modern)}


def joined(passed: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """The union of several servers' extensions; the first one's value wins."""
    union: dict[str, object] = {}
    for each in passed:
        union = {**each, **union}
    return union


def may_extend(told: bytes) -> bool:
    """Whether raw JSON may have the member `extensions`."""
    return b"extensions" in told or b"\\u" in told
