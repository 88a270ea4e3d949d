"""The sockets that `mcpd run` listens on: those that systemd hands over, and the address of HTTP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon.clients.doors.http.binding import address_of
from daemon.config.config_model import Config
from daemon.errors import CoreFailed
from daemon.host.notify import stopping
from daemon.main.listeners import opened_listeners
from tests.process.main.test_run import ROOT, RUN, Place, ended, ping, place, status_of
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["place"]


@contextmanager
def activated(
    place: Place, config: Path, **more: socket.socket
) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """The daemon, started as systemd does it: with sockets that listen already, at descriptors 3 and up.

    A client waits in the first one.
    """
    own = {name: socket.socket(socket.AF_UNIX) for name in ("front", "control")}
    for name, listener in own.items():
        listener.bind(str(place.home / name))
        listener.listen()
    listeners = own | more
    script = "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid()); " + RUN
    moves = " ".join(f"{fd}<&{each.fileno()}" for fd, each in enumerate(listeners.values(), 3))
    command = ["/bin/bash", "-c", f'exec {moves}; exec "$0" "$@"', sys.executable, "-c", script]
    # Two of one name: systemd does not tell them apart either.
    names = ":".join(name.rstrip("_") for name in listeners)
    environ = {**place.environ(), "LISTEN_FDS": str(len(listeners)), "LISTEN_FDNAMES": names}
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(str(place.home / "front"))
        waiting.settimeout(PATIENCE)
        with subprocess.Popen(
            [*command, "--config", str(config)],
            cwd=ROOT,
            env=environ,
            pass_fds=[listener.fileno() for listener in listeners.values()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process, waiting
            finally:
                process.kill()
                for listener in own.values():
                    listener.close()


def test_sockets_of_systemd_are_used_and_left_to_it(place: Place) -> None:
    with activated(place, place.config()) as (process, _):
        assert place.told().startswith("READY=1")
        assert ping(place.home / "front")
        assert status_of(place.home / "control")["daemon"]["socket"] == str(place.home / "front")
        process.terminate()
        assert ended(process)[0] == 0
        assert (place.home / "front").exists()


def test_with_a_faulty_configuration_clients_in_systemds_sockets_are_turned_away(place: Place) -> None:
    """Left in the queue, they would have systemd start us again at once, for ever."""
    faulty = place.home / "faulty.json"
    faulty.write_text('{"mcpServers": []}')
    with (
        socket.create_server(("127.0.0.1", 0)) as http,
        socket.create_connection(http.getsockname(), PATIENCE) as browser,
        activated(place, faulty, http=http) as (process, waiting),
    ):
        assert ended(process)[0] == 78
        assert waiting.recv(1) == b""
        assert browser.recv(1) == b""


def test_the_socket_of_systemd_for_http_counts_more_than_the_address_that_is_configured(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as http:
        config = place.config({"listen": {"http": {"address": address_of(taken)}}})
        with activated(place, config, http=http) as (process, _):
            assert place.told().startswith("READY=1")
            process.terminate()
            assert ended(process)[0] == 0
        # systemd's goes on listening: the next client waits for the next daemon.
        socket.create_connection(http.getsockname(), PATIENCE).close()


def test_a_socket_of_systemd_that_nobody_would_accept_from_is_status_78(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        for more, told in (
            ({"http": first, "http_": second}, "a second socket for 'http' was handed over"),
            ({"web": first}, "a socket 'web' was handed over: only front, control, http are known"),
        ):
            with activated(
                Place(Path(tempfile.mkdtemp(dir=place.home)), place.manager), place.config(), **more
            ) as (process, _):
                status, err = ended(process)
            assert status == 78
            assert told in err


def test_the_address_of_http_is_had_before_it_says_ready_and_counts_more_on_the_command_line(
    place: Place,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        address = address_of(free)
        config = place.config({"listen": {"http": {"address": address_of(taken)}}})
        there = free.getsockname()
        free.close()
        with place.daemon(config, "--http", address) as process:
            assert place.told().startswith("READY=1")
            socket.create_connection(there, PATIENCE).close()
            process.terminate()
            assert ended(process)[0] == 0


def test_who_drains_tells_the_service_manager_how_long_that_takes(place: Place) -> None:
    config = place.config({"listen": {"http": {"address": "127.0.0.1:0", "drain": 0.01}}})
    with place.daemon(config) as process:
        assert place.told().startswith("READY=1")
        process.terminate()
        assert ended(process)[0] == 0
        assert place.told() == stopping(0.01)


def test_an_address_of_http_that_is_taken_is_status_69_with_what_holds_it(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = address_of(taken)
        with place.daemon(place.config({"listen": {"http": {"address": address}}})) as process:
            status, err = ended(process)
    assert status == 69
    assert f"cannot listen on {address}: Address already in use. A process listens there (" in err
    assert f", pid {os.getpid()})" in err
    assert not place.front.exists()


@pytest.mark.parametrize("failed", [True, False])
def test_a_daemon_that_failed_leaves_its_sockets_and_one_that_was_stopped_does_not(
    sockets: Path, *, failed: bool
) -> None:
    front = sockets / "r" / "mcpd.sock"
    with suppress(CoreFailed), opened_listeners(front, Config(), {}):
        assert front.exists()
        if failed:
            raise CoreFailed
    assert front.exists() is failed
