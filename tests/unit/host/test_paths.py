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


def test_a_named_configuration_counts_before_any_other(tmp_path: Path) -> None:
    environ = {"MCPD_CONFIG": "/some/where.json", "XDG_CONFIG_HOME": str(tmp_path)}
    assert paths.config_file(environ) == Path("/some/where.json")


@pytest.mark.parametrize("named", [{}, {"MCPD_CONFIG": ""}])
def test_the_users_configuration_is_the_default(tmp_path: Path, named: dict[str, str]) -> None:
    own = tmp_path / ".config" / "mcpd" / "mcpd.json"
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    assert paths.config_file({"HOME": str(tmp_path), **named}) == own
    assert paths.config_file({"XDG_CONFIG_HOME": str(tmp_path / ".config"), "HOME": "/nowhere", **named}) == own


@pytest.mark.parametrize(
    "environ", [{"HOME": ""}, {"HOME": "."}, {"HOME": "/no", "XDG_CONFIG_HOME": ".config"}]
)
def test_what_lies_in_the_working_directory_is_nobodys_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    found = tmp_path / ".config" / "mcpd" / "mcpd.json"
    found.parent.mkdir(parents=True)
    found.write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert paths.config_file(environ).is_absolute()


def test_without_any_configuration_the_users_is_named(tmp_path: Path) -> None:
    """So that an error says where to put one. A machine where mcpd is installed has the system's."""
    system = Path("/etc/mcpd/mcpd.json")
    expected = system if system.exists() else tmp_path / ".config" / "mcpd" / "mcpd.json"
    assert paths.config_file({"HOME": str(tmp_path)}) == expected


SOCKETS = [
    (paths.client_socket, "MCPD_SOCKET", "mcpd.sock"),
    (paths.control_socket, "MCPD_CONTROL", "control.sock"),
]


@pytest.mark.parametrize(("find", "variable", "name"), SOCKETS)
def test_a_named_socket_counts_before_any_other(tmp_path: Path, find: Find, variable: str, name: str) -> None:
    (tmp_path / "mcpd").mkdir()
    (tmp_path / "mcpd" / name).touch()
    assert find({variable: "/my.sock", "XDG_RUNTIME_DIR": str(tmp_path)}) == Path("/my.sock")
    assert find({variable: "", "XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "mcpd" / name


@pytest.mark.parametrize(("find", "variable", "name"), SOCKETS)
def test_without_any_daemon_the_users_own_socket_is_named(
    tmp_path: Path, find: Find, variable: str, name: str
) -> None:
    """A machine where mcpd runs as a system service has that one."""
    own = tmp_path / "mcpd" / name
    expected = next((path for path in paths.SYSTEM[name] if path.exists()), own)
    assert find({"XDG_RUNTIME_DIR": str(tmp_path)}) == expected


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


@pytest.mark.parametrize("name", ["", "relative", "/no/such/directory"])
def test_without_a_home_the_root_is_home(name: str) -> None:
    assert paths.home({"HOME": name}) == paths.home({}) == Path("/")


def test_a_home_is_a_directory_that_is_there(tmp_path: Path) -> None:
    assert paths.home({"HOME": str(tmp_path)}) == tmp_path
    (tmp_path / "file").touch()
    assert paths.home({"HOME": str(tmp_path / "file")}) == Path("/")


@pytest.mark.parametrize("home", ["/home/me", "/home/me/"])
def test_only_what_is_in_the_home_directory_is_abbreviated(home: str) -> None:
    directories = ("/home/me", "/home/me/src", "/home/mel", "/srv/home/me", "")
    shown = [paths.abbreviated(each, home) for each in directories]
    assert shown == ["~", "~/src", "/home/mel", "/srv/home/me", ""]


@pytest.mark.parametrize("home", ["", "/"])
def test_nothing_is_abbreviated_without_a_home(home: str) -> None:
    assert [paths.abbreviated(each, home) for each in ("/", "/srv")] == ["/", "/srv"]


def test_the_fallback_directory_counts_only_if_nobody_else_has_made_it() -> None:
    """Anybody can make it in /tmp; it is then no reason to pass over the system's daemon."""
    with tempfile.TemporaryDirectory(prefix="mcpd-", dir=paths.FALLBACK) as directory:
        assert not paths._is_taken(Path(directory))
        if os.getuid() == 0:
            os.chown(directory, 4711, -1)
            assert paths._is_taken(Path(directory))
    assert not paths._is_taken(Path(directory)), "nobody has made it"
    assert not paths._is_taken(Path("/run/user/4711/mcpd"))
