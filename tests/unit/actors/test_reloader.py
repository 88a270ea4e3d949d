"""Reloads: one at a time, whoever asks and goes away, until the daemon goes down."""

import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.actors.reloader import Reloader, in_words
from daemon.config.config_model import Config
from daemon.config.parse import Plan
from daemon.config.redaction import Redactors
from daemon.errors import ConfigError, Fault
from daemon.operators.base import Refused
from tests.unit.config.reading import config_of
from tests.waiting import PATIENCE, background, beside, until


class Started:
    """A reloader at work; what it reads and how it applies that is the test's to say."""

    def __init__(self, patience: float) -> None:
        self.notified: list[str] = []
        self.applied: list[Config] = []
        self.read: Callable[[], Config] = Config
        self.applies: Callable[[Config], Awaitable[Plan]] = self._note
        self.reloader = Reloader(
            read=self._read,
            apply=self._apply,
            source="/etc/mcpd.json",
            notify=self.notified.append,
            redact=Redactors(["s3cret"]),
            patience=patience,
        )

    def _read(self) -> Config:
        return self.read()

    async def _apply(self, config: Config) -> Plan:
        return await self.applies(config)

    async def _note(self, config: Config) -> Plan:
        self.applied.append(config)
        await trio.lowlevel.checkpoint()
        return Plan(restarted=("git",), kept=("time",))


@asynccontextmanager
async def started(*, serving: bool = True, patience: float = math.inf) -> AsyncIterator[Started]:
    """Under a clock that leaps while a thread reads, patience is infinite."""
    made = Started(patience)
    async with background() as nursery:
        if serving:
            nursery.start_soon(made.reloader.run)
        with trio.fail_after(PATIENCE):
            yield made


async def test_a_reload_reads_applies_and_tells_the_service_manager() -> None:
    async with started() as here:
        wanted = config_of({"lazy": False})
        here.read = lambda: wanted
        assert (await here.reloader.reload()).restarted == ("git",)
        assert here.applied == [wanted]
        assert here.notified[0].startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert here.notified[1:] == ["READY=1\nSTATUS=serving"]


async def test_a_faulty_file_changes_nothing_and_every_fault_is_told_without_secrets() -> None:
    def faulty() -> Config:
        raise ConfigError(
            "/etc/mcpd.json", [Fault(path="$.a", message="s3cret"), Fault(path="$.b", message="b")]
        )

    async with started() as here:
        here.read = faulty
        with pytest.raises(ConfigError) as raised:
            await here.reloader.reload()
        assert [str(fault) for fault in raised.value.faults] == ["$.a: [redacted]", "$.b: b"]
        assert (here.applied, here.notified[-1]) == ([], "READY=1\nSTATUS=serving")
        here.read = Config
        await here.reloader.reload()
        assert len(here.applied) == 1


async def test_a_bug_while_applying_costs_that_reload_only() -> None:
    async def broken(_config: Config) -> Plan:
        raise KeyError("a bug")

    async with started() as here:
        good, here.applies = here.applies, broken
        with pytest.raises(KeyError):
            await here.reloader.reload()
        assert here.notified[-1] == "READY=1\nSTATUS=serving"
        here.applies = good
        await here.reloader.reload()


async def test_a_reload_during_a_reload_waits_for_its_turn() -> None:
    under_way = most = 0
    gate = trio.Event()

    async def slow(_config: Config) -> Plan:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await gate.wait()
        under_way -= 1
        return Plan()

    async with started() as here, trio.open_nursery() as nursery:
        here.applies = slow
        for _ in range(3):
            nursery.start_soon(here.reloader.reload)
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert most == 1


async def test_who_asked_and_went_away_does_not_stop_the_change() -> None:
    gate, done = trio.Event(), trio.Event()

    async def slow(_config: Config) -> Plan:
        await gate.wait()
        done.set()
        return Plan()

    async with started() as here, trio.open_nursery() as nursery:
        here.applies = slow
        with trio.CancelScope() as asker:
            nursery.start_soon(_cancel_when_blocked, asker)
            await here.reloader.reload()
        assert not done.is_set()
        gate.set()
        await done.wait()


async def _cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_once_it_goes_down_whoever_waits_or_comes_is_refused() -> None:
    refused = 0

    async def ask(reloader: Reloader) -> None:
        nonlocal refused
        with pytest.raises(Refused, match="shutting down"):
            await reloader.reload()
        refused += 1

    async def forever(_config: Config) -> Plan:
        await trio.sleep_forever()
        raise AssertionError

    async with started(serving=False) as here, trio.open_nursery() as nursery:
        here.applies = forever
        async with beside(here.reloader.run):
            for _ in range(3):
                nursery.start_soon(ask, here.reloader)
            await trio.testing.wait_all_tasks_blocked()
        await ask(here.reloader)
        await trio.testing.wait_all_tasks_blocked()
        assert refused == 4
        assert here.notified[-1].startswith("RELOADING=1")


async def test_a_file_that_cannot_be_read_in_time_costs_one_reload_and_not_the_next(
    mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    begun, hangs, refused = threading.Event(), threading.Event(), trio.Event()

    def hang() -> Config:
        begun.set()
        hangs.wait(30)
        return Config()

    async def ask(reloader: Reloader) -> None:
        with pytest.raises(ConfigError, match="no answer within 5 s"):
            await reloader.reload()
        refused.set()

    async with started(patience=5) as here:
        here.read = hang
        nursery.start_soon(ask, here.reloader)
        await until(begun.is_set)
        mock_clock.jump(4.9)
        await trio.testing.wait_all_tasks_blocked()
        assert not refused.is_set()
        mock_clock.jump(0.2)
        await refused.wait()
        assert not here.applied
        here.read = Config
        assert (await here.reloader.reload()).restarted == ("git",)
    hangs.set()


def test_a_plan_in_words_names_what_happened_only() -> None:
    plan = Plan(added=("a", "b"), disabled=("c",), kept=("d",), needs_restart_of_daemon=("listen",))
    assert in_words(plan) == (
        "added: a, b; switched off: c; needs a restart of mcpd: listen; unchanged servers: 1"
    )
    every = {*Plan.__struct_fields__} - {"kept"}
    assert in_words(Plan(**dict.fromkeys(every, ("x",)))).count("x") == len(every)
