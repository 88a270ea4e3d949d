"""The bridge's ends: connecting without waiting, the delays between attempts, and stdout of every kind."""

import errno
import os
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemon.bridge.ends import FIRST_SECONDS, LONGEST_SECONDS, STABLE_SECONDS, Dialer, Starting, Stdout, reach
from daemon.bridge.unreachable import CLIENTS, OPERATORS, Door, explain, is_installed
from tests.unit.cli.daemons import listen

MIB = 1024 * 1024


@pytest.mark.parametrize(("left", "reason"), [(False, "ENOENT"), (True, "ECONNREFUSED")])
def test_a_socket_without_a_listener_is_explained(sockets: Path, *, left: bool, reason: str) -> None:
    path = sockets / "mcpd.sock"
    if left:
        listen(path).close()
    link, trouble, nobody_listens = reach(str(path))
    assert (link, nobody_listens) == (None, True)
    assert all(part in trouble for part in (str(path), reason, "mcpd run", "--socket P"))


def test_a_connection_never_blocks_and_a_full_queue_is_not_waited_for(sockets: Path) -> None:
    path = sockets / "mcpd.sock"
    with listen(path) as listener:
        listener.listen(0)
        links = [reach(str(path)) for _ in range(3)]
        first, trouble, nobody_listens = links[0]
        assert first is not None
        assert (trouble, nobody_listens) == ("", False)
        with pytest.raises(BlockingIOError):
            first.recv(1)
        _, trouble, nobody_listens = links[-1]
        assert ("EAGAIN" in trouble, nobody_listens) == (True, False)
        for link, _, _ in links:
            if link is not None:
                link.close()


def test_delays_double_to_a_bound_half_of_each_is_chance_and_success_forgives_them() -> None:
    dialers = [Dialer("", Starting(lambda: False)) for _ in range(200)]

    def ended(lasted: float | None) -> list[float]:
        for dialer in dialers:
            dialer.ended(0.0, lasted)
        return [dialer.due(awaited=False) for dialer in dialers]

    for failure in range(12):
        whole = min(LONGEST_SECONDS, FIRST_SECONDS * 2**failure)
        delays = ended(None)
        assert all(whole / 2 <= delay <= whole for delay in delays)
        assert len(set(delays)) > 10
    for _ in range(2000):
        dialers[0].ended(0.0, None)
    assert LONGEST_SECONDS / 2 <= dialers[0].due(awaited=False) <= LONGEST_SECONDS, "no overflow"
    assert all(0 < delay <= FIRST_SECONDS for delay in ended(STABLE_SECONDS / 2))
    assert set(ended(STABLE_SECONDS)) == {0.0}


@contextmanager
def ends_of(kind: str) -> Iterator[tuple[int, int]]:
    """A blocking pipe, socket or terminal: the bridge's end and the client's."""
    if kind == "socket":
        ours, theirs = (end.detach() for end in socket.socketpair())
    elif kind == "terminal":
        theirs, ours = os.openpty()
    else:
        theirs, ours = os.pipe()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def read(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += os.read(descriptor, count - len(data))
    return data


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_client_gets_what_it_has_room_for_and_its_descriptor_still_blocks(kind: str) -> None:
    data = os.urandom(4 * MIB)
    with ends_of(kind) as (ours, theirs):
        stdout = Stdout(ours)
        sent = stdout.give(data)
        assert sent > select.PIPE_BUF
        while taken := stdout.give(data[sent:]):
            sent += taken
        assert sent < len(data)
        assert os.get_blocking(ours)
        assert not stdout.gone
        assert read(theirs, sent) == data[:sent]
        down = bytearray(b"more")
        stdout.drain(down)
        assert not down
        assert read(theirs, 4) == b"more"


@pytest.mark.parametrize("kind", ["pipe", "socket", "terminal"])
def test_a_reader_that_has_gone_is_noticed(kind: str) -> None:
    with ends_of(kind) as (ours, theirs):
        stdout = Stdout(ours)
        assert stdout.give(b"one") == 3
        with open(os.devnull, "rb") as nobody:  # noqa: PTH123
            os.dup2(nobody.fileno(), theirs)
        while stdout.give(b"two"):
            pass
        assert stdout.gone


def test_terminals_and_files_get_portions_that_do_not_block(tmp_path: Path) -> None:
    with ends_of("terminal") as (ours, _theirs):
        assert 0 < Stdout(ours).give(b"x" * MIB) <= select.PIPE_BUF
    data = os.urandom(3 * select.PIPE_BUF + 1)
    with (tmp_path / "out").open("wb", buffering=0) as file:
        stdout = Stdout(file.fileno())
        sent = 0
        while sent < len(data):
            sent += stdout.give(data[sent:])
    assert (tmp_path / "out").read_bytes() == data


@pytest.fixture(autouse=True)
def no_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without units, whatever the tester has installed."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)


@pytest.mark.parametrize(
    "number", [errno.ENOENT, errno.ECONNREFUSED, errno.EACCES, errno.ENOTDIR, errno.EAGAIN]
)
@pytest.mark.parametrize("door", [CLIENTS, OPERATORS])
def test_each_reason_is_in_words_and_has_a_remedy(number: int, door: Door) -> None:
    problem, helps = explain("/run/x.sock", OSError(number, os.strerror(number)), door)
    assert problem.startswith("cannot reach the daemon at /run/x.sock: ")
    assert f"({errno.errorcode[number]})" in problem
    assert "mcpd run" in helps
    assert "systemctl" not in helps


@pytest.mark.parametrize("door", [CLIENTS, OPERATORS])
@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EPIPE, errno.EAGAIN])
def test_the_unit_is_named_where_it_is_installed(
    number: int, door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "systemd/user").mkdir(parents=True)
    (tmp_path / "systemd/user" / door.unit).touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert f", `systemctl --user start {door.unit}`" in explain("/p", OSError(number, ""), door)[1]


def test_a_unit_is_looked_for_where_systemd_does(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert not is_installed("mcpd.service", environ)
    for place in (".config", ".local/share"):
        unit = tmp_path / place / "systemd/user/mcpd.service"
        unit.parent.mkdir(parents=True)
        unit.symlink_to("/nowhere")
        assert is_installed("mcpd.service", environ)
        unit.unlink()


def test_the_door_is_named_as_its_commands_name_it() -> None:
    missing = OSError(errno.ENOENT, "")
    assert "--socket P or $MCPD_SOCKET" in "".join(explain("/p", missing, CLIENTS))
    assert "--socket P or $MCPD_SOCKET" in "".join(explain("/p", missing, OPERATORS))
    assert "--control P" in "".join(explain("/p", missing, OPERATORS))


def test_anything_else_is_what_the_system_says() -> None:
    assert "AF_UNIX path too long" in "".join(explain("/p", OSError("AF_UNIX path too long"), CLIENTS))
    assert "No buffer space" in "".join(explain("/p", OSError(errno.ENOBUFS, "No buffer space"), CLIENTS))
