"""`mcpd unload`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.cli import implementation

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("unload").main


@pytest.mark.parametrize(
    ("argv", "tool", "unloaded", "note", "said"),
    [
        (["4", "git/log"], "git/log", ["git/log"], "", "session #4: git/log is not loaded any more\n"),
        (["4"], None, ["git/\x1bx"], "", "session #4: git/\\x1bx is not loaded any more\n"),
        (["4"], None, [], "it is back", "session #4 has loaded no tools\nit is back\n"),
    ],
)
def test_it_is_said_what_has_left_the_session(
    control: Controls,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    tool: str | None,
    unloaded: list[str],
    note: str,
    said: str,
) -> None:
    daemon = control({"unload": {"session": "#4", "unloaded": unloaded, "note": note}})
    assert main(argv) == 0
    assert daemon.asked == [("unload", {"session": "4", "tool": tool})]
    assert capsys.readouterr().out == said
