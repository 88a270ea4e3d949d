"""The handshake, which finds a server's era and capabilities; then pings and timeouts.

A probe (`server/discover`, 2026-07-28) goes first: any error means the older era, and `initialize` follows. The
next daemon remembers the era, too. A run that ends during the probe has failed. The next run skips the probe,
in case it killed the server; after two such runs, mcpd probes no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath

import attrs
import msgspec
import trio
from msgspec import Raw

from daemon import protocol
from daemon.catalog.extensions import KnownEra, bounded, era_in, introduction_in, passed_on, with_era
from daemon.catalog.kinds import LISTS
from daemon.causes import HEALTHY, Cause, Reason, of_status
from daemon.config.config_model import EraWish, Server
from daemon.config.tuning import Timeouts
from daemon.errors import ProtocolFault, StartTimeout, UpstreamLost, UpstreamTimeout
from daemon.kit.wording import counted, span
from daemon.model import Era, Kind
from daemon.ports import UpstreamConnection
from daemon.upstreams.call_admission import Admission
from daemon.wire.envelope import HttpRefusal, RemoteError


@attrs.define(eq=False, repr=False)
class Keepalive:
    """Pings one connection after each silence, and reports when the server does not answer."""

    _connection: UpstreamConnection
    _timeouts: Timeouts
    _on_change: Callable[[Reason], None] = lambda _problem: None
    """Gets the reason when the server becomes degraded, then `HEALTHY`."""
    unanswered: int = attrs.field(default=0, init=False)
    """Unanswered pings in a row."""
    last_ms: float | None = attrs.field(default=None, init=False)
    """Milliseconds that the last answered ping took; None before the first."""
    _missed: int = attrs.field(default=0, init=False)
    _is_silent: bool = attrs.field(default=False, init=False)

    @property
    def silence(self) -> float:
        """Seconds since the server was last heard."""
        return max(0.0, trio.current_time() - self._connection.last_heard)

    @property
    def problem(self) -> Reason:
        """Why the server is degraded, with current numbers; `HEALTHY` if it answers."""
        if not self._is_silent:
            return HEALTHY
        calls, seconds = self._connection.in_flight, round(self.silence)
        pings, heard = counted(self.unanswered, "ping"), f"last heard {span(seconds)} ago"
        said = f"answers no pings ({pings} so far), and was {heard}"
        if calls:
            said = f"answers no pings while it works on {counted(calls, 'call')}, {heard}"
        return Reason(
            said, Cause.UNANSWERED_PINGS, {"count": self.unanswered, "seconds": seconds, "calls": calls}
        )

    async def run(self, era: Era) -> Reason:
        """Ping after each silence; return the reason once too many pings in a row stayed unanswered.

        Any message is a sign of life. Pings during calls do not count: a busy server is only degraded.
        """
        method = "ping" if era is Era.HANDSHAKE else "server/discover"
        while self._missed < self._timeouts.missed_pings:
            # A deadline rather than a duration: the rest of a duration may be too short to advance the clock.
            due = self._connection.last_heard + self._timeouts.ping_interval
            if trio.current_time() < due and not self.unanswered:
                await trio.sleep_until(due)
            elif await self._shows_life(method):
                self._is_well()
                await trio.sleep(self._timeouts.ping_interval)
        seconds = self._timeouts.ping
        text = f"no answer to {self._missed} pings of {seconds:g} s"
        return Reason(text, Cause.NOT_ANSWERING, {"count": self._missed, "seconds": seconds})

    async def _shows_life(self, method: str) -> bool:
        sent, beside_calls = trio.current_time(), self._connection.in_flight > 0
        seconds = self._timeouts.ping
        if beside_calls and sent < self._verdict_at:
            seconds = min(seconds, self._verdict_at - sent)
        try:
            await self._connection.request(method, {}, timeout=seconds)
        except RemoteError:
            return True
        except UpstreamTimeout:
            if self._connection.last_heard > sent:
                return True
            self._was_unanswered(beside_calls=beside_calls, had_its_time=seconds == self._timeouts.ping)
            return False
        self.last_ms = round((trio.current_time() - sent) * 1000, 3)
        return True

    @property
    def _verdict_at(self) -> float:
        """The time at which a silent server with calls counts as degraded: each ping has had its time."""
        interval = self._timeouts.ping_interval
        return self._connection.last_heard + interval + max(interval, self._timeouts.ping)

    def _was_unanswered(self, *, beside_calls: bool, had_its_time: bool) -> None:
        self.unanswered += 1
        self._missed = 0 if self._connection.in_flight else self._missed + had_its_time
        if self._is_silent or (beside_calls and trio.current_time() < self._verdict_at):
            return
        self._is_silent = True
        self._on_change(self.problem)

    def _is_well(self) -> None:
        self.unanswered = self._missed = 0
        if self._is_silent:
            self._is_silent = False
            self._on_change(HEALTHY)


OTHERS = ("prompts", "resources")
"""Capabilities that make a server useful even without tools."""


@attrs.frozen(kw_only=True)
class Greeting:
    """A server's answer in the handshake."""

    era: Era
    version: str
    """The agreed protocol revision."""
    lists_tools: bool
    server_info: str
    others: tuple[str, ...] = ()
    """The server's declared capabilities among `OTHERS`."""
    logs: bool = False
    updates: bool = False  # `resources.subscribe`
    skills: bool = False
    announced: tuple[str, ...] = ()
    """The capabilities with `listChanged`, `tools` included."""
    about: str = attrs.field(default="", repr=False)
    """The beginning of the server's description, or else of its instructions."""
    instructions: str = attrs.field(default="", repr=False)
    introduction: bytes = attrs.field(default=b"", repr=False)
    """The server's whole handshake answer (`catalog.extensions`)."""
    dropped: str = attrs.field(default="", repr=False)
    """The server's extensions that mcpd drops, in words."""

    def lists(self, kind: Kind) -> bool:
        """Whether the server declares a list of this kind."""
        if kind is Kind.SKILL:
            return self.skills
        return self.lists_tools if kind is Kind.TOOL else LISTS[kind].capability in self.others

    def announces(self, kind: Kind) -> bool:
        """Whether the server announces changes of its list of this kind."""
        return LISTS[kind].capability in self.announced

    @property
    def wishes(self) -> dict[str, bool]:
        """A `subscriptions/listen` filter for the lists whose changes the server announces (MCP 2026-07-28)."""
        return {LISTS[kind].wish: True for kind in Kind if self.announces(kind)}


ROOTS: Mapping[str, object] = {"listChanged": True}
"""The roots capability that mcpd declares for a client that has a workspace but did not declare roots."""


def capabilities_of(server: Server) -> Mapping[str, object]:
    """The capabilities (MCP, `ClientCapabilities`) declared to a server: its client's, or any client's."""
    instance = server.instance
    if instance is None or instance.capabilities is None:
        return protocol.CLIENT_CAPABILITIES
    # Only what mcpd can pass on: a client may declare more, and would never be asked.
    declared = {
        key: instance.capabilities[key] for key in protocol.CLIENT_CAPABILITIES if key in instance.capabilities
    }
    declared = passed_on(declared, alone=True, modern=False)
    return declared if instance.workspace is None else {"roots": ROOTS, **declared}


def roots_of(server: Server) -> bytes | None:
    """The answer to an instance that asks for roots, if its client has none; None without a workspace."""
    if server.instance is None or server.instance.workspace is None:
        return None
    directory = PurePosixPath(server.instance.workspace)
    return msgspec.json.encode({"roots": [{"uri": directory.as_uri(), "name": directory.name}]})


DEATHS = frozenset({Cause.CONNECTION_LOST, Cause.ENDED, Cause.EXITED, Cause.KILLED})
"""Causes of a run's end that a probe may have brought about; a server that was never reached was not probed."""

ABOUT_CHARACTERS = 2000
"""Most characters kept of a server's description, of which only the first sentence is shown."""


INSTRUCTIONS_CHARACTERS = 16_000
"""Most characters kept of a server's instructions: twice as many as the longest real ones have."""


LONGEST_START = 300.0
"""Most seconds to which a handshake's limit grows: more than any real server needed on a busy machine."""

MAX_DOUBLINGS = 30
"""Most doublings of the limit: 2^30 times any limit exceeds the longest; more would overflow a float."""


class Greeter:
    """Finds out a server's era and how long its handshake takes, and remembers both across connections."""

    def __init__(self) -> None:
        self._known = KnownEra()
        self._timeouts_in_a_row = 0
        self._probing, self._may_probe = False, True
        self._died_probed = False
        """Whether the last run ended during the probe."""

    def begin(
        self, wish: EraWish = EraWish.AUTO, remembered: bytes = b"", *, last: Cause | None = None
    ) -> None:
        """Prepare for a connection; `remembered`: the last introduction, `last`: why the last run ended."""
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
        """Open the connection in the server's era; `installs`: it may download. Raises as `initialize`."""
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
        """Seconds that the next handshake may take, doubled after each handshake that timed out."""
        first = timeouts.first_initialize if installs else timeouts.initialize
        return max(first, min(LONGEST_START, first * 2.0 ** min(self._timeouts_in_a_row, MAX_DOUBLINGS)))

    def is_up(self) -> None:
        """Note that the server is up: its next handshake gets the configured limit again."""
        self._timeouts_in_a_row = 0

    def _remembered(self, greeting: Greeting) -> Greeting:
        """Remember the era; forget a known handshake era once the server's version differs."""
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
    """Try the modern era; None if the server does not speak it. Raises UpstreamLost if the server hangs up."""
    connection.adopt(Era.MODERN, protocol.MODERN_VERSION)
    try:
        raw = await _discovered(connection, seconds)
        result = _object(raw)
    except (RemoteError, UpstreamTimeout, ProtocolFault):
        return None
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or protocol.MODERN_VERSION not in versions:
        return None
    return _greeting(Era.MODERN, protocol.MODERN_VERSION, result, raw)


async def _discovered(connection: UpstreamConnection, seconds: float) -> bytes:
    try:
        return await connection.request("server/discover", {}, timeout=seconds)
    except RemoteError as error:
        supported = error.code == protocol.UNSUPPORTED_VERSION and _object(error.data).get("supported")
        if not isinstance(supported, list) or protocol.MODERN_VERSION not in supported:
            raise
    # It refuses our version and names it among its own, as one does that has just changed: it is asked again.
    return await connection.request("server/discover", {}, timeout=seconds)


async def initialize(connection: UpstreamConnection, seconds: float) -> Greeting:
    """Open the connection in the handshake era.

    Raises StartTimeout: no answer within `seconds`; ProtocolFault: the server refuses, or shares no version
    with mcpd; UpstreamLost: the connection ended.
    """
    connection.adopt(Era.HANDSHAKE, protocol.HANDSHAKE_VERSIONS[-1])
    params: dict[str, object] = {
        "protocolVersion": protocol.HANDSHAKE_VERSIONS[-1],
        "capabilities": connection.capabilities,
        "clientInfo": protocol.IDENTITY,
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
    if version not in protocol.HANDSHAKE_VERSIONS:
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
    except protocol.UNREADABLE as error:
        raise ProtocolFault(f"the answer to the handshake is not an object: {error}") from None


def _greeting(era: Era, version: str, result: dict[str, object], raw: bytes) -> Greeting:
    capabilities = _member(result, "capabilities")
    if era is Era.HANDSHAKE:
        info = _member(result, "serverInfo")
    else:
        info = _member(_member(result, "_meta"), protocol.SERVER_INFO_KEY)
    return Greeting(
        era=era,
        version=version,
        lists_tools="tools" in capabilities,
        others=tuple(each for each in OTHERS if each in capabilities),
        logs="logging" in capabilities,
        updates=_member(capabilities, "resources").get("subscribe") is True,
        skills=protocol.SKILLS in _member(capabilities, "extensions"),
        announced=tuple(
            each for each in ("tools", *OTHERS) if _member(capabilities, each).get("listChanged") is True
        ),
        server_info=f"{info.get('name', 'unnamed')} {info.get('version', '')}".strip(),
        about=_text(info, "description") or _text(result, "instructions"),
        instructions=_text(result, "instructions", INSTRUCTIONS_CHARACTERS),
        introduction=introduction_in(raw, info),
        dropped=bounded(protocol.decode_members(raw).get("capabilities", Raw(b"{}")))[1],
    )


def _text(parent: dict[str, object], key: str, most: int = ABOUT_CHARACTERS) -> str:
    value = parent.get(key)
    return value.strip()[:most].strip() if isinstance(value, str) else ""


def _member(parent: dict[str, object], key: str) -> dict[str, object]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


EXPIRY_CHECKS = 1.0
"""Seconds between checks for calls that timed out, while any are in flight."""


async def keep_expiring(
    admission: Admission, timeouts: Timeouts, flush: Callable[[], None], problem: Callable[[], str] = str
) -> None:
    """Expire calls that are silent, run or queue too long, until cancelled; `problem`: unanswered pings.

    Only `callMax` bounds a call whose server waits for its client.
    """
    server, connection = admission.server, admission.connection
    every = min(EXPIRY_CHECKS, timeouts.call / 4, timeouts.queue / 4)
    while True:
        await admission.used.wait()
        admission.used = trio.Event()
        while connection.in_flight:
            await trio.sleep(every)
            for _key, exchange in connection.expire(idle=math.inf, total=timeouts.call_max):
                exchange.lost(timed_out(server, f"took more than {timeouts.call_max:g} s in all", "callMax"))
            alive = admission.attribution.alive()
            for _key, exchange in connection.expire(idle=timeouts.call, total=math.inf, alive=alive):
                also = f"; it {silent}" if (silent := problem()) else ""
                exchange.lost(timed_out(server, f"showed no life for {timeouts.call:g} s", "call", also))
            admission.expire(timeouts.queue)
            flush()


def timed_out(server: str, what: str, key: str, also: str = "") -> UpstreamTimeout:
    """The error for a call that exceeded the limit `key` of `timeouts`."""
    return UpstreamTimeout(
        f"server {server} {what} (timeouts.{key}){also}. mcpd has cancelled the call, which may have run: find"
        " out before you repeat it, and ask for less per call.",
        server=server,
    )
