"""Asking before something is changed."""

from __future__ import annotations

import io

import pytest

from daemon.cli.consent import agreed, has_terminal
from tests.unit.cli.users import Terminal


@pytest.mark.parametrize(
    ("typed", "agrees"),
    [("\n", True), ("Y\n", True), ("yes\n", True), ("n\n", False), ("what\n", False), ("", False)],
)
def test_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch, typed: str, agrees: bool) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert has_terminal()
    assert agreed("Really?", yes=False) is agrees


@pytest.mark.parametrize("stdin", [None, io.StringIO("y\n")])
def test_without_a_terminal_nobody_agrees_unless_the_command_line_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stdin: io.StringIO | None
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    assert not agreed("Really?", yes=False)
    assert "--yes agrees" in capsys.readouterr().err
    assert agreed("Really?", yes=True)
    assert capsys.readouterr() == ("", "")
