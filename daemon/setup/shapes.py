"""How clients write a server, where they do it in another way than `mcpServers`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from daemon.setup.programs import OWN_NAME, NotTaken, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Entry = dict[str, Any]


def _plain(command: str, args: Sequence[str]) -> Entry:
    return {"command": command, "args": [*args]}


def _typed(command: str, args: Sequence[str]) -> Entry:
    return {"type": "stdio", **_plain(command, args)}


def _renamed(entry: Mapping[str, Any], names: Mapping[str, str]) -> Entry:
    """The entry with keys by other names; what has the new name already is kept."""
    made = {key: value for key, value in entry.items() if key not in names}
    for key, name in names.items():
        if key in entry:
            made.setdefault(name, entry[key])
    return made


def _in_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The value with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_in_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _in_texts(item, change) for key, item in value.items()}
    return value


def _opencode(entry: Mapping[str, Any]) -> Entry | NotTaken:
    """OpenCode: one list for command and arguments, `environment`, `{env:X}` and `{file:F}`."""
    if "type" not in entry and "command" not in entry and "url" not in entry:
        return NotTaken(why="only switches a server that stands elsewhere on or off")
    kept = {key: value for key, value in entry.items() if key != "type"}
    made: Entry = _in_texts(
        _renamed(kept, {"environment": "env"}),
        lambda text: re.sub(r"(?<!\$)\{(env|file):([^{}]+)\}", r"${\1:\2}", text),
    )
    if isinstance(words := made.get("command"), list) and words:
        made["command"], made["args"] = words[0], words[1:]
    return made


def _codex(entry: Mapping[str, Any]) -> Entry:
    """Codex: headers by the names of variables, and variables that are passed on by name."""
    made = _renamed(entry, {"http_headers": "headers"})
    headers = {**(made.get("headers") or {})}
    for name, variable in (made.pop("env_http_headers", None) or {}).items():
        headers[name] = f"${{{variable}}}"
    if variable := made.pop("bearer_token_env_var", None):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    if headers:
        made["headers"] = headers
    if passed := [name for name in made.pop("env_vars", None) or () if isinstance(name, str)]:
        made["env"] = {**{name: f"${{{name}}}" for name in passed}, **(made.get("env") or {})}
    return made


_OF_GOOSE = frozenset({"bundled", "name", "type", "available_tools"})
"""What Goose says of an extension beside how it is started."""


def _goose(entry: Mapping[str, Any]) -> Entry | NotTaken:
    """Goose: extensions, of which some types are MCP servers; secrets by name only, from its own store."""
    kind = entry.get("type")
    if kind not in {"stdio", "sse", "streamable_http"}:
        return NotTaken(why="is part of Goose itself, not an MCP server")
    made = _renamed(
        {key: value for key, value in entry.items() if key not in _OF_GOOSE},
        {"cmd": "command", "envs": "env", "uri": "url", "display_name": "title"},
    )
    if kind == "sse":
        made["type"] = "sse"
    if names := made.pop("env_keys", None):
        made["env"] = {**{name: f"${{{name}}}" for name in names}, **(made.get("env") or {})}
    return made


def _goose_entry(command: str, args: Sequence[str]) -> Entry:
    return {
        "enabled": True,
        "type": "stdio",
        "name": OWN_NAME,
        "description": "All MCP servers, through mcpd",
        "cmd": command,
        "args": [*args],
        "envs": {},
        "timeout": 300,
    }


def _zed(entry: Mapping[str, Any]) -> Entry | NotTaken:
    """Zed: servers of extensions have settings only; older versions wrote `command` as an object."""
    made = {key: value for key, value in entry.items() if key not in {"source", "settings", "remote"}}
    if isinstance(program := made.get("command"), dict):
        made = {**made, **_renamed(program, {"path": "command"})}
    if "command" not in made and "url" not in made:
        return NotTaken(why="is started by an extension of Zed's, which alone knows how")
    return made


def _continue(entry: Mapping[str, Any]) -> Entry | NotTaken:
    """Continue: items of a list, headers in `requestOptions`, secrets as `${{ secrets.X }}`."""
    if "uses" in entry:
        return NotTaken(why="is a block of Continue's hub: write its command or its url here")
    made: Entry = _in_texts(
        {key: value for key, value in entry.items() if key != "name"},
        lambda text: re.sub(r"\$\{\{\s*(?:secrets|inputs)\.([\w.-]+)\s*\}\}", r"${\1}", text),
    )
    if isinstance(options := made.get("requestOptions"), dict) and "headers" in options:
        made.setdefault("headers", options["headers"])
        del made["requestOptions"]
    if isinstance(milliseconds := made.pop("connectionTimeout", None), int | float):
        made["timeouts"] = {"initialize": milliseconds / 1000}
    return made


def _continue_entry(command: str, args: Sequence[str]) -> Entry:
    return {"name": OWN_NAME, **_plain(command, args)}


def _gemini(entry: Mapping[str, Any]) -> Entry:
    """Gemini CLI: variables may be written without braces, and `url` alone means SSE."""
    made: Entry = _in_texts(dict(entry), lambda text: re.sub(r"\$([A-Z_][A-Z0-9_]*)\b", r"${\1}", text))
    if "url" in made and "type" not in made and "httpUrl" not in made:
        made["type"] = "sse"
    return made


MCP_SERVERS = Shape(read=dict, write=_plain)
"""`mcpServers` of Claude Desktop, Cursor, Windsurf, LM Studio and most others."""
TYPED = Shape(read=dict, write=_typed)
"""The same with a `type`: Claude Code, VS Code."""
ZED = Shape(read=_zed, write=_plain)
CODEX = Shape(read=_codex, write=_plain)
OPENCODE = Shape(
    read=_opencode,
    write=lambda command, args: {"type": "local", "command": [command, *args]},
    milliseconds=True,
)
GEMINI = Shape(read=_gemini, write=_plain, milliseconds=True)
GOOSE = Shape(read=_goose, write=_goose_entry, milliseconds=False)
CONTINUE = Shape(read=_continue, write=_continue_entry)
CONTINUE_JSON = Shape(read=_continue, write=_plain)
"""Continue's files in JSON, which are those of other clients."""
