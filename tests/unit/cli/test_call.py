"""`mcpd call`: arguments in three spellings, results as text or data, and exit statuses."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation
from daemon.cli.command import UsageError
from daemon.cli.use import parse_arguments
from tests.unit.cli.daemons import asked_for

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("call").main

OK: dict[str, Any] = {"content": [{"type": "text", "text": "12:00\n\x1b[31m"}]}
BAD: dict[str, Any] = {
    "content": [{"type": "text", "text": "UnknownTool: no such tool"}],
    "isError": True,
    "structuredContent": {"error": {"code": "UnknownTool"}},
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], {}),
        (['{"a": [1, null]}'], {"a": [1, None]}),
        ([' {"a": "b=c"}'], {"a": "b=c"}),
        (["path=/tmp", "n=3", "on=true", "none=null"], {"path": "/tmp", "n": 3, "on": True, "none": None}),
        (['tags=["a"]', 'id="3"', "q=a=b", "empty="], {"tags": ["a"], "id": "3", "q": "a=b", "empty": ""}),
        (["x=NaN", "y=-Infinity", "z={"], {"x": "NaN", "y": "-Infinity", "z": "{"}),
    ],
)
def test_arguments_can_be_spelt_as_json_or_as_pairs(words: list[str], arguments: dict[str, Any]) -> None:
    assert parse_arguments(words) == arguments


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["word"], "'word' is neither KEY=VALUE"),
        (["=3"], "'=3' is neither KEY=VALUE"),
        (["a=1", "{}"], "'{}' is neither"),
        (["a=1", "a=2"], "'a' is given twice"),
        (["{"], "the argument is not JSON"),
        (['{"a": NaN}'], "NaN is not JSON"),
    ],
)
def test_what_spells_no_arguments_is_refused(words: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        parse_arguments(words)


def test_arguments_can_come_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"a": 1}'))
    assert parse_arguments(["-"]) == {"a": 1}
    monkeypatch.setattr("sys.stdin", io.StringIO("[1]"))
    with pytest.raises(UsageError, match="stdin is not a JSON object"):
        parse_arguments(["-"])


def test_a_result_is_printed_as_it_is(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"call": OK})
    assert main(["time/now", "tz=UTC"]) == 0
    assert capsys.readouterr() == ("12:00\n\x1b[31m\n", "")
    asked = {"server": "time", "tool": "now", "arguments": {"tz": "UTC"}, "progress": True}
    assert asked_for(daemon.asked) == [("call", asked)]


def test_a_terminal_gets_it_escaped(
    control: Controls, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    control({"call": OK})
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["time/now"]) == 0
    assert capsys.readouterr().out == "12:00\n\\x1b[31m\n"


def test_an_error_goes_to_stderr_and_is_one(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"call": BAD})
    assert main(["time/nwo"]) == 1
    assert capsys.readouterr() == ("", "UnknownTool: no such tool\n")


@pytest.mark.parametrize(("result", "code"), [(OK, 0), (BAD, 1)])
def test_json_is_the_whole_result(
    control: Controls, capsys: pytest.CaptureFixture[str], result: dict[str, Any], code: int
) -> None:
    control({"call": result})
    assert main(["time/now", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == result


@pytest.mark.parametrize("name", ["git_log", "mcp__git__git_log"])
def test_another_spelling_of_a_tool_is_looked_up_and_reported(
    control: Controls, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    daemon = control({"tool": {"server": "git", "tool": "git_log"}, "call": OK})
    assert main([name]) == 0
    assert daemon.asked[0] == ("tool", {"tool": name})
    assert (daemon.asked[1][1]["server"], daemon.asked[1][1]["tool"]) == ("git", "git_log")
    assert capsys.readouterr().err == f"mcpd: {name} is git/git_log\n"


def test_an_option_may_stand_between_the_tool_and_its_arguments(control: Controls) -> None:
    daemon = control({"call": OK})
    assert main(["weather/radar", "--json", "place=Bonn"]) == 0
    assert daemon.asked[0][1]["arguments"] == {"place": "Bonn"}


def test_the_tools_name_may_have_slashes(control: Controls) -> None:
    daemon = control({"call": OK})
    assert main(["a/b/c"]) == 0
    assert daemon.asked[0][1]["tool"] == "b/c"
