"""Changes of the configuration by an operator: `mcpd lazy`, `summaries` and `describe`.

What `mcpd` and the console change of the configuration goes through `change`: it is written where it stands,
checked, then in force.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio
from loguru import logger

from daemon.config.labels import split_off
from daemon.config.names import spellings
from daemon.errors import ConfigError, InvalidArguments
from daemon.kit.later import later
from daemon.kit.wording import camel, closest, hint, quoted
from daemon.operators.base import Command, Refused
from daemon.operators.tool_reports import known_tool, tool_named
from daemon.setup.settings import UNSET, Setting
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
"""Seconds that reading, checking and writing the file may take together: as long as a reload may read it."""


async def change(context: OperatorContext, setting: Setting, command: str) -> dict[str, object]:
    """Write a key where it stands in the configuration, and have the daemon read it again.

    Args:
        context: what the command works with.
        setting: the key and its value.
        command: what does the same on the command line, and takes `--config`: `mcpd lazy off`.

    Returns:
        `file` and `place` (`$.lazy`) of what was written, whether it stood there `already`, and what has been
        done because of it, as `reload` tells it.

    Raises:
        ConfigError: the configuration is faulty, or would be: nothing was changed.
        Refused: the file cannot be written; the text says what can be typed instead.
    """
    edit, plan = await _changed(context, (setting,), command)
    done = {camel(field): list(names) for field, names in attrs.asdict(plan, recurse=False).items()}
    return {**_places(edit)[0], "already": not edit.is_new, **done}


async def change_all(context: OperatorContext, wanted: Sequence[Setting]) -> dict[str, object]:
    """As `change`, for keys that are written together, or none of them.

    Returns:
        `places`: the `file` and `place` of each; whether all stood there `already`.
    """
    if not wanted:
        return {"places": [], "already": True}
    edit, _ = await _changed(context, wanted)
    return {"places": _places(edit), "already": not edit.is_new}


def _places(edit: SettingsEdit) -> list[dict[str, str]]:
    """Where what was changed stands, as reports say it."""
    return [{"file": str(each.file), "place": each.key} for each in edit.places]


async def _changed(
    context: OperatorContext, wanted: Sequence[Setting], command: str = ""
) -> tuple[SettingsEdit, Plan]:
    path = Path(context.facts.directory or ".", context.facts.config)
    async with context.switching:
        try:
            edit = await _in_thread(partial(_write, path, wanted, context.facts.environ))
        except files.DocumentError as error:
            raise Refused(f"{error}. {_instead(command, path, wanted)}") from None
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
    """Do it in a thread that is left behind if the file system hangs; modules are loaded there, too."""
    with trio.move_on_after(EDIT_SECONDS):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    raise Refused(f"no answer from the configuration's file system within {EDIT_SECONDS:g} s: look at it")


def _instead(command: str, path: Path, wanted: Sequence[Setting]) -> str:
    by_hand = " and ".join(map(_wanted, wanted))
    typed = f"types `{command} --config {shlex.quote(str(path))}`, or " if command else ""
    return f"Whoever may write it {typed}changes {by_hand} there by hand, then `mcpd reload`"


def _wanted(setting: Setting) -> str:
    key = ".".join(setting.trail)
    if setting.value is UNSET:
        return f"{key} (to be removed)"
    return f"{key}: {json.dumps(setting.value, ensure_ascii=False)}"


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
        `changed`: what was written (`change`), None if nothing was to be; `note`: a surprise.

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


class SummariesParams(msgspec.Struct):
    """What to do besides showing the state; at most one of these."""

    models: bool = False
    """Ask the endpoint what it offers."""
    model: str | None = None
    """Choose this model."""
    test: str | None = None
    """Put this question to the model; empty: one about a tool that mcpd has made up."""


async def summaries(context: OperatorContext, params: SummariesParams) -> dict[str, object]:
    """Show the state of summaries; ask the endpoint for its models, choose one, or put a question to it.

    Returns:
        `state`: the progress by field (`actors.summarizing`), None if no model is configured; `prompt`: the
        fixed instructions; `sends`: what leaves the machine; besides, by what was asked for, `models` (names),
        `changed` (`change`), or `test` (`SummaryModel.test`).

    Raises:
        InvalidArguments: the endpoint offers no such model, or the question is too long.
        McpdError: the endpoint cannot be asked; the text names it and the cause.
        Refused: the file cannot be written.
    """
    if context.summary_model is None:
        raise Refused("this daemon asks no model")
    asked, told = context.summary_model(), dict[str, object]()
    if params.models:
        told["models"] = list(await asked.models())
    elif params.model is not None:
        told["changed"] = await _choose(context, asked, params.model)
    elif params.test is not None:
        told["test"] = await asked.test(params.test)
    return {
        "state": context.counters.summarizer(),
        "config": context.facts.config,
        "prompt": asked.prompt,
        "sends": asked.sends,
        **told,
    }


SUMMARIES = Command("summaries", SummariesParams, summaries)


async def _choose(context: OperatorContext, asked: SummaryModel, model: str) -> dict[str, object]:
    """Write the model's name, if the endpoint offers it."""
    offered = await asked.models()
    if model not in offered:
        # An endpoint may offer hundreds.
        said = hint(model, offered) if closest(model, offered) else "`mcpd summaries --models` lists them."
        raise InvalidArguments(
            f"the endpoint lists no model {quoted(model)}. {said} If it has one all the same, write it at"
            f" $.summaries.model in {context.facts.config}, then `mcpd reload`"
        )
    command = f"mcpd summaries --model {model}"
    return await change(context, Setting(trail=("summaries", "model"), value=model), command)


LONGEST = 4096
"""Most characters of a description: a model reads it in each list."""


class DescribeParams(msgspec.Struct):
    """A tool, and what is said of it."""

    tool: str
    """`SERVER/TOOL`, or another name of it (`tool_reports.tool_named`)."""
    text: str | None = None
    """What models are shown; None: what the server itself says."""


async def describe(context: OperatorContext, params: DescribeParams) -> dict[str, object]:
    """Write a tool's description into the configuration, or take it out, and have that read.

    Raises:
        UnknownServer: there is no such server.
        UnknownTool: it lists no such tool.
        InvalidArguments: the text is empty or too long.
        ConfigError: the configuration is faulty, or would be: nothing was changed.
        Refused: the file cannot be written; the text says what can be changed by hand.
    """
    text = None if params.text is None else params.text.strip()
    if text is not None and not 0 < len(text) <= LONGEST:
        raise InvalidArguments(f"a description has 1 to {LONGEST} characters; `--reset` takes it out")
    key = _known(context, params.tool)
    done = await change_all(context, [*_settings(context, key, text)])
    return {"tool": "/".join(key), "description": text, **done}


DESCRIBE = Command("describe", DescribeParams, describe)


def described(config: Config, key: ToolKey, categories: Collection[str]) -> str | None:
    """The description that the configuration has for a tool; None if that is its server's own.

    Args:
        config: the configuration.
        key: the tool.
        categories: the names of the categories that hold it.
    """
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
    """How a configuration names a tool among the keys of an object; empty if it does not."""
    return next((name for name in (*spellings(*key)[1:], key[1]) if name in texts), "")
