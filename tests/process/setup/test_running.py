"""Starting, stopping and finding a daemon, with and without systemd."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from daemon.config.config_model import Config
from daemon.errors import ConfigError, Fault
from daemon.host import paths
from daemon.setup.running import service, starting
from daemon.setup.running.service import (
    DROP_IN,
    is_untouched,
    login_path,
    path_of,
    unit_directory,
    wanted_files,
)
from daemon.setup.running.starting import (
    EX_CONFIG,
    NotForWindow,
    NotStarted,
    NotStopped,
    StartRequest,
    end,
    found,
    handed_on,
    start,
    stop,
    turn,
)
from daemon.setup.running.systemctl import SOCKET, installed
from tests.process.setup.systemd import RUNS, STOPPED, FakeSystemd
from tests.process.setup.users import User, user
from tests.unit.cli.daemons import ROOT, listen
from tests.waiting import PATIENCE

__all__ = ["user"]


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


def test_systemd_starts_its_units_for_a_new_window_and_without_autostart_for_people_alone(
    systemd: FakeSystemd,
) -> None:
    systemd.says(STOPPED)
    with pytest.raises(NotForWindow, match="mcpd service status"):
        start(request(systemd, "known"))
    with pytest.raises(NotForWindow):
        start(request(systemd, "new", autostart=False))
    assert systemd.told() == []
    systemd.says(RUNS)
    for wish in (request(systemd, autostart=False), request(systemd), request(systemd, "new")):
        running = start(wish)
        assert (running.how, running.pid, running.started) == ("systemd", 4711, True)
    assert systemd.told() == ["--user start mcpd.socket mcpd.service"] * 3


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


# --- what stops a daemon -------------------------------------------------------------------------------------


STUBBORN = "import signal, sys; signal.signal(15, signal.SIG_IGN); print(flush=True); sys.stdin.read()"


def test_systemd_stops_its_units_with_all_that_would_start_them(sockets: Path) -> None:
    systemd = FakeSystemd(sockets)
    systemd.says(RUNS)
    assert stop(systemd.environ, sockets / "control.sock", PATIENCE) == 0
    systemd.says({**RUNS, "MainPID": str(os.getpid())})
    with listen(sockets / "control.sock"):
        assert stop(systemd.environ, sockets / "control.sock", PATIENCE) == 0
    assert systemd.told() == ["--user stop mcpd.socket mcpd-http.socket mcpd.service"] * 2


def test_a_listener_that_is_not_trusted_is_no_daemon_that_stopped(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "distrust", lambda _link, path: f"uid 4711 listens on {path}")
    with listen(sockets / "control.sock"), pytest.raises(NotStopped, match="uid 4711 listens on"):
        stop({"PATH": ""}, sockets / "control.sock", PATIENCE)


def test_one_that_does_not_end_is_said_with_what_ends_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(NotStopped, match=f"kill -9 {process.pid}"):
            end(process.pid, 0.01)
        process.send_signal(signal.SIGKILL)


# --- one start at a time, and a failure is shared by those who waited for it ---------------------------------


def test_who_waited_for_a_start_that_failed_is_told_why_if_they_share_it(tmp_path: Path) -> None:
    outcomes: list[str] = []

    def wait(*, shared: bool) -> None:
        try:
            with turn(tmp_path / "s", time.monotonic() + PATIENCE, shared=shared):
                outcomes.append("its own turn")
        except NotStarted as error:
            outcomes.append(f"{error} {error.status}")

    waiting = [threading.Thread(target=wait, kwargs={"shared": shared}) for shared in (True, False)]
    with turn(tmp_path / "s", time.monotonic() + PATIENCE, shared=False) as record:
        for each in waiting:
            each.start()
        # Only who has begun to wait shares it; a thread that is late has a turn of its own.
        with pytest.raises(NotStarted), turn(tmp_path / "s", time.monotonic(), shared=True):
            raise AssertionError("two turns at once")
        record(NotStarted("faulty", 78))
    for each in waiting:
        each.join(PATIENCE)
    assert "its own turn" in outcomes
    assert set(outcomes) <= {"faulty 78", "its own turn"}


def test_an_old_failure_is_nobodys_and_a_record_that_nobody_can_read_counts_for_nothing(tmp_path: Path) -> None:
    for left in ("", "{", "[]", '{"at": 9e9}'):
        (tmp_path / "s.start").write_text(left)
        for _ in range(2):
            with turn(tmp_path / "s", time.monotonic() + PATIENCE, shared=True) as record:
                record(NotStarted("faulty"))


# --- the PATH of a real login shell, whatever else it prints, and another one where it does not --------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("nvm", "cargo"):
        (tmp_path / name).mkdir()
    return tmp_path


def at(home: Path, shell: str = "/bin/bash", **more: str) -> dict[str, str]:
    # pytest's directories are below /tmp, which no PATH keeps: the home is.
    return {"HOME": str(home), "SHELL": shell, "PATH": "/usr/bin:/opt", **more}


def test_what_profiles_add_is_taken_over_and_what_they_print_is_not(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.setup.running.service.FLEETING", ("/run/user/",))
    (home / ".bash_profile").write_text(
        'echo "Welcome: $PATH"; exit_trap() { echo bye; }; trap exit_trap EXIT\n'
        f'export PATH="{home}/nvm:{home}/gone:relative:{home}/cargo:{home}/nvm:/run/user/1/x:$PATH"\n'
    )
    path, source = login_path(at(home))
    # Between them stands what this machine's /etc/profile says.
    assert path.startswith(f"{home}/nvm:{home}/cargo:/usr/local/")
    assert path.endswith(f":/bin:{home}/.local/bin")
    assert source == "the login shell /bin/bash"


@pytest.mark.parametrize("shell", ["/bin/false", "/nonexistent", "bash", "/bin/bash"])
def test_a_shell_that_does_not_tell_or_waits_for_somebody_is_replaced_by_this_one(
    home: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.setup.running.service.SHELL_SECONDS", 0.2)
    # Its child has our pipe, too, and ends with it.
    (home / ".bash_profile").write_text("sleep 1000\n")
    path, source = login_path(at(home, shell))
    assert path.startswith("/usr/bin:")
    assert "did not tell" in source


# --- the service manager is asked and told, and what it refuses is passed on ---------------------------------


def test_a_unit_is_shown_with_its_process_and_nobody_waits_for_systemctl_where_none_is_installed(
    tmp_path: Path,
) -> None:
    systemd = FakeSystemd(tmp_path)
    systemd.says(RUNS)
    manager = installed(systemd.environ)
    assert manager is not None
    assert (manager.show(SOCKET), manager.pid()) == (RUNS, int(RUNS["MainPID"]))
    assert installed(systemd.environ, "system") is None
    systemd.log.unlink()
    (tmp_path / ".local/share/systemd/user/mcpd.socket").unlink()
    assert installed(systemd.environ) is None
    assert not systemd.log.exists()
    # Without a home only systemd knows where the user's units stand.
    assert installed({**systemd.environ, "HOME": "/"}) is not None
    systemd.says({"LoadState": "not-found"})
    assert (manager.show(SOCKET), manager.pid(), installed(systemd.environ)) == ({}, None, None)


# --- A daemon without a service manager ----------------------------------------------------------------------


def test_what_belongs_to_one_window_is_not_handed_on() -> None:
    of_window = {"MCPD_SESSION": "s", "NOTIFY_SOCKET": "/n", "JOURNAL_STREAM": "1:2"}
    assert handed_on({"PATH": "/bin", "TOKEN": "t", **of_window}) == {"PATH": "/bin", "TOKEN": "t"}


def test_what_the_daemon_says_before_it_has_a_log_is_told(user: User) -> None:
    user.configure({"listen": {"http": {"address": "192.0.2.1:80"}}})
    done = user.mcpd("start")
    assert done.returncode in {1, 78}
    assert "listen.http" in done.stderr or "192.0.2.1" in done.stderr


# --- the units of this version, fitted to a machine, are known again later -----------------------------------


def test_the_shipped_units_and_a_drop_in_are_written_and_known_again() -> None:
    found = wanted_files("/usr/bin/mcpd", "/usr/bin")
    assert set(found) == {"mcpd.service", "mcpd.socket", "mcpd-http.socket", DROP_IN}
    assert all(is_untouched(content) for content in found.values())
    assert not any(is_untouched(content + b"# mine\n") for content in found.values())
    assert found["mcpd.service"].endswith((ROOT / "systemd" / "user" / "mcpd.service").read_bytes())
    # What is kept for servers never becomes the daemon's environment.
    assert not any(b"\nEnvironmentFile=" in content for content in found.values())
    # A path is read back however strange it is.
    strange = '/opt/a b/100%/$HOME/"q"\\/mcpd'
    drop_in = wanted_files(strange, strange)[DROP_IN]
    assert path_of(drop_in) == strange
    assert b'ExecStart="/opt/a b/100%%/$HOME/\\"q\\"\\\\/mcpd" run\n' in drop_in
    assert not path_of(b"[Service]\n")


# --- who serves a socket, as far as that can be seen ---------------------------------------------------------


def test_a_full_queue_is_a_daemons_and_what_cannot_be_reached_is_said(sockets: Path) -> None:
    with listen(sockets / "mcpd.sock") as full:
        full.listen(0)
        seen = [found(sockets / "mcpd.sock") for _ in range(3)]
    assert None not in seen
    (sockets / "file").touch()
    with pytest.raises(NotStarted, match="Not a directory"):
        found(sockets / "file" / "mcpd.sock")


# --- the service's files -------------------------------------------------------------------------------------


PROGRAM = "/usr/bin/mcpd"


@pytest.fixture
def uninstalled(tmp_path: Path) -> FakeSystemd:
    found = FakeSystemd(tmp_path / "home")
    found.says(STOPPED)
    found.environ["SHELL"] = "/bin/false"
    return found


def install(uninstalled: FakeSystemd) -> service.Installed:
    return service.install(uninstalled.environ, service.planned(uninstalled.environ, PROGRAM), linger=False)


def files(uninstalled: FakeSystemd) -> set[str]:
    folder = unit_directory(uninstalled.environ)
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


ALL = {"mcpd.service", "mcpd.socket", "mcpd-http.socket", DROP_IN}


def test_what_is_written_is_enabled_started_and_taken_away_again(uninstalled: FakeSystemd) -> None:
    assert install(uninstalled).kept == ()
    assert files(uninstalled) == ALL
    told = ["--user daemon-reload", "--user enable mcpd.service mcpd.socket"]
    assert uninstalled.told() == [*told, "--user restart mcpd.socket mcpd.service"]
    uninstalled.says(RUNS)
    found = service.state(uninstalled.environ, PROGRAM)
    assert [found.installed, found.enabled, found.active] == [True] * 3
    assert (found.pid, found.differing) == (4711, ())
    assert install(uninstalled).written == ()
    done = service.uninstall(uninstalled.environ)
    assert (len(done.removed), done.edited, files(uninstalled)) == (len(ALL), (), set())
    assert "--user disable --now mcpd.socket mcpd-http.socket mcpd.service" in uninstalled.told()


def test_what_somebody_else_wrote_is_kept_and_what_was_edited_is_left(uninstalled: FakeSystemd) -> None:
    unit = unit_directory(uninstalled.environ) / "mcpd.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/mine\n")
    (copy,) = install(uninstalled).kept
    assert copy.read_text() == "[Service]\nExecStart=/mine\n"
    with unit.open("a") as file:
        file.write("# edited\n")
    assert service.state(uninstalled.environ, PROGRAM).differing == ("mcpd.service",)
    assert service.written_by_us(uninstalled.environ) is not None
    assert service.uninstall(uninstalled.environ).edited == (unit,)
    assert files(uninstalled) == {"mcpd.service"}


def test_a_service_that_does_not_start_says_why(uninstalled: FakeSystemd) -> None:
    uninstalled.says({**STOPPED, "ExecMainStatus": "78"}, refusal="Job failed")
    with pytest.raises(service.ServiceRefused, match="mcpd check"):
        install(uninstalled)
    uninstalled.says(STOPPED, refusal="Job failed")
    with pytest.raises(service.ServiceRefused, match="Job failed"):
        install(uninstalled)
