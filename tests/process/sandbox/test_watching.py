"""Real programs, watched: the files that they use, and the addresses that they try."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from daemon.sandbox.egress import received, stub_command
from daemon.sandbox.learning import Observations, Use
from daemon.sandbox.watching import FileWatch, folded, looks_of, watched_calls
from tests.security.unprivileged import DROP, interpreter
from tests.waiting import WAIT

MACHINE = os.uname().machine
USED = Use.READ | Use.WRITE


async def watched(watching: FileWatch, *words: str, drop: list[str] = []) -> Observations:  # noqa: B006
    """Run a program in a namespace of its own, see what it uses, and wait for its end."""
    daemons, stubs = socket.socketpair()
    ended = trio.Event()
    with trio.fail_after(WAIT):
        async with trio.open_nursery() as nursery:

            async def watch(listener: int) -> None:
                await trio.to_thread.run_sync(watching.watch, listener)
                ended.set()

            with stubs:
                command = stub_command(stubs.fileno(), watched_calls(MACHINE).hex())
                stub = [interpreter() if drop else sys.executable, *command[1:]]
                process = await trio.lowlevel.open_process(
                    [*drop, *stub, shutil.which(words[0]) or words[0], *words[1:]],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[stubs.fileno()],
                )
            with daemons:
                _, (made, calls) = await trio.to_thread.run_sync(received, daemons)
            nursery.start_soon(watch, calls)
            with socket.socket(fileno=made):
                assert await process.wait() == 0
                await ended.wait()
    return watching.seen()


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir="/var/tmp")).resolve()
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


async def test_a_name_that_is_not_utf_8_costs_its_own_line_and_not_the_lesson(place: Path) -> None:
    script = 'cd "$0"; d=$(printf "a\\377"); mkdir "$d"; echo x >"$d/b"; echo x >c'
    seen = await watched(FileWatch(MACHINE), "/bin/sh", "-c", script, str(place))
    assert {path for path in seen.paths if str(place) in path} == {f"{place}/c", str(place)}
    assert seen.missed
    assert seen.paths[f"{place}/c"] & USED == Use.WRITE


@pytest.mark.parametrize("drop", [[], DROP], ids=["as it is", "as an ordinary user"])
async def test_reads_writes_and_lists_are_seen_through_links_and_directories(
    place: Path, drop: list[str]
) -> None:
    (place / "read").write_text("x")
    (place / "link").symlink_to("read")
    (place / "listed").mkdir()
    script = """
        cd "$0"; cat link >/dev/null; ls listed; mkdir made; echo x >made/new; mv made/new made/moved
        (cd made; echo x >../later); rm later; test -e nowhere; cat /etc/passwd >/dev/null
    """
    seen = await watched(FileWatch(MACHINE), "/bin/sh", "-c", script, str(place), drop=drop)
    used = {path[len(str(place)) + 1 :]: use for path, use in seen.paths.items() if str(place) in path}
    assert used["read"] & USED == Use.READ
    assert "link" not in used
    assert "nowhere" not in used
    assert Use.READ | Use.DIRECTORY in used["listed"]
    assert Use.WRITE | Use.DIRECTORY in used["made"]
    assert Use.WRITE in used["made/moved"]
    assert Use.GONE not in used["made/moved"]
    assert Use.WRITE | Use.GONE in used["made/new"]
    assert Use.WRITE | Use.GONE in used["later"]
    assert seen.paths["/etc/passwd"] == Use.READ
    assert seen.missed == 0


async def test_a_directory_that_is_there_already_is_not_written_by_mkdir(place: Path) -> None:
    seen = await watched(FileWatch(MACHINE), "/bin/mkdir", "-p", str(place))
    assert Use.WRITE not in seen.paths[str(place)]


async def test_a_path_may_begin_in_an_open_directory(place: Path) -> None:
    code = "import os, sys; at = os.open(sys.argv[1], os.O_RDONLY); os.mkdir('made', dir_fd=at)"
    seen = await watched(FileWatch(MACHINE), sys.executable, "-I", "-S", "-c", code, str(place))
    assert Use.WRITE in seen.paths[str(place / "made")]


async def test_a_server_that_goes_round_the_proxy_is_seen(place: Path) -> None:
    code = """
import socket, sys
for family, address in ((2, ("192.0.2.1", 443)), (10, ("2001:db8::1", 80)), (2, ("127.0.0.1", 9)),
                        (1, sys.argv[1]), (2, ("192.0.2.1", 443))):
    with socket.socket(family) as made:
        made.settimeout(5)
        made.connect_ex(address)
socket.socket(socket.AF_UNIX).bind(sys.argv[1] + ".own")
"""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place / "sock"))
        seen = await watched(FileWatch(MACHINE), sys.executable, "-c", code, str(place / "sock"))
    assert seen.addresses == {"192.0.2.1:443": 2, "2001:db8::1:80": 1}
    assert seen.paths[str(place / "sock")] == Use.CONNECT
    assert seen.paths[str(place / "sock.own")] == Use.WRITE


async def test_a_socket_s_name_begins_in_the_program_s_directory_and_no_name_is_no_file(place: Path) -> None:
    code = """
import os, socket, sys
os.chdir(sys.argv[1])
for name in ("own", ""):
    socket.socket(socket.AF_UNIX).bind(name)
"""
    seen = await watched(FileWatch(MACHINE), sys.executable, "-I", "-S", "-c", code, str(place))
    assert seen.paths[str(place / "own")] == Use.WRITE
    written = {path for path, use in seen.paths.items() if Use.WRITE in use}
    assert not {str(Path.cwd()), str(Path.cwd() / "own")} & written


async def test_paths_are_bounded_and_become_their_directories(place: Path) -> None:
    code = "import os, sys\nfor number in range(300): open(f'{sys.argv[1]}/{number % 3}-{number}', 'w').close()"
    seen = await watched(FileWatch(MACHINE, most=200), sys.executable, "-I", "-S", "-c", code, str(place))
    assert len(seen.paths) <= 201
    assert Use.WRITE | Use.DIRECTORY in seen.paths[str(place)]
    assert folded({"/a/b/c": Use.READ, "/a/b/d": Use.WRITE}) == {"/a/b": Use.READ | Use.WRITE | Use.DIRECTORY}


@pytest.mark.parametrize(("machine", "openat"), [("x86_64", 257), ("aarch64", 56)])
def test_each_machine_has_its_numbers(machine: str, openat: int) -> None:
    looks = looks_of(machine)
    assert looks[openat][0][:3] == (0, 1, "open")
    assert len(watched_calls(machine)) == 8 * (len(looks) + 5)
    assert -1 not in looks
