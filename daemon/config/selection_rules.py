"""What must hold for categories: everything they name exists, and is named once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.hints import quoted
from daemon.config.jsonc import below
from daemon.config.names import (
    TITLE_LENGTH,
    ToolReference,
    pattern_problem,
    read_reference,
    title_is_sound,
    tool_name_is_sound,
)
from daemon.errors import Fault
from daemon.kit.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from daemon.config.model import Category, Profile

ANYBODY = "*"
"""No server's name: whose tool it is does not matter."""


def title_faults(names: Iterable[str], trail: str) -> Iterator[Fault]:
    """Categories or profiles that may not be called that."""
    for name in names:
        if not title_is_sound(name):
            message = f"this name must have 1 to {TITLE_LENGTH} printable characters"
            yield Fault(path=below(trail, name), message=message)


def category_faults(category: Category, trail: str, servers: Collection[str]) -> Iterator[Fault]:
    """Everything wrong with one category."""
    if category.server is not None and category.server not in servers:
        yield Fault(path=below(trail, "server"), message=_unknown_server(category.server, servers))
    here = below(trail, "tools")
    tools = category.tools
    names = [(below(below(here, "includeNames"), i), name) for i, name in enumerate(tools.include_names)]
    yield from reference_faults(names, category.server, servers)
    changed = [(below(below(here, "overrides"), name), name) for name in tools.overrides]
    yield from reference_faults(changed, category.server, servers)
    for key, patterns in (
        ("includePatterns", tools.include_patterns),
        ("excludePatterns", tools.exclude_patterns),
    ):
        for index, pattern in enumerate(patterns):
            yield from _pattern_faults(pattern, below(below(here, key), index))


def empty_faults(category: Category, trail: str) -> Iterator[Fault]:
    """A category in which no tool can be."""
    tools = category.tools
    if category.server is None and not tools.include_names and not tools.include_patterns:
        message = "this category has no tools: write a 'server', or tools.includeNames as server/tool"
        yield Fault(path=trail, message=message)


def reference_faults(
    names: Iterable[tuple[str, str]], server: str | None, servers: Collection[str], *, bare: bool = False
) -> Iterator[Fault]:
    """Tools that nobody can have, or that were named before in another spelling.

    Args:
        names: each with its trail.
        server: the server that bare names belong to.
        servers: all there are.
        bare: whether a name may leave open whose tool it is.
    """
    seen: dict[tuple[str, str], str] = {}
    for here, name in names:
        reference = read_reference(name, servers)
        message = _wrong_reference(reference, name, server or (ANYBODY if bare else None), servers)
        key = (reference.server or server or "", reference.tool)
        if message is not None:
            yield Fault(path=here, message=message)
        elif key in seen:
            yield Fault(path=here, message=_repeated(name, seen[key]))
        else:
            seen[key] = name


def _wrong_reference(
    reference: ToolReference, name: str, server: str | None, servers: Collection[str]
) -> str | None:
    if reference.server is None and server is None:
        example = next(iter(servers), "server")
        return f"{quoted(name)} does not say whose tool it is: write 'server/tool', as in '{example}/{name}'"
    if reference.server is not None and reference.server not in servers:
        return _unknown_server(reference.server, servers)
    if not tool_name_is_sound(reference.tool):
        return "a tool's name is 1 to 128 bytes of printable characters"
    return None


def _repeated(name: str, earlier: str) -> str:
    if name == earlier:
        return f"{quoted(name)} stands here twice: keep one of them"
    return f"{quoted(name)} is the same tool as {quoted(earlier)}: keep one of them"


def _unknown_server(name: str, servers: Collection[str]) -> str:
    return f"unknown server {quoted(name)}{suggestion(name, servers)}"


def _pattern_faults(pattern: str, here: str) -> Iterator[Fault]:
    problem = pattern_problem(pattern)
    if problem:
        yield Fault(path=here, message=problem)


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
