"""An operator's changes to the configuration: written in place, checked and put in force."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from loguru import logger
from msgspec import UNSET

from daemon.config.jsonc import ROOT
from daemon.config.labels import split_off
from daemon.config.names import spellings
from daemon.documents.edited import spelt
from daemon.errors import ConfigError, InvalidArguments
from daemon.kit.later import later
from daemon.kit.wording import closest, hint, quoted
from daemon.operators.base import Command, Refused
from daemon.operators.tool_reports import known_tool, tool_named
from daemon.setup.settings import Setting
from daemon.surfaces.table import by_profile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from daemon.config.config_model import Config
    from daemon.config.parse import Plan
    from daemon.documents import files
    from daemon.model import ToolKey
    from daemon.operators.base import OperatorContext, SummaryModel
    from daemon.setup import settings
    from daemon.setup.settings import SettingsEdit
else:  # Most daemons never change their configuration themselves.
    settings = later("daemon.setup.settings")
    files = later("daemon.documents.files")

EDIT_SECONDS = 10.0
"""Most seconds to read, check and write the file together: as long as a reload may take to read it."""


async def change(context: OperatorContext, setting: Setting) -> dict[str, object]:
    """Write a key where it stands in the configuration, and reload; returns `file`, `place` and the plan.

    Raises `ConfigError` for a faulty configuration, `Refused` for an unwritable file; then nothing is changed.
    """
    edit, plan = await _changed(context, (setting,))
    return {**_places(edit)[0], "already": not edit.is_new, **msgspec.to_builtins(plan)}


async def change_all(context: OperatorContext, wanted: Sequence[Setting]) -> dict[str, object]:
    """Write several keys together or not at all, as `change` does; returns their `places`."""
    if not wanted:
        return {"places": [], "already": True}
    edit, _ = await _changed(context, wanted)
    return {"places": _places(edit), "already": not edit.is_new}


def _places(edit: SettingsEdit) -> list[dict[str, str]]:
    return [{"file": str(each.file), "place": each.key} for each in edit.places]


async def _changed(context: OperatorContext, wanted: Sequence[Setting]) -> tuple[SettingsEdit, Plan]:
    path = Path(context.facts.directory or ".", context.facts.config)
    async with context.switching:
        try:
            edit = await _in_thread(partial(_write, path, wanted, context.facts.environ))
        except files.DocumentError as error:
            raise Refused(f"{error}. {_instead(path, wanted)}") from None
        try:
            plan = await context.reload()
        except ConfigError:
            # What the file says must be what a new start can read.
            if edit.is_new:
                await _in_thread(edit.undo)
            raise
    for each in edit.places if edit.is_new else ():
        logger.info("an operator has changed {} in {}", each.key, each.file)
    return edit, plan


def _write(path: Path, wanted: Sequence[Setting], environ: Mapping[str, str]) -> SettingsEdit:
    edit: SettingsEdit = settings.edited(path, wanted, environ)
    edit.write()
    return edit


async def _in_thread(work: Any) -> Any:
    """Run blocking work, which also imports modules, in a thread; abandon it if the file system hangs."""
    with trio.move_on_after(EDIT_SECONDS):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    raise Refused(f"the configuration's file system does not answer ({EDIT_SECONDS:g} s): check its mount")


def _instead(path: Path, wanted: Sequence[Setting]) -> str:
    verb = "unset" if wanted[0].value is UNSET else "set"
    typed = shlex.join(["mcpd", verb, ".", *map(_typed, wanted), "--config", str(path)])
    return f"A user who may write the file can type `{typed}`, or edit the file and run `mcpd reload`"


def _typed(setting: Setting) -> str:
    key, value = spelt(setting.trail).removeprefix(f"{ROOT}."), setting.value
    if value is UNSET:
        return key
    return f"{key}={value if isinstance(value, str) else json.dumps(value)}"


class LazyParams(msgspec.Struct):
    """A switch and its new position; without `on` no switch changes."""

    on: bool | None = None
    profile: str | None = None
    """The profile that has the switch; None for the master switch."""


async def lazy(context: OperatorContext, params: LazyParams) -> dict[str, object]:
    """Turn loading on demand on or off; returns all switches. Raises `InvalidArguments`, or as `change`."""
    if params.profile is not None and params.profile not in context.config.profiles:
        raise InvalidArguments(
            f"no profile is named {params.profile!r}. {hint(params.profile, context.config.profiles)}"
        )
    trail = ("lazy",) if params.profile is None else ("profiles", params.profile, "lazy")
    changed = None if params.on is None else await change(context, Setting(trail=trail, value=params.on))
    return {**_switches(context), "changed": changed, "note": _unexpected(context, params)}


LAZY = Command("lazy", LazyParams, lazy)


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
    config = context.config
    if params.on is None:
        return ""
    now = config.lazy if params.profile is None else config.profiles[params.profile].lazy
    if now != params.on:
        return "the daemon was started with --lazy or --no-lazy, which overrides the configuration"
    if params.profile is not None and params.on and not config.lazy:
        return "the master switch is off, so every profile shows all tools: `mcpd lazy on`"
    return ""


class SummariesParams(msgspec.Struct):
    """At most one action on the model for summaries; the answer has the state in any case."""

    models: bool = False
    model: str | None = None
    test: str | None = None
    """A question to put to the model; if empty, mcpd asks about an invented tool."""


async def summaries(context: OperatorContext, params: SummariesParams) -> dict[str, object]:
    """Show the state of summaries, list or choose models, or put a question; raises `McpdError`."""
    if context.summary_model is None:
        raise Refused("this daemon asks no model")
    asked, found = context.summary_model(), dict[str, object]()
    if params.models:
        found["models"] = list(await asked.models())
    elif params.model is not None:
        found["changed"] = await _choose(context, asked, params.model)
    elif params.test is not None:
        found["test"] = await asked.test(params.test)
    return {
        "state": context.counters.summarizer(),
        "config": context.facts.config,
        "prompt": asked.prompt,
        "sends": asked.sends,
        **found,
    }


SUMMARIES = Command("summaries", SummariesParams, summaries)


async def _choose(context: OperatorContext, asked: SummaryModel, model: str) -> dict[str, object]:
    offered = await asked.models()
    if model not in offered:
        # An endpoint may offer hundreds.
        instead = hint(model, offered) if closest(model, offered) else "`mcpd summaries --models` lists them."
        raise InvalidArguments(
            f"the endpoint lists no model {quoted(model)}. {instead} If it has that model all the same, write"
            f" the name at $.summaries.model in {context.facts.config}, then `mcpd reload`"
        )
    return await change(context, Setting(trail=("summaries", "model"), value=model))


LONGEST = 4096
"""Most characters of a description: a model reads it in each list."""


class DescribeParams(msgspec.Struct):
    """A tool and its new description."""

    tool: str
    """`SERVER/TOOL`, or another of the tool's names (`tool_reports.tool_named`)."""
    text: str | None = None
    """The text for models; None restores the server's own."""


async def describe(context: OperatorContext, params: DescribeParams) -> dict[str, object]:
    """Write a tool's description into the configuration, or remove it; raises as `change` does."""
    text = None if params.text is None else params.text.strip()
    if text is not None and not 0 < len(text) <= LONGEST:
        raise InvalidArguments(f"a description has 1 to {LONGEST} characters; `--reset` removes it")
    key = _known(context, params.tool)
    done = await change_all(context, [*_settings(context, key, text)])
    return {"tool": "/".join(key), "description": text, **done}


DESCRIBE = Command("describe", DescribeParams, describe)


def described(config: Config, key: ToolKey, categories: Collection[str]) -> str | None:
    """The configuration's description of a tool in these categories; None if it has none."""
    for name in categories:
        held = config.categories.get(name)
        overrides = {} if held is None else held.tools.overrides
        written = _written(overrides, key)
        if written and overrides[written].description is not None:
            return overrides[written].description
    for profile in config.profiles.values():
        if written := _written(profile.tool_description_overrides, key):
            return profile.tool_description_overrides[written]
    return None


def _known(context: OperatorContext, word: str) -> ToolKey:
    server, tool = split_off(word)
    key = (server, tool) if server else tool_named(context.catalog, word)
    known_tool(context, *key)
    return key


def _settings(context: OperatorContext, key: ToolKey, text: str | None) -> Iterator[Setting]:
    config, catalog = context.config, context.catalog
    value = UNSET if text is None else text
    holding = [
        name for name, each in catalog.categories.items() if name in config.categories and each.member(key)
    ]
    # A profile's own text counts more than a category's: where it has one, that is what changes.
    for name, profile in config.profiles.items():
        written = _written(profile.tool_description_overrides, key)
        if written or (text is not None and not holding):
            own = ("profiles", name, "toolDescriptionOverrides", written or "/".join(key))
            yield Setting(trail=own, value=value)
    for name in holding:
        written = _written(config.categories[name].tools.overrides, key)
        if written or text is not None:
            held = ("categories", name, "tools", "overrides", written or "/".join(key), "description")
            yield Setting(trail=held, value=value, holder_is_its=True)


def _written(texts: Collection[str], key: ToolKey) -> str:
    """The key for a tool in an object of the configuration; empty without one."""
    return next((name for name in (*spellings(*key)[1:], key[1]) if name in texts), "")
