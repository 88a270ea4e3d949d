"""`mcpd tools`: one question, shown as data, as a table or as a model sees it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation
from daemon.cli.tools import surface_text

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("tools").main


def tool(**changed: Any) -> dict[str, Any]:
    known = {
        "server": "git", "tool": "git_log", "description": "Shows it", "enabled": True, "listed": True,
        "available": True,
    }  # fmt: skip
    return {**known, "schemaHash": "ab", **changed}


META = {
    "name": "get-category-tools",
    "description": "Categories:\n- history",
    "inputSchema": {"type": "object"},
}
ANSWER: dict[str, Any] = {
    "categories": {
        "history": {"description": "Versions", "servers": ["git"], "tools": {"git_log": tool()}},
        "files": {"description": "", "servers": ["fs"], "tools": {"read": tool(server="fs", tool="read")}},
    },
    "surface": {"name": "category", "instructions": "Ask first.", "tools": [META]},
}


def test_json_is_the_daemons_answer(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"tools": ANSWER})
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ANSWER
    assert daemon.asked == [("tools", {})]


def test_one_category_can_be_asked_for(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"tools": ANSWER})
    assert main(["--category", "history", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["categories"]) == {"history"}
    assert main(["--category", "history"]) == 0
    shown = capsys.readouterr().out
    assert "git/git_log" in shown
    assert "read" not in shown


@pytest.mark.parametrize(
    ("word", "hint"), [("histroy", "did you mean 'history'?"), ("zzz", "known are history, files")]
)
def test_an_unknown_category_is_one_and_names_the_closest(
    control: Controls, capsys: pytest.CaptureFixture[str], word: str, hint: str
) -> None:
    control({"tools": ANSWER})
    assert main(["--category", word]) == 1
    assert capsys.readouterr().err == f"mcpd: no category is named '{word}': {hint}\n"


SERVER: dict[str, Any] = {
    "server": "git", "state": "ready", "reason": "", "known": True, "isCategory": False,
    "tools": {"git_log": {"description": "Shows commits. And more.", "enabled": True, "available": True},
    "git_push": {"description": "Sends them.", "enabled": False, "available": False}},
    "quarantined": {"bad\x1b": "its schema is none"},
}  # fmt: skip


def test_the_tools_of_a_server_are_named_as_they_are_typed(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = control({"tools": SERVER})
    assert main(["git"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "git, ready, 2 tools",
        "git/git_log Shows commits.",
        "git/git_push [disabled] Sends them.",
        "git/bad\\x1b is not offered: its schema is none",
        "",
        "What one takes: mcpd tools git/git_log",
    ]
    assert daemon.asked == [("tools", {"server": "git"})]
    assert main(["git", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == SERVER


def test_a_server_that_has_listed_nothing_says_where_to_look(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    control({"tools": {**SERVER, "known": False, "tools": {}, "reason": "it crashed", "state": "backoff"}})
    assert main(["git"]) == 0
    shown = capsys.readouterr().out
    assert "it crashed" in shown
    assert "`mcpd status git` says why" in shown


def test_a_category_of_a_servers_name_is_said(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"tools": {**SERVER, "isCategory": True}})
    assert main(["git"]) == 0
    assert "mcpd tools --category git" in capsys.readouterr().err


def test_the_surface_is_what_a_model_sees(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"tools": ANSWER})
    assert main(["--surface"]) == 0
    shown = capsys.readouterr().out
    cost = len(json.dumps(META, separators=(",", ":")))
    assert shown.startswith("instructions  10 bytes, about 2 tokens (estimate: 4 bytes each)\n  Ask first.\n")
    assert f"\nget-category-tools  {cost} bytes, about {cost // 4} tokens (estimate" in shown
    assert "\n  Categories:\n  - history\n" in shown
    assert f"surface 'category': 1 tool and the instructions, {cost + 10} bytes" in shown
    assert main(["--surface", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ANSWER["surface"]


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--surface", "search"], {"surface": "search"}),
        (["--surface=load", "--profile", "p"], {"surface": "load", "profile": "p"}),
        (["--profile", "p"], {"profile": "p"}),
        (["--surface"], {}),
    ],
)
def test_any_surface_and_profile_can_be_looked_at(
    control: Controls, capsys: pytest.CaptureFixture[str], words: list[str], asked: dict[str, str]
) -> None:
    daemon = control({"tools": ANSWER})
    assert main(words) == 0
    assert daemon.asked == [("tools", asked)]


def test_costs_are_bytes_of_utf8_and_add_up() -> None:
    tools = [{"name": "ä"}, {"name": "b", "description": "\x1b[2J"}]
    text = surface_text({"name": "full", "instructions": "", "tools": tools})
    assert "ä  13 bytes, about 3 tokens" in text
    assert "(no description)" in text
    assert "\\x1b[2J" in text
    assert "surface 'full': 2 tools and the instructions, 51 bytes, about 12 tokens" in text


ONE: dict[str, Any] = {
    "server": "git", "tool": "git_log", "categories": ["history"], "enabled": True, "available": True,
    "state": "ready", "reason": "", "changed": None, "definition": {"name": "git_log",
    "inputSchema": {"type": "object"}}, "example": {},
}  # fmt: skip


def test_one_tool_can_be_asked_for(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"tool": ONE})
    assert main(["git/git_log", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ONE
    assert main(["git/git_log"]) == 0
    assert "example\n  mcpd call git/git_log\n" in capsys.readouterr().out
    assert daemon.asked == [("tool", {"server": "git", "tool": "git_log"})] * 2


def test_a_category_whose_name_has_a_slash_is_found(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = {"error": {"code": -32602, "message": "no server is named 'in'"}}
    known = {"in/out": ANSWER["categories"]["files"]}
    control({"tool": refused, "tools": {**ANSWER, "categories": known}})
    assert main(["in/out"]) == 0
    assert "read" in capsys.readouterr().out
    assert main(["in/side"]) == 1
    assert capsys.readouterr().err == "mcpd: no server is named 'in'\n"


def test_a_surface_is_told_as_a_text_for_models_without_a_list_of_tools(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = {"type": "object"}
    log = {"name": "log", "description": "Shows commits.", "inputSchema": schema}
    tools = [log, {"name": "b", "inputSchema": {}}]
    surface = {"name": "full", "instructions": "", "tools": tools}
    control({"tools": {"categories": {}, "surface": surface}})
    assert main(["--surface", "full", "--format", "text"]) == 0
    assert capsys.readouterr().out == (
        '## log\nShows commits.\nArguments (JSON Schema): {"type":"object"}\n\n'
        "## b\n\nArguments (JSON Schema): {}\n"
    )
    with pytest.raises(SystemExit):
        main(["--format", "text"])
