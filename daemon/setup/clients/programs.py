"""What mcpd knows of a client: where it keeps its servers, and in which shape."""

from __future__ import annotations

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
