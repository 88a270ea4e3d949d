"""`mcpd run` as a process: what it binds, what it refuses, how it ends and with which status."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import pytest

from daemon.cli import EX_PIPE
from daemon.clients.doors.http.binding import address_of
from daemon.config.config_model import Config
from daemon.errors import ConfigError, CoreFailed
from daemon.host.notify import stopping
from daemon.main.run import ConfigFile, opened, opened_listeners, switched
from daemon.processes.leftovers import FOLDER
from daemon.surfaces.table import chosen
from tests.fakes_upstream import ECHO_SERVER
from tests.process.setup.users import User, user
from tests.unit.cases import cases
from tests.unit.config.reading import config_of
from tests.waiting import PATIENCE

__all__ = ["place", "user"]

ROOT = Path(__file__).parent.parent.parent.parent
RUN = "import sys; from daemon.cli import implementation; sys.exit(implementation('run').main(sys.argv[1:]))"
STUBBORN = f"import signal, time; signal.signal(15, signal.SIG_IGN)\n{ECHO_SERVER}\ntime.sleep(60)"


@attrs.define
class Place:
    """A directory for one daemon, and the service manager's end of NOTIFY_SOCKET."""

    home: Path
    manager: socket.socket

    @property
    def front(self) -> Path:
        return self.home / "run" / "mcpd.sock"

    @property
    def control(self) -> Path:
        return self.home / "run" / "control.sock"

    def config(self, value: object = None) -> Path:
        path = self.home / "mcpd.json"
        path.write_text(value if isinstance(value, str) else json.dumps(value or {}))
        return path

    def environ(self) -> dict[str, str]:
        named = {"PATH", "LD_LIBRARY_PATH", "LANG"}
        kept = {name: value for name, value in os.environ.items() if name in named}
        return {**kept, "HOME": str(self.home), "NOTIFY_SOCKET": self.manager.getsockname()}

    @contextmanager
    def daemon(self, config: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
        """A daemon in the foreground; killed at the end if it is still there."""
        command = [sys.executable, "-c", RUN, "--config", str(config), "--socket", str(self.front), *options]
        with subprocess.Popen(
            command, cwd=ROOT, env=self.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def told(self) -> str:
        """What the service manager is told next, apart from what it is to keep for the next daemon."""
        while (said := self.manager.recv(1000).decode()).startswith("FDSTORE"):
            pass
        return said


@pytest.fixture
def place(sockets: Path) -> Iterator[Place]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(sockets / "notify"))
        manager.settimeout(PATIENCE)
        yield Place(sockets, manager)


def ended(process: subprocess.Popen[str], status: int) -> str:
    """Everything on stderr of a process that ends with this status."""
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, process.returncode) == ("", status), err
    return err


def ping(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE)
        client.connect(str(path))
        client.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        return client.recv(1000)


def status_of(path: Path) -> dict[str, dict[str, object]]:
    with socket.socket(socket.AF_UNIX) as operator:
        operator.settimeout(PATIENCE)
        operator.connect(str(path))
        operator.sendall(b'{"jsonrpc":"2.0","id":1,"method":"status"}\n')
        with operator.makefile() as lines:
            result: dict[str, dict[str, object]] = json.loads(lines.readline())["result"]
    return result


def test_a_faulty_or_missing_configuration_is_told_whole_and_touches_nothing(place: Place) -> None:
    servers = {"git": {"comand": "x"}, "web": {"url": "ftp://x"}}
    with place.daemon(place.config({"mcpServers": servers, "lazy": "yes"})) as process:
        err = ended(process, 78)
    for part in ("$.mcpServers.git.comand", "$.mcpServers.web", "$.lazy", "command"):
        assert part in err
    with place.daemon(place.home / "missing.json") as process:
        err = ended(process, 78)
    assert (err.startswith("mcpd: "), "Traceback" in err) == (True, False)
    assert not place.front.parent.exists()


def test_the_sockets_are_there_and_answer_by_the_time_it_says_ready(place: Place) -> None:
    with place.daemon(place.config()) as process:
        assert place.told() == "READY=1\nSTATUS=serving"
        for path in (place.front, place.control):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ping(place.front) == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
        daemon = status_of(place.control)["daemon"]
        assert (daemon["pid"], daemon["socket"]) == (process.pid, str(place.front))
        process.terminate()
        err = ended(process, 0)
    assert f"ready: clients connect to {place.front}" in err
    assert "SIGTERM: going down" in err
    assert not place.front.exists()
    assert not place.control.exists()
    assert place.told() == "STOPPING=1\nSTATUS=stopping"


def test_a_killed_daemon_leaves_a_file_that_tells_the_next_one_what_it_has_started(place: Place) -> None:
    state = place.home / "state"
    config = place.config({"mcpServers": {"a": {"command": sys.executable, "args": ["-c", STUBBORN]}}})
    with place.daemon(config, "--state-dir", str(state)) as first:
        place.told()
        first.kill()
        first.wait(PATIENCE)
    assert place.front.exists()
    [left] = (state / FOLDER).iterdir()
    with place.daemon(config, "--state-dir", str(state)) as second:
        assert place.told().startswith("READY=1")
        assert ping(place.front), "its socket is taken over"
        [own] = (state / FOLDER).iterdir()
        assert own != left
        second.terminate()
        ended(second, 0)
    assert not list((state / FOLDER).iterdir())


def test_where_nothing_can_be_written_down_it_serves_and_says_so(place: Place) -> None:
    (place.home / "file").write_text("")
    with place.daemon(place.config(), "--state-dir", str(place.home / "file" / "state")) as process:
        assert place.told().startswith("READY=1")
        assert "file/state: Not a directory" in str(status_of(place.control)["daemon"]["unrecorded"])
        process.terminate()
        err = ended(process, 0)
    assert "cannot record started servers: they would outlive a kill -9 of mcpd" in err


def test_a_directory_that_others_can_write_is_status_69(place: Place) -> None:
    place.front.parent.mkdir()
    place.front.parent.chmod(0o777)
    with place.daemon(place.config()) as process:
        err = ended(process, 69)
    assert "writable by others" in err


def test_the_format_of_the_log_can_be_chosen_and_sigint_ends_it_like_sigterm(place: Place) -> None:
    with place.daemon(place.config(), "--log-format", "json") as process:
        place.told()
        process.send_signal(signal.SIGINT)
        err = ended(process, 0)
    assert all(json.loads(line)["time"] for line in err.splitlines())


PROFILES = {
    "default": {"surface": "search", "lazy": False, "deferredLoading": True},
    "other": {"surface": "load"},
}


@cases("lazy", "names")
def test_the_switch_of_the_command_line_counts_more_than_the_configurations(
    lazy: bool | None, names: dict[str, str]
) -> None:
    config = switched(config_of({"lazy": False, "profiles": PROFILES}), lazy=lazy)
    assert {name: chosen(config, profile) for name, profile in config.profiles.items()} == names
    assert switched(config_of({}), lazy=None) == config_of({})
    assert chosen(switched(config_of({}), lazy=False), config.profiles["other"]) == "full"


TOKEN = "0123456789abcdef-of-ci"


@cases("configured", "option", "address")
def test_the_command_line_opens_http_and_what_is_configured_of_it_stays(
    configured: dict[str, object] | None, option: str | None, address: str | None
) -> None:
    config = config_of({"listen": {"http": configured}})
    http = opened(config, option).listen.http
    assert (http and http.address) == address
    if http is not None:
        assert http.tokens == (configured or {}).get("tokens")


def test_an_address_on_the_command_line_is_held_to_the_same_rules(sockets: Path) -> None:
    path = sockets / "mcpd.json"
    path.write_text('{"listen": {"http": {"hosts": ["box"]}}}')
    for address in ("0.0.0.0:7337", "nonsense", "example.org:80"):
        with pytest.raises(ConfigError, match=f"mcpd run --http {re.escape(address)}: "):
            ConfigFile(path, http=address).read()


def test_the_secrets_of_every_configuration_that_was_read_stay_hidden(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sockets / "mcpd.json"
    path.write_text('{"mcpServers": {"s": {"command": "x", "env": {"T": "${file:token}"}}}}')
    file = ConfigFile(path)
    for token in ("first-secret", "second-secret"):
        (sockets / "token").write_text(token)
        file.read()
    assert file.redact("first-secret second-secret") == "[redacted] [redacted]"


def test_the_file_looks_other_when_a_profile_beside_it_is_written_changed_or_removed(sockets: Path) -> None:
    path = sockets / "mcpd.json"
    path.write_text("{}")
    file = ConfigFile(path)
    assert set(file.read().profiles) == {"default"}
    looks = [file.seen]
    own = sockets / "profiles.d" / "reader.json"
    own.parent.mkdir()
    for text in ("{}", '{"surface": "search"}'):
        own.write_text(text)
        looks.append(file.look())
    assert file.read().profiles["reader"].surface == "search"
    own.unlink()
    assert file.look() == looks[0]
    assert len(set(looks)) == len(looks)
    # What cannot be read is not tried again until it is another.
    path.write_text("{")
    with pytest.raises(ConfigError):
        file.read()
    assert file.look() == file.seen


def test_sighup_before_the_daemon_serves_does_not_kill_it(place: Place) -> None:
    with place.daemon(place.config()) as process:
        # As soon as the interpreter runs our code, a socket appears; READY comes later.
        deadline = time.monotonic() + PATIENCE
        while not place.control.exists() and time.monotonic() < deadline:
            assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        told = [place.told() for _ in range(3)]
        process.terminate()
        ended(process, 0)
    assert [state.partition("=")[0] for state in told] in (
        ["READY", "RELOADING", "READY"],
        ["RELOADING", "READY", "READY"],
    )


# --- the sockets that `mcpd run` listens on ------------------------------------------------------------------


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
        ended(process, 0)
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
        ended(process, 78)
        assert waiting.recv(1) == b""
        assert browser.recv(1) == b""


def test_the_socket_of_systemd_for_http_counts_more_than_the_address_that_is_configured(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as http:
        config = place.config({"listen": {"http": {"address": address_of(taken)}}})
        with activated(place, config, http=http) as (process, _):
            assert place.told().startswith("READY=1")
            process.terminate()
            ended(process, 0)
        # systemd's goes on listening: the next client waits for the next daemon.
        socket.create_connection(http.getsockname(), PATIENCE).close()


def test_a_socket_of_systemd_that_nobody_would_accept_from_is_status_78(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        for more, told in (
            ({"http": first, "http_": second}, "systemd passed a second socket for 'http'"),
            ({"web": first}, "systemd passed a socket 'web': mcpd takes only front, control, http"),
        ):
            with activated(
                Place(Path(tempfile.mkdtemp(dir=place.home)), place.manager), place.config(), **more
            ) as (process, _):
                err = ended(process, 78)
            assert told in err


def test_the_address_of_http_is_had_before_it_says_ready_and_counts_more_on_the_command_line(
    place: Place,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        address = address_of(free)
        config = place.config({"listen": {"http": {"address": address_of(taken), "drain": 0.01}}})
        there = free.getsockname()
        free.close()
        with place.daemon(config, "--http", address) as process:
            assert place.told().startswith("READY=1")
            socket.create_connection(there, PATIENCE).close()
            process.terminate()
            ended(process, 0)
            # Who drains tells the service manager how long that takes.
            assert place.told() == stopping(0.01)


def test_an_address_of_http_that_is_taken_is_status_69_with_what_holds_it(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = address_of(taken)
        with place.daemon(place.config({"listen": {"http": {"address": address}}})) as process:
            err = ended(process, 69)
    assert f"cannot listen on {address}: Address already in use. A process listens there (" in err
    assert f", pid {os.getpid()})" in err
    assert not place.front.exists()


def test_a_daemon_that_failed_leaves_its_sockets_and_one_that_was_stopped_does_not(sockets: Path) -> None:
    for failed in (False, True):
        front = sockets / str(failed) / "mcpd.sock"
        with suppress(CoreFailed), opened_listeners(front, Config(), {}):
            assert front.exists()
            if failed:
                raise CoreFailed
        assert front.exists() is failed


# --- `mcpd logs --daemon` ------------------------------------------------------------------------------------


def test_it_is_shown_whether_the_daemon_runs_or_not(user: User) -> None:
    assert "no daemon has written" in user.mcpd("logs", "--daemon").stderr
    user.start()
    moved = user.log.rename(user.home / user.log.name)
    assert "ready: clients connect to" in user.mcpd("logs", "--daemon").stdout
    moved.rename(user.log)
    user.mcpd("stop")
    ended = user.mcpd("logs", "--daemon", "-n", "1")
    assert (ended.returncode, ended.stdout.count("\n")) == (0, 1)
    assert user.mcpd("logs", "--daemon", "git").returncode == 2


def test_what_was_written_before_the_present_file_comes_first_and_following_ends_with_its_reader(
    user: User,
) -> None:
    user.log.parent.mkdir(parents=True)
    user.log.with_name("daemon.log.1").write_text("one\ntwo\n")
    user.log.write_text("three\x1b[2J\n")
    assert user.mcpd("logs", "--daemon", "-n", "2").stdout == "two\nthree\\x1b[2J\n"
    assert user.status_without_reader("logs", "--daemon", "-f") == EX_PIPE
