"""Talking to the service manager, and signals, which are taken from the first moment to the last."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.host.notify import (
    ENDING,
    FIRST_FD,
    HANDLED,
    SERVING,
    SWITCHES,
    TOKENS,
    UNIT_STOP_SECONDS,
    Notifier,
    Signals,
    listen_fds,
    reloading,
    stopping,
    watchdog_seconds,
)

ROOT = Path(__file__).parent.parent.parent

INHERIT = """
import json, os
from daemon.host.notify import listen_fds
os.environ["LISTEN_PID"] = os.environ["LISTEN_PID"].replace("SELF", str(os.getpid()))
found = listen_fds(os.environ)
print(json.dumps({
    "found": {
        name: [one.fileno(), one.getsockname(), one.getblocking(), one.get_inheritable()]
        for name, one in found.items()
    },
    "left": [name for name in os.environ if name.startswith("LISTEN_")],
}))
"""


@pytest.fixture
def manager(sockets: Path) -> Iterator[socket.socket]:
    """The receiving end of NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(sockets / "notify"))
        receiver.settimeout(60)
        yield receiver


def test_states_reach_the_service_manager_and_children_cannot_speak_for_us(manager: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": manager.getsockname(), "HOME": "/"}
    notify = Notifier(environ)
    assert environ == {"HOME": "/"}
    notify("READY=1\nSTATUS=serving")
    # One that does not read holds nothing up.
    for _ in range(2000):
        notify("WATCHDOG=1")
    assert [manager.recv(100) for _ in range(2)] == [b"READY=1\nSTATUS=serving", b"WATCHDOG=1"]


def test_abstract_addresses_work() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0mcpd-test-{os.getpid()}")
        receiver.settimeout(60)
        Notifier({"NOTIFY_SOCKET": f"@mcpd-test-{os.getpid()}"})("READY=1")
        assert receiver.recv(100) == b"READY=1"


def test_without_a_service_manager_nothing_happens(sockets: Path) -> None:
    Notifier({})("READY=1")
    Notifier({"NOTIFY_SOCKET": ""})("READY=1")
    Notifier({"NOTIFY_SOCKET": str(sockets / "gone")})("READY=1")


def test_the_watchdog_is_asked_for_by_interval_and_pid() -> None:
    for interval, pid, seconds in (
        ("", "", None),
        ("30000000", "", 30.0),
        ("500000", str(os.getpid()), 0.5),
        ("500000", "1", None),
        ("soon", "", None),
    ):
        environ = {"WATCHDOG_USEC": interval, "WATCHDOG_PID": pid}
        assert (watchdog_seconds(environ), environ) == (seconds, {})


def inherit(sockets: list[socket.socket], **variables: str) -> dict[str, Any]:
    """Run `listen_fds` in a process that got `sockets` as descriptors 3 and up, as systemd passes them."""
    copies = [fcntl.fcntl(one, fcntl.F_DUPFD, 20) for one in sockets]
    moves = "".join(f"exec {FIRST_FD + place}<&{copy} {copy}<&-; " for place, copy in enumerate(copies))
    try:
        done = subprocess.run(
            ["/bin/bash", "-c", moves + 'exec "$0" -W ignore -c "$1"', sys.executable, INHERIT],
            env={"PYTHONPATH": str(ROOT), **variables},
            pass_fds=copies,
            stdout=subprocess.PIPE,
            timeout=60,
            check=True,
        )
    finally:
        for copy in copies:
            os.close(copy)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("control:front", ["control", "front"]),
        (":control", ["front", "control"]),
        ("http:http", ["http", "http 4"]),
        (None, ["front", "front 4"]),
    ],
    ids=["by their names", "without a name", "with a name twice", "without any names"],
)
@pytest.mark.process
def test_inherited_sockets_are_found_by_their_names_and_none_is_lost(
    sockets: Path, names: str | None, found: list[str]
) -> None:
    named = {} if names is None else {"LISTEN_FDNAMES": names}
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        for place, one in enumerate((first, second)):
            one.bind(str(sockets / str(place)))
            one.listen()
        report = inherit([first, second], LISTEN_FDS="2", LISTEN_PID="SELF", **named)
    assert report["left"] == []
    assert report["found"] == {
        name: [FIRST_FD + place, str(sockets / str(place)), False, False] for place, name in enumerate(found)
    }


@pytest.mark.process
def test_what_is_kept_for_the_next_daemon_is_sealed_and_comes_after_the_sign_that_we_serve(
    manager: socket.socket, sockets: Path
) -> None:
    notify = Notifier({"NOTIFY_SOCKET": str(sockets / "notify")})
    notify.keep(TOKENS, b"one")
    notify(SERVING)
    notify.keep(SWITCHES, b"two")
    assert manager.recv(4096) == SERVING.encode()
    for name, content in ((TOKENS, b"one"), (SWITCHES, b"two")):
        assert manager.recv(4096) == f"FDSTOREREMOVE=1\nFDNAME={name}".encode()
        state, (memory,), _, _ = socket.recv_fds(manager, 4096, 1)
        assert state == f"FDSTORE=1\nFDNAME={name}".encode()
        assert os.pread(memory, 100, 0) == content
        with pytest.raises(PermissionError), Path(f"/proc/self/fd/{memory}").open("r+b", buffering=0) as again:
            again.write(b"evil")
        assert kept_by(memory, name) == content


def kept_by(memory: int, name: str = TOKENS) -> bytes:
    """What the next daemon finds, which gets this descriptor."""
    script = (
        "import os, sys\nfrom daemon.host.notify import listen_fds\nkept = {}\n"
        "listen_fds({'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid()), 'LISTEN_FDNAMES': sys.argv[1]}, kept)\n"
        "sys.stdout.buffer.write(kept.get(sys.argv[1], b'nothing'))"
    )
    words = ["/bin/bash", "-c", f'exec {FIRST_FD}<&{memory}; exec "$0" -c "$@"', sys.executable, script, name]
    environ = {"PYTHONPATH": str(ROOT)}
    with os.fdopen(memory):
        return subprocess.run(
            words, env=environ, pass_fds=[memory], stdout=subprocess.PIPE, timeout=60, check=True
        ).stdout


@pytest.mark.process
def test_what_is_not_sealed_is_not_taken(sockets: Path) -> None:
    (sockets / "file").write_bytes(b"evil")
    assert kept_by(os.open(sockets / "file", os.O_RDWR)) == b"nothing"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "x", "LISTEN_PID": str(os.getpid())},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "front"},
    ],
    ids=["nothing", "no number", "for another process"],
)
def test_without_socket_activation_of_this_process_there_is_nothing(environ: dict[str, str]) -> None:
    assert listen_fds(environ) == {}
    assert environ == {}


def test_a_reload_is_told_with_the_clock_that_the_service_manager_compares(manager: socket.socket) -> None:
    """sd_notify(3): RELOADING=1 goes with MONOTONIC_USEC of CLOCK_MONOTONIC, and READY=1 ends it."""
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notify = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    notify(reloading())
    notify(SERVING)
    told = dict(line.split("=", 1) for line in manager.recv(1000).decode().splitlines())
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert told["RELOADING"] == "1"
    assert before <= int(told["MONOTONIC_USEC"]) <= after
    assert manager.recv(1000).decode().splitlines()[0] == "READY=1"


def test_who_drains_asks_for_the_time_beside_what_the_unit_gives() -> None:
    assert stopping(0) == "STOPPING=1\nSTATUS=stopping"
    assert stopping(20.5) == "STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=35500000"
    unit = (Path(__file__).parents[3] / "systemd" / "mcpd.service").read_text()
    assert f"TimeoutStopSec={UNIT_STOP_SECONDS}s" in unit


@pytest.fixture
def signals() -> Iterator[Signals]:
    taken = Signals()
    yield taken
    taken.restore()


def come(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


def test_what_comes_before_anybody_listens_is_kept_and_in_order(signals: Signals) -> None:
    come(signal.SIGHUP, signal.SIGTERM, signal.SIGHUP)
    heard: list[int] = []
    signals.listen(heard.append)
    assert heard == [signal.SIGHUP, signal.SIGTERM, signal.SIGHUP]
    come(signal.SIGHUP)
    assert heard[3:] == [signal.SIGHUP]


@pytest.mark.parametrize("second", ENDING)
def test_the_second_that_asks_for_the_end_is_the_last_that_is_heard(
    signals: Signals, second: signal.Signals
) -> None:
    heard: list[int] = []
    signals.listen(heard.append)
    come(signal.SIGTERM, second, *[signal.SIGTERM, signal.SIGINT] * 500, signal.SIGHUP)
    assert heard == [signal.SIGTERM, second, signal.SIGHUP]


def test_in_the_end_none_is_heard_and_what_was_there_before_comes_back() -> None:
    before = [signal.getsignal(number) for number in HANDLED]
    signals, heard = Signals(), list[int]()
    signals.listen(heard.append)
    signals.ignore()
    come(*HANDLED)
    assert heard == []
    signals.restore()
    assert [signal.getsignal(number) for number in HANDLED] == before
