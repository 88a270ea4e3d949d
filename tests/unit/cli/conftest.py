"""A control socket that commands find by themselves, and users with clients."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from daemon.setup.clients.programs import Machine
from tests.unit.cli.daemons import FakeControl, fake_control
from tests.unit.setup.machines import machine

Captured = pytest.CaptureFixture[str]
Users = Callable[..., Machine]
"""Makes a user of some clients, who has no daemon."""

MOVING = (
    *("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "STATE_DIRECTORY", "CODEX_HOME"),
    *("CLAUDE_CONFIG_DIR", "MCPD_SOCKET", "RUNTIME_DIRECTORY"),
)
"""Variables by which files are looked for elsewhere than below the home directory."""


class Controls(Protocol):
    """Starts a control socket that answers as scripted; commands of this test find it."""

    def __call__(self, answers: Mapping[str, Any]) -> FakeControl: ...


@pytest.fixture
def control(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Controls]:
    path = sockets / "control.sock"
    monkeypatch.setenv("MCPD_CONTROL", str(path))
    monkeypatch.setenv("XDG_STATE_HOME", str(sockets))
    with ExitStack() as stack:
        yield lambda answers: stack.enter_context(fake_control(path, answers))


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Users:
    """Makes a user of some clients who works in a project, and has no daemon."""

    def make(*clients: str) -> Machine:
        here = machine(tmp_path, *clients)
        monkeypatch.setattr("daemon.setup.drafts.launch.trial", lambda _: None)
        monkeypatch.setattr("daemon.cli.install.launch.trial", lambda _: None)
        for name in MOVING:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(here.home))
        monkeypatch.setenv("MCPD_CONFIG", str(here.home / ".config" / "mcpd" / "mcpd.json"))
        monkeypatch.setenv("MCPD_CONTROL", str(tmp_path / "no.sock"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
        monkeypatch.setenv("COLUMNS", "160")
        monkeypatch.chdir(here.directory)
        return here

    return make
