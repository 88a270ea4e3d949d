"""Two daemons: on one directory the second refuses; on one PostgreSQL they share what they know."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from tests.e2e.harness import META, Daemon, changeable, running, serving
from tests.e2e.loading import META_TOOLS
from tests.e2e.raw_http import HttpDoor
from tests.e2e.test_held import Approving
from tests.scripted_server import tool
from tests.unit.state.postgres import Server, shared, started
from tests.waiting import PATIENCE, WAIT, eventually

READ = tool("read", inputSchema={"type": "object", "properties": {"path": {"type": "string"}}})
WRITE = tool("write")

EX_UNAVAILABLE = 69


def configured(**more: Any) -> dict[str, Any]:
    servers = {"s": changeable(READ, WRITE), "t": changeable(tool("look"))}
    return {"mcpServers": servers, "profiles": {"default": {"surface": "load"}}, **more}


# --- one directory -------------------------------------------------------------------------------------------


def test_a_second_daemon_on_one_directory_refuses_and_names_the_first() -> None:
    with running(configured()) as first, running(configured()) as second:
        second.stop()
        first.ready()
        with first.client().hello(session="k") as client:
            client.load("read")
            state = ("--state-dir", str(first.state.parent))
            done = second.outcome("run", "--config", str(first.config), *state)
            assert done.returncode == EX_UNAVAILABLE
            assert first.process is not None
            assert f"another daemon, pid {first.process.pid}, keeps its state in {first.state}" in done.stderr
            assert "--state-dir" in done.stderr
            client.load("write")
            assert client.listed() == [*META_TOOLS, "read", "write"]
        assert first.persistence()["state"] == "ok"


def test_a_first_daemon_that_was_killed_is_in_nobodys_way() -> None:
    with serving(configured()) as first:
        with first.client().hello(session="k") as client:
            client.load("read")
        first.stop(signal.SIGKILL)
        with running(configured(), {"XDG_STATE_HOME": first.environ["XDG_STATE_HOME"]}) as second:
            with second.client().hello(session="k") as client:
                assert client.listed() == [*META_TOOLS, "read"]
            assert second.persistence()["state"] == "ok"
        # Where the first one was, the next one begins.
        first.start()
        with first.client().hello(session="k") as client:
            assert client.listed() == [*META_TOOLS, "read"]


# --- one PostgreSQL ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with shared() as server:
        yield server


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    made = postgres.database()
    yield made
    postgres.drop(made)


@contextmanager
def two(url: str, config: dict[str, Any] | None = None) -> Iterator[tuple[Daemon, Daemon]]:
    """Two daemons on a database, all of whose servers are ready."""
    config = config or configured(state={"url": url})
    with ExitStack() as stack:
        one, other = (stack.enter_context(running(config)) for _ in range(2))
        for daemon in (one, other):
            daemon.ready()
            eventually(partial(written, daemon), daemon.said)
        yield one, other


@pytest.fixture(scope="module")
def pair(postgres: Server) -> Iterator[tuple[Daemon, Daemon]]:
    """Two daemons for tests that use sessions of their own, and leave them as they were."""
    made = postgres.database()
    with two(made) as found:
        yield found
    postgres.drop(made)


def epochs(*daemons: Daemon) -> list[int]:
    return [daemon.ask("status")["servers"]["s"]["epoch"] for daemon in daemons]


def test_what_is_loaded_at_one_daemon_is_there_at_the_other(pair: tuple[Daemon, Daemon]) -> None:
    one, other = pair
    with one.client().hello(session="k") as here, other.client().hello(session="k") as there:
        here.load("read")
        with other.client().hello(session="k") as late:
            # It had nothing when it was recalled there: the poll brings what came since.
            eventually(lambda: late.listed() == [*META_TOOLS, "read"], other.said)
        assert there.call("read", {"path": "x"})["isError"] is False
        there.load("look")
        eventually(lambda: here.listed() == [*META_TOOLS, "read", "look"], one.said)
    with one.client().hello(session="another") as here:
        here.load("write")
    with other.client().hello(session="another") as there:
        assert there.listed() == [*META_TOOLS, "write"]
    assert list(other.loaded("another")) == ["s/write"]


def test_what_an_operator_takes_away_at_one_daemon_is_gone_at_the_other(pair: tuple[Daemon, Daemon]) -> None:
    one, other = pair
    with one.client().hello(session="taken") as here:
        here.load("read")
        here.load("write")
        # Nobody uses the session at the other daemon, which deletes what the first one has stored.
        other.ask("unload", session="taken", tool="s/read")
        eventually(lambda: here.listed() == [*META_TOOLS, "write"], one.said)
        assert "ToolNotLoaded" in here.call("read", {})["content"][0]["text"]
        here.load("read")
        one.ask("unload", session="taken")
        assert here.listed() == META_TOOLS
        eventually(lambda: list(other.loaded("taken")) == [], other.said)


MANY = [f"tool_{number}" for number in range(24)]


def test_a_client_that_takes_turns_finds_at_each_daemon_what_it_has_loaded_at_the_other(url: str) -> None:
    config = {**configured(state={"url": url}), "mcpServers": {"s": changeable(*map(tool, MANY))}}
    with (
        two(url, config) as (one, other),
        one.client().hello(session="k") as here,
        other.client().hello(session="k") as there,
    ):
        assert here.listed() == there.listed() == META_TOOLS
        for number, name in enumerate(MANY):
            loading, calling = (here, there) if number % 2 else (there, here)
            loading.load(name)
            # At once: the daemon may not have been told of it yet.
            assert calling.call(name, {})["isError"] is False
            assert calling.listed() == [*META_TOOLS, *MANY[: number + 1]]
        assert set(one.loaded("k")) == set(other.loaded("k")) == {f"s/{name}" for name in MANY}


def test_what_waits_at_both_daemons_is_approved_at_one_for_both(url: str) -> None:
    config = configured(state={"url": url}, trust="changes", profiles={"default": {"surface": "full"}})
    changed = tool("read", description="Reads everything.")
    with two(url, config) as (one, other), other.client() as there:
        for daemon in (one, other):
            daemon.changes("s", changed, WRITE)
        assert there.call("read", {})["structuredContent"]["error"]["code"] == "ToolHeld"
        client = Approving(one, HttpDoor(), "unix", modern=True)
        try:
            assert not client.run("read").get("isError")
        finally:
            client.close()
        eventually(lambda: not there.call("read", {})["isError"], other.said)


def test_a_modern_client_takes_turns_too(pair: tuple[Daemon, Daemon]) -> None:
    one, other = pair
    with one.client() as here, other.client() as there:
        meta = {**META, "mcpd/session": "conversation"}
        for name, loading, calling in (("read", here, there), ("write", there, here)):
            asked = {"name": "load_mcp_tool", "arguments": {"names": [name]}, "_meta": meta}
            assert loading.ask("tools/call", asked)["result"]["isError"] is False
            called = calling.ask("tools/call", {"name": name, "arguments": {}, "_meta": meta})
            assert called["result"]["isError"] is False
        for client in (here, there):
            listed = client.ask("tools/list", {"_meta": meta})["result"]["tools"]
            assert [each["name"] for each in listed] == [*META_TOOLS, "read", "write"]


def test_daemons_are_told_again_after_their_listening_connections_were_ended(
    postgres: Server, url: str
) -> None:
    with two(url) as (one, other):
        # Both serve before they listen.
        eventually(lambda: listeners(postgres, url) == 2, other.said)
        ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        assert postgres.run(f"{ended} WHERE query LIKE 'LISTEN%' AND datname = '{name_of(url)}'") == [(2,)]
        # Also before they listen again nothing is missed, only later.
        one.run("disable", "s/read")
        eventually(lambda: other.ask("status")["switchedOff"] == ["s/read"], other.said)
        eventually(lambda: listeners(postgres, url) == 2, other.said)
        assert "as notifications fail" in one.said()
        for daemon in (one, other):
            assert daemon.persistence()["state"] == "ok"
        eventually(
            lambda: all("other daemons' writes again" in daemon.said() for daemon in (one, other)), one.said
        )
        other.run("enable", "s/read")
        eventually(lambda: one.ask("status")["switchedOff"] == [], one.said)


def test_daemons_go_on_while_their_database_is_stopped_and_are_told_once_it_is_back() -> None:
    with started() as server:
        url = server.database()
        with (
            two(url) as (one, other),
            one.client().hello(session="k") as here,
            other.client().hello(session="k") as there,
        ):
            here.load("read")
            assert there.listed() == [*META_TOOLS, "read"]
            with server.stopped():
                here.load("write")
                assert there.call("read", {})["isError"] is False
                eventually(lambda: all(map(degraded, (one, other))), one.said)
            for daemon in (one, other):
                eventually(partial(written, daemon), daemon.said)
            # What one has written, the other reads a moment later.
            eventually(lambda: there.call("write", {})["isError"] is False, other.said)
            eventually(lambda: listeners(server, url) == 2, one.said)
            there.load("look")
            assert here.listed() == [*META_TOOLS, "read", "write", "look"]


def test_a_word_that_is_said_at_one_is_obeyed_at_the_other(pair: tuple[Daemon, Daemon]) -> None:
    one, other = pair
    with other.client().hello(session="obeyed") as there:
        there.load("read", "look")
        before = epochs(one, other)
        assert before[0] == before[1]
        one.run("disable", "s/read")
        eventually(lambda: there.listed() == [*META_TOOLS, "look"], other.said)
        assert there.call("read", {})["structuredContent"]["error"]["code"] == "ToolDisabled"
        one.run("disable", "t")
        eventually(lambda: other.ask("status")["servers"]["t"]["state"] == "disabled", other.said)
        assert there.listed() == META_TOOLS
        other.run("enable", "t")
        eventually(lambda: one.ask("status")["servers"]["t"]["state"] == "ready", one.said)
        other.run("enable", "s/read")
        eventually(lambda: one.ask("status")["switchedOff"] == [], one.said)
        eventually(lambda: epochs(one, other) == [before[0] + 2] * 2, lambda: (before, epochs(one, other)))
        assert there.listed() == [*META_TOOLS, "read", "look"]


def happened(daemon: Daemon, **asked: Any) -> list[tuple[str, int]]:
    """Lives and numbers of what has happened to the server `s`, at either daemon."""
    events = daemon.ask("events", server="s", limit=10_000, **asked)["events"]
    return [(event["daemon"], event["number"]) for event in events]


def test_who_follows_events_at_one_gets_those_of_the_other_each_once(postgres: Server, url: str) -> None:
    with two(url) as (one, other):
        # The other one's last events may not be in the store when the first answer is given.
        other.ask("restart", server="s")
        answer = one.ask("events", server="s", limit=10_000)
        got = [(event["daemon"], event["number"]) for event in answer["events"]]

        def follow() -> set[tuple[str, int]]:
            nonlocal answer
            asked = {"server": "s", "limit": 7, "after": answer["next"], "wait": 1}
            answer = one.ask("events", **asked)
            got.extend((event["daemon"], event["number"]) for event in answer["events"])
            return set(got)

        def both_know(least: int) -> list[tuple[str, int]]:
            """What both daemons have told of, once it is that much."""

            def look() -> list[tuple[str, int]]:
                here, there = (happened(daemon) for daemon in (one, other))
                return here if here == there and len(here) >= least else []

            return eventually(look, one.said)

        for daemon in (one, other, one, other):
            daemon.ask("restart", server="s")
            follow()
        known = both_know(len(got))
        eventually(lambda: set(known) <= follow(), one.said)
        assert sorted(got) == sorted(set(known))
        # What happens while the store hangs is told late, also where the follower is ahead by then.
        with postgres.frozen():
            other.ask("restart", server="s")
            one.ask("restart", server="s")
            follow()
        known = both_know(len(known) + 6)
        eventually(lambda: set(known) <= follow(), one.said)
        assert sorted(got) == sorted(set(known))


def test_two_daemons_serve_on_while_their_database_hangs_and_write_once_it_answers(
    postgres: Server, url: str
) -> None:
    with two(url) as (one, other):
        with one.client().hello(session="k") as here, other.client().hello(session="j") as there:
            here.load("read")
            there.load("read")
            with postgres.frozen():
                here.load("write")
                there.load("look")
                assert here.call("write", {})["isError"] is False
                assert there.listed() == [*META_TOOLS, "read", "look"]
                for daemon in (one, other):
                    kept = eventually(partial(degraded, daemon), daemon.said)
                    # The driver says so after 1 s, the recorder after 1.5 s.
                    assert "it has not answered for 1" in kept["reason"]
                    assert f"postgresql://{postgres.directory}/{name_of(url)}" in kept["reason"]
                    assert daemon.run("status", check=1).startswith("persistence: degraded: ")
            for daemon in (one, other):
                eventually(partial(written, daemon), daemon.said)
        with other.client().hello(session="k") as late:
            assert late.listed() == [*META_TOOLS, "read", "write"]
    found = postgres.run("SELECT session, tool FROM loaded_tools", database=name_of(url))
    assert sorted(found) == [("j", "look"), ("j", "read"), ("k", "read"), ("k", "write")]


def test_a_daemon_whose_database_hangs_ends_in_time_all_the_same(postgres: Server, url: str) -> None:
    with two(url) as (one, other):
        with one.client().hello(session="k") as here:
            here.load("read")
            with postgres.frozen():
                here.load("write")
                began = time.monotonic()
                for daemon in (one, other):
                    assert daemon.process is not None
                    os.kill(daemon.process.pid, signal.SIGTERM)
                for daemon in (one, other):
                    assert daemon.process is not None
                    assert daemon.process.wait(WAIT) == 0
                # Promised are 5 s; a busy machine gets more.
                assert time.monotonic() - began < PATIENCE
        assert "could not be written to the store" in one.said()
        # Of the other one only events are lost, at least that it has stopped.
        assert not [line for line in other.said().splitlines() if "change" in line and "are lost" in line]


def listeners(server: Server, url: str) -> int:
    """How many connections listen on a database."""
    count = "SELECT count(*) FROM pg_stat_activity"
    found: int = server.run(f"{count} WHERE query LIKE 'LISTEN%' AND datname = '{name_of(url)}'")[0][0]
    return found


def degraded(daemon: Daemon) -> dict[str, Any]:
    kept = daemon.persistence()
    return kept if kept["state"] == "degraded" else {}


def written(daemon: Daemon) -> bool:
    kept = daemon.persistence()
    return (kept["state"], kept["waiting"]) == ("ok", 0)


def name_of(url: str) -> str:
    return url.split("/")[3].partition("?")[0]
