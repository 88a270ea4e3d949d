"""Nobody answers: the text says which socket, why, and what to do."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from daemon.bridge.unreachable import CLIENTS, OPERATORS, Door, explain, is_installed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without units, whatever the tester has installed."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)


@pytest.mark.parametrize(
    "number", [errno.ENOENT, errno.ECONNREFUSED, errno.EACCES, errno.ENOTDIR, errno.EAGAIN]
)
@pytest.mark.parametrize("door", [CLIENTS, OPERATORS])
def test_each_reason_is_in_words_and_has_a_remedy(number: int, door: Door) -> None:
    problem, helps = explain("/run/x.sock", OSError(number, os.strerror(number)), door)
    assert problem.startswith("cannot reach the daemon at /run/x.sock: ")
    assert f"({errno.errorcode[number]})" in problem
    assert "mcpd run" in helps
    assert "systemctl" not in helps


@pytest.mark.parametrize("door", [CLIENTS, OPERATORS])
@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EPIPE, errno.EAGAIN])
def test_the_unit_is_named_where_it_is_installed(
    number: int, door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "systemd/user").mkdir(parents=True)
    (tmp_path / "systemd/user" / door.unit).touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert f", `systemctl --user start {door.unit}`" in explain("/p", OSError(number, ""), door)[1]


def test_a_unit_is_looked_for_where_systemd_does(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert not is_installed("mcpd.service", environ)
    for place in (".config", ".local/share"):
        unit = tmp_path / place / "systemd/user/mcpd.service"
        unit.parent.mkdir(parents=True)
        unit.symlink_to("/nowhere")
        assert is_installed("mcpd.service", environ)
        unit.unlink()


def test_the_door_is_named_as_its_commands_name_it() -> None:
    missing = OSError(errno.ENOENT, "")
    assert "--socket P or $MCPD_SOCKET" in "".join(explain("/p", missing, CLIENTS))
    assert "--socket P or $MCPD_SOCKET" in "".join(explain("/p", missing, OPERATORS))
    assert "--control P" in "".join(explain("/p", missing, OPERATORS))


def test_anything_else_is_what_the_system_says() -> None:
    assert "AF_UNIX path too long" in "".join(explain("/p", OSError("AF_UNIX path too long"), CLIENTS))
    assert "No buffer space" in "".join(explain("/p", OSError(errno.ENOBUFS, "No buffer space"), CLIENTS))
