"""What other clients write as the values of a server's keys, in the shapes that mcpd has for them."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BRACED = re.compile(r"(?<!\$)\{(env|file):([^{}]+)\}")
_WHOLE = re.compile(r"\$([A-Z][A-Z0-9_]{2,})")

Made: TypeAlias = "tuple[str, object] | None"
"""A key of mcpd's and its value; None if the client's value has not the type that it should have."""


def command_line(value: object) -> list[str] | None:
    """The words of a command that is a whole command line; None if it is a path, which may hold spaces."""
    if not isinstance(value, str) or "${" in value or not value.strip() or "\\" in value:
        return None
    if "/" in value.split()[0] or len(value.split()) == 1:
        return None
    try:
        return shlex.split(value)
    except ValueError:
        return None


def is_plain(value: object) -> bool:
    """Whether a value is a number, true or false."""
    return isinstance(value, bool | int | float)


def as_text(value: object) -> object:
    """A number, true or false as text; any other value as it is."""
    return json.dumps(value) if is_plain(value) else value


def referring(value: object, seen: list[str]) -> object:
    """A value with other clients' references in mcpd's spelling; adds what they now are to `seen`."""

    def replace(match: re.Match[str]) -> str:
        seen.append(f"${{{match[2]}}}" if match[1] == "env" else f"${{file:{match[2]}}}")
        return seen[-1]

    match value:
        case str() if whole := _WHOLE.fullmatch(value):
            seen.append(f"${{{whole[1]}}}")
            return seen[-1]
        case str():
            return _BRACED.sub(replace, value)
        case list():
            return [referring(each, seen) for each in value]
        case dict():
            return {key: referring(each, seen) for key, each in value.items()}
    return value


def _opposite(value: object) -> Made:
    return ("enabled", not value) if isinstance(value, bool) else None


def _headers_within(value: object) -> Made:
    inner = value.get("headers") if isinstance(value, dict) else None
    return ("headers", inner) if isinstance(inner, dict) else None


def _headers_of_variables(value: object) -> Made:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        return None
    return "headers", {name: f"${{{variable}}}" for name, variable in value.items()}


def _bearer_of_variable(value: object) -> Made:
    return ("headers", {"Authorization": f"Bearer ${{{value}}}"}) if isinstance(value, str) else None


def _bearer(value: object) -> Made:
    return ("headers", {"Authorization": f"Bearer {value}"}) if isinstance(value, str) else None


def _variables(value: object) -> Made:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return None
    return "env", {name: f"${{{name}}}" for name in value}


def _auth(value: object) -> Made:
    if value == "oauth":  # FastMCP, which takes any other text for a token
        return "oauth", {}
    return ("oauth", value) if isinstance(value, dict) else _bearer(value)


def _scopes(value: object) -> Made:
    return ("oauth", {"scopes": value}) if isinstance(value, list) else None


SHAPES: Mapping[str, Callable[[object], Made]] = {
    "disabled": _opposite,
    "requestinit": _headers_within,
    "requestoptions": _headers_within,
    "envhttpheaders": _headers_of_variables,
    "bearertokenenvvar": _bearer_of_variable,
    "apikey": _bearer,
    "envvars": _variables,
    "envkeys": _variables,
    "auth": _auth,
    "scopes": _scopes,
}
"""How each key of `SHAPED` becomes a key of mcpd's and its value; None for a value of the wrong type."""
