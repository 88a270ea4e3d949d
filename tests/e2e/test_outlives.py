"""Daemons that are killed and restarted under clients that know nothing of it, through `mcpd connect`.

The bridge reaches the daemon by a symbolic link: while that is away, nobody is reached. So a test decides when
the new daemon is found, however slow the machine is.
"""

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from daemon.bridge.stand_in import ARRIVED, STATUS
from tests.e2e.harness import Daemon, RawClient, Spawned, Way, scripted, serving
from tests.e2e.scripts import CHANGED, LIST, PYTHON, PYTHON1, TYPESCRIPT, Processes, call, link, names, refusal
from tests.pairwise import at_night, each_once
from tests.waiting import WAIT, eventually

Json = dict[str, Any]

TOOLS = ["echo", "effect"]

LOADERS = ["load_mcp_server", "load_mcp_tool"]

HANG: Json = {"then": {"never": True}}
"""Arguments of `effect`: leave one, and never answer."""

KILLS = 20
"""In a row: each run has a quarter of them."""

MANY = 50

KINDS: dict[str, tuple[tuple[str, ...], Json]] = {
    "python-sdk-1": (PYTHON1, {}),
    "python-sdk-2-legacy": (PYTHON, {"mode": "legacy"}),
    "python-sdk-2-auto": (PYTHON, {"mode": "auto", "listen": True}),
    "python-sdk-2-modern": (PYTHON, {"mode": "2026-07-28", "listen": True}),
    "typescript-sdk": (TYPESCRIPT, {}),
}

WALK = (LIST, call("effect", **HANG), CHANGED, LIST, call("echo", text="again"))
"""List, lose a call, hear that the tools may have changed, list, call."""


class House(Way):
    """A daemon that comes and goes, its one server, and the way to it."""

    def __init__(self, daemon: Daemon, effects: Path) -> None:
        super().__init__(daemon)
        self._effects = effects

    def effects(self) -> int:
        """How many calls the server has executed."""
        return self._effects.read_text().count("\n") if self._effects.exists() else 0

    def forget(self) -> None:
        """Count from zero again."""
        self._effects.unlink(missing_ok=True)

    def executed(self, count: int) -> None:
        """Wait until it has executed so many."""
        eventually(lambda: self.effects() >= count, self.daemon.said)

    def connect(self) -> list[str]:
        """The command of a bridge."""
        return self.daemon.command("connect", "--socket", str(self.path))


class Bridge(Spawned):
    """A bare client behind a bridge."""

    def __init__(self, house: House, *options: str) -> None:
        daemon = house.daemon
        super().__init__([*house.connect(), *options], daemon.log, cwd=daemon.code)

    def begin(self) -> None:
        """The handshake."""
        self.greet(protocolVersion="2025-06-18", clientInfo={"name": "t", "version": "1"})

    def request(self, request_id: int | str, method: str, **params: Any) -> None:
        """Ask, and do not wait for the answer."""
        request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        self.send(json.dumps(request).encode())

    def hang(self, request_id: int | str) -> None:
        """Call what leaves an effect and never answers."""
        self.request(request_id, "tools/call", name="effect", arguments=HANG)


@contextmanager
def housed(effects: Path, **limits: int) -> Iterator[House]:
    """A house whose server counts the calls that it executes."""
    config = {
        "mcpServers": {"scripted": {**scripted(tools=TOOLS, effects=str(effects)), "limits": limits}},
        "profiles": {"default": {"surface": "full"}, "search": {"surface": "load"}},
    }
    with serving(config) as daemon:
        yield House(daemon, effects)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with housed(tmp_path_factory.mktemp("house") / "effects") as house:
        yield house


@pytest.fixture
def house(lasting: House) -> House:
    """One for all tests, in which nothing has been executed yet."""
    lasting.forget()
    return lasting


@contextmanager
def at_work(house: House) -> Iterator[Bridge]:
    """A client in the middle of its work."""
    with Bridge(house) as client:
        client.begin()
        assert set(TOOLS) <= set(client.listed())
        yield client


def lost(result: Json) -> Json:
    """The error in a result, which must be that the call was lost."""
    error: Json = result["structuredContent"]["error"]
    assert result["isError"] is True
    assert error["code"] == "UpstreamLost"
    assert "unknown" in error["message"]
    return error


def echoes(client: RawClient, text: str = "hello") -> bool:
    return client.call("echo", {"text": text})["isError"] is False


# --- real clients ---------------------------------------------------------------------------------------------


def kill_when_executed(house: House, number: signal.Signals) -> None:
    house.executed(1)
    house.restart(number)


@pytest.mark.parametrize(("kind", "number"), each_once([*KINDS], [signal.SIGKILL, signal.SIGTERM]))
def test_a_real_client_works_on(house: House, sdks: Processes, kind: str, number: signal.Signals) -> None:
    argv, job = KINDS[kind]
    killer = threading.Thread(target=kill_when_executed, args=(house, number))
    killer.start()
    outcome = sdks[argv].spawned(house.connect(), *WALK, **job)
    killer.join(WAIT)

    before, call, _, after, said = outcome.results
    assert refusal(call)["code"] == "UpstreamLost"
    assert names(after) == names(before)
    assert said["isError"] is False
    assert house.effects() == 1


# --- every moment ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", at_night([signal.SIGKILL, signal.SIGTERM], signal.SIGTERM))
def test_an_idle_client_is_told_that_the_tools_may_have_changed(house: House, number: signal.Signals) -> None:
    with at_work(house) as client:
        house.restart(number)
        client.notice("notifications/tools/list_changed")
        assert set(TOOLS) <= set(client.listed())
        assert echoes(client)


def test_many_calls_in_flight_are_each_answered_once_and_run_once(house: House) -> None:
    with at_work(house) as client:
        for number in range(MANY):
            client.hang(f"call {number}")
        house.executed(MANY)
        house.restart()
        answers = [client.receive() for _ in range(MANY)]
        assert sorted(each["id"] for each in answers) == sorted(f"call {number}" for number in range(MANY))
        for answer in answers:
            lost(answer["result"])
        client.notice("notifications/tools/list_changed")
        assert echoes(client)
        assert not [each for each in client.notices if "id" in each]
    assert house.effects() == MANY


def test_calls_in_line_at_a_stop_run_once_at_the_next_daemon(tmp_path: Path) -> None:
    with housed(tmp_path / "effects", inFlight=1) as house, at_work(house) as client:
        client.hang("begun")
        house.executed(1)
        for number in range(MANY):
            client.request(f"in line {number}", "tools/call", name="effect", arguments={})
        house.restart(signal.SIGTERM)
        answers: dict[str, Json] = {}
        while len(answers) <= MANY:
            said = client.receive()
            if "id" in said:
                answers[said["id"]] = said["result"]
        lost(answers.pop("begun"))
        assert [each["isError"] for each in answers.values()] == [False] * MANY
        assert house.effects() == MANY + 1


def test_without_a_daemon_calls_are_answered_bridges_end_and_what_is_asked_is_answered_by_the_next(
    house: House,
) -> None:
    with at_work(house) as client:
        with at_work(house):
            client.hang(77)
            house.executed(1)
            house.close()
            answer = client.receive()
            assert answer["id"] == 77
            lost(answer["result"])
        client.request(101, "tools/list")
        client.request(102, "ping")
        client.request(103, "tools/call", name="effect", arguments={})
        house.open()
        answers = [client.receive() for _ in range(6)]
        assert {each.get("id") for each in answers} == {None, 101, 102, 103}
        assert not [each for each in answers if "error" in each]
    assert house.effects() == 2


@pytest.mark.parametrize("kills", at_night([KILLS // 4, KILLS], KILLS // 4))
def test_so_many_kills_in_a_row_are_so_many_lost_calls_and_nothing_else(house: House, kills: int) -> None:
    with at_work(house) as client:
        for kill in range(1, kills + 1):
            client.hang(-kill)
            house.executed(kill)
            house.restart()
            answer = client.receive()
            assert answer["id"] == -kill
            lost(answer["result"])
            client.notice("notifications/tools/list_changed")
            assert echoes(client)
    assert house.effects() == kills


# --- clients that come before the daemon ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", at_night(KINDS, "python-sdk-2-modern", "typescript-sdk"))
def test_a_real_client_that_comes_first_gets_the_tools_of_the_daemon_that_comes(
    house: House, sdks: Processes, kind: str
) -> None:
    argv, job = KINDS[kind]
    house.path.unlink()
    steps = (
        LIST,
        link(house.path, house.daemon.socket),
        call(STATUS),
        CHANGED,
        LIST,
        call("echo", text="hello"),
    )
    outcome = sdks[argv].spawned(house.connect(), *steps, **job)
    alone, _, status, _, listed, said = outcome.results
    # Who takes the version for granted asks for no instructions.
    assert job.get("mode") == "2026-07-28" or STATUS in outcome.instructions
    assert names(alone) == [STATUS]
    # Nobody may start a daemon there, so that it answers at once: the daemon has come by then, or has not.
    assert status["isError"] is (status["text"] != ARRIVED)
    assert set(TOOLS) <= set(names(listed))
    assert STATUS not in names(listed)
    assert said["isError"] is False


def test_a_call_from_before_the_daemon_runs_once_when_it_comes(house: House) -> None:
    house.path.unlink()
    with Bridge(house, "--session", "first") as client:
        client.begin()
        client.request(77, "tools/call", name="effect", arguments={})
        house.show()
        for each in ("tools", "prompts", "resources"):
            client.notice(f"notifications/{each}/list_changed")
        answer = client.receive()
        assert (answer["id"], answer["result"]["isError"]) == (77, False)
        sessions = house.daemon.ask("status")["sessions"]
        assert ("first", "t 1") in [(each["key"], each["client"]) for each in sessions]
    assert house.effects() == 1


@pytest.mark.parametrize(("options", "listed"), [((), TOOLS), (("--profile", "search"), LOADERS)])
def test_a_client_behind_a_bridge_does_not_leave_the_profile_that_it_was_given(
    house: House, options: tuple[str, ...], listed: list[str]
) -> None:
    with Bridge(house, *options) as client:
        for profile in ("search", "default"):
            client.hello(profile=profile)
        client.begin()
        assert set(client.listed()) >= set(listed)
        client.hello(profile="search", surface="search")
        assert set(client.listed()) >= set(listed)
