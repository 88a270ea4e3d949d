"""Commands behind other commands; which image one runs, and what it opens to it."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config.command_lines import MAX_DEPTH, image_of, started, warnings
from tests.unit.cases import cases


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


@pytest.mark.parametrize("option", ["--pid=host", "--pid host"])
def test_the_processes_of_the_machine_are_told(option: str) -> None:
    (told,) = warnings(["docker", "run", *option.split(), "mcp/time:1"])
    assert told.startswith("--pid=host shows the container every process of the machine")


@pytest.mark.parametrize(
    "options", ["--privileged=false", "--pid=private", "-v /home/me:/x", "-v cache:/", "--mount src=/a,dst=/"]
)
def test_a_part_of_the_machine_is_no_matter(options: str) -> None:
    assert not list(warnings(["docker", "run", *options.split(), "mcp/time:1"]))
