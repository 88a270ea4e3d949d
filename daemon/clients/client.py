"""One connection's client: its principal, name and wishes, and the profile and surface that it gets.

Only an operator can move a client to another profile; the move holds for all connections of the session until
the daemon ends. A limit of calls per minute is a token bucket, kept as the time of its next token (ITU-T
I.371): an early call waits, or is refused if it would wait longer than `timeouts.queue`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from functools import partial

import attrs
import msgspec
import trio
from msgspec import Raw

from daemon.audit.record import acting
from daemon.catalog.loaded import OTHERS
from daemon.catalog.snapshot import Catalog
from daemon.clients.server_requests import NOTHING
from daemon.clients.workspace import OwnWorkspace
from daemon.config.config_model import Category, Config, Profile
from daemon.config.listen import DEFAULT_PROFILE, ConsoleRole
from daemon.config.names import read_reference
from daemon.errors import Overloaded
from daemon.kit.waiting import keep_latest
from daemon.model import ToolKey
from daemon.ports import Upstream
from daemon.surfaces import table
from daemon.surfaces.answers import choices, quoted
from daemon.surfaces.calling import usual_tools
from daemon.surfaces.surface import Services, Surface

BURST_SECONDS = 10.0
"""Seconds' worth of calls that may be sent at once after a pause: an agent makes several calls in one turn."""

MAX_BUCKETS = 4096
"""Kept buckets: more than a configuration has servers and profiles."""


class Bucket(msgspec.Struct):
    """One limit, and the time at which its next token is due."""

    per_minute: int
    due: float = 0.0

    def wait(self, now: float) -> float:
        """Seconds until a token is available for a call made now."""
        spare = max(BURST_SECONDS - 60 / self.per_minute, 0.0)
        return max(0.0, self.due - spare - now)

    def take(self, now: float) -> None:
        """Spend a token."""
        self.due = max(self.due, now) + 60 / self.per_minute


class CallRates:
    """The buckets of all limits; reconnections, instances and sessions share them."""

    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._clock = clock

    def take(self, config: Config, profile: Profile, server: str) -> float:
        """Spend a call's tokens and return the seconds to wait. Raises Overloaded above `timeouts.queue`."""
        entry, now = config.mcp_servers.get(server), self._clock()
        if entry is None:  # A reload is removing it: nothing will be sent there.
            return 0.0
        limits = {
            ("server", server): entry.limits.calls_per_minute,
            ("profile", profile.name): profile.limits.calls_per_minute,
        }
        buckets = {key: self._bucket(key, limit) for key, limit in limits.items() if limit is not None}
        for (kind, name), bucket in buckets.items():
            if (wait := bucket.wait(now)) > entry.timeouts.queue:
                retry = wait - entry.timeouts.queue
                raise Overloaded(
                    f"{kind} {name} may have {bucket.per_minute} calls a minute (limits.callsPerMinute),"
                    f" and the calls in line need {wait:.0f} s already. The call was not sent;"
                    f" try again in about {retry:.0f} s.",
                    server=server,
                    bound=f"limits.callsPerMinute of {kind} {name}",
                    retryAfterMs=round(retry * 1000),
                )
        seconds = max((bucket.wait(now) for bucket in buckets.values()), default=0.0)
        for bucket in buckets.values():
            bucket.take(now)
        return seconds

    def _bucket(self, key: tuple[str, str], per_minute: int) -> Bucket:
        bucket = self._buckets.get(key) or Bucket(per_minute)
        bucket.per_minute = per_minute
        keep_latest(self._buckets, key, bucket, MAX_BUCKETS)
        return bucket


def is_metered(config: Config, profile: Profile) -> bool:
    """Whether a limit counts the calls made under a profile."""
    servers = any(each.limits.calls_per_minute is not None for each in config.mcp_servers.values())
    return servers or profile.limits.calls_per_minute is not None


@attrs.frozen(kw_only=True)
class Principal:
    """The user or token behind a connection's requests, and the profiles and directories that it may use."""

    owner: str = ""
    """Prefix of the principal's session keys, such as `uid 1000: `; empty for the daemon's own user."""
    token: str = ""
    profiles: tuple[str, ...] | None = None
    """The profiles that the principal may use, the default first; None allows all."""
    console: ConsoleRole | None = None
    workspaces: tuple[str, ...] | None = None
    uid: int | None = attrs.field(default=None, eq=False)  # of the user behind a unix socket
    pid: int = attrs.field(default=0, eq=False)  # of the process there; 0 if unknown
    keeps: bool = True
    """Whether tools stay loaded and known as shown between requests that name no session key. False where the
    clients of one connection cannot be told apart (MCP 2026-07-28 over HTTP)."""

    @property
    def words(self) -> str:
        """The principal as people read it: `token ci` or `uid 1000`."""
        return acting(self.uid, self.token)

    def own_key(self, key: str) -> str:
        """Put a session key into the principal's namespace."""
        return f"{self.owner}{key}"


def local_user(uid: int, workspaces: tuple[str, ...] = (), pid: int = 0) -> Principal:
    """The principal behind a unix socket; `workspaces` restrict all users but the daemon's own and root."""
    if uid == os.getuid():
        return Principal(uid=uid, pid=pid)
    return Principal(owner=f"{OTHERS}{uid}: ", workspaces=workspaces if uid else None, uid=uid, pid=pid)


LOCAL_USER = Principal()


MAX_CHOSEN = 64
"""Servers that one client may choose: more than an agent has entries."""


def read_choice(said: object) -> tuple[str, ...] | None:
    """The servers that a hello names, without repetitions: empty if it names none, None if unreadable."""
    if said is None:
        return ()
    if not isinstance(said, list) or not 1 <= len(said) <= MAX_CHOSEN:
        return None
    names = [each for each in said if isinstance(each, str) and each]
    return tuple(dict.fromkeys(names)) if len(names) == len(said) else None


def fault_of_choice(config: Config, profile: Profile, servers: tuple[str, ...] | None) -> str:
    """Why a client may not see these servers as themselves; empty if it may. Some, not all, may be unknown."""
    if servers is None:
        return f"`servers` is not a list of 1 to {MAX_CHOSEN} names of servers"
    if not servers:
        return ""
    shown = [name for name in config.mcp_servers if _shows(config, profile, name)]
    present = [name for name in servers if name in config.mcp_servers]
    if not present:
        name = servers[0]
        return f"there is no server {quoted(name)} in mcpd's configuration. {choices(shown, name)}"
    for name in present:
        if name not in shown:
            what = f"profile {quoted(profile.name)} shows nothing of server {quoted(name)}"
            return f"{what}: no category of the profile has that server's tools. {choices(shown, name)}"
    return ""


def _shows(config: Config, profile: Profile, server: str) -> bool:
    optional = profile.included_optional_tools
    if profile.categories is None or _names(config, optional, server):
        return True
    if any(read_reference(each, config.mcp_servers).server is None for each in optional):
        # A bare name means every server's tool of that name.
        return True
    if not config.categories:
        # Then each server is a category.
        return server in profile.categories
    drawn = (config.categories[name] for name in profile.categories if name in config.categories)
    return any(_draws_from(config, category, server) for category in drawn)


def _draws_from(config: Config, category: Category, server: str) -> bool:
    tools = category.tools
    if category.server == server or _names(config, (*tools.include_names, *tools.overrides), server):
        return True
    is_open = not tools.include_names or bool(tools.include_patterns)
    return category.server is None and is_open


def _names(config: Config, tools: Iterable[str], server: str) -> bool:
    return any(read_reference(each, config.mcp_servers).server == server for each in tools)


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """The wishes in a client's hello, or those that an operator sets for the client."""

    profile: str = DEFAULT_PROFILE
    surface: str | None = None
    lazy: bool | None = None
    """Whether tools are loaded on demand; with None the profile decides."""
    servers: tuple[str, ...] | None = ()
    """The servers that the client wants to see as themselves; empty for none, None if unreadable."""
    without: tuple[str, ...] | None = ()


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The profile, surface and options that a client gets under one configuration."""

    profile: Profile
    surface: Surface
    choice: table.SurfaceChoice
    client: str = ""
    on_demand: bool = True
    """Whether tools are loaded on demand; otherwise mcpd reads no session and compares no definition."""
    preload: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    """The only servers that the client sees, as themselves; empty if it sees the profile's servers."""
    elsewhere: frozenset[str] = frozenset()
    """Servers hidden because they belong to other directories, or because the client asked for that."""
    metered: bool = False
    most_bytes: int = sys.maxsize
    """Bytes of the longest result that the client gets whole (`clients.kept_results`)."""
    denied: str = ""
    """Why the client is served nothing; empty if it is served."""

    @property
    def only(self) -> str:
        """The only server that the client has chosen and sees as if connected directly; empty without one."""
        return self.servers[0] if len(self.servers) == 1 else ""


class Client:
    """One connection's client: principal, name, wishes and selection."""

    def __init__(
        self,
        config: Config,
        surfaces: Mapping[str, Surface],
        principal: Principal = LOCAL_USER,
        *,
        count: Callable[[Profile], int] = lambda _profile: 0,
        decided: DecidedSurfaces | None = None,
    ) -> None:
        self.info = table.ClientInfo()
        self.name = ""
        self.began: float | None = None
        """Start of a conversation that began at another daemon, in seconds since the epoch: mcpd does not know
        what was shown there. None if the conversation began here."""
        self.config: Config | None = None
        """The configuration that `selection` was made for; None once the wishes have changed."""
        self.wishes = Wishes()
        self.principal = principal
        self.number = 0
        self.protocol = ""
        """The protocol revision; empty until known."""
        self.log_level: int | None = None
        """The rank of the log level that the client has set for servers; None if unset."""
        self.left = False  # whether its connection has ended
        self.holds = False
        """Whether the client keeps unsent requests for the next daemon, as a bridge does."""
        self.workspace = OwnWorkspace(principal.workspaces)
        self.capabilities: Raw = NOTHING
        """The `ClientCapabilities` of the client's handshake or first request, raw (MCP)."""
        self.instances: dict[str, Upstream] = {}
        self._surfaces = surfaces
        self._count = count
        self._decided = DecidedSurfaces() if decided is None or principal.keeps else decided
        self._core: dict[str, tuple[ToolKey, ...]] = {}
        profile = config.profiles[DEFAULT_PROFILE]
        self.selection = Selection(
            profile=profile, surface=next(iter(surfaces.values())), choice=table.choice_of(config, profile)
        )
        self.select(config)

    @property
    def token(self) -> str:
        """The name of the client's token; empty without a token or a name."""
        return self.principal.token

    def wish(self, hello: Mapping[str, object]) -> None:
        """Take the wishes in a bridge's hello. An unknown name denies everything: typos must widen nothing."""
        name, surface, lazy = hello.get("profile"), hello.get("surface"), hello.get("lazy")
        self._change(
            Wishes(
                profile=name if isinstance(name, str) else self.wishes.profile,
                surface=surface if isinstance(surface, str) else None,
                lazy=lazy if isinstance(lazy, bool) else None,
                servers=read_choice(hello.get("servers")),
                without=read_choice(hello.get("without")),
            )
        )
        self.holds = hello.get("holds") is True
        began = hello.get("resumed")
        # A time that cannot be read still means that there is something to resume.
        self.began = None if began is None else began if isinstance(began, int | float) else 0.0

    def introduce(self, info: table.ClientInfo) -> None:
        """Set the client's name and version; a change has the surface chosen again."""
        if info != self.info:
            self.info, self.name, self.config = info, info.text, None

    def uses(self, instance: Upstream) -> None:
        """Record that the client uses a server's instance, and drop ended instances."""
        self.forget_gone()
        self.instances[instance.name] = instance

    def forget_gone(self) -> None:
        """Drop instances that have ended."""
        self.instances = {name: each for name, each in self.instances.items() if not each.is_gone}

    def has(self, server: str, shown: Container[str]) -> bool:
        """Whether the client may see parts of a server or instance; its profile shows the servers `shown`."""
        used = self.instances.get(server)
        # The name of an ended instance may be reused for another client.
        return (server if used is None or used.is_gone else used.of) in shown

    def move(self, profile: str) -> None:
        """Give the client another profile; of its wishes, only chosen and hidden servers remain."""
        wishes = self.wishes
        self._change(Wishes(profile=profile, servers=wishes.servers or (), without=wishes.without))

    def select(self, config: Config) -> Selection:
        """The selection under a configuration, made again if the configuration or the wishes have changed."""
        if config is not self.config:
            self.config, self.selection = config, self._selected(config)
        return self.selection

    def core_tools(self, services: Services, catalog: Catalog) -> Sequence[ToolKey]:
        """The core tools for a profile that names none; chosen once, then kept."""
        profile = self.selection.profile
        if profile.name not in self._core:
            self._core = {profile.name: usual_tools(services, catalog, profile)}
        return self._core[profile.name]

    def _change(self, wishes: Wishes) -> None:
        self.wishes, self.config = wishes, None

    def _selected(self, config: Config) -> Selection:
        wishes, surfaces = self.wishes, self._surfaces
        profile = config.profiles.get(wishes.profile)
        if profile is None:
            known = ", ".join(config.profiles)
            return self._deny(
                f"there is no profile {wishes.profile[:100]!r} in mcpd's configuration; there are: {known}"
            )
        choice = table.choice_of(config, profile, surface=wishes.surface, lazy=wishes.lazy)
        # A named surface is checked even where the switches make no use of it.
        asked = wishes.surface or table.AUTO
        selection = partial(
            Selection,
            profile=profile,
            client=self.name,
            on_demand=not table.is_switched_off(config, profile, lazy=wishes.lazy),
            metered=is_metered(config, profile),
        )
        fault = fault_of_choice(config, profile, wishes.servers)
        if fault or wishes.without is None:
            return self._deny(fault or f"`without` is not a list of 1 to {MAX_CHOSEN} names of servers")
        elsewhere = self._elsewhere(config)
        hidden = () if profile.scripts else [each.name for each in config.mcp_servers.values() if each.scripts]
        if wishes.servers:
            servers = tuple(name for name in wishes.servers if name not in elsewhere)
            if not servers:
                return self._deny(
                    f"server {quoted(wishes.servers[0])} is for clients that work in other directories"
                    " (`workspaces` in its entry in mcpd's configuration)"
                )
            choice = table.SurfaceChoice(surface=table.ITSELF.name, grounds=table.Grounds.NAMED_SERVERS)
            return selection(surface=table.ITSELF, choice=choice, servers=servers)
        if choice.surface == table.AUTO:
            who, fitting = (self.principal, profile.name, self.info), partial(table.fitting, self.info)
            choice = self._decided.surface_for(config, who, lambda: fitting(lambda: self._count(profile)))
        name = choice.surface
        for each in (asked, name):
            if each not in surfaces and each != table.AUTO:
                known = ", ".join((table.AUTO, *surfaces))
                return self._deny(f"there is no surface {each[:100]!r}; there are: {known}")
        return selection(
            surface=table.for_profile(surfaces[name], profile),
            most_bytes=table.most_bytes(self.info, profile),
            choice=choice,
            preload=profile.preloaded if name == table.PRELOADING else (),
            elsewhere=elsewhere.union(wishes.without, hidden),
        )

    def _elsewhere(self, config: Config) -> frozenset[str]:
        servers = (server for server in config.mcp_servers.values() if server.workspaces)
        return frozenset(server.name for server in servers if not self.workspace.is_in(server.workspaces))

    def _deny(self, reason: str) -> Selection:
        return msgspec.structs.replace(self.selection, denied=reason)


def owner_in(key: str | None, client: Client) -> Hashable:
    """The owner of the tasks and results of a request: a session key, a connection, or over HTTP a token."""
    if key is not None:
        return key
    return client if client.principal.keeps else (client.principal.owner, client.principal.token)


MAX_DECIDED = 1000
"""Kept decisions, the latest ones: one for each token, profile and client version."""


class DecidedSurfaces:
    """Keeps which surface suits each client while a configuration lasts, however the catalog grows."""

    def __init__(self) -> None:
        self._config: Config | None = None
        self._known: dict[object, table.SurfaceChoice] = {}

    def surface_for(
        self, config: Config, client: object, decide: Callable[[], table.SurfaceChoice]
    ) -> table.SurfaceChoice:
        """The surface for a kind of client, identified by `client`; `decide` is called once for each kind."""
        if config is not self._config:
            self._config, self._known = config, {}
        known = self._known.get(client)
        if known is None:
            known = decide()
            keep_latest(self._known, client, known, MAX_DECIDED)
        return known
