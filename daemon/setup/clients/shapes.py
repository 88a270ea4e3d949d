"""How clients write a server, where `config.translation` cannot know it from the entry alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import attrs

from daemon.setup.clients.programs import OWN_NAME, NotTaken, Shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Entry = dict[str, Any]

_OF_CONTINUE = r"\$\{\{\s*(?:secrets|inputs)\.([\w.-]+)\s*\}\}"


def _plain(command: str, args: Sequence[str]) -> Entry:
    return {"command": command, "args": [*args]}


def _typed(command: str, args: Sequence[str]) -> Entry:
    return {"type": "stdio", **_plain(command, args)}


def _opencode(entry: Mapping[str, Any]) -> Entry | NotTaken:
    if not {"type", "command", "url"} & entry.keys():
        return NotTaken(why="only switches a server that stands elsewhere on or off")
    return dict(entry)


def _goose(entry: Mapping[str, Any]) -> Entry | NotTaken:
    """Goose's extensions, of which some types are MCP servers."""
    if entry.get("type") not in {"stdio", "sse", "streamable_http"}:
        return NotTaken(why="is part of Goose itself, not an MCP server")
    return dict(entry)


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
    """Servers of Zed's extensions have settings only."""
    if not {"command", "url"} & entry.keys():
        return NotTaken(why="is started by an extension of Zed's, which alone knows how")
    return dict(entry)


def _continue(entry: Mapping[str, Any]) -> Entry | NotTaken:
    """Continue's items, with secrets as `${{ secrets.X }}`."""
    if "uses" in entry:
        return NotTaken(why="is a block of Continue's hub, which keeps its command")
    made: Entry = _with_references(dict(entry))
    return made


def _with_references(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub(_OF_CONTINUE, r"${\1}", value)
    if isinstance(value, dict):
        return {key: _with_references(item) for key, item in value.items()}
    return [_with_references(item) for item in value] if isinstance(value, list) else value


def _continue_entry(command: str, args: Sequence[str]) -> Entry:
    return {"name": OWN_NAME, **_plain(command, args)}


def _gemini(entry: Mapping[str, Any]) -> Entry:
    """Of Gemini CLI, `url` alone means SSE."""
    alone = "url" in entry and not {"type", "httpUrl", "command"} & entry.keys()
    return {"type": "sse", **entry} if alone else dict(entry)


_NAMED = r"\$\{[A-Za-z_]\w*(?::-[^}]*)?\}"
_OF_EDITORS = r"env:\w+|workspaceFolder(?:Basename)?|workspaceRoot|userHome|pathSeparator|/"

MCP_SERVERS = Shape(read=dict, write=_plain)
"""`mcpServers` of Claude Desktop, LM Studio, Junie and others; Codex writes the same in TOML."""
CURSOR = Shape(read=dict, write=_plain, refers=rf"\$\{{(?:{_OF_EDITORS})\}}")
WINDSURF = Shape(read=dict, write=_plain, refers=r"\$\{(?:env:\w+|file:[^}]+)\}")
CLAUDE_CODE = Shape(read=dict, write=_typed, refers=_NAMED)
"""The same with a `type`, as VS Code has it, too."""
VSCODE = Shape(
    read=dict,
    write=_typed,
    refers=rf"\$\{{(?:{_OF_EDITORS}|(?:input|config|command|workspaceFolder):[^}}]+)\}}",
)
ZED = Shape(read=_zed, write=_plain)
OPENCODE = Shape(
    read=_opencode,
    write=lambda command, args: {"type": "local", "command": [command, *args]},
    refers=r"\{(?:env|file):[^{}]+\}",
    milliseconds=True,
)
GEMINI = Shape(read=_gemini, write=_plain, refers=rf"{_NAMED}|\$[A-Z]\w*", milliseconds=True)
GOOSE = Shape(read=_goose, write=_goose_entry, refers=rf"{_NAMED}|\$[A-Z]\w*", milliseconds=False)
CONTINUE = Shape(read=_continue, write=_continue_entry, refers=_OF_CONTINUE, milliseconds=True)
CONTINUE_JSON = attrs.evolve(CONTINUE, write=_plain)
"""Continue's files in JSON, which are those of other clients."""
