"""Commands behind other commands; their images and packages, those that move, and what known servers need."""

import re
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config import command_lines
from daemon.config.command_lines import (
    MAX_DEPTH,
    Advice,
    _row,
    advice,
    completed,
    image_of,
    known_servers,
    started,
    warnings,
)
from daemon.config.config_model import Share
from tests.unit.cases import cases
from tests.unit.config.reading import server_of


@cases("line", "found")
def test_what_a_command_line_starts(line: str, found: list[str]) -> None:
    assert [" ".join(words) for words in started(shlex.split(line))] == found


def test_wrappers_are_looked_into_to_a_depth() -> None:
    assert list(started(["env"] * MAX_DEPTH + ["npx"])) == [("npx",)]
    assert list(started(["env"] * (MAX_DEPTH + 1) + ["npx"])) == []


@given(
    st.lists(
        st.sampled_from(["env", "sh", "-c", "-S", "A=1", "npx x", "'", ";", "exec", "-u", ""]), max_size=12
    )
)
def test_no_command_line_is_too_odd(words: list[str]) -> None:
    assert all(found for found in started(words))


@cases("line", "image", "pinned")
def test_the_image_of_a_container_is_found_among_the_options(line: str, image: str, pinned: bool) -> None:
    assert image_of(line.split()) == (image, pinned)


@cases("line")
def test_a_container_without_an_image_has_none(line: str) -> None:
    assert image_of(line.split()) is None
    assert not list(warnings(line.split()))


def test_all_that_is_unwise_is_said_at_once() -> None:
    line = "docker run --privileged -v /:/host -v //:/b --volume=/srv:/c mcp/time"
    told = list(warnings(line.split()))
    assert len(told) == 4


def test_the_processes_of_the_machine_are_told_and_a_part_of_it_is_no_matter() -> None:
    for option in ("--pid=host", "--pid host"):
        (told,) = warnings(["docker", "run", *option.split(), "mcp/time:1"])
        assert told.startswith("--pid=host shows the container every process of the machine")
    parts = ("--privileged=false", "--pid=private", "-v /home/me:/x", "-v cache:/", "--mount src=/a,dst=/")
    for options in parts:
        assert not list(warnings(["docker", "run", *options.split(), "mcp/time:1"])), options


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


def test_what_only_looks_like_a_subcommand_or_is_a_program_of_the_project_is_not_fetched() -> None:
    for line in (
        "npm --prefix exec foo",
        "npm run exec foo",
        "uv --directory",
        "npm",
        "",
        "uv run x",
        "git mcp",
    ):
        assert not list(command_lines.moving(line.split()))
        assert not command_lines.fetches(line.split()), line


def test_each_package_is_told_of() -> None:
    told = list(command_lines.moving(("npx", "-p", "one", "--package=two@1.2.3", "-p", "three@latest", "tool")))
    assert [message.partition(" ")[0] for message in told] == ["'one'", "'three@latest'"]
    told = list(command_lines.moving(("uvx", "--with", "one", "--from", "two", "tool", "--with", "not-mine")))
    assert [message.partition(" ")[0] for message in told] == ["'two'", "'one'"]


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


def entry_of(line: str, **more: Any) -> dict[str, Any]:
    command, *args = line.split()
    return {"command": command, "args": args, **more}


def told(line: str, **more: Any) -> list[list[object]]:
    """Key and value of all advice on the entry with this command line."""
    found = advice(server_of(entry_of(line, **more)))
    return [[each.key, list(each.value) if isinstance(each.value, tuple) else each.value] for each in found]


@cases("line", "name")
def test_a_server_is_known_by_what_is_started_and_not_by_what_that_is_told(line: str, name: str | None) -> None:
    row = next(filter(None, map(_row, started(line.split()))), None)
    assert (row is None) == (name is None)
    assert row is None or name is None or any(name in each for each in row.names)


def test_a_server_elsewhere_or_switched_off_is_not_advised_on() -> None:
    assert advice(server_of({"url": "https://h/mcp-server-memory"})) == ()
    assert advice(server_of(entry_of("mcp-server-memory", enabled=False))) == ()


@cases("line", "more", "expected")
def test_what_an_entry_does_not_say_is_told_and_a_share_that_is_written_stands(
    line: str, more: dict[str, Any], expected: list[list[object]]
) -> None:
    assert told(line, **more) == expected


def test_a_directory_is_mounted_into_a_container() -> None:
    (found,) = advice(server_of(entry_of("docker run -i mcp/filesystem /projects")))
    assert found == Advice(key="args", value=("${workspace}",), why=found.why, in_container=True)


def test_a_completed_entry_needs_no_more_advice() -> None:
    for row in known_servers():
        entry = entry_of(next(iter(row.programs or row.names)))
        made, done = completed(entry, server_of(entry))
        assert advice(server_of(made)) == (), row.names
        assert all(row.why in each.written("x") or each.value == ("--isolated",) for each in done)


@cases("line", "more", "written")
def test_an_entry_is_completed_with_what_is_known(
    line: str, more: dict[str, Any], written: dict[str, Any]
) -> None:
    entry = entry_of(line, **more)
    assert completed(entry, server_of(entry))[0] == {**entry, **written}


def test_every_row_says_why_and_where_that_was_seen() -> None:
    names = [name for row in known_servers() for name in (*row.names, *row.programs)]
    assert len(names) == len(set(names))
    for row in known_servers():
        assert re.match(r"[a-z]", row.why), "it follows the name of the server"
        assert not row.why.endswith(".")
        assert row.source
        assert all(name == name.lower().replace("_", "-") for name in (*row.names, *row.programs))
        assert (row.share is Share.WORKSPACE) == bool(row.workspace)
