"""Findings of the doctor, worded by `findings.toml`, and the scene that the checks look at."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.config.config_model import Config
    from daemon.config.state_url import StateUrl
    from daemon.errors import Fault


@attrs.frozen(kw_only=True)
class Running:
    """The daemon that answers on the control socket."""

    status: Mapping[str, Any] = attrs.field(repr=False)
    """Its answer to `status`."""
    pid: int
    """Its process id."""
    config: Path
    """The configuration that it uses."""
    environ: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    """Its environment; None if it cannot be read."""
    directory: Path | None = None
    """Where it was started, which its relative paths start from; None if that is unknown."""
    uid: int | None = None
    """Its user id; None if that is unknown, because its pid is from another pid namespace."""


@attrs.frozen(kw_only=True)
class Scene:
    """Everything that checks start from. Checks read files and ask the system."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    """The environment of the command."""
    path: Path
    """The configuration that is looked at."""
    usual: Path
    """The configuration that a daemon uses if none is named."""
    config: Config | None = attrs.field(repr=False)
    """What it says; None if it has faults."""
    faults: tuple[Fault, ...] = ()
    """What is wrong with it."""
    notes: tuple[Fault, ...] = ()
    """What in it was understood as something else."""
    running: Running | None = None
    """The daemon, if one answers."""
    silence: str = ""
    """Why no daemon answers; empty if there is no sign of one."""
    front: Path
    """Where clients connect."""
    control: Path
    """Where operators connect."""
    place: StateUrl
    """Where state is kept."""
    state: Path
    """The state directory, where daemons write down what they start."""
    end_leftovers: bool = False
    """Whether to end what killed daemons have left: the only change, and only on request."""

    @property
    def inherited(self) -> Mapping[str, str]:
        """The environment that servers inherit from: the daemon's, or the command's if that is unknown."""
        if self.running is None or self.running.environ is None:
            return self.environ
        return self.running.environ


class Level(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAULT = "fault"


@attrs.frozen(kw_only=True)
class FindingText:
    """The words for one cause; `{name}` is replaced by the finding's data of that name."""

    level: Level = attrs.field(converter=Level)
    """How serious it is; only a fault makes `mcpd doctor` exit with 1."""
    what: str
    """What was found."""
    why: str = ""
    """Why that matters, or what causes it."""
    do: str = ""
    """What to do about it."""
    key: str = ""
    """The key of the section or the server's entry that it is about, where that is always the same."""


@attrs.frozen(kw_only=True)
class Finding(FindingText):
    """One thing that a check found, in words."""

    cause: str
    """The name of its row in the table; it stays the same when the words change."""
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
