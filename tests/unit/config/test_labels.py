"""Names of instances, and what stands before and after them on a command line."""

import pytest

from daemon.config.labels import server_of, split_off, split_off_uri
from tests.unit.cases import cases


@pytest.mark.parametrize("name", ["fs", "fs#12", "fs@", "fs@~/src/app", "fs@/srv/a#b@c", "fs#0.2"])
def test_what_a_name_is_of_stands_before_the_first_mark(name: str) -> None:
    assert server_of(name) == "fs"


@cases("word", "server", "tool")
def test_a_server_or_an_instance_stands_before_a_tool(word: str, server: str, tool: str) -> None:
    assert split_off(word) == (server, tool)


@cases("word", "server", "uri")
def test_a_server_or_an_instance_may_stand_before_a_uri(word: str, server: str, uri: str) -> None:
    assert split_off_uri(word) == (server, uri)
