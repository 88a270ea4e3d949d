"""Keys and values of other MCP clients, and their meaning in mcpd (client_keys.toml)."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

T = TypeVar("T")

SECTIONS = ("servers", "context_servers", "mcp_servers", "mcp")
"""Names of `mcpServers` in whole files: VS Code, Zed, Codex, OpenCode. VS Code's settings: `mcp.servers`."""

_BRACED = re.compile(r"(?<!\$)\{(env|file):([^{}]+)\}")
_WHOLE = re.compile(r"\$([A-Z][A-Z0-9_]{2,})")


def read_table(name: str, kind: type[T]) -> T:
    """A table of this package, checked: `client_keys`, `runners` or `known_servers`. Reading one takes 4 ms."""
    return msgspec.toml.decode(Path(__file__).with_name(f"{name}.toml").read_bytes(), type=kind)


class ClientKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What some clients' keys of a server mean: one of `becomes`, `limits`, `shaped`, `lost` and `ignored`."""

    keys: tuple[str, ...]
    """The keys, as clients write them."""
    becomes: str = ""
    """The key of mcpd's that has the same value."""
    limits: str = ""
    """The key of `timeouts` that it is."""
    milliseconds: bool | None = None
    """The unit of such a limit; None if clients differ."""
    shaped: str = ""
    """The key of mcpd's that it becomes with a value of another shape (`shaped`), in words."""
    lost: str = ""
    """Why mcpd has nothing for it, and what to write instead."""
    ignored: str = ""
    """Why the server is the same without it."""
    rules: bool = False
    """Whether a client treats a server's tools by it."""
    may_be_empty: bool = False
    """Whether it says nothing if it is empty: Cline writes an empty list of every server."""

    @property
    def sentence(self) -> str:
        """What it means, for the JSON Schema and for faults."""
        ours = self.shaped or f"`{self.becomes or f'timeouts.{self.limits}'}`"
        said = self.lost or self.ignored or f"understood as {ours}"
        return f"{said[0].upper()}{said[1:]}."


class _Beside(msgspec.Struct, frozen=True):
    keys: tuple[str, ...]
    said: str


class ClientKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table of all clients' keys."""

    server: tuple[ClientKey, ...]
    """Keys of servers."""
    oauth: dict[str, str]
    """Spellings of keys within `oauth`, with ours."""
    types: dict[str, str]
    """Words for `type`, with ours."""
    beside: tuple[_Beside, ...]
    """Keys beside the servers in clients' files."""
    instead: dict[str, dict[str, str]]
    """By class of the model: keys that it does not have, with what to write instead."""


@cache
def table() -> ClientKeys:
    """The table, read once: a configuration with no keys but mcpd's does not need it."""
    return read_table("client_keys", ClientKeys)


@cache
def keys_of_servers() -> Mapping[str, ClientKey]:
    """What each client's key of a server means, by the key as `fold` has it."""
    return {fold(key): meant for meant in table().server for key in meant.keys}


@cache
def keys_beside_servers() -> Mapping[str, str]:
    """What is said of each key beside the servers in clients' files."""
    return {key: each.said for each in table().beside for key in each.keys}


def fold(key: str) -> str:
    """A key as the table is searched for it: case, `_` and `-` do not count."""
    return key.replace("_", "").replace("-", "").lower()


Made: TypeAlias = "tuple[str, object] | None"
"""A key of mcpd's and its value; None if the client's value has not the type that it should have."""


def shaped(folded: str, value: object) -> Made:
    """The key of mcpd's that a client's key becomes, with the value in mcpd's shape."""
    made: Made = None
    match folded, value:
        case "disabled", bool():
            made = "enabled", not value
        case "requestinit" | "requestoptions", {"headers": dict() as inner}:
            made = "headers", inner
        case "envhttpheaders", dict() if _are_texts(value.values()):
            made = "headers", {name: f"${{{variable}}}" for name, variable in value.items()}
        case "bearertokenenvvar", str():
            made = "headers", {"Authorization": f"Bearer ${{{value}}}"}
        case "envvars" | "envkeys", list() if _are_texts(value):
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


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(each, str) for each in values)


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
