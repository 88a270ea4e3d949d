"""The other end of a client connection: its principal, and the subscriber that notifications go to."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import attrs
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.catalog.loaded import OTHERS
from daemon.protocol import ASKED_OF_CLIENTS
from daemon.wire.envelope import METHOD_NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from daemon.config.listen import ConsoleRole
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


@attrs.frozen(kw_only=True)
class Principal:
    """The user or token that a connection's requests come from, and what they may reach."""

    owner: str = ""
    """Whose sessions a key means, as in `uid 1000: ` or `token ci: `; empty: those of the daemon's own user."""
    token: str = ""
    """The name of the token that was shown; empty if none was, or if it has no name."""
    profiles: tuple[str, ...] | None = None
    """The profiles that it may use, the first for requests that name none; None is all of them."""
    console: ConsoleRole | None = None
    """What its token may do in the console; None: nothing."""
    workspaces: tuple[str, ...] | None = None
    """Globs of the directories that it may name as its workspace; None is any."""
    keeps: bool = True
    """Whether what it loads and is shown outside of a session with a key is kept from one request to the next:
    not where nothing tells two clients of a connection apart (MCP 2026-07-28 over HTTP)."""

    def own_key(self, key: str) -> str:
        """A session's key as the daemon knows it: the same key of somebody else means another session."""
        return f"{self.owner}{key}"


def local_user(uid: int, workspaces: tuple[str, ...] = ()) -> Principal:
    """The visitor behind a unix socket, whose user the kernel names; `workspaces` bind all but us and root."""
    if uid == os.getuid():
        return Principal()
    return Principal(owner=f"{OTHERS}{uid}: ", workspaces=workspaces if uid else None)


LOCAL_USER = Principal()
"""The daemon's own user."""


class Subscriber(Protocol):
    """One client, as the sender of notifications and requests that belong to none of its own requests."""

    @property
    def level(self) -> int | None:
        """The level that it has set for the logs of servers; None if it has set none."""

    @property
    def asker(self) -> object:
        """The client, as its requests name it (`wire.requests.Exchange.asker`)."""

    def sees(self, server: str) -> bool:
        """Whether its profile has this server, or it uses this instance of one."""

    def say(self, method: str, params: bytes) -> None:
        """Send what it can do without; dropped if it is behind, or takes nothing just now."""

    def enqueue(self, key: Hashable, method: str, params: bytes, request_id: bytes | None = None) -> None:
        """Send what it must learn, as soon as it takes it.

        Args:
            key: what it is about: of two that wait, only the newer is sent.
            method: the method of the notification.
            params: its params.
            request_id: the request of the client's that it belongs to, if any.
        """

    def is_pending(self, key: Hashable) -> bool:
        """Whether something about this waits for it."""

    def discard_pending(self, key: Hashable) -> None:
        """Send no more what is owed about this."""

    def ask(self, request: PeerRequest, until: float) -> None:
        """Put a server's request to it that belongs to none of its own.

        Args:
            request: the request.
            until: when it ends without an answer, on trio's clock.
        """
