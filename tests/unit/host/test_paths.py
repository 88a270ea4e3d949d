"""Where things are, for every environment, and whose socket is trusted there."""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon.host import paths
from tests.unit.cases import cases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Find = Callable[[Mapping[str, str]], Path]

USERS = Path(f"/run/user/{os.getuid()}")
UNNAMED = str(USERS / "mcpd") if USERS.is_dir() else f"/tmp/mcpd-{os.getuid()}"
"""Where both the daemon and a bridge look whose environment names no runtime directory: clients filter it."""


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, UNNAMED),
        ({"TMPDIR": "/var/tmp"}, UNNAMED),
        ({"XDG_RUNTIME_DIR": "/run/user/7", "TMPDIR": "/t"}, "/run/user/7/mcpd"),
        ({"XDG_RUNTIME_DIR": ""}, UNNAMED),
        ({"XDG_RUNTIME_DIR": "relative"}, UNNAMED),
        ({"RUNTIME_DIRECTORY": "/run/mcpd", "XDG_RUNTIME_DIR": "/run/user/7"}, "/run/mcpd"),
        ({"RUNTIME_DIRECTORY": "/run/mcpd:/run/other"}, "/run/mcpd"),
    ],
)
def test_the_sockets_have_a_directory(environ: dict[str, str], found: str) -> None:
    assert paths.runtime_dir(environ) == Path(found)


@cases("environ", "found")
def test_the_state_has_a_directory(environ: dict[str, str], found: str) -> None:
    assert paths.state_dir(environ) == Path(found)


def test_the_configuration_is_the_named_one_or_the_users_and_never_one_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, system = tmp_path / ".config" / "mcpd" / "mcpd.json", Path("/etc/mcpd/mcpd.json")
    # Without any, the user's is named: an error says where to put one.
    assert paths.config_file({"HOME": str(tmp_path)}) == (system if system.exists() else own)
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    place = {"XDG_CONFIG_HOME": str(tmp_path / ".config"), "HOME": "/nowhere"}
    assert paths.config_file({"MCPD_CONFIG": "/some/where.json", **place}) == Path("/some/where.json")
    for environ in ({"HOME": str(tmp_path)}, place):
        assert paths.config_file(environ) == paths.config_file({"MCPD_CONFIG": "", **environ}) == own
    monkeypatch.chdir(tmp_path)
    for environ in ({"HOME": ""}, {"HOME": "."}, {"HOME": "/no", "XDG_CONFIG_HOME": ".config"}):
        assert paths.config_file(environ).is_absolute()


SOCKETS = [
    (paths.client_socket, "MCPD_SOCKET", "mcpd.sock"),
    (paths.control_socket, "MCPD_CONTROL", "control.sock"),
]


@pytest.mark.parametrize(("find", "variable", "name"), SOCKETS)
def test_a_socket_is_the_named_one_or_the_one_that_is_there_or_the_users(
    tmp_path: Path, find: Find, variable: str, name: str
) -> None:
    own, environ = tmp_path / "mcpd" / name, {"XDG_RUNTIME_DIR": str(tmp_path)}
    # A machine where mcpd runs as a system service has that one.
    assert find(environ) == next((path for path in paths.SYSTEM[name] if path.exists()), own)
    own.parent.mkdir()
    own.touch()
    assert find({variable: "/my.sock", **environ}) == Path("/my.sock")
    assert find({variable: "", **environ}) == own


@cases("front", "control")
def test_operators_find_the_daemon_beside_its_clients(front: str, control: str) -> None:
    assert paths.control_beside(Path(front)) == Path(control)
    assert paths.control_socket({"MCPD_SOCKET": front}) == Path(control)
    assert paths.control_socket({"MCPD_SOCKET": "/x", "MCPD_CONTROL": "/y"}, front) == Path(control)
    assert paths.control_socket({"MCPD_SOCKET": front, "MCPD_CONTROL": "/y"}) == Path("/y")


@cases("named", "configured", "environ", "expected")
def test_a_daemon_listens_for_operators_beside_its_clients(
    named: str | None, configured: list[str | None], environ: dict[str, str], expected: list[str]
) -> None:
    front, control = configured
    environ = {"XDG_RUNTIME_DIR": "/r", **environ}
    found = paths.served_sockets(environ, None if named is None else Path(named), front, control)
    assert [*map(str, found)] == expected


def test_the_system_service_is_looked_for_where_its_units_put_it() -> None:
    assert paths.SYSTEM["mcpd.sock"] == (Path("/run/mcpd.sock"), Path("/run/mcpd/mcpd.sock"))
    assert paths.SYSTEM["control.sock"] == (Path("/run/mcpd/control.sock"),)


@pytest.mark.parametrize(("find", "variable", "name"), SOCKETS)
def test_a_directory_that_cannot_be_looked_into_is_no_reason_to_fail(
    find: Find, variable: str, name: str
) -> None:
    """Another user's is closed; here the name is longer than any may be, which fails for root as well."""
    closed = "/" + "x" * 300
    found = find({"XDG_RUNTIME_DIR": closed})
    assert found in {Path(closed) / "mcpd" / name, *paths.SYSTEM[name]}
    assert paths.config_file({"XDG_CONFIG_HOME": closed}) in {
        Path(closed) / "mcpd/mcpd.json",
        Path("/etc/mcpd/mcpd.json"),
    }


def test_a_home_is_a_directory_that_is_there_or_else_the_root(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert paths.home({"HOME": str(tmp_path)}) == tmp_path
    for name in ("", "relative", "/no/such/directory", str(tmp_path / "file")):
        assert paths.home({"HOME": name}) == paths.home({}) == Path("/"), name


def test_only_what_is_in_the_home_directory_is_abbreviated() -> None:
    directories = ("/home/me", "/home/me/src", "/home/mel", "/srv/home/me", "", "/")
    for home in ("/home/me", "/home/me/"):
        shown = [paths.abbreviated(each, home) for each in directories]
        assert shown == ["~", "~/src", "/home/mel", "/srv/home/me", "", "/"]
    for nowhere in ("", "/"):
        assert [paths.abbreviated(each, nowhere) for each in directories] == [*directories]


def test_the_fallback_directory_counts_only_if_nobody_else_has_made_it() -> None:
    """Anybody can make it in /tmp; it is then no reason to pass over the system's daemon."""
    with tempfile.TemporaryDirectory(prefix="mcpd-", dir=paths.FALLBACK) as directory:
        assert not paths._is_taken(Path(directory))
        if os.getuid() == 0:
            os.chown(directory, 4711, -1)
            assert paths._is_taken(Path(directory))
    assert not paths._is_taken(Path(directory)), "nobody has made it"
    assert not paths._is_taken(Path("/run/user/4711/mcpd"))


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


def test_we_and_root_are_trusted_wherever_they_listen_and_a_stranger_in_a_place_of_everybodys_is_not() -> None:
    for uid in (os.getuid(), 0):
        assert paths.distrust(Served(uid), "/tmp/mcpd-1/mcpd.sock") == ""  # type: ignore[arg-type]
    reason = paths.distrust(Served(STRANGER), "/tmp/mcpd.sock")  # type: ignore[arg-type]
    assert reason.startswith(f"uid {STRANGER} listens on /tmp/mcpd.sock, and anybody could have put a socket")
    assert f"`sudo -u '#{STRANGER}' …`" in reason


def test_a_stranger_whom_we_gave_the_place_is_trusted_and_so_is_the_system_services_user(ours: Path) -> None:
    """As the daemon in a container whose socket is bound into a directory of ours; /run is root's alone."""
    assert paths.distrust(Served(STRANGER), str(ours / "mcpd.sock")) == ""  # type: ignore[arg-type]
    assert paths.is_vouched_for("/run/mcpd.sock", STRANGER)


def test_a_directory_that_others_can_write_to_or_that_is_not_there_vouches_for_nobody(ours: Path) -> None:
    assert not paths.is_vouched_for(str(ours / "open" / "mcpd.sock"), STRANGER)
    (ours / "open").mkdir()
    for mode in (0o777, 0o1777, 0o770):
        (ours / "open").chmod(mode)
        assert not paths.is_vouched_for(str(ours / "open" / "mcpd.sock"), STRANGER), oct(mode)


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
