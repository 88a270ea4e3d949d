"""Names of instances, and what stands before and after them on a command line."""

from __future__ import annotations

import pytest

from daemon.config.labels import server_of, split_off, split_off_uri


@pytest.mark.parametrize("name", ["fs", "fs#12", "fs@", "fs@~/src/app", "fs@/srv/a#b@c", "fs#0.2"])
def test_what_a_name_is_of_stands_before_the_first_mark(name: str) -> None:
    assert server_of(name) == "fs"


@pytest.mark.parametrize(
    ("word", "server", "tool"),
    [
        ("git/log", "git", "log"),
        ("git/a/b", "git", "a/b"),
        ("playwright#12/click", "playwright#12", "click"),
        ("fs@~/src/app/read_file", "fs@~/src/app", "read_file"),
        ("fs@/read_file", "fs@", "read_file"),
        ("log", "", "log"),
        ("git/", "", "git/"),
        ("/log", "", "/log"),
        ("fs@~", "", "fs@~"),
    ],
)
def test_a_server_or_an_instance_stands_before_a_tool(word: str, server: str, tool: str) -> None:
    assert split_off(word) == (server, tool)


@pytest.mark.parametrize(
    ("word", "server", "uri"),
    [
        ("file:///a/b", "", "file:///a/b"),
        ("fs/file:///a/b", "fs", "file:///a/b"),
        ("fs/notes", "fs", "notes"),
        ("urn:a:b", "", "urn:a:b"),
        ("mcpd://fs/x", "", "mcpd://fs/x"),
        ("notes", "", "notes"),
        ("fs/", "", "fs/"),
        ("fs#3/file:///a/b", "fs#3", "file:///a/b"),
        ("fs@~/src/app/file:///a/b", "fs@~/src/app", "file:///a/b"),
        ("fs@~/src/app/notes", "fs@~", "src/app/notes"),
    ],
)
def test_a_server_or_an_instance_may_stand_before_a_uri(word: str, server: str, uri: str) -> None:
    assert split_off_uri(word) == (server, uri)
