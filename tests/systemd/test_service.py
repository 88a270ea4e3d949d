"""`mcpd service` of a real user whose services run without a login."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from daemon.processes import proc
from tests.systemd.machine import FRONT, MCPD, SERVED, Bridge, as_user, greet, run, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

USER = "mcpd-served"
HOME = Path("/home") / USER
RUNTIME = Path("/run/user") / str(SERVED)
UNITS = HOME / ".config" / "systemd" / "user"
PACKAGED = Path("/usr/lib/systemd/user")
ASIDE = Path("/usr/lib/mcpd-tests/user-units")
PROFILE = 'echo "Welcome, it is $(date)"\nexport PATH="$HOME/.nvm/bin:$HOME/missing/bin:$PATH"\n'
CONFIG = {"mcpServers": {"one": {**scripted(), "env": {"SECRET": "${TOKEN}"}}}}


class Served:
    """That user, as a login would have it."""

    def run(self, *words: str, status: int = 0, **more: str) -> str:
        """Run a command; returns what it prints."""
        environ = {
            "HOME": str(HOME),
            "SHELL": "/bin/bash",
            "XDG_RUNTIME_DIR": str(RUNTIME),
            "PATH": "/usr/bin:/bin",
        }
        variables = [f"{name}={value}" for name, value in {**environ, **more}.items() if value]
        done = run(*as_user(SERVED), "env", "-i", "-C", str(HOME), *variables, *words, check=False)
        assert done.returncode == status, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    def mcpd(self, *words: str, status: int = 0, **more: str) -> str:
        return self.run(MCPD, *words, status=status, **more)

    def show(self, key: str, unit: str = "mcpd.service") -> str:
        return self.run("systemctl", "--user", "show", "--value", f"--property={key}", unit).strip()

    def state(self, status: int = 0) -> Json:
        answer: Json = json.loads(self.mcpd("service", "status", "--json", status=status))
        return answer


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    for folder in (HOME / ".config" / "mcpd", HOME / ".nvm" / "bin"):
        folder.mkdir(parents=True)
    (HOME / ".profile").write_text(PROFILE)
    (HOME / ".config" / "mcpd" / "mcpd.json").write_text(json.dumps(CONFIG))
    env = HOME / ".config" / "mcpd" / "env"
    env.write_text("TOKEN='one two'\n")
    env.chmod(0o600)
    run("chown", "-R", f"{SERVED}:{SERVED}", str(HOME))
    # As without the package: no daemon for all, which would be theirs, too, and no units for users.
    run("systemctl", "stop", "mcpd.socket", "mcpd.service")
    ASIDE.mkdir()
    packaged = list(PACKAGED.glob("mcpd*"))
    run("mv", *packaged, ASIDE)
    FRONT.unlink(missing_ok=True)
    run("loginctl", "enable-linger", USER)
    run("systemctl", "start", f"user@{SERVED}.service")
    yield Served()
    run("loginctl", "disable-linger", USER)
    run("systemctl", "stop", f"user@{SERVED}.service")
    run("mv", *ASIDE.iterdir(), PACKAGED)
    ASIDE.rmdir()
    run("systemctl", "start", "mcpd.socket")


def test_it_is_installed_in_place_of_a_daemon_in_the_background(served: Served) -> None:
    assert "not installed" in served.mcpd("service", "status", status=1)
    before = json.loads(served.mcpd("start", "--json"))
    assert before["how"] == "detached"
    shown = served.mcpd("service", "install", "--dry-run")
    assert "+ExecStart=" in shown
    assert not UNITS.exists()
    said = served.mcpd("service", "install", "--yes")
    assert f"ended pid {before['pid']}" in said
    assert f"{HOME}/.nvm/bin:" in said
    assert "missing" not in said


def test_it_is_enabled_active_and_as_this_version_writes_it(served: Served) -> None:
    found = served.state()
    assert found == {
        "installed": True,
        "enabled": True,
        "active": True,
        "pid": int(served.show("MainPID")),
        "linger": True,
        "path": found["path"],
        "differing": [],
        "manager": True,
    }
    assert found["path"].startswith(f"{HOME}/.nvm/bin:/usr/local/bin:/usr/bin:/bin:")
    assert found["path"].endswith(f":{HOME}/.local/bin")
    environ = proc.environment(found["pid"])
    assert environ is not None
    assert environ["PATH"] == found["path"]
    assert "TOKEN" not in environ, "mcpd reads the file `env` itself"
    doctor = served.mcpd("doctor", status=0)
    assert "mcpd.service is active" in doctor


def test_a_client_calls_a_tool_and_a_second_installation_changes_nothing(served: Served) -> None:
    assert "wrote" not in served.mcpd("service", "install", "--yes")
    with Bridge(SERVED) as client:
        greet(client)
        assert not client.run("one", "echo", text="mine").get("isError")


def test_after_a_stop_a_new_client_has_systemd_start_it_also_without_the_environment_of_a_login(
    served: Served,
) -> None:
    served.mcpd("stop")
    assert {served.show("ActiveState", unit) for unit in ("mcpd.service", "mcpd.socket")} == {"inactive"}
    assert "does not run" in served.mcpd("service", "status", status=1)
    started = json.loads(served.mcpd("start", "--json", XDG_RUNTIME_DIR=""))
    assert (started["how"], started["pid"]) == ("systemd", int(served.show("MainPID")))
    served.mcpd("stop")
    with Bridge(SERVED) as client:
        greet(client)
        assert not client.run("one", "echo", text="mine").get("isError")
    assert served.show("ActiveState") == "active"


def test_a_configuration_that_is_faulty_is_said_by_start(served: Served) -> None:
    config = HOME / ".config" / "mcpd" / "mcpd.json"
    good = config.read_text()
    served.mcpd("stop")
    config.write_text('{"lazy": 3}')
    assert "$.lazy" in served.mcpd("start", status=78)
    config.write_text(good)
    assert json.loads(served.mcpd("start", "--json"))["how"] == "systemd"


def test_it_is_removed_but_for_what_was_edited(served: Served) -> None:
    edited = UNITS / "mcpd-http.socket"
    edited.write_text(edited.read_text() + "# mine\n")
    said = served.mcpd("service", "uninstall")
    assert f"left {edited}" in said
    assert [path for path in UNITS.rglob("*") if path.is_file()] == [edited]
    assert served.show("ActiveState") == "inactive"
    assert json.loads(served.mcpd("start", "--json"))["how"] == "detached"
    served.mcpd("stop")
