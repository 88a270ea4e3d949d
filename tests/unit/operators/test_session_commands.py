"""What `mcpd sessions` is answered: other people's programs read it (design.md §6)."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

from daemon.catalog.loaded import Loaded, LoadedStatus, SessionRecord, Source, Verdict, anonymous_key
from daemon.clients.context import SessionStatistics
from daemon.clients.sessions import SessionState
from daemon.errors import CallError, InvalidArguments, McpdError
from daemon.facts import Approved, Configured, Switched
from daemon.operators import session_commands
from daemon.operators.base import OperatorContext
from daemon.surfaces.table import ClientInfo, Grounds, SurfaceChoice, fitting
from tests.fakes_upstream import Stage, tool, tools_of
from tests.unit.cases import cases, rows_of
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import FakeArchive, FakeSession, clients_of, operator_context

NOW = 1_800_000_000.0
DAY = 24 * 3600


def loaded_of(stage: Stage, *keys: tuple[str, str], source: Source = Source.MANUAL, at: float = NOW) -> Loaded:
    """Tools as a session loads them now."""
    servers = stage.catalog.value.servers
    tools = [((servers[server].tools or {})[name], servers[server].epoch) for server, name in keys]
    return Loaded().adding(tools, source, at)


def record(key: str, loaded: Loaded | None = None, *, seen_at: float = NOW - 60, **more: Any) -> SessionRecord:
    known = {"client": "agent 1", "created_at": NOW - 3600.0004}
    return SessionRecord(key=key, loaded=loaded or Loaded(), seen_at=seen_at, **{**known, **more})


NOTHING = Loaded()

ASKED: dict[str, Any] = {"choice": SurfaceChoice(surface="load", grounds=Grounds.ASKED_FOR)}


def connection(number: int, key: str | None = None, own: Loaded = NOTHING, **more: Any) -> SessionStatistics:
    known = {"client": "agent 2", "protocol": "2025-11-25", "profile": "default", "surface": "load"}
    counts = {"calls": 0, "in_flight": 0, "loaded": 0, "repaired": 0, "since": NOW - 10}
    return SessionStatistics(
        number=number, key=key, own=SessionState(None, own), **{**known, **counts, **ASKED, **more}
    )


def listed(stage: Stage, records: Iterable[SessionRecord], *live: SessionStatistics) -> list[dict[str, Any]]:
    """As it goes over the wire."""
    report = json.loads(
        msgspec.json.encode(session_commands.sessions_report(records, live, stage.catalog.value, NOW, {}))
    )
    assert list(report) == ["sessions"]
    rows: list[dict[str, Any]] = report["sessions"]
    return rows


def told(stage: Stage, kept: SessionRecord, *live: SessionStatistics) -> dict[str, Any]:
    """As it goes over the wire."""
    named = session_commands.NamedSession(kept, [each for each in live if each.key == kept.key])
    report = session_commands.session_report(named, stage.catalog.value, NOW)
    return dict(json.loads(msgspec.json.encode(report)))


def test_a_session_tells_what_it_has_loaded() -> None:
    stage = Stage()
    alpha = stage.catalog.value.servers["alpha"]
    loaded = loaded_of(stage, ("alpha", "echo"), source=Source.AUTO, at=NOW - 100.0004)
    seen = told(stage, record("k", loaded))
    (shape,) = rows_of(Path(__file__), "a_tool_that_a_session_has_loaded")
    (tool,) = seen.pop("loaded")
    assert [seen] == rows_of(Path(__file__), "a_session_tells_what_it_has_loaded")
    assert tool == {**shape, "schemaHash": (alpha.tools or {})["echo"].schema_hash, "epoch": alpha.epoch}


def statuses(stage: Stage, loaded: Loaded) -> dict[str, tuple[str, str | None]]:
    tools = told(stage, record("k", loaded))["loaded"]
    assert all(bool(each["reason"]) is (each["status"] != "valid") for each in tools)
    return {f"{each['server']}/{each['name']}": (each["status"], each.get("renamedTo")) for each in tools}


def test_every_status_is_judged_anew_by_the_catalog_of_this_moment() -> None:
    servers = {name: {"command": "x"} for name in ("alpha", "beta", "gamma")}
    servers["delta"] = {"command": "y", "trust": "changes"}
    stage = Stage(config_of({"mcpServers": servers}))
    stage.learn(Approved())
    one, other = tool("one"), tool("old", inputSchema={"type": "object", "maxProperties": 3})
    stage.lists("alpha", one, "two", "three", "four", other)
    keys = [("alpha", name) for name in ("one", "two", "three", "four", "old")]
    loaded = loaded_of(stage, *keys, ("beta", "echo"), ("gamma", "echo"), ("delta", "echo"))
    assert set(statuses(stage, loaded).values()) == {("valid", None)}
    stage.lists("alpha", tool("one", description="Other."), "two", "four", {**other, "name": "new"})
    stage.lists("delta", tool("echo", description="Other."))
    stage.learn(Switched(off=frozenset({("alpha", "two"), ("beta", "")})))
    left = {name: entry for name, entry in servers.items() if name != "gamma"}
    stage.learn(Configured(config=config_of({"mcpServers": left}), now=NOW))
    after = statuses(stage, loaded)
    assert after == {
        "alpha/one": ("invalid_changed", None),
        "alpha/two": ("invalid_disabled", None),
        "alpha/three": ("invalid_deleted", None),
        "alpha/four": ("valid", None),
        "alpha/old": ("invalid_renamed", "new"),
        "beta/echo": ("invalid_server_disabled", None),
        "gamma/echo": ("invalid_deleted", None),
        "delta/echo": ("invalid_held", None),
    }
    assert {status for status, _ in after.values()} == set(map(str, LoadedStatus))
    # Of a server that was never listed nothing is known; one may not exist at all.
    known = loaded_of(Stage(), ("alpha", "echo"))
    assert statuses(Stage(listed=False), known) == {"alpha/echo": ("valid", None)}
    ghost = Loaded().adding([(tools_of("ghost", "boo")[0], 1)], Source.MANUAL, NOW)
    assert statuses(Stage(), ghost) == {"ghost/boo": ("invalid_deleted", None)}


def test_a_verdict_that_was_kept_counts_for_nothing() -> None:
    stage = Stage()
    lost = Verdict(status=LoadedStatus.INVALID_CHANGED, reason="it was so once")
    loaded = loaded_of(stage, ("alpha", "echo")).judged(lambda _tool: lost, NOW)
    assert statuses(stage, loaded) == {"alpha/echo": ("valid", None)}
    assert listed(stage, [record("k", loaded)])[0]["invalid"] == 0


def test_a_session_in_use_is_not_about_to_be_forgotten() -> None:
    report = told(
        Stage(), record("k"), connection(1, "k"), connection(2, "k"), connection(3), connection(4, "j")
    )
    assert (report["connections"], report["forgottenInSeconds"]) == (2, None)


@pytest.mark.parametrize(("ago", "left"), [(40, 60), (100, 0), (1e6, 0)])
def test_how_long_a_session_is_kept_follows_the_configuration(ago: float, left: int) -> None:
    stage = Stage(state={"sessionIdle": 100})
    assert told(stage, record("k", seen_at=NOW - ago))["forgottenInSeconds"] == left


def test_all_sessions_are_listed_those_used_last_first_then_connections_without_a_key() -> None:
    stage = Stage()
    both = loaded_of(stage, ("alpha", "echo"), ("beta", "echo"))
    stage.lists("beta", "add")
    records = [record("old", both, seen_at=NOW - DAY), record("new", seen_at=NOW - 1)]
    live = [connection(7, loaded=3, own=both), connection(3), connection(4, "new"), connection(6, "unused")]
    rows = listed(stage, records, *live, connection(5, "unused", client="first"))
    assert len({tuple(row) for row in rows}) == 1, "nobody must look first which kind a session is"
    assert rows[2]["client"] == "first"
    assert [(row["key"], row["number"], row["connections"]) for row in rows] == [
        ("new", None, 1),
        ("old", None, 0),
        ("unused", None, 2),
        (None, 3, 1),
        (None, 7, 1),
    ]
    assert [(row["loaded"], row["invalid"]) for row in rows] == [(0, 0), (2, 1), (0, None), (0, 0), (3, 1)]
    assert [row["seenAt"] for row in rows] == [NOW - 1, NOW - DAY, None, None, None]


class Unreadable(McpdError):
    """What a store raises."""


def daemon_with(
    stage: Stage, archive: FakeArchive, *live: SessionStatistics, held: Iterable[tuple[SessionRecord, int]] = ()
) -> OperatorContext:
    clients = clients_of(*map(FakeSession, live), in_use=held)
    return operator_context(stage, archive=archive, clients=clients, wall=lambda: NOW)


async def ask(context: OperatorContext, key: str | None = None) -> Any:
    return await session_commands.sessions(context, session_commands.SessionsParams(key))


async def test_a_session_in_use_is_shown_as_it_is_in_memory() -> None:
    stage = Stage()
    archive = FakeArchive([record("a", seen_at=NOW - DAY)])
    newer = record("a", loaded_of(stage, ("alpha", "echo")), seen_at=NOW)
    daemon = daemon_with(stage, archive, connection(1, "a"), connection(2, "b"), held=[(newer, 1)])
    bare: Any = await ask(daemon, "b")
    assert (bare["key"], bare["connections"], bare["loaded"]) == ("b", 1, [])
    one: Any = await ask(daemon, "a")
    everything: Any = await ask(daemon)
    assert len(one["loaded"]) == 1
    assert [(row["loaded"], row["seenAt"]) for row in everything["sessions"]] == [(1, NOW), (0, None)]


async def test_an_unknown_key_is_refused_with_those_that_are_close() -> None:
    archive = FakeArchive([record("/home/me/projekt"), record("other")])
    daemon = daemon_with(
        Stage(), archive, connection(1, "/home/me/project2"), connection(2), connection(3, "other")
    )
    text = (
        "no session is named '/home/me/project'. Did you mean /home/me/project2 or /home/me/projekt?"
        " There are: /home/me/projekt, other, /home/me/project2."
    )
    with pytest.raises(InvalidArguments, match=re.escape(text)):
        await ask(daemon, "/home/me/project")


@pytest.mark.parametrize("key", ["", "x" * 100_000, "\x1b[31m", "\udcff"])
async def test_a_key_that_cannot_be_one_is_refused_in_a_short_text(key: str) -> None:
    with pytest.raises(InvalidArguments, match="There are none") as refused:
        await ask(daemon_with(Stage(), FakeArchive()), key)
    assert len(str(refused.value)) < 400
    assert str(refused.value).isprintable()


async def test_while_nothing_can_be_read_what_is_in_use_is_shown_and_the_rest_is_said_to_lack() -> None:
    stage = Stage()
    held = record("a", loaded_of(stage, ("alpha", "echo")))
    daemon = daemon_with(
        stage,
        FakeArchive(fault=Unreadable("the disk is gone")),
        connection(1, "a"),
        connection(2),
        held=[(held, 1)],
    )
    answer: Any = await ask(daemon)
    assert [row["key"] for row in answer["sessions"]] == ["a", None]
    assert answer["incomplete"].endswith("cannot be read now: the disk is gone")
    one: Any = await ask(daemon, "a")
    assert len(one["loaded"]) == 1
    with pytest.raises(CallError, match="session 'b' has loaded cannot be read now: the disk is gone"):
        await ask(daemon, "b")


async def test_a_session_that_is_known_in_part_is_not_shown_as_the_whole_one() -> None:
    archive = FakeArchive([attrs.evolve(record("a"), partial=True)])
    archive.degrade("the database is away")
    with pytest.raises(CallError, match="session 'a' has loaded cannot be read now: the database is away"):
        await ask(daemon_with(Stage(), archive), "a")


async def test_while_persistence_is_degraded_a_list_is_not_called_whole() -> None:
    archive = FakeArchive([record("a")])
    archive.degrade("the disk is full")
    daemon = daemon_with(Stage(), archive)
    answer: Any = await ask(daemon)
    assert [row["key"] for row in answer["sessions"]] == ["a"]
    assert answer["incomplete"].endswith("older sessions may be missing: the disk is full")
    with pytest.raises(InvalidArguments, match=r"There are: a\. But persistence is degraded, .* disk is full"):
        await ask(daemon, "b")


async def test_a_session_that_a_connection_takes_part_in_besides_its_own_is_in_use() -> None:
    held = [(record("a"), 2)]
    daemon = daemon_with(Stage(), FakeArchive(), connection(1, "own"), held=held)
    one: Any = await ask(daemon, "a")
    everything: Any = await ask(daemon)
    assert (one["connections"], one["forgottenInSeconds"]) == (2, None)
    assert [(row["key"], row["connections"]) for row in everything["sessions"]] == [("a", 2), ("own", 1)]


async def test_a_connection_without_a_key_is_shown_by_its_number() -> None:
    stage = Stage()
    own = loaded_of(stage, ("alpha", "echo"), ("beta", "echo"), at=NOW - 5)
    stage.lists("beta", "add")
    daemon = daemon_with(stage, FakeArchive(), connection(4, loaded=2, own=own), connection(5, "k"))
    answer: Any = await ask(daemon, "#4")
    assert (answer["key"], answer["number"], answer["connections"]) == (None, 4, 1)
    assert [(each["name"], each["status"], bool(each["reason"])) for each in answer["loaded"]] == [
        ("echo", "valid", False),
        ("echo", "invalid_deleted", True),
    ]
    keyed: Any = await ask(daemon, "#5")
    assert keyed["key"] == "k"
    assert await ask(daemon, "5") == keyed
    for absent in ("#6", "6"):
        with pytest.raises(InvalidArguments, match=rf"no session is named '{absent}'.*#4"):
            await ask(daemon, absent)


async def test_a_key_that_looks_like_a_number_is_the_key_where_it_is_known() -> None:
    archive = FakeArchive([record("#4")])
    daemon = daemon_with(Stage(), archive, connection(4))
    named: Any = await ask(daemon, "#4")
    assert named["key"] == "#4"
    archive.fault = Unreadable("no disk")
    numbered: Any = await ask(daemon, "#4")
    assert numbered["number"] == 4


async def test_sessions_that_nobody_has_named_are_no_rows_of_their_own() -> None:
    archive = FakeArchive([record(anonymous_key("a" * 32) or ""), record("k")])
    daemon = daemon_with(Stage(), archive)
    answer: Any = await ask(daemon)
    assert [row["key"] for row in answer["sessions"]] == ["k"]
    with pytest.raises(InvalidArguments) as refused:
        await ask(daemon, "kk")
    assert "anonymous" not in str(refused.value)


async def test_more_sessions_than_are_listed_are_said_to_be_left_out() -> None:
    archive = FakeArchive(
        [record(f"s{number}", seen_at=NOW - number) for number in range(session_commands.MAX_LISTED + 1)]
    )
    answer: Any = await ask(daemon_with(Stage(), archive))
    assert len(answer["sessions"]) == session_commands.MAX_LISTED
    assert answer["more"] is True
    assert "incomplete" not in answer


@cases("name", "version", "tools", "said")
def test_what_fits_a_client_says_why(name: str, version: str, tools: int, said: str) -> None:
    assert session_commands.why(fitting(ClientInfo(name, version), lambda: tools)) == said


def test_there_are_words_for_all_grounds() -> None:
    assert all(session_commands.why(SurfaceChoice(surface="full", grounds=grounds)) for grounds in Grounds)
