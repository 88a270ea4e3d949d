"""The sockets, real ones: who listens, what is left over, what the daemon would refuse."""

import importlib.util
import os
import sqlite3
from pathlib import Path

import pytest

from daemon.checks.addresses import LONGEST
from daemon.checks.addresses import sockets as check
from daemon.checks.examination import FULL, SCARCE, room
from daemon.checks.examination import check as check_state
from daemon.checks.findings import Level
from daemon.cli.doctor import gather
from daemon.host.sockets import bind, unbind
from daemon.state.sqlite import hold
from tests.unit.checks.scenes import NOBODY, House, as_somebody_else, levels, listening, only, process


def test_no_daemon_is_a_note_and_the_sockets_are_free_or_left_over(house: House) -> None:
    found = list(check(house.look()))
    assert levels(found) == ["note", "ok", "ok"]
    assert "mcpd run" in found[0].do
    assert "it does not exist yet" in found[1].what
    with listening(house.run / "control.sock"):
        pass
    found = list(check(house.look()))
    assert levels(found) == ["note", "ok", "ok"]
    assert ("left behind" in found[0].what, "left over" in found[2].what) == (True, True)


def test_a_daemon_that_answers_is_named_and_one_of_another_version_noted(house: House) -> None:
    with house.daemon(), listening(house.run / "mcpd.sock"):
        found = list(check(house.look()))
    assert levels(found) == ["ok", "ok", "ok"]
    assert f"pid {os.getpid()}" in found[0].what
    assert all(each.what.endswith(": in use") for each in found[1:])
    with house.daemon(version="0.0.1"):
        assert "0.0.1" in only(check(house.look()), Level.NOTE)


def test_a_daemon_that_does_not_answer_is_a_fault_and_named_by_its_lock(house: House) -> None:
    path = house.run / "control.sock"
    listener = bind(path)
    try:
        scene = gather(None, house.environ, seconds=0.1)
        assert f"end pid {os.getpid()}" in only(check(scene), Level.FAULT)
    finally:
        unbind(listener, path)


def test_the_front_is_never_connected_to(house: House) -> None:
    """Where systemd holds it, that would start the daemon."""
    with listening(house.run / "mcpd.sock") as front:
        front.setblocking(False)
        list(check(house.look()))
        with pytest.raises(BlockingIOError):
            front.accept()


def test_a_directory_of_others_or_that_others_can_write_is_a_fault_as_for_the_daemon(house: House) -> None:
    for mode in (0o777, 0o775, 0o757):
        house.run.chmod(mode)
        said = [each.what for each in check(house.look()) if each.level is Level.FAULT]
        assert said == [f"{house.run} can be written by others."] * 2
        with pytest.raises(PermissionError, match="writable by others"):
            bind(house.run / "mcpd.sock")
    house.run.chmod(0o700)
    # An ordinary user can give nothing away, and what root owns is trusted.
    assert levels(check(house.look())) == ["note", "ok", "ok"]
    if os.geteuid() == 0:
        os.chown(house.run, NOBODY, NOBODY)
        assert any(f"uid {NOBODY}" in each.what for each in check(house.look()) if each.level is Level.FAULT)
        with pytest.raises(PermissionError, match="not to this user"):
            bind(house.run / "mcpd.sock")


def test_a_directory_that_cannot_be_made_is_a_fault(house: House) -> None:
    house.run.rmdir()
    (house.root / "run").chmod(0o555)
    with as_somebody_else():
        said = [each.what for each in check(house.look()) if each.level is Level.FAULT]
    assert said == [f"{house.run} does not exist and cannot be made in {house.root / 'run'}."] * 2
    (house.root / "run").chmod(0o755)
    assert levels(check(house.look())) == ["note", "ok", "ok"]


def test_clients_that_look_elsewhere_are_warned_of(house: House) -> None:
    house.write({"listen": {"socket": str(house.root / "s")}})
    said = only(check(house.look()), Level.WARNING)
    assert f"mcpd connect --socket {house.root / 's'}" in said
    assert str(house.run / "mcpd.sock") in said
    found = check(house.look(MCPD_SOCKET=str(house.root / "s")))
    assert Level.WARNING not in {each.level for each in found}


# --- where things are remembered: real directories, locks and databases --------------------------------------


def test_a_directory_that_cannot_be_made_or_written_is_a_fault(house: House) -> None:
    house.state.chmod(0o555)
    house.run.chmod(0o755)
    with as_somebody_else():
        assert "may not write" in only(check_state(house.look()), Level.FAULT)
    house.state.rmdir()
    house.state.parent.chmod(0o555)
    with as_somebody_else():
        assert "cannot be made" in only(check_state(house.look()), Level.FAULT)
    house.state.parent.chmod(0o755)


@pytest.mark.parametrize(
    ("free", "files", "left", "flags", "said"),
    [
        (SCARCE * 2, 100, 100, 0, []),
        (SCARCE - 1, 100, 100, 0, ["warning"]),
        (FULL - 1, 100, 100, 0, ["fault"]),
        (SCARCE * 2, 100, 100, os.ST_RDONLY, ["fault"]),
        (SCARCE * 2, 100, 0, 0, ["fault"]),
        (SCARCE * 2, 0, 0, 0, []),
    ],
)
def test_a_disk_without_room_is_told(free: int, files: int, left: int, flags: int, said: list[str]) -> None:
    # In the order of statvfs(3): blocks of one byte, free and available ones alike.
    found = os.statvfs_result((1, 1, SCARCE * 9, free, free, files, left, left, flags, 255))
    assert levels(room(Path("/state"), found)) == said


def test_a_database_is_fine_and_what_is_none_is_a_warning(house: House) -> None:
    file = house.state / "state.db"
    file.touch()
    assert levels(check_state(house.look())) == ["ok"]
    file.unlink()
    with sqlite3.connect(file) as database:
        database.execute("create table x (y)")
    database.close()
    (found,) = check_state(house.look())
    assert (found.level, found.what.startswith(f"{file}, ")) == (Level.OK, True)
    file.write_bytes(b"SQLite no more")
    assert "renames it" in only(check_state(house.look()), Level.WARNING)
    kept = {"state": "degraded", "reason": "the disk is full", "where": str(file)}
    with house.daemon(persistence=kept):
        assert "the disk is full" in only(check_state(house.look()), Level.FAULT)


def test_a_database_that_one_may_not_use_is_a_fault(house: House) -> None:
    (house.state / "state.db").touch(mode=0o600)
    house.state.chmod(0o1777)
    house.run.chmod(0o755)
    with as_somebody_else():
        found = levels(check_state(house.look()))
    assert found == (["fault"] if os.geteuid() == 0 else ["ok"])


@pytest.mark.process
def test_a_daemon_that_holds_the_state_and_does_not_answer_is_a_warning(house: House) -> None:
    with hold(house.state / "state.db"):
        assert f"pid {os.getpid()}" in only(check_state(house.look()), Level.WARNING)
        with house.daemon():
            assert levels(check_state(house.look())) == ["ok"]
        with process(house.root, **house.environ) as pid, house.daemon(pid=pid):
            assert levels(check_state(house.look())) == ["warning"]


def test_a_database_of_somebody_elses_is_not_asked_and_shows_no_password(house: House) -> None:
    house.write({"state": {"url": "postgresql://me:hunter2-hunter2@no-such-host.invalid/x"}})
    found = list(check_state(house.look()))
    assert levels(found) == ["ok" if importlib.util.find_spec("psycopg") else "fault"]
    assert "hunter2" not in str(found)


def test_what_cannot_be_a_socket_is_a_fault(house: House) -> None:
    (house.run / "mcpd.sock").write_text("")
    assert "is not a socket" in only(check(house.look()), Level.FAULT)
    path = f"{house.run}/{'x' * LONGEST}"
    house.write({"listen": {"socket": path}})
    assert "too long" in only(check(house.look(MCPD_SOCKET=path)), Level.FAULT)
    house.write({})
    (house.run / "mcpd.sock").unlink()
    house.run.rmdir()
    house.run.write_text("")
    assert "is not a directory" in "".join(each.what for each in check(house.look()))


def test_what_is_odd_about_the_directory_of_the_state_is_told(house: House) -> None:
    (house.state / "state.db.corrupt-1").touch()
    assert "state.db.corrupt-1" in only(check_state(house.look()), Level.NOTE)
    (house.state / "state.db.corrupt-1").unlink()
    house.state.chmod(0o777)
    assert "chmod 700" in only(check_state(house.look()), Level.FAULT)
    house.state.rmdir()
    assert str(house.state) in only(check_state(house.look()), Level.NOTE)
    house.state.write_text("")
    assert "is not a directory" in "".join(each.what for each in check_state(house.look()))
