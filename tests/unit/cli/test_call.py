"""`mcpd call`: arguments in three spellings, results as text or data, and exit statuses."""

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import implementation
from daemon.cli.asking.companion import LINE_SECONDS, REDRAW_SECONDS, Progress
from daemon.cli.command import UsageError
from daemon.cli.control import CommandFailed, DaemonSilent, DaemonUnreachable, explained
from daemon.cli.use import Part, messages, parse_arguments, parse_texts, parts_of, show_parts
from tests.printing import err_of, out_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured, Controls
from tests.unit.cli.daemons import SILENCE, asked_for, server

main = implementation("call").main

OK: dict[str, Any] = {"content": [{"type": "text", "text": "12:00\n\x1b[31m"}]}
BAD: dict[str, Any] = {
    "content": [{"type": "text", "text": "UnknownTool: no such tool"}],
    "isError": True,
    "structuredContent": {"error": {"code": "UnknownTool"}},
}


@cases("words", "arguments")
def test_arguments_can_be_spelt_as_json_or_as_pairs(words: list[str], arguments: dict[str, Any]) -> None:
    assert parse_arguments(words) == arguments


@cases("words", "text")
def test_what_spells_no_arguments_is_refused(words: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        parse_arguments(words)


def test_arguments_can_come_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"a": 1}'))
    assert parse_arguments(["-"]) == {"a": 1}
    monkeypatch.setattr("sys.stdin", io.StringIO("[1]"))
    with pytest.raises(UsageError, match="stdin is not a JSON object"):
        parse_arguments(["-"])


def test_a_result_is_printed_as_it_is_and_escaped_at_a_terminal(
    control: Controls, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = control({"call": OK})
    assert main(["time/now", "tz=UTC"]) == 0
    assert capsys.readouterr() == ("12:00\n\x1b[31m\n", "")
    asked = {"server": "time", "tool": "now", "arguments": {"tz": "UTC"}, "progress": True}
    assert asked_for(daemon.asked) == [("tool", {"server": "time", "tool": "now"}), ("call", asked)]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert out_of(capsys, main(["time/now"])) == "12:00\n\\x1b[31m\n"


def test_an_error_goes_to_stderr_and_sets_the_status_and_json_is_the_whole_result(
    control: Controls, capsys: Captured
) -> None:
    daemon = control({"call": BAD})
    assert main(["time/nwo"]) == 66
    assert capsys.readouterr() == ("", "UnknownTool: no such tool\n")
    for result, status in ((OK, 0), (BAD, 66)):
        daemon.answers["call"] = result
        assert json.loads(out_of(capsys, main(["time/now", "--json"]), status)) == result


@pytest.mark.parametrize("name", ["git_log", "mcp__git__git_log"])
def test_another_spelling_of_a_tool_is_looked_up_and_reported(
    control: Controls, capsys: Captured, name: str
) -> None:
    daemon = control({"tool": {"server": "git", "tool": "git_log"}, "call": OK})
    assert main([name]) == 0
    assert asked_for(daemon.asked)[0] == ("tool", {"tool": name})
    assert (daemon.asked[1][1]["server"], daemon.asked[1][1]["tool"]) == ("git", "git_log")
    assert capsys.readouterr().err == f"mcpd: {name} is git/git_log\n"


NEEDS: dict[str, Any] = {
    "definition": {"inputSchema": {"properties": {"tz": {"type": "string"}}, "required": ["tz", "at\x1b"]}}
}


@pytest.mark.parametrize(
    ("words", "lacking"), [((), "tz, at\\x1b"), (("tz=UTC",), "at\\x1b"), (("-",), "at\\x1b")]
)
def test_missing_arguments_are_named_before_anything_is_sent(
    control: Controls,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    lacking: str,
) -> None:
    daemon = control({"tool": NEEDS, "call": OK})
    monkeypatch.setattr("sys.stdin", io.StringIO('{"tz": "UTC"}'))
    with pytest.raises(SystemExit) as ended:
        main(["time/now", *words])
    assert ended.value.code == 2
    assert f"time/now needs {lacking}: write {lacking.partition(',')[0]}=VALUE;" in capsys.readouterr().err
    assert [method for method, _ in daemon.asked] == ["tool"]


def test_a_schema_that_says_nothing_readable_of_what_it_needs_stops_no_call(control: Controls) -> None:
    daemon = control({"call": OK})
    unreadable: list[Any] = [None, True, 3, [[]], [7], {"tz": True}]
    for required in unreadable:
        daemon.answers["tool"] = {"definition": {"inputSchema": {"required": required}}}
        assert main(["time/now"]) == 0, required


# --- progress of a server ------------------------------------------------------------------------------------


CLEAR = "\r\x1b[K"


class Shown:
    """Progress on a stream, with a clock that stands still until it is moved."""

    def __init__(self, columns: int | None) -> None:
        self.stream, self.now = io.StringIO(), 0.0
        self.progress = Progress(self.stream, columns=columns, clock=lambda: self.now)

    def __call__(self, **report: Any) -> str:
        begun = len(self.stream.getvalue())
        self.progress.show(report)
        return self.stream.getvalue()[begun:]


@cases("report", "drawn")
def test_a_bar_is_drawn_over(report: dict[str, Any], drawn: str) -> None:
    assert Shown(80)(**report) == CLEAR + drawn


def test_a_bar_keeps_to_one_line_and_reports_that_come_too_soon_are_left_out_but_for_the_last() -> None:
    assert Shown(12)(message="a" * 40) == f"{CLEAR}{'a' * 10}…"
    assert Shown(12)(message="漢" * 40) == f"{CLEAR}{'漢' * 5}…"
    shown = Shown(80)
    assert shown(progress=1, total=3)
    assert not shown(progress=2, total=3)
    assert shown(progress=3, total=3)
    shown.now += REDRAW_SECONDS
    assert shown(progress=2, total=3)


def test_elsewhere_it_is_lines_and_few_of_them() -> None:
    shown = Shown(None)
    assert shown(progress=1, total=3, message="one") == "mcpd: 1 of 3  one\n"
    assert not shown(progress=2, total=3)
    shown.now += LINE_SECONDS
    assert shown(progress=2.5) == "mcpd: 2.5\n"
    shown.now += LINE_SECONDS
    assert shown() == ""


# --- a call without an answer --------------------------------------------------------------------------------


CALL = ["git/git_log", "--timeout", "0.2", "-q", "--no-input"]


def test_a_silent_server_is_named_with_its_state_and_pid(control: Controls, capsys: Captured) -> None:
    reason = "answers no pings (3 pings so far), and was last heard 9 s ago"
    daemon = control({"call": SILENCE, "status": {"server": server(state="degraded", reason=reason)}})
    text = err_of(capsys, main(CALL), 124)
    assert "mcpd: server git did not answer within 0.2 s (--timeout); the daemon did." in text
    assert f"It is degraded: {reason}, pid 4711. The call was given up" in text
    assert "`mcpd status git`" in text
    # One that is gone meanwhile leaves what was known.
    daemon.answers["status"] = {"error": {"code": -32602, "message": "no server is named 'git'"}}
    assert "did not answer `call` within 0.2 s" in err_of(capsys, main(CALL), 3)


def test_a_daemon_that_hangs_or_has_ended_meanwhile_is_blamed_itself(control: Controls, tmp_path: Path) -> None:
    silent = DaemonSilent("the daemon at /p did not answer `call` within 1 s")
    options = argparse.Namespace(control=str(control({"status": SILENCE}).path), timeout=1.0)
    found = explained(options, "git", silent, 0.1)
    assert isinstance(found, DaemonSilent)
    assert "did not answer `call` within 1 s, nor `status` within 0.1 s: the daemon hangs" in str(found)
    found = explained(argparse.Namespace(control=str(tmp_path / "none"), timeout=1.0), "git", silent)
    assert isinstance(found, DaemonUnreachable)
    assert "did not answer `call` within 1 s; now cannot reach the daemon at " in str(found)


# --- `mcpd prompt`: arguments that are texts, and messages as a person reads them ----------------------------


main_prompt = implementation("prompt").main

RESULT: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": {"type": "text", "text": "Look:"}},
        {"role": "user", "content": {"type": "image", "mimeType": "image/png", "data": "QUJD"}},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
}


@cases("words", "said")
def test_arguments_of_a_prompt_are_texts_and_what_spells_none_is_refused(words: list[str], said: str) -> None:
    assert parse_texts([]) == {}
    assert parse_texts(["n=3", "q=a=b", "e="]) == {"n": "3", "q": "a=b", "e": ""}
    assert parse_texts(['{"n": "3"}']) == {"n": "3"}
    with pytest.raises(UsageError, match=said):
        parse_texts(words)


def test_messages_are_printed_with_who_says_them(control: Controls, capsys: Captured) -> None:
    daemon = control({"prompt": RESULT})
    assert main_prompt(["git/review", "branch=main", "-q"]) == 0
    image = "[image: image/png, 3 bytes; --json prints them]"
    assert capsys.readouterr().out == f"user: Look:\nuser: {image}\nassistant: a\nassistant: b\n"
    assert asked_for(daemon.asked) == [
        ("prompt", {"server": "git", "name": "review", "arguments": {"branch": "main"}})
    ]


def test_a_sloppy_answer_is_shown_somehow() -> None:
    results: list[dict[str, Any]] = [{}, {"messages": None}, {"messages": [{"role": "user"}]}]
    assert [len(list(messages(result))) for result in results] == [0, 0, 1]


# --- `mcpd read`: what a resource holds, as it is, and never binary on a terminal ----------------------------


main_read = implementation("read").main

TEXT: dict[str, Any] = {"contents": [{"uri": "x:t", "mimeType": "text/plain", "text": "a\x1b[2J\nb"}]}
BLOB: dict[str, Any] = {"contents": [{"uri": "x:b", "mimeType": "image/png", "blob": "AAEC"}]}


def test_a_text_is_printed_as_it_is(control: Controls, capsys: Captured) -> None:
    daemon = control({"read": TEXT, "locate": {"server": "fs", "uri": "own:t"}})
    assert main_read(["fs/x:t", "-q"]) == 0
    assert capsys.readouterr() == ("a\x1b[2J\nb", "")
    assert main_read(["x:t", "-q"]) == 0
    assert asked_for(daemon.asked) == [
        ("read", {"server": "fs", "uri": "x:t"}),
        ("locate", {"uri": "x:t"}),
        ("read", {"server": "fs", "uri": "own:t"}),
    ]


def test_bytes_go_to_a_file(control: Controls, tmp_path: Path, capsys: Captured) -> None:
    control({"read": BLOB})
    assert json.loads(out_of(capsys, main_read(["fs/x:b", "--json"]))) == BLOB
    place = tmp_path / "out"
    assert main_read(["fs/x:b", "--output", str(place)]) == 0
    assert place.read_bytes() == b"\0\1\2"
    assert capsys.readouterr() == ("", f"{place}: x:b (image/png, 3 bytes)\n")
    assert "cannot write" in err_of(capsys, main_read(["fs/x:b", "--output", str(tmp_path / "no" / "out")]), 1)


class Stream(io.TextIOWrapper):
    """A stdout that is a terminal, or is not."""

    def __init__(self, *, terminal: bool) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding="utf-8", newline="")
        self._terminal = terminal

    def isatty(self) -> bool:
        """As told."""
        return self._terminal

    def got(self) -> bytes:
        """All that was written."""
        self.flush()
        return self.bytes.getvalue()


def test_a_terminal_gets_control_characters_spelt_out_and_a_pipe_bytes_as_they_are() -> None:
    terminal = Stream(terminal=True)
    show_parts(parts_of(TEXT), terminal)
    assert terminal.got() == b"a\\x1b[2J\nb\n"
    with pytest.raises(CommandFailed, match=r"x:b \(image/png, 3 bytes\) is binary: --output FILE"):
        show_parts(parts_of(BLOB), Stream(terminal=True))
    pipe = Stream(terminal=False)
    show_parts(parts_of(BLOB), pipe)
    assert pipe.got() == b"\0\1\2"
    pipe = Stream(terminal=False)
    show_parts([*parts_of(TEXT), Part("x:é", "", "c\n")], pipe)
    wanted = "==> x:t (text/plain, 7 bytes) <==\na\x1b[2J\nb\n==> x:é (text, 2 bytes) <==\nc\n"
    assert pipe.got().decode() == wanted


@cases("result")
def test_an_answer_without_contents_is_said_to_be_one(
    result: dict[str, Any], control: Controls, capsys: Captured
) -> None:
    control({"read": result})
    assert "--json shows the answer" in err_of(capsys, main_read(["fs/x:b"]), 1)
