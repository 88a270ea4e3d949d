"""The shape of `mcpd status` and `mcpd tools`: other people's programs read them (design.md §6)."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs
import msgspec
import pytest

from daemon.cataloguing import EMPTY, ListingStatus
from daemon.clients.context import SessionStatistics
from daemon.config.redactors import Redactors
from daemon.errors import InvalidArguments, ToolDisabled, UnknownServer, UnknownTool
from daemon.facts import Configured, Recalled, Summarized, Switched, ToolsListed
from daemon.measures import CallStats, Noise, StderrTail
from daemon.model import Era, Summary
from daemon.redact import Redactor
from daemon.report import DaemonFacts, Reporter, Wish
from daemon.server_report import STDERR_SHOWN
from daemon.states import ServerState
from daemon.surfaces.base import View
from daemon.surfaces.category import CategorySurface
from daemon.surfaces.full import FullSurface
from daemon.transports.handshake import Greeting
from tests.config.reading import config_of
from tests.fakes_upstream import Stage, tool, tools_of

NOW = 1_800_000_000.0
PROMISED = {
    *("state", "since", "attempt", "nextRetryInMs", "reason", "stderr", "pid", "rssBytes"),
    *("tools", "epoch", "restarts", "calls", "p50Ms", "p95Ms"),
}
CANARY = "canary-1234567"

GREETING = Greeting(
    era=Era.HANDSHAKE, version="2025-11-25", lists_tools=True, announces_changes=False, server_info="alpha 1"
)

SESSION = SessionStatistics(
    number=3,
    key="/home/me/project",
    client="claude 2",
    protocol="2025-11-25",
    profile="default",
    surface="category",
    since=NOW - 1.23456,
    calls=7,
    in_flight=1,
    loaded=2,
    repaired=3,
)


@attrs.define
class FakeObserved:
    """An upstream as a report sees it."""

    stats: CallStats = attrs.field(factory=CallStats)
    noise: Noise = attrs.field(factory=Noise)
    stderr: StderrTail = attrs.field(factory=StderrTail)
    greeting: Greeting | None = None
    pid: int | None = None
    mark: int | None = None
    in_flight: int = 0
    standing: ListingStatus = attrs.field(factory=ListingStatus)


@attrs.frozen(kw_only=True)
class FakeKept:
    """How keeping goes, as a report sees it."""

    state: str = "ok"
    reason: str = ""
    since: float = NOW - 2.00049
    where: str = "/var/lib/mcpd/mcpd.db"
    waiting: int = 0


class Desk:
    """A reporter over a stage, with one observed server."""

    def __init__(self, stage: Stage | None = None, **wired: Any) -> None:
        self.stage = stage or Stage()
        self.alpha = FakeObserved()
        self.live = [SESSION]
        self.reporter = Reporter(
            facts=DaemonFacts(
                version="1.2",
                pid=4711,
                started_at=NOW - 60.5,
                socket="/s",
                control_socket="/c",
                config="/f",
            ),
            config=lambda: self.stage.catalog.value.config,
            catalog=lambda: self.stage.catalog.value,
            upstreams={"alpha": self.alpha},
            sessions=lambda: self.live,
            surfaces=self.stage.context.surfaces,
            means=self.stage.means,
            mended=self.stage.mended,
            redact=Redactors([CANARY]),
            wall=lambda: NOW,
            **wired,
        )

    def status(self, memory: dict[int, int] | None = None) -> dict[str, Any]:
        """As it goes over the wire."""
        status: dict[str, Any] = json.loads(msgspec.json.encode(self.reporter.status(memory or {})))
        return status

    def server(self, memory: dict[int, int] | None = None) -> dict[str, Any]:
        alpha: dict[str, Any] = self.status(memory)["servers"]["alpha"]
        return alpha


def test_the_status_has_the_promised_keys() -> None:
    status = Desk().status()
    assert list(status) == ["daemon", "servers", "sessions", "repairs", "unresolved", "switchedOff"]
    assert list(status["servers"]) == ["alpha", "beta"]
    for server in status["servers"].values():
        assert server.keys() >= PROMISED


def test_servers_that_run_and_servers_that_do_not_have_the_same_keys() -> None:
    """Whoever reads the table must not look first which kind a server is."""
    servers = Desk().status()["servers"]
    assert servers["alpha"].keys() == servers["beta"].keys()


def test_the_daemon_tells_what_it_is_and_what_it_saves() -> None:
    desk = Desk()
    desk.stage.lists("alpha", *(tool(f"tool_{n}", description="long " * 200) for n in range(20)))
    daemon = desk.status()["daemon"]
    entries = desk.stage.catalog.value.servers.values()
    schemas = sum(len(one.raw) for entry in entries for one in (entry.tools or {}).values())
    shown, offered = daemon["surfaceBytes"], daemon["offeredBytes"]
    assert daemon == {
        "version": "1.2",
        "pid": 4711,
        "startedAt": NOW - 60.5,
        "uptimeSeconds": 60.5,
        "socket": "/s",
        "controlSocket": "/c",
        "config": "/f",
        "lazy": True,
        "surfaces": {"default": "category"},
        "servers": 2,
        "available": 2,
        "tools": 22,
        "schemaBytes": schemas,
        "offeredTools": 22,
        "offeredBytes": offered,
        "surfaceBytes": shown,
        "estimatedTokensSaved": (offered - shown) // 4,
    }
    view = View(
        catalog=desk.stage.catalog.value,
        profile=desk.stage.config.profiles["default"],
        now=lambda: NOW,
        means=desk.stage.means,
    )
    assert shown == sum(len(one) for one in CategorySurface().list_tools(view))
    assert offered == sum(len(one) for one in FullSurface().list_tools(view))
    assert daemon["estimatedTokensSaved"] > 0


def test_a_surface_larger_than_all_tools_is_said_to_be() -> None:
    assert Desk(Stage(listed=False)).status()["daemon"]["estimatedTokensSaved"] < 0


def test_a_profile_that_shows_everything_saves_nothing_though_it_may_not_offer_all() -> None:
    profile = {"surface": "full", "excludedTools": ["echo"]}
    daemon = Desk(Stage(profiles={"default": profile})).status()["daemon"]
    assert daemon["surfaceBytes"] == daemon["offeredBytes"] < daemon["schemaBytes"]
    assert (daemon["offeredTools"], daemon["estimatedTokensSaved"]) == (2, 0)


def test_a_server_that_runs_shows_how_it_does() -> None:
    desk = Desk()
    alpha = desk.alpha
    alpha.pid, alpha.mark, alpha.in_flight = 99, 500, 2
    alpha.greeting = GREETING
    for milliseconds in range(1, 101):
        alpha.stats.record(milliseconds / 1000, ok=milliseconds % 10 != 0)
    for number in range(20):
        alpha.stderr.add(f"line {number}")
    alpha.noise.add(b"banner", 0.0, Redactor(()).cut)
    server = desk.server({500: 1234, 501: 1})
    assert (server["state"], server["pid"], server["rssBytes"]) == ("ready", 99, 1234)
    assert (server["calls"], server["errors"], server["inFlight"]) == (100, 10, 2)
    assert server["p50Ms"] == pytest.approx(50, abs=2)
    assert server["p95Ms"] == pytest.approx(95, abs=2)
    assert server["stderr"] == [f"line {number}" for number in range(20 - STDERR_SHOWN, 20)]
    assert server["noise"] == {"count": 1, "first": "banner"}
    assert server["protocol"] == "2025-11-25"
    assert (server["tools"], server["epoch"], server["type"]) == (2, 1, "stdio")


@pytest.mark.parametrize(("due", "told"), [(NOW + 12.5, 12500), (NOW - 3, 0), (None, None)])
def test_a_server_that_is_down_shows_when_it_is_tried_again(due: float | None, told: int | None) -> None:
    desk = Desk()
    desk.stage.becomes(
        "alpha",
        ServerState.BACKOFF,
        reason="exited with status 1",
        attempt=3,
        restarts=4,
        since=NOW - 2.00049,
        next_retry_at=due,
    )
    server = desk.server()
    assert (server["state"], server["reason"]) == ("backoff", "exited with status 1")
    assert (server["attempt"], server["restarts"], server["nextRetryInMs"]) == (3, 4, told)
    assert server["since"] == pytest.approx(NOW - 2, abs=0.001)
    assert desk.status()["daemon"]["available"] == 1


def test_a_disabled_server_is_reported_as_such() -> None:
    stage = Stage(mcpServers={"alpha": {"command": "x"}, "off": {"command": "x", "enabled": False}})
    server = Desk(stage).status()["servers"]["off"]
    assert (server["state"], server["reason"]) == ("disabled", "disabled in the configuration")
    assert (server["pid"], server["calls"], server["stderr"], server["p50Ms"]) == (None, 0, [], None)


def test_sessions_are_listed() -> None:
    assert Desk().status()["sessions"] == [
        {
            "number": 3,
            "key": "/home/me/project",
            "client": "claude 2",
            "protocol": "2025-11-25",
            "profile": "default",
            "surface": "category",
            "since": round(NOW - 1.23456, 3),
            "calls": 7,
            "inFlight": 1,
            "loadedTools": 2,
            "repairedCalls": 3,
            "estimatedTokensNotSent": 0,
            "defersTools": False,
        }
    ]


def test_a_session_of_a_client_that_defers_tools_itself_has_no_savings() -> None:
    desk = Desk()
    desk.live = [attrs.evolve(SESSION, tokens_not_sent=None)]
    (told,) = desk.status()["sessions"]
    assert (told["estimatedTokensNotSent"], told["defersTools"]) == (None, True)


def test_names_that_no_server_lists_are_reported() -> None:
    stage = Stage(
        categories={"c": {"description": "C", "server": "alpha", "tools": {"includeNames": ["echo", "ghost"]}}}
    )
    assert Desk(stage).status()["unresolved"] == ["alpha/ghost"]


def test_a_server_without_tools_is_up_of_no_use_and_asked_again() -> None:
    desk = Desk()
    desk.stage.lists("alpha")
    assert desk.status()["daemon"]["available"] == 2
    desk.stage.becomes("alpha", ServerState.DEGRADED, reason=EMPTY)
    desk.alpha.standing = ListingStatus(problem=EMPTY, attempt=3, next_at=NOW + 12.4)
    status = desk.status()
    assert status["daemon"]["available"] == 1
    alpha = status["servers"]["alpha"]
    assert (alpha["state"], alpha["attempt"], alpha["nextRetryInMs"]) == ("degraded", 3, 12_400)


def test_what_a_server_has_besides_tools_is_told() -> None:
    desk = Desk()
    desk.alpha.greeting = attrs.evolve(GREETING, lists_tools=False, others=("prompts",))
    assert desk.server()["others"] == ["prompts"]


def test_no_secret_is_in_a_status() -> None:
    desk = Desk()
    desk.stage.becomes("alpha", ServerState.BACKOFF, reason=f"cannot reach https://u:{CANARY}@h")
    desk.stage.fails_to_list("alpha", f"the server said {CANARY}")
    desk.alpha.stderr.add(f"using token {CANARY}")
    desk.alpha.stderr.add("Authorization: Bearer abcdefghijkl")
    desk.alpha.noise.add(f"hello {CANARY}".encode(), 0.0, Redactor([CANARY]).cut)
    written = json.dumps(desk.status())
    assert written.count("[redacted]") >= 5
    assert CANARY not in written
    assert "abcdefghijkl" not in written


def test_no_secret_comes_in_through_what_a_server_calls_itself() -> None:
    """A server may print its key in its own name, or in a tool that is quarantined."""
    desk = Desk()
    desk.alpha.greeting = attrs.evolve(GREETING, server_info=f"server with {CANARY}")
    stage = desk.stage
    told = {"t": f"bad schema: {CANARY}"}
    entry = attrs.evolve(stage.catalog.value.servers["alpha"], quarantined=told, hidden=told)
    servers = {**stage.catalog.value.servers, "alpha": entry}
    stage.catalog.set(attrs.evolve(stage.catalog.value, servers=servers))
    status = desk.status()
    assert status["servers"]["alpha"]["hidden"].keys() == {"t"}
    assert CANARY not in json.dumps(status)


def test_tools_tell_what_exists_and_what_a_model_sees() -> None:
    overrides = {"add": {"enabled": False}, "echo": {"description": "Ours."}}
    tools = {"includeNames": ["echo", "add", "ghost"], "overrides": overrides}
    stage = Stage(
        categories={
            "c": {"description": "C", "server": "alpha", "tools": tools},
            "d": {"description": "D", "server": "beta"},
        }
    )
    desk = Desk(stage)
    stage.becomes("beta", ServerState.BACKOFF)
    report = json.loads(msgspec.json.encode(desk.reporter.tools(None)))
    assert list(report) == ["categories", "surface"]
    assert report["surface"]["name"] == "category"
    assert [one["name"] for one in report["surface"]["tools"]] == ["get-category-tools", "call-category-tool"]
    c = report["categories"]["c"]
    assert (c["description"], c["servers"], list(c["tools"])) == ("C", ["alpha"], ["echo", "add", "ghost"])
    known = stage.catalog.value.servers["alpha"].tools
    assert known is not None
    assert c["tools"]["echo"] == {
        "server": "alpha",
        "description": "Ours.",
        "enabled": True,
        "listed": True,
        "available": True,
        "schemaHash": known["echo"].schema_hash,
    }
    assert (c["tools"]["add"]["enabled"], c["tools"]["add"]["available"]) == (False, False)
    assert (c["tools"]["ghost"]["listed"], c["tools"]["ghost"]["schemaHash"]) == (False, None)
    assert report["categories"]["d"]["tools"]["echo"]["description"] == "Does echo."
    assert report["categories"]["d"]["tools"]["echo"]["available"] is False


@pytest.mark.parametrize(("only", "names"), [("alpha", ["alpha"]), ("nobody", []), (None, ["alpha", "beta"])])
def test_tools_of_one_category(only: str | None, names: list[str]) -> None:
    report: Any = Desk().reporter.tools(only)
    assert list(report["categories"]) == names


@pytest.mark.parametrize(
    ("written", "wish", "name"),
    [
        ({}, Wish(), "category"),
        ({"profiles": {"default": {"surface": "search"}}}, Wish(), "search"),
        ({"profiles": {"p": {"surface": "load"}}}, Wish(profile="p"), "load"),
        ({"lazy": False}, Wish(), "full"),
        ({"lazy": False}, Wish(surface="browse"), "browse"),
    ],
)
def test_what_a_model_sees_is_shown_of_any_profile_and_surface(
    written: dict[str, Any], wish: Wish, name: str
) -> None:
    report: Any = Desk(Stage(**written)).reporter.tools(None, wish)
    assert report["surface"]["name"] == name
    assert report["surface"]["instructions"]


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (Wish(surface="ful"), "no surface is named 'ful'. Did you mean full?"),
        (Wish(profile="defalt"), "no profile is named 'defalt'. Did you mean default?"),
    ],
)
def test_a_view_that_nobody_can_have_is_refused_with_those_that_exist(wish: Wish, message: str) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(message)):
        Desk().reporter.tools(None, wish)


def test_an_operators_search_finds_tools_with_scores() -> None:
    report: Any = Desk().reporter.search(["echo"], None, 5, Wish())
    first = report["tools"][0]
    assert (first["name"], first["server"], first["category"]) == ("echo", "alpha", "alpha")
    assert first["description"] == "Does echo."
    assert first["score"] > 0
    assert report["total"] == 2


def test_an_operators_search_within_a_category_stays_there() -> None:
    report: Any = Desk().reporter.search(["echo"], "beta", 5, Wish())
    assert [one["name"] for one in report["tools"]] == ["beta__echo"]


def test_repairs_are_told_by_client() -> None:
    desk = Desk()
    desk.stage.mended.note("claude 2", "flattened")
    assert desk.status()["repairs"] == {"claude 2": {"flattened": 1}}


def test_what_is_kept_is_told_with_the_daemon() -> None:
    kept = FakeKept(state="degraded", reason="the disk is full", waiting=3)
    assert Desk(persistence=lambda: kept).status()["daemon"]["persistence"] == {
        "state": "degraded",
        "reason": "the disk is full",
        "since": pytest.approx(NOW - 2, abs=0.001),
        "where": "/var/lib/mcpd/mcpd.db",
        "waiting": 3,
    }


def test_no_secret_comes_in_through_where_things_are_kept() -> None:
    kept = FakeKept(reason=f"cannot reach postgresql://u:{CANARY}@h", where=f"postgresql://u:{CANARY}@h")
    assert CANARY not in json.dumps(Desk(persistence=lambda: kept).status())


def test_where_nothing_is_kept_or_counted_nothing_is_said_of_it() -> None:
    status = Desk().status()
    assert "persistence" not in status["daemon"]
    assert status.keys().isdisjoint({"metrics", "summarizer"})
    assert "summarizer" not in Desk(summarizer=lambda: None).status()


def test_what_was_counted_and_how_the_model_does_is_told() -> None:
    state = {"asked": 2, "given_up": 1, "last_error": f"401 for {CANARY}"}
    status = Desk(metrics=lambda: {"loads": 3}, summarizer=lambda: state).status()
    assert status["metrics"] == {"loads": 3}
    assert status["summarizer"] == {"asked": 2, "givenUp": 1, "lastError": "401 for [redacted]"}


def test_what_operators_switched_off_is_told() -> None:
    desk = Desk()
    desk.stage.learn(Switched(off=frozenset({("beta", ""), ("alpha", "echo"), ("alpha", "not there")})))
    status = desk.status()
    assert status["switchedOff"] == ["alpha/echo", "alpha/not there", "beta"]
    assert status["servers"]["alpha"]["switchedOff"] == 1


def test_what_the_configuration_switches_off_is_counted_with_the_server() -> None:
    overrides = {"echo": {"enabled": False}}
    stage = Stage(categories={"c": {"description": "C", "server": "alpha", "tools": {"overrides": overrides}}})
    status = Desk(stage).status()
    assert [server["switchedOff"] for server in status["servers"].values()] == [1, 0]
    assert status["switchedOff"] == []


def test_what_a_model_said_of_a_server_is_told_without_secrets() -> None:
    desk = Desk()
    desk.stage.learn(Summarized(server="alpha", summary=Summary(text=f"Echoes, also {CANARY}.")))
    servers = desk.status()["servers"]
    assert (servers["alpha"]["summary"], servers["beta"]["summary"]) == ("Echoes, also [redacted].", "")


def test_tools_of_an_earlier_life_are_told_from_those_listed_in_this_one() -> None:
    stage = Stage(listed=False)
    tools = tools_of("alpha", "echo")
    mark = stage.catalog.value.servers["alpha"].fingerprint
    stage.learn(Recalled(server="alpha", fingerprint=mark, epoch=7, tools=tools))
    desk = Desk(stage)
    assert (desk.server()["tools"], desk.server()["epoch"], desk.server()["recalled"]) == (1, 7, True)
    assert desk.server()["refreshedAt"] is None
    stage.learn(ToolsListed(server="alpha", incarnation=1, tools=tools, quarantined={}, at=NOW - 5.00049))
    assert (desk.server()["epoch"], desk.server()["recalled"]) == (7, False)
    assert desk.server()["refreshedAt"] == pytest.approx(NOW - 5, abs=0.001)


def test_after_a_reload_the_new_configuration_is_reported() -> None:
    desk = Desk()
    config = config_of(
        {"mcpServers": {"gamma": {"url": "http://x/mcp"}}, "profiles": {"default": {"surface": "browse"}}}
    )
    desk.stage.learn(Configured(config=config, now=NOW))
    assert {name: server["type"] for name, server in desk.status()["servers"].items()} == {"gamma": "http"}
    report: Any = desk.reporter.tools(None)
    assert report["surface"]["name"] == "browse"


def test_an_operators_call_is_refused_where_a_models_would_be() -> None:
    overrides = {"add": {"enabled": False}}
    stage = Stage(
        categories={
            "c": {"description": "C", "server": "alpha", "tools": {"overrides": overrides}},
            "d": {"description": "D", "server": "beta"},
        }
    )
    stage.learn(Switched(off=frozenset({("beta", "echo")})))
    refusal = Desk(stage).reporter.refusal
    assert refusal("alpha", "echo") is None
    assert refusal("beta", "add") is None
    assert isinstance(refusal("alpha", "ehco"), UnknownTool)
    off, switched = refusal("alpha", "add"), refusal("beta", "echo")
    assert isinstance(off, ToolDisabled)
    assert off.message == "add is switched off in mcpd's configuration"
    assert isinstance(switched, ToolDisabled)
    assert "`mcpd enable beta/echo`" in switched.message
    assert isinstance(refusal("gone", "echo"), UnknownServer)
