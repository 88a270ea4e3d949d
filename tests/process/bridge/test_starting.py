"""Windows have a daemon started: one for all, not where that is unwanted, and are told why if none is."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from daemon.bridge.stand_in import STATUS
from tests.process.setup.users import FAULTY, GOOD, User, ended, pid_of, user
from tests.waiting import eventually

__all__ = ["user"]


@pytest.mark.parametrize("many", [8, pytest.param(50, marks=pytest.mark.nightly)])
def test_windows_that_are_opened_at_once_start_one_daemon_and_all_get_its_tools(user: User, many: int) -> None:
    with ExitStack() as stack:
        windows = [stack.enter_context(user.window()) for _ in range(many)]
        for window, request in [(each, each.hail()) for each in windows]:
            window.receive(request)
            window.notify("notifications/initialized")
        assert all(window.tools() == ["echo"] for window in windows)
    assert user.log.read_text().count("ready: clients connect to") == 1


def test_a_window_starts_the_daemon_and_its_directory_is_not_imported_from(user: User, tmp_path: Path) -> None:
    (tmp_path / "daemon").mkdir()
    (tmp_path / "daemon" / "__init__.py").write_text("raise SystemExit('the repository was run')")
    with user.window(cwd=tmp_path) as window:
        window.greet()
        assert window.tools() == ["echo"]
    # It outlives the window that had it started.
    assert user.start()["how"] == "other"


def test_windows_that_are_opened_at_once_are_each_told_why_there_is_no_daemon(user: User) -> None:
    user.configure(FAULTY)
    with ExitStack() as stack:
        windows = [stack.enter_context(user.window()) for _ in range(4)]
        for window, request in [(each, each.hail()) for each in windows]:
            window.receive(request)
            window.notify("notifications/initialized")
        for window in windows:
            assert "$.limits.starts" in window.status()
        assert not user.log.exists(), "no daemon was run in vain"
        user.configure(GOOD)
        # A request that waits has it tried again.
        assert windows[0].tools() == ["echo"]


@pytest.mark.parametrize("how", ["option", "configuration"])
def test_it_can_be_kept_from_it(user: User, how: str) -> None:
    if how == "configuration":
        user.configure({**GOOD, "autostart": False})
    with user.window(*(["--no-start"] if how == "option" else [])) as window:
        window.greet()

        def refused() -> bool:
            listed = window.ask("tools/list")["result"]["tools"]
            assert [tool["name"] for tool in listed] == [STATUS]
            return "Start the daemon with" in listed[0]["description"]

        # On a busy machine the first list does not wait for what `autostart` says.
        assert eventually(refused)
    assert not user.front.exists()


def test_a_daemon_that_serves_another_socket_is_not_started_for_this_window(user: User) -> None:
    user.configure({**GOOD, "listen": {"socket": str(user.home / "else.sock")}})
    with user.window() as window:
        window.greet()
        assert "but this client connects to" in window.status()
    assert not user.log.exists(), "none was run"


def test_a_stopped_daemon_stays_stopped_for_windows_that_are_open_and_a_new_one_starts_it(user: User) -> None:
    with user.window() as window:
        window.greet()
        assert window.tools() == ["echo"]
        assert user.mcpd("stop").returncode == 0
        window.hear("the daemon was stopped")
        assert not user.front.exists()
        with user.window() as another:
            another.greet()
            assert another.tools() == ["echo"]
        assert window.tools() == ["echo"]


def test_a_killed_daemon_is_started_again_by_a_window_that_was_connected(user: User) -> None:
    with user.window() as window:
        window.greet()
        assert window.tools() == ["echo"]
        pid = pid_of(user)
        os.kill(pid, signal.SIGKILL)
        assert window.tools() == ["echo"]
        assert pid_of(user) != pid


def test_it_ends_when_nobody_has_used_it_for_so_long(user: User) -> None:
    user.configure({**GOOD, "idle": 1})
    with user.window() as window:
        window.greet()
        assert window.tools() == ["echo"]
        pid = pid_of(user)
    eventually(lambda: ended(pid) and not user.front.exists(), user.log.read_text)
    assert "`idle`" in user.log.read_text()
