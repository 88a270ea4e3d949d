"""Each server, with what the daemon says of it."""

import socket
from pathlib import Path
from typing import Any

import pytest

from daemon.checks.entries import NAMED, check, endpoint, loopback, most_instances
from daemon.checks.entries import sharing as check_sharing
from daemon.checks.findings import Finding, Level
from daemon.config.config_model import Server, TransportType
from tests.unit.cases import cases
from tests.unit.checks.scenes import House, levels, listening, only
from tests.unit.cli.daemons import diagnosed, down, server
from tests.unit.config.reading import server_of


def test_a_server_that_can_be_started_is_fine_and_says_what_will_be(house: House) -> None:
    tool, off = house.program("tool"), {"command": "no-such-program", "enabled": False}
    house.servers(git={"command": "tool"}, web={"url": "https://h.invalid/"}, off=off)
    found = list(check(house.look()))
    assert levels(found) == ["ok", "note", "ok", "ok"]
    assert [each.what for each in found if each.level is Level.OK][:2] == [f"git: {tool}", "web: type http"]
    house.write("{")
    assert "once the configuration has no faults" in only(check(house.look()), Level.NOTE)


def test_a_server_that_is_not_well_is_a_fault_with_what_helps(house: House) -> None:
    house.program("tool")
    house.servers(git={"command": "tool"})
    with house.daemon({"git": down(happened="A Python module is missing: pg.", helps="Install it.")}):
        said = only(check(house.look()), Level.FAULT)
    assert said.startswith("git: backoff: exited with status 1\nA Python module is missing: pg.\nInstall it")


def test_servers_that_are_well_or_only_starting_or_not_known_yet_are_fine(house: House) -> None:
    house.program("tool")
    house.servers(a={"command": "tool"}, **{name: {"command": "tool"} for name in "bcd"})
    with house.daemon({"a": server(), "b": down(state="starting"), "c": down(state="queued")}):
        assert levels(check(house.look())) == ["ok"] * 4


def test_what_waits_for_approval_is_a_warning_with_the_way_to_look_and_to_approve(house: House) -> None:
    house.program("tool")
    house.servers(git={"command": "tool"}, time={"command": "tool"})
    held = {f"tool{number}": {"because": "new", "change": {}} for number in range(NAMED + 2)}
    with house.daemon({"git": server(held=held), "time": server(held={})}):
        said = only(check(house.look()), Level.WARNING)
    names = ", ".join([*held][:NAMED])
    assert said.startswith(f"git: waiting for approval: 12 definitions, such as {names}\n")
    assert "`mcpd approve --diff git` shows them, `mcpd approve git` approves them." in said
    house.config.with_name("mcpd.lock").write_text("{")
    with house.daemon({"git": server(held=held), "time": server(held={})}):
        assert levels(check(house.look())) == ["ok"] * 2, "nothing can be approved before the lock is repaired"


def test_a_package_without_a_version_is_warned_of_at_its_own_server_only(house: House) -> None:
    house.program("npx")
    house.servers(a={"command": "npx", "args": ["-y", "x"]}, b={"command": "npx", "args": ["-y", "y@1.2.3"]})
    found = list(check(house.look()))
    assert "a: the package has no exact version" in only(found, Level.WARNING)
    assert levels(found) == ["warning", "note", "ok"]


def test_a_cause_that_is_seen_is_not_said_twice(house: House) -> None:
    house.servers(git={"command": "tool"}, web={"url": "http://127.0.0.1:1/"})
    missing = down("command-not-found", state="failed", causeData={"command": "tool"})
    refused = diagnosed(down("refused", causeData={"place": "127.0.0.1:1"}))
    with house.daemon({"git": missing, "web": refused}):
        found = list(check(house.look()))
    assert levels(found) == ["fault", "fault"]
    assert "tool is not on the PATH" in found[0].what
    assert "No program listens" in found[1].why


def test_a_server_that_clients_do_not_share_says_how_many_of_it_there_may_be(house: House) -> None:
    tool = house.program("tool")
    house.servers(
        a={"command": "tool", "share": "session", "limits": {"instances": 3}},
        b={"command": "tool", "args": ["${workspace}"]},
        c={"command": "${workspace}/bin/c", "workspacePrograms": True},
    )
    assert [each.what for each in check(house.look()) if each.level is Level.OK] == [
        f"a: {tool}, one for each session, at most 3 at a time",
        f"b: {tool}, one for each workspace, at most 16 at a time",
        "c: ${workspace}/bin/c, one for each workspace, at most 16 at a time",
    ]


# --- urls: real listeners on this machine, and nothing else is ever connected to -----------------------------


def found(url: str, kind: str = "http", *, connect: bool = True, **more: Any) -> list[Finding]:
    return list(endpoint(Server(name="s", type=TransportType(kind), url=url, **more), connect=connect))


@cases("host", "addresses")
def test_this_machine_is_known_by_its_addresses_and_names(host: str, addresses: list[str]) -> None:
    assert list(loopback(host)) == addresses


@pytest.mark.process
def test_whether_somebody_listens_here_is_seen_if_it_may_be_tried() -> None:
    with listening(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for kind, scheme in (("http", "http"), ("sse", "http"), ("ws", "ws")):
            for host in ("127.0.0.1", "localhost"):
                assert not found(f"{scheme}://{host}:{port}/mcp", kind)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
        told = only(found(url), Level.WARNING)
        assert f"nobody listens on {url[7:-4]} (Connection refused)" in told
        assert not found(url, connect=False)


def test_a_unix_socket_is_tried_likewise(sockets: Path) -> None:
    path = sockets / "a b"
    url = f"unix://{sockets}/a%20b"
    assert "No such file" in only(found(url, "unix"), Level.WARNING)
    assert not found(url, "unix", connect=False)
    with listening(path):
        assert not found(url, "unix")
        assert not found(str(path), "unix")
    assert "Connection refused" in only(found(str(path), "unix"), Level.WARNING)


def test_what_is_elsewhere_is_noted_and_without_encryption_a_warning_and_only_its_host_is_repeated() -> None:
    for url, kind in (("https://me:hunter2@h.invalid/mcp?key=hunter2", "http"), ("wss://h.invalid/", "ws")):
        noted = found(url, kind)
        assert "needs the network, to h.invalid" in only(noted, Level.NOTE)
        assert "hunter" not in str(noted)
    said = only(found("http://h.invalid/", headers={"Authorization": "hunter2"}), Level.WARNING)
    assert ("its headers and all calls" in said, "https://" in said, "hunter2" in said) == (True, True, False)
    assert "wss://" in only(found("ws://10.0.0.1/", "ws"), Level.WARNING)


# --- what a known server keeps for its clients is a warning until its entry says who shares it ---------------


@cases("entry", "causes")
def test_each_matter_is_a_warning_with_its_place_and_what_to_write(
    entry: dict[str, Any], causes: list[list[str]]
) -> None:
    found = list(check_sharing(server_of(entry)))
    assert [[each.cause, each.key] for each in found] == causes
    assert all(each.level is Level.WARNING and each.what.startswith("s ") and each.do for each in found)


@cases("entry", "most")
def test_so_many_instances_run_at_most(entry: dict[str, Any], most: int) -> None:
    assert most_instances(server_of(entry)) == most
