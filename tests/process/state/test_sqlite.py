"""What can happen to a file, and what the store makes of it."""

import contextlib
import os
import pwd
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from daemon.errors import DaemonRunning
from daemon.state.sql import Batch, StoreCause, StoreFault
from daemon.state.sqlite import SqliteDatabase, hold
from daemon.state.store import Store, set_aside
from tests.unit.state.places import LITTLE, Opener, Sqlite, failing
from tests.unit.state.samples import server, session
from tests.waiting import run_to_end

BATCH = Batch(
    at=1.0,
    servers=(server(*(f"tool{number}" for number in range(50))),),
    sessions=tuple(session(f"key{number}", "git/tool1") for number in range(50)),
)


def written(place: Sqlite) -> Path:
    """A store with something in it, closed."""
    store = place.open()
    store.keep(BATCH)
    store.close()
    return place.path


def pragma(store: Store, words: str) -> object:
    """Ask or tell the open connection something."""
    assert isinstance(store._database, SqliteDatabase)
    row = store._database.raw.execute(f"PRAGMA {words}").fetchone()
    return None if row is None else row[0]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_its_files_and_the_directory_that_it_makes_are_for_us_alone(
    sqlite_place: Sqlite, opening: Opener
) -> None:
    opening(sqlite_place).keep(BATCH)
    path = sqlite_place.path
    assert mode(path.parent) == 0o700
    files = {each.name: mode(each) for each in path.parent.iterdir()}
    assert files == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}


def test_a_file_that_others_could_read_becomes_ours_alone(sqlite_place: Sqlite, opening: Opener) -> None:
    written(sqlite_place).chmod(0o644)
    opening(sqlite_place)
    assert mode(sqlite_place.path) == 0o600


def test_a_full_disk_loses_nothing_that_was_written(sqlite_place: Sqlite, opening: Opener) -> None:
    store = opening(sqlite_place)
    store.keep(Batch(at=1.0, sessions=(session("key", "git/a"),)))
    pragma(store, f"max_page_count = {pragma(store, 'page_count')}")
    # More than the pages hold that its schema has left free.
    many = tuple(session(f"another {number}", "git/a") for number in range(1000))
    with failing(StoreCause.FULL, "free some space", "SQLITE_FULL"):
        store.keep(msgspec.structs.replace(BATCH, sessions=(*BATCH.sessions, *many)))
    assert store.recall().servers == ()
    assert store.session("key") == session("key", "git/a")
    pragma(store, "max_page_count = 100000")
    store.keep(BATCH)
    assert store.recall().servers == BATCH.servers


@pytest.mark.parametrize("slack", [LITTLE], indirect=True)
def test_a_file_that_another_program_holds_is_locked(sqlite_place: Sqlite, opening: Opener) -> None:
    store = opening(sqlite_place)
    store.keep(BATCH)
    with holding(sqlite_place.path, "BEGIN IMMEDIATE"):
        with failing(StoreCause.LOCKED, "end the program that locks it"):
            store.keep(BATCH)
        assert store.recall().servers == BATCH.servers
    store.keep(BATCH)


@pytest.mark.parametrize(
    ("directory_mode", "said"),
    [(0o1777, ["1", "read_only"]), (0o555, ["read_only"])],
    ids=["file", "directory"],
)
def test_a_file_that_may_only_be_read_is_read_if_its_log_can_be_made(
    directory_mode: int, said: list[str]
) -> None:
    # Not in pytest's directory: as root, nobody else gets into that.
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        Path(directory).chmod(0o755)
        place = Sqlite(Path(directory) / "state" / "state.db")
        written(place).chmod(0o444)
        place.path.parent.chmod(directory_mode)
        script = f"""
import os
from daemon.state.store import Store
from daemon.config.state_url import parse
from daemon.state.sql import StoreFault
from daemon.state.sql import Batch
if os.geteuid() == 0:
    os.seteuid({pwd.getpwnam("nobody").pw_uid})
try:
    store = Store.open(parse("sqlite:///{place.path}"), writer="child")
    print(len(store.recall().servers))
    store.keep(Batch(at=2.0))
except StoreFault as fault:
    print(fault.cause)
"""
        assert python(script) == said
        place.path.parent.chmod(0o755)


def test_a_store_that_turns_read_only_says_so(sqlite_place: Sqlite, opening: Opener) -> None:
    store = opening(sqlite_place)
    pragma(store, "query_only = ON")
    with failing(StoreCause.READ_ONLY, "writable"):
        store.keep(BATCH)
    assert store.recall().servers == ()


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda path: path.write_bytes(b"this is not a database" * 500), StoreCause.CORRUPT),
        (lambda path: overwrite(path, 0, b"\0" * 100), StoreCause.CORRUPT),
        (lambda path: overwrite(path, 4096, b"\xff" * (path.stat().st_size - 4096)), StoreCause.CORRUPT),
        (lambda path: os.truncate(path, path.stat().st_size // 2), StoreCause.CORRUPT),
        (lambda path: os.truncate(path, 100), StoreCause.CORRUPT),
        (lambda path: (path.unlink(), path.mkdir()), StoreCause.MISCONFIGURED),
    ],
)
def test_what_is_no_sound_database_is_refused(
    sqlite_place: Sqlite, spoil: Callable[[Path], object], kind: StoreCause
) -> None:
    spoil(written(sqlite_place))
    with failing(kind, str(sqlite_place.path)):
        sqlite_place.open()


def test_setting_aside_never_overwrites(sqlite_place: Sqlite) -> None:
    names = []
    for content in (b"one", b"two", b"three"):
        sqlite_place.path.parent.mkdir(exist_ok=True)
        sqlite_place.path.write_bytes(content)
        names.append(Path(set_aside(sqlite_place.url, now=0.0)))
    assert [name.name.removeprefix("state.db.corrupt-19700101-000000") for name in names] == ["", "-2", "-3"]
    assert [name.read_bytes() for name in names] == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: path.unlink(), "removed the file"),
        (lambda path: shutil.rmtree(path.parent), "removed the file"),
        (lambda path: Path(shutil.copy(path, path.with_name("new"))).replace(path), "another file"),
        (lambda path: os.truncate(path, 0), "emptied"),
        (lambda path: path.with_name("state.db-wal").unlink(), "write-ahead log"),
    ],
)
def test_a_file_that_is_gone_under_us_is_lost(
    sqlite_place: Sqlite, opening: Opener, harm: Callable[[Path], object], words: str
) -> None:
    store = opening(sqlite_place)
    store.keep(BATCH)
    store.check()
    harm(sqlite_place.path)
    with failing(StoreCause.LOST, words, "creates it again"):
        store.check()


def test_closing_a_lost_store_leaves_its_successor_alone(sqlite_place: Sqlite, opening: Opener) -> None:
    lost = opening(sqlite_place)
    lost.keep(Batch(at=1.0, sessions=(session("old"),)))
    for each in list(sqlite_place.path.parent.iterdir()):
        each.unlink()
    successor = opening(sqlite_place)
    successor.keep(BATCH)
    lost.close()
    # What was written stands in the log alone until it is copied: without it, nothing would be left.
    assert sqlite_place.path.with_name("state.db-wal").stat().st_size > 0
    successor.check()
    with contextlib.closing(sqlite3.connect(sqlite_place.path)) as other:
        assert other.execute("SELECT count(*) FROM sessions").fetchone() == (50,)


def test_a_table_with_other_columns_is_corrupt(sqlite_place: Sqlite) -> None:
    written(sqlite_place)
    sqlite_place.run("ALTER TABLE sessions DROP COLUMN client")
    with failing(StoreCause.CORRUPT, "no such column"):
        sqlite_place.open()


def holding(path: Path, *statements: str) -> contextlib.AbstractContextManager[object]:
    """Another process that has run these statements, and stays."""
    script = (
        "import sqlite3, sys\n"
        f"connection = sqlite3.connect({str(path)!r}, isolation_level=None)\n"
        f"for statement in {statements!r}: connection.execute(statement)\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    return _other(script)


@contextlib.contextmanager
def _other(script: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which says when it holds something, and stays."""
    command = [sys.executable, "-c", script, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        try:
            yield other
        finally:
            other.communicate(timeout=60)


def python(script: str) -> list[str]:
    """The lines that a program prints."""
    done = run_to_end([sys.executable, "-c", script])
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def test_a_store_that_cannot_be_opened_leaves_nothing_open(sqlite_place: Sqlite) -> None:
    written(sqlite_place).write_bytes(b"garbage" * 1000)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(StoreFault):
            Store.open(sqlite_place.url, writer="one")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_that_others_can_write_to_is_not_used(
    sqlite_place: Sqlite, opening: Opener, mode: int
) -> None:
    sqlite_place.path.parent.mkdir(exist_ok=True)
    sqlite_place.path.parent.chmod(mode)
    with pytest.raises(StoreFault, match=f"is writable by others: chmod 700 {sqlite_place.path.parent}"):
        opening(sqlite_place)
    assert not sqlite_place.path.exists()
    sqlite_place.path.parent.chmod(0o700)


def test_a_link_that_somebody_else_has_put_there_is_not_followed(
    sqlite_place: Sqlite, opening: Opener, tmp_path: Path
) -> None:
    """In a directory such as /tmp, which everybody can write to; who is not root can only link for himself."""
    victim = tmp_path / "victim"
    victim.write_text("dear")
    victim.chmod(0o644)
    sqlite_place.path.parent.mkdir(exist_ok=True)
    sqlite_place.path.parent.chmod(0o1777)
    sqlite_place.path.symlink_to(victim)
    stranger = 64_322 if os.getuid() == 0 else os.getuid()
    os.chown(sqlite_place.path, stranger, -1, follow_symlinks=False)
    said = f"belongs to uid {stranger}, not to this user: remove it" if os.getuid() == 0 else "not a database"
    with pytest.raises(StoreFault, match=said):
        opening(sqlite_place)
    assert mode(victim) == (0o644 if os.getuid() == 0 else 0o600)
    assert victim.read_text() == "dear"


# --- one daemon for one state file ---------------------------------------------------------------------------


def another(path: Path) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Another process that holds it."""
    script = (
        "import sys; from pathlib import Path; from daemon.state.sqlite import hold\n"
        "with hold(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()\n"
    )
    return _other(script, str(path))


def test_the_second_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with another(path) as process:
        with pytest.raises(DaemonRunning, match=f"pid {process.pid}.*{path}.*--state-dir"), hold(path):
            pass
        # Being refused did not break it.
        with pytest.raises(DaemonRunning, match=f"pid {process.pid}"), hold(path):
            pass
    with hold(path):
        assert (tmp_path / "state.db.lock").read_text() == f"{os.getpid()}\n"


def test_what_a_dead_process_left_behind_locks_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with another(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        assert (tmp_path / "state.db.lock").read_text() == f"{process.pid}\n"
        with hold(path):
            pass
    (tmp_path / "state.db.lock").write_bytes(b"\xff garbage " * 100)
    with hold(path):
        assert (tmp_path / "state.db.lock").read_text() == f"{os.getpid()}\n"


def test_the_file_stays_and_is_ours_alone(tmp_path: Path) -> None:
    path = tmp_path / "made" / "state.db"
    with hold(path):
        pass
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((path.parent / "state.db.lock").stat().st_mode) == 0o600


def test_a_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    with hold(tmp_path / "x"):
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    with child:
        with hold(tmp_path / "x"):
            pass
        child.communicate(timeout=60)


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "x.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="is not a regular file: remove it"), hold(tmp_path / "x"):
        pass
    assert not (tmp_path / "elsewhere").exists()
