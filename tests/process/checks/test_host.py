"""The machine around the daemon: systemd, played by a script called `systemctl`; files; servers' programs."""

import os
import pwd
import resource
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from daemon.checks.entries import command as check
from daemon.checks.entries import packages
from daemon.checks.findings import TABLE, Finding, Level
from daemon.checks.host import CHILD_FILES, OWN_FILES, REMOTE_FILES, leavings, limits, sandboxes, units
from daemon.config.config_model import Server
from tests.unit.cases import cases
from tests.unit.checks.scenes import House, as_somebody_else, levels, only, process
from tests.unit.processes.dying import DyingDaemon

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
        answers = {"--user show mcpd.service": service, "show mcpd.service": system}
        answers |= {"--user show mcpd.socket": socket, "show mcpd.socket": socket}
        arms = "".join(
            f"'{words} '*) printf '%s\\n' {shlex.join(f'{key}={value}' for key, value in unit.items())} ;;\n"
            for words, unit in answers.items()
        )
        script = f'#!/bin/sh\necho "$*" >> {self.asked}\ncase "$*" in\n{arms}*) exit 9 ;;\nesac\n'
        self.house.program("systemctl", script)

    def found(self) -> list[Finding]:
        """What the check finds."""
        return list(units(self.house.look(), self.linger))


@pytest.fixture
def systemd(house: House) -> Systemd:
    return Systemd(house)


def test_a_systemd_that_does_not_answer_is_no_fault(house: House) -> None:
    assert "no systemctl" in only(units(house.look()), Level.NOTE)
    for script in ("exit 1", "echo nonsense", "kill -9 $$"):
        house.program("systemctl", f"#!/bin/sh\n{script}\n")
        assert "No systemd unit" in only(units(house.look()), Level.NOTE)


def test_an_active_unit_is_fine_and_only_questions_are_asked(systemd: Systemd) -> None:
    systemd.says(ACTIVE)
    assert levels(systemd.found()) == ["ok"]
    asked = systemd.asked.read_text().splitlines()
    assert len(asked) == 3
    assert all(line.removeprefix("--user ").startswith("show mcpd.") for line in asked)


@cases("units", "level", "said")
def test_what_systemd_says_of_the_units_is_judged(
    systemd: Systemd, units: dict[str, dict[str, str]], level: str, said: str
) -> None:
    systemd.says(**units)
    assert said in only(systemd.found(), Level(level))


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


def test_room_for_few_clients_is_a_warning_with_what_to_write(house: House) -> None:
    house.write({"mcpServers": SERVERS, "limits": {"connections": CLIENTS}})
    with process(house.root) as pid, house.daemon(pid=pid):
        for allowed, said in (
            (NEEDED + CLIENTS, "ok"),
            (NEEDED + CLIENTS - 1, "note"),
            (NEEDED + 64, "note"),
            (NEEDED + 63, "warning"),
        ):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (64, allowed))
            assert levels(limits(house.look())) == [said]
        house.write({})
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (64, 70))
        told = only(limits(house.look()), Level.WARNING)
    for line in ("LimitNOFILE=2048", "ulimit -Hn 2048", "leaves room for 6 clients of the 1024"):
        assert line in told


def test_limits_that_need_control_groups_are_void_for_a_daemon_without(house: House) -> None:
    held = {"limits": {"cpu": 1.5, "pids": 50, "memoryBytes": "1GiB"}}
    house.servers(
        a={"command": "a", **held}, b={"command": "b"}, off={"command": "c", "enabled": False, **held}
    )
    assert not [each for each in limits(house.look()) if each.cause == "limits-void"]  # no daemon runs
    with process(house.root) as pid, house.daemon(pid=pid):
        told = only([each for each in limits(house.look()) if each.cause == "limits-void"], Level.WARNING)
    assert "a: limits.cpu and limits.pids: nothing enforces this." in told
    assert "Delegate=" in told


POLITE = ["polite", "marked"]


def test_another_user_is_sent_to_the_daemons(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with DyingDaemon(house.state, {"a": POLITE}) as daemon:
        daemon.kill()
        owner = house.state.stat().st_uid
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        said = only(leavings(house.look()), Level.WARNING)
        assert f"Only uid {owner} can see" in said
        assert daemon.alive == daemon.all


# --- commands, real files ------------------------------------------------------------------------------------


def found(house: House, **server: Any) -> list[Finding]:
    """What is found about one server."""
    house.servers(s=server)
    scene = house.look()
    assert scene.config is not None, scene.faults
    return list(check(scene.config.mcp_servers["s"], scene.inherited, scene.environ, running=False))


def starts(path: Path) -> bool:
    """Whether the kernel starts it."""
    try:
        subprocess.run([path], check=False, capture_output=True, timeout=30)
    except OSError:
        return False
    return True


@cases("head", "mode", "server", "said")
def test_what_the_kernel_would_not_start_is_a_fault(
    house: House, head: str, mode: int, server: dict[str, Any], said: str
) -> None:
    (house.bin / "more").mkdir()
    house.program("more/snake")
    # One that is not executable is passed over, as execvp does.
    house.program("snake", mode=0o644)
    tool = house.program("tool", head, mode)

    def placed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: placed(each) for key, each in value.items()}
        return value.replace("{bin}", str(house.bin))

    faults = found(house, **placed(server))
    if said:
        assert placed(said) in only(faults, Level.FAULT)
    else:
        assert not faults
    if server == {"command": "tool"} and "env" not in head:
        assert starts(tool) is (not said)


def test_a_command_that_only_the_shell_finds_says_where_it_is(house: House) -> None:
    tool = house.program("tool")
    house.servers(s={"command": "tool"})
    with process(house.root, PATH="/daemons/own") as pid, house.daemon(pid=pid):
        scene = house.look()
    assert scene.config is not None
    told = only(check(scene.config.mcp_servers["s"], scene.inherited, scene.environ), Level.FAULT)
    assert f"`mcpd set s command={tool}`" in told
    assert "/daemons/own" in told


def test_a_directory_that_is_closed_is_passed_over(house: House) -> None:
    house.program("tool")
    closed = house.root / "closed"
    closed.mkdir(mode=0o700)
    closed.chmod(0)
    house.servers(s={"command": "tool", "env": {"PATH": f"{closed}:{house.bin}"}})
    house.config.chmod(0o644)
    house.run.chmod(0o755)
    with as_somebody_else():
        scene = house.look()
        assert scene.config is not None
        assert not list(check(scene.config.mcp_servers["s"], scene.inherited, scene.environ))


def test_what_begins_at_home_is_told_so(house: House) -> None:
    house.program("python3")
    home = house.look().inherited["HOME"]
    for server in ({"command": "./tool"}, {"command": "python3", "args": ["tool.py"]}):
        said = only(found(house, **server), Level.FAULT)
        assert f"{home}/tool" in said
        assert "home directory" in said
        assert "`mcpd set s cwd=.`" in said
        assert "home directory" not in only(found(house, **server, cwd="."), Level.FAULT)


def test_the_script_that_an_interpreter_is_to_run_must_be_there(house: House) -> None:
    script, home = house.root / "server.py", house.look().inherited["HOME"]
    for name in ("python3", "node", "bash", "python3.12"):
        house.program(name)
        assert str(script) in only(found(house, command=name, args=[str(script)]), Level.FAULT)
        here = {"args": ["server.py"], "cwd": str(house.root)}
        assert "server.py" in only(found(house, command=name, **here), Level.FAULT)
        assert f"{home}/no-such.py" in only(found(house, command=name, args=["no-such.py"]), Level.FAULT)
        script.touch()
        assert not found(house, command=name, args=[str(script)])
        assert not found(house, command=name, **here)
        script.unlink()


def test_other_arguments_are_not_taken_for_scripts(house: House) -> None:
    house.program("python3")
    for line in ("-m x.py", "-c 1", "serve", ""):
        assert not found(house, command="python3", args=line.split())
    house.program("tool")
    assert not found(house, command="tool", args=["out.py"])


def started_by(line: str) -> Server:
    command, *args = line.split()
    return Server(name="s", command=command, args=tuple(args))


def test_what_the_configurations_check_advises_is_a_warning() -> None:
    found = list(packages(started_by("npx -y x")))
    assert levels(found) == ["warning"]
    assert "has no exact version" in found[0].what


@cases("line", "said")
def test_what_a_runner_will_download_is_noted_for_the_network(line: str, said: str) -> None:
    noted = list(packages(started_by(line)))
    assert said in only(noted, Level.NOTE) if said else not noted


@cases("server")
def test_a_program_in_the_directory_of_a_client_is_not_called_missing(
    house: House, server: dict[str, Any]
) -> None:
    server["workspacePrograms"] = True
    told = only(found(house, **server), Level.NOTE)
    assert "is in the client's directory" in told
    assert "\0" not in told
    assert levels(found(house, **server)) == ["note"]


def test_what_a_client_s_directory_does_not_decide_is_looked_at(house: House) -> None:
    house.program("tool")
    house.program("node")
    assert not found(house, command="tool", args=["${workspace}"], cwd="${workspace}/sub")
    assert not found(house, command="node", args=["${workspace}/serve.js"])
    assert not found(house, command="node", args=["serve.js"], cwd="${workspace}")
    assert "gone is not on the PATH" in only(found(house, command="gone", cwd="${workspace}"), Level.FAULT)


# --- sandboxes ----------------------------------------------------------------------------------------------


def test_where_sandboxes_work_they_are_fine_and_where_not_only_those_that_ask_are_at_fault(
    house: House,
) -> None:
    bwrap = shutil.which("bwrap")
    assert bwrap is not None
    link = house.bin / "bwrap"
    link.symlink_to(bwrap)
    for each in ("true", "nsenter"):
        (house.bin / each).symlink_to(f"/usr/bin/{each}")
    assert levels(sandboxes(house.look())) == ["ok"]
    link.unlink()
    house.servers(a={"command": "x", "sandbox": "off"})
    said = only(sandboxes(house.look()), Level.NOTE)
    assert "bubblewrap (bwrap) is not installed" in said
    assert (
        "`sudo apt install bubblewrap` (or your system's package manager), then `mcpd set . sandbox=home`"
        in said
    )
    house.write(
        {"mcpServers": {"a": {"command": "x"}, "b": {"command": "x", "sandbox": "off"}}, "sandbox": "home"}
    )
    said = only(sandboxes(house.look()), Level.FAULT)
    assert "need one to start: a." in said
    assert "`sudo apt install bubblewrap`" in said
