"""Commands that ask the daemon one question: the question, the words for the answer, and the exit status."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import implementation
from daemon.config.schema import render
from daemon.counting.readings import OFF
from daemon.operators.report_words import RISKS
from daemon.surfaces.table import SURFACES
from tests.printing import err_of, out_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured, Controls
from tests.unit.cli.daemons import asked_for

READY = {"state": "ready", "reason": ""}
SWITCH = {"server": "git", "tool": None, "off": False, "already": False, "note": "", **READY}
SAME: dict[str, Any] = {
    "epoch": 3, "tools": 12, "came": [], "went": [], "changed": [], "renamed": {}, "lists": {}, "problem": "",
}  # fmt: skip
NEWS = {
    **SAME, "came": ["new", "fresh"], "went": ["old", "gone"], "changed": ["log"], "renamed": {"old": "new"},
    "lists": {"prompts": {"came": ["review"], "went": [], "changed": ["plan"]}},
}  # fmt: skip
PLAN: dict[str, Any] = {
    **{name: [] for name in ("added", "removed", "enabled", "disabled", "changed", "sections")},
    "config": "/m.json", "restarted": ["git"], "kept": ["a"] * 19, "needsRestartOfDaemon": ["listen"],
    "faults": ["scripts/x.py: no"], "states": {"git": READY},
}  # fmt: skip
CHANGES = {
    "added": ["a", "b"], "removed": ["c"], "enabled": ["d"], "disabled": ["e"], "changed": ["f"],
    "sections": ["profiles"], "needsRestartOfDaemon": [], "faults": [], "states": {"a": {"state": "failed",
    "reason": "no such \x1b[31mcommand"}},
}  # fmt: skip
IDLE: dict[str, Any] = {"restarted": [], "needsRestartOfDaemon": [], "faults": [], "states": {}}
INSTANCES = {
    "web#3": READY, "web#7": {"state": "backoff", "reason": "exited"}, "web#8": {"state": "", "reason": ""},
}  # fmt: skip
GONE = {"server": "hub", "existed": True, "problem": "", **READY}
GRANTS = [
    {"tool": "fs/write", "by": "an operator", "seconds": 3600},
    {"tool": "fs/\x1bmove", "by": "uid 0 (session #4)", "seconds": None},
]  # fmt: skip
PLACE = {"file": "/m.json", "place": "$.lazy"}
DESCRIBED = {"tool": "git/log", "description": "Commits.", "places": [PLACE], "already": False}
LAZY = {
    "lazy": True, "config": "/m.json", "changed": None, "note": "", "profiles": {"reader": {"on": True,
    "surface": "browse", "sessions": 1}},
}  # fmt: skip
READER = "  reader on: browse, tools to list categories, to describe tools and to call them; 1 session\n"
STATE = {
    "model": "little", "endpoint": "host:1", "asked": 2, "answered": 1, "sentences": 5, "refused": 1,
    "given_up": 0, "waiting": 3, "last_error": "host:1 answered HTTP 500",
}  # fmt: skip
MODEL = {"state": STATE, "config": "/m.json", "prompt": "You\nwrite", "sends": "Names."}
SENT = "\nWhat is sent to host:1: Names.\n\nThe prompt, which cannot be changed:\n  You\n  write\n"
COUNTS = "2 questions, 1 answered; 5 sentences taken, 1 refused; 3 waiting, 0 given up\n"
TEST = {"answer": "{}\u202e", "seconds": 1.24, "tokensRead": 7, "tokensWritten": None, "fault": ""}
CALL = {
    "id": 17, "server": "git", "tool": "log", "method": "tools/call", "client": "agent 1", "ageSeconds": 46.2,
    "sent": True,
}  # fmt: skip
MOVED = {"key": "k", "number": None, "profile": "review", "moved": 2}
TOKENS: dict[str, Any] = {"http": "127.0.0.1:7337", "value": None, "tokens": [], "problem": ""}
SAMPLE = 'mcpd_servers 3.0\nx{a="é"} 1\n'


def row(line: str, method: str, answer: Any, out: str, *, asked: Any = None, code: int = 0) -> Any:
    """A command line; the method that it asks, with which parameters; the answer; the (begin of the) output."""
    return pytest.param(line, method, answer, asked, out, code, id=line)


ROWS = (
    row("enable git", "switch", SWITCH, "git: switched on, now ready\n", asked={"name": "git", "off": False}),
    row("enable git", "switch", {**SWITCH, "already": True}, "git: was switched on already, now ready\n"),
    row("enable git", "switch", {**SWITCH, "state": "failed", "reason": "no such command"},
        "git: switched on, now failed (no such command)\n"),
    row("disable git", "switch", {**SWITCH, "off": True, "state": "disabled", "reason": "by an operator"},
        "git: switched off, now disabled\n", asked={"name": "git", "off": True}),
    row("disable git/push", "switch", {**SWITCH, "tool": "push", "off": True}, "git/push: switched off\n"),
    row("enable git/push", "switch", {**SWITCH, "tool": "push", "note": "stays off"},
        "git/push: switched on; stays off\n"),
    row("enable git", "switch", {**SWITCH, "state": "", "note": "not configured"},
        "git: switched on; not configured\n"),
    row("restart git", "restart", {"server": "git", "state": "starting", "reason": ""},
        "git: restarted, now starting\n", asked={"server": "git"}),
    row("restart web", "restart", {"server": "web", **READY, "instances": {}},
        "web: no instance runs; each starts at its first use\n"),
    row("restart web", "restart", {"server": "web", **READY, "instances": INSTANCES},
        "web#3: restarted, now ready\nweb#7: restarted, now backoff,"
        " exited\nweb#8: has ended meanwhile\n"),
    row("refresh git", "refresh", {"servers": {"git": SAME}}, "git: epoch 3, 12 tools; as before\n",
        asked={"server": "git"}),
    row("refresh", "refresh", {"servers": {"git": SAME, "web": {"problem": "no \x1banswer"}}},
        "git: epoch 3, 12 tools; as before\nweb: no \\x1banswer\n", asked={"server": None}, code=1),
    row("refresh", "refresh", {"servers": {}}, "no server is up\n"),
    row("refresh git", "refresh", {"servers": {"git": NEWS}},
        "git: epoch 3, 12 tools; came: fresh; went: gone; changed: log;"
        " renamed: old to new; prompts that came: review; prompts that changed: plan\n"),
    row("reload", "reload", PLAN, "restarted: git; unchanged: 19;"
        " needs a new start: listen (`mcpd start --restart`)\ngit: ready\n",
        asked={}),
    row("reload", "reload", {**PLAN, **IDLE}, "nothing has changed; unchanged: 19\n"),
    row("reload", "reload", {**PLAN, **CHANGES},
        "added: a, b; removed: c; switched on: d; switched off: e; restarted:"
        " git; changed: f; applied: profiles; unchanged: 19\na: failed, no such \\x1b[31mcommand\n"),
    row("logout hub", "logout", GONE, "logged out of hub: the login is forgotten here, and ended at its"
        " authorization server\n", asked={"server": "hub"}),
    row("logout hub", "logout", {**GONE, "existed": False}, "there was no login at hub\n"),
    row("logout hub", "logout", {**GONE, "problem": "it is away"},
        "the login at hub is forgotten here, but not ended at its authorization"
        " server: it is away. End it there if somebody may have it.\n", code=1),
    row("allow 4 fs/write --for 1h", "allow", {"session": "#4", "allowed": GRANTS},
        "session #4 may call without asking:\n  fs/write  for 1h, says an operator\n "
        " fs/\\x1bmove  as long as it is in use, says uid 0 (session #4)\n",
        asked={"session": "4", "tool": "fs/write", "seconds": 3600.0, "revoke": False}),
    row("allow k --revoke", "allow", {"session": "k", "allowed": []},
        "session k: nothing is allowed beyond its profile\n", asked={"session": "k", "tool": None,
        "seconds": None, "revoke": True}),
    row("unload 4 git/log", "unload", {"session": "#4", "unloaded": ["git/\x1blog"], "note": ""},
        "session #4: git/\\x1blog is not loaded any more\n", asked={"session": "4", "tool": "git/log"}),
    row("unload 4", "unload", {"session": "#4", "unloaded": [], "note": "it is back"},
        "session #4 has loaded no tools\nit is back\n", asked={"session": "4", "tool": None}),
    row("sessions k --profile review", "move", MOVED,
        "session k: its 2 connections have profile review now\n", asked={"key": "k", "profile": "review"}),
    row("sessions k --profile review", "move", {**MOVED, "moved": 0},
        "session k: no client is connected; the next one gets profile review now\n"),
    row("cancel 17", "cancel", {"call": CALL},
        "cancelled after 46s: git/log of agent 1; it was sent, and may have run\n", asked={"id": 17}),
    row("cancel 17", "cancel", {"call": {**CALL, "sent": False, "client": ""}},
        "cancelled after 46s: git/log of a client without a name; it was not sent\n"),
    row("prompts", "prompts", {"prompts": [], "servers": {}}, "No server has", asked={"server": None}),
    row("prompts git", "prompts", {"prompts": [], "servers": {}}, "No server has", asked={"server": "git"}),
    row("resources git", "resources", {"resources": [], "templates": [], "servers": {}},
        "No server has listed a resource.\n", asked={"server": "git"}),
    row("describe git/log Commits.", "describe", DESCRIBED,
        "git/log has that description now\n  $.lazy in /m.json\n", asked={"tool": "git/log",
        "text": "Commits."}),
    row("describe git/log --reset", "describe", {**DESCRIBED, "description": None, "already": True},
        "git/log has its server's own description already\n  $.lazy in /m.json\n", asked={"tool": "git/log",
        "text": None}),
    row("lazy", "lazy", LAZY,
        f"lazy on: each profile shows what its own switch and surface say\n{READER}{RISKS}\n",
        asked={"on": None, "profile": None}),
    row("lazy off --profile reader", "lazy", {**LAZY, "lazy": False, "changed": {**PLACE, "already": False},
        "note": "and so on"},
        "written at $.lazy in /m.json\nnote: and so on\nlazy off: every profile shows every tool, whatever its"
        f" own switch says\n{READER}",
        asked={"on": False, "profile": "reader"}),
    row("lazy on", "lazy", {**LAZY, "profiles": {}, "changed": {**PLACE, "already": True}},
        "stood already at $.lazy in /m.json\nlazy on: each profile shows"),
    row("summaries", "summaries", MODEL,
        f"little at host:1\n{COUNTS}last error: host:1 answered HTTP 500\n{SENT}", asked={"models": False,
        "model": None, "test": None}),
    row("summaries", "summaries", {**MODEL, "state": None}, "no model is configured (`summaries`"),
    row("summaries", "summaries", {**MODEL, "state": {"model": "m", "endpoint": "host:1", "off": "idle"}},
        f"m at host:1\nidle\n{SENT}"),
    row("summaries --models", "summaries", {**MODEL, "models": ["big", "little"]}, "  big\n* little\n"),
    row("summaries --models", "summaries", {**MODEL, "models": []}, "the endpoint lists no models\n"),
    row("summaries --model big", "summaries", {**MODEL, "changed": {**PLACE, "already": False}},
        "written at $.lazy in /m.json\n", asked={"models": False, "model": "big", "test": None}),
    row("summaries --test hi", "summaries", {**MODEL, "test": TEST}, "{}\\u202e\n\n1.2s, 7 tokens read\n",
        asked={"models": False, "model": None, "test": "hi"}),
    row("summaries --test", "summaries", {**MODEL, "test": {**TEST, "fault": "no JSON"}},
        "{}\\u202e\n\n1.2s, 7 tokens read\nit cannot be used: no JSON\n", code=1),
    row("metrics", "metrics", {"text": SAMPLE}, SAMPLE, asked={}),
    row("metrics", "metrics", {"text": "x\x1b[2J 1\n"}, "x\\x1b[2J 1\n"),
    row("ui --end", "ui", {"ended": 2}, "ended 2 sessions of the console\n", asked={"readOnly": False,
        "end": True}),
    row("token", "tokens", {**TOKENS, "value": "mcpd_5"}, "mcpd_5\n", asked={"action": "show"}),
    row("token new ci --profile a --profile b --console read --workspace '/a/*'", "tokens", {**TOKENS,
        "value": "mcpd_5"}, "mcpd_5\n", asked={"action": "new", "name": "ci", "profiles": ["a", "b"],
        "console": "read", "workspaces": ["/a/*"]}),
    row("token confirm ci", "tokens", TOKENS, "ci: lets its clients in again\n"),
    row("token confirm --default", "tokens", TOKENS, "(no name): lets its clients in again\n"),
    row("token revoke ci", "tokens", TOKENS, "ci: revoked\n", asked={"action": "revoke", "name": "ci"}),
    row("token revoke --default", "tokens", TOKENS, "revoked; `mcpd token` shows the new one\n"),
    row("token list", "tokens", TOKENS, "There are none: `mcpd token` makes one.\n",
        asked={"action": "list"}),
)  # fmt: skip


@cases("line", "method", "answer", "asked", "out", "code")
def test_a_command_asks_one_question_and_words_the_answer(
    control: Controls, capsys: Captured, line: str, method: str, answer: Any, asked: Any, out: str, code: int
) -> None:
    daemon = control({method: answer})
    command, *words = shlex.split(line)
    said = out_of(capsys, implementation(command).main(words), code)
    assert said == out or (said.startswith(out) and not out.endswith("\n"))
    # Where the socket is named, `enable` asks whose file that is.
    params = [params for each, params in daemon.asked if (each, command) != ("status", "enable")]
    assert {each for each, _params in daemon.asked} <= {method, "status" if command == "enable" else method}
    assert asked is None or params[0] == asked


@cases("line", "said")
def test_a_command_line_that_makes_no_sense_is_two(capsys: Captured, line: str, said: str) -> None:
    command, *words = shlex.split(line)
    with pytest.raises(SystemExit) as ended:
        implementation(command).main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@cases("line", "method", "code", "data")
def test_a_faulty_configuration_ends_otherwise_than_a_refusal(
    control: Controls, capsys: Captured, line: str, method: str, code: int, data: object
) -> None:
    control({method: {"error": {"code": -32000, "message": OFF, "data": data}}})
    command, *words = shlex.split(line)
    assert implementation(command).main(words) == code
    shown = capsys.readouterr()
    assert (shown.out, "mcpd set . metrics.enabled=true" in shown.err) == ("", True)
    assert ("nothing was changed" in shown.err) is (code == 78)


def test_faults_of_a_reload_are_data_for_programs(control: Controls, capsys: Captured) -> None:
    faults = {"faults": [{"path": "$.a", "message": "one"}]}
    control({"reload": {"error": {"code": -32078, "message": "1 fault", "data": faults}}})
    assert json.loads(out_of(capsys, implementation("reload").main(["--json"]), 78)) == faults


def test_several_servers_are_restarted_past_those_that_fail(control: Controls, capsys: Captured) -> None:
    states = {"git": {"state": "ready"}, "web": {"state": "failed"}, "old": {"state": "disabled"}}
    daemon = control({"restart": {"server": "git", **READY}, "status": {"servers": states}})
    assert len(out_of(capsys, implementation("restart").main(["--all", "--json"])).splitlines()) == 2
    daemon.answers["restart"] = {"error": {"code": 1, "message": "no server is named so"}}
    assert implementation("restart").main(["a", "b"]) == 1
    asked = [params["server"] for method, params in daemon.asked if method == "restart"]
    assert asked == ["git", "web", "a", "b"]


@cases("command", "words", "before", "after", "faulty")
def test_a_configuration_is_written_without_a_daemon(
    tmp_path: Path, capsys: Captured, command: str, words: list[str], before: str, after: str, faulty: str
) -> None:
    config = tmp_path / "mcpd.json"
    config.write_text(before)
    config.chmod(0o600)
    words = [*words, "--config", str(config), "--socket", str(tmp_path / "none.sock")]
    assert implementation(command).main(words) == 0
    assert config.read_text() == after
    assert "written at $." in capsys.readouterr().out
    config.write_text(faulty)
    assert "nothing was changed" in err_of(capsys, implementation(command).main(words), 78)


def test_the_list_of_tokens_marks_those_that_do_not_count(control: Controls, capsys: Captured) -> None:
    one = {
        "profiles": None, "console": None, "workspaces": None, "since": 0.0, "counts": True, "lastUsed": None,
    }  # fmt: skip
    listed = [
        {**one, "name": None, "counts": False},
        {**one, "name": "ci", "profiles": ["a", "b"], "console": "read", "lastUsed": 60.0},
        {**one, "name": "old", "workspaces": ["/a/*", "~/b"], "since": None},
    ]
    daemon = control({"tokens": {**TOKENS, "tokens": listed}})
    first, second, third = out_of(capsys, implementation("token").main(["list"])).splitlines()
    assert first.startswith("(no name): all profiles; made ")
    assert first.endswith("NOT VALID until `mcpd token confirm --default`")
    assert second.startswith("ci: a, b; the console, to read; made ")
    assert "last used" in second
    assert third == "old: all profiles; workspaces /a/*, ~/b; configured"
    assert implementation("token").main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tokens": listed, "problem": ""}
    daemon.answers["tokens"] = {**TOKENS, "problem": "it is damaged"}
    told = err_of(capsys, implementation("token").main(["new", "x"]), 1)
    assert "not shown again" in told
    assert "it is damaged" in told


@pytest.mark.parametrize("words", [["--print"], []])
def test_the_link_of_the_console_is_printed_alone_where_it_cannot_be_opened(
    control: Controls, capsys: Captured, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    daemon = control({"ui": {"link": "http://127.0.0.1:7337/ui/enter?once=s3cret"}})
    assert implementation("ui").main(words) == 0
    told = capsys.readouterr()
    assert told.out == "http://127.0.0.1:7337/ui/enter?once=s3cret\n"
    assert ("valid for a minute" in told.err, "no display" in told.err) == (True, not words)
    assert daemon.asked == [("ui", {"readOnly": False, "end": False})]


def test_the_schema_is_printed_as_it_is_kept(capsys: Captured) -> None:
    assert out_of(capsys, implementation("schema").main([])) == render(list(SURFACES))


FOUND = {
    "tools": [{"name": "git_log", "server": "git", "category": "git", "score": 7.25,
    "description": "Shows commits."}, {"name": "read", "server": "fs", "category": "files", "score": 1.0,
    "description": "Reads\x1b[2J."}], "total": 9, "suggestions": [],
}  # fmt: skip


@cases("line", "asked")
def test_a_search_shows_tools_best_first_and_counts_the_rest(
    control: Controls, capsys: Captured, line: str, asked: dict[str, object]
) -> None:
    daemon = control({"search": FOUND})
    assert implementation("search").main(shlex.split(line)) == 0
    assert asked_for(daemon.asked) == [("search", asked)]
    _head, first, second, more = capsys.readouterr().out.splitlines()
    assert first.split() == ["7.2", "git/git_log", "Shows", "commits."]
    assert second.split()[:3] == ["1.0", "fs/read", "[files]"]
    assert "\\x1b[2J" in second
    assert more == "7 more match: see them with --limit 9"


@pytest.mark.parametrize(
    ("suggestions", "said"), [(["git_log"], "Did you mean: git_log?"), ([], "`mcpd tools` shows all of them.")]
)
def test_a_search_without_a_result_is_one(
    control: Controls, capsys: Captured, suggestions: list[str], said: str
) -> None:
    control({"search": {"tools": [], "total": 0, "suggestions": suggestions}})
    assert implementation("search").main(["zzz", "--or", "yyy"]) == 1
    assert capsys.readouterr().err == f"mcpd: no tool matches 'zzz or yyy'. {said}\n"
