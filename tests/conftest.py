"""What a busy machine must not decide: when a virtual clock leaps, and whether an example took too long.

The virtual clock of the tests stands still while a worker thread works. trio's own leaps as soon as every task
waits, also for a thread: what a busy machine then computes slowly is, in virtual time, later than any deadline,
and a test of two virtual seconds fails once in a thousand runs.

Hypothesis fails whoever takes 0.2 s for an example, or long to make some. Neither is a fault of what is tested.
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
"""The marker of the tests of a folder."""


@define(eq=False)
class Patience(trio.abc.Instrument):
    """Lets a clock leap only while no thread is at work."""

    clock: trio.testing.MockClock

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.clock.autojump_threshold = math.inf if trio.testing.active_thread_count() else 0


def run_patiently(
    main: Callable[..., Awaitable[Any]],
    *,
    clock: trio.testing.MockClock | None,
    instruments: list[trio.abc.Instrument],
) -> Any:
    """As `trio.run`, with a clock that leaps only while no thread is at work.

    There is no clock among the arguments of a test that takes it by `usefixtures`.
    """
    clock = clock or trio.testing.MockClock(autojump_threshold=0)
    return trio.run(main, clock=clock, instruments=[*instruments, Patience(clock)])


@pytest.fixture
def sockets() -> Iterator[Path]:
    """Short: a unix socket's path has 107 bytes at most, and pytest's own directories can be longer."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        yield Path(directory)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What was logged as a warning or worse."""
    with logging_from("WARNING") as lines:
        yield lines


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What was logged, but for what is only of use while mcpd is written."""
    with logging_from("INFO") as lines:
        yield lines


@contextmanager
def logging_from(level: str) -> Iterator[list[str]]:
    """The texts that are logged meanwhile at this level or above it."""
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level=level)
    yield lines
    logger.remove(sink)


def pytest_configure() -> None:
    """Let children be interrupted: a shell that starts the tests in the background ignores SIGINT for all."""
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep thousands of collected tests from the garbage collector: a third of the time was spent on them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test with a leaping clock has a patient one; who needs a database server is no unit test."""
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
