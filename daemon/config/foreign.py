"""Keys that other clients have and mcpd spells in another way, with what to write here instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.listen import AccessToken, HttpListen
from daemon.config.model import Category, Config, Profile, Server, ToolSelection
from daemon.kit.wording import quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BY_CATEGORY = "to choose tools, define a category with tools.includeNames or tools.overrides"
_PERMISSIONS = 'write "permissions" of a profile: [{"match": "server/tool", "then": "allow"}]'
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
        "autoApprove": _PERMISSIONS,
        "alwaysAllow": _PERMISSIONS,
        "trust": _PERMISSIONS,
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
    HttpListen: {
        "host": 'write both in "address": "HOST:PORT"',
        "port": 'write both in "address": "HOST:PORT"',
        "token": 'write "tokens"',
        "allowedHosts": 'write "hosts"',
        "allowedOrigins": 'write "origins"',
    },
    AccessToken: {"token": 'write "value"', "profile": 'write "profiles": ["..."]'},
}
"""Keys of other clients, with what to write here instead."""


def unknown_key(cls: type, key: str, known: Iterable[str]) -> str:
    """The fault for a key that `cls` does not have."""
    advice = FOREIGN.get(cls, {}).get(key)
    return f"unknown key {quoted(key)}" + (f": {advice}" if advice else suggestion(key, known))
