"""Asking before something is changed, and saying why nothing was."""

from __future__ import annotations

import io

import pytest

from daemon.cli import EX_CONFIG
from daemon.cli.command import agreed, has_terminal
from daemon.cli.control import EX_FAULT, guarded
from daemon.documents.files import DocumentError
from daemon.errors import ConfigError, Fault, McpdError
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


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (DocumentError("a\x1bb is read-only"), EX_FAULT, "mcpd: a\\x1bb is read-only\n"),
        (ConfigError("a.json", [Fault(path="$", message="no object")]), EX_CONFIG,
            "mcpd: nothing was changed: `mcpd check`\n"),
    ],
)  # fmt: skip
def test_what_keeps_a_command_from_changing_files_is_said(
    capsys: pytest.CaptureFixture[str], error: McpdError, status: int, told: str
) -> None:
    def fail() -> int:
        raise error

    assert guarded(fail, ": `mcpd check`") == status
    assert capsys.readouterr().err.endswith(told)
    assert guarded(lambda: 0) == 0
