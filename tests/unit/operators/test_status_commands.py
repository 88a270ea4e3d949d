"""The shape of `mcpd status`: other people's programs read them (design.md §6)."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import msgspec
import pytest
import trio
from trio.testing import MockClock

from daemon.audit.audit_log import Audit, Chain
from daemon.audit.record import ChainHead
from daemon.causes import Cause, Reason
from daemon.config.config_model import Summaries
from daemon.config.hosts import HostRefusal
from daemon.config.redaction import Redactors
from daemon.config.sandbox_keys import SandboxMode, sandbox_in_force
from daemon.config.tuning import AuditKeys, Timeouts
from daemon.counting.recent_calls import MinuteOfDaemon, MinuteOfServer
from daemon.errors import UnknownServer, UpstreamTimeout
from daemon.facts import Configured, DefinitionsListed, ServerRecord, Summarized, Switched
from daemon.history.event import Event, EventKind
from daemon.history.journal import History
from daemon.kit.waiting import Watch
from daemon.model import Era, Kind, Summary
from daemon.operators import news, status_commands
from daemon.operators.base import DaemonFacts, NoParams
from daemon.operators.call_commands import last_hour
from daemon.ports import UpstreamConnection
from daemon.safety.redact import Redactor
from daemon.sandbox.egress import SeenHost, SeenHosts
from daemon.state.health import Condition, Persistence
from daemon.state.sql import StoreCause
from daemon.states import ServerState
from daemon.surfaces.full import FullSurface
from daemon.surfaces.surface import View
from daemon.surfaces.table import SURFACES
from daemon.upstreams.handshake import Greeting, Keepalive
from daemon.upstreams.server_lists import EMPTY, ListingStatus
from tests.fakes_upstream import Stage, tool, tools_of
from tests.unit.cases import rows_of
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import (
    SESSION,
    FakeArchive,
    FakeServer,
    FakeSession,
    OperatorStage,
    clients_of,
    operator_context,
)
from tests.unit.state.samples import definition

NOW = 1_800_000_000.0
PROMISED = {
    *("state", "since", "attempt", "nextRetryInMs", "reason", "cause", "causeData"),
    *("stderr", "pid", "rssBytes"),
    *("tools", "epoch", "restarts", "calls", "p50Ms", "p95Ms"),
}
CANARY = "canary-1234567"

GREETING = Greeting(era=Era.HANDSHAKE, version="2025-11-25", lists_tools=True, server_info="alpha 1")

FACTS = DaemonFacts(
    version="1.2",
    pid=4711,
    started_at=NOW - 60.5,
    socket="/s",
    control_socket="/c",
    config="/f",
    directory="/home/me",
    state="/state",
    environ={"TOKEN": CANARY, "PATH": "/bin"},
)
WELL = Persistence(state=Condition.OK, since=NOW - 2.00049, where="/var/lib/mcpd/mcpd.db")


class Daemon:
    """A daemon over a stage, with one server that runs."""

    def __init__(self, stage: Stage | None = None, **changed: Any) -> None:
        self.stage = stage or Stage()
        self.alpha = FakeServer("alpha")
        self.archive = FakeArchive(persistence=Watch(WELL))
        given: dict[str, Any] = {
            "facts": FACTS,
            "upstreams": {"alpha": self.alpha},
            "archive": self.archive,
            "clients": clients_of(FakeSession(SESSION)),
            "redact": Redactors([CANARY]),
            "wall": lambda: NOW,
        }
        self.context = operator_context(self.stage, **{**given, **changed})

    def status(self, memory: dict[int, int] | None = None) -> dict[str, Any]:
        """As it goes over the wire."""
        status: dict[str, Any] = json.loads(
            msgspec.json.encode(status_commands.status_with(self.context, memory or {}))
        )
        return status

    def server(self, memory: dict[int, int] | None = None) -> dict[str, Any]:
        alpha: dict[str, Any] = self.status(memory)["servers"]["alpha"]
        return alpha


async def test_the_status_has_the_promised_keys_also_over_the_socket(nursery: trio.Nursery) -> None:
    client = await OperatorStage().connect(nursery)
    status = (await client.request("status"))["result"]
    assert list(status) == [
        *("daemon", "servers", "sessions", "repairs", "unresolved", "switchedOff", "metrics", "connections"),
        "lately",
    ]
    assert list(status["servers"]) == ["alpha", "beta"]
    alpha, beta = Daemon().status()["servers"].values()
    assert alpha.keys() == beta.keys() == status["servers"]["beta"].keys() >= PROMISED
    one = (await client.request("status", {"server": "beta"}))["result"]["server"]
    assert one.keys() == alpha.keys()
    refused = await client.request("status", {"server": "gamma"})
    assert "gamma" in refused["error"]["message"]


async def test_the_daemon_tells_what_it_is_and_what_it_saves() -> None:
    daemon = Daemon()
    daemon.stage.lists("alpha", *(tool(f"tool_{n}", description="long " * 200) for n in range(20)))
    told = daemon.status()["daemon"]
    entries = daemon.stage.catalog.value.servers.values()
    schemas = sum(len(one.raw) for entry in entries for one in (entry.tools or {}).values())
    shown, offered = told["surfaceBytes"], told["offeredBytes"]
    sizes = {"schemaBytes": schemas, "offeredBytes": offered, "surfaceBytes": shown}
    computed = {**sizes, "estimatedTokensSaved": (offered - shown) // 4, "persistence": told["persistence"]}
    assert told == {**rows_of(Path(__file__), "the_daemon_tells_what_it_is")[0], **computed}
    view = View(
        catalog=daemon.stage.catalog.value,
        profile=daemon.stage.config.profiles["default"],
        now=lambda: NOW,
        services=daemon.stage.services,
    )
    assert shown == sum(len(one) for one in SURFACES["category"].list_tools(view))
    assert offered == sum(len(one) for one in FullSurface().list_tools(view))
    assert told["estimatedTokensSaved"] > 0


async def test_the_status_has_what_switches_names_and_counts_say() -> None:
    overrides = {"add": {"enabled": False}}
    tools = {"includeNames": ["echo", "add", "ghost"], "overrides": overrides}
    servers = {"alpha": {"command": "x"}, "beta": {"command": "x"}, "off": {"command": "x", "enabled": False}}
    stage = Stage(mcpServers=servers, categories={"c": {"description": "C", "server": "alpha", "tools": tools}})
    history = History(lambda: NOW)
    for at, text in ((NOW - 30, ""), (NOW - 20, "a fault")):
        history.note(Event(kind=EventKind.RELOADED, at=at, text=text))
    session = FakeSession(attrs.evolve(SESSION, tokens_not_sent=None))
    daemon = Daemon(stage, history=history, clients=clients_of(session))
    daemon.alpha.greeting = attrs.evolve(GREETING, lists_tools=False, others=("prompts",))
    stage.mended.note("claude 2", "flattened")
    stage.tally.loaded("manual", 3)
    stage.learn(Switched(off=frozenset({("beta", ""), ("alpha", "echo"), ("alpha", "not there")})))
    status = daemon.status()
    assert status["unresolved"] == ["alpha/ghost"]
    assert status["switchedOff"] == ["alpha/echo", "alpha/not there", "beta"]
    assert [each["switchedOff"] for each in status["servers"].values()] == [2, 0, 0]
    assert status["repairs"] == {"claude 2": {"flattened": 1}}
    assert (status["metrics"]["loads"], status["metrics"]["inAll"]["since"]) == (3, 0)
    assert status["connections"]["operators"] == {"open": 1, "places": 32, "refused": {"uid": 2}}
    assert status["servers"]["alpha"]["others"] == ["prompts"]
    assert status["daemon"]["configReadAt"] == NOW - 30, "a refused one does not count"
    off = status["servers"]["off"]
    assert (off["state"], off["reason"]) == ("disabled", "disabled in the configuration")
    assert (off["pid"], off["calls"], off["stderr"], off["p50Ms"]) == (None, 0, [], None)
    # A client that defers tools itself has no savings.
    (told,) = status["sessions"]
    assert (told["estimatedTokensNotSent"], told["defersTools"]) == (None, True)


async def test_a_profile_that_shows_everything_saves_nothing_though_it_may_not_offer_all() -> None:
    profile = {"surface": "full", "excludedTools": ["echo"]}
    daemon = Daemon(Stage(profiles={"default": profile})).status()["daemon"]
    assert daemon["surfaceBytes"] == daemon["offeredBytes"] < daemon["schemaBytes"]
    assert (daemon["offeredTools"], daemon["estimatedTokensSaved"]) == (2, 0)
    assert Daemon(Stage(listed=False)).status()["daemon"]["estimatedTokensSaved"] < 0


async def test_a_server_that_runs_shows_how_it_does() -> None:
    daemon = Daemon()
    alpha = daemon.alpha
    alpha.children, alpha.in_flight = {99: 500, 100: 501}, 2
    alpha.greeting = GREETING
    for milliseconds in range(1, 101):
        alpha.stats.record([milliseconds / 1000], ok=milliseconds % 10 != 0)
    for number in range(20):
        alpha.stderr.add(f"line {number}")
    alpha.noise.add(b"banner", 0.0, Redactor(()).cut)
    alpha.apart.begin()
    server = daemon.server({500: 1234, 501: 1})
    assert server["oneClientAtATime"] is True
    assert (server["state"], server["pids"], server["rssBytes"]) == ("ready", [99, 100], 1235)
    assert (server["calls"], server["errors"], server["inFlight"]) == (100, 10, 2)
    assert server["p50Ms"] == pytest.approx(50, abs=2)
    assert server["p95Ms"] == pytest.approx(95, abs=2)
    assert server["stderr"] == [f"line {number}" for number in range(20 - status_commands.STDERR_SHOWN, 20)]
    assert server["noise"] == {"count": 1, "first": "banner"}
    assert server["protocol"] == "2025-11-25"
    assert (server["tools"], server["epoch"], server["type"]) == (2, 1, "stdio")


@pytest.mark.parametrize(("due", "told"), [(NOW + 12.5, 12500), (NOW - 3, 0), (None, None)])
async def test_a_server_that_is_down_shows_when_it_is_tried_again(due: float | None, told: int | None) -> None:
    daemon = Daemon()
    why, since = Reason("exited with status 1", Cause.EXITED, {"status": 1}), NOW - 2.00049
    counts = {"attempt": 3, "restarts": 4}
    daemon.stage.becomes("alpha", ServerState.BACKOFF, why=why, since=since, next_retry_at=due, **counts)
    server = daemon.server()
    assert (server["state"], server["reason"]) == ("backoff", "exited with status 1")
    assert (server["cause"], server["causeData"]) == ("exited", {"status": 1})
    assert (server["attempt"], server["restarts"], server["nextRetryInMs"]) == (3, 4, told)
    assert server["since"] == pytest.approx(NOW - 2, abs=0.001)
    assert daemon.status()["daemon"]["available"] == 1


async def test_sessions_are_listed() -> None:
    assert Daemon().status()["sessions"] == rows_of(Path(__file__), "sessions_are_listed")


async def test_a_server_without_tools_is_up_of_no_use_and_asked_again() -> None:
    daemon = Daemon()
    daemon.stage.lists("alpha")
    assert daemon.status()["daemon"]["available"] == 2
    daemon.stage.becomes("alpha", ServerState.DEGRADED, reason=EMPTY.text, cause=EMPTY.cause)
    daemon.alpha.list_status = ListingStatus(problem=EMPTY, attempt=3, next_at=NOW + 12.4)
    status = daemon.status()
    assert status["daemon"]["available"] == 1
    alpha = status["servers"]["alpha"]
    assert (alpha["state"], alpha["attempt"], alpha["nextRetryInMs"]) == ("degraded", 3, 12_400)


async def test_no_secret_is_in_a_status() -> None:
    daemon = Daemon()
    why = Reason(f"cannot reach https://u:{CANARY}@h", None, {"error": f"no key {CANARY}"})
    daemon.stage.becomes("alpha", ServerState.BACKOFF, why=why)
    daemon.stage.fails_to_list("alpha", f"the server said {CANARY}")
    daemon.alpha.stderr.add(f"using token {CANARY}")
    daemon.alpha.stderr.add("Authorization: Bearer abcdefghijkl")
    daemon.alpha.noise.add(f"hello {CANARY}".encode(), 0.0, Redactor([CANARY]).cut)
    daemon.alpha.greeting = attrs.evolve(GREETING, server_info=f"server with {CANARY}")
    daemon.stage.learn(Summarized(server="alpha", summary=Summary(text=f"Echoes, also {CANARY}.")))
    daemon.archive.degrade(f"cannot reach postgresql://u:{CANARY}@h", where=f"postgresql://u:{CANARY}@h")
    prompts: dict[str, Any] = {"definitions": (), "quarantined": {CANARY: CANARY}, "problem": CANARY}
    daemon.stage.learn(DefinitionsListed(server="alpha", incarnation=1, kind=Kind.PROMPT, **prompts))
    alpha = daemon.stage.catalog.value.servers["alpha"]
    bad = {"t": f"bad schema: {CANARY}"}
    lists = {**alpha.lists, Kind.TOOL: attrs.evolve(alpha.tool_list, quarantined=bad, hidden=bad)}
    servers = {**daemon.stage.catalog.value.servers, "alpha": attrs.evolve(alpha, lists=lists)}
    daemon.stage.catalog.set(attrs.evolve(daemon.stage.catalog.value, servers=servers))
    status = daemon.status()
    assert status["servers"]["alpha"]["summary"] == "Echoes, also [redacted]."
    assert status["servers"]["alpha"]["hidden"].keys() == {"t"}
    written = json.dumps(status)
    assert written.count("[redacted]") >= 12
    assert CANARY not in written
    assert "abcdefghijkl" not in written


async def test_what_is_kept_is_told_with_the_daemon() -> None:
    daemon = Daemon()
    daemon.archive.degrade(
        "the disk is full", cause=StoreCause.FULL, since=NOW - 2.00049, where="/mcpd.db", waiting=3
    )
    assert daemon.status()["daemon"]["persistence"] == {
        "state": "degraded",
        "reason": "the disk is full",
        "cause": "full",
        "since": pytest.approx(NOW - 2, abs=0.001),
        "where": "/mcpd.db",
        "waiting": 3,
    }


async def test_how_the_model_does_is_told_without_secrets_where_there_is_one() -> None:
    state = {"asked": 2, "given_up": 1, "last_error": f"401 for {CANARY}"}
    stage = Stage(attrs.evolve(Stage().config, summaries=Summaries(base_url="http://[::1]:1", model="small")))
    counters = msgspec.structs.replace(operator_context(stage).counters, summarizer=lambda: state)
    told = Daemon(stage, counters=counters).status()
    assert told["summarizer"] == {"asked": 2, "givenUp": 1, "lastError": "401 for [redacted]"}
    assert "summarizer" not in Daemon().status()


async def test_tools_of_an_earlier_life_are_told_from_those_listed_in_this_one() -> None:
    stage = Stage(listed=False)
    tools = tools_of("alpha", "echo")
    mark = stage.catalog.value.servers["alpha"].fingerprint
    stage.learn(ServerRecord(server="alpha", fingerprint=mark, epoch=7, lists={Kind.TOOL: tools}))
    daemon = Daemon(stage)
    assert (daemon.server()["tools"], daemon.server()["epoch"], daemon.server()["recalled"]) == (1, 7, True)
    assert daemon.server()["refreshedAt"] is None
    stage.learn(
        DefinitionsListed(kind=Kind.TOOL, server="alpha", incarnation=1, definitions=tools, at=NOW - 5.00049)
    )
    assert (daemon.server()["epoch"], daemon.server()["recalled"]) == (7, False)
    assert daemon.server()["refreshedAt"] == pytest.approx(NOW - 5, abs=0.001)


async def test_after_a_reload_the_new_configuration_is_reported() -> None:
    daemon = Daemon()
    config = config_of(
        {"mcpServers": {"gamma": {"url": "http://x/mcp"}}, "profiles": {"default": {"surface": "browse"}}}
    )
    daemon.stage.learn(Configured(config=config, now=NOW))
    assert {name: server["type"] for name, server in daemon.status()["servers"].items()} == {"gamma": "http"}
    assert daemon.status()["daemon"]["surfaces"] == {"default": "browse"}


async def test_a_server_with_instances_is_told_as_a_whole_and_by_instance() -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha#3", "alpha#7", workspace="/home/me/app")
    stage.divide("beta", "beta@~/a")
    stage.actors["beta@~/a"].children[13] = 9
    one, other = (stage.actors[name] for name in ("alpha#3", "alpha#7"))
    one.children, one.in_flight = {11: 7}, 2
    other.children, other.use = {12: 8}, SimpleNamespace(at=trio.current_time() - 30)
    other.stats.record([0.5], ok=True)
    other.child.status.become(ServerState.STARTING)
    context = stage.context()
    told = status_commands.server_status(context, context.catalog.servers["alpha"], {7: 1024, 8: 4096})
    assert (told["pid"], told["rssBytes"], told["share"]) == (None, 5120, "all")
    rows: Any = told["instances"]
    assert [(row["name"], row["session"], row["workspace"]) for row in rows] == [
        ("alpha#3", 3, "/home/me/app"),
        ("alpha#7", 7, "/home/me/app"),
    ]
    assert [(row["pid"], row["rssBytes"], row["calls"]) for row in rows] == [(11, 1024, 0), (12, 4096, 1)]
    assert [row["state"] for row in rows] == ["stopped", "starting"]
    assert rows[0]["idleMs"] == 0
    assert 30_000 <= rows[1]["idleMs"] < 60_000
    assert {row["tools"] for row in rows} == {2}
    assert not any(row["differs"] for row in rows)
    elsewhere = Stage()
    elsewhere.lists("alpha", tool("own"))
    other.own = elsewhere.catalog.value
    marked: Any = status_commands.server_status(context, context.catalog.servers["alpha"], {})
    assert [(row["differs"], row["tools"]) for row in marked["instances"]] == [(False, 2), (True, 1)]
    own = {"name", "workspace", "session", "differs", "idleMs"}
    assert rows[0].keys() - own <= told.keys()
    alone: Any = status_commands.server_status(context, context.catalog.servers["beta"], {})
    (row,) = alone["instances"]
    assert (alone["pid"], row["session"], row["idleMs"]) == (13, None, None)
    one_alone: Any = await status_commands.status_of_one(context, "alpha#7", {})
    assert (one_alone["server"]["name"], one_alone["server"]["session"]) == ("alpha#7", 7)
    whole: Any = await status_commands.status_of_one(context, "alpha", {})
    assert len(whole["server"]["instances"]) == 2


@attrs.define
class FakeLine:
    """A connection whose server is silent."""

    last_heard: float
    in_flight: int = 0

    async def request(self, method: str, params: dict[str, Any], *, timeout: float) -> bytes:  # noqa: ASYNC109
        await trio.sleep(timeout)
        raise UpstreamTimeout(method)


async def test_a_sandbox_is_told_with_what_it_refused_and_without_secrets() -> None:
    daemon = Daemon()
    refused = SeenHosts()
    for host, reason in (("api.x", HostRefusal.NOT_ALLOWED), (f"{CANARY}.x", HostRefusal.DENIED)):
        allow = host if reason is HostRefusal.NOT_ALLOWED else ""
        refused.add(SeenHost(host, 443, reason, allow))
    refused.add(SeenHost("api.x", 80, HostRefusal.NOT_ALLOWED, "api.x"))
    daemon.alpha.refused_hosts = refused
    catalog = daemon.stage.catalog.value
    servers: Any = dict(catalog.config.mcp_servers)
    servers["alpha"] = attrs.evolve(servers["alpha"], confined=sandbox_in_force(SandboxMode.STRICT))
    config = attrs.evolve(catalog.config, mcp_servers=servers)
    daemon.stage.catalog.set(attrs.evolve(catalog, config=config))
    told, allowing = daemon.status()["servers"], "mcpd allow-host alpha api.x"
    assert told["beta"]["sandbox"] is None
    assert told["alpha"]["sandbox"] == {
        "mode": "strict",
        "refused": [
            {"host": "api.x", "port": 80, "count": 2, "reason": "not-allowed", "allow": allowing},
            {"host": "[redacted].x", "port": 443, "count": 1, "reason": "denied", "allow": ""},
        ],
        "refusedMore": 0,
        "show": "mcpd sandbox alpha",
    }


async def test_how_long_a_server_is_silent_is_told_as_of_now(autojump_clock: MockClock) -> None:
    stage, server = Stage(), FakeServer("alpha")
    line = cast("UpstreamConnection", FakeLine(trio.current_time()))
    server.pings = Keepalive(line, Timeouts(ping_interval=25, ping=10, missed_pings=100))
    context = operator_context(stage, upstreams={"alpha": server}, wall=lambda: 1000.0)

    def told() -> Any:
        return status_commands.server_status(context, context.catalog.servers["alpha"], {})

    assert told()["pings"] == {"unanswered": 0, "lastMs": None, "lastHeardAt": 1000.0}
    with trio.move_on_after(40):
        await server.pings.run(Era.HANDSHAKE)
    why = server.pings.problem
    stage.becomes("alpha", ServerState.DEGRADED, reason="earlier", cause=why.cause)
    seen = told()
    assert seen["pings"]["unanswered"] == 1
    assert seen["causeData"] == {"count": 1, "seconds": 40, "calls": 0}
    assert seen["reason"].endswith("last heard 40s ago")
    server.pings = None
    assert (told()["reason"], told()["pings"]) == ("earlier", None)


async def test_the_calls_of_the_last_minutes_are_apart_from_all() -> None:
    stage, server = Stage(), FakeServer("alpha")
    server.stats.record([0.004], ok=True)
    server.stats.turn(trio.current_time() - 3600)
    server.stats.record([0.5], ok=False)
    context = operator_context(stage, upstreams={"alpha": server}, wall=lambda: 1000.0)
    told = status_commands.server_status(context, context.catalog.servers["alpha"], {})
    assert (told["calls"], told["errors"]) == (2, 1)
    assert told["recent"] == {"minutes": 5, "calls": 1, "errors": 1, "p50Ms": 500.0, "p95Ms": 500.0}


def stage_with(*names: str, kind: Kind = Kind.PROMPT, description: str = "", **more: Any) -> Stage:
    """Servers of which alpha lists these."""
    stage = Stage()
    listed = tuple(definition(kind, name, "alpha", description=description) for name in names)
    stage.learn(DefinitionsListed(server="alpha", incarnation=1, kind=kind, definitions=listed, **more))
    return stage


async def test_numbers_are_told_of_each_server_and_of_all() -> None:
    stage = stage_with("review", "fix")
    listed = (definition(Kind.RESOURCE, "mem://1", "beta"),)
    stage.learn(DefinitionsListed(server="beta", incarnation=1, kind=Kind.RESOURCE, definitions=listed))
    answer = Daemon(stage).status()
    for who, numbers in (
        (answer["servers"]["alpha"], (2, 0, 0)),
        (answer["servers"]["beta"], (0, 1, 0)),
        (answer["daemon"], (2, 1, 0)),
    ):
        assert tuple(who[kind] for kind in ("prompts", "resources", "templates")) == numbers


async def test_what_a_server_that_is_down_has_is_named_as_unavailable() -> None:
    stage = stage_with("review", "fix")
    assert Daemon(stage).status()["servers"]["alpha"]["unavailablePrompts"] == []
    stage.learn(Switched(off=frozenset({("alpha", "prompt:fix")})))
    stage.becomes("alpha", ServerState.BACKOFF, reason="exited")
    alpha = Daemon(stage).status()["servers"]["alpha"]
    assert alpha["unavailablePrompts"] == ["review"]
    assert (alpha["unavailableResources"], alpha["unavailableTemplates"]) == ([], [])
    assert alpha["lists"]["prompts"]["switchedOff"] == 1
    stage.learn(Switched(off=frozenset({("alpha", "")})))
    assert Daemon(stage).status()["servers"]["alpha"]["unavailablePrompts"] == [], (
        "it is off, and nobody misses it"
    )


async def test_of_a_thousand_resources_some_are_named_and_the_rest_is_counted() -> None:
    stage = stage_with(*(f"mem://{number}" for number in range(1000)), kind=Kind.RESOURCE)
    stage.becomes("alpha", ServerState.BACKOFF)
    alpha = Daemon(stage).status()["servers"]["alpha"]
    assert len(alpha["unavailableResources"]) == status_commands.MAX_NAMED
    assert alpha["unavailableResourcesLeft"] == 1000 - status_commands.MAX_NAMED


async def test_faults_of_a_list_are_told_as_those_of_tools() -> None:
    stage = stage_with("review", description="turned\u202earound", quarantined={"bad": "no name"})
    listed = Daemon(stage).status()["servers"]["alpha"]["lists"]["prompts"]
    assert (listed["known"], listed["recalled"], listed["listingError"]) == (True, False, "")
    assert listed["quarantined"] == {"bad": "no name"}
    assert "U+202E" in listed["hidden"]["review"].upper()
    stage.learn(
        DefinitionsListed(
            server="alpha", incarnation=1, kind=Kind.PROMPT, definitions=(), problem="timed out after 5 s"
        )
    )
    alpha = Daemon(stage).status()["servers"]["alpha"]
    assert alpha["lists"]["prompts"]["listingError"] == "timed out after 5 s"
    assert alpha["prompts"] >= 1, "what is known stays"


SECRET_STATUS_ONE = "reading"
"""A secret that is a plain word: what other servers say keeps it."""


async def test_a_server_is_told_with_its_events_and_its_errors_without_secrets() -> None:
    redactors = Redactors()
    entries = {"alpha": {"command": "a", "env": {"PASSWORD": SECRET_STATUS_ONE}}, "beta": {"command": "b"}}
    redactors.learn(config_of({"mcpServers": entries}))
    stage = Stage()
    stage.becomes("beta", ServerState.BACKOFF, reason=f"was not {SECRET_STATUS_ONE}")
    context = operator_context(stage, upstreams={"alpha": FakeServer("alpha")}, redact=redactors)
    other: Any = await status_commands.status_of_one(context, "beta", {})
    assert other["server"]["reason"] == f"was not {SECRET_STATUS_ONE}"
    for name in ("alhpa", "alpha#99", ""):
        with pytest.raises(UnknownServer):
            await status_commands.status_of_one(context, name, {})
    for number in range(status_commands.EVENTS + 1):
        context.history.note(Event(kind=EventKind.ENDED, server="alpha", text=f"exited {number}", run=number))
    context.history.note(Event(kind=EventKind.ENDED, server="beta", text="boom"))
    context.counters.recent.failed("alpha", "look", "UpstreamTimeout", f"not with {SECRET_STATUS_ONE}")
    for minute in (60, 180):
        measured = MinuteOfServer(minute, calls=minute, errors=1, p95_ms=2.5)
        context.counters.series.note(MinuteOfDaemon(minute), {"alpha": measured})
    told: Any = await status_commands.status_of_one(context, "alpha", {})
    assert (told["name"], told["server"]["state"]) == ("alpha", "ready")
    columns = {"calls": [60, None, 180], "errors": [1, None, 1], "latency": [2.5, None, 2.5]}
    assert told["lastHour"] == {**columns, "memory": [None] * 3}
    context.counters.series.note(MinuteOfDaemon(12_000), {"alpha": MinuteOfServer(12_000)})
    assert len(last_hour(context, "alpha")["calls"]) == 60
    assert len(told["events"]) == status_commands.EVENTS
    assert "exited 20" in told["events"][-1]["text"]
    assert "boom" not in str(told)
    (error,) = told["lastErrors"]
    assert (error["tool"], error["code"]) == ("look", "UpstreamTimeout")
    assert SECRET_STATUS_ONE not in str(told)
    assert (told["calls"], told["moreCalls"]) == ([], 0)


def ready(server: str, at: float = 1.0, **details: Any) -> Event:
    return Event(kind=EventKind.READY, at=at, server=server, details=details)


def changed(server: str, **tools: Any) -> Event:
    return Event(kind=EventKind.LISTS_CHANGED, at=1.0, server=server, details={"tools": tools})


def test_outages_and_changed_tools_are_told_by_server() -> None:
    told = news.summed(
        [
            ready("quiet", seconds=0.4),
            ready("notes", awaySeconds=10_800.0),
            ready("notes", awaySeconds=60.04),
            changed("weather", changed=["now"], came=["tides", "wind"], went=["old", "log"]),
            Event(kind=EventKind.HELD, server="weather", details={"definitions": {"log": {}, "gone": {}}}),
            Event(kind=EventKind.HELD, server="quiet", details={"definitions": {"approved since": {}}}),
        ],
        {"quiet": ["held before"], "notes": ["earlier"], "weather": ["log", "prompt:review"]},
    )
    assert [told] == rows_of(Path(__file__), "outages_and_changed_tools_are_told_by_server")


def test_of_a_tool_that_changed_more_than_once_what_is_left_of_it_is_told() -> None:
    steps = (
        {"came": ["fleeting", "new"], "went": ["back", "gone"], "changed": ["touched", "lost"]},
        {"went": ["fleeting", "lost"], "came": ["back"], "changed": ["new", "touched"]},
    )
    told = news.summed([changed("weather", **step) for step in steps], {})["weather"]
    assert told["came"] == ["new"]
    assert told["went"] == ["gone", "lost"]
    assert told["changed"] == ["back", "touched"]
    assert news.summed([changed("a", came=["x"]), changed("a", went=["x"])], {}) == {}


async def test_only_the_last_hours_are_told() -> None:
    context = operator_context(Stage())
    now = context.history.now()
    context.history.note(ready("alpha", now - news.LATELY_SECONDS - 60, awaySeconds=5.0))
    context.history.note(ready("alpha", now - news.LATELY_SECONDS + 60, awaySeconds=5.0))
    # Whoever took it out of the configuration needs to hear no more of it.
    context.history.note(ready("removed", now - news.LATELY_SECONDS + 60, awaySeconds=5.0))
    told: Any = await news.lately(context)
    assert told["seconds"] == news.LATELY_SECONDS
    assert list(told["servers"]) == ["alpha"]


@pytest.mark.parametrize(("where", "chains"), [("/var/lib/m.db", ["a", "b"]), ("postgresql://db", ["b"])])
async def test_heads_of_other_machines_are_left_out(tmp_path: Path, where: str, chains: list[str]) -> None:
    audit = Audit(tmp_path / "audit", AuditKeys(), "life")
    audit.chain = Chain(audit.root)
    own = audit.chain.id
    daemon = Daemon(audit=audit)
    daemon.archive.persistence.set(msgspec.structs.replace(WELL, where=where))
    daemon.archive.audited = [ChainHead(chain=each, seq=7, digest="d" * 64) for each in ("a", own)]
    told = await status_commands.audit_heads(daemon.context, NoParams())
    audit.chain.close()
    named = {"a": "a", "b": own}
    assert told == {
        "directory": str(audit.root),
        "heads": [{"chain": named[each], "seq": 7, "digest": "d" * 64} for each in chains],
    }
