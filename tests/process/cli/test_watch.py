"""`mcpd status --watch` in a terminal: what a person sees of it, byte by byte."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.terminals import ScreenTerminal
from tests.unit.cli.daemons import SILENCE, FakeControl, down, environment, fake_control, server, status_of
from tests.waiting import PATIENCE

EVERY = "0.2"
"""Seconds between two questions: some drawings in a short test."""

MANY: dict[str, Any] = {f"server-{number:02}": server() for number in range(40)}


@pytest.fixture
def daemon(sockets: Path) -> Iterator[FakeControl]:
    with fake_control(sockets / "control.sock", {"status": status_of(MANY)}) as control:
        yield control


def watching(
    daemon: FakeControl, *words: str, rows: int = 24, columns: int = 80, **more: str
) -> ScreenTerminal:
    environ = {"MCPD_CONTROL": str(daemon.path), **more}
    return ScreenTerminal("status", "--watch", EVERY, *words, rows=rows, columns=columns, **environ)


def has_asked(daemon: FakeControl, times: int) -> bool:
    return sum(method == "status" for method, _ in daemon.asked) >= times


def test_it_is_never_blank_and_scrolls_nothing_away(daemon: FakeControl) -> None:
    with watching(daemon) as screen:
        screen.shows("server-20")
        for number in range(6):
            daemon.answers["status"] = status_of({**MANY, "server-00": server(tools=1000 + number)})
            screen.shows(f" {1000 + number} ")
        assert (screen.blanks, screen.scrolled) == (0, 0)
        screen.press("q")
        assert screen.wait() == 0
    # What was on the terminal before is there again, and so is the cursor.
    assert screen.written.index(b"\x1b[?1049h") < screen.written.index(b"\x1b[?1049l")
    assert screen.written.rindex(b"\x1b[?25h") > screen.written.rindex(b"\x1b[?25l")


def test_it_fits_the_terminal_and_follows_its_size(daemon: FakeControl) -> None:
    with watching(daemon, rows=3, columns=20) as screen:
        screen.until(lambda lines: "q leave" in lines[-1] and any(lines[1:-1]))
        screen.press("G")
        screen.until(lambda lines: any(line.startswith(">") for line in lines[1:-1]))
        assert screen.scrolled == 0
        screen.press("g")
        screen.resize(10, 60)
        screen.until(lambda lines: "q leave" in lines[9] and "server-06" in lines[8] and "ready" in lines[8])
        screen.resize(50, 120)
        screen.until(lambda lines: "server-39" in "".join(lines) and "q leave" in lines[49])
        screen.press("q")
        assert screen.wait() == 0


def test_keys_sort_filter_and_look_closer(daemon: FakeControl) -> None:
    daemon.answers["status"] = status_of({**MANY, "zebra": down(stderr=["its last words"])})
    with watching(daemon) as screen:
        screen.shows("> server-00")
        screen.press("s", "s", "g")
        screen.shows("> zebra")
        screen.press("\r")
        screen.shows("its last words")
        screen.press("\x1b")
        screen.shows("> zebra")
        screen.press("/", "09")
        screen.shows("filter: 09_")
        screen.press("\r")
        screen.until(lambda lines: lines[-1].endswith("1 of 41") and lines[2].startswith("> server-09"))
        screen.press("?")
        screen.shows("sort by the next of")
        screen.press("\x7f")
        screen.shows("> server-09")
        # The filter goes first, then the screen.
        screen.press("\x1b")
        screen.shows("server-01")
        screen.press("\x1b")
        assert screen.wait() == 1


def test_a_key_is_answered_while_the_daemon_is_silent(daemon: FakeControl) -> None:
    with watching(daemon) as screen:
        screen.shows("> server-00")
        daemon.answers["status"] = SILENCE
        screen.shows("waiting for an answer")
        screen.press("\x1b[B")
        screen.shows("> server-01")
        screen.press("q")
        assert screen.wait() == 0


def test_a_daemon_that_is_away_keeps_its_picture_until_it_is_back(sockets: Path) -> None:
    path = sockets / "control.sock"
    with fake_control(path, {"status": status_of(MANY)}) as daemon, watching(daemon) as screen:
        screen.shows("> server-00")
        daemon.answers["status"] = b""
        lines = screen.shows("no answer since")
        assert any(line.startswith("> server-00") for line in lines)
        daemon.answers["status"] = status_of({**MANY, "back": server()})
        screen.shows("41 of 41")
        screen.press("G")
        screen.shows("> back")
        assert not any("no answer" in line for line in screen.lines)
        daemon.answers["status"] = b""
        screen.shows("no answer since")
        screen.press("q")
        assert screen.wait() == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(daemon: FakeControl, number: signal.Signals) -> None:
    with watching(daemon) as screen:
        screen.shows("> server-00")
        screen.process.send_signal(number)
        assert screen.wait() == 0
        assert b"\x1b[?1049l" in screen.written


def test_a_dumb_terminal_is_written_to_as_a_file_is(daemon: FakeControl) -> None:
    with watching(daemon, TERM="dumb") as screen:
        screen.until(lambda _lines: has_asked(daemon, 3))
        screen.press("\x03")
        screen.wait()
    assert b"\x1b" not in screen.written


@pytest.mark.parametrize("words", [[], ["server-00"]], ids=["drawing", "asking"])
def test_a_fault_of_ours_gives_the_terminal_back(daemon: FakeControl, words: list[str]) -> None:
    daemon.answers["status"] = {**status_of(MANY), "servers": 5}
    with watching(daemon, *words) as screen:
        assert screen.wait() == 1
    assert b"\x1b[?1049l" in screen.written
    assert b"Traceback" in screen.written


@pytest.mark.parametrize("words", [["--json"], []])
def test_into_a_pipe_each_answer_is_written_until_ctrl_c_which_ends_with_the_last_exit_status(
    daemon: FakeControl, words: list[str]
) -> None:
    daemon.answers["status"] = status_of({"git": down()})
    with subprocess.Popen(
        [sys.executable, "-m", "daemon", "status", *words, "--watch", EVERY],
        env=environment(MCPD_CONTROL=str(daemon.path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        heads = (line for line in child.stdout if words or line.startswith("server"))
        first, second = next(heads), next(heads)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=PATIENCE)
    assert (first, child.returncode, said) == (second, 1, "")
    assert not words or json.loads(first) == daemon.answers["status"]
