"""`mcpd completions`; what the scripts do is seen by tests/process/cli/test_completing.py."""

from __future__ import annotations

import pytest

from daemon.cli import implementation
from daemon.cli.completing import SHELLS

main = implementation("completions").main


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_mcpds(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([shell]) == 0
    said = capsys.readouterr().out
    assert "mcpd" in said
    assert "_ARGCOMPLETE" in said
