"""The service manager is asked and told, and what it refuses is passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.setup.running.systemctl import SOCKET, installed
from tests.process.setup.systemd import RUNS, FakeSystemd

if TYPE_CHECKING:
    from pathlib import Path


def test_a_unit_is_shown_with_its_process_and_one_that_is_not_installed_has_nothing(tmp_path: Path) -> None:
    systemd = FakeSystemd(tmp_path)
    systemd.says(RUNS)
    manager = installed(systemd.environ)
    assert manager is not None
    assert manager.show(SOCKET) == RUNS
    assert manager.pid() == int(RUNS["MainPID"])
    assert installed(systemd.environ, "system") is None
    systemd.says({"LoadState": "not-found"})
    assert manager.show(SOCKET) == {}
    assert manager.pid() is None
    assert installed(systemd.environ) is None


def test_nobody_waits_for_systemctl_where_no_unit_of_the_users_stands(tmp_path: Path) -> None:
    systemd = FakeSystemd(tmp_path)
    systemd.says(RUNS)
    (tmp_path / ".local/share/systemd/user/mcpd.socket").unlink()
    assert installed(systemd.environ) is None
    assert not systemd.log.exists()
    # Without a home only systemd knows where the user's units stand.
    assert installed({**systemd.environ, "HOME": "/"}) is not None
