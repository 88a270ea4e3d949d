"""Keys that people write and mcpd does not have, with what to write instead; for servers see `client_keys`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.client_keys import understood
from daemon.config.listen import AccessToken, HttpListen
from daemon.config.model import Category, Profile, Server, ToolSelection
from daemon.kit.wording import quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_THE_KEY = "the name is the key that the entry stands under: remove it"

FOREIGN: Mapping[type, Mapping[str, str]] = {
    Category: {
        "name": _THE_KEY,
        "includeNames": 'write "tools": {"includeNames": [...]}',
        "includePatterns": 'write "tools": {"includePatterns": [...]}',
        "excludePatterns": 'write "tools": {"excludePatterns": [...]}',
        "overrides": 'write "tools": {"overrides": {...}}',
    },
    ToolSelection: {
        "include": 'write "includeNames" or "includePatterns"',
        "names": 'write "includeNames"',
        "exclude": 'write "excludePatterns"',
    },
    Profile: {"name": _THE_KEY},
    HttpListen: {
        "host": 'write both in "address": "HOST:PORT"',
        "port": 'write both in "address": "HOST:PORT"',
        "token": 'write "tokens"',
        "allowedHosts": 'write "hosts"',
        "allowedOrigins": 'write "origins"',
    },
    AccessToken: {"token": 'write "value"', "profile": 'write "profiles": ["..."]'},
}
"""Keys that are not there, with what to write instead."""


def unknown_key(cls: type, key: str, known: Iterable[str]) -> str:
    """The fault for a key that `cls` does not have."""
    if cls is Server and (meaning := understood(key)):
        return f"this value of {quoted(key)} cannot be understood. {meaning}"
    advice = FOREIGN.get(cls, {}).get(key)
    return f"unknown key {quoted(key)}" + (f": {advice}" if advice else suggestion(key, known))
