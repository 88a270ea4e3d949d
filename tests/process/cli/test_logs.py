"""`mcpd logs`: the kept lines of one server's stderr, and what follows."""

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import pytest

from daemon.causes import Cause
from daemon.cli import EX_PIPE
from daemon.cli.following import WAIT_SECONDS
from daemon.cli.options import moment
from daemon.cli.table import implementation
from tests.printing import out_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured, Controls
from tests.unit.cli.daemons import SILENCE, FakeControl, environment, fake_control
from tests.waiting import PATIENCE

main = implementation("logs").main


def page(*texts: str, first: int = 1, **changed: Any) -> dict[str, Any]:
    """An answer to `logs`."""
    lines = [{"n": first + index, "text": text} for index, text in enumerate(texts)]
    known = {"server": "git", "type": "stdio", "lines": lines, "next": first + len(texts) - 1}
    return {**known, "dropped": 0, "source": "7", **changed}


@cases("words", "answer", "out", "err")
def test_what_the_daemon_answers_is_shown_to_people(
    control: Controls, capsys: Captured, words: str, answer: Any, out: str, err: str
) -> None:
    daemon = control({"logs": {"type": "stdio", **answer}})
    assert main(words.split()) == 0
    told = capsys.readouterr()
    assert told.out.startswith(out) if out else not told.out
    assert err in told.err if err else not told.err
    assert daemon.asked == [("logs", {"server": words, "events": True} if words else {})]


@cases("words", "answer", "shown")
def test_json_is_a_line_for_each_line_that_moves_no_cursor(
    control: Controls, capsys: Captured, words: str, answer: Any, shown: list[Any]
) -> None:
    control({"logs": answer})
    out = out_of(capsys, main([*words.split(), "--json"]))
    found = [json.loads(out)] if not words else [json.loads(line) for line in out.splitlines()]
    assert found == shown
    assert out.isascii()
    assert not {"\x1b", "\x7f"} & set(out)


def test_an_unknown_server_is_one_and_says_what_the_daemon_says(control: Controls, capsys: Captured) -> None:
    text = "no server is named 'gti'. Did you mean git?"
    control({"logs": {"error": {"code": -32602, "message": text}}})
    for more in ([], ["-f"], ["--json"]):
        assert main(["gti", *more]) == 1
        assert capsys.readouterr() == ("", f"mcpd: {text}\n")


@cases("line", "said")
def test_a_wrong_command_line_is_two(line: str, said: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_cause_and_its_remedy_stand_once_for_all_retries(control: Controls, capsys: Captured) -> None:
    details = {"happened": "It is not there.", "helps": "`install it`.", "attempt": 1, "state": "backoff"}
    first = event("git: It is not there. WHY", kind="ended", cause=str(Cause.EXITED), details=details)
    first |= {"instance": None, "session": None, "run": 1, "text": "no x"}
    later = {**first, "details": {**details, "attempt": 2, "awaySince": 1.0}}
    other = {**first, "details": {**details, "happened": "It broke."}, "message": "git: It broke. WHY"}
    events = [{**each, "at": float(at)} for at, each in enumerate([first, later, later, other, first], 1)]
    control({"logs": page(events=events)})
    said = [line.partition("-- ")[2] for line in out_of(capsys, main(["git"])).splitlines() if "-- " in line]
    assert [each.endswith("WHY") for each in said] == [True, False, False, True, True], said
    assert said[1].startswith("git: tried 2 times since ")
    assert said[1].endswith(": as before")


class Following:
    """`mcpd logs git -f` as a child."""

    def __init__(self, daemon: FakeControl, *more: str) -> None:
        self.daemon = daemon
        self.child = subprocess.Popen(
            [sys.executable, "-m", "daemon", "logs", "git", "-f", *more],
            env=environment(MCPD_CONTROL=str(daemon.path)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline()

    def said(self) -> str:
        assert self.child.stderr is not None
        return self.child.stderr.readline()

    def left(self) -> int:
        """Its exit status once nobody reads what it shows."""
        assert self.child.stdout is not None
        self.child.stdout.close()
        return self.child.wait(PATIENCE)

    def end(self) -> tuple[int, str, str]:
        self.child.send_signal(signal.SIGINT)
        out, err = self.child.communicate(timeout=PATIENCE)
        return self.child.returncode, out, err

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait(PATIENCE)
        for pipe in (self.child.stdout, self.child.stderr):
            assert pipe is not None
            pipe.close()


def test_following_goes_on_from_the_last_line_until_ctrl_c(sockets: Path) -> None:
    with fake_control(sockets / "c", {"logs": page("one", "two")}) as daemon, Following(daemon) as following:
        assert (following.line(), following.line()) == ("one\n", "two\n")
        daemon.answers["logs"] = page("three", first=3)
        assert following.line() == "three\n"
        daemon.answers["logs"] = page(first=4)
        assert following.end()[0] == 0
    assert daemon.asked[0] == ("logs", {"server": "git", "events": True})
    asked = {"server": "git", "events": True, "after": 2, "source": "7", "wait": WAIT_SECONDS}
    assert daemon.asked[1] == ("logs", asked)


def test_following_ends_with_its_reader_though_nothing_more_comes(sockets: Path) -> None:
    with fake_control(sockets / "c", {"logs": page("one")}) as daemon, Following(daemon) as following:
        assert following.line() == "one\n"
        daemon.answers["logs"] = SILENCE
        assert following.left() == EX_PIPE


def test_lines_that_were_missed_are_counted_and_a_server_that_leaves_the_configuration_ends_it(
    sockets: Path,
) -> None:
    with fake_control(sockets / "c", {"logs": page("one")}) as daemon, Following(daemon, "--json") as following:
        assert json.loads(following.line())["text"] == "one"
        daemon.answers["logs"] = page("nine", first=9, dropped=7)
        assert following.said().startswith("mcpd: 7 lines were lost: they came faster")
        assert json.loads(following.line()) == {"n": 9, "text": "nine"}
        daemon.answers["logs"] = {"error": {"code": -32602, "message": "no server is named 'git'."}}
        assert following.said() == "mcpd: no server is named 'git'.\n"
        assert following.child.wait(PATIENCE) == 1


def test_what_is_older_than_wanted_is_left_out(control: Controls, capsys: Captured) -> None:
    now = time.time()
    lines = [
        {"n": n, "at": now - ago, "run": 1, "text": f"{ago}"} for n, ago in enumerate((7200, 3000, 60, 5), 1)
    ]
    control({"logs": {**page(), "lines": lines}})
    assert main(["git", "--since", "1h", "--tail", "2", "--json"]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == ["60", "5"]


# --- `mcpd events` -------------------------------------------------------------------------------------------


def event(message: str, at: float | None = None, kind: str = "ready", **changed: Any) -> Any:
    """An event as the daemon tells it."""
    told = {"kind": kind, "at": time.time() if at is None else at, "message": message, "text": ""}
    return {**told, "server": "git", "cause": None, "isBad": False, "details": {}, **changed}


def answer(*events: Any) -> Any:
    return {"events": list(events), "next": {"at": 1.0, "lives": {}}, "more": False}


def test_each_event_is_a_line_with_its_local_time(control: Controls, capsys: Captured) -> None:
    at = time.time()
    daemon = control({"events": answer(event("git: ready", at), event("git: ended\x1b[2J", at, "ended"))})
    assert implementation("events").main(["git", "--kind", "ended", "--session", "#4", "-n", "7"]) == 0
    clock = time.strftime("%H:%M:%S", time.localtime(at))
    assert capsys.readouterr() == (f"{clock}  git: ready\n{clock}  git: ended\\x1b[2J\n", "")
    [(method, asked)] = daemon.asked
    assert method == "events"
    known = {"server": "git", "session": "#4", "since": 0.0, "kinds": ["ended"]}
    assert asked == {**known, "people": True, "limit": 7}


def test_another_day_is_said_where_it_begins(control: Controls, capsys: Captured) -> None:
    old = time.mktime((2025, 3, 4, 23, 0, 0, 0, 0, -1))
    control({"events": answer(event("one", old), event("two", old + 60), event("three", old + 7200))})
    assert out_of(capsys, implementation("events").main([])).splitlines() == [
        "Tuesday, 2025-03-04",
        "23:00:00  one",
        "23:01:00  two",
        "Wednesday, 2025-03-05",
        "01:00:00  three",
    ]


def test_a_length_of_time_and_a_local_time_are_understood() -> None:
    for said, seconds in (("90s", 90), ("30m", 1800), ("1h", 3600), ("2d", 172_800)):
        assert moment(said) == pytest.approx(time.time() - seconds, abs=30)
    assert moment("2025-03-04T22:00") == time.mktime((2025, 3, 4, 22, 0, 0, 0, 0, -1))
    today = time.strftime("%Y-%m-%d")
    assert time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment("today"))) == f"{today} 00:00:00"
    assert 0 < moment("today") - moment("yesterday") <= 25 * 3600
    for clock in ("00:00", "9:05", "23:59:59"):
        assert 0 <= time.time() - moment(clock) <= 25 * 3600
    assert moment("2025-03-04") == time.mktime((2025, 3, 4, 0, 0, 0, 0, 0, -1))


def test_what_is_no_time_is_refused_with_how_to_write_one() -> None:
    for said in ("", "tomorrow", "25:00", "1y", "-1h", "99999999999999d", "2025-13-01"):
        with pytest.raises(argparse.ArgumentTypeError, match="write 90s"):
            moment(said)
