"""The handshake: which era of MCP a server speaks, what it says about itself, and how long it may take to.

The probe goes first (`server/discover`, 2026-07-28): of 48 real servers all that did not know it said so, on a
connection that then took `initialize`; some with another error code than they should, so any error means "the
older era". The era is remembered, also by the next daemon (`catalog.introduction`): many servers write a page
to stderr when they are probed in vain. A run that ends during the probe is a failed run like any other, and the
next run goes without the probe, in case the probe was what the server died of: not if nobody was reached. If
that run comes up, the next one is probed again, since the first may have failed for another reason: only a
server that dies of the probe a second time is not probed any more.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import msgspec

from daemon import protocol
from daemon.catalog.introduction import KnownEra, era_in, introduction_in, with_era
from daemon.catalog.kinds import LISTS
from daemon.causes import Cause, of_status
from daemon.config.config_model import EraWish
from daemon.errors import ProtocolFault, StartTimeout, UpstreamLost, UpstreamTimeout
from daemon.model import Era, Kind
from daemon.protocol import HANDSHAKE_VERSIONS, IDENTITY, MODERN_VERSION, SERVER_INFO_KEY
from daemon.wire.requests import HttpRefusal, RemoteError

if TYPE_CHECKING:
    from daemon.config.tuning import Timeouts
    from daemon.ports import UpstreamConnection

OTHERS = ("prompts", "resources")
"""Capabilities that make a server without tools useful all the same."""


@attrs.frozen(kw_only=True)
class Greeting:
    """What a server said about itself in the handshake."""

    era: Era
    """The era of MCP that it speaks."""
    version: str
    """The protocol revision agreed on."""
    lists_tools: bool
    """Whether it declares tools."""
    server_info: str
    """The server's name and version, for people."""
    others: tuple[str, ...] = ()
    """Its declared capabilities among `OTHERS`."""
    logs: bool = False
    updates: bool = False  # whether it declares `logging`, and `resources.subscribe`
    announced: tuple[str, ...] = ()
    """Those, `tools` included, with `listChanged`: it says when their lists change."""
    about: str = attrs.field(default="", repr=False)
    """What it says it is for: the beginning of its description, else of its instructions."""
    instructions: str = attrs.field(default="", repr=False)
    """What it says about how to use it."""
    introduction: bytes = attrs.field(default=b"", repr=False)
    """All that it says about itself (`catalog.introduction`)."""

    def lists(self, kind: Kind) -> bool:
        """Whether it declares that it lists this kind."""
        return self.lists_tools if kind is Kind.TOOL else LISTS[kind].capability in self.others

    def announces(self, kind: Kind) -> bool:
        """Whether it says when its list of this kind changes."""
        return LISTS[kind].capability in self.announced

    @property
    def wishes(self) -> dict[str, bool]:
        """A `subscriptions/listen` filter for what it announces (MCP 2026-07-28)."""
        return {LISTS[kind].wish: True for kind in Kind if self.announces(kind)}


DEATHS = frozenset({Cause.CONNECTION_LOST, Cause.ENDED, Cause.EXITED, Cause.KILLED})
"""Ends of a run that a probe may have brought about; a server that could not be connected to was not probed."""

ABOUT_CHARACTERS = 2000
"""Characters kept of what a server says about itself: only the first sentence is shown, and instructions may be
long."""


INSTRUCTIONS_CHARACTERS = 16_000
"""Characters kept of a server's instructions: twice the longest real ones. An answer shows a part of them."""


LONGEST_START = 300.0
"""Seconds up to which a handshake's limit grows: no real server was seen to need more on a busy machine, and
one that hangs is tried again at least this often."""

MAX_DOUBLINGS = 30
"""2^30 times any limit is beyond the longest; without it the power would eventually overflow a float."""


class Greeter:
    """Finds the era that a server speaks and the time that it needs, and remembers both across connections."""

    def __init__(self) -> None:
        self._known = KnownEra()
        self._timeouts_in_a_row = 0
        self._probing, self._may_probe = False, True
        self._died_probed = False
        """Whether the last run ended during the probe."""

    def begin(
        self, wish: EraWish = EraWish.AUTO, remembered: bytes = b"", *, last: Cause | None = None
    ) -> None:
        """Prepare for a new connection.

        Args:
            wish: the era that the configuration names.
            remembered: what the server has said of itself before (`catalog.introduction`).
            last: why the last run ended; None before the first run.
        """
        self._may_probe = wish is not EraWish.HANDSHAKE
        if wish is not EraWish.AUTO:
            self._probing = wish is EraWish.MODERN
            return
        if self._known.era is None:
            self._known = era_in(remembered)
        is_handshake = self._known.era is Era.HANDSHAKE and self._known.sure
        may_die = self._known.era is not Era.MODERN and self._died_probed and last in DEATHS
        self._probing = not is_handshake and not may_die
        self._died_probed = False

    async def greet(self, connection: UpstreamConnection, timeouts: Timeouts, *, installs: bool) -> Greeting:
        """Open the connection in the era that the server speaks.

        Args:
            connection: the connection to the server.
            timeouts: the server's timeouts.
            installs: whether its first start may have to download it.

        Raises:
            StartTimeout, ProtocolFault, UpstreamLost: as `initialize`.
        """
        try:
            greeting = await probe(connection, timeouts.probe) if self._probing else None
        except UpstreamLost:
            self._died_probed = True
            raise
        if greeting is None:
            try:
                greeting = await initialize(connection, self.limit(timeouts, installs=installs))
            except StartTimeout:
                # The same limit again would end the same way, and waste all its work.
                self._timeouts_in_a_row += 1
                raise
            except ProtocolFault:
                # A slow starter let the probe time out and answers only now, or was not probed this time.
                with suppress(UpstreamLost):
                    greeting = await probe(connection, timeouts.probe) if self._may_probe else None
                if greeting is None:
                    raise
        return self._remembered(greeting)

    def limit(self, timeouts: Timeouts, *, installs: bool) -> float:
        """Seconds that the next handshake may take: doubled after each one that timed out."""
        first = timeouts.first_initialize if installs else timeouts.initialize
        return max(first, min(LONGEST_START, first * 2.0 ** min(self._timeouts_in_a_row, MAX_DOUBLINGS)))

    def is_up(self) -> None:
        """Note that the server has come up: its next handshake gets the configured limit."""
        self._timeouts_in_a_row = 0

    def _remembered(self, greeting: Greeting) -> Greeting:
        """Remember the era, unless the server is another version than the one that was probed in vain."""
        # Without a probe the era is a guess, until the server dies of the next one, too.
        sure = self._probing or self._known.era is Era.HANDSHAKE
        told = with_era(greeting.introduction, greeting.era, sure=sure)
        now = era_in(told)
        if self._known.era is Era.HANDSHAKE and self._known.server not in {"", now.server}:
            self._known = KnownEra()
            return greeting
        self._known = KnownEra(greeting.era, now.server, sure)
        return attrs.evolve(greeting, introduction=told)


async def probe(connection: UpstreamConnection, seconds: float) -> Greeting | None:
    """Ask for the modern era; None if the server does not speak it.

    Raises:
        UpstreamLost: the probe ended the connection.
    """
    connection.adopt(Era.MODERN, MODERN_VERSION)
    try:
        raw = await _discovered(connection, seconds)
        result = _object(raw)
    except (RemoteError, UpstreamTimeout, ProtocolFault):
        return None
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or MODERN_VERSION not in versions:
        return None
    return _greeting(Era.MODERN, MODERN_VERSION, result, raw)


async def _discovered(connection: UpstreamConnection, seconds: float) -> bytes:
    try:
        return await connection.request("server/discover", {}, timeout=seconds)
    except RemoteError as error:
        supported = error.code == protocol.UNSUPPORTED_VERSION and _object(error.data).get("supported")
        if not isinstance(supported, list) or MODERN_VERSION not in supported:
            raise
    # It refuses our version and names it among its own, as one does that has just changed: it is asked again.
    return await connection.request("server/discover", {}, timeout=seconds)


async def initialize(connection: UpstreamConnection, seconds: float) -> Greeting:
    """Open the connection in the handshake era.

    Raises:
        StartTimeout: no answer within `seconds`.
        ProtocolFault: the server refuses, answers something else, or has no protocol version in common with us.
        UpstreamLost: the connection ended.
    """
    connection.adopt(Era.HANDSHAKE, HANDSHAKE_VERSIONS[-1])
    params: dict[str, object] = {
        "protocolVersion": HANDSHAKE_VERSIONS[-1],
        "capabilities": connection.capabilities,
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
    greeting = _greeting(Era.HANDSHAKE, str(version), result, raw)
    connection.adopt(Era.HANDSHAKE, greeting.version)
    connection.notify("notifications/initialized")
    return greeting


def _refusal(error: RemoteError) -> ProtocolFault:
    text = f"initialize was refused: {error}"
    if isinstance(error, HttpRefusal):
        return ProtocolFault(text, of_status(error.status), place=error.place, status=error.status)
    return ProtocolFault(text, Cause.HANDSHAKE_REFUSED, error=str(error))


def _object(raw: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolFault(f"the answer to the handshake is no object: {error}") from None


def _greeting(era: Era, version: str, result: dict[str, object], raw: bytes) -> Greeting:
    capabilities = _member(result, "capabilities")
    if era is Era.HANDSHAKE:
        info = _member(result, "serverInfo")
    else:
        info = _member(_member(result, "_meta"), SERVER_INFO_KEY)
    return Greeting(
        era=era,
        version=version,
        lists_tools="tools" in capabilities,
        others=tuple(each for each in OTHERS if each in capabilities),
        logs="logging" in capabilities,
        updates=_member(capabilities, "resources").get("subscribe") is True,
        announced=tuple(
            each for each in ("tools", *OTHERS) if _member(capabilities, each).get("listChanged") is True
        ),
        server_info=f"{info.get('name', 'unnamed')} {info.get('version', '')}".strip(),
        about=_text(info, "description") or _text(result, "instructions"),
        instructions=_text(result, "instructions", INSTRUCTIONS_CHARACTERS),
        introduction=introduction_in(raw, info),
    )


def _text(parent: dict[str, object], key: str, most: int = ABOUT_CHARACTERS) -> str:
    value = parent.get(key)
    return value.strip()[:most].strip() if isinstance(value, str) else ""


def _member(parent: dict[str, object], key: str) -> dict[str, object]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}
