"""What the doctor looks at, gathered once, and what it says about it."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from daemon.config.model import Config
    from daemon.config.state_url import StateUrl
    from daemon.errors import Fault


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAULT = "fault"


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that was found."""

    level: Level
    """Only a fault makes `mcpd doctor` end with 1."""
    what: str
    """What is so."""
    why: str = ""
    """Why that matters, or where it comes from."""
    do: str = ""
    """What to do about it."""


def fine(what: str, why: str = "") -> Finding:
    """Something that is as it should be."""
    return Finding(level=Level.OK, what=what, why=why)


def note(what: str, why: str = "", do: str = "") -> Finding:
    """Something worth knowing."""
    return Finding(level=Level.NOTE, what=what, why=why, do=do)


def warning(what: str, why: str = "", do: str = "") -> Finding:
    """Something unwise, or that may come to be a fault."""
    return Finding(level=Level.WARNING, what=what, why=why, do=do)


def fault(what: str, why: str = "", do: str = "") -> Finding:
    """Something that does not work, or is not safe."""
    return Finding(level=Level.FAULT, what=what, why=why, do=do)


def counted(findings: Iterable[Finding]) -> Counter[Level]:
    """How many there are of each level."""
    return Counter(finding.level for finding in findings)


@attrs.frozen(kw_only=True)
class Running:
    """The daemon that answers on the control socket."""

    status: Mapping[str, Any] = attrs.field(repr=False)
    """Its answer to `status`."""
    pid: int
    """Its process."""
    config: Path
    """The configuration that it uses."""
    words: Mapping[str, Sequence[str]] = attrs.field(factory=dict, repr=False)
    """The last words of each server that does not run, oldest first."""
    environ: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    """Its environment; None where it cannot be read."""
    directory: Path | None = None
    """Where it was started, and the paths begin that it was told; None where that cannot be known."""
    uid: int | None = None
    """Its user; None where that cannot be known, as its number is of another pid namespace."""


@attrs.frozen(kw_only=True)
class Scene:
    """Everything that checks start from. Checks read files and ask the system."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    """The environment of the command."""
    path: Path
    """The configuration that is looked at."""
    usual: Path
    """The configuration that a daemon would use that is told nothing."""
    config: Config | None = attrs.field(repr=False)
    """What it says; None if it has faults."""
    faults: tuple[Fault, ...] = ()
    """What is wrong with it."""
    running: Running | None = None
    """The daemon, if one answers."""
    silence: str = ""
    """Why none does; empty if there is no sign of one."""
    front: Path
    """Where clients connect."""
    control: Path
    """Where operators connect."""
    place: StateUrl
    """Where state is kept."""
    state: Path
    """The state directory, where daemons write down what they start."""
    end_leftovers: bool = False
    """Whether to end what killed daemons have left: the one thing that is changed, and only if asked for."""

    @property
    def inherited(self) -> Mapping[str, str]:
        """The environment that servers get theirs from: the daemon's, or the command's if that is not known."""
        if self.running is None or self.running.environ is None:
            return self.environ
        return self.running.environ
