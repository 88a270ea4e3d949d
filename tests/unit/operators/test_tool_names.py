"""What operators may call a tool."""

from __future__ import annotations

import pytest

from daemon.errors import InvalidArguments, UnknownTool
from daemon.operators.tool_reports import tool_named, tools_like
from tests.fakes_upstream import Stage


def stage() -> Stage:
    made = Stage()
    made.lists("alpha", "echo", "only_here", "with/slash")
    return made


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("only_here", ("alpha", "only_here")),
        ("with/slash", ("alpha", "with/slash")),
        ("alpha/echo", ("alpha", "echo")),
        ("mcp__alpha__echo", ("alpha", "echo")),
        ("mcp__mcpd__beta__echo", ("beta", "echo")),
        ("beta__echo", ("beta", "echo")),
        ("mcp__mcpd__only_here", ("alpha", "only_here")),
    ],
)
def test_a_tool_is_meant_in_every_spelling(name: str, key: tuple[str, str]) -> None:
    assert tool_named(stage().catalog.value, name) == key


def test_a_name_of_several_servers_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        InvalidArguments, match="2 servers have a tool 'echo': write one of alpha/echo, beta/echo"
    ):
        tool_named(stage().catalog.value, "echo")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("onlyhere", "Did you mean alpha/only_here"), ("zzzzzzzzzz", "`mcpd tools` lists them")],
)
def test_an_unknown_name_is_answered_with_the_closest_as_it_is_typed(name: str, hint: str) -> None:
    with pytest.raises(UnknownTool, match=hint):
        tool_named(stage().catalog.value, name)


def test_the_tools_of_a_server_are_named_as_they_are_typed() -> None:
    assert tools_like("git", ["log", "show"], "lgo") == "Did you mean git/log? There are: git/log, git/show."
