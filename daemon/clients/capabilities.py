"""What a client can be asked, as it has declared, and what a server is told in place of one that cannot."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.protocol import ASKED_OF_CLIENTS
from daemon.wire.envelope import METHOD_NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.wire.requests import PeerRequest

NOTHING = Raw(b"{}")
"""The capabilities of a client that has declared none."""

DECLINED = b'{"action":"decline"}'
"""The answer to an elicitation in place of a client that cannot ask its user (MCP, elicitation)."""

MAX_DECLARED = 64 * 1024
"""Bytes of the longest declaration that is read, each time a server asks; real ones have some hundred."""


class _Asked(Struct):
    mode: object = None
    tools: Raw | UnsetType = UNSET
    toolChoice: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder(dict[str, object]).decode
_decode_asked = msgspec.json.Decoder(_Asked).decode


def has(capabilities: Raw, *wanted: str) -> bool:
    """Whether a client has declared a capability: its name, and that of a part of it if only that matters."""
    try:
        return _has(_declared(capabilities), wanted)
    except _UNREADABLE:
        return False


def declared_in(capabilities: Raw) -> Mapping[str, object]:
    """What a client has declared, decoded; nothing if that cannot be read, or is too long."""
    try:
        return _declared(capabilities)
    except _UNREADABLE:
        return {}


def lacking(capabilities: Raw, request: PeerRequest) -> str:
    """The capability that a client lacks to be asked this, in words; empty if it has declared all of them.

    Args:
        capabilities: what the client has declared, raw (MCP, `ClientCapabilities`).
        request: what it is to be asked.
    """
    try:
        declared = _declared(capabilities)
        asked = _Asked() if request.params is None else _decode_asked(request.params)
    except _UNREADABLE:
        return "params that can be read"
    wanted = next((part for part in _needed(request.method, asked) if not _has(declared, part)), ())
    return ".".join(wanted)


@lru_cache(maxsize=64)
def answerable(capabilities: bytes) -> frozenset[str]:
    """The methods of servers' requests that a client can answer, in one form at least."""
    declared = declared_in(Raw(capabilities))
    return frozenset(each for each in ASKED_OF_CLIENTS if declared.get(each.partition("/")[0]) is not None)


def answer_instead(request: PeerRequest, lacks: str) -> None:
    """Answer in place of a client that cannot: an elicitation is declined, all else refused."""
    if request.method == "elicitation/create":
        request.answer(DECLINED)
    else:
        text = f"the client that called does not support {request.method}: it has not declared {lacks}"
        request.refuse(METHOD_NOT_FOUND, text)


def _declared(capabilities: Raw) -> dict[str, object]:
    return _decode(capabilities) if len(capabilities) <= MAX_DECLARED else {}


def _needed(method: str, asked: _Asked) -> list[tuple[str, ...]]:
    if method == "roots/list":
        return [("roots",)]
    if method == "sampling/createMessage":
        with_tools = asked.tools is not UNSET or asked.toolChoice is not UNSET
        return [("sampling",), ("sampling", "tools")] if with_tools else [("sampling",)]
    return [("elicitation", "url")] if asked.mode == "url" else [("elicitation", "form")]


def _has(declared: Mapping[str, object], wanted: tuple[str, ...]) -> bool:
    members = declared.get(wanted[0])
    if not isinstance(members, dict):
        return False
    if wanted == ("elicitation", "form"):
        # Until 2025-11-25 an empty object was the whole declaration, and still means forms.
        return "form" in members or "url" not in members
    return len(wanted) == 1 or wanted[1] in members
