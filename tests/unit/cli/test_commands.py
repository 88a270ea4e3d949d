"""Commands that ask the daemon one question: the question, the words for the answer, and the exit status."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import implementation
from daemon.config.schema import render
from daemon.counting.readings import OFF
from daemon.surfaces.table import SURFACES
from tests.printing import err_of, out_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured, Controls
from tests.unit.cli.daemons import asked_for

READY = {"state": "ready", "reason": ""}
TOKENS: dict[str, Any] = {"http": "127.0.0.1:7337", "value": None, "tokens": [], "problem": ""}


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
    assert "does not show it again" in told
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
