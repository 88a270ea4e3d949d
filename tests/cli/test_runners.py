"""Packages that move; most of it through the advice on a configuration (`test_advice`)."""

from __future__ import annotations

import pytest

from daemon.cli.runners import RUNNERS, Runner, fetches, moving


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


def test_each_package_is_told_of() -> None:
    told = list(moving(("npx", "-p", "one", "--package=two@1.2.3", "-p", "three@latest", "tool")))
    assert [message.partition(" ")[0] for message in told] == ["'one'", "'three@latest'"]
    told = list(moving(("uvx", "--with", "one", "--from", "two", "tool", "--with", "not-mine")))
    assert [message.partition(" ")[0] for message in told] == ["'two'", "'one'"]


def test_a_program_of_the_project_is_not_fetched() -> None:
    assert not fetches(("uv", "run", "server"))
    assert not fetches(("git", "mcp"))
