"""Where things are, for every environment that a daemon or a client may find itself in."""

from __future__ import annotations

import os
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


@pytest.mark.parametrize(
    ("named", "configured", "environ", "expected"),
    [
        (None, (None, None), {}, ("/r/mcpd/mcpd.sock", "/r/mcpd/control.sock")),
        (None, (None, None), {"MCPD_SOCKET": "/e/s"}, ("/e/s", "/e/control.sock")),
        (None, (None, None), {"MCPD_SOCKET": "/e/s", "MCPD_CONTROL": "/e/c"}, ("/e/s", "/e/c")),
        (None, ("/l/s", None), {"MCPD_SOCKET": "/e/s"}, ("/l/s", "/l/control.sock")),
        (None, ("/l/s", "/l/c"), {"MCPD_CONTROL": "/e/c"}, ("/l/s", "/l/c")),
        ("/n/s", ("/l/s", None), {"MCPD_CONTROL": "/e/c"}, ("/n/s", "/n/control.sock")),
        ("/n/s", (None, "/l/c"), {}, ("/n/s", "/l/c")),
    ],
)
def test_a_daemon_listens_for_operators_beside_its_clients(
    named: str | None,
    configured: tuple[str | None, str | None],
    environ: dict[str, str],
    expected: tuple[str, str],
) -> None:
    environ = {"XDG_RUNTIME_DIR": "/r", **environ}
    found = paths.served_sockets(environ, None if named is None else Path(named), *configured)
    assert tuple(map(str, found)) == expected


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
