"""The known clients (programs.toml): their files of servers and rules, and the form of their entries."""

from __future__ import annotations

import json
import os.path
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import msgspec

from daemon.documents.edited import with_texts
from daemon.documents.files import DocumentError, look
from daemon.documents.formats import Format
from daemon.kit.wording import quoted, suggestion

IN_REGISTRY = "registry"
"""The `type` of an entry whose name is that of a registry's server (Kiro)."""

OWN_NAME = "mcpd"

ADMINISTRATED = Path("/etc")
"""The administrator's settings are in this directory."""

MOST_FILES = 64
"""Files read from a folder with one server in each: more than a user has servers."""

MOST_AGENTS = 1000
"""Agents read from a directory: ten times a large collection."""

MOST_DIRECTORIES = 1000
"""Directories read from a client's files, the latest: more than a user works in."""

_FORMS = {".toml": Format.TOML, ".yaml": Format.YAML, ".yml": Format.YAML}
_DIRECTORIES = "{directories}"
_NAMED_DIRECTORY = re.compile(r"\{(\w+):([^}]*)\}")


@attrs.frozen(kw_only=True)
class Machine:
    """The facts about a machine on which the places of clients depend."""

    home: Path
    directory: Path
    environ: Mapping[str, str] = attrs.field(repr=False)
    """The environment, with XDG_CONFIG_HOME, CODEX_HOME and CLAUDE_CONFIG_DIR."""
    unsandboxed: frozenset[str] = frozenset()
    """Servers that are imported without the sandbox that their client gives them."""
    no_sandbox: Callable[[], str] = attrs.field(default=str, eq=False, repr=False)
    """Returns why there are no sandboxes here and the remedy; empty if there are."""
    registered: Callable[[str], Mapping[str, Any]] = attrs.field(default=lambda _: {}, eq=False, repr=False)
    """Looks up the entry of a registry's server; empty if there is none."""

    def published(self, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        """Complete an entry that only names a registry's server, with the user's variables and headers."""
        found = self.registered(name) if entry.get("type") == IN_REGISTRY else {}
        if not found:
            return entry
        both = {key: {**found.get(key, {}), **entry.get(key, {})} for key in ("env", "headers")}
        return {key: value for key, value in entry.items() if key != "type"} | {**found, **both}


class EntryShape(msgspec.Struct, frozen=True, eq=False, forbid_unknown_fields=True):
    """The form in which a client writes a server's entry."""

    entry: dict[str, Any] = msgspec.field(default_factory={"command": "{command}", "args": "{args}"}.copy)
    """An entry that runs a command; `{words}` stands for the command with its arguments."""
    refers: str | None = None
    """Regex of the client's references; None if all text is literal."""
    names_variables: bool = False
    """Whether the group in `refers` is the name of a variable."""
    milliseconds: bool | None = None
    """Whether `timeout` is in milliseconds; None if unknown."""
    url_alone: str = ""
    """The type of an entry that has only a `url`, if it is not the usual one."""
    needs: frozenset[str] = frozenset()
    """Keys of which an entry must have one."""
    types: frozenset[str] = frozenset()
    never: str = ""
    """A key that an entry must not have."""
    otherwise: str = ""
    """Why only the client can run other entries, as a predicate: `is part of Goose itself`."""

    def read(self, entry: Mapping[str, Any]) -> dict[str, Any] | str:
        """Convert to `command` and `args`, or `url` and `headers`; or say why only the client can run it."""
        lacks = self.needs and not self.needs & entry.keys()
        if lacks or (self.types and entry.get("type") not in self.types) or self.never in entry:
            return self.otherwise
        made = dict(entry)
        if self.url_alone and "url" in made and not made.keys() & {"type", "httpUrl", "command"}:
            made = {"type": self.url_alone, **made}
        refers = self.refers if self.names_variables else None
        return made if refers is None else with_texts(made, lambda text: re.sub(refers, r"${\1}", text))

    def write(self, command: str, args: Sequence[str]) -> dict[str, Any]:
        """The entry that runs a command with its arguments."""
        given = {"{command}": command, "{args}": [*args], "{words}": [command, *args]}
        return {
            key: given.get(value, value) if isinstance(value, str) else value
            for key, value in self.entry.items()
        }


@attrs.frozen(kw_only=True)
class ClientPlace:
    """A place in a client's file that holds servers."""

    path: Path
    form: Format
    trail: tuple[str, ...]
    """Leads to the object or list of servers."""
    scope: str
    shape: EntryShape
    listed: bool = False
    """Whether the servers are a list whose items have a `name`."""


@attrs.frozen(kw_only=True)
class RulePlace:
    """A list of rules about tools, in a file that exists."""

    path: Path
    form: Format
    """The file's format; of a Markdown file only the head is read."""
    trail: tuple[str, ...]
    """Leads to texts, or to an object whose keys are rules; `*` stands for every member."""
    called: tuple[str, ...]
    """Prefixes of rules with the server as `{}`: `mcp__{}__`; `{}` alone if rules are servers' names."""
    allows: bool = False
    own: frozenset[str] = frozenset()
    """The client's own tools, if every other bare name may be a server's tool; else empty."""


Known: TypeAlias = "Callable[[ClientPlace, str, object], str | None]"
"""Finds mcpd's name of a client's server, by place, name and entry; None if mcpd lacks it."""


class PlaceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row about files that hold servers (`ClientPlace`)."""

    paths: tuple[str, ...]
    scope: str
    trail: tuple[str, ...] = ("mcpServers",)
    shape: str | None = None
    listed: bool = False


class RuleRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row about files that hold rules (`RulePlace`); trails are written `a/b`."""

    paths: tuple[str, ...]
    called: tuple[str, ...]
    trails: tuple[str, ...] = ()
    """Rules that forbid a tool or make the client ask."""
    allowing: tuple[str, ...] = ()
    """Rules that only allow."""
    named: tuple[str, ...] = ()
    """Lists of servers' names."""
    bare: tuple[str, ...] = ()
    """Lists in which a bare name may be a tool of any server."""

    def places(self, path: Path, own: frozenset[str]) -> Iterator[RulePlace]:
        """The lists of rules in one file."""
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
    """A client that mcpd can import from and install into."""

    name: str
    """The name for commands: `claude-code`."""
    title: str
    source: str
    """The documentation of its files."""
    kept: tuple[PlaceRow, ...] = msgspec.field(name="places")
    aliases: tuple[str, ...] = ()
    shape: str = ""
    ruled: tuple[RuleRow, ...] = msgspec.field(name="rules", default=())
    own_tools: tuple[str, ...] = ()
    """The client's own tools, which bare names in rules may mean."""
    skills: str = ""
    """The directory of its skills, written as in `paths`; empty without one."""

    def skill(self, machine: Machine) -> Path | None:
        """The file for mcpd's skill (https://agentskills.io); None for a client without skills."""
        return _located(self.skills, machine)[0] / OWN_NAME / "SKILL.md" if self.skills else None

    def is_on(self, machine: Machine) -> bool:
        """Whether the client is installed: a file of its, their directory, or a program of its name exists."""
        shared = {machine.home, machine.directory}
        paths = [place.path for place in self.places(machine)]
        return any(
            path.exists() or (path.parent not in shared and path.parent.is_dir()) for path in paths
        ) or any(map(shutil.which, (self.name, *self.aliases)))

    def places(self, machine: Machine) -> list[ClientPlace]:
        """All places of servers; mcpd is installed in the first."""
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
        """The lists of rules in files that exist; servers' entries may hold rules, too."""
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


class _Programs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shape: dict[str, EntryShape]
    client: tuple[ClientProgram, ...]


_TABLE = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Programs)

SHAPES = _TABLE.shape

PROGRAMS: dict[str, ClientProgram] = {program.name: program for program in _TABLE.client}

_NAMES = {alias: program for program in _TABLE.client for alias in (program.name, *program.aliases)}


def named(name: str) -> ClientProgram:
    """The client with a name or alias. Raises LookupError, whose text suggests names."""
    if found := _NAMES.get(name.lower().replace("_", "-").replace(" ", "-")):
        return found
    raise LookupError(f"no client is called {quoted(name)}{suggestion(name, _NAMES)}")
