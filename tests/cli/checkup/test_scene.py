"""What the doctor looks at, and how it says what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.checkup.scene import Level, counted, fault, fine, note, warning

if TYPE_CHECKING:
    from tests.cli.checkup.scenes import House

SECRET = "hunter2-hunter2"


def test_findings_are_counted_by_level() -> None:
    found = [fine("a"), note("b"), fault("c", "why", "do"), fault("d"), warning("e")]
    assert counted(found) == {Level.OK: 1, Level.NOTE: 1, Level.WARNING: 1, Level.FAULT: 2}
    assert (found[2].what, found[2].why, found[2].do) == ("c", "why", "do")


def test_a_scene_shows_no_secret(house: House) -> None:
    house.servers(git={"command": "x", "env": {"TOKEN": SECRET}})
    with house.daemon({}) as status:
        status["servers"] = {}
        scene = house.look(PASSWORD=SECRET)
    assert scene.running is not None
    assert scene.environ["PASSWORD"] == SECRET
    assert SECRET not in repr(scene)


def test_without_a_daemon_servers_get_their_environment_from_here(house: House) -> None:
    assert house.look(LANG="C").inherited["LANG"] == "C"
