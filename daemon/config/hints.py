"""What to write instead: the closest known word, and what other clients call the same thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.model import Category, Config, Profile, Server, ToolSelection
from daemon.kit.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHOWN = 64
"""Characters of somebody's own word that a fault repeats; names longer than that are not allowed anyway."""

_BY_CATEGORY = "to choose tools, define a category with tools.includeNames or tools.overrides"
_APPROVAL = "approval of calls is the client's business, not mcpd's: remove it"
_ELSEWHERE = "a setting of another program: remove it"
_TIMEOUT = 'write "timeouts": {"call": 60}, in seconds'
_AUTH = 'mcpd sends what it is given: write "headers": {"Authorization": "Bearer ${TOKEN}"}'
_THE_KEY = "the name is the key that the entry stands under: remove it"

FOREIGN: Mapping[type, Mapping[str, str]] = {
    Config: {
        "servers": 'write "mcpServers"',
        "mcp": 'write "mcpServers", with the servers directly in it',
        "context_servers": 'write "mcpServers"',
        "mcp_servers": 'write "mcpServers"',
        "inputs": "mcpd cannot ask while it starts: export a variable and write ${VAR} where its value belongs",
        "globalShortcut": _ELSEWHERE,
        "preferences": _ELSEWHERE,
    },
    Server: {
        "disabled": 'write "enabled" and the opposite: "enabled": false for "disabled": true',
        "autoApprove": _APPROVAL,
        "alwaysAllow": _APPROVAL,
        "trust": _APPROVAL,
        "timeout": _TIMEOUT,
        "tool_timeout_sec": _TIMEOUT,
        "initTimeout": 'write "timeouts": {"initialize": 30}, in seconds',
        "startup_timeout_sec": 'write "timeouts": {"initialize": 30}, in seconds',
        "serverUrl": 'write "url"',
        "httpUrl": 'write "url"',
        "endpoint": 'write "url"',
        "uri": 'write "url"',
        "transport": 'write "type"',
        "transportType": 'write "type"',
        "environment": 'write "env"',
        "http_headers": 'write "headers"',
        "requestInit": 'write "headers"',
        "envFile": 'name the variables, "env": {"KEY": "${KEY}"}, or read one from a file with ${file:PATH}',
        "bearer_token_env_var": _AUTH,
        "auth": _AUTH,
        "oauth": _AUTH,
        "authProviderType": _AUTH,
        "disabledTools": _BY_CATEGORY,
        "enabledTools": _BY_CATEGORY,
        "excludeTools": _BY_CATEGORY,
        "includeTools": _BY_CATEGORY,
        "allowedTools": _BY_CATEGORY,
        "tools": _BY_CATEGORY,
        "name": _THE_KEY,
        "gallery": _ELSEWHERE,
        "version": "pin the version in args, as in package@1.2.3",
        "dev": _ELSEWHERE,
    },
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
}
"""Keys that people bring along from other clients, and what says the same here."""


def unknown_key(cls: type, key: str, known: Iterable[str]) -> str:
    """What to say about a key that `cls` does not have."""
    advice = FOREIGN.get(cls, {}).get(key)
    return f"unknown key {quoted(key)}" + (f": {advice}" if advice else suggestion(key, known))


def quoted(word: str) -> str:
    """Somebody's own word in quotes, cut to a length that leaves the sentence readable."""
    return f"'{word}'" if len(word) <= SHOWN else f"'{word[:SHOWN]}…'"
