"""`mcpd tools`: one question, shown as data, as a table or as a model sees it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli.tools import main, surface_text

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls


def tool(**changed: Any) -> dict[str, Any]:
    known = {"server": "git", "description": "Shows it", "enabled": True, "listed": True, "available": True}
    return {**known, "schemaHash": "ab", **changed}


META = {
    "name": "get-category-tools",
    "description": "Categories:\n- history",
    "inputSchema": {"type": "object"},
}
ANSWER: dict[str, Any] = {
    "categories": {
        "history": {"description": "Versions", "servers": ["git"], "tools": {"git_log": tool()}},
        "files": {"description": "", "servers": ["fs"], "tools": {"read": tool(server="fs")}},
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
    assert main(["history", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["categories"]) == {"history"}
    assert main(["history"]) == 0
    shown = capsys.readouterr().out
    assert "git_log" in shown
    assert "read" not in shown


@pytest.mark.parametrize(
    ("word", "hint"), [("histroy", "did you mean 'history'?"), ("zzz", "known are history, files")]
)
def test_an_unknown_category_is_one_and_names_the_closest(
    control: Controls, capsys: pytest.CaptureFixture[str], word: str, hint: str
) -> None:
    control({"tools": ANSWER})
    assert main([word]) == 1
    assert capsys.readouterr().err == f"mcpd: no category is named '{word}': {hint}\n"


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
    "server": "git",
    "tool": "git_log",
    "categories": ["history"],
    "enabled": True,
    "available": True,
    "state": "ready",
    "reason": "",
    "definition": {"name": "git_log", "inputSchema": {"type": "object"}},
    "example": {},
}


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
