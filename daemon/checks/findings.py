"""The findings' texts (`findings.toml`) and the scene that checks examine."""

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
    """Its working directory, for relative paths; None if unknown."""
    uid: int | None = None
    """None if its pid is from another pid namespace."""


@attrs.frozen(kw_only=True)
class Scene:
    """The input of all checks, which may also read files and ask the system."""

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
    """Why no daemon answers; empty without any sign of one."""
    front: Path
    control: Path
    place: StateUrl
    state: Path
    """Has records of started processes."""
    end_leftovers: bool = False
    """Whether to end processes of killed daemons: the only change, on request only."""

    @property
    def inherited(self) -> Mapping[str, str]:
        """The environment of servers: the daemon's if known, else the command's."""
        if self.running is None or self.running.environ is None:
            return self.environ
        return self.running.environ


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths name one file."""
    try:
        return one.samefile(other)
    except OSError:
        return one.absolute() == other.absolute()


class Level(StrEnum):
    """A finding's severity."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAULT = "fault"


@attrs.frozen(kw_only=True)
class FindingText:
    """The texts of a cause; `{name}` takes the finding's data."""

    level: Level = attrs.field(converter=Level)
    """Faults alone make `mcpd doctor` exit with 1."""
    what: str
    why: str = ""
    do: str = ""
    key: str = ""
    """The key that it always concerns, if any."""


@attrs.frozen(kw_only=True)
class Finding(FindingText):
    """One thing that a check found, in words."""

    cause: str
    """The name of the finding's row in the table, whatever its words."""
    data: Mapping[str, object] = attrs.field(repr=False)
    """Values for the words; `server` is the name of the server concerned."""


def found(cause: str, **data: object) -> Finding:
    """A finding with a cause from the table."""
    row = TABLE[cause]
    what, why, do = (text.format_map(data) for text in (row.what, row.why, row.do))
    key = str(data.get("key", row.key))
    return Finding(cause=cause, data=data, level=row.level, what=what, why=why, do=do, key=key)


def _table() -> dict[str, FindingText]:
    rows: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("findings.toml").read_text())
    return {cause: FindingText(**row) for cause, row in rows.items()}


TABLE = _table()
"""Every cause that a check can find."""
