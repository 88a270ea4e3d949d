"""Warnings: commands that will not be found, packages whose version moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli.advice import advice
from tests.config.reading import config_of

if TYPE_CHECKING:
    from pathlib import Path


def warnings(entry: dict[str, Any], path: str | None = None) -> list[tuple[str, str]]:
    """Place and text of every warning about one server `s`."""
    environ = {} if path is None else {"PATH": path}
    return [
        (fault.path, fault.message)
        for fault in advice(config_of({"mcpServers": {"s": entry}}, environ), environ)
    ]


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A PATH with all the package runners on it, and nothing else."""
    for name in ("npx", "uvx", "uv", "bunx", "pnpx", "pipx", "node"):
        (tmp_path / name).touch(mode=0o755)
    return str(tmp_path)


def moving(command: str, args: list[str], programs: str) -> list[str]:
    found = warnings({"command": command, "args": args}, programs)
    assert all(place == "$.mcpServers.s.args" for place, _ in found)
    return [message for _, message in found]


@pytest.mark.parametrize(
    ("command", "args", "pinned"),
    [
        ("npx", ["-y", "some-mcp"], "some-mcp@1.2.3"),
        ("npx", ["--yes", "@scope/mcp"], "@scope/mcp@1.2.3"),
        ("npx", ["@scope/mcp@latest"], "@scope/mcp@1.2.3"),
        ("npx", ["some-mcp@next"], "some-mcp@1.2.3"),
        ("npx", ["some-mcp@^1.2.3"], "some-mcp@1.2.3"),
        ("npx", ["some-mcp@1"], "some-mcp@1.2.3"),
        ("npx", ["-y", "-p", "some-mcp", "server"], "some-mcp@1.2.3"),
        ("npx", ["--package=some-mcp", "server"], "some-mcp@1.2.3"),
        ("npx", ["--registry", "https://r.example", "some-mcp"], "some-mcp@1.2.3"),
        ("bunx", ["some-mcp"], "some-mcp@1.2.3"),
        ("pnpx", ["some-mcp"], "some-mcp@1.2.3"),
        ("uvx", ["mcp-server-git"], "mcp-server-git==1.2.3"),
        ("uvx", ["mcp-server-git@latest", "--repository", "."], "mcp-server-git==1.2.3"),
        ("uvx", ["--from", "pkg[cli]>=1.0", "tool"], "pkg[cli]==1.2.3"),
        ("uvx", ["--python", "3.12", "pkg"], "pkg==1.2.3"),
        ("uv", ["tool", "run", "pkg"], "pkg==1.2.3"),
        ("pipx", ["run", "--spec", "pkg", "tool"], "pkg==1.2.3"),
    ],
)
def test_a_version_that_moves_is_told_with_one_that_does_not(
    command: str, args: list[str], pinned: str, programs: str
) -> None:
    (message,) = moving(command, args, programs)
    assert "has no exact version" in message
    assert message.endswith(f"as in '{pinned}'")


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("npx", ["-y", "some-mcp@1.2.3"]),
        ("npx", ["-y", "@scope/mcp@2025.1.14-beta.1"]),
        ("npx", ["-p", "some-mcp@1.2.3", "server"]),
        ("npx", ["--offline", "some-mcp"]),
        ("npx", ["./local"]),
        ("npx", ["/opt/server"]),
        ("npx", ["https://example.org/a.tgz"]),
        ("npx", ["github:owner/repo"]),
        ("npx", ["-y"]),
        ("npx", []),
        ("uvx", ["mcp-server-git==2025.9.25"]),
        ("uvx", ["mcp-server-git@2025.9.25"]),
        ("uvx", ["--from", "pkg==1.0", "tool"]),
        ("uvx", ["--from", "git+https://example.org/x@0123abcd", "tool"]),
        ("uvx", ["--offline", "pkg"]),
        ("uv", ["run", "server.py"]),
        ("node", ["some-mcp"]),
    ],
)
def test_what_stands_still_needs_no_warning(command: str, args: list[str], programs: str) -> None:
    assert moving(command, args, programs) == []


def test_a_runner_by_its_path_is_a_runner(programs: str) -> None:
    assert len(moving(f"{programs}/npx", ["some-mcp"], programs)) == 1


def test_a_command_that_is_not_on_path_is_told(programs: str) -> None:
    assert warnings({"command": "nope"}, programs) == [
        (
            "$.mcpServers.s.command",
            "'nope' cannot be started: it is not on PATH. Install it, or write its absolute path",
        )
    ]
    assert "there is no such program" in warnings({"command": "/nope/nope"}, programs)[0][1]


def test_the_path_is_the_servers_own_where_it_has_one(programs: str) -> None:
    assert not warnings({"command": "node", "env": {"PATH": programs}}, "/nowhere")
    assert warnings({"command": "node", "env": {"PATH": "/nowhere"}}, programs)


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "nope", "enabled": False},
        {"url": "https://example.org/mcp"},
        {"command": "bin/server", "cwd": "/opt/x"},
    ],
)
def test_what_is_not_started_by_name_is_not_looked_for(entry: dict[str, Any], programs: str) -> None:
    assert warnings(entry, programs) == []


def test_a_secret_is_not_repeated_in_a_warning(programs: str) -> None:
    entry = {"command": "npx", "args": ["${TOKEN}"]}
    environ = {"PATH": programs, "TOKEN": "hunter2-hunter2"}
    assert advice(config_of({"mcpServers": {"s": entry}}, environ), environ) == []
