"""The machine around the daemon: systemd, played by a script called `systemctl`; open files; what is left."""

from __future__ import annotations

import os
import pwd
import resource
import shlex
from typing import TYPE_CHECKING

import pytest

from daemon.checks.findings import TABLE, Level
from daemon.checks.host import CHILD_FILES, OWN_FILES, REMOTE_FILES, leavings, limits, units
from tests.unit.checks.scenes import levels, only, process
from tests.unit.processes.dying import DyingDaemon

if TYPE_CHECKING:
    from daemon.checks.findings import Finding
    from tests.unit.checks.scenes import House

ACTIVE = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "UnitFileState": "disabled",
          "Result": "success", "ExecMainStatus": "0", "NRestarts": "0", "NeedDaemonReload": "no",
          "MainPID": "4711"}  # fmt: skip
SOCKET = {**ACTIVE, "UnitFileState": "enabled", "SubState": "listening"}
MISSING = {"LoadState": "not-found", "ActiveState": "inactive"}
FAILED = {**ACTIVE, "ActiveState": "failed", "SubState": "failed", "Result": "exit-code", "MainPID": "0"}


class Systemd:
    """What `systemctl` says of the user's units and of the system's."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.asked = house.root / "asked"
        self.linger = house.root / "linger"
        self.linger.mkdir()
        (self.linger / pwd.getpwuid(os.geteuid()).pw_name).touch()

    def says(
        self,
        service: dict[str, str] = MISSING,
        socket: dict[str, str] = SOCKET,
        system: dict[str, str] = MISSING,
    ) -> None:
        """Script it."""
        cases = {
            "--user show mcpd.service *": service,
            "--user show mcpd.socket *": socket,
            "show mcpd.service *": system,
            "show mcpd.socket *": socket,
        }
        arms = "\n".join(f"{_pattern(words)}) {_print(unit)} ;;" for words, unit in cases.items())
        script = f'#!/bin/sh\necho "$*" >> {self.asked}\ncase "$*" in\n{arms}\n*) exit 9 ;;\nesac\n'
        self.house.program("systemctl", script)

    def found(self) -> list[Finding]:
        """What the check finds."""
        return list(units(self.house.look(), self.linger))


def _pattern(words: str) -> str:
    return words.replace(" ", "\\ ")


def _print(unit: dict[str, str]) -> str:
    return "printf '%s\\n' " + " ".join(shlex.quote(f"{key}={value}") for key, value in unit.items())


@pytest.fixture
def systemd(house: House) -> Systemd:
    return Systemd(house)


def test_without_systemctl_nothing_is_wrong(house: House) -> None:
    assert "no systemctl" in only(units(house.look()), Level.NOTE)


@pytest.mark.parametrize("script", ["exit 1", "echo nonsense", "kill -9 $$"])
def test_a_systemd_that_does_not_answer_is_no_fault(house: House, script: str) -> None:
    house.program("systemctl", f"#!/bin/sh\n{script}\n")
    assert "No unit" in only(units(house.look()), Level.NOTE)


def test_an_active_unit_is_fine_and_only_questions_are_asked(systemd: Systemd) -> None:
    systemd.says(ACTIVE)
    assert levels(systemd.found()) == ["ok"]
    asked = systemd.asked.read_text().splitlines()
    assert len(asked) == 3
    assert all(line.removeprefix("--user ").startswith("show mcpd.") for line in asked)


RESTING = {**ACTIVE, "ActiveState": "inactive", "SubState": "dead"}
IDLE = {**SOCKET, "ActiveState": "inactive"}
DISABLED = {**SOCKET, "UnitFileState": "disabled"}
AGAIN = {"ActiveState": "activating", "SubState": "auto-restart", "ExecMainStatus": "69"}


@pytest.mark.parametrize(
    ("units", "level", "said"),
    [
        ({"system": FAILED}, Level.FAULT, "The system's mcpd.service"),
        ({"system": FAILED}, Level.FAULT, "journalctl -u"),
        ({}, Level.NOTE, "mcpd service install"),
        ({"service": {**FAILED, "ExecMainStatus": "42"}}, Level.FAULT, "exit status 42"),
        ({"service": {**FAILED, "Result": "watchdog"}}, Level.FAULT, "watchdog"),
        ({"service": {**FAILED, **AGAIN}}, Level.FAULT, "activating"),
        ({"service": RESTING}, Level.OK, "with the first client"),
        ({"service": RESTING, "socket": IDLE}, Level.NOTE, "start mcpd.socket"),
        ({"service": {**ACTIVE, "LoadState": "masked"}}, Level.WARNING, "unmask"),
        ({"service": {**ACTIVE, "LoadState": "bad-setting"}}, Level.WARNING, "bad-setting"),
        ({"service": {**ACTIVE, "NeedDaemonReload": "yes"}}, Level.WARNING, "daemon-reload"),
        ({"service": {**ACTIVE, "NRestarts": "7"}}, Level.NOTE, "7 times"),
        ({"service": ACTIVE, "socket": DISABLED}, Level.NOTE, "enable mcpd.socket"),
    ],
)
def test_what_systemd_says_of_the_units_is_judged(
    systemd: Systemd, units: dict[str, dict[str, str]], level: Level, said: str
) -> None:
    systemd.says(**units)
    assert said in only(systemd.found(), level)


@pytest.mark.parametrize("cause", [cause for cause in TABLE if cause.startswith("unit-exit-")])
def test_a_unit_that_failed_is_a_fault_that_says_why(systemd: Systemd, cause: str) -> None:
    systemd.says({**FAILED, "ExecMainStatus": cause.removeprefix("unit-exit-")})
    found = systemd.found()
    assert cause in {each.cause for each in found}
    assert "journalctl --user" in only(found, Level.FAULT)


def test_a_second_daemon_beside_the_units_is_a_warning(systemd: Systemd) -> None:
    systemd.says(ACTIVE)
    with systemd.house.daemon():
        assert "4711" in only(systemd.found(), Level.WARNING)
    systemd.says({**ACTIVE, "MainPID": str(os.getpid())})
    with systemd.house.daemon():
        assert levels(systemd.found()) == ["ok"]


def test_a_user_whose_units_end_with_the_logout_is_told(systemd: Systemd) -> None:
    systemd.says(ACTIVE)
    for each in systemd.linger.iterdir():
        each.unlink()
    assert "enable-linger" in only(systemd.found(), Level.NOTE)
    systemd.linger.rmdir()
    assert levels(systemd.found()) == ["ok"]


CLIENTS = 100
SERVERS = {
    "a": {"command": "a"},
    "b": {"url": "http://127.0.0.1/"},
    "off": {"command": "c", "enabled": False},
    "own": {"command": "d", "share": "session", "limits": {"instances": 3}},
}
NEEDED = OWN_FILES + CHILD_FILES + REMOTE_FILES + 3 * CHILD_FILES


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        (NEEDED + CLIENTS, ["ok"]),
        (NEEDED + CLIENTS - 1, ["note"]),
        (NEEDED + 64, ["note"]),
        (NEEDED + 63, ["warning"]),
    ],
)
def test_room_for_few_clients_is_a_warning(house: House, allowed: int, said: list[str]) -> None:
    house.write({"mcpServers": SERVERS, "limits": {"connections": CLIENTS}})
    with process(house.root) as pid, house.daemon(pid=pid):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (64, allowed))
        assert levels(limits(house.look())) == said


def test_what_to_write_is_said(house: House) -> None:
    with process(house.root) as pid, house.daemon(pid=pid):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (64, 70))
        told = only(limits(house.look()), Level.WARNING)
    assert "LimitNOFILE=2048" in told
    assert "ulimit -Hn 2048" in told
    assert "leaves room for 6 clients of the 1024" in told


POLITE = ["polite", "marked"]


def test_another_user_is_sent_to_the_daemons(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with DyingDaemon(house.state, {"a": POLITE}) as daemon:
        daemon.kill()
        owner = house.state.stat().st_uid
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        said = only(leavings(house.look()), Level.WARNING)
        assert f"known to uid {owner} alone" in said
        assert daemon.alive == daemon.all
