"""Packages that move; most of it through the advice on a configuration (`test_advice`)."""

import pytest

from daemon.config import command_lines
from tests.unit.cases import cases


@pytest.mark.parametrize(
    "runner",
    [each for each in command_lines.runners() if not each.runs_files],
    ids=lambda it: " ".join(it.words),
)
def test_every_runner_is_told_how_to_write_a_version_and_content_with_it(runner: command_lines.Runner) -> None:
    name = "npm:pkg" if runner.words[0] == "deno" else "pkg"
    (message,) = command_lines.moving((*runner.words, name))
    assert message.endswith(f"as in '{name}{runner.example}'")
    assert not list(command_lines.moving((*runner.words, name + runner.example)))
    assert not list(command_lines.moving((*runner.words, "--offline", name)))
    assert command_lines.fetches((*runner.words, name))


@cases("line")
def test_options_before_the_subcommand_are_passed_over(line: str) -> None:
    (message,) = command_lines.moving(line.split())
    assert message.startswith("'foo' has no exact version")
    assert not list(command_lines.moving([*line.split()[:1], "--offline", *line.split()[1:]]))


@pytest.mark.parametrize("line", ["npm --prefix exec foo", "npm run exec foo", "uv --directory", "npm", ""])
def test_what_only_looks_like_a_subcommand_is_none(line: str) -> None:
    assert not list(command_lines.moving(line.split()))
    assert not command_lines.fetches(line.split())


def test_each_package_is_told_of() -> None:
    told = list(command_lines.moving(("npx", "-p", "one", "--package=two@1.2.3", "-p", "three@latest", "tool")))
    assert [message.partition(" ")[0] for message in told] == ["'one'", "'three@latest'"]
    told = list(command_lines.moving(("uvx", "--with", "one", "--from", "two", "tool", "--with", "not-mine")))
    assert [message.partition(" ")[0] for message in told] == ["'two'", "'one'"]


def test_a_program_of_the_project_is_not_fetched() -> None:
    assert not command_lines.fetches(("uv", "run", "server"))
    assert not command_lines.fetches(("git", "mcp"))


@cases("line", "names")
def test_what_is_started_is_told_from_what_comes_with_it_and_what_it_is_told(
    line: str, names: list[str]
) -> None:
    assert command_lines.packages_of(line.split()) == names


@cases("line", "program")
def test_a_program_beside_its_package_is_told_from_what_it_is_told(line: str, program: list[str]) -> None:
    assert command_lines.program_of(line.split()) == program


def test_packages_without_a_version_are_told_with_what_pins_them() -> None:
    assert [*command_lines.unpinned(("npx", "-y", "@a/b@latest"))] == [
        command_lines.Package("@a/b@latest", "@a/b", "@a/b@", "npm", "@latest")
    ]
    assert [*command_lines.unpinned(("uvx", "--with", "x==1", "a[b]"))] == [
        command_lines.Package("a[b]", "a", "a[b]==", "pypi", "")
    ]
    assert not [*command_lines.unpinned(("npx", "owner/repository"))]
    for elsewhere in (
        ("uvx", "--index-url", "https://i.example", "x"),
        ("npx", "--registry=https://r.example", "x"),
    ):
        assert not [*command_lines.unpinned(elsewhere)]
        assert not [
            *command_lines.unpinned((*elsewhere[:-1], f"x{'@' if 'npx' in elsewhere else '=='}1.0"), again=True)
        ]
    # An option of the server, which may well ask registries.
    for own in (("npx", "x", "--registry", "https://r.example"), ("uvx", "--from", "x", "x-mcp", "--index=i")):
        assert [each.written for each in command_lines.unpinned(own)] == ["x"]
    assert not [*command_lines.unpinned(("deno", "run", "npm:x"))]
