"""`mcpd lazy`: the switches of loading on demand, the master's and each profile's, shown and thrown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from daemon.errors import InvalidArguments
from daemon.kit.wording import hint
from daemon.operators.base import Command
from daemon.operators.setting import change
from daemon.setup.setting import Setting
from daemon.surfaces.table import by_profile

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


class LazyParams(msgspec.Struct):
    """Which switch, and how it is to be; without `on` nothing is changed."""

    on: bool | None = None
    profile: str | None = None
    """A profile's switch; None: the master switch."""


async def lazy(context: OperatorContext, params: LazyParams) -> dict[str, object]:
    """Throw a switch of loading on demand, written into the configuration; returns how all switches are.

    Returns:
        `lazy`: the master switch; `profiles`: by name `on`, the `surface` that a client gets that asks for
        none, the `configured` one, `categories` (None: all), `description`, and how many `sessions` are open;
        `changed`: what was written (`setting.change`), None if nothing was to be; `note`: a surprise.

    Raises:
        InvalidArguments: there is no such profile.
        ConfigError: the configuration is faulty: nothing was changed.
        Refused: the file cannot be written; the text says what to type instead.
    """
    if params.profile is not None and params.profile not in context.config.profiles:
        raise InvalidArguments(
            f"no profile is named {params.profile!r}. {hint(params.profile, context.config.profiles)}"
        )
    changed = None if params.on is None else await _throw(context, params.profile, on=params.on)
    return {**_switches(context), "changed": changed, "note": _unexpected(context, params)}


LAZY = Command("lazy", LazyParams, lazy)


async def _throw(context: OperatorContext, profile: str | None, *, on: bool) -> dict[str, object]:
    word = "on" if on else "off"
    if profile is None:
        return await change(context, Setting(trail=("lazy",), value=on), f"mcpd lazy {word}")
    trail = ("profiles", profile, "lazy")
    return await change(context, Setting(trail=trail, value=on), f"mcpd lazy {word} --profile {profile}")


def _switches(context: OperatorContext) -> dict[str, object]:
    config = context.config
    surfaces = by_profile(config)
    sessions = Counter(session.profile for session in context.clients.statistics())
    return {
        "lazy": config.lazy,
        "config": context.facts.config,
        "profiles": {
            name: {
                "on": profile.lazy,
                "surface": surfaces[name],
                "configured": profile.surface,
                "categories": None if profile.categories is None else list(profile.categories),
                "description": profile.description,
                "sessions": sessions[name],
            }
            for name, profile in config.profiles.items()
        },
    }


def _unexpected(context: OperatorContext, params: LazyParams) -> str:
    """A note about a switch that is not as it was thrown, or that changes nothing; empty if there is none."""
    config = context.config
    if params.on is None:
        return ""
    now = config.lazy if params.profile is None else config.profiles[params.profile].lazy
    if now != params.on:
        return "the daemon was started with --lazy or --no-lazy, which counts more than the configuration"
    if params.profile is not None and params.on and not config.lazy:
        return "the master switch is off, so every profile shows all tools: `mcpd lazy on`"
    return ""
