"""Which image a command runs, and what it opens to it."""

from __future__ import annotations

import pytest

from daemon.cli.containers import image_of, warnings


@pytest.mark.parametrize(
    ("line", "image", "pinned"),
    [
        ("docker run mcp/time", "mcp/time", False),
        ("docker run -i --rm mcp/time:latest", "mcp/time:latest", False),
        (
            "docker run -i --rm -e KEY=1 --mount type=bind,src=/a,dst=/b mcp/time:1.2 --x y",
            "mcp/time:1.2",
            True,
        ),
        ("podman run --env=KEY mcp/time@sha256:ab12", "mcp/time@sha256:ab12", True),
        ("docker run localhost:5000/mcp/time", "localhost:5000/mcp/time", False),
        ("docker run localhost:5000/mcp/time:1", "localhost:5000/mcp/time:1", True),
        ("docker --context x run mcp/time", "mcp/time", False),
        ("docker --debug container run mcp/time", "mcp/time", False),
    ],
)
def test_the_image_of_a_container_is_found_among_the_options(line: str, image: str, pinned: bool) -> None:
    assert image_of(line.split()) == (image, pinned)


@pytest.mark.parametrize(
    "line",
    [
        "docker",
        "docker exec -i box mcp",
        "docker run",
        "docker run -e",
        "docker run -it",
        "docker compose run svc",
        "docker compose -f x run svc",
        "docker --context run",
        "podman container ls",
    ],
)
def test_a_container_without_an_image_has_none(line: str) -> None:
    assert image_of(line.split()) is None
    assert not list(warnings(line.split()))


@pytest.mark.parametrize("line", ["git run mcp/time", "node docker run x", ""])
def test_what_runs_no_container_is_let_be(line: str) -> None:
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
