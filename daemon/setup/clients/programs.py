"""The clients that mcpd knows (programs.toml): where each keeps servers and rules, and how it writes them."""

from __future__ import annotations

import json
import os.path
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import msgspec

from daemon.documents.edited import with_texts
from daemon.documents.files import DocumentError, look
from daemon.documents.formats import Format
from daemon.kit.wording import quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


OWN_NAME = "mcpd"
"""The name that mcpd has among a client's servers."""

ADMINISTRATED = Path("/etc")
"""What the administrator of a machine says stands below."""

MOST_FILES = 64
"""Most files taken of a folder with one file for each server: more than anyone has servers."""

MOST_AGENTS = 1000
"""Most agents of a directory whose files are read: ten times what large collections of them have."""

MOST_DIRECTORIES = 1000
"""Most directories of a client's that are looked into, the latest: more than anyone works in."""

_FORMS = {".toml": Format.TOML, ".yaml": Format.YAML, ".yml": Format.YAML}
_DIRECTORIES = "{directories}"
_NAMED_DIRECTORY = re.compile(r"\{(\w+):([^}]*)\}")


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
    made: Entry = with_texts(dict(entry), lambda text: re.sub(_OF_CONTINUE, r"${\1}", text))
    return made


def _continue_entry(command: str, args: Sequence[str]) -> Entry:
    return {"name": OWN_NAME, **_plain(command, args)}


def _gemini(entry: Mapping[str, Any]) -> Entry:
    """Of Gemini CLI, `url` alone means SSE."""
    alone = "url" in entry and not {"type", "httpUrl", "command"} & entry.keys()
    return {"type": "sse", **entry} if alone else dict(entry)


_NAMED = r"\$\{[A-Za-z_]\w*(?::-[^}]*)?\}"
_OF_EDITORS = r"env:\w+|workspaceFolder(?:Basename)?|workspaceRoot|userHome|pathSeparator|/"

SHAPES: dict[str, Shape] = {
    # `mcpServers` of Claude Desktop, LM Studio, Junie and others; Codex writes the same in TOML.
    "": Shape(read=dict, write=_plain),
    "cursor": Shape(read=dict, write=_plain, refers=rf"\$\{{(?:{_OF_EDITORS})\}}"),
    "windsurf": Shape(read=dict, write=_plain, refers=r"\$\{(?:env:\w+|file:[^}]+)\}"),
    # The same with a `type`, as VS Code has it, too.
    "claude-code": Shape(read=dict, write=_typed, refers=_NAMED),
    "vscode": Shape(
        read=dict,
        write=_typed,
        refers=rf"\$\{{(?:{_OF_EDITORS}|(?:input|config|command|workspaceFolder):[^}}]+)\}}",
    ),
    "zed": Shape(read=_zed, write=_plain),
    "opencode": Shape(
        read=_opencode,
        write=lambda command, args: {"type": "local", "command": [command, *args]},
        refers=r"\{(?:env|file):[^{}]+\}",
        milliseconds=True,
    ),
    "gemini": Shape(read=_gemini, write=_plain, refers=rf"{_NAMED}|\$[A-Z]\w*", milliseconds=True),
    "goose": Shape(read=_goose, write=_goose_entry, refers=rf"{_NAMED}|\$[A-Z]\w*", milliseconds=False),
    "continue": Shape(read=_continue, write=_continue_entry, refers=_OF_CONTINUE, milliseconds=True),
    # Continue's files in JSON, which are those of other clients.
    "continue-json": Shape(read=_continue, write=_plain, refers=_OF_CONTINUE, milliseconds=True),
}
"""How clients write a server, by the names that the table has for it."""


class PlaceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files in which a client keeps servers (`ClientPlace`)."""

    paths: tuple[str, ...]
    scope: str
    trail: tuple[str, ...] = ("mcpServers",)
    shape: str | None = None
    """One of `SHAPES`; None: the client's."""
    listed: bool = False


class RuleRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files with a client's rules (`RulePlace`); trails are written `a/b`."""

    paths: tuple[str, ...]
    called: tuple[str, ...]
    trails: tuple[str, ...] = ()
    """Where rules stand that forbid, or have the client ask."""
    allowing: tuple[str, ...] = ()
    """Where rules stand that only allow."""
    named: tuple[str, ...] = ()
    """Where names of servers stand."""
    bare: tuple[str, ...] = ()
    """Where a name without a server may be any tool that is not the client's own."""

    def places(self, path: Path, own: frozenset[str]) -> Iterator[RulePlace]:
        """The lists of rules in one of the files."""
        for trail in (*self.trails, *self.allowing, *self.named, *self.bare):
            yield RulePlace(
                path=path,
                form=_form(path),
                trail=tuple(trail.split("/")),
                called=("{}",) if trail in self.named else self.called,
                allows=trail in self.allowing,
                own=own if trail in self.bare else frozenset(),
            )


class ClientProgram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client."""

    name: str
    """As commands name it: `claude-code`."""
    title: str
    """As people know it: Claude Code."""
    source: str
    """The page of its documentation that says where it keeps its servers."""
    kept: tuple[PlaceRow, ...] = msgspec.field(name="places")
    aliases: tuple[str, ...] = ()
    """Other names that commands understand."""
    shape: str = ""
    """How it writes a server: one of `SHAPES`."""
    ruled: tuple[RuleRow, ...] = msgspec.field(name="rules", default=())
    own_tools: tuple[str, ...] = ()
    """Its own tools, where a rule may name a tool alone."""

    def places(self, machine: Machine) -> list[ClientPlace]:
        """Where its servers stand, whether or not the files are there; the first is where mcpd is put."""
        return [
            ClientPlace(
                path=path,
                form=_form(path),
                trail=trail,
                scope=row.scope,
                shape=SHAPES[self.shape if row.shape is None else row.shape],
                listed=row.listed,
            )
            for row in self.kept
            for trail in _trails(row.trail, machine)
            for path in _files(row.paths, machine)
        ]

    def rules(self, machine: Machine) -> list[RulePlace]:
        """Where its rules about tools stand, of the files that are there; entries may have some, too."""
        # A directory that is closed to us holds no rules for us, either.
        return [
            place
            for row in self.ruled
            for path in dict.fromkeys(_files(row.paths, machine))
            if os.path.isfile(path)  # noqa: PTH113 - as above
            for place in row.places(path, frozenset(self.own_tools))
        ]


def _form(path: Path) -> Format:
    return _FORMS.get(path.suffix, Format.JSON)


def _trails(trail: tuple[str, ...], machine: Machine) -> list[tuple[str, ...]]:
    places = _directories(machine) if _DIRECTORIES in trail else [""]
    return [tuple(place if step == _DIRECTORIES else step for step in trail) for place in places]


def _files(written: tuple[str, ...], machine: Machine) -> list[Path]:
    """The files that a row of the table names, those that are there first."""
    found = [path for each in written for path in _located(each, machine)]
    return sorted(found, key=lambda path: not os.path.isfile(path))  # noqa: PTH113 - as above


def _located(written: str, machine: Machine) -> list[Path]:
    first, _, rest = written.partition("/")
    if moved := _NAMED_DIRECTORY.fullmatch(first):
        named = machine.environ.get(moved[1], "")
        bases = [machine.home / (named if named.startswith("/") else moved[2])]
    elif first == _DIRECTORIES:
        bases = [Path(each) for each in _directories(machine)]
    elif first == ".":
        bases = [machine.directory] if machine.directory != machine.home else []
    else:
        bases = [ADMINISTRATED if first == "{etc}" else machine.home]
    if "*" not in rest:
        return [base / rest for base in bases]
    most = MOST_AGENTS if "**" in rest else MOST_FILES
    try:
        return [path for base in bases for path in sorted(base.glob(rest))[:most]]
    except OSError:
        return []


def _directories(machine: Machine) -> list[str]:
    """The directory that the user works in, and those in which Claude Code has been started."""
    [path] = _located("{CLAUDE_CONFIG_DIR:}/.claude.json", machine)
    try:
        known = _projects(look(path).text() or "{}")
    except DocumentError:  # which is said where its servers are read
        known = ()
    return list(dict.fromkeys([str(machine.directory), *known]))


@lru_cache(maxsize=1)
def _projects(text: str) -> tuple[str, ...]:
    # It is the client's own memory, too, of some MiB, and to find comments in it takes half a second.
    try:
        value = json.loads(text)
    except ValueError:
        return ()
    known = value.get("projects") if isinstance(value, dict) else None
    return (
        tuple(each for each in known if each.startswith("/"))[-MOST_DIRECTORIES:]
        if isinstance(known, dict)
        else ()
    )


_TABLE = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, tuple[ClientProgram, ...]]
)["client"]

PROGRAMS: dict[str, ClientProgram] = {program.name: program for program in _TABLE}
"""All clients, by name."""

_NAMES = {alias: program for program in _TABLE for alias in (program.name, *program.aliases)}


def named(name: str) -> ClientProgram:
    """The client of a name or an alias.

    Raises:
        LookupError: there is none; the text says so, with the closest names.
    """
    if found := _NAMES.get(name.lower().replace("_", "-").replace(" ", "-")):
        return found
    raise LookupError(f"no client is called {quoted(name)}{suggestion(name, _NAMES)}")
