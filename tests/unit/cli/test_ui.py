"""`mcpd ui`: a browser is opened, or the link is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.cli import implementation

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("ui").main

LINK = "http://127.0.0.1:7337/ui/enter?once=s3cret"


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(each, raising=False)


@pytest.mark.parametrize("argv", [["--print"], []])
def test_the_link_is_printed_alone_where_it_is_wanted_or_no_display_is(
    control: Controls, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    daemon = control({"ui": {"link": LINK}})
    assert main(argv) == 0
    told = capsys.readouterr()
    assert told.out == f"{LINK}\n"
    assert "valid for a minute" in told.err
    assert ("no display" in told.err) is not bool(argv)
    assert daemon.asked == [("ui", {"readOnly": False, "end": False})]


def test_all_sessions_are_ended(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"ui": {"ended": 2}})
    assert main(["--end"]) == 0
    assert capsys.readouterr().out == "ended 2 sessions of the console\n"
    assert daemon.asked == [("ui", {"readOnly": False, "end": True})]


def test_a_console_that_is_off_is_one(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"ui": {"error": {"code": -32602, "message": "the configuration switches the console off"}}})
    assert main([]) == 1
    assert "switches the console off" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["extra"], ["--end", "--print"], ["--json"]])
def test_a_wrong_command_line_is_two(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage: mcpd ui" in capsys.readouterr().err
