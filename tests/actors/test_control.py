"""What operators ask over their socket, and what they get."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trio.testing

from daemon.actors.control import CONFIG_FAULT, IDLE_SECONDS, Control, Operations
from daemon.cataloguing import ListingStatus
from daemon.config.redactors import Redactors
from daemon.config.tuning import Restart
from daemon.errors import ConfigError, Fault, UpstreamLost
from daemon.measures import CallStats, Noise, StderrTail
from daemon.operating import Refused
from daemon.report import DaemonFacts, Reporter
from daemon.supervision.supervisor import ChildSpec, Supervisor
from daemon.wire.link import FdLink
from tests.fakes_upstream import Client, Stage, error_of, keep

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

    from daemon.supervision.supervisor import Lifecycle
    from daemon.transports.handshake import Greeting


@attrs.define
class FakeObserved:
    """What a report looks at of a server."""

    stats: CallStats = attrs.field(factory=CallStats)
    noise: Noise = attrs.field(factory=Noise)
    stderr: StderrTail = attrs.field(factory=StderrTail)
    greeting: Greeting | None = None
    pid: int | None = None
    mark: int | None = None
    in_flight: int = 0
    standing: ListingStatus = attrs.field(factory=ListingStatus)


class Desk:
    """A daemon for operators: its servers are fakes, its children only say that they are ready."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.runs = 0
        self.supervisor = Supervisor(
            [ChildSpec(name=name, run=self._live, policy=Restart()) for name in self.stage.upstreams],
            starts=4,
            on_status=lambda _name, _status: None,
            rng=lambda: 0.5,
            wall=time.time,
        )

    async def _live(self, lifecycle: Lifecycle) -> None:
        self.runs += 1
        lifecycle.ready()
        await trio.sleep_forever()

    def reporter(self) -> Reporter:
        facts = DaemonFacts(
            version="1", pid=os.getpid(), started_at=time.time(), socket="s", control_socket="c", config="f"
        )
        return Reporter(
            facts=facts,
            config=lambda: self.stage.catalog.value.config,
            catalog=lambda: self.stage.catalog.value,
            upstreams={name: FakeObserved() for name in self.stage.upstreams},
            sessions=list,
            surfaces=self.stage.context.surfaces,
            means=self.stage.means,
            mended=self.stage.mended,
            redact=Redactors(),
            wall=time.time,
        )

    async def connect(self, nursery: trio.Nursery, reporter: Reporter | None = None, **offered: Any) -> Client:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        fd = ours.detach()
        outbox = self.stage.outbox
        link = FdLink(fd, fd, outbox=outbox, max_line=1 << 20, max_queue=8 << 20)
        operations = Operations(
            reporter=reporter or self.reporter(),
            upstreams=self.stage.upstreams,
            children=self.supervisor.children,
            outbox=outbox,
            **offered,
        )
        client = Client(theirs)
        nursery.start_soon(_serve, Control(link, operations), link)
        nursery.start_soon(keep, client)
        return client


async def _serve(control: Control, link: FdLink) -> None:
    with pytest.raises(Exception, match=r"closed the connection|no request for 30 s"):
        await control.run()
    link.close()


async def call(client: Client, server: str, tool: str, *, request_id: object = 1, **params: object) -> None:
    await client.ask("call", {"server": server, "tool": tool, **params}, request_id=request_id)


async def test_status_reports_the_daemon_its_servers_and_sessions(nursery: trio.Nursery) -> None:
    client = await Desk().connect(nursery)
    status = (await client.request("status"))["result"]
    assert {"daemon", "servers", "sessions"} <= status.keys()
    assert status["servers"]["alpha"]["state"] == "ready"


async def test_tools_reports_all_categories_or_one(nursery: trio.Nursery) -> None:
    client = await Desk().connect(nursery)
    everything = (await client.request("tools"))["result"]
    assert list(everything["categories"]) == ["alpha", "beta"]
    assert everything["surface"]["tools"][0]["name"] == "get-category-tools"
    one = (await client.request("tools", {"category": "beta"}))["result"]
    assert list(one["categories"]) == ["beta"]
    assert list(one["categories"]["beta"]["tools"]) == ["echo", "add"]


async def test_call_runs_a_tool_and_passes_its_result_unopened(nursery: trio.Nursery) -> None:
    desk = Desk()
    client = await desk.connect(nursery)
    await call(client, "alpha", "echo", arguments={"n": 1})
    sent = await desk.stage.alpha.wait_sent()
    assert (sent.tool, sent.arguments, sent.call.wants_progress) == ("echo", {"n": 1}, False)
    desk.stage.progress(sent, progress=1)
    desk.stage.answer(sent, b'{ "n":123456789012345678901234567890}')
    assert await client.line() == b'{"jsonrpc":"2.0","id":1,"result":{ "n":123456789012345678901234567890}}'
    assert [ok for _, ok in desk.stage.alpha.recorded] == [True]


async def test_call_without_arguments_sends_an_empty_object(nursery: trio.Nursery) -> None:
    desk = Desk()
    client = await desk.connect(nursery)
    await call(client, "alpha", "echo")
    assert (await desk.stage.alpha.wait_sent()).raw_arguments == b"{}"


@pytest.mark.parametrize("arguments", [[], 5, "text", None])
async def test_call_with_arguments_that_are_no_object_sends_nothing(
    nursery: trio.Nursery, arguments: object
) -> None:
    """A client's call is refused here (callpath); an operator's typo must not reach the server either."""
    desk = Desk()
    desk.stage.alpha.on_send = lambda sent: sent.exchange.answered(b"{}")
    client = await desk.connect(nursery)
    await call(client, "alpha", "echo", arguments=arguments)
    answer = await client.get()
    assert not desk.stage.alpha.sent
    assert "error" in answer or answer["result"]["isError"]


async def test_the_error_of_a_server_is_told(nursery: trio.Nursery) -> None:
    desk = Desk()
    client = await desk.connect(nursery)
    await call(client, "alpha", "echo", request_id=1)
    desk.stage.refuse(
        await desk.stage.alpha.wait_sent(1), b'{"code":-32602,"message":"not like this","data":7}'
    )
    error = error_of(await client.get())
    assert error["code"] == "UpstreamCallError"
    assert "not like this (-32602)" in error["message"]
    await call(client, "alpha", "echo", request_id=2)
    desk.stage.lose(await desk.stage.alpha.wait_sent(2), UpstreamLost("it died"))
    assert error_of(await client.get())["code"] == "UpstreamLost"
    assert [ok for _, ok in desk.stage.alpha.recorded] == [False, False]


async def test_a_call_to_an_unknown_server_names_the_closest(nursery: trio.Nursery) -> None:
    client = await Desk().connect(nursery)
    await call(client, "alfa", "echo")
    error = error_of(await client.get())
    assert error["code"] == "UnknownServer"
    assert "Did you mean alpha?" in error["message"]
    await call(client, "zzz", "echo")
    assert "There are: alpha, beta." in error_of(await client.get())["message"]


async def test_a_call_wakes_a_server_that_is_down(nursery: trio.Nursery) -> None:
    desk = Desk()
    desk.stage.alpha.up = False
    client = await desk.connect(nursery)
    await call(client, "alpha", "echo")
    await desk.stage.alpha.wait_woken()
    desk.stage.alpha.come_up()
    desk.stage.answer(await desk.stage.alpha.wait_sent())
    assert "content" in (await client.get())["result"]


@pytest.mark.parametrize("wakeable", [True, False])
async def test_a_call_to_a_server_that_stays_down_says_so(
    nursery: trio.Nursery, autojump_clock: MockClock, wakeable: bool
) -> None:
    desk = Desk()
    desk.stage.upstreams["alpha"].up = False
    desk.stage.upstreams["alpha"].can_wake = wakeable
    client = await desk.connect(nursery)
    await call(client, "alpha", "echo")
    assert error_of(await client.get())["code"] == "UpstreamUnavailable"
    assert desk.stage.alpha.woken == wakeable


async def test_a_slow_call_holds_up_nothing_else(nursery: trio.Nursery) -> None:
    desk = Desk()
    client = await desk.connect(nursery)
    await call(client, "alpha", "echo", request_id="slow")
    sent = await desk.stage.alpha.wait_sent()
    assert (await client.request("status", request_id="quick"))["id"] == "quick"
    assert (await client.request("tools", request_id="tools"))["id"] == "tools"
    desk.stage.answer(sent)
    assert (await client.get())["id"] == "slow"


async def test_an_operator_who_goes_away_gives_the_call_up(nursery: trio.Nursery) -> None:
    desk = Desk()
    client = await desk.connect(nursery)
    await call(client, "alpha", "echo")
    sent = await desk.stage.alpha.wait_sent()
    client.close()
    await desk.stage.alpha.wait_cancelled()
    assert [key for key, _ in desk.stage.alpha.cancelled] == [sent.key]


async def test_restart_starts_a_server_afresh(nursery: trio.Nursery) -> None:
    desk = Desk()
    nursery.start_soon(desk.supervisor.run)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.runs == 2
    client = await desk.connect(nursery)
    answer = await client.request("restart", {"server": "alpha"})
    assert answer["result"]["server"] == "alpha"
    with trio.fail_after(30):
        await desk.supervisor.children["alpha"].status.wait_until(
            lambda status: status.incarnation == 2 and str(status.state) == "ready"
        )
    assert desk.runs == 3


@pytest.mark.parametrize(
    ("method", "params", "code", "hint"),
    [
        ("restart", {"server": "alpa"}, -32602, "Did you mean alpha?"),
        ("restart", {}, -32602, "server"),
        ("restart", {"server": 7}, -32602, "Expected `str`"),
        ("call", {"server": "alpha"}, -32602, "tool"),
        ("call", None, -32602, "server"),
        ("tools", {"category": 7}, -32602, "category"),
        ("tools", [1], -32602, "params must be an object"),
        ("reboot", {}, -32601, "status, tools, search, call, restart, reload, switch, refresh"),
        ("switch", {"name": "alpha"}, -32602, "off"),
        ("switch", {"name": "alpha", "off": 1}, -32602, "Expected `bool`"),
        ("refresh", {"server": 1}, -32602, "Expected `str | null`"),
        ("reload", {}, -32602, "does not offer"),
        ("metrics", {}, -32602, "does not offer"),
    ],
)
async def test_a_wrong_question_is_refused_with_what_would_be_right(
    nursery: trio.Nursery, method: str, params: object, code: int, hint: str
) -> None:
    client = await Desk().connect(nursery)
    answer = await client.request(method, params)
    assert (answer["id"], answer["error"]["code"]) == (1, code)
    assert hint in answer["error"]["message"]
    assert "result" in await client.request("tools", request_id=2)


@pytest.mark.parametrize("line", [b"garbage", b"[]", b'{"id":1.5,"jsonrpc":"2.0","method":"status"}', b"\xff"])
async def test_garbage_is_refused_and_the_connection_kept(nursery: trio.Nursery, line: bytes) -> None:
    client = await Desk().connect(nursery)
    await client.send(line)
    assert (await client.get())["error"]["code"] in {-32700, -32600}
    await client.tell("anything", {})
    assert "result" in await client.request("status", request_id=2)


async def test_a_server_that_is_switched_off_is_not_restarted(nursery: trio.Nursery) -> None:
    desk = Desk()
    nursery.start_soon(desk.supervisor.run)
    desk.supervisor.children["alpha"].switch_off("switched off by an operator")
    await trio.testing.wait_all_tasks_blocked()
    client = await desk.connect(nursery)
    answer = await client.request("restart", {"server": "alpha"})
    assert "server alpha is switched off by an operator" in answer["error"]["message"]
    assert desk.runs == 1


async def test_words_are_handed_on_and_their_answers_back(nursery: trio.Nursery) -> None:
    heard: list[object] = []

    async def reload() -> object:
        return {"added": ["a"]}

    async def switch(reference: str, *, off: bool) -> object:
        heard.append((reference, off))
        return {"off": off}

    async def one(name: str | None) -> object:
        heard.append(name)
        return {"of": name}

    async def metrics() -> object:
        return {"text": "x 1"}

    client = await Desk().connect(
        nursery, reload=reload, switch=switch, refresh=one, sessions=one, metrics=metrics
    )
    asked: list[tuple[str, dict[str, object], dict[str, object]]] = [
        ("reload", {}, {"added": ["a"]}),
        ("switch", {"name": "git/x", "off": True}, {"off": True}),
        ("refresh", {"server": "git"}, {"of": "git"}),
        ("refresh", {}, {"of": None}),
        ("sessions", {"key": "k"}, {"of": "k"}),
        ("sessions", {"key": None}, {"of": None}),
        ("metrics", {}, {"text": "x 1"}),
    ]
    for method, params, result in asked:
        assert (await client.request(method, params))["result"] == result
    assert heard == [("git/x", True), "git", None, "k", None]


async def test_a_faulty_configuration_is_told_with_every_fault(nursery: trio.Nursery) -> None:
    async def reload() -> object:
        raise ConfigError(
            "/etc/mcpd.json", [Fault(path="$.a", message="one"), Fault(path="$.b", message="two")]
        )

    error = (await (await Desk().connect(nursery, reload=reload)).request("reload"))["error"]
    assert (error["code"], error["message"].splitlines()[0]) == (CONFIG_FAULT, "/etc/mcpd.json: 2 faults")
    faults = [{"path": "$.a", "message": "one"}, {"path": "$.b", "message": "two"}]
    assert error["data"] == {"source": "/etc/mcpd.json", "faults": faults}


async def test_a_word_that_cannot_be_obeyed_is_answered_with_the_reason(nursery: trio.Nursery) -> None:
    async def reload() -> object:
        raise Refused("mcpd is shutting down")

    error = (await (await Desk().connect(nursery, reload=reload)).request("reload"))["error"]
    assert (error["code"], error["message"]) == (-32602, "mcpd is shutting down")


async def test_a_bug_in_a_report_costs_one_answer(nursery: trio.Nursery) -> None:
    def broken() -> Any:
        raise KeyError("a bug")

    desk = Desk()
    client = await desk.connect(nursery, attrs.evolve(desk.reporter(), catalog=broken))
    ask: list[Callable[[], Awaitable[Any]]] = [
        lambda: client.request("status"),
        lambda: client.request("tools"),
    ]
    for request in ask:
        assert (await request())["error"]["code"] == -32603
    await call(client, "nowhere", "echo")
    assert error_of(await client.get())["code"] == "UnknownServer"


async def test_who_asks_nothing_is_shown_out(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    client = await Desk().connect(nursery)
    await trio.sleep(2 * IDLE_SECONDS)
    assert await client.is_closed()


async def test_who_waits_for_an_answer_or_asks_again_stays(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    desk = Desk()
    client = await desk.connect(nursery)
    await call(client, "alpha", "echo", request_id="slow")
    sent = await desk.stage.alpha.wait_sent()
    await trio.sleep(10 * IDLE_SECONDS)
    desk.stage.answer(sent)
    assert (await client.get())["id"] == "slow"
    for number in range(4):
        await trio.sleep(0.9 * IDLE_SECONDS)
        assert (await client.request("tools", request_id=number))["id"] == number
