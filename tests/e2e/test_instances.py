"""Two windows on the same real servers: with one instance for all they meet, with their own they do not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.crossings import NamedPage, Pair, divided, project, servers
from tests.e2e.harness import Daemon, running
from tests.e2e.windows import Window
from tests.pages import site
from tests.waiting import eventually

pytestmark = pytest.mark.nightly  # a dozen real servers, and browsers

Json = dict[str, Any]

TOOLS = {"browser_navigate", "write_file", "git_log", "sequentialthinking", "read_graph", "echo"}
"""One of each server."""

ALL = {"page", "browser", "file", "root", "repository", "thought", "memory", "logging"}


@pytest.fixture
def projects(tmp_path: Path) -> tuple[Path, Path]:
    """The directories that the two work in."""
    return project(tmp_path / "one"), project(tmp_path / "two")


@contextmanager
def windows(entries: Json, projects: tuple[Path, Path]) -> Iterator[tuple[Daemon, Window, Window]]:
    """A daemon with these servers, and a window in each project."""
    with (
        running({"mcpServers": entries, "profiles": {"default": {"surface": "full"}}}) as daemon,
        Window.bridged(daemon, projects[0]) as one,
        Window.bridged(daemon, projects[1]) as two,
    ):
        one.begin()
        two.begin()
        yield daemon, one, two


def test_with_one_instance_for_all_everything_crosses(projects: tuple[Path, Path]) -> None:
    """So the other test would see it."""
    with site(NamedPage) as pages, windows(servers(projects[0]), projects) as (daemon, one, two):
        daemon.ready()
        assert Pair(one, two, pages).crossed() == ALL, daemon.said()


def test_with_instances_of_their_own_nothing_crosses(projects: tuple[Path, Path]) -> None:
    with site(NamedPage) as pages, windows(divided(servers(projects[0])), projects) as (daemon, one, two):
        # Each has been listed once, by an instance that is nobody's.
        eventually(
            lambda: {each["state"] for each in daemon.ask("status")["servers"].values()} == {"dormant"},
            daemon.said,
        )
        eventually(lambda: set(one.listed()) >= TOOLS, daemon.said)
        assert Pair(one, two, pages).crossed() == set(), daemon.said()

        written = [(each / "note.txt").read_text() for each in projects]
        assert written == ["of one", "of two"]
