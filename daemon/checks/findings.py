"""The texts of findings (`findings.toml`), and the facts that checks examine."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs

from daemon.config.config_model import Config
from daemon.config.state_url import StateUrl
from daemon.errors import Fault


@attrs.frozen(kw_only=True)
class Running:
    """The daemon that answers on the control socket."""

    status: Mapping[str, Any] = attrs.field(repr=False)
    pid: int
    config: Path
    environ: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    directory: Path | None = None
    """The daemon's working directory, from which relative paths start; None if unknown."""
    uid: int | None = None
    """The daemon's user; None if its pid belongs to another pid namespace."""


@attrs.frozen(kw_only=True)
class Scene:
    """The input of all checks; checks may also read files and ask the system."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    path: Path
    usual: Path
    """The default configuration of a daemon."""
    config: Config | None = attrs.field(repr=False)
    faults: tuple[Fault, ...] = ()
    notes: tuple[Fault, ...] = ()
    """Translated and ignored keys."""
    running: Running | None = None
    silence: str = ""
    """Why no daemon answers; empty without a sign of a daemon."""
    front: Path
    control: Path
    place: StateUrl
    state: Path
    """The state directory, which has records of started processes."""
    end_leftovers: bool = False
    """Whether to end processes of killed daemons; checks change nothing else."""

    @property
    def inherited(self) -> Mapping[str, str]:
        """The environment of servers: the daemon's if known, else this command's."""
        if self.running is None or self.running.environ is None:
            return self.environ
        return self.running.environ


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file."""
    try:
        return one.samefile(other)
    except OSError:
        return one.absolute() == other.absolute()


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAULT = "fault"


@attrs.frozen(kw_only=True)
class FindingText:
    """The texts about a cause; `{name}` stands for a value of the finding's data."""

    level: Level = attrs.field(converter=Level)
    """Only faults make `mcpd doctor` exit with 1."""
    what: str
    why: str = ""
    do: str = ""
    key: str = ""
    """The configuration key that the cause is always about, if any."""


@attrs.frozen(kw_only=True)
class Finding(FindingText):
    """A problem that a check has found."""

    cause: str
    """The name of the finding's row in the table; the row's texts may change."""
    data: Mapping[str, object] = attrs.field(repr=False)
    """Values for the texts; `server` is the name of the server in question."""

    def about(self, server: str) -> Finding:
        """The same finding about another server."""
        return _made(self.cause, {**self.data, "server": server})


def found(cause: str, **data: object) -> Finding:
    """Make a finding with a cause from the table."""
    return _made(cause, data)


def _made(cause: str, data: Mapping[str, object]) -> Finding:
    row = TABLE[cause]
    what, why, do = (text.format_map(data) for text in (row.what, row.why, row.do))
    key = str(data.get("key", row.key))
    return Finding(cause=cause, data=data, level=row.level, what=what, why=why, do=do, key=key)


def _table() -> dict[str, FindingText]:
    rows: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("findings.toml").read_text())
    return {cause: FindingText(**row) for cause, row in rows.items()}


TABLE = _table()
