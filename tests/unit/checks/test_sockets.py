"""The sockets, real ones: who listens, what is left over, what the daemon would refuse."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from daemon.checks.addresses import LONGEST
from daemon.checks.addresses import sockets as check
from daemon.checks.findings import Level
from daemon.cli.doctor import gather
from daemon.host.sockets import bind, unbind
from tests.unit.checks.scenes import NOBODY, as_somebody_else, levels, listening, only

if TYPE_CHECKING:
    from tests.unit.checks.scenes import House


def test_no_daemon_is_a_note_and_the_sockets_are_free(house: House) -> None:
    found = list(check(house.look()))
    assert levels(found) == ["note", "ok", "ok"]
    assert "mcpd run" in found[0].do
    assert "it does not exist yet" in found[1].what


def test_a_daemon_that_answers_is_named(house: House) -> None:
    with house.daemon(), listening(house.run / "mcpd.sock"):
        found = list(check(house.look()))
    assert levels(found) == ["ok", "ok", "ok"]
    assert f"pid {os.getpid()}" in found[0].what
    assert all("somebody listens" in each.what for each in found[1:])


def test_a_daemon_of_another_version_is_noted(house: House) -> None:
    with house.daemon(version="0.0.1"):
        assert "0.0.1" in only(check(house.look()), Level.NOTE)


def test_a_socket_that_is_left_over_is_a_note(house: House) -> None:
    with listening(house.run / "control.sock"):
        pass
    found = list(check(house.look()))
    assert levels(found) == ["note", "ok", "ok"]
    assert "left over" in found[0].what
    assert "left over" in found[2].what


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


def test_a_path_that_is_too_long_is_a_fault(house: House) -> None:
    with socket.socket(socket.AF_UNIX) as fits:
        fits.bind(f"{house.run}/".ljust(LONGEST, "x"))
    path = f"{house.run}/{'x' * LONGEST}"
    house.write({"listen": {"socket": path}})
    said = only(check(house.look(MCPD_SOCKET=path)), Level.FAULT)
    assert str(LONGEST) in said
    assert "XDG_RUNTIME_DIR" in said


def test_a_file_in_the_place_of_a_socket_is_a_fault(house: House) -> None:
    (house.run / "mcpd.sock").write_text("")
    assert "is no socket" in only(check(house.look()), Level.FAULT)


def test_a_directory_that_others_can_write_is_a_fault_as_for_the_daemon(house: House) -> None:
    house.run.chmod(0o777)
    said = [each.what for each in check(house.look()) if each.level is Level.FAULT]
    assert said == [f"{house.run} can be written by others."] * 2
    with pytest.raises(PermissionError, match="writable by others"):
        bind(house.run / "mcpd.sock")


def test_a_directory_of_somebody_elses_is_a_fault_as_for_the_daemon(house: House) -> None:
    if os.geteuid() == 0:
        os.chown(house.run, NOBODY, NOBODY)
        assert any(f"uid {NOBODY}" in each.what for each in check(house.look()) if each.level is Level.FAULT)
        with pytest.raises(PermissionError, match="not to us"):
            bind(house.run / "mcpd.sock")
    else:
        # An ordinary user can give nothing away, and what root owns is trusted.
        assert levels(check(house.look())) == ["note", "ok", "ok"]


def test_a_directory_that_cannot_be_made_is_a_fault(house: House) -> None:
    house.run.rmdir()
    (house.root / "run").chmod(0o555)
    with as_somebody_else():
        said = [each.what for each in check(house.look()) if each.level is Level.FAULT]
    assert said == [f"{house.run} is not there and cannot be made in {house.root / 'run'}."] * 2
    (house.root / "run").chmod(0o755)
    assert levels(check(house.look())) == ["note", "ok", "ok"]


def test_a_file_in_the_place_of_the_directory_is_a_fault(house: House) -> None:
    house.run.rmdir()
    house.run.write_text("")
    assert "is no directory" in "".join(each.what for each in check(house.look()))


def test_clients_that_look_elsewhere_are_warned_of(house: House) -> None:
    house.write({"listen": {"socket": str(house.root / "s")}})
    said = only(check(house.look()), Level.WARNING)
    assert f"mcpd connect --socket {house.root / 's'}" in said
    assert str(house.run / "mcpd.sock") in said
    found = check(house.look(MCPD_SOCKET=str(house.root / "s")))
    assert Level.WARNING not in {each.level for each in found}
