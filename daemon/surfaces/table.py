"""All surfaces, and which one a client gets. A new one is a module and a line here (docs/surfaces.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.surfaces import calling, category
from daemon.surfaces.browse import BrowseSurface
from daemon.surfaces.category import CategorySurface
from daemon.surfaces.fitting import AUTO, FALLBACK, Grounds, SurfaceChoice
from daemon.surfaces.full import FullSurface
from daemon.surfaces.itself import ItselfSurface
from daemon.surfaces.load import LoadSurface
from daemon.surfaces.read_only import ReadOnlyCalls
from daemon.surfaces.reading import ReadingSurface
from daemon.surfaces.search import SearchSurface

if TYPE_CHECKING:
    from daemon.config.model import Config, Profile
    from daemon.surfaces.base import Surface

SURFACES: dict[str, Surface] = {
    surface.name: surface
    for surface in (
        ReadOnlyCalls(CategorySurface(), category.CALL, category.CALL_READ_ONLY, category.ARGUMENTS),
        ReadOnlyCalls(BrowseSurface(), calling.CALL_TOOL, calling.CALL_READ_ONLY, calling.ARGUMENTS),
        ReadOnlyCalls(SearchSurface(), calling.CALL_TOOL, calling.CALL_READ_ONLY, calling.ARGUMENTS),
        LoadSurface(),
        FullSurface(),
    )
}
"""All surfaces, by the names that profiles and `--surface` use."""

ITSELF: Surface = ItselfSurface()
"""What a client is shown that has chosen servers: no profile names it, since it means nothing without them."""

READING: dict[str, Surface] = {name: ReadingSurface(surface) for name, surface in SURFACES.items()}
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
