"""The pair of units for one user, installed as the README says, under that user's own systemd."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness import ROOT, RawClient
from tests.systemd.machine import (
    AS_INSTALLED,
    HIERARCHIES,
    OWN,
    PATIENCE,
    Bridge,
    as_user,
    greet,
    run,
    scripted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = Path("/home/mcpd-own")
RUNTIME = Path("/run/user") / str(OWN)
MANAGER = f"user@{OWN}.service"


class Own:
    """mcpd.service of the user mcpd-own."""

    front = RUNTIME / "mcpd" / "mcpd.sock"

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command as that user, with what a login sets."""
        variables = [f"HOME={HOME}", f"XDG_RUNTIME_DIR={RUNTIME}", "PATH=/usr/bin:/bin"]
        return run(*as_user(OWN), "env", "-i", *variables, *words, check=check).stdout.strip()

    def ctl(self, *words: str, check: bool = True) -> str:
        """`systemctl --user WORDS`."""
        return self.run("systemctl", "--user", *words, check=check)

    def show(self, key: str) -> str:
        """One property."""
        return self.ctl("show", "--value", f"--property={key}", "mcpd.service")


def install() -> None:
    """What the README tells a user to do."""
    units = HOME / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    for unit in (ROOT / "systemd" / "user").iterdir():
        shutil.copy(unit, units)
    (HOME / ".config" / "mcpd").mkdir()
    shutil.copy(AS_INSTALLED, HOME / ".config" / "mcpd" / "mcpd.json")
    (HOME / ".local" / "bin").mkdir(parents=True)
    (HOME / ".local" / "bin" / "mcpd").symlink_to("/usr/lib/mcpd/bin/mcpd")
    run("chown", "-R", f"{OWN}:{OWN}", str(HOME))


@pytest.fixture(scope="module")
def own() -> Iterator[Own]:
    """A user whose manager runs without a login, with the units enabled."""
    install()
    run("loginctl", "enable-linger", "mcpd-own")
    run("systemctl", "start", MANAGER)
    found = Own()
    found.ctl("daemon-reload")
    found.ctl("enable", "--now", "mcpd.service")
    yield found
    run("loginctl", "disable-linger", "mcpd-own")
    run("systemctl", "stop", MANAGER)


def test_it_is_active_and_the_bridge_finds_it_without_the_environment_of_a_login(own: Own) -> None:
    assert own.show("ActiveState") == "active"
    assert own.show("StatusText") == "serving"
    with Bridge(OWN) as client:
        greet(client)
        assert not client.run("one", "echo", text="mine").get("isError")


def test_a_users_servers_have_control_groups_too(own: Own) -> None:
    with Bridge(OWN) as client:
        greet(client)
        assert not client.run("one", "echo", text="mine").get("isError")
    name = own.show("ControlGroup").lstrip("/")
    unit = next(each / name for each in HIERARCHIES if (each / name / "cgroup.subtree_control").exists())
    assert own.show("MainPID") in (unit / "daemon" / "cgroup.procs").read_text().split()
    (leaf,) = unit.glob("one-*")
    assert (leaf / "cgroup.procs").read_text().split()


def test_nobody_else_can_connect(own: Own) -> None:
    assert [oct(path.stat().st_mode & 0o777) for path in (own.front, own.front.parent)] == ["0o600", "0o700"]
    assert own.front.stat().st_uid == OWN


def test_after_a_kill_the_next_connection_is_served_by_another_daemon(own: Own) -> None:
    pid = int(own.show("MainPID"))
    os.kill(pid, signal.SIGKILL)
    with RawClient(own.front, timeout=PATIENCE) as client:
        greet(client)
    assert int(own.show("MainPID")) not in {0, pid}


def test_a_stopped_one_is_started_by_the_first_connection(own: Own) -> None:
    own.ctl("stop", "mcpd.service")
    assert own.show("ActiveState") == "inactive"
    with RawClient(own.front, timeout=PATIENCE) as client:
        greet(client)
    assert own.show("ActiveState") == "active"


def test_a_reload_and_the_operators_commands_find_it(own: Own) -> None:
    own.ctl("reload", "mcpd.service")
    status = json.loads(own.run("/usr/lib/mcpd/bin/mcpd", "status", "--json", check=False))
    assert status["daemon"]["pid"] == int(own.show("MainPID"))
    assert "is going well" not in own.run("/usr/lib/mcpd/bin/mcpd", "doctor", check=False)


def test_servers_in_sandboxes_start_under_it_as_it_is(own: Own) -> None:
    config = HOME / ".config" / "mcpd" / "mcpd.json"
    before = config.read_text()
    config.write_text(
        json.dumps({"mcpServers": {mode: {**scripted(), "sandbox": mode} for mode in ("home", "strict")}})
    )
    try:
        own.ctl("restart", "mcpd.service")
        with Bridge(OWN) as client:
            greet(client)
            for mode in ("home", "strict"):
                assert not client.run(mode, "echo", text="inside").get("isError")
    finally:
        config.write_text(before)
        own.ctl("restart", "mcpd.service")


def test_http_is_theirs_if_they_enable_it(own: Own) -> None:
    own.ctl("enable", "mcpd-http.socket")
    own.ctl("restart", "mcpd.service")
    with closing(http.client.HTTPConnection("127.0.0.1", 7337, timeout=PATIENCE)) as client:
        client.request("GET", "/readyz")
        assert client.getresponse().status == 200
    own.ctl("disable", "--now", "mcpd-http.socket")
    own.ctl("restart", "mcpd.service")
