"""Sessions, tools, calls and findings for people, at the width of a small terminal and without one."""

import json
import re
import time
from typing import Any

import pytest

from daemon.catalog.loaded import LoadedStatus
from daemon.checks.findings import Level
from daemon.cli import implementation, views
from daemon.cli.following import call_line
from daemon.cli.terminal import UNBOUNDED, Screen
from daemon.operators.report_words import ADVICE, STATUSES
from daemon.operators.reports import CallInFlight, EndedCall
from tests.printing import out_of
from tests.unit.cli.conftest import Captured, Controls
from tests.unit.cli.test_tools import tool

NARROW = Screen(width=80, colour=False)
PIPE = Screen(width=UNBOUNDED, colour=False)
COLOURED = Screen(width=80, colour=True)
NOW = 1000.0
ATTACK = "\x1b]0;owned\x07\u202e\u200b[red]bold[/red]\U000e0041{server}"
SPELT = "\\x1b]0;owned\\x07\\u202e\\u200b[red]bold[/red]\\U000e0041{server}"


# --- sessions ------------------------------------------------------------------------------------------------


def shown(*sessions: dict[str, Any], screen: Screen = NARROW, **more: Any) -> str:
    listed: Any = {"sessions": list(sessions), **more}
    return views.render_sessions(listed, now=NOW, screen=screen)


def shown_one(*tools: dict[str, Any], screen: Screen = NARROW, **changed: Any) -> str:
    return views.render_session(session(loaded=list(tools), **changed), now=NOW, screen=screen)


def test_a_session_is_a_line_whose_key_is_never_cut() -> None:
    anonymous = {"key": None, "number": 3, "seenAt": None, "createdAt": 958.0, "loaded": 0, "invalid": None}
    lines = shown(session(loaded=5, invalid=2), session(**anonymous, client="")).splitlines()
    assert lines[0].split() == ["session", "client", "connected", "begun", "used", "loaded", "invalid"]
    assert lines[1].split() == ["project", "agent", "1", "1", "15m", "50s", "5", "2"]
    assert lines[2].split() == ["#3,", "no", "key", "unnamed", "1", "42s", "-", "0", "-"]
    assert lines[-1] == "Which tools are invalid, and why: `mcpd sessions KEY`"
    assert "Which tools" not in shown(session(loaded=5, invalid=0))
    assert re.search(r"project +agent 1 +- +15m", shown(session(connections=0, loaded=0, invalid=0)))
    key = "/home/somebody/" + "a-long-directory/" * 10
    text = shown(session(key=key, loaded=512, invalid=512, client="a client with a long name " * 3))
    assert max(map(len, text.splitlines())) <= 80
    assert key in "".join(line.split(" ")[0] for line in text.splitlines()[1:])


def test_a_session_shows_its_client_its_end_and_its_tools() -> None:
    text = shown_one(connections=0, forgottenInSeconds=3 * 24 * 3600)
    assert text.startswith("session project\n  begun 15m ago, used 50s ago by agent 1;")
    assert "nobody is connected; forgotten in 3d" in text
    assert "It has not loaded any tools." in text
    assert "by agent 1; connected" in shown_one()
    assert "by agent 1; 2 connections" in shown_one(connections=2)
    assert "  begun 15m ago; connected" in shown_one(client="", seenAt=None)
    lines = shown_one(loaded(), loaded(server="fs", name="read", source="auto", age=7200)).splitlines()
    assert lines[3].split() == ["tool", "status", "loaded", "by", "age"]
    assert re.fullmatch(r"git/git_log +can be used +the model +1m", lines[4])
    assert re.fullmatch(r"fs/read +can be used +a call of it +2h", lines[5])
    assert len(lines) == 6


@pytest.mark.parametrize("status", set(LoadedStatus) - {LoadedStatus.VALID})
def test_a_tool_that_is_lost_is_explained_with_what_to_do(status: LoadedStatus) -> None:
    lost = loaded(status=str(status), reason="because of that", renamedTo="git_history")
    lost["changed"] = {"at": 86_400.0, "what": "changed (description)"}
    text = shown_one(lost, loaded(name="git_show"), screen=PIPE)
    told = ADVICE[status].format(server="git", word="git/git_log", renamedTo="git_history")
    assert re.search(rf"git/git_log +{STATUSES[status]}  ", text)
    happened = r"It was changed \(description\) at 1970-01-0\d \d\d:00:00\."
    assert re.search(rf"\n\ngit/git_log\n  because of that\n  {happened}\n  {re.escape(told)}", text)
    assert "\ngit/git_show\n" not in text


# --- tools ---------------------------------------------------------------------------------------------------


def category(tools: dict[str, Any], **changed: Any) -> Any:
    named = {name: {**tool, "tool": name} for name, tool in tools.items()}
    return {"description": "Versions of files", "servers": ["git"], "tools": named, **changed}


def test_a_category_is_a_heading_and_its_tools_with_what_keeps_them_from_being_called() -> None:
    tools = {
        "show": tool(description="Shows\n one  commit"), "off": tool(enabled=False, available=False),
        "gone": tool(listed=False, available=False), "down": tool(available=False),
        "new": tool(listed=False, available=False, held={"because": "new", "change": {}}),
    }  # fmt: skip
    text = views.render_tools({"history": category({"git_log": tool(), **tools})}, NARROW)
    assert text.splitlines()[:2] == ["history (from git), 6 tools", "  Versions of files"]
    assert [" ".join(line.split()) for line in text.splitlines()[2:8]] == [
        "git/git_log Shows it",
        "git/show Shows one commit",
        "git/off [disabled] Shows it",
        "git/gone [not offered by git] Shows it",
        "git/down [unavailable: git is down] Shows it",
        "git/new [waits for approval] Shows it",
    ]
    assert "none listed yet" not in views.render_tools({"git": category({"new": tools["new"]})}, NARROW)
    assert views.render_tools({"git": category({})}, NARROW).startswith("git, 0 tools\n")
    assert "no server is configured" in views.render_tools({}, NARROW)


# --- calls ---------------------------------------------------------------------------------------------------


def test_calls_fit_any_screen_with_their_numbers_and_outcomes() -> None:
    tool = "a_tool_with_a_name_that_is_longer_than_any_that_was_ever_seen_in_the_wild" * 2
    waiting = {**WAITING, "id": 123_456, "tool": tool, "waitsFor": "server", "client": "client " * 9}
    ended = {**ENDED, "tool": tool, "outcome": "UpstreamUnavailable"}
    for width, clients in ((80, True), (60, True), (59, False)):
        screen = Screen(width=width, colour=False)
        text = views.render_calls(
            answer(waiting, ended=(ended,)), errors_only=False, since=False, screen=screen
        )
        assert all(len(line) <= width for line in text.splitlines())
        assert "123456 46s its server" in text
        assert "UpstreamUnavailable" in text
        assert ("client" in text.splitlines()[0]) is clients


# --- findings ------------------------------------------------------------------------------------------------


def test_findings_have_their_check_reason_and_remedy() -> None:
    found = [
        {"check": "sockets", "level": "fault", "what": "b \x1b[2J does not", "why": "it is gone",
         "do": "start it " * 20},
        {"check": "systemd", "level": "note", "what": "no unit", "why": "", "do": ""},
    ]  # fmt: skip
    counts = {"ok": 1, "note": 0, "warning": 2, "fault": 1}
    lines = views.render_findings(found, counts, NARROW).splitlines()
    assert lines[:2] == ["fault    sockets  b \\x1b[2J does not", f"{'':18}it is gone"]
    assert lines[2].startswith(f"{'':18}-> start it start it")
    assert max(map(len, lines)) <= 80
    assert "note     systemd  no unit" in lines
    assert lines[-1] == "1 fault, 2 warnings, 0 notes."
    assert set(views.LEVEL_STYLES) == set(Level)
    assert "\x1b[1;31mfault" in views.render_findings(found, counts, COLOURED)


def test_nothing_that_anybody_else_says_reaches_the_terminal_unescaped() -> None:
    evil = loaded(server=ATTACK, name=ATTACK, status="invalid_renamed", reason=ATTACK, renamedTo=ATTACK)
    named = session(key=ATTACK, client=ATTACK)
    one = views.render_session(named | {"loaded": [evil]}, now=NOW, screen=PIPE)
    everything = shown({**named, "loaded": 1, "invalid": 1}, screen=PIPE, incomplete=ATTACK)
    listed = tool(description=ATTACK, server=ATTACK, listed=False)
    tools = views.render_tools({ATTACK: category({ATTACK: listed}, description=ATTACK)}, PIPE)
    assert (one + everything + tools).replace("\n", "").isprintable()
    # One: key, client, tool in the table (2) and below (2), reason, new name; all: key, client, what lacks.
    assert [text.count(SPELT) for text in (one, everything, tools)] == [8, 3, 6]


# --- `mcpd sessions`: one question to the daemon, shown as data or as a table --------------------------------


main = implementation("sessions").main


def loaded(**changed: Any) -> Any:
    """A loaded tool as the daemon answers it."""
    known = {"server": "git", "name": "git_log", "status": "valid", "reason": "", "source": "manual"}
    return {**known, "loadedAt": 900.0, "age": 100, "schemaHash": "ab", "epoch": 3, **changed}


def session(**changed: Any) -> Any:
    """A session with a key as the daemon answers it."""
    known = {"key": "project", "number": None, "client": "agent 1", "connections": 1, "createdAt": 100.0}
    more = {"profile": None, "surface": None, "surfaceWhy": None, "seenAt": 950.0, "forgottenInSeconds": None}
    return {**known, **more, **changed}


ALL: Any = {"sessions": [session(loaded=2, invalid=1)]}
ONE: Any = session(loaded=[loaded(), loaded(name="gone", status="invalid_deleted", reason="no more")])


def test_json_of_one_is_the_list_of_its_tools_and_a_key_may_look_like_an_option(
    control: Controls, capsys: Captured
) -> None:
    daemon = control({"sessions": ONE})
    assert json.loads(out_of(capsys, main(["project", "--json"]))) == ONE["loaded"]
    assert main(["--", "--json"]) == 0
    assert daemon.asked == [("sessions", {"key": "project"}), ("sessions", {"key": "--json"})]


def test_a_list_that_is_not_whole_says_so_and_is_one(control: Controls, capsys: Captured) -> None:
    control({"sessions": {**ALL, "incomplete": "what is kept cannot be read now"}})
    for words in ([], ["--json"]):
        shown = out_of(capsys, main(words), 1)
        assert ("cannot be read now" in shown, "project" in shown) == (True, True)


# --- `mcpd calls` --------------------------------------------------------------------------------------------


main_calls = implementation("calls").main

WAITING: CallInFlight = {
    "id": 17, "session": 4, "key": None, "client": "agent 1", "token": "", "server": "git", "instance": "",
    "method": "tools/call", "tool": "git_log", "script": "", "since": 1_800_000_000.0, "ageSeconds": 46.2,
    "waitsFor": "answer", "sent": True,
}  # fmt: skip
ENDED: EndedCall = {
    "number": 3, "at": 1_800_000_000.0, "session": 4, "key": "project", "client": "agent 1", "token": "",
    "server": "git", "tool": "git_log", "ms": 12.5, "outcome": "ok", "rule": "", "text": "",
}  # fmt: skip


def answer(*waiting: object, ended: tuple[object, ...] = (), **more: object) -> Any:
    """An answer to `calls`."""
    known = {"inFlight": list(waiting), "inFlightMore": 0, "recent": list(ended), "next": 3, "source": "7"}
    return {**known, **more}


def test_calls_are_shown_with_what_they_wait_for_or_why_they_failed(
    control: Controls, capsys: Captured
) -> None:
    failed: EndedCall = {**ENDED, "outcome": "isError", "text": "no such repository"}
    waiting = {key: value for key, value in WAITING.items() if key != "script"}  # mcpd 0.1.0 has none
    daemon = control({"calls": answer(waiting, ended=(ENDED, failed))})
    out = out_of(capsys, main_calls([]))
    assert [line.split() for line in out.splitlines()[:2]] == [
        ["call", "age", "waits", "for", "tool", "client"],
        ["17", "46s", "the", "answer", "git/git_log", "agent", "1", "#4"],
    ]
    *_, fine, last = out.splitlines()
    assert (fine.split()[3:6], "no such repository" in last) == (["ok", "git/git_log", "-"], True)
    assert daemon.asked == [("calls", {"server": None, "session": None, "errorsOnly": False})]


def test_following_asks_for_what_comes_after(
    control: Controls, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    control({"calls": answer(ended=(ENDED,))})
    asked: list[dict[str, Any]] = []

    def news(_options: object, _method: str, params: dict[str, Any]) -> Any:
        asked.append(params)
        if len(asked) > 1:
            raise KeyboardInterrupt
        return answer(ended=({**ENDED, "number": 4},), next=4)

    monkeypatch.setattr("daemon.cli.following.news", news)
    monkeypatch.setattr("daemon.cli.following.end_without_reader", lambda: None)
    lines = out_of(capsys, main_calls(["-f", "--json"])).splitlines()
    assert [json.loads(line)["number"] for line in lines] == [3, 4]
    assert [(each["after"], each["source"]) for each in asked] == [(3, "7"), (4, "7")]
    asked.clear()
    assert len(out_of(capsys, main_calls(["-f"])).splitlines()) == 2


def test_what_is_asked_for_is_handed_on(control: Controls, capsys: Captured) -> None:
    daemon = control({"calls": answer()})
    since = ["--since", "2026-11-22T00:00:00+00:00"]
    for words, asked, said in (
        (["git", "--errors", "--session", "#4", "-n", "5000"],
         {"server": "git", "session": "#4", "errorsOnly": True, "limit": 1000},
         "No call has ended with an error since the daemon began.\n"),
        (since, {"since": 1795305600.0, "limit": 1000}, "No call has ended since then.\n"),
        ([*since, "-n2"], {"since": 1795305600.0, "limit": 2}, "No call has ended since then.\n"),
    ):  # fmt: skip
        assert out_of(capsys, main_calls(words)).endswith(said)
        assert daemon.asked.pop() == ("calls", {"server": None, "session": None, "errorsOnly": False, **asked})


def test_older_calls_are_left_out_though_the_last_releases_daemon_names_them(
    control: Controls, capsys: Captured
) -> None:
    now = time.time()
    ended = ({**ENDED, "at": now - 7200, "tool": "early"}, {**ENDED, "at": now, "tool": "late"})
    control({"calls": answer(ended=ended)})
    for more in ([], ["--json"]):
        out = out_of(capsys, main_calls(["--since", "1h", *more]))
        assert ("late" in out, "early" in out) == (True, False)


def test_a_line_says_who_called_what_and_how_it_ended() -> None:
    line = call_line({**ENDED, "client": "a\x1b[2J", "outcome": "UpstreamLost"})
    assert line[8:] == "      12.5 ms  git/git_log  UpstreamLost  a\\x1b[2J (session project)"
    own = call_line({**ENDED, "session": None, "key": None, "client": "operator", "server": ""})
    assert own.endswith("  git_log  ok  operator")
    denied = call_line({**ENDED, "outcome": "ToolDisabled", "rule": "default: git/*: deny"})
    assert "  ToolDisabled (default: git/*: deny)  " in denied
    assert call_line({**ENDED, "outcome": "isError", "text": "no\x1b[2J"}).endswith(
        "(session project): no\\x1b[2J"
    )
