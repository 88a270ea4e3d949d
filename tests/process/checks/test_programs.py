"""Commands, real files: found and started as the kernel would; and what is fetched before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from daemon.checks.entries import command as check
from daemon.checks.entries import packages
from daemon.checks.findings import Level
from daemon.config.config_model import Server
from tests.unit.checks.scenes import as_somebody_else, levels, only, process

if TYPE_CHECKING:
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


@pytest.mark.parametrize("head", ["#!/bin/sh\n", "#! /bin/sh -e\n"])
def test_a_script_on_the_path_is_fine(house: House, head: str) -> None:
    assert starts(house.program("tool", head))
    assert not found(house, command="tool")
    assert not found(house, command=str(house.bin / "tool"))


def test_a_binary_is_fine(house: House) -> None:
    assert not found(house, command=str(Path(sys.executable).resolve()))


def test_a_command_that_is_nowhere_is_a_fault(house: House) -> None:
    told = only(found(house, command="tool"), Level.FAULT)
    assert "tool is not on the PATH" in told
    assert str(house.bin) in told
    assert "no program /no/tool" in only(found(house, command="/no/tool"), Level.FAULT)


def test_a_command_that_only_the_shell_finds_says_where_it_is(house: House) -> None:
    tool = house.program("tool")
    house.servers(s={"command": "tool"})
    with process(house.root, PATH="/daemons/own") as pid, house.daemon(pid=pid):
        scene = house.look()
    assert scene.config is not None
    told = only(check(scene.config.mcp_servers["s"], scene.inherited, scene.environ), Level.FAULT)
    assert f'"command": "{tool}"' in told
    assert "/daemons/own" in told


def test_the_path_in_its_env_counts(house: House) -> None:
    house.program("tool")
    assert found(house, command="tool", env={"PATH": "/nowhere"})
    (house.root / "more").mkdir()
    (house.bin / "tool").rename(house.root / "more" / "tool")
    assert not found(house, command="tool", env={"PATH": f"/nowhere:{house.root / 'more'}"})


def test_a_file_that_is_not_executable_is_a_fault(house: House) -> None:
    tool = house.program("tool", mode=0o644)
    assert f"chmod +x {tool}" in only(found(house, command="tool"), Level.FAULT)
    assert f"chmod +x {tool}" in only(found(house, command=str(tool)), Level.FAULT)


def test_an_executable_one_later_on_the_path_is_taken_as_execvp_does(house: House) -> None:
    house.program("tool", mode=0o644)
    (house.root / "more").mkdir()
    (house.root / "more" / "tool").write_text("#!/bin/sh\n")
    (house.root / "more" / "tool").chmod(0o755)
    assert not found(house, command="tool", env={"PATH": f"{house.bin}:{house.root / 'more'}"})


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


def test_a_file_that_is_no_program_is_a_fault(house: House) -> None:
    assert not starts(house.program("tool", "hello\n"))
    assert "is no program" in only(found(house, command="tool"), Level.FAULT)


def test_a_script_from_windows_is_a_fault(house: House) -> None:
    assert not starts(house.program("tool", "#!/bin/sh\r\necho\r\n"))
    assert "Windows" in only(found(house, command="tool"), Level.FAULT)


@pytest.mark.parametrize("head", ["#!/no/such/python\n", "#!\n"])
def test_a_script_whose_interpreter_is_gone_is_a_fault(house: House, head: str) -> None:
    tool = house.program("tool", head)
    assert f"the interpreter of {tool} is not there" in only(found(house, command="tool"), Level.FAULT)


@pytest.mark.parametrize("words", ["snake", "-S snake -u", "A=1 snake"])
def test_what_env_is_told_to_find_must_be_on_the_servers_path(house: House, words: str) -> None:
    house.program("tool", f"#!/usr/bin/env {words}\n")
    assert "wants snake" in only(found(house, command="tool"), Level.FAULT)
    house.program("snake")
    assert not found(house, command="tool")


def test_a_directory_to_start_in_must_be_there(house: House) -> None:
    house.program("tool")
    assert "/no/where is not there" in only(found(house, command="tool", cwd="/no/where"), Level.FAULT)
    assert "is no directory" in only(found(house, command="tool", cwd=str(house.config)), Level.FAULT)
    assert not found(house, command="tool", cwd=str(house.root))


def test_a_command_relative_to_its_directory_is_found_there(house: House) -> None:
    house.program("tool")
    assert not found(house, command="./tool", cwd=str(house.bin))
    assert found(house, command="./tool", cwd=str(house.root))


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


@pytest.mark.parametrize("line", ["/usr/bin/docker run -i mcp/time", "env A=1 docker run mcp/time"])
def test_the_download_of_an_image_is_a_note(line: str) -> None:
    assert "docker pull" in only(packages(started_by(line)), Level.NOTE)


@pytest.mark.parametrize("line", ["docker", "docker exec -i box mcp", "docker run"])
def test_without_an_image_there_is_nothing_to_download(line: str) -> None:
    assert not list(packages(started_by(line)))


@pytest.mark.parametrize("options", ["--pull=never", "--pull never"])
def test_an_image_that_is_never_pulled_needs_no_network(options: str) -> None:
    assert not list(packages(started_by(f"docker run {options} mcp/time:1")))


def test_what_the_configurations_check_advises_is_a_warning() -> None:
    found = list(packages(started_by("npx -y x")))
    assert levels(found) == ["warning"]
    assert "has no exact version" in found[0].what


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("npx -y x@1.2.3", "over a minute"),
        ("uvx x==1.2.3", "cache"),
        ("uv tool run x==1.2.3", "downloads what it does not have"),
        ("pipx run x==1.2.3", "downloads what it does not have"),
    ],
)
def test_a_runner_of_a_pinned_package_is_noted_for_the_network(line: str, said: str) -> None:
    assert said in only(packages(started_by(line)), Level.NOTE)


@pytest.mark.parametrize(
    "line", ["npx --offline x@1.2.3", "npx --no-install x@1.2.3", "uvx --offline x", "git mcp", "uv run x"]
)
def test_what_fetches_nothing_is_not_noted(line: str) -> None:
    assert not list(packages(started_by(line)))


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
