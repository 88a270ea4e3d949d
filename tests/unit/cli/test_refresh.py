"""`mcpd refresh`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation
from daemon.cli.servers import refreshed

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("refresh").main

SAME: dict[str, Any] = {
    "state": "ready",
    "epoch": 3,
    "tools": 12,
    "came": [],
    "went": [],
    "changed": [],
    "renamed": {},
    "lists": {},
    "problem": "",
}
NEWS = {
    **SAME,
    "came": ["new", "fresh"],
    "went": ["old", "gone"],
    "changed": ["log"],
    "renamed": {"old": "new"},
    "lists": {"prompts": {"came": ["review"], "went": [], "changed": ["plan"]}},
}


def test_one_server_is_asked_for(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"refresh": {"servers": {"git": SAME}}})
    assert main(["git"]) == 0
    assert capsys.readouterr().out == "git: epoch 3, 12 tools; as before\n"
    assert daemon.asked == [("refresh", {"server": "git"})]


def test_all_are_asked_for_without_a_name_and_one_failure_is_one(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {**SAME, "problem": "no answer to tools/list"}
    daemon = control({"refresh": {"servers": {"git": SAME, "web": failed}}})
    assert main([]) == 1
    assert capsys.readouterr().out == "git: epoch 3, 12 tools; as before\nweb: no answer to tools/list\n"
    assert daemon.asked == [("refresh", {"server": None})]


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ({}, "no server is up"),
        (
            {"git": NEWS},
            (
                "git: epoch 3, 12 tools; came: fresh; went: gone; changed: log; renamed: old to new;"
                " prompts that came: review; prompts that changed: plan"
            ),
        ),
        ({"git": {"problem": "server \x1bgit was removed"}}, "git: server \\x1bgit was removed"),
    ],
)
def test_the_words_say_what_is_other(servers: dict[str, Any], words: str) -> None:
    assert refreshed({"servers": servers}) == words
