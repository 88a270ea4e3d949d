"""Categories and their tools for people."""

from __future__ import annotations

from typing import Any

from daemon.cli.terminal import UNBOUNDED, Screen
from daemon.cli.tools_view import render
from tests.cli.test_tools import tool

NARROW = Screen(width=80, colour=False)


def category(tools: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {"description": "Versions of files", "servers": ["git"], "tools": tools, **changed}


def test_a_category_is_a_heading_and_its_tools() -> None:
    text = render(
        {"history": category({"git_log": tool(), "git_show": tool(description="Shows\n one  commit")})}, NARROW
    )
    assert text.splitlines()[:2] == ["history (from git), 2 tools", "  Versions of files"]
    assert text.splitlines()[2].split() == ["git_log", "Shows", "it"]
    assert "Shows one commit" in text


def test_a_category_that_is_a_server_does_not_say_so_twice() -> None:
    assert render({"git": category({})}, NARROW).startswith("git, 0 tools\n")


def test_what_cannot_be_called_is_marked_with_the_reason() -> None:
    tools = {
        "off": tool(enabled=False, available=False),
        "gone": tool(listed=False, available=False),
        "down": tool(available=False),
    }
    lines = [" ".join(line.split()) for line in render({"c": category(tools)}, NARROW).splitlines()]
    assert "off [disabled] Shows it" in lines
    assert "gone [not offered by git] Shows it" in lines
    assert "down [unavailable: git is down] Shows it" in lines


def test_a_long_description_is_cut_on_a_narrow_screen_and_whole_in_a_pipe() -> None:
    tools = {"git_log": tool(description="word " * 100)}
    narrow = render({"c": category(tools)}, NARROW)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" in narrow
    assert "  git_log word word" in narrow
    assert ("word " * 100).strip() in render({"c": category(tools)}, Screen(UNBOUNDED, colour=False))


def test_a_name_is_never_cut() -> None:
    name = "n" * 128
    text = render({"c": category({name: tool(description="word " * 100)})}, NARROW)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("n" * 40) == 3


def test_nothing_that_a_server_says_reaches_the_terminal_unescaped() -> None:
    attack = "\x1b[2J\u202e[red]"
    text = render(
        {attack: category({attack: tool(description=attack, server=attack, listed=False)}, description=attack)},
        Screen(UNBOUNDED, colour=False),
    )
    assert text.replace("\n", "").isprintable()
    assert text.count("\\x1b[2J\\u202e[red]") == 5


def test_nothing_configured_is_said() -> None:
    assert "no server is configured" in render({}, NARROW)
