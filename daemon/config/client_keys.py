"""The keys and values of other MCP clients, and their meaning in mcpd (client_keys.toml)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec

from daemon.kit.later import pattern

T = TypeVar("T")

_BRACED = pattern(r"(?<!\$)\{(env|file):((?<=file:)[^{}]+|[^{}:]+(?::-[^{}]*)?)\}")
_WHOLE = pattern(r"\$([A-Z][A-Z0-9_]{2,})")


def read_table(name: str, kind: type[T]) -> T:
    """Read and check a TOML table of this package; takes 4 ms."""
    return msgspec.toml.decode(Path(__file__).with_name(f"{name}.toml").read_bytes(), type=kind)


class ClientKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of a client's key: exactly one of `becomes`, `limits`, `shaped`, `lost` and `ignored`."""

    keys: tuple[str, ...]
    becomes: str = ""
    limits: str = ""
    milliseconds: bool | None = None
    """Whether the limit is in milliseconds; None if clients differ."""
    shaped: str = ""
    """mcpd's key, if the value needs another shape (`shaped`)."""
    lost: str = ""
    """Why mcpd cannot obey the key, and what to write instead."""
    ignored: str = ""
    """Why the server works the same without the key."""
    rules: bool = False
    may_be_empty: bool = False
    """Whether an empty value is dropped silently: Cline writes an empty list for every server."""

    @property
    def sentence(self) -> str:
        """The key's meaning as a sentence, for the JSON Schema and for faults."""
        ours = self.shaped or f"`{self.becomes or f'timeouts.{self.limits}'}`"
        said = self.lost or self.ignored or f"understood as {ours}"
        return f"{said[0].upper()}{said[1:]}."


class _TopLevel(msgspec.Struct, frozen=True):
    keys: tuple[str, ...]
    said: str


class ClientKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of client_keys.toml."""

    sections: tuple[str, ...]
    server: tuple[ClientKey, ...]
    oauth: dict[str, str]
    """mcpd's key by a client's key within `oauth`."""
    types: dict[str, str]
    top_level: tuple[_TopLevel, ...]
    instead: dict[str, dict[str, str]]
    """Advice on unknown keys, by model class and key."""


@cache
def table() -> ClientKeys:
    """The table. It is read on first use, because most configurations have only mcpd's keys."""
    return read_table("client_keys", ClientKeys)


@cache
def keys_of_servers() -> Mapping[str, ClientKey]:
    """The meaning of each client's key, by its folded form (`fold`)."""
    return {fold(key): meant for meant in table().server for key in meant.keys}


@cache
def top_level_keys() -> Mapping[str, str]:
    """Remarks on top-level keys of clients' files that hold no servers."""
    return {key: each.said for each in table().top_level for key in each.keys}


def fold(key: str) -> str:
    """Normalise a client's key, so that keys compare without regard to case, `_` and `-`."""
    return key.replace("_", "").replace("-", "").lower()


Made: TypeAlias = "tuple[str, object] | None"
"""mcpd's key and value; None if the client's value has a wrong type."""


def shaped(folded: str, value: object) -> Made:
    """Convert a client's key and value whose shape differs from mcpd's."""
    made: Made = None
    match folded, value:
        case "disabled", bool():
            made = "enabled", not value
        case "requestinit" | "requestoptions", {"headers": dict() as inner}:
            made = "headers", inner
        case "envhttpheaders", dict() if _are_names(value.values()):
            made = "headers", {name: f"${{{variable}}}" for name, variable in value.items()}
        case "bearertokenenvvar", str() if _are_names([value]):
            made = "headers", {"Authorization": f"Bearer ${{{value}}}"}
        case "envvars" | "envkeys", list() if _are_names(value):
            made = "env", {name: f"${{{name}}}" for name in value}
        case "auth", "oauth":  # FastMCP, which takes any other text for a token
            made = "oauth", {}
        case "auth", dict():
            made = "oauth", value
        case "auth" | "apikey", str():
            made = "headers", {"Authorization": f"Bearer {value}"}
        case "scopes", list():
            made = "oauth", {"scopes": value}
    return made


def _are_names(values: Iterable[object]) -> bool:
    """Whether values name variables. A name with a colon would make a reference of another kind."""
    return all(isinstance(each, str) and ":" not in each for each in values)


def command_line(value: object) -> list[str] | None:
    """Split a command that holds a whole command line; None for a path, which may hold spaces."""
    if not isinstance(value, str) or "${" in value or not value.strip() or "\\" in value:
        return None
    if "/" in value.split()[0] or len(value.split()) == 1:
        return None
    try:
        return shlex.split(value)
    except ValueError:
        return None


def is_plain(value: object) -> bool:
    """Whether a value is a number or a boolean."""
    return isinstance(value, bool | int | float)


def as_text(value: object) -> object:
    """Turn numbers and booleans into text."""
    return json.dumps(value) if is_plain(value) else value


def referring(value: object, seen: list[str]) -> object:
    """Rewrite other clients' references in mcpd's spelling, and append each to `seen`."""

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
