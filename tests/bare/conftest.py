"""These tests need a Debian that `scripts/bare-debian` makes for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.bare.machine import TOLD

if TYPE_CHECKING:
    import pytest

# Elsewhere they are not collected at all: they mount file systems and install packages.
collect_ignore_glob = [] if "MCPD_BARE" in os.environ else ["test_*.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the measured times."""
    for line in TOLD:
        terminalreporter.write_line(line)
