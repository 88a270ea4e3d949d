"""`mcpd describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.cli import implementation

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("describe").main

PLACES = [{"file": "/m.json", "place": "$.categories.git.tools"}]


@pytest.mark.parametrize(
    ("argv", "text", "already", "said"),
    [
        (["git/log", "Commits."], "Commits.", False, "git/log has that description now"),
        (["git/log", "--reset"], None, True, "git/log has its server's own description already"),
    ],
)
def test_it_is_said_what_was_written_where(
    control: Controls,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    text: str | None,
    already: bool,
    said: str,
) -> None:
    answer = {"tool": "git/log", "description": text, "places": PLACES, "already": already}
    daemon = control({"describe": answer})
    assert main(argv) == 0
    assert daemon.asked == [("describe", {"tool": "git/log", "text": text})]
    assert capsys.readouterr().out.splitlines() == [said, "  $.categories.git.tools in /m.json"]


@pytest.mark.parametrize("argv", [["git/log"], ["git/log", "Commits.", "--reset"]])
def test_either_a_text_or_a_reset_is_wanted(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2


def test_a_faulty_configuration_is_told_by_the_exit_status(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    error = {"code": -32603, "message": "mcpd.json: $.lazzy: no such key", "data": {"faults": []}}
    control({"describe": {"error": error}})
    assert main(["git/log", "--reset"]) == 78
    assert "nothing was changed" in capsys.readouterr().err
