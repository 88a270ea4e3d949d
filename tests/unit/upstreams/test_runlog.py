"""The same failure again and again: told once, then counted, and told again when it is another."""

import itertools
import time
from collections.abc import Iterator

import pytest
import trio
import trio.testing
from loguru import logger

from daemon.causes import Reason
from daemon.supervision.backoff import Ending, Run
from daemon.upstreams import upstream_access

pytestmark = pytest.mark.usefixtures("autojump_clock")

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "a.py", line 7, in <module>',
    "ValueError: no licence",
)
STABLE = 120.0
FAILED = Run(ending=Ending.CRASHED, reason=Reason("exited with status 1"), healthy=0.0, ended_at=0.0)


class Stage:
    """A server's log, and the lines in it."""

    def __init__(self, lines: list[str]) -> None:
        self.log = upstream_access.RunLog("one", stable_after=STABLE, wall=trio.current_time)
        self._numbers = itertools.count(1)
        self._lines = lines

    def run(
        self,
        *said: str,
        reason: str = "exited with status 1",
        failing: bool = True,
        ending: Ending = Ending.CRASHED,
    ) -> list[str]:
        """A run that says these lines; what is logged of it."""
        number = next(self._numbers)
        self.log.begin(failing=failing)
        self.log.say("INFO", f"started x as pid {4711 + number}")
        for line in said:
            self.log.stderr(line)
        self.log.ended(number, Run(ending=ending, reason=Reason(reason), healthy=0.0, ended_at=0.0))
        return self.told()

    def told(self) -> list[str]:
        """What was logged since this was last asked."""
        told, self._lines[:] = self._lines[:], []
        return told


@pytest.fixture
def lines() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(line.rstrip("\n")), format="{level} {message}", level="INFO")
    yield lines
    logger.remove(sink)


@pytest.fixture
def stage(lines: list[str]) -> Stage:
    return Stage(lines)


async def test_the_first_failure_is_told_whole_and_the_next_in_one_line(stage: Stage) -> None:
    assert stage.run(*TRACEBACK, failing=False) == [
        "INFO started x as pid 4712",
        *(f"INFO stderr: {line}" for line in TRACEBACK),
        "WARNING run 1 ended: exited with status 1",
    ]
    [told] = stage.run(*TRACEBACK)
    assert told.startswith("WARNING run 2 ended: exited with status 1; as the one before it, since ")
    assert told.endswith(", with the same 4 lines (`mcpd logs one` has them)")
    assert stage.run(*TRACEBACK) == []


async def test_what_goes_on_is_said_less_and_less_often_and_at_last_once_an_hour(stage: Stage) -> None:
    stage.run(*TRACEBACK, failing=False)
    told_at = []
    for _ in range(24 * 60):
        if stage.run(*TRACEBACK):
            told_at.append(trio.current_time())
        await trio.sleep(60.0)
    gaps = [after - before for before, after in itertools.pairwise(told_at)]
    assert gaps[:6] == [upstream_access.SAID_AGAIN_FIRST * 2**doubled for doubled in range(6)]
    assert set(gaps[6:]) == {upstream_access.SAID_AGAIN_LATEST}


async def test_numbers_of_any_kind_do_not_make_a_line_another(stage: Stage) -> None:
    stage.run("12:03:44.120 [pid 99] at 0x7f3a0, id f3a9-11de", failing=False)
    assert len(stage.run("12:04:44.871 [pid 104] at 0x7fffe, id a0c2-22ab")) == 1
    assert stage.run("23:59:59.999 [pid 7] at 0x1, id 0-0") == []


async def test_what_differs_is_told_and_what_stands_before_it_is_counted(stage: Stage) -> None:
    stage.run(*TRACEBACK, failing=False)
    stage.run(*TRACEBACK)
    assert stage.run(*TRACEBACK[:2], "KeyError: 'x'", TRACEBACK[2]) == [
        "INFO 3 lines as in the runs before",
        "INFO stderr: KeyError: 'x'",
        "WARNING run 3 ended: exited with status 1",
    ]
    # And both are known from now on, whichever comes.
    [told] = stage.run(*TRACEBACK)
    assert "as the one before it" in told
    assert stage.run(*TRACEBACK[:2], "KeyError: 'x'") == []


async def test_another_reason_is_told(stage: Stage) -> None:
    stage.run(failing=False)
    stage.run()
    await trio.sleep(3600.0)
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(trio.current_time()))
    assert stage.run(reason="exited with status 2") == ["WARNING run 3 ended: exited with status 2"]
    [told] = stage.run(reason="exited with status 2")
    assert f"as the one before it, since {since}" in told
    assert stage.run(reason="cannot reach port 40123")
    assert "as the one before it" in stage.run(reason="cannot reach port 40124")[0]


async def test_a_fresh_beginning_is_told_whole(stage: Stage) -> None:
    """An operator has started it again, or it was well for long before."""
    first = stage.run(*TRACEBACK, failing=False)
    stage.run(*TRACEBACK)
    assert len(stage.run(*TRACEBACK, failing=False)) == len(first)


async def test_the_end_that_was_asked_for_is_told(stage: Stage) -> None:
    stage.run(failing=False, reason="restarting")
    assert stage.run(reason="restarting", ending=Ending.ASKED) == ["INFO run 2 ended: restarting"]


async def test_who_comes_up_and_falls_again_and_again_is_told_of_once(stage: Stage) -> None:
    stage.run(failing=False)
    stage.run()
    for number, told in ((3, 2), (4, 1), (5, 0)):
        stage.log.begin(failing=True)
        stage.log.ready()
        stage.log.ended(number, FAILED)
        assert len(stage.told()) == told


async def test_what_is_remembered_is_bounded(stage: Stage) -> None:
    words = ("".join(letters) for letters in itertools.product("ghijklmn", repeat=5))
    for _ in range(2 * upstream_access.KNOWN // upstream_access.LINES + 1):
        stage.run(*itertools.islice(words, 2 * upstream_access.LINES), "x" * 10 * upstream_access.CHARACTERS)
    assert len(stage.log._known) == upstream_access.KNOWN
    assert len(stage.log._said) == upstream_access.LINES
    assert max(map(len, stage.log._said)) <= upstream_access.CHARACTERS


async def test_a_long_line_without_a_number_takes_no_longer_than_it_is(stage: Stage) -> None:
    """Compared letter by letter from each letter on, it would take the square of its length."""
    stage.run("a" * 8192, failing=False)
    assert len(stage.run("a" * 8192)) == 1
