"""Keys and values of other MCP clients, and their meaning in mcpd.

Seen in the documentation of Claude Code, Claude Desktop, Cline, Roo Code, Cursor, VS Code, Windsurf, Zed,
Codex, OpenCode, Gemini CLI, Goose, Continue, Amazon Q, LM Studio and FastMCP.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

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


SECTIONS = ("servers", "context_servers", "mcp_servers", "mcp")
"""Names of `mcpServers` in whole files: VS Code, Zed, Codex, OpenCode. VS Code's settings: `mcp.servers`."""

_SETTINGS = "globalShortcut preferences isUsingBuiltInNodeForMcp theme selectedAuthType security general ui ide"

BESIDE_SECTIONS: Mapping[str, str] = {
    "inputs": "mcpd asks for no values while it starts: put them into the file 'env' beside the configuration,"
    " one NAME=VALUE a line, and write ${NAME}",
    **dict.fromkeys(_SETTINGS.split(), "ignored: a setting of the client's"),
}
"""Keys beside the servers in clients' files."""

RENAMED: Mapping[str, str] = {
    **dict.fromkeys(("serverUrl", "httpUrl", "endpoint", "uri"), "url"),
    **dict.fromkeys(("transport", "transportType"), "type"),
    **dict.fromkeys(("environment", "envs"), "env"),
    "httpHeaders": "headers",
    "env_file": "envFile",
    "cmd": "command",
    "arguments": "args",
    **dict.fromkeys(("workingDirectory", "workdir"), "cwd"),
    "displayName": "title",
    "isActive": "enabled",
}
"""Keys whose value is that of a key of mcpd's. Case, `_` and `-` do not count in these tables."""


class Wait(NamedTuple):
    """A client's time limit."""

    key: str
    """The key of `timeouts` that it is."""
    milliseconds: bool | None = None
    """Its unit; None if clients differ."""


WAITS: Mapping[str, Wait] = {
    **dict.fromkeys(("timeout", "toolTimeout", "requestTimeout"), Wait("call")),
    "tool_timeout_sec": Wait("call", milliseconds=False),
    "tool_timeout_ms": Wait("call", milliseconds=True),
    **dict.fromkeys(("initTimeout", "startupTimeout", "connectionTimeout"), Wait("initialize")),
    "startup_timeout_sec": Wait("initialize", milliseconds=False),
    "startup_timeout_ms": Wait("initialize", milliseconds=True),
}
"""Time limits."""

_CHOICE = (
    'mcpd chooses tools by category: write "categories": {"NAME": {"server": "NAME", "tools": {"includeNames":'
    " [...]}}}, or excludePatterns"
)
CONSENT = (
    "mcpd asks nobody before a call unless a rule says so, and clients ask by their own settings. To have other"
    ' tools asked about, write "permissions" of a profile: [{"match": "server/tool", "then": "allow"},'
    ' {"match": "server/*", "then": "ask"}]'
)
"""What is said of keys that say which calls a client does not ask about."""
_SIGN_IN = "mcpd logs in by OAuth alone (`mcpd login`), or sends the headers that it is given"
_SANDBOX = "mcpd starts the server without a sandbox: put one into `command`, as in docker or bwrap"

NOT_TAKEN: Mapping[str, str] = {
    **dict.fromkeys(("autoApprove", "alwaysAllow", "trust", "defaultToolsApprovalMode"), CONSENT),
    **dict.fromkeys(("enabledTools", "disabledTools", "includeTools", "excludeTools"), _CHOICE),
    **dict.fromkeys(("allowedTools", "availableTools", "tools"), _CHOICE),
    **dict.fromkeys(("authProviderType", "targetAudience", "targetServiceAccount", "headersHelper"), _SIGN_IN),
    **dict.fromkeys(("sandbox", "sandboxEnabled"), _SANDBOX),
    "settings": "mcpd hands nothing over but args and env: write them there",
}
"""Keys that mcpd has nothing for, with what to write instead."""

RULED = frozenset(key.replace("_", "").lower() for key, said in NOT_TAKEN.items() if said in {CONSENT, _CHOICE})
"""Keys by which a client treats a server's tools, folded."""

_FOR_CLIENTS = (
    "gallery dev metadata icon iconPath faviconUrl id source bundled author homepage tags required alwaysLoad"
    " supportsParallelToolCalls eventSourceInit fromGalleryId"
)

IGNORED: Mapping[str, str] = {
    "name": "ignored: the name is the key that the entry stands under",
    "version": "ignored: the version that is started stands in args, as in package@1.2.3",
    **dict.fromkeys(_FOR_CLIENTS.split(), "ignored: it means nothing but to the client"),
}
"""Keys without which the server is the same."""

SHAPED: Mapping[str, str] = {
    "disabled": "`enabled`, the opposite",
    "requestInit": "`headers`, those in it",
    "requestOptions": "`headers`, those in it",
    "envHttpHeaders": "`headers`, each with the value of a variable",
    "bearerTokenEnvVar": "`headers.Authorization`, with the value of a variable",
    "apiKey": "`headers.Authorization`",
    "envVars": "`env`, each with the value of the variable of its name",
    "envKeys": "`env`, each with the value of the variable of its name",
    "auth": "`oauth`, or `headers.Authorization`",
    "scopes": "`oauth.scopes`",
}
"""Keys that become another key with a value of another shape."""

OAUTH: Mapping[str, str] = {
    "callbackPort": "redirectPort",
    "client_id": "clientId",
    "client_secret": "clientSecret",
    "scope": "scopes",
    "authServerMetadataUrl": "metadataUrl",
}
"""Spellings of keys within `oauth`."""


def understood_keys() -> list[str]:
    """All keys of servers that clients write and mcpd understands."""
    return [*RENAMED, *WAITS, *SHAPED, *NOT_TAKEN, *IGNORED]


def understood(key: str) -> str:
    """What a client's key of a server means here, for the JSON Schema; empty if it is none."""
    if key in RENAMED:
        return f"Understood as `{RENAMED[key]}`."
    if key in WAITS:
        return f"Understood as `timeouts.{WAITS[key].key}`."
    if key in SHAPED:
        return f"Understood as {SHAPED[key]}."
    message = NOT_TAKEN.get(key) or IGNORED.get(key, "")
    return message and f"{message[0].upper()}{message[1:]}."
