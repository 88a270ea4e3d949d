"""Sessions and tools for people, at the width of a small terminal and without one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from daemon.catalog.loaded import LoadedStatus
from daemon.cli.terminal import UNBOUNDED, Screen
from daemon.cli.views import render_session, render_sessions, render_tools
from daemon.operators.report_words import ADVICE, STATUSES
from tests.unit.cli.test_sessions import loaded, session
from tests.unit.cli.test_tools import tool

NARROW = Screen(width=80, colour=False)
PIPE = Screen(width=UNBOUNDED, colour=False)
NOW = 1000.0


def shown(*sessions: dict[str, Any], screen: Screen = NARROW, **more: Any) -> str:
    answer: Any = {"sessions": list(sessions), **more}
    return render_sessions(answer, now=NOW, screen=screen)


def shown_one(*tools: dict[str, Any], screen: Screen = NARROW, **changed: Any) -> str:
    return render_session(session(loaded=list(tools), **changed), now=NOW, screen=screen)


def anonymous(**changed: Any) -> Any:
    more = {"key": None, "number": 3, "seenAt": None, "createdAt": 958.0, "loaded": 0, "invalid": None}
    return session(**{**more, **changed})


def test_a_narrow_screen_keeps_what_is_invalid_and_says_what_it_leaves_out() -> None:
    text = shown(session(loaded=5, invalid=2), screen=Screen(width=50, colour=False))
    lines = text.splitlines()
    assert lines[0].split() == ["session", "used", "loaded", "invalid"]
    assert lines[1].split()[-2:] == ["5", "2"]
    assert "connected, begun: in a wider terminal" in text


def test_a_session_is_one_line_with_all_its_numbers() -> None:
    lines = shown(session(loaded=5, invalid=2), anonymous(client="")).splitlines()
    assert lines[0].split() == ["session", "client", "connected", "begun", "used", "loaded", "invalid"]
    assert lines[1].split() == ["project", "agent", "1", "1", "15m", "50s", "5", "2"]
    assert lines[2].split() == ["#3,", "no", "key", "unnamed", "1", "42s", "-", "0", "-"]


def test_how_to_see_why_tools_are_invalid_is_said_where_some_are() -> None:
    hint = "Which tools are invalid, and why: `mcpd sessions KEY`"
    assert shown(session(loaded=5, invalid=2)).splitlines()[-1] == hint
    assert hint not in shown(session(loaded=5, invalid=0), anonymous())


def test_nobody_connected_is_a_dash() -> None:
    assert re.search(r"project +agent 1 +- +15m", shown(session(connections=0, loaded=0, invalid=0)))


def test_eighty_columns_are_kept_and_no_key_is_cut() -> None:
    key = "/home/somebody/" + "a-long-directory/" * 10
    text = shown(session(key=key, loaded=512, invalid=512, client="a client with a long name " * 3))
    assert max(map(len, text.splitlines())) <= 80
    assert key in "".join(line.split(" ")[0] for line in text.splitlines()[1:])


def test_no_sessions_is_said() -> None:
    assert shown() == "There are no sessions."


def test_a_list_that_is_not_whole_says_so_first() -> None:
    assert shown(incomplete="the disk is gone").splitlines()[0] == "the disk is gone"


def test_that_there_are_more_is_said_last() -> None:
    assert shown(session(loaded=0, invalid=0), more=True).splitlines()[-1].startswith("There are older ones")


def test_a_session_shows_whose_it_is_and_how_long_it_is_kept() -> None:
    text = shown_one(connections=0, forgottenInSeconds=3 * 24 * 3600)
    assert text.startswith("session project\n  begun 15m ago, used 50s ago by agent 1;")
    assert "nobody is connected; forgotten in 3d" in text
    assert "It has not loaded any tools." in text
    assert "by agent 1; connected" in shown_one()
    assert "by agent 1; 2 connections" in shown_one(connections=2)
    assert "  begun 15m ago; connected" in shown_one(client="", seenAt=None)


def test_each_tool_is_a_line_with_status_source_and_age() -> None:
    lines = shown_one(loaded(), loaded(server="fs", name="read", source="auto", age=7200)).splitlines()
    assert lines[3].split() == ["tool", "status", "loaded", "by", "age"]
    assert re.fullmatch(r"git/git_log +can be used +the model +1m", lines[4])
    assert re.fullmatch(r"fs/read +can be used +a call of it +2h", lines[5])
    assert len(lines) == 6


@pytest.mark.parametrize("status", set(LoadedStatus) - {LoadedStatus.VALID})
def test_a_tool_that_is_lost_is_explained_with_what_to_do(status: LoadedStatus) -> None:
    tool = loaded(status=str(status), reason="because of that", renamedTo="git_history")
    tool["changed"] = {"at": 86_400.0, "what": "changed (description)"}
    text = shown_one(tool, loaded(name="git_show"), screen=PIPE)
    told = ADVICE[status].format(server="git", name="git_log", renamedTo="git_history")
    assert re.search(rf"git/git_log +{STATUSES[status]}  ", text)
    happened = r"It was changed \(description\) at 1970-01-0\d \d\d:00:00\."
    assert re.search(rf"\n\ngit/git_log\n  because of that\n  {happened}\n  {re.escape(told)}", text)
    assert "\ngit/git_show\n" not in text


def test_colour_is_only_for_terminals() -> None:
    screen = Screen(width=80, colour=True)
    assert "\x1b[33mits server no longer has it" in shown_one(loaded(status="invalid_deleted"), screen=screen)
    assert re.search(r"\x1b\[33m +2", shown(session(loaded=5, invalid=2), screen=screen))
    assert "\x1b" not in shown_one(loaded(status="invalid_deleted")) + shown(session(loaded=5, invalid=2))


ATTACK = "\x1b]0;owned\x07\u202e\u200b[red]bold[/red]\U000e0041{server}"
SPELT = "\\x1b]0;owned\\x07\\u202e\\u200b[red]bold[/red]\\U000e0041{server}"


def test_nothing_that_anybody_else_says_reaches_the_terminal_unescaped() -> None:
    evil = loaded(server=ATTACK, name=ATTACK, status="invalid_renamed", reason=ATTACK, renamedTo=ATTACK)
    named = session(key=ATTACK, client=ATTACK)
    one = render_session(named | {"loaded": [evil]}, now=NOW, screen=PIPE)
    everything = shown({**named, "loaded": 1, "invalid": 1}, screen=PIPE, incomplete=ATTACK)
    assert (one + everything).replace("\n", "").isprintable()
    # One: key, client, tool in the table (2) and below (2), reason, new name; all: key, client, what lacks.
    assert (one.count(SPELT), everything.count(SPELT)) == (8, 3)


def category(tools: dict[str, Any], **changed: Any) -> Any:
    named = {name: {**tool, "tool": name} for name, tool in tools.items()}
    return {"description": "Versions of files", "servers": ["git"], "tools": named, **changed}


def test_a_category_is_a_heading_and_its_tools() -> None:
    text = render_tools(
        {"history": category({"git_log": tool(), "git_show": tool(description="Shows\n one  commit")})}, NARROW
    )
    assert text.splitlines()[:2] == ["history (from git), 2 tools", "  Versions of files"]
    assert text.splitlines()[2].split() == ["git/git_log", "Shows", "it"]
    assert "Shows one commit" in text


def test_a_category_that_is_a_server_does_not_say_so_twice() -> None:
    assert render_tools({"git": category({})}, NARROW).startswith("git, 0 tools\n")


def test_what_cannot_be_called_is_marked_with_the_reason() -> None:
    tools = {
        "off": tool(enabled=False, available=False),
        "gone": tool(listed=False, available=False),
        "down": tool(available=False),
    }
    lines = [" ".join(line.split()) for line in render_tools({"c": category(tools)}, NARROW).splitlines()]
    assert "git/off [disabled] Shows it" in lines
    assert "git/gone [not offered by git] Shows it" in lines
    assert "git/down [unavailable: git is down] Shows it" in lines


def test_a_long_description_is_cut_on_a_narrow_screen_and_whole_in_a_pipe() -> None:
    tools = {"git_log": tool(description="word " * 100)}
    narrow = render_tools({"c": category(tools)}, NARROW)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" in narrow
    assert "  git/git_log word word" in narrow
    assert ("word " * 100).strip() in render_tools({"c": category(tools)}, Screen(UNBOUNDED, colour=False))


def test_a_name_is_never_cut() -> None:
    name = "n" * 128
    text = render_tools({"c": category({name: tool(description="word " * 100)})}, NARROW)
    assert max(map(len, text.splitlines())) <= 80
    assert "".join(text.split()).count("n") >= len(name)


def test_nothing_that_a_server_says_reaches_the_terminal_unescaped() -> None:
    attack = "\x1b[2J\u202e[red]"
    text = render_tools(
        {attack: category({attack: tool(description=attack, server=attack, listed=False)}, description=attack)},
        Screen(UNBOUNDED, colour=False),
    )
    assert text.replace("\n", "").isprintable()
    assert text.count("\\x1b[2J\\u202e[red]") == 6


def test_nothing_configured_is_said() -> None:
    assert "no server is configured" in render_tools({}, NARROW)
