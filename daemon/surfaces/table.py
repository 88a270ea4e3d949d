"""The table of surfaces, and the choice of a client's surface: requested, configured, or fitting the client."""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Callable
from functools import cache, cached_property
from itertools import compress
from operator import attrgetter

import attrs
import msgspec

from daemon.config.config_model import DEFAULT_SURFACE, Config, Profile
from daemon.kit.wording import BYTES_PER_TOKEN
from daemon.surfaces.additions import READ_RESOURCE, READ_RESULT
from daemon.surfaces.browse import BrowseSurface
from daemon.surfaces.category import CategorySurface
from daemon.surfaces.code import ADDED as OF_SCRIPTS
from daemon.surfaces.code import CodeSurface
from daemon.surfaces.full import FullSurface, ItselfSurface
from daemon.surfaces.load import LoadSurface
from daemon.surfaces.search import SearchSurface
from daemon.surfaces.surface import MetaTool, Surface

AUTO = DEFAULT_SURFACE
"""Lets mcpd choose by the kind of client; the default of profiles."""

FALLBACK = CategorySurface.name
"""The surface of unknown clients; it has worked with every client that was tried."""

EVERYTHING = FullSurface.name
"""The surface of clients that search tools themselves."""

MAX_TOLD = 100
"""Characters of a client's name and version that are kept."""


def _cut(text: str) -> str:
    return text[:MAX_TOLD]


@attrs.frozen
class ClientInfo:
    """A client's self-description (MCP, `clientInfo`)."""

    name: str = attrs.field(default="", converter=_cut)
    version: str = attrs.field(default="", converter=_cut)

    @cached_property
    def text(self) -> str:
        """Name and version in at most `MAX_TOLD` characters."""
        return f"{self.name} {self.version}".strip()[:MAX_TOLD]


class SearchingClient(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of client whose model sees only tools that it has searched for."""

    name: str
    """The client's name, or the part of it before a hyphen."""
    since: tuple[int, ...]
    tools: int


SEARCHING_CLIENTS = (
    # 2.1.329 is the first version seen to defer: names, and schemas through its ToolSearch. 2.1.197 shows its
    # model everything. Each conversation starts with all names: 27 bytes each (84 take 2.3 kB), so 500 take
    # some 3,400 tokens, less than half of the largest answer (`answerTokens`).
    SearchingClient(name="claude-code", since=(2, 1, 329), tools=500),
    # Seen in 0.169.0; by its sources since 0.142.2 (openai/codex#29486), before only from a hundred tools on.
    # Its model sees nothing until it searches, so tools cost nothing; but a word search has eight hits, and the
    # whole list is read at each start, 0.8 kB a tool (69 kB for 84).
    SearchingClient(name="codex", since=(0, 142, 2), tools=1000),
)
"""Clients with their own tool search; docs/surfaces.md has the observations."""


SPILLING_CLIENTS = ("claude-code",)
"""Clients that write large results to files themselves; Claude Code does so above 50,000 characters."""


def most_bytes(client: ClientInfo, profile: Profile) -> int:
    """Bytes of the longest result that a client gets whole."""
    spills = client.name.startswith(SPILLING_CLIENTS)
    return sys.maxsize if spills else BYTES_PER_TOKEN * (profile.results.max_tokens or sys.maxsize)


class Grounds(enum.StrEnum):
    """Why a client gets its surface."""

    SWITCHED_OFF = "switched_off"
    """Loading on demand is off in the configuration, in the profile, or for the client."""
    ASKED_FOR = "asked_for"
    ASKED_FOR_LAZY = "asked_for_lazy"
    DEFERRED_LOADING = "deferred_loading"
    NAMED_SERVERS = "named_servers"
    PROFILE = "profile"
    UNKNOWN_CLIENT = "unknown_client"
    SILENT_CLIENT = "silent_client"
    OLDER_CLIENT = "older_client"
    """Only later versions of the client search tools."""
    UNREADABLE_VERSION = "unreadable_version"
    """The client's version, on which tool search depends, cannot be read."""
    SEARCHES_ITSELF = "searches_itself"
    TOO_MANY_TOOLS = "too_many_tools"


class SurfaceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A client's surface, and why it was chosen."""

    surface: str
    grounds: Grounds
    client: ClientInfo = ClientInfo()
    since: tuple[int, ...] = ()
    """The first version of this client that searches tools, if there is one."""
    tools: int = 0
    """The number of the profile's tools when the surface was chosen, if the choice depends on it."""
    most: int = 0


def fitting(client: ClientInfo, count: Callable[[], int]) -> SurfaceChoice:
    """The surface that fits a client; `count`, the number of the profile's tools, is called only if needed."""
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
    """Whether a client may search tools itself, so that mcpd must not claim to save tokens."""
    known = _known(client)
    if known is None:
        return False
    version = _version(client)
    return version is None or version >= known.since


_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)", re.ASCII | re.IGNORECASE)

_DIGITS = 9
"""Digits of each part of a version; no client has longer ones."""


def _known(client: ClientInfo) -> SearchingClient | None:
    return next((each for each in SEARCHING_CLIENTS if f"{client.name}-".startswith(f"{each.name}-")), None)


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
        CodeSurface(),
    )
}

ITSELF: Surface = ItselfSurface()
"""The surface of clients that have chosen servers; profiles cannot name it: it is empty without them."""

ADDED: tuple[tuple[MetaTool, Callable[[Profile], bool]], ...] = (
    (READ_RESOURCE, attrgetter("read_resource")),
    *((tool, attrgetter("run_code")) for tool in OF_SCRIPTS),
    (READ_RESULT, lambda profile: profile.results.max_tokens is not None),
)
"""Tools that profiles may add to their surfaces, each with a test of the profile."""


def for_profile(surface: Surface, profile: Profile) -> Surface:
    """The surface with a profile's additional tools; the same object for the same tools."""
    return _with_added(surface, tuple(asks(profile) for _tool, asks in ADDED))


@cache
def _with_added(surface: Surface, wanted: tuple[bool, ...]) -> Surface:
    for tool, _asks in compress(ADDED, wanted):
        surface = surface if tool.name in surface.meta_tools else surface.with_tool(tool)
    return surface


META_TOOLS = frozenset(
    name for each in SURFACES.values() for name in (*each.meta_tools, *(tool.name for tool, _asks in ADDED))
)

UNSWITCHED = FullSurface.name

PRELOADING = LoadSurface.name

LAZY = BrowseSurface.name

DEFERRED = SearchSurface.name


def choice_of(
    config: Config, profile: Profile, *, surface: str | None = None, lazy: bool | None = None
) -> SurfaceChoice:
    """The surface of a client before it identifies itself, perhaps `AUTO`; `lazy` None: settings decide."""
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


def chosen(config: Config, profile: Profile) -> str:
    """The name of a profile's surface for clients that request nothing, perhaps `AUTO`."""
    return choice_of(config, profile).surface


def of_anyone(config: Config, profile: Profile) -> str:
    """The surface of an unknown client that requests nothing."""
    name = chosen(config, profile)
    return FALLBACK if name == AUTO else name


def shows_summaries(config: Config) -> bool:
    """Whether some client may see less than all tools: only then are summaries read."""
    return any(chosen(config, profile) != UNSWITCHED for profile in config.profiles.values())


def by_profile(config: Config) -> dict[str, str]:
    """The surface of each profile for clients that request nothing else, perhaps `AUTO`."""
    return {name: chosen(config, profile) for name, profile in config.profiles.items()}


def is_switched_off(config: Config, profile: Profile, *, lazy: bool | None = None) -> bool:
    """Whether loading on demand is off in the configuration, in the profile, or for the client."""
    return not (config.lazy and profile.lazy) or lazy is False
