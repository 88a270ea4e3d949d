"""Who starts a daemon: systemd if it has the units, and nobody where that is not wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from daemon.config.config_model import Config
from daemon.errors import ConfigError, Fault
from daemon.host import paths
from daemon.setup.running.starting import EX_CONFIG, NotForWindow, NotStarted, StartRequest, start
from tests.process.setup.systemd import RUNS, STOPPED, FakeSystemd

if TYPE_CHECKING:
    from collections.abc import Mapping


def request(systemd: FakeSystemd, window: str = "", *, autostart: bool = True) -> StartRequest:
    return StartRequest(
        environ=systemd.environ, run=_never, read=lambda: Config(autostart=autostart), window=window
    )


def _never(_words: list[str]) -> int:
    raise AssertionError("systemd starts it")


@pytest.fixture
def systemd(sockets: Path) -> FakeSystemd:
    found = FakeSystemd(sockets)
    (sockets / "r").mkdir()
    found.says(RUNS)
    return found


@pytest.mark.parametrize("window", ["", "new"])
def test_systemd_starts_its_units(systemd: FakeSystemd, window: str) -> None:
    running = start(request(systemd, window))
    assert (running.how, running.pid) == ("systemd", 4711)
    assert systemd.told() == ["--user start mcpd.socket mcpd.service"]


def test_what_was_stopped_there_a_window_that_was_connected_leaves_alone(systemd: FakeSystemd) -> None:
    systemd.says(STOPPED)
    with pytest.raises(NotForWindow, match="mcpd service status"):
        start(request(systemd, "known"))
    assert systemd.told() == []


def test_autostart_keeps_windows_from_it_and_not_people(systemd: FakeSystemd) -> None:
    with pytest.raises(NotForWindow):
        start(request(systemd, "new", autostart=False))
    assert start(request(systemd, autostart=False)).started


def test_a_faulty_configuration_is_said_where_systemd_could_not_start_it(systemd: FakeSystemd) -> None:
    def faulty() -> Config:
        raise ConfigError("mcpd.json", [Fault(path="$.x", message="no")])

    systemd.says({**STOPPED, "ExecMainStatus": str(EX_CONFIG)}, refusal="Job failed")
    with pytest.raises(ConfigError, match=r"\$\.x"):
        start(attrs.evolve(request(systemd), read=faulty))
    systemd.says({**STOPPED, "ExecMainStatus": "1"}, refusal="Job failed")
    with pytest.raises(NotStarted, match="Job failed"):
        start(request(systemd))


def test_the_systems_daemon_is_not_started_here(systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(_: Mapping[str, str]) -> Path:
        return paths.SYSTEM[paths.FRONT][0]

    monkeypatch.setattr(paths, "client_socket", at)
    monkeypatch.setitem(paths.SYSTEM, paths.FRONT, (Path(systemd.environ["HOME"]) / "none", Path("/")))
    with pytest.raises(NotStarted, match="sudo systemctl start"):
        start(request(systemd))
