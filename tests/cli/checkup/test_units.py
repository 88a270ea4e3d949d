"""systemd, played by a script that is called `systemctl` and stands on the PATH."""

from __future__ import annotations

import os
import pwd
import shlex
from typing import TYPE_CHECKING

import pytest

from daemon.cli.checkup.scene import Level
from daemon.cli.checkup.units import ENDS, LINGER, check
from tests.cli.checkup.scenes import levels, only

if TYPE_CHECKING:
    from daemon.cli.checkup.scene import Finding
    from tests.cli.checkup.scenes import House

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
        return list(check(self.house.look(), self.linger))


def _pattern(words: str) -> str:
    return words.replace(" ", "\\ ")


def _print(unit: dict[str, str]) -> str:
    return "printf '%s\\n' " + " ".join(shlex.quote(f"{key}={value}") for key, value in unit.items())


@pytest.fixture
def systemd(house: House) -> Systemd:
    return Systemd(house)


def test_without_systemctl_nothing_is_wrong(house: House) -> None:
    assert "no systemctl" in only(check(house.look()), Level.NOTE)


@pytest.mark.parametrize("script", ["exit 1", "echo nonsense", "kill -9 $$"])
def test_a_systemd_that_does_not_answer_is_no_fault(house: House, script: str) -> None:
    house.program("systemctl", f"#!/bin/sh\n{script}\n")
    assert "No unit" in only(check(house.look()), Level.NOTE)


def test_a_systemctl_that_cannot_be_started_is_no_fault(house: House) -> None:
    house.program("systemctl", "#!/no/such/interpreter\n")
    assert levels(check(house.look())) == ["note"]


def test_an_active_unit_is_fine_and_only_questions_are_asked(systemd: Systemd) -> None:
    systemd.says(ACTIVE)
    assert levels(systemd.found()) == ["ok"]
    asked = systemd.asked.read_text().splitlines()
    assert len(asked) == 4
    assert all(line.removeprefix("--user ").startswith("show mcpd.") for line in asked)


def test_the_systems_unit_is_looked_at_likewise(systemd: Systemd) -> None:
    systemd.says(system=FAILED)
    said = only(systemd.found(), Level.FAULT)
    assert "The system's mcpd.service" in said
    assert "journalctl -u" in said


def test_no_unit_is_noted_with_how_to_have_one(systemd: Systemd) -> None:
    systemd.says()
    assert "enable --now mcpd.socket" in only(systemd.found(), Level.NOTE)


@pytest.mark.parametrize("status", ENDS)
def test_a_unit_that_failed_is_a_fault_that_says_why(systemd: Systemd, status: str) -> None:
    systemd.says({**FAILED, "ExecMainStatus": status})
    said = only(systemd.found(), Level.FAULT)
    assert ENDS[status][0] in said
    assert ENDS[status][1] in said
    assert "journalctl --user" in said


def test_other_ends_are_told_as_systemd_tells_them(systemd: Systemd) -> None:
    systemd.says({**FAILED, "ExecMainStatus": "42"})
    assert "exit status 42" in only(systemd.found(), Level.FAULT)
    systemd.says({**FAILED, "Result": "watchdog"})
    assert "watchdog" in only(systemd.found(), Level.FAULT)


def test_a_unit_that_is_started_again_and_again_is_a_fault(systemd: Systemd) -> None:
    systemd.says({**FAILED, "ActiveState": "activating", "SubState": "auto-restart", "ExecMainStatus": "69"})
    assert "activating" in next(each.what for each in systemd.found() if each.level is Level.FAULT)


def test_a_unit_that_its_socket_will_start_is_fine(systemd: Systemd) -> None:
    resting = {**ACTIVE, "ActiveState": "inactive", "SubState": "dead"}
    systemd.says(resting)
    assert "with the first client" in systemd.found()[0].what
    systemd.says(resting, socket={**SOCKET, "ActiveState": "inactive"})
    assert "start mcpd.socket" in only(systemd.found(), Level.NOTE)


@pytest.mark.parametrize(
    ("changed", "level", "said"),
    [
        ({"LoadState": "masked"}, Level.WARNING, "unmask"),
        ({"LoadState": "bad-setting"}, Level.WARNING, "bad-setting"),
        ({"NeedDaemonReload": "yes"}, Level.WARNING, "daemon-reload"),
        ({"NRestarts": "7"}, Level.NOTE, "7 times"),
    ],
)
def test_what_else_is_odd_about_a_unit_is_told(
    systemd: Systemd, changed: dict[str, str], level: Level, said: str
) -> None:
    systemd.says({**ACTIVE, **changed})
    assert said in only(systemd.found(), level)


def test_units_that_no_boot_starts_are_noted(systemd: Systemd) -> None:
    systemd.says(ACTIVE, socket={**SOCKET, "UnitFileState": "disabled"})
    assert "enable mcpd.socket" in only(systemd.found(), Level.NOTE)


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


def test_lingering_is_looked_up_where_systemd_keeps_it() -> None:
    assert str(LINGER) == "/var/lib/systemd/linger"
