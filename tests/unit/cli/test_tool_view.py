"""One tool as a person reads it, and the command line that calls it."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from daemon.cli.definition_views import example_call, render_tool
from daemon.cli.terminal import Screen
from daemon.cli.use import parse_arguments

SCREEN = Screen(width=100, colour=False)


def answer(**changed: Any) -> Any:
    definition = {
        "name": "log", "title": "Git log", "description": "Shows commits.\n\nNewest first.\x1b[2J",
        "inputSchema": {"type": "object", "properties": {"max": {"type": "integer", "default": 10,
        "description": "How many"}, "path": {"type": "string"}}, "required": ["path"]},
        "annotations": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False},
    }  # fmt: skip
    known: Any = {
        "server": "git", "tool": "log", "categories": ["git"], "enabled": True, "available": True,
        "state": "ready", "reason": "", "definition": definition, "changed": None,
        "example": {"path": "it's"},
    }  # fmt: skip
    return {**known, **changed}


def test_a_tool_is_told_with_its_arguments_effects_and_an_example() -> None:
    assert render_tool(answer(), SCREEN).splitlines() == [
        "git/log  Git log",
        "",
        "  Shows commits.",
        "",
        "  Newest first.\\x1b[2J",
        "",
        "  Its server says: only reads, stays within its server's own data.",
        "",
        "arguments",
        "  path  text (required)",
        "  max   whole number; default 10",
        "        How many",
        "",
        "example",
        """  mcpd call git/log '{"path": "it'"'"'s"}'""",
    ]


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"readOnlyHint": False, "destructiveHint": True}, "changes things, may destroy or overwrite."),
        ({"idempotentHint": True}, "the same call again changes nothing more."),
        ({"openWorldHint": True}, "reaches the world beyond its server."),
        ({"readOnlyHint": "yes"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_annotations_are_what_a_server_says(annotations: object, said: str | None) -> None:
    shown = render_tool(answer(definition={"annotations": annotations}), SCREEN)
    assert (f"Its server says: {said}" in shown) if said else ("Its server says" not in shown)


def test_what_cannot_be_called_is_marked() -> None:
    assert "[disabled]" in render_tool(answer(enabled=False), SCREEN)
    assert "[unavailable: git is backoff]" in render_tool(answer(available=False, state="backoff"), SCREEN)


def test_a_tool_without_arguments_or_example_says_so() -> None:
    shown = render_tool(answer(definition={"inputSchema": {"type": "object"}}, example=None), SCREEN)
    assert "It takes no arguments." in shown
    assert "No example" in shown


@pytest.mark.parametrize(
    "example", [{}, {"a": "it's $HOME `x`"}, {"é": ["\u202e", "\n"]}, {"n": 1.5, "o": {"p": None}}]
)
def test_an_example_call_means_what_it_shows(example: Any) -> None:
    program, command, name, *words = shlex.split(example_call(answer(example=example)))
    assert (program, command, name) == ("mcpd", "call", "git/log")
    assert json.loads(json.dumps(parse_arguments(words))) == example


def test_an_example_call_moves_no_cursor() -> None:
    assert example_call(answer(example={"a": "\x1b\u202e"})).isprintable()
    assert example_call(answer(tool="a b\x1b")).startswith("mcpd call 'git/a b\\x1b' ")
