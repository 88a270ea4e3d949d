"""A user at a terminal, who has clients and a configuration of mcpd's."""

import io
from pathlib import Path

from daemon.setup.clients.programs import Machine


class Terminal(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


def config_of(here: Machine) -> Path:
    """The user's configuration."""
    return here.home / ".config" / "mcpd" / "mcpd.json"
