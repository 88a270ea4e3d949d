"""Each server, with what the daemon says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.checks.entries import check
from daemon.checks.findings import Level
from tests.unit.checks.scenes import levels, only
from tests.unit.cli.daemons import diagnosed, down, server

if TYPE_CHECKING:
    from tests.unit.checks.scenes import House


def test_a_server_that_can_be_started_is_fine_and_says_what_will_be(house: House) -> None:
    tool = house.program("tool")
    house.servers(git={"command": "tool"}, web={"url": "https://h.invalid/"})
    found = list(check(house.look()))
    assert levels(found) == ["ok", "note", "ok"]
    assert [each.what for each in found if each.level is Level.OK] == [f"git: {tool}", "web: type http"]


def test_a_package_without_a_version_is_warned_of_at_its_own_server_only(house: House) -> None:
    house.program("npx")
    house.servers(a={"command": "npx", "args": ["-y", "x"]}, b={"command": "npx", "args": ["-y", "y@1.2.3"]})
    found = list(check(house.look()))
    assert "'x' has no exact version" in only(found, Level.WARNING)
    assert levels(found) == ["warning", "note", "ok"]


def test_a_server_that_takes_one_call_at_a_time_is_warned_of_until_it_gets_no_more(house: House) -> None:
    house.program("mcp-server-memory")
    house.servers(m={"command": "mcp-server-memory"})
    said = only(check(house.look()), Level.WARNING)
    assert 'Write "limits": {"inFlight": 1}' in said
    house.servers(m={"command": "mcp-server-memory", "limits": {"inFlight": 1}})
    assert levels(check(house.look())) == ["ok"]


def test_a_server_that_is_switched_off_is_not_looked_at(house: House) -> None:
    house.servers(a={"command": "no-such-program", "enabled": False})
    assert levels(check(house.look())) == ["ok"]


def test_with_a_faulty_configuration_nothing_can_be_said(house: House) -> None:
    house.write("{")
    assert "once the configuration has no faults" in only(check(house.look()), Level.NOTE)


def test_a_server_that_is_not_well_is_a_fault_with_what_helps(house: House) -> None:
    house.program("tool")
    house.servers(git={"command": "tool"})
    with house.daemon({"git": down(happened="A Python module is missing: pg.", helps="Install it.")}):
        said = only(check(house.look()), Level.FAULT)
    assert said.startswith("git: backoff: exited with status 1\nA Python module is missing: pg.\nInstall it")


def test_a_reason_that_nothing_is_known_about_is_told_as_it_is(house: House) -> None:
    house.program("tool")
    house.servers(git={"command": "tool"})
    with house.daemon({"git": down(None, state="degraded", reason="")}):
        said = only(check(house.look()), Level.FAULT)
    assert "degraded: no reason is known" in said
    assert "mcpd logs git" in said


def test_servers_that_are_well_or_only_starting_or_not_known_yet_are_fine(house: House) -> None:
    house.program("tool")
    house.servers(a={"command": "tool"}, **{name: {"command": "tool"} for name in "bcd"})
    with house.daemon({"a": server(), "b": down(state="starting"), "c": down(state="queued")}):
        assert levels(check(house.look())) == ["ok"] * 4


def test_a_cause_that_is_seen_is_not_said_twice(house: House) -> None:
    house.servers(git={"command": "tool"}, web={"url": "http://127.0.0.1:1/"})
    missing = down("command-not-found", state="failed", causeData={"command": "tool"})
    refused = diagnosed(down("refused", causeData={"place": "127.0.0.1:1"}))
    with house.daemon({"git": missing, "web": refused}):
        found = list(check(house.look()))
    assert levels(found) == ["fault", "fault"]
    assert "tool is not on the PATH" in found[0].what
    assert "Nobody listens" in found[1].why


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
