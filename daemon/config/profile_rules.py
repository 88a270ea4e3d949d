"""What must hold for profiles: everything they name exists, and is named once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.category_rules import reference_faults
from daemon.config.hints import quoted
from daemon.config.trail import below
from daemon.errors import Fault
from daemon.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from daemon.config.model import Profile

MOST_ANSWER_TOKENS = 65_536
"""256 KiB: an answer is built in the turn in which it is asked for, and no model reads more at once."""


def profile_faults(
    profile: Profile, trail: str, servers: Collection[str], categories: Collection[str]
) -> Iterator[Fault]:
    """Everything wrong with one profile, but for its surface."""
    if profile.answer_tokens > MOST_ANSWER_TOKENS:
        message = f"{profile.answer_tokens} is too much; it must be {MOST_ANSWER_TOKENS} or less"
        yield Fault(path=below(trail, "answerTokens"), message=message)
    here = below(trail, "categories")
    for index, name in enumerate(profile.categories or ()):
        if name not in categories:
            message = f"unknown category {quoted(name)}{suggestion(name, categories)}"
            yield Fault(path=below(here, index), message=message)
        elif name in (profile.categories or ())[:index]:
            yield Fault(path=below(here, index), message=f"{quoted(name)} stands here twice")
    for key, tools in (
        ("coreTools", profile.core_tools or ()),
        ("preload", profile.preload),
        ("excludedTools", profile.excluded_tools),
        ("includedOptionalTools", profile.included_optional_tools),
    ):
        yield from _tool_faults(tools, below(trail, key), servers)
    overrides = below(trail, "toolDescriptionOverrides")
    named = [(below(overrides, name), name) for name in profile.tool_description_overrides]
    yield from reference_faults(named, None, servers, bare=True)


def surface_faults(profile: Profile, trail: str, surfaces: Sequence[str]) -> Iterator[Fault]:
    """A surface that this daemon does not have; none if nobody said which it has."""
    if surfaces and profile.surface not in surfaces:
        message = f"unknown surface {quoted(profile.surface)}{suggestion(profile.surface, surfaces)}"
        yield Fault(path=below(trail, "surface"), message=message)


def _tool_faults(tools: Sequence[str], trail: str, servers: Collection[str]) -> Iterator[Fault]:
    named = [(below(trail, index), name) for index, name in enumerate(tools)]
    yield from reference_faults(named, None, servers, bare=True)
