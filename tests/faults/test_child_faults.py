"""Every way in which a child can fail, and what it costs: that child's calls, and nothing else."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from daemon.errors import CallError, RequestTooLarge, UpstreamLost, UpstreamTimeout, UpstreamUnavailable
from daemon.states import SERVING, ServerState
from tests.faults.stage import Answer, Stage, is_alive, recording, scripted, stage
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.config.config_model import Server

BACKOFF, CRASHLOOP, DEGRADED, FAILED, READY, STARTING = (
    *(ServerState.BACKOFF, ServerState.CRASHLOOP, ServerState.DEGRADED),
    *(ServerState.FAILED, ServerState.READY, ServerState.STARTING),
)
SOON: dict[str, Any] = {"base": 0.05, "cap": 0.05, "floor": 0.0, "intensity": 1000}
PINGS: dict[str, Any] = {"ping_interval": 0.1, "ping": 0.2, "missed_pings": 2}
TREE = [{"kind": "plain", "ignore_term": True}, {"kind": "setsid"}, {"kind": "daemon", "keep_stdout": True}]


# --- one server ---------------------------------------------------------------------------------------------


async def test_a_server_killed_while_idle_is_up_again(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, restart=SOON, spawn=TREE), recorder=record) as it,
    ):
        await it.ready()
        await record.wait("spawned", 3)
        first = list(record.pids)
        os.kill(it.one.pid or 0, signal.SIGKILL)
        await it.told("killed by SIGKILL")
        await it.ready(incarnation=2)
        assert not any(map(is_alive, first))
        assert await it.call("echo").text() == "{}"


async def test_calls_in_flight_are_answered_at_once_when_their_server_is_killed(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, restart=SOON), recorder=record) as it,
    ):
        await it.ready()
        held = [it.call("sleep") for _ in range(20)]
        await record.wait_message("tools/call", 20)
        before = trio.current_time()
        os.kill(it.one.pid or 0, signal.SIGKILL)
        for answer in held:
            with pytest.raises(UpstreamLost, match="whether the call ran is unknown"):
                await answer.wait()
            assert answer.ended_at - before < 0.3
        await it.ready(incarnation=2)
        assert await it.call("echo").text() == "{}"


async def test_a_server_killed_again_and_again_always_comes_back(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, restart=SOON), recorder=record) as it,
    ):
        for incarnation in range(1, 11):
            await it.ready(incarnation=incarnation)
            assert await it.call("echo").text() == "{}"
            os.kill(it.one.pid or 0, signal.SIGKILL)
        await it.ready(incarnation=11)
        assert sum(map(is_alive, record.pids)) == 1


async def test_a_call_with_side_effects_is_never_sent_twice(tmp_path: Path) -> None:
    """Commit, then die: the outcome is unknown, and nobody may try again on his own."""
    effects = tmp_path / "effects"
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, effects=str(effects), restart=SOON), recorder=record) as it,
    ):
        for incarnation in range(1, 6):
            await it.ready(incarnation=incarnation)
            with pytest.raises(UpstreamLost):
                await it.call("effect", then={"exit": 1}).wait()
        await it.ready(incarnation=6)
    assert len(effects.read_text().splitlines()) == 5


async def test_a_frozen_server_is_given_up_and_killed(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, timeouts=PINGS, restart=SOON), recorder=record) as it,
    ):
        await it.ready()
        frozen = it.one.pid or 0
        os.kill(frozen, signal.SIGSTOP)
        await it.told("no answer to 2 pings of 0.2 s")
        await it.ready(incarnation=2)
        assert not is_alive(frozen)


async def test_a_call_to_a_frozen_server_times_out() -> None:
    async with stage(scripted(timeouts={"call": 0.2})) as it:
        await it.ready()
        os.kill(it.one.pid or 0, signal.SIGSTOP)
        with pytest.raises(UpstreamTimeout):
            await it.call("echo").wait()


@pytest.mark.parametrize("status", [0, 1])
async def test_a_server_that_exits_at_once_ends_up_in_a_crash_loop(status: int) -> None:
    server = scripted(
        on={"start": {"exit": status}}, restart={"base": 0.01, "floor": 0.0, "intensity": 3, "cap": 60.0}
    )
    async with stage(server) as it:
        assert (await it.reach(CRASHLOOP)).reason == f"exited with status {status}"
        assert it.one.can_wake
        with pytest.raises(UpstreamUnavailable, match=f"crashloop: exited with status {status}"):
            it.call("echo")


@pytest.mark.parametrize("status", [78, 126, 127])
async def test_a_server_whose_exit_says_that_retrying_is_pointless_is_parked(status: int) -> None:
    async with stage(scripted(on={"start": {"exit": status}})) as it:
        reached = await it.reach(FAILED)
        assert f"exited with status {status}" in reached.reason


async def test_a_server_that_exits_after_each_answer_serves_all_the_same(tmp_path: Path) -> None:
    server = scripted(on={"eof": None}, restart=SOON)
    async with stage(server) as it:
        for incarnation in range(1, 4):
            await it.ready(incarnation=incarnation)
            answer = '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"ok"}]}}\n'
            uid = 4 if incarnation == 1 else 3  # the first run also sent a probe
            assert await it.call("act", write=answer % uid, exit=0).text() == "ok"


async def test_a_server_that_never_reads_refuses_calls_instead_of_eating_memory(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, timeouts={"call": 30}), recorder=record) as it,
    ):
        await it.ready()
        it.call("act", deaf=True)
        refused: list[CallError] = []
        for _ in range(40):
            try:
                it.call("echo", x="x" * 1_000_000)
            except CallError as error:
                refused.append(error)
        assert refused
        assert {error.code for error in refused} <= {"Overloaded", "UpstreamUnavailable"}


async def test_an_enormous_line_costs_no_memory_and_only_its_connection(tmp_path: Path) -> None:
    """100 MB in one line: it may have been anybody's answer, so the connection ends, with the reason."""
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, restart=SOON), recorder=record) as it,
    ):
        await it.ready()
        before = _resident()
        with pytest.raises((UpstreamLost, RequestTooLarge)):
            await it.call("line", bytes=100_000_000).wait()
        await it.told("over the limit")
        assert _resident() - before < 48 * 1024 * 1024
        await it.ready(incarnation=2)


async def test_an_answer_over_the_limit_costs_its_call_only() -> None:
    async with stage(scripted(limits={"message_bytes": 100_000})) as it:
        await it.ready()
        other = it.call("sleep", seconds=0.3)
        with pytest.raises(RequestTooLarge):
            await it.call("bytes", count=200_000).wait()
        assert await it.call("bytes", count=90_000).text() == "x" * 90_000
        assert await other.text() == "awake"
        assert it.states() == [STARTING, READY]


async def test_garbage_on_stdout_costs_nothing() -> None:
    async with stage(scripted(stdout="\x00\xff\xfe{[\n" * 100, crlf=True)) as it:
        await it.ready()
        assert await it.call("act", garbage=10_000, write="\n").text() == '{"garbage": 10000, "write": "\\n"}'
        assert await it.call("noise", count=500, text="\xc3(").text()
        assert it.states() == [STARTING, READY]


async def test_stderr_without_end_or_newline_costs_nothing() -> None:
    async with stage(scripted(stderr={"bytes": 10_000_000})) as it:
        await it.ready()
        assert await it.call("echo").text() == "{}"
        assert sum(map(len, it.one.stderr.last(10_000))) <= 64 * 1024


async def test_servers_that_cannot_be_stopped_are_stopped_together() -> None:
    """Each would take 0.4 s; one after the other they would take 5 s."""
    servers = [scripted(f"s{i}", ignore=["term", "eof"], spawn=TREE[:1]) for i in range(12)]
    async with stage(*servers, starts=12) as it:
        for name in it.upstreams:
            await it.ready(name)
        before = trio.current_time()
    assert trio.current_time() - before < 2.5


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02, 0.05, 0.1])
async def test_stopping_in_the_middle_of_everything_leaves_nothing(delay: float, tmp_path: Path) -> None:
    servers = [
        scripted("a", spawn=TREE),
        scripted("b", on={"initialize": {"never": True}}, spawn=TREE),
        scripted("c", on={"start": {"exit": 1}}, restart=SOON),
        scripted("d", on={"tools/list": {"exit": 1}}, restart=SOON, spawn=TREE),
    ]
    async with recording(tmp_path) as record:
        told = [attrs.evolve(server, args=_recorded(server, record.path)) for server in servers]
        async with stage(*told, recorder=record):
            await trio.sleep(delay)


def _recorded(server: Server, path: str) -> tuple[str, ...]:
    *head, script = server.args
    return (*head, script[:-1] + f', "record": "{path}"}}')


def _resident() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- one of many --------------------------------------------------------------------------------------------

BROKEN: dict[str, dict[str, Any]] = {
    "is killed again and again": {"on": {"tools/list": {"delay": 0.02, "signal": "SIGKILL"}}},
    "exits at once": {"on": {"start": {"exit": 1}}},
    "exits with success at once": {"on": {"start": {"exit": 0}}},
    "cannot be configured": {"on": {"start": {"exit": 78}}},
    "aborts": {"on": {"start": {"signal": "SIGKILL"}}},
    "never answers initialize": {"on": {"initialize": {"never": True}}, "timeouts": {"initialize": 0.2}},
    "never reads": {"on": {"initialize": {"deaf": True}}, "timeouts": {"initialize": 0.2}},
    "is frozen": {
        "on": {"notifications/initialized": {"signal": "SIGSTOP"}},
        "timeouts": {"list": 0.3, **PINGS},
    },
    "prints garbage": {"on": {"initialize": {"garbage": 1_000_000, "write": "\n"}}},
    "prints an enormous line": {
        "on": {"initialize": {"write": "x" * 60_000}},
        "limits": {"message_bytes": 1000},
    },
    "floods stderr": {"stderr": {"bytes": 20_000_000}},
    "closes stdout": {"on": {"initialize": {"close_stdout": True}}, "ignore": ["eof", "term"]},
    "refuses initialize": {"on": {"initialize": {"error": {"code": -32000, "message": "no"}}}},
    "lists without end": {"cursor": "endless", "tools": 1},
    "lists nonsense": {"on": {"tools/list": {"result": {"tools": [1, {}, None, "x"]}}}},
    "leaves daemons behind": {"spawn": TREE, "on": {"tools/list": {"exit": 1}}},
    "announces changes for ever": {"changes": 5000},
    "answers nobody": {"on": {"initialize": {"write": '{"jsonrpc":"2.0","id":77,"result":{}}\n' * 1000}}},
}


@pytest.mark.parametrize("way", [*BROKEN, "does not exist"])
async def test_whatever_one_of_twenty_servers_does_no_call_to_the_others_fails(
    way: str, tmp_path: Path
) -> None:
    async with recording(tmp_path) as record:
        broken = scripted("broken", record=record.path, restart=SOON, **BROKEN.get(way, {}))
        if way == "does not exist":
            broken = attrs.evolve(broken, command="/no/such/program")
        good = [scripted(f"s{i}", tools=["echo"]) for i in range(19)]
        async with stage(broken, *good, recorder=record, starts=20) as it:
            for server in good:
                await it.ready(server.name)
            pids = {server.name: it.upstreams[server.name].pid for server in good}
            for number in range(20):
                answers = [it.call("echo", name=server.name, n=number) for server in good]
                _try(it)
                for answer in answers:
                    assert await answer.text() == f'{{"n": {number}}}'
            assert {name: it.upstreams[name].pid for name in pids} == pids
            for server in good:
                assert it.states(server.name) == [STARTING, READY]
            with trio.fail_after(PATIENCE):
                await it.supervisor.children["broken"].status.wait_until(
                    lambda status: status.state in SERVING or bool(status.reason)
                )


def _try(it: Stage) -> Answer | None:
    """A call to the broken one, too; whatever comes of it."""
    try:
        return it.call("echo", name="broken")
    except CallError:
        return None


async def test_twenty_servers_killed_at_once_are_all_back(tmp_path: Path) -> None:
    servers = [scripted(f"s{i}", tools=["echo"], restart=SOON) for i in range(20)]
    async with stage(*servers) as it:
        for server in servers:
            await it.ready(server.name)
        for upstream in it.upstreams.values():
            os.kill(upstream.pid or 0, signal.SIGKILL)
        with trio.fail_after(PATIENCE):
            for server in servers:
                await it.ready(server.name, incarnation=2)
                assert await it.call("echo", name=server.name).text() == "{}"
