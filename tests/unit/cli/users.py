"""A user at a terminal, who has clients and a configuration of mcpd's."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.setup.clients.programs import Machine


class Terminal(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


def config_of(here: Machine) -> Path:
    """The user's configuration."""
    return here.home / ".config" / "mcpd" / "mcpd.json"
