"""What a killed daemon has left is found and ended, and nobody else."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.processes import leftovers, marks, proc
from tests.unit.processes.dying import DyingDaemon
from tests.unit.processes.scripts import PATIENCE

POLITE, DEAF = ["polite", "marked"], ["deaf", "marked"]


def files(state: Path) -> list[Path]:
    return list((state / leftovers.FOLDER).iterdir())


def test_what_a_killed_daemon_has_left_is_ended_with_all_below_it(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": [*DEAF, *DEAF], "b": POLITE}) as daemon:
        daemon.kill()
        assert len(daemon.alive) == 3
        found = {each.server: [process.pid for process in each.processes] for each in leftovers.look(tmp_path)}
        assert found == {name: sorted(pids) for name, pids in daemon.pids.items()}
        ended, left = leftovers.end(tmp_path)
        assert ([each.server for each in ended], left) == (["a", "b"], [])
        assert {each.daemon for each in ended} == {daemon.pid}
        assert not daemon.alive
        assert not files(tmp_path)
    assert leftovers.end(tmp_path) == ([], [])


def test_a_daemon_that_lives_is_left_alone_with_its_servers(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": POLITE}) as living, DyingDaemon(tmp_path, {"a": POLITE}) as killed:
        killed.kill()
        leftovers.end(tmp_path)
        assert living.alive == living.all
        assert not killed.alive
        assert len(files(tmp_path)) == 1


def test_a_child_without_its_mark_is_known_by_its_number_and_its_time(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": ["deaf", "unmarked", "deaf", "unmarked"]}) as daemon:
        daemon.kill()
        leftovers.end(tmp_path)
        assert not daemon.alive


def test_a_number_that_is_anothers_now_is_left_alone(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": ["polite", "unmarked"]}) as daemon:
        daemon.kill()
        [path] = files(tmp_path)
        process = proc.read(daemon.all[0])
        assert process is not None
        text = path.read_text()
        path.write_text(text.replace(f'"started": {process.started}', f'"started": {process.started - 1}'))
        assert path.read_text() != text
        leftovers.end(tmp_path)
        assert daemon.alive == daemon.all


def test_what_the_daemon_had_no_time_to_write_down_is_known_by_its_mark(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": POLITE}, note=False) as daemon:
        daemon.kill()
        [found] = leftovers.look(tmp_path)
        assert str(found) == f"a server that was just being started: pid {daemon.all[0]}"
        leftovers.end(tmp_path)
        assert not daemon.alive


@pytest.mark.parametrize("limit", [marks.HIGHEST, marks.series() << marks.COUNT_BITS])
def test_another_daemon_below_a_leftover_is_spared_with_all_below_it(tmp_path: Path, limit: int) -> None:
    with DyingDaemon(tmp_path, {"a": [*DEAF, *POLITE, "polite", "unmarked"]}) as daemon:
        [top, middle] = daemon.all
        # It carries what only daemons and their servers have, as one would that a server has started.
        resource.prlimit(middle, proc.RLIMIT_LOCKS, (limit, marks.HIGHEST))
        daemon.kill()
        [found] = leftovers.look(tmp_path)
        assert [process.pid for process in found.processes] == [top]
        [lowest] = [pid for pid in proc.numbers() if (at := proc.read(pid)) and at.parent == middle]
        leftovers.end(tmp_path)
        assert daemon.alive == [middle]
        os.kill(lowest, signal.SIGKILL)


def test_after_the_machine_was_started_again_nothing_is_left(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": POLITE}) as daemon:
        daemon.kill()
        [path] = files(tmp_path)
        path.write_text(path.read_text().replace(leftovers.boot(), "another"))
        assert leftovers.look(tmp_path) == []
        assert files(tmp_path) == [path]
        assert leftovers.end(tmp_path) == ([], [])
        assert daemon.alive == daemon.all
        assert not files(tmp_path)


def test_a_file_whose_numbers_count_elsewhere_is_kept_for_a_week(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": POLITE}) as daemon:
        daemon.kill()
        [path] = files(tmp_path)
        path.write_text(path.read_text().replace(f'"namespace": {leftovers.namespace()}', '"namespace": 1'))
        assert leftovers.end(tmp_path) == ([], [])
        assert files(tmp_path) == [path]
        old = path.stat().st_mtime - leftovers.FOREIGN_SECONDS - 1
        os.utime(path, (old, old))
        assert leftovers.end(tmp_path) == ([], [])
        assert not files(tmp_path)
        assert daemon.alive == daemon.all


def test_a_file_of_another_user_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DyingDaemon(tmp_path, {"a": POLITE}) as daemon:
        daemon.kill()
        monkeypatch.setattr(os, "geteuid", lambda: files(tmp_path)[0].stat().st_uid + 1)
        assert leftovers.end(tmp_path) == ([], [])
        assert daemon.alive == daemon.all


def test_what_survives_is_not_told_as_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DyingDaemon(tmp_path, {"a": [*POLITE, *POLITE], "b": POLITE}) as daemon:
        daemon.kill()
        top, below = daemon.pids["a"]
        hanging = {top, *daemon.pids["b"]}
        opened: dict[int, int] = {}

        def open_pidfd(pid: int) -> int:
            opened[fd := pidfd_open(pid)] = pid
            return fd

        def send(fd: int, number: signal.Signals) -> None:
            if opened[fd] not in hanging:
                pidfd_send_signal(fd, number)

        # As a process that hangs in the kernel: it takes no signal.
        pidfd_open, pidfd_send_signal = os.pidfd_open, signal.pidfd_send_signal
        monkeypatch.setattr(os, "pidfd_open", open_pidfd)
        monkeypatch.setattr(signal, "pidfd_send_signal", send)
        ended, left = leftovers.end(tmp_path)
        assert [(each.server, [process.pid for process in each.processes]) for each in ended] == [
            ("a", [below])
        ]
        assert {process.pid for each in left for process in each.processes} == hanging


@pytest.mark.parametrize("words", [POLITE, DEAF], ids=["polite", "deaf"])
def test_of_two_at_the_same_time_one_ends_it_and_the_other_waits_until_that_is_done(
    words: list[str], tmp_path: Path
) -> None:
    """One of them holds the file meanwhile: for two seconds, if a leftover ignores SIGTERM."""
    with DyingDaemon(tmp_path, {"a": words}) as daemon:
        daemon.kill()
        end = (
            "import sys; from pathlib import Path; from daemon.processes import leftovers, proc;"
            "ended = len(leftovers.end(Path(sys.argv[1]))[0]); it = proc.read(int(sys.argv[2]));"
            "print(ended, 'left' if it and not it.is_dead else 'gone')"
        )
        argv = [sys.executable, "-c", end, str(tmp_path), str(daemon.all[0])]
        both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        assert sorted(each.communicate(timeout=PATIENCE)[0] for each in both) == ["0 gone\n", "1 gone\n"]
