"""`mcpd token`, with a daemon that answers and without one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli.about import TOKEN

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Controls

main = TOKEN.main

Capture = pytest.CaptureFixture[str]

ONE = {
    "profiles": None,
    "console": None,
    "workspaces": None,
    "from": "mcpd",
    "since": 0.0,
    "counts": True,
    "lastUsed": None,
}
ANSWER: dict[str, Any] = {"http": "127.0.0.1:7337", "value": None, "tokens": [], "problem": ""}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], {"action": "show"}),
        (
            ["new", "ci", "--profile", "a", "--profile", "b", "--console", "read", "--workspace", "/a/*"],
            {
                "action": "new",
                "name": "ci",
                "profiles": ["a", "b"],
                "console": "read",
                "workspaces": ["/a/*"],
            },
        ),
    ],
)
def test_the_value_stands_alone_on_the_last_line(
    control: Controls, capsys: Capture, words: list[str], asked: dict[str, Any]
) -> None:
    daemon = control({"tokens": {**ANSWER, "value": "mcpd_5"}})
    assert main(words) == 0
    assert daemon.asked == [("tokens", asked)]
    shown = capsys.readouterr()
    assert shown.out == "mcpd_5\n"
    assert ("not shown again" in shown.err) is bool(words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["confirm", "ci"], "ci: lets its clients in again"),
        (["confirm", "--default"], "(no name): lets its clients in again"),
        (["revoke", "ci"], "ci: revoked"),
        (["revoke", "--default"], "`mcpd token` shows the new one"),
    ],
)
def test_what_was_done_is_said(control: Controls, capsys: Capture, words: list[str], said: str) -> None:
    control({"tokens": ANSWER})
    assert main(words) == 0
    assert said in capsys.readouterr().out


def test_the_list_says_of_each_whether_it_counts(control: Controls, capsys: Capture) -> None:
    told = [
        {**ONE, "name": None, "counts": False},
        {**ONE, "name": "ci", "profiles": ["a", "b"], "console": "read", "lastUsed": 60.0},
        {**ONE, "name": "old", "workspaces": ["/a/*", "~/b"], "from": "configuration", "since": None},
    ]
    control({"tokens": {**ANSWER, "tokens": told}})
    assert main(["list"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("(no name): all profiles; made ")
    assert first.endswith("COUNTS NOT until `mcpd token confirm --default`")
    assert second.startswith("ci: a, b; the console, to read; made ")
    assert "last used" in second
    assert third == "old: all profiles; workspaces /a/*, ~/b; configured"
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tokens": told, "problem": ""}


def test_a_file_that_cannot_be_used_is_told(control: Controls, capsys: Capture) -> None:
    control({"tokens": {**ANSWER, "problem": "it is damaged"}})
    assert main(["list"]) == 1
    shown = capsys.readouterr()
    assert ("There are none" in shown.out, "it is damaged" in shown.err) == (True, True)


def test_without_a_daemon_the_way_to_one_is_said(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCPD_CONTROL", str(tmp_path / "none.sock"))
    assert main([]) == 3
    assert "mcpd start" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["new"],
        ["revoke"],
        ["confirm"],
        ["revoke", "ci", "--default"],
        ["show", "ci"],
        ["list", "ci"],
        ["list", "--profile", "a"],
        ["revoke", "ci", "--console", "read"],
        ["revoke", "ci", "--workspace", "/a"],
        ["new", "ci", "--default"],
        ["show", "--json"],
    ],
)
def test_wrong_usage_is_told(capsys: Capture, words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert "usage: mcpd token" in capsys.readouterr().err
