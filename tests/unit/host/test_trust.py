"""Whose socket is trusted: ours, root's, and whose place vouches for him."""

import os
import socket
import struct
import sys
from pathlib import Path

import pytest

from daemon.host import paths

STRANGER = 64_322
"""A user that no machine has."""


class Served:
    """A connection to somebody's socket."""

    def __init__(self, uid: int) -> None:
        self._cred = struct.pack("3i", 4711, uid, uid)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return self._cred


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that only we and root could have put something in; those above count as such."""
    place = tmp_path / "ours"
    place.mkdir(mode=0o700)
    above, vouched = paths._above, {str(each) for each in place.resolve().parents}
    monkeypatch.setattr(paths, "_above", lambda path: [each for each in above(path) if each not in vouched])
    return place


@pytest.mark.parametrize("uid", [os.getuid(), 0])
def test_we_and_root_are_trusted_wherever_they_listen(uid: int) -> None:
    assert paths.distrust(Served(uid), "/tmp/mcpd-1/mcpd.sock") == ""  # type: ignore[arg-type]


def test_a_stranger_in_a_place_of_everybodys_is_not() -> None:
    reason = paths.distrust(Served(STRANGER), "/tmp/mcpd.sock")  # type: ignore[arg-type]
    assert reason.startswith(f"uid {STRANGER} listens on /tmp/mcpd.sock, and anybody could have put a socket")
    assert f"`sudo -u '#{STRANGER}' …`" in reason


def test_a_stranger_whom_we_gave_the_place_is_trusted(ours: Path) -> None:
    """As the daemon in a container whose socket is bound into a directory of ours."""
    assert paths.distrust(Served(STRANGER), str(ours / "mcpd.sock")) == ""  # type: ignore[arg-type]


def test_the_system_services_user_is_trusted() -> None:
    """/run is root's, and nobody else's to write in."""
    assert paths.is_vouched_for("/run/mcpd.sock", STRANGER)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_directory_that_others_can_write_to_vouches_for_nobody(ours: Path, mode: int) -> None:
    (ours / "open").mkdir()
    (ours / "open").chmod(mode)
    assert not paths.is_vouched_for(str(ours / "open" / "mcpd.sock"), STRANGER)


def test_a_directory_that_is_not_there_vouches_for_nobody(ours: Path) -> None:
    assert not paths.is_vouched_for(str(ours / "none" / "mcpd.sock"), STRANGER)


def test_a_link_is_as_good_as_where_it_stands_and_where_it_leads(ours: Path, tmp_path: Path) -> None:
    everybodys = tmp_path / "everybody's"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    (ours / "in").mkdir(mode=0o700)
    (ours / "good").symlink_to(ours / "in")
    (ours / "bad").symlink_to(everybodys)
    (everybodys / "planted").symlink_to(ours / "in")
    told = [paths.is_vouched_for(str(place / "mcpd.sock"), STRANGER) for place in (ours / "good", ours / "bad")]
    assert told == [True, False]
    assert not paths.is_vouched_for(str(everybodys / "planted" / "mcpd.sock"), STRANGER)


@pytest.mark.parametrize(
    ("owners", "trusted"),
    [((STRANGER,), True), ((STRANGER, STRANGER), True), ((STRANGER + 1,), False), ((STRANGER, 0), False)],
)
def test_a_directory_that_a_trusted_one_gave_to_a_user_vouches_for_him(
    ours: Path, owners: tuple[int, ...], trusted: bool
) -> None:
    """As /run/mcpd, which systemd gives to the user that it has made for the service."""
    place, us = ours, os.getuid()
    for owner in owners:
        place /= "x"
        place.mkdir()
        if us == 0:
            os.chown(place, owner, owner)
    # Who cannot give anything away has only given to himself.
    assert paths.is_vouched_for(str(place / "mcpd.sock"), STRANGER) is (trusted or us != 0)


def test_it_is_light() -> None:
    assert "socket" in sys.modules
    assert not {"socket", "struct", "pathlib"} & set(vars(paths))
