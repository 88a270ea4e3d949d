"""The actor of one server, with real scripted children behind it."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from daemon.actors.upstream import UpstreamActor
from daemon.causes import Cause
from daemon.clients.connected_clients import ConnectedClients
from daemon.config.config_model import Server
from daemon.config.tuning import Timeouts
from daemon.counting.measures import NOISE_CHARACTERS, STDERR_LINE
from daemon.errors import Overloaded, UpstreamLost, UpstreamTimeout, UpstreamUnavailable
from daemon.model import Era
from daemon.processes.children import Children
from daemon.safety.redact import CUT, Redactor
from daemon.states import ServerState
from daemon.supervision.supervisor import WAKE_INTERVAL
from daemon.upstreams import server_lists
from daemon.upstreams.server_lists import EMPTY
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.wire.outbox import Outbox
from daemon.wire.requests import RemoteError
from tests.faults.stage import recording, scripted, stage
from tests.scripted_server import tool
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

BACKOFF, CRASHLOOP, DEGRADED, DORMANT, FAILED, READY, STARTING = (
    *(ServerState.BACKOFF, ServerState.CRASHLOOP, ServerState.DEGRADED, ServerState.DORMANT),
    *(ServerState.FAILED, ServerState.READY, ServerState.STARTING),
)
DIES = {"exit": 3, "never": True}
AT_ONCE = {"base": 0.01, "cap": 0.01, "floor": 0.0, "intensity": 1000}
"""Restarted without delay, for tests of what comes after."""

# --- eras ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("era", "spoken"),
    [("handshake", Era.HANDSHAKE), ("modern", Era.MODERN), ("both", Era.MODERN)],
)
async def test_a_server_is_spoken_to_in_its_own_era(era: str, spoken: Era, tmp_path: Path) -> None:
    timeouts = {"probe": PATIENCE}
    async with (
        recording(tmp_path) as record,
        stage(scripted(era=era, record=record.path, timeouts=timeouts)) as it,
    ):
        await it.ready()
        assert it.one.greeting is not None
        assert it.one.greeting.era is spoken
        assert await it.call("echo", a=1).text() == '{"a": 1}'
        assert bool(record.messages("initialize")) == (spoken is Era.HANDSHAKE)
        meta = (await record.wait_message("tools/call"))["params"].get("_meta", {})
        assert ("io.modelcontextprotocol/protocolVersion" in meta) == (spoken is Era.MODERN)


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32601, "message": "Method not found"}},
        {"error": {"code": -32602, "message": "Invalid request parameters"}},
        {"error": {"code": -32001, "message": "no session"}},
        {"error": {"code": 0, "message": ""}},
        {"result": {}},
        {"result": {"supportedVersions": ["1999-01-01"]}},
        {"result": None},
        {"never": True},
    ],
    ids=str,
)
async def test_whatever_is_answered_to_the_probe_the_older_era_works(
    answer: dict[str, Any], tmp_path: Path
) -> None:
    async with recording(tmp_path) as record:
        server = scripted(record=record.path, on={"server/discover": answer}, timeouts={"probe": 0.1})
        async with stage(server) as it:
            await it.ready()
            assert it.one.greeting is not None
            assert it.one.greeting.era is Era.HANDSHAKE
            assert len(record.all("start")) == 1


@pytest.mark.parametrize("death", [{"exit": 1}, {"exit": 0}, {"signal": "SIGKILL"}, {"close_stdout": True}])
async def test_a_server_that_dies_of_the_probe_twice_is_not_probed_any_more(
    death: dict[str, Any], tmp_path: Path
) -> None:
    async with recording(tmp_path) as record:
        on = {"server/discover": {**death, "never": True}}
        server = scripted(record=record.path, on=on, timeouts={"probe": PATIENCE}, restart=AT_ONCE)
        async with stage(server) as it:
            await it.ready(incarnation=2)
            # The first death may have had another reason, so the next run is probed again.
            it.one.child.restart()
            await it.ready(incarnation=4)
            it.one.child.restart()
            await it.ready(incarnation=5)
            assert [len(record.messages(m)) for m in ("server/discover", "initialize")] == [2, 3]


async def test_a_server_of_both_eras_whose_first_run_fails_is_modern_at_its_next_start(tmp_path: Path) -> None:
    runs = [{"on": {"start": {"exit": 1}}}, {}]
    server = scripted(era="both", count=str(tmp_path / "runs"), runs=runs, restart=AT_ONCE)
    async with stage(server) as it:
        await it.ready(incarnation=2)
        assert not it.one.is_modern
        it.one.child.restart()
        await it.ready(incarnation=3)
        assert it.one.is_modern


async def test_a_failing_start_runs_the_command_once_a_run(tmp_path: Path) -> None:
    async with recording(tmp_path) as record:
        server = scripted(record=record.path, on={"server/discover": DIES, "initialize": DIES}, restart=AT_ONCE)
        async with stage(server) as it:
            with trio.fail_after(PATIENCE):
                await it.one.child.status.wait_until(lambda status: status.restarts >= 3)
                status = it.one.child.status.value
            assert len(record.all("start")) <= status.incarnation
            # Whether the server died of the probe is tried in every other run.
            assert len(record.messages("server/discover")) >= 2
            assert len(record.messages("initialize")) >= 1


async def test_the_era_is_remembered_by_the_next_run(tmp_path: Path) -> None:
    async with recording(tmp_path) as record:
        async with stage(scripted(record=record.path, restart=AT_ONCE)) as it:
            for incarnation in (1, 2, 3):
                await it.ready(incarnation=incarnation)
                it.one.child.restart()
            await it.ready(incarnation=4)
        assert len(record.messages("server/discover")) == 1
        assert len(record.messages("initialize")) == 4


async def test_a_slow_answer_to_initialize_is_waited_for(tmp_path: Path) -> None:
    async with stage(scripted(on={"initialize": {"delay": 0.3}}, timeouts={"initialize": 5})) as it:
        await it.ready()
        assert it.states() == [STARTING, READY]


async def test_no_answer_to_initialize_ends_the_run_with_the_reason() -> None:
    server = scripted(on={"initialize": {"never": True}}, timeouts={"initialize": 0.1})
    async with stage(server) as it:
        await it.told("no answer to initialize within 0.1 s")


async def test_a_revision_nobody_speaks_ends_the_run_with_the_reason() -> None:
    async with stage(scripted(protocol="1999-01-01")) as it:
        await it.told("no common protocol version")


# --- the list -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_all_pages_reach_the_catalog_in_order(era: str) -> None:
    async with stage(scripted(era=era, tools=23, page=5)) as it:
        await it.ready()
        entry = await it.entry(lambda entry: entry.tools)
        assert list(entry.tools or ()) == [f"echo{number}" for number in range(23)]
        assert entry.epoch == 1


async def test_one_bad_tool_costs_itself_only() -> None:
    tools = [tool("good"), {"name": "bad"}, 7, {"inputSchema": {}}, tool("good"), tool("also good")]
    async with stage(scripted(tools=tools)) as it:
        await it.ready()
        entry = await it.entry(lambda entry: entry.tools)
        assert list(entry.tools or ()) == ["good", "also good"]
        assert set(entry.tool_list.quarantined) == {"bad", "(tool 3)", "(tool 4)", "good"}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ({"cursor": "same"}, "repeats the cursor"),
        (
            {"on": {"tools/list": {"error": {"code": -32603, "message": "database is down"}}}},
            "database is down",
        ),
        ({"on": {"tools/list": {"never": True}}, "timeouts": {"list": 0.1}}, "no answer to tools/list"),
        ({"on": {"tools/list": {"result": {}}}}, "answered something else"),
    ],
)
async def test_a_server_that_does_not_list_is_degraded_and_stays_up(
    script: dict[str, Any], reason: str
) -> None:
    """Its tools may be known from before, and work: a failed listing is no reason to end a connection."""
    async with stage(scripted(**script)) as it:
        assert reason in (await it.reach(DEGRADED)).reason
        assert reason in (await it.entry(lambda entry: entry.tool_list.problem)).tool_list.problem
        assert await it.call("echo").text() == "{}"


async def test_a_server_without_a_tool_is_degraded_and_says_so() -> None:
    async with stage(scripted(tools=[])) as it:
        assert attrs.evolve((await it.reach(DEGRADED)).why, remedy=None) == EMPTY


async def test_an_endless_list_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_lists, "MAX_PAGES", 50)
    async with stage(scripted(cursor="endless", tools=1)) as it:
        entry = await it.entry(lambda entry: entry.tool_list.problem)
        assert "more than 50 pages" in entry.tool_list.problem


async def test_a_server_that_is_good_for_something_else_is_ready_without_tools() -> None:
    script: dict[str, Any] = {
        "no_tools": True,
        "on": {"tools/list": {"error": {"code": -32601, "message": ""}}},
    }
    async with stage(scripted(**script)) as it:
        await it.ready()
        assert (await it.entry(lambda entry: entry.tools is not None)).tools == {}


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_burst_of_changes_is_listed_once(era: str, tmp_path: Path) -> None:
    async with recording(tmp_path) as record:
        lists = [["a"], ["a", "b"], ["never"]]
        async with stage(scripted(era=era, record=record.path, lists=lists)) as it:
            await it.ready()
            if era == "modern":
                await record.wait_message("subscriptions/listen")
            await it.call("announce", count=50).wait()
            entry = await it.entry(lambda entry: entry.epoch == 2)
            assert list(entry.tools or ()) == ["a", "b"]
            await it.call("echo").wait()
        assert len(record.messages("tools/list")) == 2


async def test_changes_announced_right_after_initialized_are_listed_again(tmp_path: Path) -> None:
    """Real servers say so up to four times, some before the first list is answered."""
    async with recording(tmp_path) as record:
        async with stage(scripted(record=record.path, changes=4, lists=[["a"], ["b"]])) as it:
            await it.entry(lambda entry: entry.epoch == 2)
            await it.call("echo").wait()
        assert len(record.messages("tools/list")) == 2


async def test_the_list_is_refreshed_when_it_is_old() -> None:
    async with stage(scripted(lists=[["a"], ["a", "b"]], timeouts={"refresh": 0.05})) as it:
        entry = await it.entry(lambda entry: entry.epoch == 2)
        assert list(entry.tools or ()) == ["a", "b"]


async def test_an_unchanged_list_is_no_new_epoch(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, timeouts={"refresh": 0.01}, restart=AT_ONCE)) as it,
    ):
        await record.wait_message("tools/list", 3)
        it.one.child.restart()
        await it.ready(incarnation=2)
        assert (await it.entry(lambda entry: entry.tools)).epoch == 1


async def test_tools_that_changed_while_it_was_down_are_a_new_epoch(tmp_path: Path) -> None:
    runs = [{"tools": ["a"]}, {"tools": ["b"]}]
    async with stage(scripted(runs=runs, count=str(tmp_path / "runs"), restart=AT_ONCE)) as it:
        await it.ready()
        it.one.child.restart()
        entry = await it.entry(lambda entry: entry.epoch == 2)
        assert list(entry.tools or ()) == ["b"]


# --- health -------------------------------------------------------------------------------------------------

PINGS = {"ping_interval": 0.05, "ping": PATIENCE, "missed_pings": 3}


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_silent_server_is_pinged(era: str, tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(era=era, record=record.path, timeouts=PINGS)) as it,
    ):
        await it.ready()
        await record.wait_message("ping" if era == "handshake" else "server/discover", 4)
        assert it.states() == [STARTING, READY]


async def test_missed_pings_end_the_connection() -> None:
    async with stage(scripted(on={"ping": {"never": True}}, timeouts={**PINGS, "ping": 0.2})) as it:
        await it.ready()
        await it.told("no answer to 3 pings of 0.2 s")


async def test_a_refused_ping_is_a_sign_of_life(tmp_path: Path) -> None:
    refused = {"error": {"code": -32601, "message": "what is a ping"}}
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, on={"ping": refused}, timeouts=PINGS)) as it,
    ):
        await it.ready()
        await record.wait_message("ping", 6)
        assert it.states() == [STARTING, READY]


async def test_missed_pings_in_between_do_not_add_up(tmp_path: Path) -> None:
    on = {"ping": [{"never": True}, None] * 2 + [None]}
    timeouts = {**PINGS, "ping": 1.0, "missed_pings": 2}
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, on=on, timeouts=timeouts)) as it,
    ):
        await it.ready()
        await record.wait_message("ping", 5)
        assert it.states()[:6] == [STARTING, READY, DEGRADED, READY, DEGRADED, READY]


async def test_a_stopped_server_is_degraded_and_ready_when_it_goes_on(tmp_path: Path) -> None:
    timeouts = {"ping_interval": 0.05, "ping": 0.2, "missed_pings": 10_000}
    async with stage(scripted(timeouts=timeouts)) as it:
        await it.ready()
        os.kill(it.one.pid or 0, signal.SIGSTOP)
        status = await it.reach(DEGRADED)
        assert status.cause is Cause.UNANSWERED_PINGS
        assert "answers no pings" in status.reason
        os.kill(it.one.pid or 0, signal.SIGCONT)
        await it.reach(READY)
        assert it.one.child.status.value.incarnation == 1
        assert await it.call("echo").text() == "{}"


async def test_a_stopped_server_with_a_call_is_degraded_too_and_the_call_goes_on(tmp_path: Path) -> None:
    timeouts = {"ping_interval": 0.05, "ping": 0.2, "missed_pings": 1}
    async with stage(scripted(timeouts=timeouts)) as it:
        await it.ready()
        os.kill(it.one.pid or 0, signal.SIGSTOP)
        answer = it.call("echo")
        status = await it.reach(DEGRADED)
        assert status.cause_data["calls"] == 1
        assert "while it works on 1 call" in status.reason
        os.kill(it.one.pid or 0, signal.SIGCONT)
        assert await answer.text() == "{}"
        await it.reach(READY)
        assert it.one.child.status.value.incarnation == 1


async def test_a_server_busy_with_a_call_is_not_given_up_for_missed_pings(tmp_path: Path) -> None:
    """A single-threaded server cannot answer a ping while it works."""
    timeouts = {**PINGS, "ping": 0.1, "missed_pings": 2}
    async with recording(tmp_path) as record:
        server = scripted(record=record.path, on={"ping": {"never": True}}, timeouts=timeouts)
        async with stage(server) as it:
            await it.ready()
            answer = it.call("sleep")
            await record.wait_message("ping", 4)
            status = await it.reach(DEGRADED)
            assert "while it works on 1 call" in status.reason
            assert status.incarnation == 1
            assert not answer.done


# --- calls --------------------------------------------------------------------------------------------------


async def test_results_and_errors_are_the_servers_own() -> None:
    async with stage(scripted()) as it:
        await it.ready()
        assert (await it.call("fail").wait())["isError"] is True
        with pytest.raises(RemoteError, match="I refuse"):
            await it.call("refuse").wait()
        assert await it.call("bytes", count=3_000_000).text() == "x" * 3_000_000


async def test_a_call_without_life_times_out_and_is_cancelled_at_the_server(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, timeouts={"call": 0.1})) as it,
    ):
        await it.ready()
        with pytest.raises(UpstreamTimeout, match=r"showed no life for 0\.1 s"):
            await it.call("sleep").wait()
        await record.wait("cancelled")
        assert it.states() == [STARTING, READY]


async def test_progress_keeps_a_call_alive() -> None:
    async with stage(scripted(timeouts={"call": 1.0})) as it:
        await it.ready()
        answer = it.call("progress", progress=True, count=12, interval=0.1)
        assert await answer.text() == "awake"
        assert len(answer.progress) == 12


async def test_progress_does_not_keep_a_call_alive_beyond_the_maximum(tmp_path: Path) -> None:
    async with recording(tmp_path) as record:
        server = scripted(record=record.path, timeouts={"call": 0.1, "call_max": 0.25})
        async with stage(server) as it:
            await it.ready()
            with pytest.raises(UpstreamTimeout):
                await it.call("progress", progress=True, count=10_000, interval=0.02).wait()
            await record.wait("cancelled")


async def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    async with recording(tmp_path) as record, stage(scripted(record=record.path)) as it:
        await it.ready()
        answer = it.call("sleep")
        await record.wait_message("tools/call")
        it.one.cancel(answer.key, "no longer wanted")
        it.outbox.flush()
        await record.wait("cancelled")
        assert it.one.in_flight == 0
        assert not answer.done


async def test_a_cancel_of_an_earlier_connections_call_is_ignored(tmp_path: Path) -> None:
    """Ids start anew with each connection: the same id is somebody else's call by then."""
    async with recording(tmp_path) as record, stage(scripted(record=record.path, restart=AT_ONCE)) as it:
        await it.ready()
        old = it.call("sleep")
        it.one.child.restart()
        with pytest.raises(UpstreamLost):
            await old.wait()
        await it.ready(incarnation=2)
        new = [it.call("sleep", seconds=0.3) for _ in range(5)]
        assert old.key not in {answer.key for answer in new}
        it.one.cancel(old.key, "late")
        it.outbox.flush()
        assert [await answer.text() for answer in new] == ["awake"] * 5
        assert not record.all("cancelled")


async def test_calls_beyond_the_limit_are_refused_until_one_ends(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, limits={"in_flight": 3, "queue": 2})) as it,
    ):
        await it.ready()
        held = [it.call("sleep") for _ in range(5)]
        with pytest.raises(Overloaded, match="works on 3 calls, 2 are in line"):
            it.call("echo")
        for answer in held[:3]:
            it.one.cancel(answer.key, "make room")
        assert await it.call("echo").text() == "{}"


async def test_a_server_works_on_no_more_calls_at_once_than_its_limit(tmp_path: Path) -> None:
    """`limits.inFlight` is what it works on at the same time; what is beyond waits on our side."""
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, limits={"in_flight": 2, "queue": 10})) as it,
    ):
        await it.ready()
        for _ in range(6):
            it.call("sleep")
        await record.wait_message("tools/call", 2)
        with trio.move_on_after(0.3):
            await record.wait_message("tools/call", 3)
            pytest.fail("more than two at once")


async def test_sending_to_a_server_that_is_down_says_why_and_when_it_is_tried_again() -> None:
    async with stage(scripted(on={"start": {"exit": 3}}, restart={"base": 50.0})) as it:
        await it.reach(BACKOFF)
        with trio.fail_after(PATIENCE):
            await it.one.child.status.wait_until(lambda status: status.next_retry_at is not None)
        with pytest.raises(UpstreamUnavailable) as raised:
            it.call("echo")
        details = raised.value.details
        assert (details["server"], details["state"], details["attempt"]) == ("s", "backoff", 1)
        assert details["reason"] == "exited with status 3"
        retry = details["nextRetryInMs"]
        assert isinstance(retry, int)
        assert 20_000 < retry <= 50_000
        assert "exited with status 3" in raised.value.message
        assert "was not sent" in raised.value.message


@pytest.mark.parametrize(
    ("command", "words"),
    [("/no/such/program", "command not found"), ("/dev/null", "Permission denied")],
)
async def test_a_server_that_cannot_start_is_parked_with_words_for_the_operator(
    command: str, words: str
) -> None:
    broken = Server(name="s", command=command, timeouts=Timeouts(wake=3 * PATIENCE))
    async with stage(broken) as it:
        assert words in (await it.reach(FAILED)).reason
        assert not it.one.can_wake
        with trio.fail_after(PATIENCE):
            assert not await it.one.wake()
        with pytest.raises(UpstreamUnavailable, match="tell the user"):
            it.call("echo")


async def test_a_call_wakes_a_server_out_of_its_backoff(tmp_path: Path) -> None:
    # It dies when it may be woken again, and after the probe: of that it would be started anew at once.
    runs = [{"on": {"initialize": {"delay": WAKE_INTERVAL, "exit": 1}}}, {}]
    timeouts = {"probe": PATIENCE, "wake": PATIENCE}
    count = str(tmp_path / "runs")
    async with stage(scripted(runs=runs, count=count, restart={"base": 60.0}, timeouts=timeouts)) as it:
        await it.reach(BACKOFF)
        with trio.fail_after(PATIENCE):
            await it.one.child.status.wait_until(lambda status: status.next_retry_at is not None)
        results: list[bool] = []

        async def wake() -> None:
            results.append(await it.one.wake())

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(wake)
        assert results == [True] * 50
        assert (tmp_path / "runs").read_bytes() == b".."


async def test_a_wake_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    runs = [{}, {"on": {"initialize": {"never": True}}}]
    server = scripted(runs=runs, count=str(tmp_path / "runs"), timeouts={"wake": 0.1, "initialize": 60})
    async with stage(server) as it:
        await it.ready()
        it.one.child.restart()
        await it.one.child.status.wait_until(lambda status: status.incarnation == 2)
        before = trio.current_time()
        with trio.fail_after(PATIENCE):
            assert not await it.one.wake()
        assert trio.current_time() - before >= 0.1


async def test_a_call_waits_for_a_first_start_and_who_asks_for_its_tools_once() -> None:
    server = scripted(on={"initialize": {"delay": 0.5}}, timeouts={"wake": 0.01, "probe": PATIENCE})
    async with stage(server) as it:
        await it.reach(STARTING)
        with trio.fail_after(PATIENCE):
            assert not await it.one.wake_to_list()
            assert it.one.outlook == "server s is starting"
            assert await it.one.wake()
            assert await it.one.wake_to_list()


async def test_a_lazy_server_is_started_by_its_first_call() -> None:
    async with stage(scripted(lazy=True)) as it:
        await it.reach(DORMANT)
        with pytest.raises(UpstreamUnavailable):
            it.call("echo")
        with trio.fail_after(PATIENCE):
            assert await it.one.wake()
        assert await it.call("echo").text() == "{}"


# --- what a server says -------------------------------------------------------------------------------------


async def test_noise_is_counted_and_degrades_only_in_masses() -> None:
    async with stage(scripted(stdout="Welcome!\n\n\x1b[1mhi\x1b[0m\n")) as it:
        await it.ready()
        assert (it.one.noise.count, it.one.noise.first) == (2, "Welcome!")
        await it.call("noise", count=10).wait()
        assert it.states() == [STARTING, READY]
        await it.call("noise", count=1100, text="debug: x").wait()
        assert "floods its stdout" in (await it.reach(DEGRADED)).reason
        assert await it.call("echo").text() == "{}"


@pytest.mark.parametrize("shown", [1, 12, 24])
async def test_no_part_of_a_secret_is_kept_of_a_line_that_is_cut(shown: int) -> None:
    secret = "canary-0123456789-abcdefg"
    upstream = UpstreamActor(
        Server(name="one", command="x"),
        outbox=Outbox(),
        opening=partial(OpenContext, outbox=Outbox(), children=Children()),
        tell=lambda _fact: None,
        wall=lambda: 0.0,
        redact=Redactor([secret]),
        subscribers=ConnectedClients(),
    )
    line = f"{'x' * (STDERR_LINE - shown)}{secret} and more"
    upstream.events.on_log(line.encode())
    assert upstream.access.stderr.last(1) == ["x" * (STDERR_LINE - shown) + CUT]
    upstream.events.on_noise(line[STDERR_LINE - NOISE_CHARACTERS :].encode(), "no JSON")
    assert upstream.access.noise.first == "x" * (NOISE_CHARACTERS - shown) + CUT


async def test_a_flood_that_ended_is_forgiven() -> None:
    """Degraded by noise; ready again once a listing has gone well in quiet."""
    async with stage(scripted(timeouts={"refresh": 0.3})) as it:
        await it.ready()
        await it.call("noise", count=1100).wait()
        await it.reach(DEGRADED)
        await it.reach(READY)


async def test_requests_of_a_server_are_answered_at_once(tmp_path: Path) -> None:
    requests = ["roots/list", "ping", "sampling/createMessage"]
    async with recording(tmp_path) as record, stage(scripted(record=record.path, requests=requests)) as it:
        await it.ready()
        answers: dict[str, Any] = {}

        def all_answered() -> bool:
            for event in record.all("message"):
                if "method" not in (message := event["message"]):
                    answers[message["id"]] = message
            return len(answers) == 3

        await record.until(all_answered)
    assert answers["srv-1"]["result"] == {}
    assert {answers[name]["error"]["code"] for name in ("srv-0", "srv-2")} == {-32600}


async def test_the_last_words_on_stderr_are_kept_over_restarts() -> None:
    async with stage(scripted(stderr="FATAL: no licence\n", on={"start": {"exit": 1}})) as it:
        await it.reach(BACKOFF)
        assert it.one.stderr.last(1) == ["FATAL: no licence"]


async def test_the_child_is_known_while_it_lives(tmp_path: Path) -> None:
    async with recording(tmp_path) as record:
        async with stage(scripted(record=record.path, restart={"base": 60.0})) as it:
            await it.ready()
            assert it.one.pid == record.all("start")[0]["pid"]
            assert int(await it.call("pid").text()) == it.one.pid
            os.kill(it.one.pid, signal.SIGKILL)
            await it.reach(BACKOFF)
            with trio.fail_after(PATIENCE):
                await it.one.child.status.wait_until(lambda status: status.next_retry_at is not None)
            assert not it.one.children
        assert json.dumps(repr(it.one)) == '"<Upstream s: down, 0 calls>"'


async def test_the_end_of_a_run_is_known_before_its_clean_up_is_over() -> None:
    """A child that will not stop must not make callers wait for the news."""
    server = scripted(ignore=["term", "eof"], timeouts={"stop_eof": 3 * PATIENCE, "stop_term": 3 * PATIENCE})
    async with stage(server) as it:
        await it.ready()
        with pytest.raises(UpstreamLost):
            await it.call("act", close_stdout=True, never=True).wait()
        await it.reach(BACKOFF)
        with pytest.raises(UpstreamUnavailable):
            it.call("echo")
        it.children.hurry()
