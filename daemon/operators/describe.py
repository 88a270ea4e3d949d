"""`mcpd describe`: the description of a tool that models are shown in place of its server's own.

It is written into the configuration: into each category that holds the tool, or, where none is configured that
does, into each profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.config.labels import split_off
from daemon.config.names import spellings
from daemon.errors import InvalidArguments
from daemon.operators.base import Command
from daemon.operators.setting import change_all
from daemon.operators.tool import known_tool, tool_named
from daemon.setup.setting import UNSET, Setting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from daemon.config.model import Config
    from daemon.model import ToolKey
    from daemon.operators.base import OperatorContext

LONGEST = 4096
"""Most characters of a description: a model reads it in each list."""


class DescribeParams(msgspec.Struct):
    """A tool, and what is said of it."""

    tool: str
    """`SERVER/TOOL`, or another name of it (`tool_names.tool_named`)."""
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
