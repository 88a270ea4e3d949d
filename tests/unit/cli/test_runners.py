"""Packages that move; most of it through the advice on a configuration (`test_advice`)."""

from __future__ import annotations

import pytest

from daemon.cli.runners import KNOWN, RUNNERS, Runner, fetches, known, moving, packages_of
from daemon.config.model import Server, ServerLimits


@pytest.mark.parametrize(
    "runner", [each for each in RUNNERS if not each.runs_files], ids=lambda it: " ".join(it.words)
)
def test_every_runner_is_told_how_to_write_a_version_and_content_with_it(runner: Runner) -> None:
    name = "npm:pkg" if runner.words[0] == "deno" else "pkg"
    (message,) = moving((*runner.words, name))
    assert message.endswith(f"as in '{name}{runner.example}'")
    assert not list(moving((*runner.words, name + runner.example)))
    assert not list(moving((*runner.words, "--offline", name)))
    assert fetches((*runner.words, name))


@pytest.mark.parametrize(
    "line",
    ["npm --prefix /x exec foo", "pnpm --silent dlx foo", "uv --directory /x run --with foo x",
     "uv --quiet tool run foo", "uv tool --quiet run foo"],
)  # fmt: skip
def test_options_before_the_subcommand_are_passed_over(line: str) -> None:
    (message,) = moving(line.split())
    assert message.startswith("'foo' has no exact version")
    assert not list(moving([*line.split()[:1], "--offline", *line.split()[1:]]))


@pytest.mark.parametrize("line", ["npm --prefix exec foo", "npm run exec foo", "uv --directory", "npm", ""])
def test_what_only_looks_like_a_subcommand_is_none(line: str) -> None:
    assert not list(moving(line.split()))
    assert not fetches(line.split())


def test_each_package_is_told_of() -> None:
    told = list(moving(("npx", "-p", "one", "--package=two@1.2.3", "-p", "three@latest", "tool")))
    assert [message.partition(" ")[0] for message in told] == ["'one'", "'three@latest'"]
    told = list(moving(("uvx", "--with", "one", "--from", "two", "tool", "--with", "not-mine")))
    assert [message.partition(" ")[0] for message in told] == ["'two'", "'one'"]


def test_a_program_of_the_project_is_not_fetched() -> None:
    assert not fetches(("uv", "run", "server"))
    assert not fetches(("git", "mcp"))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("npx -y foo@1.2.3 bar", ["foo@1.2.3"]),
        ("npx --package foo bar", ["foo"]),
        ("uvx --with extra foo bar", ["foo"]),
        ("uv run --with extra foo bar", ["foo"]),
        ("node foo", []),
    ],
)
def test_what_is_started_is_told_from_what_comes_with_it_and_what_it_is_told(
    line: str, names: list[str]
) -> None:
    assert packages_of(line.split()) == names


@pytest.mark.parametrize(
    "words",
    [
        "npx -y @modelcontextprotocol/server-memory",
        "npx -y @modelcontextprotocol/server-memory@2026.1.26",
        "env A=1 npx @modelcontextprotocol/server-memory",
        "mcp-server-memory",
        "/usr/local/bin/mcp-server-memory",
        "npx -y --package @modelcontextprotocol/server-memory mcp-server-memory",
        "uv run --with x mcp-server-memory",
        "docker run -i --rm -v m:/app/dist mcp/memory:latest",
        "docker run -i --rm docker.io/mcp/memory",
        "podman run mcp/memory@sha256:0123456789abcdef",
        "podman run docker.io/mcp/memory:1.2@sha256:0123456789abcdef",
        "node /srv/node_modules/@modelcontextprotocol/server-memory/dist/index.js",
    ],
)
def test_a_server_is_known_by_its_package(words: str) -> None:
    command, *args = words.split()
    found = known(Server(name="m", command=command, args=tuple(args)))
    assert found is not None
    assert found.limits == {"in_flight": 1}


@pytest.mark.parametrize(
    "words",
    [
        "npx some-tool mcp/memory",
        "echo --doc mcp-server-memory",
        "docker run other mcp/memory",
        "npx -y @modelcontextprotocol/server-time",
        "mcp-server-memory-bank",
        "cat memory",
        "x @ :",
    ],
)
def test_another_one_is_not(words: str) -> None:
    command, *args = words.split()
    assert known(Server(name="m", command=command, args=tuple(args))) is None


def test_all_that_a_server_may_need_are_limits_that_there_are() -> None:
    assert all(hasattr(ServerLimits(), limit) for each in KNOWN for limit in each.limits)


def test_a_server_elsewhere_is_not_either() -> None:
    assert known(Server(name="m", url="https://h/mcp-server-memory")) is None
