"""Patterns that choose tools by name: a glob, or a regex between slashes.

Regexes are RE2's: no lookaround and no back-references, and in return the time that a match takes grows with
the length of the name only (https://github.com/google/re2/wiki/WhyRE2). A configuration cannot stop the event
loop.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import re2

from daemon.config.names import own_name

SLASHES = 2
"""The fewest characters of a regex: its two slashes."""

MAX_PATTERN = 1024
"""Longest pattern, in characters: eight times the longest name of a tool."""

COMPILED = 1024
"""Compiled regexes that are kept: more than a configuration has."""


def pattern_problem(pattern: str) -> str:
    """What is wrong with a pattern, and what to write instead; empty if nothing is."""
    if not pattern:
        return "an empty pattern fits no tool: remove it"
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
        return (
            f"this regex does not compile: {_plain(error)}. Lookaround, back-references and counts"
            " over 1,000 are not supported (RE2)"
        )
    return ""


def matches(pattern: str, server: str, tool: str) -> bool:
    """Whether a tool fits a sound pattern: a glob is held against the tool's name and `server/tool`."""
    if _is_regex(pattern):
        return _compiled(pattern).search(tool) is not None
    return fnmatchcase(tool, own_name(pattern, server)) or fnmatchcase(f"{server}/{tool}", pattern)


def _is_regex(pattern: str) -> bool:
    return len(pattern) > SLASHES and pattern.startswith("/") and pattern.endswith("/")


@lru_cache(maxsize=COMPILED)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern[1:-1], options)


def _plain(error: Exception) -> str:
    text = error.args[0] if error.args else error
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
