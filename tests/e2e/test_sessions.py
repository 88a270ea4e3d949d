"""Sessions that outlive their connections: the real daemon, real clients, and what becomes of loaded tools."""

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from tests.damages import rows
from tests.e2e.harness import Daemon, RawClient, changeable, serving
from tests.e2e.loading import META_TOOLS
from tests.e2e.scripts import CHANGED, LIST, Clients, call, names, refusal
from tests.scripted_server import tool
from tests.waiting import eventually

LIST_CHANGED = "notifications/tools/list_changed"
READ = tool("read", inputSchema={"type": "object", "properties": {"path": {"type": "string"}}})
WRITE = tool("write")
OTHER = tool("read", inputSchema={"type": "object", "properties": {"file": {"type": "string"}}})


def configured(**more: Any) -> dict[str, Any]:
    servers = {"s": changeable(READ, WRITE), "t": changeable(tool("look"))}
    return {"mcpServers": servers, "profiles": {"default": {"surface": "load"}}, **more}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with serving(configured()) as daemon:
        yield daemon


# --- keys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_loaded_is_listed_and_callable_after_a_restart(ended_by: signal.Signals) -> None:
    """By the model, and after an orderly restart by a call; what a profile preloads is there from the start."""
    profiles = {
        "default": {"surface": "load"},
        "auto": {"surface": "load", "autoLoad": True},
        "ready": {"surface": "load", "preload": ["s/read", "look"]},
    }
    with serving(configured(profiles=profiles)) as daemon:
        with daemon.client().hello(session="/home/me/project") as client:
            client.load("write", "read")
        with daemon.client().hello(session="by call", profile="auto") as client:
            assert not client.call("read", {})["isError"]
        with daemon.client().hello(session="preloaded", profile="ready") as client:
            assert client.listed() == [*META_TOOLS, "read", "look"]
            assert client.call("look", {"at": "x"})["content"][0]["text"] == '{"at": "x"}'
            assert client.call("write", {})["structuredContent"]["error"]["code"] == "ToolNotLoaded"
            assert {each["source"] for each in daemon.loaded("preloaded").values()} == {"policy_preload"}
        daemon.restart(ended_by)
        with daemon.client().hello(session="/home/me/project") as client:
            assert client.listed() == [*META_TOOLS, "write", "read"]
            daemon.ready()
            assert client.call("read", {"path": "x"})["content"][0]["text"] == '{"path": "x"}'
        assert [each["status"] for each in daemon.loaded("/home/me/project").values()] == ["valid"] * 2
        if ended_by == signal.SIGTERM:
            assert {name: each["source"] for name, each in daemon.loaded("by call").items()} == {
                "s/read": "auto"
            }
            assert [*daemon.loaded("preloaded")] == ["s/read", "t/look"]


@pytest.mark.parametrize("auto_load", [False, True])
def test_the_old_name_of_a_renamed_tool_runs_and_its_answer_says_so_once(auto_load: bool) -> None:
    config = configured(profiles={"default": {"surface": "load", "autoLoad": auto_load}})
    with serving(config) as daemon:
        with daemon.client().hello(session="k") as client:
            client.load("read")
            daemon.changes("s", {**READ, "name": "read_file"}, WRITE)
            eventually(lambda: daemon.loaded("k")["s/read"]["status"] == "invalid_renamed", daemon.said)
            told = "server s has renamed 'read': it is called read_file now."
            content = client.call("read", {"path": "x"})["content"]
            assert [each["text"] for each in content] == ['{"path": "x"}', told]
            assert client.listed() == [*META_TOOLS, "read_file"]
            content = client.call("read", {"path": "y"})["content"]
            assert [each["text"] for each in content] == ['{"path": "y"}']
            eventually(lambda: "call load_mcp_tool(read) in k " in daemon.said(), daemon.said)
            assert "epoch 2: its tools have changed: 1 came (read_file); 1 went (read)" in daemon.said()
        assert {name: each["source"] for name, each in daemon.loaded("k").items()} == {
            "s/read": "manual",
            "s/read_file": "auto",
        }


def test_a_client_without_a_key_is_forgotten_when_it_hangs_up(daemon: Daemon) -> None:
    for _ in range(2):
        with daemon.client() as client:
            assert client.listed() == META_TOOLS
            client.load("read")
            assert client.listed() == [*META_TOOLS, "read"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_real_client_finds_its_session_through_the_bridge(
    daemon: Daemon, clients: Clients, mode: str
) -> None:
    options, job = ["--session", f"bridged {mode}"], {"mode": mode, "listen": mode != "legacy"}
    load = call("load_mcp_tool", names=["look"])
    first = clients.bridged(daemon, options, LIST, load, CHANGED, **job)
    second = clients.bridged(daemon, options, LIST, call("look", at="this"), **job)
    assert names(first.results[0]) == META_TOOLS
    assert names(second.results[0]) == [*META_TOOLS, "look"]
    assert second.last["text"] == '{"at": "this"}'


def test_the_bridge_takes_its_key_from_the_environment(daemon: Daemon, clients: Clients) -> None:
    bridge = ["env", "MCPD_SESSION=from the environment", *daemon.command("connect", "--socket")]
    clients.spawned([*bridge, str(daemon.socket)], call("load_mcp_tool", names=["look"]))
    assert names(clients.spawned([*bridge, str(daemon.socket)], LIST).last) == [*META_TOOLS, "look"]
    assert list(daemon.loaded("from the environment")) == ["t/look"]


# --- expiry --------------------------------------------------------------------------------------------------


def test_a_session_that_nobody_uses_is_forgotten_and_one_in_use_is_not() -> None:
    with serving(configured(state={"sessionIdle": 2})) as daemon, daemon.client().hello(session="kept") as kept:
        kept.load("read")
        with daemon.client().hello(session="left") as left:
            left.load("read")
        eventually(lambda: [each["key"] for each in sessions(daemon)] == ["kept"], daemon.said)
        assert rows(daemon.state, "SELECT session FROM loaded_tools") == [("kept",)]
        with daemon.client().hello(session="left") as left:
            assert left.listed() == META_TOOLS
        assert kept.listed() == [*META_TOOLS, "read"]


# --- the six statuses ----------------------------------------------------------------------------------------


@attrs.frozen
class Case:
    """A change, and what becomes of `s/read`, which a session has loaded."""

    status: str
    code: str
    change: Callable[[Daemon], None]
    undo: Callable[[Daemon], None]
    reason: str
    """Words of the reason in `mcpd sessions`."""
    told: str
    """Words of what a call is answered with."""
    advice: str
    """Words of what `mcpd sessions KEY` says is to be done."""


def as_it_was(daemon: Daemon) -> None:
    daemon.changes("s", READ, WRITE)


def off(name: str) -> Callable[[Daemon], None]:
    def switch(daemon: Daemon) -> None:
        daemon.ask("switch", name=name, off=True)

    return switch


def on(name: str) -> Callable[[Daemon], None]:
    def switch(daemon: Daemon) -> None:
        daemon.ask("switch", name=name, off=False)
        daemon.ready("s")

    return switch


CASES = [
    Case(
        "invalid_changed",
        "ToolChanged",
        lambda daemon: daemon.changes("s", OTHER, WRITE),
        as_it_was,
        "server s has changed it since it was loaded",
        "nothing was sent. error.definition has its present definition",
        "It can be called again once it is loaded again",
    ),
    Case(
        "invalid_server_disabled",
        "ToolDisabled",
        off("s"),
        on("s"),
        "server s is switched off",
        "its server s is switched off by an operator (`mcpd enable s` brings it back)",
        "Switch it on: `mcpd enable s`",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.status for case in CASES])
def test_a_tool_that_is_lost_leaves_the_list_is_announced_and_answered(daemon: Daemon, case: Case) -> None:
    key = f"lost by {case.status}"
    as_it_was(daemon)
    with daemon.client().hello(session=key) as one, daemon.client().hello(session=key) as two:
        one.greet()
        two.subscribe(99, toolsListChanged=True)
        one.load("read", "look")
        for client in (one, two):
            assert client.listed() == [*META_TOOLS, "read", "look"]
        case.change(daemon)
        assert "params" in one.notice(LIST_CHANGED)
        assert two.notice(LIST_CHANGED)["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 99}
        for client in (one, two):
            assert client.listed() == [*META_TOOLS, "look"]
        lost = daemon.loaded(key)["s/read"]
        assert (lost["status"], lost["source"], lost["age"] >= 0) == (case.status, "manual", True)
        assert case.reason in lost["reason"]
        assert case.advice in " ".join(daemon.run("sessions", key).split())
        case.undo(daemon)
        one.notice(LIST_CHANGED)
        assert one.listed() == [*META_TOOLS, "read", "look"]
        assert daemon.loaded(key)["s/read"]["status"] == "valid"
        case.change(daemon)
        answer = one.call("read", {"path": "x"})
        assert answer["isError"] is bool(case.code)
        assert answer["content"][-1]["text"].startswith(case.code)
        assert case.told in answer["content"][-1]["text"]
        case.undo(daemon)


def test_a_tool_that_has_changed_is_refused_until_it_is_loaded_again(daemon: Daemon) -> None:
    as_it_was(daemon)
    with daemon.client().hello(session="once") as client:
        client.load("read")
        daemon.changes("s", OTHER, WRITE)
        shown = refused(client)["definition"]
        assert shown["inputSchema"] == OTHER["inputSchema"]
        assert refused(client)["load"] == {"name": "load_mcp_tool", "arguments": {"names": ["read"]}}
        client.load("read")
        assert client.call("read", {"file": "x"})["isError"] is False
        assert client.listed() == [*META_TOOLS, "read"]
    whole = daemon.loaded("once")["s/read"]["schemaHash"]
    assert (len(whole), whole[:12]) == (64, shown["schemaHash"])


def test_a_server_that_leaves_the_configuration_takes_its_tools_along_and_brings_them_back() -> None:
    config = configured()
    with serving(config) as daemon, daemon.client().hello(session="k") as client:
        client.load("read", "look")
        without = {**config, "mcpServers": {"t": config["mcpServers"]["t"]}}
        daemon.config.write_text(json.dumps(without))
        daemon.ask("reload")
        assert client.listed() == [*META_TOOLS, "look"]
        assert refused(client)["code"] == "UnknownTool"
        lost = daemon.loaded("k")["s/read"]
        assert lost["status"] == "invalid_deleted"
        assert lost["reason"] == "server s is no longer in mcpd's configuration"
        daemon.config.write_text(json.dumps(config))
        daemon.ask("reload")
        daemon.ready("s")
        assert "read" in client.listed()


# --- mcpd sessions -------------------------------------------------------------------------------------------


# --- small parts ---------------------------------------------------------------------------------------------


def sessions(daemon: Daemon) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.ask("sessions", key=None)["sessions"]
    return found


def refused(client: RawClient, name: str = "read") -> dict[str, Any]:
    """The error that a call is answered with; its text says the same."""
    answer = client.call(name, {"path": "x"})
    text = answer["content"][0]["text"]
    return refusal({"isError": answer["isError"], "structured": answer["structuredContent"], "text": text})
