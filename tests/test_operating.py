"""What operators' words do: one reload at a time, words that are sets, lists on demand."""

from __future__ import annotations

import json
import math
import threading
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trio.testing
from msgspec import Raw

from daemon.actors.registry import Registry
from daemon.catalog.listing import read_tools
from daemon.catalog.reconcile import Plan
from daemon.config.model import Config
from daemon.config.redactors import Redactors
from daemon.config.tuning import Restart
from daemon.errors import (
    ConfigError,
    Fault,
    InvalidArguments,
    UnknownServer,
    UnknownTool,
    UpstreamUnavailable,
)
from daemon.facts import StatusChanged, Switched, ToolsListed
from daemon.operating import OUTCOME_SECONDS, Desk, Operating, Refused, in_words
from daemon.supervision.supervisor import ChildSpec, Supervisor
from tests.config.reading import config_of
from tests.state.scripted_store import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from trio.testing import MockClock

    from daemon.facts import ServerStatus
    from daemon.supervision.supervisor import Lifecycle

CONFIG = {
    "mcpServers": {
        "git": {"command": "git"},
        "time": {"command": "time"},
        "off": {"command": "off", "enabled": False},
    },
    "categories": {
        "c": {"server": "git", "tools": {"overrides": {"push": {"enabled": False}}}},
    },
}


def raw(name: str, **more: Any) -> Raw:
    return Raw(json.dumps({"name": name, "inputSchema": {"type": "object"}, **more}).encode())


class FakeServer:
    """Lists what it is told to, or fails."""

    def __init__(self, room: Room, name: str) -> None:
        self.room = room
        self.name = name
        self.lists: tuple[Raw, ...] = ()
        self.problem = ""
        self.error: Exception | None = None
        self.listed = 0

    async def refresh(self) -> str:
        self.listed += 1
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        if not self.problem:
            self.room.list(self.name, *self.lists)
        return self.problem


class Room:
    """A registry and a supervisor at work; what is read and applied is the test's to say."""

    def __init__(self, reading: float) -> None:
        self.registry = Registry(config_of(CONFIG), wall=time.time)
        self.notified: list[str] = []
        self.applied: list[Config] = []
        self.read: Callable[[], Config] = Config
        self.why_unkept = ""
        self.supervisor = Supervisor(
            [ChildSpec(name=name, run=_live, policy=Restart()) for name in ("git", "time")],
            starts=4,
            on_status=self._on_status,
            rng=lambda: 0.5,
            wall=time.time,
        )
        self.upstreams = {name: FakeServer(self, name) for name in ("git", "time")}
        self.applies: Callable[[Config], Awaitable[Plan]] = self._apply
        self.operating = Operating(
            Desk(
                registry=self.registry,
                read=self._read,
                apply=self._put_in_force,
                children=self.supervisor.children,
                upstreams=self.upstreams,
                source="/etc/mcpd.json",
                notify=self.notified.append,
                redact=Redactors(["s3cret"]),
                unkept=self._unkept,
                patience=reading,
            )
        )

    def _read(self) -> Config:
        return self.read()

    async def _unkept(self) -> str:
        return self.why_unkept

    async def _put_in_force(self, config: Config) -> Plan:
        return await self.applies(config)

    def _on_status(self, name: str, status: ServerStatus) -> None:
        self.registry.tell(StatusChanged(server=name, status=status))

    async def _apply(self, config: Config) -> Plan:
        self.applied.append(config)
        await trio.lowlevel.checkpoint()
        return Plan(restarted=("git",), kept=("time",))

    def list(self, server: str, *raws: Raw) -> None:
        tools, _ = read_tools(server, list(raws))
        self.registry.tell(ToolsListed(server=server, incarnation=1, tools=tools, quarantined={}))

    @property
    def switched(self) -> frozenset[tuple[str, str]]:
        return self.registry.catalog.value.switched

    async def follow(self) -> None:
        """What `servers` does: children in line with the catalog."""
        catalog = self.registry.catalog.value
        while True:
            catalog = await self.registry.catalog.wait_changed(catalog)
            for name, child in self.supervisor.children.items():
                if (name, "") in catalog.switched:
                    child.switch_off("switched off by an operator")
                else:
                    child.switch_on()


async def _live(lifecycle: Lifecycle) -> None:
    lifecycle.ready()
    await trio.sleep_forever()


@asynccontextmanager
async def room(
    *, serving: bool = True, following: bool = True, patience: float = 30, reading: float = math.inf
) -> AsyncIterator[Room]:
    """Everything at work. Under a clock that leaps while a thread reads, patience is infinite."""
    made = Room(reading)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.registry.run)
        nursery.start_soon(made.supervisor.run)
        if following:
            nursery.start_soon(made.follow)
        if serving:
            nursery.start_soon(made.operating.run)
        made.list("git", raw("log"), raw("push"), raw("a/b"))
        with trio.fail_after(patience):
            for child in made.supervisor.children.values():
                assert await child.wait_settled()
            await made.registry.settle()
            yield made
        nursery.cancel_scope.cancel()


# --- reloads -----------------------------------------------------------------------------------------------


async def test_a_reload_reads_applies_and_tells_the_service_manager() -> None:
    async with room() as here:
        wanted = config_of({"lazy": False})
        here.read = lambda: wanted
        assert (await here.operating.reload()).restarted == ("git",)
        assert here.applied == [wanted]
        assert here.notified[0].startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert here.notified[1:] == ["READY=1\nSTATUS=serving"]


async def test_the_report_of_a_reload_has_the_plan_and_how_the_started_servers_are() -> None:
    async with room() as here:
        assert await here.operating.report_reload() == {
            "config": "/etc/mcpd.json",
            "added": [],
            "removed": [],
            "enabled": [],
            "disabled": [],
            "restarted": ["git"],
            "changed": [],
            "kept": ["time"],
            "sections": [],
            "needsRestartOfDaemon": [],
            "states": {"git": {"state": "ready", "reason": ""}},
        }


async def test_a_report_does_not_wait_for_ever_for_a_server_that_hangs(autojump_clock: MockClock) -> None:
    async with room(patience=math.inf) as here:

        async def hang(_lifecycle: Lifecycle) -> None:
            await trio.sleep_forever()

        async def apply(_config: Config) -> Plan:
            here.supervisor.add(ChildSpec(name="slow", run=hang, policy=Restart()))
            await trio.lowlevel.checkpoint()
            return Plan(added=("slow", "off"))

        here.applies = apply
        began = trio.current_time()
        report: Any = await here.operating.report_reload()
        assert report["states"]["slow"]["state"] == "starting"
        assert trio.current_time() - began >= OUTCOME_SECONDS


async def test_a_faulty_file_changes_nothing_and_every_fault_is_told_without_secrets() -> None:
    def faulty() -> Config:
        raise ConfigError(
            "/etc/mcpd.json", [Fault(path="$.a", message="s3cret"), Fault(path="$.b", message="b")]
        )

    async with room() as here:
        here.read = faulty
        with pytest.raises(ConfigError) as raised:
            await here.operating.reload()
        assert [str(fault) for fault in raised.value.faults] == ["$.a: [redacted]", "$.b: b"]
        assert (here.applied, here.notified[-1]) == ([], "READY=1\nSTATUS=serving")
        here.read = Config
        await here.operating.reload()
        assert len(here.applied) == 1


async def test_a_bug_while_applying_costs_that_reload_only() -> None:
    async def broken(_config: Config) -> Plan:
        raise KeyError("a bug")

    async with room() as here:
        good, here.applies = here.applies, broken
        with pytest.raises(KeyError):
            await here.operating.reload()
        assert here.notified[-1] == "READY=1\nSTATUS=serving"
        here.applies = good
        await here.operating.reload()


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

    async with room() as here, trio.open_nursery() as nursery:
        here.applies = slow
        for _ in range(3):
            nursery.start_soon(here.operating.reload)
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert most == 1


async def test_who_asked_and_went_away_does_not_stop_the_change() -> None:
    gate, done = trio.Event(), trio.Event()

    async def slow(_config: Config) -> Plan:
        await gate.wait()
        done.set()
        return Plan()

    async with room() as here, trio.open_nursery() as nursery:
        here.applies = slow
        with trio.CancelScope() as asker:
            nursery.start_soon(_cancel_when_blocked, asker)
            await here.operating.reload()
        assert not done.is_set()
        gate.set()
        await done.wait()


async def _cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_once_it_goes_down_whoever_waits_or_comes_is_refused() -> None:
    refused = 0

    async def ask(operating: Operating) -> None:
        nonlocal refused
        with pytest.raises(Refused, match="shutting down"):
            await operating.reload()
        refused += 1

    async def forever(_config: Config) -> Plan:
        await trio.sleep_forever()
        raise AssertionError

    async with room(serving=False) as here, trio.open_nursery() as nursery:
        here.applies = forever
        async with trio.open_nursery() as serving:
            serving.start_soon(here.operating.run)
            for _ in range(3):
                nursery.start_soon(ask, here.operating)
            await trio.testing.wait_all_tasks_blocked()
            serving.cancel_scope.cancel()
        await ask(here.operating)
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

    async def ask(operating: Operating) -> None:
        with pytest.raises(ConfigError, match="no answer within 5 s"):
            await operating.reload()
        refused.set()

    async with room(reading=5) as here:
        here.read = hang
        nursery.start_soon(ask, here.operating)
        await until(begun.is_set)
        mock_clock.jump(4.9)
        await trio.testing.wait_all_tasks_blocked()
        assert not refused.is_set()
        mock_clock.jump(0.2)
        await refused.wait()
        assert not here.applied
        here.read = Config
        assert (await here.operating.reload()).restarted == ("git",)
    hangs.set()


# --- words -------------------------------------------------------------------------------------------------


async def test_a_word_that_is_not_on_disk_is_obeyed_and_that_is_said() -> None:
    async with room() as here:
        here.why_unkept = "the disk is full"
        told = await here.operating.switch("git", off=True)
        assert (told["off"], told["state"]) == (True, "disabled")
        assert told["note"] == "it is lost if mcpd ends now: the disk is full"
        assert (await here.operating.switch("git", off=True))["note"] == told["note"], "said again: still so"


async def test_a_server_is_switched_off_and_on_and_its_child_follows() -> None:
    async with room() as here:
        told = await here.operating.switch("git", off=True)
        assert told == {
            "server": "git",
            "tool": None,
            "off": True,
            "already": False,
            "note": "",
            "state": "disabled",
            "reason": "switched off by an operator",
        }
        assert here.switched == {("git", "")}
        told = await here.operating.switch("git", off=False)
        assert (told["already"], told["state"]) == (False, "ready")
        assert not here.switched


@pytest.mark.parametrize("name", ["git/log", "mcp__git__log"])
async def test_a_tool_is_switched_off_and_on_in_every_spelling(name: str) -> None:
    async with room() as here:
        await here.operating.switch(name, off=True)
        assert here.switched == {("git", "log")}
        assert (await here.operating.switch("git/log", off=False))["already"] is False
        assert not here.switched


async def test_a_name_is_split_at_its_first_slash() -> None:
    async with room() as here:
        await here.operating.switch("git/a/b", off=True)
        assert here.switched == {("git", "a/b")}


@pytest.mark.parametrize("off", [True, False])
@pytest.mark.parametrize("name", ["git", "git/log"])
async def test_what_is_so_already_is_said_and_no_fault(name: str, off: bool) -> None:
    async with room() as here:
        if off:
            await here.operating.switch(name, off=True)
        assert (await here.operating.switch(name, off=off))["already"] is True


async def test_many_words_at_once_are_all_heard() -> None:
    """Each is a whole set: two that knew nothing of one another would be one."""
    async with room() as here:
        here.list("time", *(raw(f"t{number}") for number in range(20)))
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(lambda n: here.operating.switch(f"time/t{n}", off=True), number)
        assert len(here.switched) == 20


async def test_a_word_does_not_undo_what_was_said_elsewhere_and_is_not_read_yet() -> None:
    async with room() as here:
        here.registry.tell(Switched(off=frozenset({("time", "now")})))
        await here.operating.switch("git/log", off=True)
        assert here.switched == {("time", "now"), ("git", "log")}


@pytest.mark.parametrize(
    ("name", "error", "hint"),
    [
        ("gti", UnknownServer, "Did you mean git"),
        ("zzzzzz", UnknownServer, "There are: git, time, off."),
        ("gti/log", UnknownServer, "Did you mean git"),
        ("git/lgo", UnknownTool, "Did you mean log"),
        ("git/zzzzzz", UnknownTool, "There are: log, push, a/b."),
        ("git/", InvalidArguments, "names no tool"),
        ("git/a\nb", InvalidArguments, "names no tool"),
        ("git/" + "x" * 200, InvalidArguments, "names no tool"),
        ("", UnknownServer, "There are"),
        ("/log", UnknownServer, "There are"),
        ("mcp__gti__log", UnknownServer, "Did you mean git"),
    ],
)
@pytest.mark.parametrize("off", [True, False])
async def test_a_name_that_is_none_is_told_with_the_closest(
    name: str, error: type[Exception], hint: str, off: bool
) -> None:
    async with room() as here:
        with pytest.raises(error, match=hint):
            await here.operating.switch(name, off=off)
        assert not here.switched


async def test_a_tool_may_be_switched_off_before_its_server_has_listed_any() -> None:
    async with room() as here:
        told = await here.operating.switch("time/now", off=True)
        assert "not known yet" in str(told["note"])
        here.list("time", raw("now"))
        await here.registry.settle()
        assert ("time", "now") in here.registry.catalog.value.off


@pytest.mark.parametrize(
    ("name", "hint"),
    [("off", r'"enabled": true at \$\.mcpServers\.off in /etc/mcpd\.json'), ("git/push", "overrides")],
)
async def test_what_the_configuration_switches_off_no_word_switches_on(name: str, hint: str) -> None:
    async with room() as here:
        with pytest.raises(Refused, match=hint):
            await here.operating.switch(name, off=False)


async def test_a_word_about_what_the_configuration_switches_off_is_kept_and_says_so() -> None:
    async with room() as here:
        told = await here.operating.switch("off", off=True)
        assert "the configuration switches server off off, too" in str(told["note"])
        assert here.switched == {("off", "")}
        told = await here.operating.switch("off", off=False)
        assert "the configuration switches server off off, too" in str(told["note"])
        assert not here.switched


async def test_a_tool_of_a_server_that_is_off_stays_off_and_that_is_said() -> None:
    async with room() as here:
        await here.operating.switch("git/log", off=True)
        await here.operating.switch("git", off=True)
        assert "its server is switched off" in str((await here.operating.switch("git/log", off=False))["note"])


async def test_a_word_about_a_server_that_is_gone_can_be_taken_back() -> None:
    async with room() as here:
        here.registry.tell(Switched(off=frozenset({("gone", ""), ("gone", "tool")})))
        await here.registry.settle()
        told = await here.operating.switch("gone", off=False)
        assert (told["already"], told["state"]) == (False, "")
        assert "not in the configuration" in str(told["note"])
        await here.operating.switch("gone/tool", off=False)
        assert not here.switched


async def test_an_answer_does_not_wait_for_ever_for_a_server_that_does_not_stop(
    autojump_clock: MockClock,
) -> None:
    async with room(following=False) as here:
        began = trio.current_time()
        told = await here.operating.switch("git", off=True)
        assert trio.current_time() - began == pytest.approx(OUTCOME_SECONDS)
        assert told["state"] == "ready"


# --- lists -------------------------------------------------------------------------------------------------


async def test_a_refresh_tells_what_came_went_changed_and_was_renamed() -> None:
    async with room() as here:
        here.list("git", raw("log"), raw("push", description="p"), raw("old", description="o"), raw("gone"))
        here.upstreams["git"].lists = (
            raw("log", description="other"),
            raw("push", description="p"),
            raw("new", description="o"),
            raw("fresh", description="f"),
        )
        await here.registry.settle()
        epoch = here.registry.catalog.value.servers["git"].epoch
        told: Any = await here.operating.refresh("git")
        assert told["servers"]["git"] == {
            "state": "ready",
            "epoch": epoch + 1,
            "tools": 4,
            "came": ["new", "fresh"],
            "went": ["old", "gone"],
            "changed": ["log"],
            "renamed": {"old": "new"},
            "problem": "",
        }
        again: Any = await here.operating.refresh("git")
        assert again["servers"]["git"]["epoch"] == epoch + 1


async def test_a_refresh_of_all_asks_those_that_are_up_and_one_failure_hides_no_other() -> None:
    async with room() as here:
        here.upstreams["git"].problem = "no s3cret answer"
        here.upstreams["time"].lists = (raw("now"),)
        told: Any = await here.operating.refresh(None)
        assert {name: each["problem"] for name, each in told["servers"].items()} == {
            "git": "no [redacted] answer",
            "time": "",
        }
        await here.operating.switch("time", off=True)
        told = await here.operating.refresh(None)
        assert told["servers"].keys() == {"git"}
        assert here.upstreams["time"].listed == 1


async def test_a_server_that_is_not_up_is_a_problem_and_not_a_fault() -> None:
    async with room() as here:
        here.upstreams["git"].error = UpstreamUnavailable("server git is failed", server="git")
        told: Any = await here.operating.refresh("git")
        assert told["servers"]["git"]["problem"] == "server git is failed"
        told = await here.operating.refresh("off")
        assert "switched off in the configuration" in told["servers"]["off"]["problem"]
        with pytest.raises(UnknownServer, match="Did you mean git"):
            await here.operating.refresh("gti")


async def test_a_server_that_is_taken_away_just_when_it_is_to_list_is_a_problem_and_not_a_fault() -> None:
    async with room() as here:
        whole = here.registry.catalog.value
        servers = {name: entry for name, entry in whole.servers.items() if name != "git"}
        problems: list[str] = []

        async def refresh() -> None:
            with suppress(UnknownServer):
                told: Any = await here.operating.refresh("git")
                problems.append(told["servers"]["git"]["problem"])

        async def take_away() -> None:
            here.registry.catalog.set(attrs.evolve(whole, servers=servers))

        while not problems:  # trio shuffles: the one that takes away may be the first
            here.registry.catalog.set(whole)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refresh)
                nursery.start_soon(take_away)
        assert "removed from the configuration" in problems[0]


def test_a_plan_in_words_names_what_happened_only() -> None:
    plan = Plan(added=("a", "b"), disabled=("c",), kept=("d",), needs_restart_of_daemon=("listen",))
    assert in_words(plan) == (
        "added: a, b; switched off: c; needs a new start of mcpd: listen; unchanged servers: 1"
    )
    every = attrs.fields_dict(Plan).keys() - {"kept"}
    assert in_words(Plan(**dict.fromkeys(every, ("x",)))).count("x") == len(every)
