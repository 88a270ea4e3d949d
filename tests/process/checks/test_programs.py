"""Commands, real files: found and started as the kernel would; and what is fetched before."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from daemon.checks.entries import command as check
from daemon.checks.entries import packages
from daemon.checks.findings import Level
from daemon.config.config_model import Server
from tests.unit.checks.scenes import as_somebody_else, levels, only, process

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.checks.findings import Finding
    from tests.unit.checks.scenes import House


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


@pytest.mark.parametrize(
    ("head", "mode", "server", "said"),
    [
        ("#!/bin/sh\n", 0o755, {"command": "tool"}, ""),
        ("#! /bin/sh -e\n", 0o755, {"command": "{bin}/tool"}, ""),
        (
            "#!/bin/sh\n",
            0o755,
            {"command": "gone"},
            "gone is not on the PATH.\nThat is, for a daemon started in this shell, {bin}",
        ),
        ("#!/bin/sh\n", 0o755, {"command": "/no/tool"}, "no program /no/tool"),
        (
            "#!/bin/sh\n",
            0o755,
            {"command": "tool", "env": {"PATH": "/nowhere"}},
            "not on the server's.\nThat is /nowhere",
        ),
        ("#!/bin/sh\n", 0o755, {"command": "tool", "env": {"PATH": "/nowhere:{bin}"}}, ""),
        ("#!/bin/sh\n", 0o644, {"command": "tool"}, "chmod +x {bin}/tool"),
        ("#!/bin/sh\n", 0o644, {"command": "{bin}/tool"}, "chmod +x {bin}/tool"),
        ("#!/bin/sh\n", 0o755, {"command": "tool", "cwd": "/no/where"}, "/no/where is not there"),
        ("#!/bin/sh\n", 0o755, {"command": "tool", "cwd": "{bin}/tool"}, "is no directory"),
        ("#!/bin/sh\n", 0o755, {"command": "./tool", "cwd": "{bin}"}, ""),
        ("#!/bin/sh\n", 0o755, {"command": "./tool", "cwd": "/"}, "no program"),
        ("hello\n", 0o755, {"command": "tool"}, "is no program"),
        ("#!/bin/sh\r\necho\r\n", 0o755, {"command": "tool"}, "Windows"),
        ("#!/no/such/python\n", 0o755, {"command": "tool"}, "the interpreter of {bin}/tool is not there"),
        ("#!\n", 0o755, {"command": "tool"}, "the interpreter of {bin}/tool is not there"),
        ("#!/usr/bin/env -S snake -u\n", 0o755, {"command": "tool"}, "wants snake"),
        ("#!/usr/bin/env A=1 snake\n", 0o755, {"command": "tool"}, "wants snake"),
        ("#!/usr/bin/env snake\n", 0o755, {"command": "tool", "env": {"PATH": "{bin}:{bin}/more"}}, ""),
    ],
)
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
    assert f'"command": "{tool}"' in told
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
        assert '"cwd": "."' in said
        assert "home directory" not in only(found(house, **server, cwd="."), Level.FAULT)


@pytest.mark.parametrize("name", ["python3", "node", "bash", "python3.12"])
def test_the_script_that_an_interpreter_is_to_run_must_be_there(house: House, name: str) -> None:
    house.program(name)
    script = house.root / "server.py"
    assert str(script) in only(found(house, command=name, args=[str(script)]), Level.FAULT)
    assert "server.py" in only(found(house, command=name, args=["server.py"], cwd=str(house.root)), Level.FAULT)
    home = house.look().inherited["HOME"]
    assert f"{home}/no-such.py" in only(found(house, command=name, args=["no-such.py"]), Level.FAULT)
    script.touch()
    assert not found(house, command=name, args=[str(script)])
    assert not found(house, command=name, args=["server.py"], cwd=str(house.root))


@pytest.mark.parametrize("args", [["-m", "x.py"], ["-c", "1"], ["serve"], []])
def test_other_arguments_are_not_taken_for_scripts(house: House, args: list[str]) -> None:
    house.program("python3")
    assert not found(house, command="python3", args=args)
    house.program("tool")
    assert not found(house, command="tool", args=["out.py"])


def started_by(line: str) -> Server:
    command, *args = line.split()
    return Server(name="s", command=command, args=tuple(args))


def test_what_the_configurations_check_advises_is_a_warning() -> None:
    found = list(packages(started_by("npx -y x")))
    assert levels(found) == ["warning"]
    assert "has no exact version" in found[0].what


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/usr/bin/docker run -i mcp/time", "docker pull"),
        ("env A=1 docker run mcp/time", "docker pull"),
        ("npx -y x@1.2.3", "over a minute"),
        ("uvx x==1.2.3", "cache"),
        ("uv tool run x==1.2.3", "downloads what it does not have"),
        ("pipx run x==1.2.3", "downloads what it does not have"),
        *((f"docker run {options} mcp/time:1", "") for options in ("--pull=never", "--pull never")),
        *((line, "") for line in ("docker", "docker exec -i box mcp", "docker run", "git mcp", "uv run x")),
        *((line, "") for line in ("npx --offline x@1.2.3", "npx --no-install x@1.2.3", "uvx --offline x")),
    ],
)
def test_what_a_runner_will_download_is_noted_for_the_network(line: str, said: str) -> None:
    noted = list(packages(started_by(line)))
    assert said in only(noted, Level.NOTE) if said else not noted


@pytest.mark.parametrize(
    "server",
    [
        {"command": "${workspace}/bin/serve"},
        {"command": "./bin/serve", "cwd": "${workspace}"},
        {"command": "only-there", "env": {"PATH": "${workspace}/bin:/nowhere"}},
    ],
)
def test_a_program_in_the_directory_of_a_client_is_not_called_missing(
    house: House, server: dict[str, Any]
) -> None:
    server["workspacePrograms"] = True
    told = only(found(house, **server), Level.NOTE)
    assert "stands in the directory of its client" in told
    assert "\0" not in told
    assert levels(found(house, **server)) == ["note"]


def test_what_a_client_s_directory_does_not_decide_is_looked_at(house: House) -> None:
    house.program("tool")
    house.program("node")
    assert not found(house, command="tool", args=["${workspace}"], cwd="${workspace}/sub")
    assert not found(house, command="node", args=["${workspace}/serve.js"])
    assert not found(house, command="node", args=["serve.js"], cwd="${workspace}")
    assert "gone is not on the PATH" in only(found(house, command="gone", cwd="${workspace}"), Level.FAULT)
