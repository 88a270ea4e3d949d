"""What the checks start from: which configuration, which daemon, which paths. `cli.doctor_scene` gathers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from daemon.config.model import Config
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
