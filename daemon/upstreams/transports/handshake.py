"""Finding out which era of MCP a server speaks, and opening the conversation in it.

The probe goes first (`server/discover`, 2026-07-28): of 48 real servers all that did not know it said so, on a
connection that then took `initialize`; some with another error code than they should, so any error means
"the older era". A server that ignores the probe or dies of it is remembered by its actor as an older one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import msgspec
from msgspec import Struct

from daemon.causes import Cause, of_status
from daemon.errors import ConnectionLost, ProtocolFault, StartTimeout, UpstreamLost, UpstreamTimeout
from daemon.model import Era
from daemon.protocol import HANDSHAKE_VERSIONS, IDENTITY, MODERN_VERSION, SERVER_INFO_KEY
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from daemon.config.model import Timeouts
    from daemon.ports import UpstreamConnection


OTHERS = ("prompts", "resources")
"""What a server without any tool may well be good for."""


@attrs.frozen(kw_only=True)
class Greeting:
    """What a server said of itself."""

    era: Era
    """How it is spoken to."""
    version: str
    """The protocol revision agreed on."""
    lists_tools: bool
    """Whether it declares tools."""
    announces_changes: bool
    """Whether it declares `tools.listChanged`."""
    server_info: str
    """Its name and version, for people."""
    others: tuple[str, ...] = ()
    """What it declares to have besides tools, of `OTHERS`."""
    about: str = attrs.field(default="", repr=False)
    """What it says that it is for: its description, else its instructions, no more than begins them."""


ABOUT_CHARACTERS = 2000
"""Of what a server says of itself: its first sentence is shown, and instructions may be a book."""


class ProbeKilled(ConnectionLost):
    """The server ended when it was asked which era it speaks."""


LONGEST_START = 300.0
"""Seconds to which a handshake's limit grows: no real server was seen to need more on a busy machine,
and one that hangs is tried again at least so often."""


MAX_DOUBLINGS = 30
"""2^30 times any limit is beyond the longest; without it the power would overflow a float in the end."""


class Greeter:
    """Finds a server's era, and the time that it needs; remembers both from one connection to the next."""

    def __init__(self) -> None:
        self._era: Era | None = None
        self._timeouts_in_a_row = 0
        self._probing = True

    def begin(self, *, probing: bool = True) -> None:
        """A new connection is about to be made; `probing` False: ask nothing that might kill it again."""
        self._probing = probing and self._era is not Era.HANDSHAKE

    async def greet(self, connection: UpstreamConnection, timeouts: Timeouts, *, installs: bool) -> Greeting:
        """Open the conversation, in whichever era the server speaks.

        Args:
            connection: where.
            timeouts: the server's.
            installs: whether its first start may have to download it.

        Raises:
            ProbeKilled: the server ended when asked; another connection may do without asking.
            StartTimeout, ProtocolFault, UpstreamLost: as `initialize`.
        """
        greeting = await self._probe(connection, timeouts) if self._probing else None
        if greeting is None:
            try:
                greeting = await initialize(connection, self.limit(timeouts, installs=installs))
            except StartTimeout:
                # The same time again would end in the same way, with all its work done in vain.
                self._timeouts_in_a_row += 1
                raise
            except ProtocolFault:
                # Slow to start, it let the probe time out, and only now talks: ask once more.
                greeting = await probe(connection, timeouts.probe) if self._probing else None
                if greeting is None:
                    raise
        self._era = greeting.era
        return greeting

    def limit(self, timeouts: Timeouts, *, installs: bool) -> float:
        """Seconds for the next handshake: twice as many after each that was too short."""
        first = timeouts.first_initialize if installs else timeouts.initialize
        return max(first, min(LONGEST_START, first * 2.0 ** min(self._timeouts_in_a_row, MAX_DOUBLINGS)))

    def is_up(self) -> None:
        """The server has come up: the next time it gets the time that is configured."""
        self._timeouts_in_a_row = 0

    async def _probe(self, connection: UpstreamConnection, timeouts: Timeouts) -> Greeting | None:
        try:
            return await probe(connection, timeouts.probe)
        except UpstreamLost as lost:
            if self._era is None:
                raise ProbeKilled(lost.message) from None
            raise


async def probe(connection: UpstreamConnection, seconds: float) -> Greeting | None:
    """Ask for the modern era. None if the server does not speak it.

    Raises:
        UpstreamLost: the probe ended the connection.
    """
    connection.adopt(Era.MODERN, MODERN_VERSION)
    try:
        raw = await connection.request("server/discover", {}, timeout=seconds)
        result = _object(raw)
    except (RemoteError, UpstreamTimeout, ProtocolFault):
        return None
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or MODERN_VERSION not in versions:
        return None
    return _greeting(Era.MODERN, MODERN_VERSION, result)


async def initialize(connection: UpstreamConnection, seconds: float) -> Greeting:
    """Open the conversation in the handshake era.

    Raises:
        StartTimeout: no answer within `seconds`.
        ProtocolFault: the server refuses, or answers something else, or speaks no version that we do.
        UpstreamLost: the connection ended.
    """
    connection.adopt(Era.HANDSHAKE, HANDSHAKE_VERSIONS[-1])
    params: dict[str, object] = {
        "protocolVersion": HANDSHAKE_VERSIONS[-1],
        "capabilities": {},
        "clientInfo": IDENTITY,
    }
    try:
        raw = await connection.request("initialize", params, timeout=seconds)
    except UpstreamTimeout:
        text = f"no answer to initialize within {seconds:g} s"
        raise StartTimeout(text, Cause.HANDSHAKE_TIMEOUT, seconds=seconds) from None
    except RemoteError as error:
        raise _refusal(error) from None
    result = _object(raw)
    version = result.get("protocolVersion")
    if version not in HANDSHAKE_VERSIONS:
        text = f"no common protocol version: the server wants {version!r}"
        raise ProtocolFault(text, Cause.NO_COMMON_VERSION, version=repr(version))
    greeting = _greeting(Era.HANDSHAKE, str(version), result)
    connection.adopt(Era.HANDSHAKE, greeting.version)
    connection.notify("notifications/initialized")
    return greeting


class _HttpAnswer(Struct):
    """The `data` of an error that stands for an HTTP error: the transport's words, not the server's."""

    httpStatus: int  # noqa: N815 - as it stands in the JSON
    place: str


def _refusal(error: RemoteError) -> ProtocolFault:
    text = f"initialize was refused: {error}"
    try:
        answer = msgspec.json.decode(error.data, type=_HttpAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ProtocolFault(text, Cause.HANDSHAKE_REFUSED, error=str(error))
    return ProtocolFault(text, of_status(answer.httpStatus), place=answer.place, status=answer.httpStatus)


def _object(raw: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolFault(f"the answer to the handshake is no object: {error}") from None


def _greeting(era: Era, version: str, result: dict[str, object]) -> Greeting:
    capabilities = _member(result, "capabilities")
    tools = _member(capabilities, "tools")
    if era is Era.HANDSHAKE:
        info = _member(result, "serverInfo")
    else:
        info = _member(_member(result, "_meta"), SERVER_INFO_KEY)
    return Greeting(
        era=era,
        version=version,
        lists_tools="tools" in capabilities,
        announces_changes=tools.get("listChanged") is True,
        others=tuple(each for each in OTHERS if each in capabilities),
        server_info=f"{info.get('name', 'unnamed')} {info.get('version', '')}".strip(),
        about=_text(info, "description") or _text(result, "instructions"),
    )


def _text(parent: dict[str, object], key: str) -> str:
    value = parent.get(key)
    return value.strip()[:ABOUT_CHARACTERS].strip() if isinstance(value, str) else ""


def _member(parent: dict[str, object], key: str) -> dict[str, object]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}
