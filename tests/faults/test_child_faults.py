"""What many children cost together, and one that floods: in this process, so that all that is left is seen."""

import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from daemon.errors import CallError, RequestTooLarge, UpstreamLost
from daemon.states import SERVING, ServerState
from tests.faults.stage import recording, resident_kib, scripted, stage
from tests.waiting import PATIENCE

SOON: dict[str, Any] = {"base": 0.05, "cap": 0.05, "floor": 0.0, "intensity": 1000}
LATER: dict[str, Any] = {**SOON, "base": 1.0, "cap": 1.0}
PINGS: dict[str, Any] = {"ping_interval": 0.1, "ping": 0.2, "missed_pings": 2}
TREE = [{"kind": "plain", "ignore_term": True}, {"kind": "setsid"}, {"kind": "daemon", "keep_stdout": True}]


async def test_a_server_that_never_reads_refuses_calls_instead_of_eating_memory(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, timeouts={"call": 30}), recorder=record) as it,
    ):
        await it.ready()
        it.call("act", deaf=True)
        calls = (it.call("echo", x="x" * 1_000_000) for _ in range(40))
        with pytest.raises(CallError) as refused:
            list(calls)
        assert refused.value.code in {"Overloaded", "UpstreamUnavailable"}


async def test_an_enormous_line_costs_no_memory_and_only_its_connection(tmp_path: Path) -> None:
    """100 MB in one line: it may have been anybody's answer, so the connection ends, with the reason."""
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, restart=SOON), recorder=record) as it,
    ):
        await it.ready()
        before = resident_kib()
        with pytest.raises((UpstreamLost, RequestTooLarge)):
            await it.call("line", bytes=100_000_000).wait()
        await it.told("over the limit")
        assert resident_kib() - before < 48 * 1024
        await it.ready(incarnation=2)


async def test_servers_that_cannot_be_stopped_are_stopped_together() -> None:
    """Each would take 1 s; one after the other they would take 12 s."""
    grace = {"stop_eof": 0.5, "stop_term": 0.5}
    servers = [scripted(f"s{i}", timeouts=grace, ignore=["term", "eof"], spawn=TREE[:1]) for i in range(12)]
    async with stage(*servers, starts=12) as it:
        for name in it.upstreams:
            await it.ready(name)
        before = trio.current_time()
    assert trio.current_time() - before < 9


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02, 0.05, 0.1])
async def test_stopping_in_the_middle_of_everything_leaves_nothing(delay: float, tmp_path: Path) -> None:
    async with recording(tmp_path) as record:
        noted = partial(scripted, record=record.path)
        servers = [
            noted("a", spawn=TREE),
            noted("b", on={"initialize": {"never": True}}, spawn=TREE),
            noted("c", on={"start": {"exit": 1}}, restart=SOON),
            noted("d", on={"tools/list": {"exit": 1}}, restart=SOON, spawn=TREE),
        ]
        async with stage(*servers, recorder=record):
            await trio.sleep(delay)


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
    "floods stderr": {"stderr": {"bytes": 5_000_000}},
    "closes stdout": {"on": {"initialize": {"close_stdout": True}}, "ignore": ["eof", "term"]},
    "refuses initialize": {"on": {"initialize": {"error": {"code": -32000, "message": "no"}}}},
    "lists without end": {"cursor": "endless", "tools": 1},
    "lists nonsense": {"on": {"tools/list": {"result": {"tools": [1, {}, None, "x"]}}}},
    "leaves daemons behind": {"spawn": TREE, "on": {"tools/list": {"exit": 1}}},
    "announces changes for ever": {"changes": 5000},
    "answers nobody": {"on": {"initialize": {"write": '{"jsonrpc":"2.0","id":77,"result":{}}\n' * 1000}}},
}


@pytest.mark.parametrize(
    "ways", [[*BROKEN], *(pytest.param([way], marks=pytest.mark.nightly) for way in BROKEN)], ids=" ".join
)
async def test_whatever_some_servers_do_no_call_to_the_others_fails(ways: list[str], tmp_path: Path) -> None:
    async with recording(tmp_path) as record:
        broken = [
            scripted(f"broken{number}", record=record.path, restart=LATER, **BROKEN[way])
            for number, way in enumerate(ways)
        ]
        broken.append(attrs.evolve(broken[0], name="nowhere", command="/no/such/program"))
        good = [scripted(f"s{number}", tools=["echo"]) for number in range(10)]
        async with stage(*broken, *good, recorder=record, starts=40) as it:
            for server in good:
                await it.ready(server.name)
            pids = {server.name: it.upstreams[server.name].pid for server in good}
            for number in range(20):
                answers = [it.call("echo", name=server.name, n=number) for server in good]
                for server in broken:
                    with suppress(CallError):
                        it.call("echo", name=server.name)
                for answer in answers:
                    assert await answer.text() == f'{{"n": {number}}}'
            assert {name: it.upstreams[name].pid for name in pids} == pids
            for server in good:
                assert it.states(server.name) == [ServerState.STARTING, ServerState.READY]
            with trio.fail_after(PATIENCE):
                for server in broken:
                    await it.supervisor.children[server.name].status.wait_until(
                        lambda status: status.state in SERVING or bool(status.reason)
                    )


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
