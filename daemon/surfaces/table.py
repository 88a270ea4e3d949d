"""All surfaces, and which one a client gets, on what grounds: asked for, configured, or fitting the client.

A new surface is a module and a line here (docs/surfaces.md).
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

import attrs
import msgspec

from daemon.config.config_model import DEFAULT_SURFACE
from daemon.surfaces.additions import READ_RESOURCE
from daemon.surfaces.browse import BrowseSurface
from daemon.surfaces.category import CategorySurface
from daemon.surfaces.full import FullSurface, ItselfSurface
from daemon.surfaces.load import LoadSurface
from daemon.surfaces.search import SearchSurface

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.config.config_model import Config, Profile
    from daemon.surfaces.surface import Surface


AUTO = DEFAULT_SURFACE
"""The word for the surface that fits the client; a profile that names none has it."""

FALLBACK = CategorySurface.name
"""The surface of clients of which nothing better is known: it works on every client that was tried."""

EVERYTHING = FullSurface.name
"""The surface of clients that search tools themselves."""

MAX_TOLD = 100
"""Characters that are kept of a client's name, and of its version."""


def _cut(text: str) -> str:
    return text[:MAX_TOLD]


@attrs.frozen
class ClientInfo:
    """Who a client says it is (MCP, `clientInfo`)."""

    name: str = attrs.field(default="", converter=_cut)
    """Its name, as it writes it."""
    version: str = attrs.field(default="", converter=_cut)
    """Its version, as it writes it."""

    @property
    def text(self) -> str:
        """Both, on at most `MAX_TOLD` characters."""
        return f"{self.name} {self.version}".strip()[:MAX_TOLD]


class SearchingClient(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of client that shows its model only those tools that the model has searched for."""

    name: str
    """The name that it gives, or how that begins, up to a hyphen."""
    since: tuple[int, ...]
    """The first version that does."""
    tools: int
    """The most tools that it is given one by one."""


SEARCHING_CLIENTS = (
    # 2.1.329 is the first version seen to defer: names, and schemas through its ToolSearch. 2.1.197 gives its
    # model everything. Its model is told all names at the start of each conversation: 27 bytes each (84 take
    # 2.3 kB), so 500 take some 3,400 tokens, less than half of what one answer may (`answerTokens`).
    SearchingClient(name="claude-code", since=(2, 1, 329), tools=500),
    # 0.169.0 was seen to; by its sources since 0.142.2 (openai/codex#29486), before only with a hundred tools
    # or more. Its model is told nothing until it searches, so tools cost it nothing: but a search by words has
    # eight hits, and the whole list is read at each start, 0.8 kB a tool (69 kB for 84).
    SearchingClient(name="codex", since=(0, 142, 2), tools=1000),
)
"""All clients that are known to; docs/surfaces.md has them with what was seen."""


class Grounds(enum.StrEnum):
    """Why a client has its surface."""

    SWITCHED_OFF = "switched_off"
    """Loading on demand is off: by the configuration, the profile or the client."""
    ASKED_FOR = "asked_for"
    """The client asks for this surface."""
    ASKED_FOR_LAZY = "asked_for_lazy"
    """The client asks for tools on demand."""
    DEFERRED_LOADING = "deferred_loading"
    """The profile says so with `deferredLoading`."""
    NAMED_SERVERS = "named_servers"
    """The client has named the servers that it wants to see as themselves."""
    PROFILE = "profile"
    """The profile names it."""
    UNKNOWN_CLIENT = "unknown_client"
    """Nothing is known of clients of this name."""
    SILENT_CLIENT = "silent_client"
    """The client has not said who it is."""
    OLDER_CLIENT = "older_client"
    """Later versions of this client search tools themselves."""
    UNREADABLE_VERSION = "unreadable_version"
    """Some versions of this client search tools themselves, and this one cannot be read."""
    SEARCHES_ITSELF = "searches_itself"
    """The client searches tools itself, and can take all of them."""
    TOO_MANY_TOOLS = "too_many_tools"
    """The client searches tools itself, and there are more than it can take."""


class SurfaceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A surface, and the grounds on which a client has it."""

    surface: str
    """Its name; `AUTO` as long as it is left to what the client says it is."""
    grounds: Grounds
    """Why it was chosen."""
    client: ClientInfo = ClientInfo()
    """Who the client said it is, where that has decided."""
    since: tuple[int, ...] = ()
    """The first version of this client that searches tools itself, if any does."""
    tools: int = 0
    """The tools that its profile offered when that was decided, where they count."""
    most: int = 0
    """The most tools that such a client is given one by one."""


def fitting(client: ClientInfo, count: Callable[[], int]) -> SurfaceChoice:
    """The surface that fits a client.

    Args:
        client: who it says it is.
        count: returns how many tools its profile offers now; asked only where that decides.
    """
    known = _known(client)
    if known is None:
        grounds = Grounds.UNKNOWN_CLIENT if client.name else Grounds.SILENT_CLIENT
        return SurfaceChoice(surface=FALLBACK, grounds=grounds, client=client)
    version = _version(client)
    if version is None or version < known.since:
        grounds = Grounds.UNREADABLE_VERSION if version is None else Grounds.OLDER_CLIENT
        return SurfaceChoice(surface=FALLBACK, grounds=grounds, client=client, since=known.since)
    tools = count()
    fits = tools <= known.tools
    return SurfaceChoice(
        surface=EVERYTHING if fits else FALLBACK,
        grounds=Grounds.SEARCHES_ITSELF if fits else Grounds.TOO_MANY_TOOLS,
        client=client,
        since=known.since,
        tools=tools,
        most=known.tools,
    )


def may_defer(client: ClientInfo) -> bool:
    """Whether a client may show its model only tools that it has searched for.

    Nothing is claimed as saved then. A version that cannot be read may be any.
    """
    known = _known(client)
    if known is None:
        return False
    version = _version(client)
    return version is None or version >= known.since


_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)", re.ASCII | re.IGNORECASE)

_DIGITS = 9
"""Digits that are read of each part of a version; no client has longer ones."""


def _known(client: ClientInfo) -> SearchingClient | None:
    return next(
        (
            each
            for each in SEARCHING_CLIENTS
            if client.name == each.name or client.name.startswith(f"{each.name}-")
        ),
        None,
    )


def _version(client: ClientInfo) -> tuple[int, ...] | None:
    found = _NUMBERS.match(client.version)
    return None if found is None else tuple(int(part[:_DIGITS]) for part in found[1].split("."))


SURFACES: dict[str, Surface] = {
    surface.name: surface
    for surface in (
        CategorySurface(),
        BrowseSurface(),
        SearchSurface(),
        LoadSurface(),
        FullSurface(),
    )
}
"""All surfaces, by the names that profiles and `--surface` use."""

ITSELF: Surface = ItselfSurface()
"""What a client is shown that has chosen servers: no profile names it, since it means nothing without them."""

READING: dict[str, Surface] = {name: surface.with_tool(READ_RESOURCE) for name, surface in SURFACES.items()}
"""The same with a tool that reads resources, for profiles that ask for it."""

META_TOOLS = frozenset(name for surface in READING.values() for name in surface.meta_tools)
"""The names of all meta-tools."""

UNSWITCHED = FullSurface.name
"""The surface that is served where lazy loading is switched off."""

PRELOADING = LoadSurface.name
"""The surface on which a profile's preloaded tools are loaded: elsewhere none has to be."""

LAZY = BrowseSurface.name
"""The surface that `--lazy` asks for (seed 003)."""

DEFERRED = SearchSurface.name
"""The surface that `deferredLoading` asks for (seed 000)."""


def choice_of(
    config: Config, profile: Profile, *, surface: str | None = None, lazy: bool | None = None
) -> SurfaceChoice:
    """The surface that a client gets before anything is known of it: `AUTO` leaves it to what it says it is.

    Both switches, the configuration's and the profile's, must be on for a lazy one (seed 002, §9).

    Args:
        config: the configuration, with the master switch.
        profile: the client's profile.
        surface: the surface that the client asks for, if any.
        lazy: the client's own switch, if it has set one.
    """
    if is_switched_off(config, profile, lazy=lazy):
        return SurfaceChoice(surface=UNSWITCHED, grounds=Grounds.SWITCHED_OFF)
    if surface is not None:
        return SurfaceChoice(surface=surface, grounds=Grounds.ASKED_FOR)
    if lazy:
        return SurfaceChoice(surface=LAZY, grounds=Grounds.ASKED_FOR_LAZY)
    if profile.deferred_loading is not None:
        deferred = DEFERRED if profile.deferred_loading else UNSWITCHED
        return SurfaceChoice(surface=deferred, grounds=Grounds.DEFERRED_LOADING)
    return SurfaceChoice(surface=profile.surface, grounds=Grounds.PROFILE)


def chosen(config: Config, profile: Profile, *, surface: str | None = None, lazy: bool | None = None) -> str:
    """The name of the surface of `choice_of`, which may be `AUTO`."""
    return choice_of(config, profile, surface=surface, lazy=lazy).surface


def of_anyone(config: Config, profile: Profile) -> str:
    """The name of the surface of a client of which nothing is known and that asks for nothing."""
    name = chosen(config, profile)
    return FALLBACK if name == AUTO else name


def shows_summaries(config: Config) -> bool:
    """Whether some profile shows less than everything to some client: summaries are read nowhere else."""
    return any(chosen(config, profile) != UNSWITCHED for profile in config.profiles.values())


def by_profile(config: Config) -> dict[str, str]:
    """The surface of a client that names a profile and asks for nothing else, by profile; it may be `AUTO`."""
    return {name: chosen(config, profile) for name, profile in config.profiles.items()}


def is_switched_off(config: Config, profile: Profile, *, lazy: bool | None = None) -> bool:
    """Whether loading on demand is off: by the configuration, the profile or the client (seed 002, §9)."""
    return not (config.lazy and profile.lazy) or lazy is False
