"""Files of `KEY=VALUE` lines: `env` beside the configuration, as systemd reads it, and `envFile` of servers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_IGNORED = re.compile(r"[ \t]*(?:[#;][^\n]*)?(?:\n|\Z)")
_ASSIGNMENT = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)[ \t]*=
        (?P<quoted>(?:[ \t]*(?:'[^']*+'|"(?:[^"\\]|\\.)*+"))*+)[ \t]*
        (?P<plain>(?:[^\\\n]|\\.)*+)(?:\n|\Z)""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)
"""An assignment. It may go on over several lines: within quotes, and behind a backslash at the end of one."""

_QUOTED = re.compile(r"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)\"""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\(["\\$`\n])')
_TO_ESCAPE = re.compile(r'["\\$`]')
_BARE = re.compile(r"[\w./:@%+,=-]+", re.ASCII)
"""Values that need no quotes."""


def read_env(text: str) -> dict[str, str]:
    """The variables of a file, as `EnvironmentFile=` of systemd.exec(5) reads them; `export` may stand before.

    Raises:
        ValueError: a line is no assignment; the text names the line and nothing of what stands in it.
    """
    return {found["name"]: _value(found) for found in _assignments(_unix(text))}


def with_variable(text: str, name: str, value: str) -> str:
    """The text of such a file with a variable set: replaced where it stands, else added at the end.

    Raises:
        ValueError: a line is no assignment, or such a file cannot hold the value.
    """
    if "\0" in value or "\r" in value:
        raise ValueError("a value in a file of variables holds no NUL and no carriage return")
    text = _unix(text)
    written = value if _BARE.fullmatch(value) else '"' + _TO_ESCAPE.sub(r"\\\g<0>", value) + '"'
    line = f"{name}={written}\n"
    # The last one counts.
    places = [found.span() for found in _assignments(text) if found["name"] == name]
    if places:
        start, end = places[-1]
        return text[:start] + line + text[end:]
    return text + ("\n" if text and not text.endswith("\n") else "") + line


def without_variable(text: str, name: str) -> str:
    """The text of such a file without a variable; comments stay.

    Raises:
        ValueError: a line is no assignment.
    """
    text = _unix(text)
    for start, end in reversed([found.span() for found in _assignments(text) if found["name"] == name]):
        text = text[:start] + text[end:]
    return text


def _unix(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _assignments(text: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(text):
        found = _ASSIGNMENT.match(text, at)
        if found is not None and not found["plain"].startswith(("'", '"')):
            yield found
        elif (passed := _IGNORED.match(text, at)) is not None:
            found = passed
        else:
            line = text.count("\n", 0, at) + 1
            what = "is no KEY=VALUE" if found is None else "begins a quote that does not end"
            raise ValueError(f"line {line} {what}")
        at = found.end()


def _value(found: re.Match[str]) -> str:
    parts = [
        each["single"] if each["double"] is None else _ESCAPED_IN_QUOTES.sub(_unescaped, each["double"])
        for each in _QUOTED.finditer(found["quoted"])
    ]
    return "".join(parts) + _ESCAPED.sub(_unescaped, found["plain"].rstrip(" \t"))


def _unescaped(escape: re.Match[str]) -> str:
    return escape[1].replace("\n", "")
