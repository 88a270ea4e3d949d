"""`mcpd search`: a need in, tools out, best first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("search").main

FOUND: dict[str, Any] = {
    "tools": [
        {"name": "git_log", "server": "git", "category": "git", "score": 7.25, "description": "Shows commits."},
        {"name": "read", "server": "fs", "category": "files", "score": 1.0, "description": "Reads\x1b[2J."},
    ],
    "total": 9,
    "suggestions": [],
}
NOTHING: dict[str, Any] = {"tools": [], "total": 0, "suggestions": ["git_log"]}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["read", "a", "file"], {"queries": ["read a file"], "limit": 20}),
        (["x", "--or", "y z", "--or", "w"], {"queries": ["x", "y z", "w"], "limit": 20}),
        (
            ["what", "changed", "--or", "commit", "history"],
            {"queries": ["what changed", "commit history"], "limit": 20},
        ),
        (["--or", "y"], {"queries": ["y"], "limit": 20}),
        (
            ["x", "--category", "c", "--limit", "3", "--profile", "p"],
            {"queries": ["x"], "limit": 3, "category": "c", "profile": "p"},
        ),
    ],
)
def test_the_daemon_is_asked_for_what_was_written(
    control: Controls, words: list[str], asked: dict[str, object]
) -> None:
    daemon = control({"search": FOUND})
    assert main(words) == 0
    assert daemon.asked == [("search", asked)]


def test_tools_are_shown_best_first_with_scores_and_the_rest_is_counted(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    control({"search": FOUND})
    assert main(["x"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["7.2", "git/git_log", "Shows", "commits."]
    assert lines[2].split()[:3] == ["1.0", "fs/read", "[files]"]
    assert "\\x1b[2J" in lines[2]
    assert lines[3] == "7 more fit: see them with --limit 9"


def test_json_is_the_daemons_answer(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"search": FOUND})
    assert main(["x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == FOUND


def test_nothing_found_is_one_and_says_what_may_have_been_meant(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    control({"search": NOTHING})
    assert main(["git", "lgo"]) == 1
    assert capsys.readouterr().err == "mcpd: no tool fits 'git lgo'. Did you mean: git_log?\n"


def test_nothing_found_and_nothing_close_says_where_to_look(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    control({"search": {**NOTHING, "suggestions": []}})
    assert main(["zzz", "--or", "yyy"]) == 1
    assert capsys.readouterr().err == "mcpd: no tool fits 'zzz or yyy'. `mcpd tools` shows all of them.\n"
    assert main(["zzz", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["tools"] == []


@pytest.mark.parametrize(
    "words", [[], [""], ["  "], ["x", "--limit", "0"], ["x", "--limit", "-1"], ["x", "--limit", "many"]]
)
def test_a_search_for_nothing_is_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "mcpd search" in capsys.readouterr().err
