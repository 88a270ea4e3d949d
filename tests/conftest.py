"""Keeps a slow machine from failing tests: it delays jumps of the virtual clock, and allows slow examples.

The tests' virtual clock stands still while a worker thread works. trio's own clock jumps as soon as every task
waits, also for a thread: the result of a slow computation then comes after any deadline, in virtual time, so a
test of two virtual seconds fails once in a thousand runs.

Hypothesis fails a test whose example takes 0.2 s, or is slow to make. Neither is a fault of the tested code.
"""

import gc
import math
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define
from hypothesis import HealthCheck, settings
from loguru import logger

settings.register_profile("busy", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
# `make check` sees whether a property holds at all; `make test` seeks counterexamples, `make nightly` longer.
settings.register_profile("brief", settings.get_profile("busy"), max_examples=5, stateful_step_count=10)
settings.register_profile("usual", settings.get_profile("busy"), max_examples=40, stateful_step_count=30)


# Without a handler before trio's, Python 3.11 raises where a child ends just as trio's is taken away.
signal.signal(signal.SIGCHLD, lambda *_: None)
# Children inherit an ignored signal: below nohup(1), tests of what a hangup does would wait for ever.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

KINDS = {"bench": "e2e", "browser": "e2e", "e2e": "e2e", "process": "process", "security": "e2e"}
"""The marker for the tests of each folder."""


@define(eq=False)
class Patience(trio.abc.Instrument):
    """Lets a clock jump only while no thread works."""

    clock: trio.testing.MockClock

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.clock.autojump_threshold = math.inf if trio.testing.active_thread_count() else 0


def run_patiently(
    main: Callable[..., Awaitable[Any]],
    *,
    clock: trio.testing.MockClock | None,
    instruments: list[trio.abc.Instrument],
) -> Any:
    """As `trio.run`, with a clock that jumps only while no thread works.

    A test that takes the clock by `usefixtures` has no clock among its arguments.
    """
    clock = clock or trio.testing.MockClock(autojump_threshold=0)
    return trio.run(main, clock=clock, instruments=[*instruments, Patience(clock)])


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A short directory: a unix socket's path has at most 107 bytes, and pytest's directories can be longer."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        yield Path(directory)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """Log lines of level warning or above."""
    with logging_from("WARNING") as lines:
        yield lines


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Log lines of all levels but debug."""
    with logging_from("INFO") as lines:
        yield lines


@contextmanager
def logging_from(level: str) -> Iterator[list[str]]:
    """The texts logged during the block at this level or above."""
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level=level)
    yield lines
    logger.remove(sink)


def pytest_configure() -> None:
    """Make children interruptible: a shell that starts the tests in the background ignores SIGINT for all."""
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exclude thousands of collected tests from garbage collection, which took a third of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test with an autojump clock a patient one, and mark tests that need a database server."""
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        if folder in KINDS:
            item.add_marker(KINDS[folder])
        fixtures = getattr(item, "fixturenames", ())
        if "autojump_clock" in fixtures and iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.trio(run=run_patiently))
        chosen = getattr(item, "callspec", None)
        if "postgres" in fixtures or (chosen is not None and "postgresql" in chosen.params.values()):
            item.add_marker(pytest.mark.process)
