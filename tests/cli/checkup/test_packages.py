"""What is fetched before a server runs."""

from __future__ import annotations

import pytest

from daemon.cli.checkup.packages import check
from daemon.cli.checkup.scene import Level
from daemon.config.model import Server
from daemon.errors import Fault
from tests.cli.checkup.scenes import levels, only


def server(line: str) -> Server:
    command, *args = line.split()
    return Server(name="s", command=command, args=tuple(args))


@pytest.mark.parametrize("line", ["/usr/bin/docker run -i mcp/time", "env A=1 docker run mcp/time"])
def test_the_download_of_an_image_is_a_note(line: str) -> None:
    assert "docker pull" in only(check(server(line), []), Level.NOTE)


@pytest.mark.parametrize("line", ["docker", "docker exec -i box mcp", "docker run"])
def test_without_an_image_there_is_nothing_to_download(line: str) -> None:
    assert not list(check(server(line), []))


@pytest.mark.parametrize("options", ["--pull=never", "--pull never"])
def test_an_image_that_is_never_pulled_needs_no_network(options: str) -> None:
    assert not list(check(server(f"docker run {options} mcp/time:1"), []))


def test_what_the_configurations_check_advises_is_a_warning() -> None:
    advised = [Fault(path="$.mcpServers.s.args", message="'x' has no exact version: ...")]
    found = list(check(server("npx -y x"), advised))
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
    assert said in only(check(server(line), []), Level.NOTE)


@pytest.mark.parametrize(
    "line", ["npx --offline x@1.2.3", "npx --no-install x", "uvx --offline x", "git mcp", "uv run x"]
)
def test_what_fetches_nothing_is_not_noted(line: str) -> None:
    assert not list(check(server(line), []))
