"""What mcpd knows of a client: where it keeps its servers, and in which shape."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from daemon.documents.formats import Format


OWN_NAME = "mcpd"
"""The name that mcpd has among a client's servers."""


def _no_rules(_machine: Machine) -> list[RulePlace]:
    return []


@attrs.frozen(kw_only=True)
class Machine:
    """What places depend on."""

    home: Path
    """The user's home directory."""
    directory: Path
    """The directory that projects are looked for in: the working directory."""
    environ: Mapping[str, str] = attrs.field(repr=False)
    """Variables that move places: XDG_CONFIG_HOME, CODEX_HOME, CLAUDE_CONFIG_DIR."""
    unsandboxed: frozenset[str] = frozenset()
    """Names of servers that are taken although their client runs them in a sandbox."""


@attrs.frozen(kw_only=True)
class NotTaken:
    """An entry of a client's that nobody else can run."""

    why: str
    """Why, after its name: `is part of Goose itself`."""


@attrs.frozen(kw_only=True)
class Shape:
    """How a client writes one server."""

    read: Callable[[Mapping[str, Any]], dict[str, Any] | NotTaken]
    """A client's entry in the keys of `mcpServers`: `command` and `args`, or `url` and `headers`. Keys that
    other clients have, too, stay for `config.translation`."""
    write: Callable[[str, Sequence[str]], dict[str, Any]]
    """The client's entry for a command and its arguments, named `OWN_NAME` where an entry has a name."""
    refers: str | None = None
    """A regex for what refers to values from outside, in this client's entries; None: nothing does, so that all
    that looks like a reference of mcpd's is text."""
    milliseconds: bool | None = None
    """Whether its `timeout` is in milliseconds; None: it has none, or does not say."""


@attrs.frozen(kw_only=True)
class ClientPlace:
    """One object of one file, in which a client keeps servers."""

    path: Path
    """The file."""
    form: Format
    """Its format."""
    trail: tuple[str, ...]
    """Where in it the servers stand, by name."""
    scope: str
    """For whom: user, project, local, workspace."""
    shape: Shape
    """How a server is written there."""
    listed: bool = False
    """Whether the servers are a list whose items have a `name`, not an object."""


@attrs.frozen(kw_only=True)
class RulePlace:
    """One list of rules in one file, in which a client says what it lets its model call."""

    path: Path
    """The file, which is there."""
    form: Format
    """Its format; of a Markdown file the head alone is read, whatever stands here."""
    trail: tuple[str, ...]
    """Where the patterns stand: texts, or the keys of an object; `*`: each part of an object or a list."""
    called: tuple[str, ...]
    """What a pattern may begin with, a server's name as `{}`: `mcp__{}__`; `{}`: it is a server's name."""
    allows: bool = False
    """Whether what is written there is allowed: without it the client asks."""
    own: frozenset[str] = frozenset()
    """The client's own tools, where a name without a server may be any other tool; empty: it never is."""


Known: TypeAlias = "Callable[[ClientPlace, str, object], str | None]"
"""The name that a client's server has in mcpd, by its place, its name there and its entry as the client writes
it; None if mcpd does not have it."""


@attrs.frozen(kw_only=True)
class ClientProgram:
    """A client."""

    name: str
    """As commands name it: `claude-code`."""
    title: str
    """As people know it: Claude Code."""
    source: str
    """The page of its documentation that says where it keeps its servers."""
    places: Callable[[Machine], list[ClientPlace]]
    """Where that is on a machine, whether or not the files are there; the first is where mcpd is put."""
    aliases: tuple[str, ...] = ()
    """Other names that commands understand."""
    rules: Callable[[Machine], list[RulePlace]] = _no_rules
    """Where its rules about tools stand, of the files that are there; servers' entries may have some, too."""


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
