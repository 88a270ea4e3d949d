"""Signals are taken from the first moment to the last, and the second that asks for the end is the last one."""

import os
import signal
from collections.abc import Iterator

import pytest

from daemon.host.notify import ENDING, HANDLED, Signals


@pytest.fixture
def signals() -> Iterator[Signals]:
    taken = Signals()
    yield taken
    taken.restore()


def come(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


def test_what_comes_before_anybody_listens_is_kept_and_in_order(signals: Signals) -> None:
    come(signal.SIGHUP, signal.SIGTERM, signal.SIGHUP)
    heard: list[int] = []
    signals.listen(heard.append)
    assert heard == [signal.SIGHUP, signal.SIGTERM, signal.SIGHUP]
    come(signal.SIGHUP)
    assert heard[3:] == [signal.SIGHUP]


@pytest.mark.parametrize("second", ENDING)
def test_the_second_that_asks_for_the_end_is_the_last_that_is_heard(
    signals: Signals, second: signal.Signals
) -> None:
    heard: list[int] = []
    signals.listen(heard.append)
    come(signal.SIGTERM, second, *[signal.SIGTERM, signal.SIGINT] * 500, signal.SIGHUP)
    assert heard == [signal.SIGTERM, second, signal.SIGHUP]


def test_in_the_end_none_is_heard(signals: Signals) -> None:
    heard: list[int] = []
    signals.listen(heard.append)
    signals.ignore()
    come(*HANDLED)
    assert heard == []


def test_what_was_there_before_comes_back() -> None:
    before = [signal.getsignal(number) for number in HANDLED]
    Signals().restore()
    assert [signal.getsignal(number) for number in HANDLED] == before
