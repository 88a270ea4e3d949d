"""Names of servers and tools, and patterns that select tools (RE2, which takes linear time)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import msgspec
import re2

SERVER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Allows names that are safe in paths, log lines, URLs and clients' prefixes; use `fullmatch`."""

TITLE_LENGTH = 64

TOOL_BYTES = 128
"""UTF-8 bytes of a tool's name; the longest of 1,519 real ones has 57."""


class ToolReference(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed tool name."""

    server: str | None
    tool: str


CLIENT_PREFIX = "mcp__"


def spellings(server: str, tool: str) -> tuple[str, str, str]:
    """The three spellings of a tool that `read_reference` accepts."""
    return tool, f"{server}/{tool}", f"{CLIENT_PREFIX}{server}__{tool}"


def read_shown(name: str, servers: Collection[str]) -> ToolReference:
    """Parse `server__tool`, the form that clients see."""
    return read_reference(CLIENT_PREFIX + name, servers)


def read_reference(name: str, servers: Collection[str]) -> ToolReference:
    """Parse `tool`, `server/tool` or `mcp__server__tool`; `servers` show where a prefix ends."""
    if name.startswith(CLIENT_PREFIX):
        rest = name.removeprefix(CLIENT_PREFIX)
        # The longest first: with servers `a` and `a__b`, the tool of `mcp__a__b__c` is `c`.
        for server in sorted(servers, key=len, reverse=True):
            if rest.startswith(f"{server}__"):
                return ToolReference(server=server, tool=rest.removeprefix(f"{server}__"))
        head, separator, tool = rest.partition("__")
        if separator:
            return ToolReference(server=head, tool=tool)
    head, separator, tool = name.partition("/")
    return ToolReference(server=head, tool=tool) if separator else ToolReference(server=None, tool=name)


def own_name(name: str, server: str) -> str:
    """Remove the server's prefix from a tool's name."""
    return name.removeprefix(f"{CLIENT_PREFIX}{server}__").removeprefix(f"{server}/")


def tool_name_is_sound(tool: str) -> bool:
    """Whether a server may give a tool this name."""
    return bool(tool) and tool.isprintable() and len(tool.encode()) <= TOOL_BYTES


def title_is_sound(title: str) -> bool:
    """Whether a category or a profile may have this name."""
    return 1 <= len(title) <= TITLE_LENGTH and title.isprintable() and bool(title.strip())


def slug(name: str, taken: Collection[str] = ()) -> str | None:
    """A valid, unused server name like `name`; None if no character of `name` is allowed."""
    if name[:1].islower():
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    base = re.sub(r"[^a-z0-9_]+", "-", plain).strip("-_")[:60]
    if not base:
        return None
    candidates = [base, *(f"{base}-{number}" for number in range(2, 100))]
    return next((candidate for candidate in candidates if candidate not in taken), None)


MAX_PATTERN = 1024
"""Characters of a pattern: eight times the longest tool name."""

COMPILED = 1024
"""Cached regexes: more than a configuration has."""


def pattern_problem(pattern: str) -> str:
    """The fault of a pattern, and the remedy; empty if the pattern is valid."""
    if not pattern:
        return "an empty pattern matches no tool: remove it"
    if len(pattern) > MAX_PATTERN:
        return f"a pattern has at most {MAX_PATTERN} characters"
    return _regex_problem(pattern) if pattern.startswith("/") else ""


def _regex_problem(pattern: str) -> str:
    if not _is_regex(pattern):
        return "a regex stands between two slashes: /^git_/"
    try:
        _compiled(pattern)
    except UnicodeEncodeError:
        return "this regex holds half a character (an unpaired surrogate)"
    except re2.error as error:
        text = error.args[0] if error.args else error
        plain = text.decode(errors="replace") if isinstance(text, bytes) else text
        return (
            f"this regex does not compile: {plain}. Lookaround, back-references and counts"
            " over 1,000 are not supported (RE2)"
        )
    return ""


def matches(pattern: str, server: str, tool: str) -> bool:
    """Whether a valid pattern matches a tool; a glob may match `tool` or `server/tool`."""
    if _is_regex(pattern):
        return _compiled(pattern).search(tool) is not None
    return fnmatchcase(tool, own_name(pattern, server)) or fnmatchcase(f"{server}/{tool}", pattern)


def _is_regex(pattern: str) -> bool:
    return len(pattern) > len("//") and pattern.startswith("/") and pattern.endswith("/")


@lru_cache(maxsize=COMPILED)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern[1:-1], options)
