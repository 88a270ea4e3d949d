"""`mcpd metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.cli import implementation
from daemon.counting.readings import OFF

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("metrics").main

TEXT = '# HELP mcpd_servers Servers.\n# TYPE mcpd_servers gauge\nmcpd_servers 3.0\nx{a="é"} 1\n'


def test_the_text_is_printed_as_it_is(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"metrics": {"text": TEXT}})
    assert main([]) == 0
    assert capsys.readouterr().out == TEXT
    assert daemon.asked == [("metrics", {})]


def test_what_could_move_the_cursor_is_spelt_out(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"metrics": {"text": 'x{a="\x1b[2J"} 1\n'}})
    assert main([]) == 0
    assert capsys.readouterr().out == 'x{a="\\x1b[2J"} 1\n'


def test_metrics_that_are_off_are_one_with_the_line_for_the_configuration(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    control({"metrics": {"error": {"code": -32602, "message": OFF}}})
    assert main([]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert '"metrics": {"enabled": true}' in told.err


@pytest.mark.parametrize("argv", [["extra"], ["--timeout", "0"], ["--json"]])
def test_a_wrong_command_line_is_two(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage: mcpd metrics" in capsys.readouterr().err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "mcpd metrics | grep mcpd_server_state" in capsys.readouterr().out
