"""The service's files: what is written, kept, and left. What systemd makes of them, `tests/systemd` tries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.setup.running import service
from daemon.setup.running.service import DROP_IN, unit_directory
from tests.process.setup.systemd import RUNS, STOPPED, FakeSystemd

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "/usr/bin/mcpd"


@pytest.fixture
def systemd(tmp_path: Path) -> FakeSystemd:
    found = FakeSystemd(tmp_path / "home")
    found.says(STOPPED)
    found.environ["SHELL"] = "/bin/false"
    return found


def install(systemd: FakeSystemd) -> service.Installed:
    return service.install(systemd.environ, service.planned(systemd.environ, PROGRAM), linger=False)


def files(systemd: FakeSystemd) -> set[str]:
    folder = unit_directory(systemd.environ)
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


ALL = {"mcpd.service", "mcpd.socket", "mcpd-http.socket", DROP_IN}


def test_what_is_written_is_enabled_started_and_taken_away_again(systemd: FakeSystemd) -> None:
    assert install(systemd).kept == ()
    assert files(systemd) == ALL
    told = ["--user daemon-reload", "--user enable mcpd.service mcpd.socket"]
    assert systemd.told() == [*told, "--user restart mcpd.socket mcpd.service"]
    systemd.says(RUNS)
    found = service.state(systemd.environ, PROGRAM)
    assert (found.installed, found.enabled, found.active, found.pid) == (True, True, True, 4711)
    assert found.differing == ()
    assert install(systemd).written == ()
    done = service.uninstall(systemd.environ)
    assert (len(done.removed), done.edited, files(systemd)) == (len(ALL), (), set())
    assert "--user disable --now mcpd.socket mcpd-http.socket mcpd.service" in systemd.told()


def test_what_somebody_else_wrote_is_kept_and_what_was_edited_is_left(systemd: FakeSystemd) -> None:
    unit = unit_directory(systemd.environ) / "mcpd.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/mine\n")
    (copy,) = install(systemd).kept
    assert copy.read_text() == "[Service]\nExecStart=/mine\n"
    with unit.open("a") as file:
        file.write("# edited\n")
    assert service.state(systemd.environ, PROGRAM).differing == ("mcpd.service",)
    assert service.written_by_us(systemd.environ) is not None
    assert service.uninstall(systemd.environ).edited == (unit,)
    assert files(systemd) == {"mcpd.service"}


def test_a_service_that_does_not_start_says_why(systemd: FakeSystemd) -> None:
    systemd.says({**STOPPED, "ExecMainStatus": "78"}, refusal="Job failed")
    with pytest.raises(service.ServiceRefused, match="mcpd check"):
        install(systemd)
    systemd.says(STOPPED, refusal="Job failed")
    with pytest.raises(service.ServiceRefused, match="Job failed"):
        install(systemd)
