"""The client of one connection: what it is called, what it wishes for, and what it gets.

What a client wished for is resolved once for each configuration, not at each look: another configuration, or
other wishes, make another `Selection`.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import attrs

from daemon.catalog.remembered import OTHERS
from daemon.config.model import DEFAULT_PROFILE
from daemon.counting.tally import tokens_in
from daemon.surfaces.listing import usual_tools
from daemon.surfaces.table import PRELOADING, chosen, is_switched_off

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.catalog.snapshot import Catalog
    from daemon.config.model import Config, Profile
    from daemon.counting.tally import Tally
    from daemon.model import ToolKey
    from daemon.surfaces.base import Means, Surface

MAX_LISTS = 64
"""Sessions of one connection whose lists are compared, as many as it takes part in (`attachments.MAX_KEYS`)."""


@attrs.frozen(kw_only=True)
class Wishes:
    """What a client asked for in its hello, or an operator for it."""

    profile: str = DEFAULT_PROFILE
    """A profile's name."""
    surface: str | None = None
    """A surface's name; None leaves it to the profile."""
    lazy: bool | None = None
    """Whether tools are loaded on demand; None leaves it to the profile."""


@attrs.frozen(kw_only=True)
class Selection:
    """What a client gets under one configuration."""

    profile: Profile
    """What it may see."""
    surface: Surface
    """What its calls mean."""
    on_demand: bool = True
    """Whether tools are loaded on demand; otherwise no session is read, nothing compared (seed 002, §9)."""
    preload: tuple[str, ...] = ()
    """The tools that are loaded from the start."""
    denied: str = ""
    """Why nothing is served; empty if it is. What else stands here is then as it was before."""


class Client:
    """One connection's client: what it is called, what it wishes for, and what it gets."""

    def __init__(self, config: Config, surfaces: Mapping[str, Surface], uid: int | None = None) -> None:
        """Begin with what the default profile says.

        Args:
            config: the present configuration.
            surfaces: all that there are, by name.
            uid: the user that it runs as; None is the daemon's own.
        """
        self.name = ""
        """What it calls itself, with its version."""
        self.began: float | None = None
        """When its conversation began, in seconds since the epoch, if that was with an earlier daemon, or over
        another connection: what it was shown meanwhile is not known."""
        self.config: Config | None = None
        """What `selection` was made of; None: its wishes are others by now."""
        self.wishes = Wishes()
        self._uid = uid
        self._surfaces = surfaces
        self._core: dict[str, tuple[ToolKey, ...]] = {}
        self.selection = Selection(
            profile=config.profiles[DEFAULT_PROFILE], surface=next(iter(surfaces.values()))
        )
        """What it gets, as far as `select` was asked."""
        self.select(config)

    def wish(self, hello: Mapping[str, object]) -> None:
        """Take what a bridge asks for on behalf of its client: a profile, a surface, a lazy switch.

        What does not exist denies everything: a profile restricts, and showing more than it would because of a
        typo is no way out.
        """
        name, surface, lazy = hello.get("profile"), hello.get("surface"), hello.get("lazy")
        self._change(
            Wishes(
                profile=name if isinstance(name, str) else self.wishes.profile,
                surface=surface if isinstance(surface, str) else None,
                lazy=lazy if isinstance(lazy, bool) else None,
            )
        )
        began = hello.get("resumed")
        # Of a time that cannot be read only this much is known: that there is something to resume.
        self.began = None if began is None else began if isinstance(began, int | float) else 0.0

    def move(self, profile: str) -> None:
        """Give it another profile, whose surface and switches count instead of its wishes."""
        self._change(Wishes(profile=profile))

    def own_key(self, key: str) -> str:
        """A session's key as the daemon knows it: what another user names is another session."""
        return key if self._uid in {None, os.getuid()} else f"{OTHERS}{self._uid}: {key}"

    def select(self, config: Config) -> Selection:
        """What it gets under a configuration; resolved only if that, or its wishes, have changed."""
        if config is not self.config:
            self.config, self.selection = config, self._selected(config)
        return self.selection

    def core_tools(self, means: Means, catalog: Catalog) -> Sequence[ToolKey]:
        """The core tools of a profile that names none: chosen when they are first asked for here, and kept."""
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
        name = chosen(config, profile, surface=wishes.surface, lazy=wishes.lazy)
        # A name that was asked for is checked also where the switches make no use of it.
        for each in (wishes.surface or name, name):
            if each not in surfaces:
                return self._deny(f"there is no surface {each[:100]!r}; there are: {', '.join(surfaces)}")
        return Selection(
            profile=profile,
            surface=surfaces[name],
            on_demand=not is_switched_off(config, profile, lazy=wishes.lazy),
            preload=profile.preload if name == PRELOADING else (),
        )

    def _deny(self, reason: str) -> Selection:
        return attrs.evolve(self.selection, denied=reason)


MAX_MOVED = 1000
"""Sessions with a key of which it is known that they were moved, the last ones: an operator moves a few."""


class Moves:
    """The profiles that sessions with a key were given, by key."""

    def __init__(self) -> None:
        """Begin with none."""
        self._moved: dict[str, str] = {}

    def of(self, key: str | None) -> str | None:
        """The profile that a session was given; None if it was given none."""
        return None if key is None else self._moved.get(key)

    def note(self, key: str, profile: str) -> None:
        """The session of this key has another profile from now on."""
        self._moved.pop(key, None)
        self._moved[key] = profile
        while len(self._moved) > MAX_MOVED:
            del self._moved[next(iter(self._moved))]


DEFERRING_SINCE: Mapping[str, tuple[int, ...]] = {
    # The first that was seen to: names, and schemas through its ToolSearch. 2.1.197 gives its model everything.
    "claude-code": (2, 1, 329),
    # All that were seen do, with a `tool_search` of their own; the switch for it is gone (0.169).
    "codex": (),
}
"""By the beginning of the name that a client gives itself, the first version that keeps tools from its model
until they are searched for, whatever it is given."""

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")

TOLD_TWICE = 2
"""An answer of a meta-tool says the same in `content` and in `structuredContent`; a model is given one of the
two."""


class Savings:
    """What one client was spared."""

    def __init__(self, tally: Tally) -> None:
        """Begin with a client that was sent nothing."""
        self.applies = True
        """Whether it gives its model all tools that it is given (`defers_tools`)."""
        self._tally = tally
        self._spared = 0
        self._margins: dict[str | None, int] = {}

    @property
    def tokens(self) -> int | None:
        """About how many tokens it was spared, fewer than none if it was sent more; None if nothing applies."""
        return tokens_in(self._spared) if self.applies else None

    def listed(self, surface: str, key: str | None, *, sent: int, full: int) -> None:
        """It was given the list of a session.

        Args:
            surface: as which surface.
            key: the session's.
            sent: bytes of the tools in it.
            full: bytes of all tools of the profile.
        """
        before = self._margins.pop(key, 0)
        self._margins[key] = full - sent
        while len(self._margins) > MAX_LISTS:
            del self._margins[next(iter(self._margins))]
        self._count(surface, full - sent - before)

    def answered(self, surface: str, size: int) -> None:
        """A meta-tool has answered it with so many bytes."""
        self._count(surface, -(size // TOLD_TWICE))

    def _count(self, surface: str, spared: int) -> None:
        if self.applies:
            self._spared += spared
            self._tally.spared(surface, spared)


def defers_tools(name: str, version: str) -> bool:
    """Whether a client shows its model only those tools that it has searched for.

    Args:
        name: what it calls itself: `claude-code`, `codex-mcp-client`.
        version: likewise. One that cannot be read may be any: nothing is claimed to be saved then.
    """
    found = _NUMBERS.match(version)
    given = None if found is None else tuple(int(number[:9]) for number in found[0].split("."))
    return any(
        (name == known or name.startswith(f"{known}-")) and (given is None or given >= since)
        for known, since in DEFERRING_SINCE.items()
    )
