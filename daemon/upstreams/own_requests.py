"""The requests that the daemon itself makes of a server: the handshake, its lists to their end, and pings.

Handshake. The probe goes first (`server/discover`, 2026-07-28): of 48 real servers all that did not know it
said so, on a connection that then took `initialize`; some with another error code than they should, so any
error means "the older era". A server that ignores the probe or dies of it is remembered by its actor as an
older one.

Everything is bounded: pages, what they list and time, since a server may be broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import msgspec
import trio

from daemon import protocol
from daemon.catalog.kinds import LISTS
from daemon.catalog.listing import MAX_LISTED, read_page
from daemon.causes import Cause, Reason, of_status
from daemon.errors import (
    ConnectionLost,
    ListingFault,
    ProtocolFault,
    StartTimeout,
    UpstreamLost,
    UpstreamTimeout,
)
from daemon.model import Era, Kind
from daemon.protocol import CLIENT_CAPABILITIES, HANDSHAKE_VERSIONS, IDENTITY, MODERN_VERSION, SERVER_INFO_KEY
from daemon.wire.error_objects import MAX_ERROR_BYTES
from daemon.wire.requests import HttpRefusal, RemoteError

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.catalog.listing import ListPage
    from daemon.config.model import Timeouts
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
    speaks_both: bool = False
    """Whether it speaks the handshake era as well as the modern one."""
    server_info: str
    """The server's name and version, for people."""
    others: tuple[str, ...] = ()
    """Its declared capabilities among `OTHERS`."""
    logs: bool = False
    updates: bool = False
    """Whether it declares `logging`, and `resources.subscribe`."""
    announced: tuple[str, ...] = ()
    """Those, `tools` included, with `listChanged`: it says when their lists change."""
    about: str = attrs.field(default="", repr=False)
    """What it says it is for: the beginning of its description, else of its instructions."""
    instructions: str = attrs.field(default="", repr=False)
    """What it says about how to use it."""

    def lists(self, kind: Kind) -> bool:
        """Whether it declares that it lists this kind."""
        return self.lists_tools if kind is Kind.TOOL else LISTS[kind].capability in self.others

    def announces(self, kind: Kind) -> bool:
        """Whether it says when its list of this kind changes."""
        return LISTS[kind].capability in self.announced

    @property
    def wishes(self) -> dict[str, bool]:
        """The members of a `subscriptions/listen` filter that ask for what it announces (MCP 2026-07-28)."""
        return {LISTS[kind].wish: True for kind in Kind if self.announces(kind)}


ABOUT_CHARACTERS = 2000
"""Characters kept of what a server says about itself: only the first sentence is shown, and instructions may be
long."""


INSTRUCTIONS_CHARACTERS = 16_000
"""Characters kept of a server's instructions: twice the longest real ones. An answer shows a part of them."""


class ProbeKilled(ConnectionLost):
    """The server exited when it was probed for its era."""


LONGEST_START = 300.0
"""Seconds up to which a handshake's limit grows: no real server was seen to need more on a busy machine, and
one that hangs is tried again at least this often."""

MAX_DOUBLINGS = 30
"""2^30 times any limit is beyond the longest; without it the power would eventually overflow a float."""


class Greeter:
    """Finds the era that a server speaks and the time that it needs, and remembers both across connections."""

    def __init__(self) -> None:
        self._era: Era | None = None
        self._timeouts_in_a_row = 0
        self._probing = True

    def begin(self, *, probing: bool = True) -> None:
        """Prepare for a new connection; `probing` is False if the probe has just killed the server."""
        self._probing = probing and self._era is not Era.HANDSHAKE

    async def greet(self, connection: UpstreamConnection, timeouts: Timeouts, *, installs: bool) -> Greeting:
        """Open the connection in the era that the server speaks.

        Args:
            connection: the connection to the server.
            timeouts: the server's timeouts.
            installs: whether its first start may have to download it.

        Raises:
            ProbeKilled: the server exited when probed; another connection may do without the probe.
            StartTimeout, ProtocolFault, UpstreamLost: as `initialize`.
        """
        greeting = await self._probe(connection, timeouts) if self._probing else None
        if greeting is None:
            try:
                greeting = await initialize(connection, self.limit(timeouts, installs=installs))
            except StartTimeout:
                # The same limit again would end the same way, and waste all its work.
                self._timeouts_in_a_row += 1
                raise
            except ProtocolFault:
                # A slow starter let the probe time out and answers only now: probe once more.
                greeting = await probe(connection, timeouts.probe) if self._probing else None
                if greeting is None:
                    raise
        self._era = greeting.era
        return greeting

    def limit(self, timeouts: Timeouts, *, installs: bool) -> float:
        """Seconds that the next handshake may take: doubled after each one that timed out."""
        first = timeouts.first_initialize if installs else timeouts.initialize
        return max(first, min(LONGEST_START, first * 2.0 ** min(self._timeouts_in_a_row, MAX_DOUBLINGS)))

    def is_up(self) -> None:
        """Note that the server has come up: its next handshake gets the configured limit."""
        self._timeouts_in_a_row = 0

    async def _probe(self, connection: UpstreamConnection, timeouts: Timeouts) -> Greeting | None:
        try:
            return await probe(connection, timeouts.probe)
        except UpstreamLost as lost:
            if self._era is None:
                raise ProbeKilled(lost.message) from None
            raise


async def probe(connection: UpstreamConnection, seconds: float) -> Greeting | None:
    """Ask for the modern era; None if the server does not speak it.

    Raises:
        UpstreamLost: the probe ended the connection.
    """
    connection.adopt(Era.MODERN, MODERN_VERSION)
    try:
        result = _object(await _discovered(connection, seconds))
    except (RemoteError, UpstreamTimeout, ProtocolFault):
        return None
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or MODERN_VERSION not in versions:
        return None
    both = any(version in versions for version in HANDSHAKE_VERSIONS)
    return attrs.evolve(_greeting(Era.MODERN, MODERN_VERSION, result), speaks_both=both)


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
        "capabilities": CLIENT_CAPABILITIES,
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


def _greeting(era: Era, version: str, result: dict[str, object]) -> Greeting:
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
    )


def _text(parent: dict[str, object], key: str, most: int = ABOUT_CHARACTERS) -> str:
    value = parent.get(key)
    return value.strip()[:most].strip() if isinstance(value, str) else ""


def _member(parent: dict[str, object], key: str) -> dict[str, object]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


MAX_PAGES = 1000
"""Pages of one list: cursors that never end are a server's bug; real servers send one page, rarely a dozen."""

MAX_LIST_BYTES = 64 * 1024 * 1024
"""Bytes of all pages of one list: four of the largest messages. Ten thousand resources have some 5 MB."""

LONG_PAGE = 64 * 1024
"""Bytes of a page from which a worker thread splits it: for a shorter one, asking the thread takes longer."""

PAGES_SHARE = 10
"""How many times the limit of one page all pages together may take: a listing takes seconds."""


async def list_all(connection: UpstreamConnection, kind: Kind, *, seconds: float) -> list[Raw]:
    """List all of one kind, raw (`_list_pages`), within a bound for all pages together."""
    with trio.move_on_after(seconds * PAGES_SHARE):
        return await _list_pages(connection, kind, seconds=seconds)
    longest = seconds * PAGES_SHARE
    text = f"{LISTS[kind].method} did not come to its end within {longest:g} s"
    raise ListingFault(text, Cause.LIST_TIMEOUT, seconds=longest)


async def _list_pages(connection: UpstreamConnection, kind: Kind, *, seconds: float) -> list[Raw]:
    """List all tools, prompts, resources or templates of a server, raw.

    Args:
        connection: the connection to the server.
        kind: what to list.
        seconds: how long each page may take.

    Raises:
        ListingFault: the server refuses, answers something else, does not answer in time, or its pages
            do not end.
        UpstreamLost: the connection ended.
    """
    method = LISTS[kind].method
    listed: list[Raw] = []
    seen: set[str] = set()
    params: dict[str, object] = {}
    size = 0
    for _ in range(MAX_PAGES):
        try:
            result = await connection.request(method, params, timeout=seconds)
            size += len(result)
            page = await _read(kind, result)
        except RemoteError as error:
            text = f"{method} was refused: {error}"
            raise ListingFault(text, Cause.LIST_REFUSED, error=str(error)) from None
        except UpstreamTimeout:
            text = f"no answer to {method} within {seconds:g} s"
            raise ListingFault(text, Cause.LIST_TIMEOUT, seconds=seconds) from None
        except ValueError as error:
            raise ListingFault(str(error), Cause.LIST_REFUSED, error=str(error)) from None
        listed += page.definitions
        if not page.next_cursor or len(listed) > MAX_LISTED:
            return listed
        if page.next_cursor in seen:
            # It is cut further, outside any secret, where it is shown.
            text = f"{method} repeats the cursor {page.next_cursor[:MAX_ERROR_BYTES]!r}"
            raise ListingFault(text, Cause.LIST_ENDLESS)
        if size > MAX_LIST_BYTES:
            raise ListingFault(f"{method} has more than {MAX_LIST_BYTES} bytes", Cause.LIST_ENDLESS)
        seen.add(page.next_cursor)
        params = {"cursor": page.next_cursor}
    raise ListingFault(f"{method} has more than {MAX_PAGES} pages", Cause.LIST_ENDLESS)


async def _read(kind: Kind, result: bytes) -> ListPage:
    if len(result) < LONG_PAGE:
        return read_page(kind, result)
    return await trio.to_thread.run_sync(read_page, kind, result)


async def fallen_silent(connection: UpstreamConnection, era: Era, timeouts: Timeouts) -> Reason:
    """Ping a server after each silence; return the reason once it has left too many pings unanswered.

    Any sign of life counts, and calls in flight are one: a server may be too busy with them to answer pings.
    """
    method = "ping" if era is Era.HANDSHAKE else "server/discover"
    missed = 0
    while missed < timeouts.missed_pings:
        # A deadline rather than a duration: the rest of a duration may be too short to advance the clock.
        due = connection.last_heard + timeouts.ping_interval
        if trio.current_time() < due and not missed:
            await trio.sleep_until(due)
            continue
        try:
            await connection.request(method, {}, timeout=timeouts.ping)
            missed = 0
        except RemoteError:
            missed = 0
        except UpstreamTimeout:
            silent = trio.current_time() - connection.last_heard >= timeouts.ping
            missed = missed + 1 if silent and not connection.in_flight else 0
        if not missed:
            await trio.sleep(timeouts.ping_interval)
    text = f"no answer to {missed} pings of {timeouts.ping:g} s"
    return Reason(text, Cause.NOT_ANSWERING, {"count": missed, "seconds": timeouts.ping})
