"""The tests of the units need a machine that was booted for them: `scripts/systemd-container` is one."""

from __future__ import annotations

import os

import pytest

from tests.systemd.machine import UNIT, Service

BOOTED = "MCPD_BOOTED" in os.environ

# Elsewhere they are not collected at all: they stop, kill and configure services.
collect_ignore_glob = [] if BOOTED else ["test_*.py"]


@pytest.fixture
def stopped() -> Service:
    """The system's mcpd with units and configuration as installed: the socket listens, no daemon runs."""
    found = Service()
    found.reset()
    return found


@pytest.fixture
def service(stopped: Service) -> Service:
    """The same, and the daemon is active."""
    stopped.ctl("start", UNIT)
    return stopped


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured, and what this machine cannot show."""
    for line in Service.told:
        terminalreporter.write_line(line)
