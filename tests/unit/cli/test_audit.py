"""`mcpd audit` shows records and verifies them, from the files alone or with a daemon's help."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, astuple

from daemon.audit.record import ChainHead, Decision
from daemon.cli import audit, implementation
from tests.unit.audit.chaining import CHAIN, began, head_of, lines_of, record, some, written
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured, Controls

FILE = "2026-11-27.jsonl"
SILENT: tuple[list[ChainHead], str] = ([], "journalctl is missing")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No daemon and no journal, unless a test has some; times in UTC."""
    monkeypatch.setenv("MCPD_CONTROL", str(tmp_path / "no.sock"))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(audit, "journal", lambda _uid: SILENT)
    monkeypatch.setattr("time.localtime", __import__("time").gmtime)


@pytest.fixture
def run(capsys: Captured) -> Callable[..., tuple[int, str]]:
    """Runs a command line; returns its status and what it said."""

    def run(line: str = "") -> tuple[int, str]:
        status = implementation("audit").main(shlex.split(line))
        told = capsys.readouterr()
        return status, told.out + told.err

    return run


Run = Callable[..., tuple[int, str]]

RECORDS = [
    began(),
    record(2, session="#4", client="claude-code", principal="uid 1000", duration_ms=3.0),
    record(3, Decision.AGREED, server="git", tool="git_reset", rule="ask", by="user of session #4"),
    record(4, Decision.REFUSED, server="git", tool="git_push", rule="permissions: git_push", outcome="Denied"),
    record(5, server="time", tool="now\u202e\x1b[2J", outcome="isError"),
]


def test_records_are_shown_oldest_first_with_actor_reason_and_outcome(tmp_path: Path, run: Run) -> None:
    written(tmp_path / "audit", {FILE: lines_of(RECORDS)})
    status, told = run()
    assert status == 0
    assert told == (
        "Friday, 2026-11-27\n"
        f"12:01:00  began       mcpd  mcpd  chain: {CHAIN}, version: 1.0\n"
        "12:02:00  sent        git/git_log  uid 1000, claude-code, session #4  ok\n"
        "12:03:00  agreed      git/git_reset  mcpd  ask; by user of session #4\n"
        "12:04:00  refused     git/git_push  mcpd  permissions: git_push  Denied\n"
        "12:05:00  sent        time/now\\u202e\\x1b[2J  mcpd  isError\n"
    )


@cases("line", "tools")
def test_options_choose_records(tmp_path: Path, run: Run, line: str, tools: list[str]) -> None:
    written(tmp_path / "audit", {FILE: lines_of(RECORDS)})
    shown = [json.loads(each) for each in run(f"{line} --json")[1].splitlines()]
    assert [each["tool"][:9].partition("\u202e")[0] for each in shown] == tools


def test_people_are_shown_the_newest_records_and_programs_all(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "audit", {FILE: some(9)})
    monkeypatch.setattr(audit, "SHOWN", 3)
    assert len(run()[1].splitlines()) == 1 + 3
    assert len(run("--json")[1].splitlines()) == len(run("--format jsonl")[1].splitlines()) == 9
    assert len(run("--since 2026-11-01")[1].splitlines()) == 1 + 9
    monkeypatch.setattr(audit, "MOST", 5)
    assert len(run("--json --limit 7")[1].splitlines()) == 5


def test_programs_get_the_stored_members_or_events_of_ocsf(tmp_path: Path, run: Run) -> None:
    lines = lines_of(RECORDS)
    written(tmp_path / "audit", {FILE: lines})
    assert run("--json") == (0, "".join(f"{each.decode()}\n" for each in lines))
    events = [json.loads(each) for each in run("--format ocsf")[1].splitlines()]
    assert {each["class_uid"] for each in events} == {6003}
    assert [each["activity_name"] for each in events] == ["began", "sent", "agreed", "refused", "sent"]


def test_a_malformed_line_is_shown_as_one(tmp_path: Path, run: Run) -> None:
    lines, malformed = some(3), b"\x1b[2J\xff" + b"x" * 200
    written(tmp_path / "audit", {FILE: [*lines[:2], malformed, lines[2]]})
    place = f"{tmp_path}/audit/{FILE} line 3"
    shown = run("git --since 2026-11-01")[1]
    assert f"{place}: not a record of the audit: {malformed[:200]!r}\n" in shown
    assert {"malformed": f"{malformed.decode(errors='replace')}\n", "place": place} in [
        json.loads(each) for each in run("--format ocsf")[1].splitlines()
    ]


def test_nothing_that_fits_is_said_to_people(tmp_path: Path, run: Run) -> None:
    assert run("git") == (1, f"mcpd: there is no audit in {tmp_path}/audit.\n")
    written(tmp_path / "audit", {FILE: some(2)})
    assert run("nosuch") == (0, f"mcpd: no record in {tmp_path}/audit matches.\n")
    assert run("gti")[1].endswith(" matches. Did you mean 'git'?\n")
    assert run("git --since 1h")[1] == f"mcpd: no record in {tmp_path}/audit matches.\n"
    assert run("nosuch --json") == (0, "")


def test_a_daemon_says_where_its_audit_is(tmp_path: Path, run: Run, control: Controls) -> None:
    elsewhere = written(tmp_path / "elsewhere", {FILE: some(2)})
    daemon = control({"audit-heads": {"directory": str(elsewhere), "heads": []}})
    assert len(run("--json")[1].splitlines()) == 2
    assert run(f"--state-dir {tmp_path} --json") == (1, f"mcpd: there is no audit in {tmp_path}/audit.\n")
    assert daemon.asked == [("audit-heads", {})]


def test_an_intact_audit_is_verified_with_the_heads_that_are_known(
    tmp_path: Path, run: Run, control: Controls, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = some(1200)
    directory = written(tmp_path / "audit", {"2026-11-28.jsonl": lines})
    control({"audit-heads": {"directory": str(directory), "heads": [asdict(head_of(lines, 1100))]}})
    monkeypatch.setattr(audit, "journal", lambda _uid: ([head_of(lines, 7)], ""))
    newest = f"{1200}:{head_of(lines).digest}"
    status, told = run("verify")
    assert status == 0
    assert told == (
        f"{directory}: records 1 to 1,200:\nintact\n"
        f"Confirmed elsewhere: up to record 1,100. To compare later: --head {newest}\n"
        "Compared with heads of the store: 1; the journal: 1; --head: 0.\n"
    )
    assert "Confirmed elsewhere: up to record 1,200." in run(f"verify --head {newest}")[1]


def test_an_edit_is_told_with_its_place_and_fails_and_half_a_line_is_told(tmp_path: Path, run: Run) -> None:
    lines = some(5)
    lines[2] = lines[2].replace(b"git_log", b"git_lag")
    file = written(tmp_path / "audit", {FILE: lines}) / FILE
    status, told = run("verify")
    assert (status, "intact" in told) == (1, False)
    assert f"\n{file} line 4: does not contain the digest of record 3" in told
    written(file.parent, {FILE: some(2)})
    with file.open("ab") as torn:
        torn.write(b'{"seq":3')
    status, told = run("verify")
    said = f"{FILE} line 3: a cut line: its daemon is writing, or was killed\n"
    assert (status, said in told) == (0, True)


def test_a_given_head_finds_a_cut_end(tmp_path: Path, run: Run) -> None:
    lines, kept = some(5), tmp_path / "heads.txt"
    written(tmp_path / "audit", {FILE: lines[:3]})
    chain, seq, digest = astuple(head_of(lines))
    kept.write_text(f"audit head {seq} {digest} of {chain}\n")
    for head in (kept, f"{seq}:{digest}"):
        status, told = run(f"verify --head {head}")
        assert (status, "was cut off" in told) == (1, True)


def test_a_given_head_of_a_chain_that_is_not_here_fails_and_one_of_the_journal_is_told(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "audit", {FILE: some(5)})
    other = head_of(some(4, "ee" * 32), chain="ee" * 32)
    (tmp_path / "heads.txt").write_text(f"audit head 4 {other.digest} of {other.chain}\n")
    status, told = run(f"verify --head {tmp_path}/heads.txt")
    missing = f"Missing: chain {'ee' * 32} with record 4: another daemon's, or removed."
    assert (status, missing in told) == (1, True)
    monkeypatch.setattr(audit, "journal", lambda _uid: ([other], ""))
    status, told = run("verify")
    assert (status, missing in told) == (0, True)


def test_a_chain_that_the_store_knows_and_that_is_not_here_fails(
    tmp_path: Path, run: Run, control: Controls
) -> None:
    directory = written(tmp_path / "audit", {FILE: some(5, "ee" * 32)})
    control({"audit-heads": {"directory": str(directory), "heads": [asdict(head_of(some(9)))]}})
    status, told = run("verify")
    assert (status, f"Missing: chain {CHAIN} with record 9" in told) == (1, True)


def test_a_pipe_in_place_of_a_file_is_told(tmp_path: Path, run: Run) -> None:
    (tmp_path / "audit").mkdir()
    os.mkfifo(tmp_path / "audit" / FILE)
    status, told = run()
    assert (status, "not seekable" in told) == (1, True), told


def test_programs_get_the_verdict_as_an_object_which_says_what_was_not_compared(
    tmp_path: Path, run: Run
) -> None:
    lines = some(2)
    directory = written(tmp_path / "audit", {FILE: lines})
    store = f"no daemon answers, and there is no {tmp_path}/state.db"
    told = run("verify")[1]
    assert "Confirmed elsewhere: none: missing" in told
    assert told.endswith(f"of the store: {store}; the journal: journalctl is missing; --head: 0.\n")
    status, told = run("verify --json")
    verdict: dict[str, Any] = json.loads(told)
    assert (status, verdict["intact"], verdict["notHere"]) == (0, True, [])
    assert verdict["compared"] == {"the store": store, "the journal": "journalctl is missing", "--head": 0}
    (chain,) = verdict["chains"]
    shown = [chain[each] for each in ("directory", "id", "last", "digest", "faults")]
    assert shown == [str(directory), CHAIN, 2, head_of(lines).digest, []]
    (directory / FILE).unlink()
    status, told = run("verify --json")
    assert (status, json.loads(told)["intact"]) == (1, False)
    assert run("verify") == (1, f"There is no audit in {tmp_path}/audit.\n")


def test_a_head_that_is_none_is_refused(tmp_path: Path, run: Run, capsys: Captured) -> None:
    (tmp_path / "empty").write_text("nothing\n")
    for word in ("17:abc", "/nonexistent", tmp_path / "empty"):
        with pytest.raises(SystemExit) as ended:
            run(f"verify --head {word}")
        assert (ended.value.code, f"'{word}' is neither SEQ:DIGEST" in capsys.readouterr().err) == (2, True)
