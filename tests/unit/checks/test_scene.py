"""Which configuration is looked at, in whose environment, and which daemon answers."""

import os
from typing import Any

import pytest

from daemon.cli.doctor import UNKNOWN, is_daemon
from tests.unit.cases import cases
from tests.unit.checks.scenes import House, listening, process
from tests.unit.cli.daemons import fake_control, status_of

SECRET = "hunter2-hunter2"


def test_the_configuration_and_the_environment_say_otherwise(house: House) -> None:
    house.write({"listen": {"socket": "/a/s", "controlSocket": "/a/c"}, "state": {"url": "sqlite:////a/x.db"}})
    scene = house.look(LANG="C")
    assert (scene.running, scene.silence, scene.inherited["LANG"]) == (None, "", "C")
    assert (str(scene.front), str(scene.control), str(scene.place.path)) == ("/a/s", "/a/c", "/a/x.db")
    house.write({})
    scene = house.look(MCPD_SOCKET="/b/s", MCPD_CONTROL="/b/c", STATE_DIRECTORY="/b/state")
    assert (str(scene.front), str(scene.control)) == ("/b/s", "/b/c")
    assert str(scene.place.path) == "/b/state/state.db"


def test_the_daemon_is_asked_where_its_configuration_says_or_systemd(house: House) -> None:
    house.write({"listen": {"socket": str(house.root / "mcpd.sock")}})
    for directory in (house.run, house.root):
        with fake_control(directory / "control.sock", {"status": status_of({})}) as daemon:
            house.look()
        assert daemon.asked


@pytest.mark.process
def test_variables_and_paths_are_those_of_the_daemons_process(house: House) -> None:
    house.servers(git={"command": "${PROGRAM}"})
    assert "PROGRAM is not set" in house.look().faults[0].message
    with process(house.root, PROGRAM="x", PATH="/daemons") as pid, house.daemon(pid=pid, config="mcpd.json"):
        scene = house.look()
    assert scene.faults == ()
    assert scene.path == house.config
    assert scene.inherited["PATH"] == "/daemons"
    assert scene.running is not None
    assert scene.running.uid == os.geteuid()


def test_a_process_that_cannot_be_the_daemon_is_not_asked(house: House) -> None:
    with house.daemon(pid=1):
        scene = house.look()
    assert scene.running is not None
    assert scene.running.environ is None
    assert scene.inherited["PATH"] == str(house.bin)


def test_a_daemon_that_says_nothing_is_remembered(house: House) -> None:
    with listening(house.run / "control.sock") as listener:
        listener.close()
        scene = house.look()
    assert "nobody listens on it" in scene.silence
    (house.run / "control.sock").unlink()
    with fake_control(house.run / "control.sock", {"status": {"error": {"code": 1, "message": "no"}}}):
        assert "does not answer like a daemon" in house.look().silence
    with fake_control(house.run / "control.sock", {"status": {"daemon": {}, "servers": {}}}):
        assert "does not answer like a daemon" in house.look().silence


def test_a_daemon_that_is_closed_to_its_user_tells_what_its_variables_are_called(house: House) -> None:
    house.servers(git={"command": "${PROGRAM}", "args": ["${OTHER}"]})
    told: dict[str, Any] = {
        "directory": str(house.root),
        "environment": {"PATH": "/daemons"},
        "variables": ["PATH", "PROGRAM"],
    }
    with house.daemon(pid=1, config="mcpd.json", **told):
        scene = house.look()
    assert [fault.path for fault in scene.faults] == ["$.mcpServers.git.args[0]"]
    assert scene.path == house.config
    assert scene.inherited == {"PATH": "/daemons", "PROGRAM": UNKNOWN}
    assert scene.running is not None
    assert scene.running.directory == house.root


def test_a_scene_shows_no_secret(house: House) -> None:
    house.servers(git={"command": "x", "env": {"TOKEN": SECRET}})
    with house.daemon({}) as status:
        status["servers"] = {}
        scene = house.look(PASSWORD=SECRET)
    assert scene.running is not None
    assert scene.environ["PASSWORD"] == SECRET
    assert SECRET not in repr(scene)


@cases("line", "ours")
def test_only_a_daemon_of_ours_is_looked_into(line: str, ours: bool) -> None:
    assert is_daemon(line.split()) is ours
