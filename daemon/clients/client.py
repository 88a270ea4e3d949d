"""The client of one connection: its name, what it asks for, and what it gets.

What a client asks for is resolved once for each configuration: a new configuration, or other wishes, make a new
`Selection`. A client cannot leave the profile that it began with; an operator may move it. A move holds for all
connections that name the session for themselves, later ones included, until the next move or the end of the
daemon; for a session without a key it holds as long as its connection.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import attrs
import msgspec

from daemon.catalog.loaded import OTHERS
from daemon.clients.rates import is_metered
from daemon.clients.server_requests import NOTHING
from daemon.clients.workspace import OwnWorkspace
from daemon.config.listen import DEFAULT_PROFILE
from daemon.config.names import read_reference
from daemon.kit.waiting import keep_latest
from daemon.surfaces.answers import choices, quoted
from daemon.surfaces.calling import usual_tools
from daemon.surfaces.table import (
    AUTO,
    ITSELF,
    PRELOADING,
    READING,
    ClientInfo,
    Grounds,
    SurfaceChoice,
    choice_of,
    fitting,
    is_switched_off,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from msgspec import Raw

    from daemon.catalog.snapshot import Catalog
    from daemon.config.config_model import Category, Config, Profile
    from daemon.config.listen import ConsoleRole
    from daemon.model import ToolKey
    from daemon.ports import Upstream
    from daemon.surfaces.surface import Means, Surface


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
    """The principal behind a unix socket; `workspaces` binds all but the own user and root."""
    if uid == os.getuid():
        return Principal()
    return Principal(owner=f"{OTHERS}{uid}: ", workspaces=workspaces if uid else None)


LOCAL_USER = Principal()
"""The daemon's own user."""


MAX_CHOSEN = 64
"""Servers that one client may choose: more than an agent has entries."""


def read_choice(said: object) -> tuple[str, ...] | None:
    """The servers that a hello names, each once; none if it has no such member, None if that cannot be read."""
    if said is None:
        return ()
    if not isinstance(said, list) or not 1 <= len(said) <= MAX_CHOSEN:
        return None
    names = [each for each in said if isinstance(each, str) and each]
    return tuple(dict.fromkeys(names)) if len(names) == len(said) else None


def fault_of_choice(config: Config, profile: Profile, servers: tuple[str, ...] | None) -> str:
    """Why a client of a profile may not see these servers as themselves; empty if it may.

    A server that is not configured denies a client nothing of the others: a reload may bring it back.

    Args:
        config: the configuration.
        profile: the client's.
        servers: as `read_choice` has read them.
    """
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
            return f"{what}: none of its categories draws from that. {choices(shown, name)}"
    return ""


def _shows(config: Config, profile: Profile, server: str) -> bool:
    """Whether a profile shows something of a server, or may."""
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
    """Whether one of these names of tools names this server."""
    return any(read_reference(each, config.mcp_servers).server == server for each in tools)


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asked for in its hello, or an operator on its behalf."""

    profile: str = DEFAULT_PROFILE
    """The name of a profile."""
    surface: str | None = None
    """The name of a surface; None leaves it to the profile."""
    lazy: bool | None = None
    """Whether tools are loaded on demand; None leaves it to the profile."""
    servers: tuple[str, ...] | None = ()
    """The servers that it wants to see as themselves; empty for none, None if it named them in no list."""
    without: tuple[str, ...] | None = ()
    """The servers that it wants to see nothing of; None if it named them in no list."""


@attrs.frozen(kw_only=True)
class Selection:
    """What a client gets under one configuration."""

    profile: Profile
    """The profile that it sees tools through."""
    surface: Surface
    """The surface that it is shown, which decides what its calls mean."""
    choice: SurfaceChoice
    """The name of that surface, and on what grounds the client has it."""
    client: str = ""
    """The name and version that the client had given when this was resolved."""
    on_demand: bool = True
    """Whether tools are loaded on demand; otherwise no session is read, nothing compared (seed 002, §9)."""
    preload: tuple[str, ...] = ()
    """The tools that are loaded from the start."""
    servers: tuple[str, ...] = ()
    """The servers that it sees as themselves, and no others; empty: what the profile and the surface show."""
    elsewhere: frozenset[str] = frozenset()
    """The servers that only clients in other directories see, and those that it asked not to see."""
    metered: bool = False
    """Whether a limit counts its calls (`clients.rates`)."""
    denied: str = ""
    """Why the client is served nothing; empty if it is served. The other attributes are then as they were
    before."""


class Client:
    """One connection's client: its name, what it asks for, and what it gets."""

    def __init__(
        self,
        config: Config,
        surfaces: Mapping[str, Surface],
        principal: Principal = LOCAL_USER,
        *,
        count: Callable[[Profile], int] = lambda _profile: 0,
        decided: DecidedSurfaces | None = None,
    ) -> None:
        """Begin with what the default profile says.

        Args:
            config: the present configuration.
            surfaces: all surfaces, by name.
            principal: who it is, as its door has found out.
            count: returns how many tools a profile offers now.
            decided: what was decided for clients whose connections carry one request each.
        """
        self.info = ClientInfo()
        """Who the client says it is."""
        self.name = ""
        """The name that the client gives, with its version."""
        self.began: float | None = None
        """When its conversation began, in seconds since the epoch, if that was with an earlier daemon or over
        another connection: what it was shown in the meantime is not known. None if it began here."""
        self.config: Config | None = None
        """The configuration that `selection` was made from; None once its wishes have changed."""
        self.wishes = Wishes()
        self.principal = principal
        self.number = 0
        """The number of its connection."""
        self.log_level: int | None = None
        """The level that it has set for the logs of servers; None if it has set none."""
        self.holds = False
        """Whether it holds requests that were passed on to nobody for the next daemon, as a bridge does."""
        self.workspace = OwnWorkspace(principal.workspaces)
        """The directory that it works in."""
        self.capabilities: Raw = NOTHING
        """What it has declared in its handshake or first request, raw (MCP, `ClientCapabilities`)."""
        self.instances: dict[str, Upstream] = {}
        """The instances of servers that it has used, by their own names, where clients do not share one."""
        self._surfaces = surfaces
        self._count = count
        self._decided = DecidedSurfaces() if decided is None or principal.keeps else decided
        self._core: dict[str, tuple[ToolKey, ...]] = {}
        profile = config.profiles[DEFAULT_PROFILE]
        self.selection = Selection(
            profile=profile, surface=next(iter(surfaces.values())), choice=choice_of(config, profile)
        )
        """What it gets, as of the last `select`."""
        self.select(config)

    def wish(self, hello: Mapping[str, object]) -> None:
        """Take over what a bridge asks for on behalf of its client: profile, surface, lazy switch and servers.

        A name that does not exist denies everything: a profile restricts, and a typo must not show more than it
        would.
        """
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
        # A time that cannot be read still says that there is something to resume.
        self.began = None if began is None else began if isinstance(began, int | float) else 0.0

    def introduce(self, info: ClientInfo) -> None:
        """Take over who the client says it is; what fits it is decided anew if that is somebody else."""
        if info != self.info:
            self.info, self.name, self.config = info, info.text, None

    def uses(self, instance: Upstream) -> None:
        """Note that it uses an instance of a server, and let go of those that have ended."""
        self.forget_gone()
        self.instances[instance.name] = instance

    def forget_gone(self) -> None:
        """Let go of instances that have ended."""
        self.instances = {name: each for name, each in self.instances.items() if not each.is_gone}

    def has(self, server: str, shown: Container[str]) -> bool:
        """Whether something of a server is for this client.

        Args:
            server: the name of a server, or of an instance, which is only for those who use it.
            shown: the servers that its profile shows something of.
        """
        used = self.instances.get(server)
        # A name is given again once its instance has ended, and is then somebody else's.
        return (server if used is None or used.is_gone else used.of) in shown

    def move(self, profile: str) -> None:
        """Give the client another profile, whose surface and switches replace its wishes.

        Whoever sees chosen servers goes on to see those, if the profile shows them, and no others.
        """
        wishes = self.wishes
        self._change(Wishes(profile=profile, servers=wishes.servers or (), without=wishes.without))

    def select(self, config: Config) -> Selection:
        """What the client gets under a configuration; resolved only if that or its wishes have changed."""
        if config is not self.config:
            self.config, self.selection = config, self._selected(config)
        return self.selection

    def core_tools(self, means: Means, catalog: Catalog) -> Sequence[ToolKey]:
        """The core tools of a profile that names none: chosen when first asked for, then kept."""
        profile = self.selection.profile
        if profile.name not in self._core:
            self._core = {profile.name: usual_tools(means, catalog, profile)}
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
        choice = choice_of(config, profile, surface=wishes.surface, lazy=wishes.lazy)
        # A name that was asked for is checked also where the switches make no use of it.
        asked = wishes.surface or AUTO
        on_demand = not is_switched_off(config, profile, lazy=wishes.lazy)
        fault = fault_of_choice(config, profile, wishes.servers)
        if fault or wishes.without is None:
            return self._deny(fault or f"`without` is not a list of 1 to {MAX_CHOSEN} names of servers")
        elsewhere = self._elsewhere(config)
        if wishes.servers:
            servers = tuple(name for name in wishes.servers if name not in elsewhere)
            if not servers:
                return self._deny(
                    f"server {quoted(wishes.servers[0])} is for clients that work in other directories"
                    " (`workspaces` in its entry in mcpd's configuration)"
                )
            return Selection(
                profile=profile,
                surface=ITSELF,
                choice=SurfaceChoice(surface=ITSELF.name, grounds=Grounds.NAMED_SERVERS),
                client=self.name,
                on_demand=on_demand,
                servers=servers,
                metered=is_metered(config, profile),
            )
        if choice.surface == AUTO:
            who = self.principal, profile.name, self.info
            choice = self._decided.of(config, who, lambda: fitting(self.info, lambda: self._count(profile)))
        name = choice.surface
        for each in (asked, name):
            if each not in surfaces and each != AUTO:
                known = ", ".join((AUTO, *surfaces))
                return self._deny(f"there is no surface {each[:100]!r}; there are: {known}")
        return Selection(
            profile=profile,
            surface=READING[name] if profile.read_resource and name in READING else surfaces[name],
            choice=choice,
            client=self.name,
            on_demand=on_demand,
            preload=profile.preloaded if name == PRELOADING else (),
            elsewhere=elsewhere.union(wishes.without),
            metered=is_metered(config, profile),
        )

    def _elsewhere(self, config: Config) -> frozenset[str]:
        servers = (server for server in config.mcp_servers.values() if server.workspaces)
        return frozenset(server.name for server in servers if not self.workspace.is_in(server.workspaces))

    def _deny(self, reason: str) -> Selection:
        return attrs.evolve(self.selection, denied=reason)


MAX_DECIDED = 1000
"""Decisions that are remembered, the latest: one for each token, profile and version of a client."""


class DecidedSurfaces:
    """The surfaces that were found to fit clients, each decided once for a configuration.

    A catalog that grows must not change a client's surface in the middle of a conversation. Where a connection
    may end with each request, or carry those of several clients, a decision outlives it here.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._config: Config | None = None
        self._known: dict[object, SurfaceChoice] = {}

    def of(self, config: Config, client: object, decide: Callable[[], SurfaceChoice]) -> SurfaceChoice:
        """What was decided for a client under a configuration; decided now if nothing was.

        Args:
            config: the configuration.
            client: everything that tells it from others, hashable.
            decide: decides.
        """
        if config is not self._config:
            self._config, self._known = config, {}
        known = self._known.get(client)
        if known is None:
            known = decide()
            keep_latest(self._known, client, known, MAX_DECIDED)
        return known
