"""`mcpd run` as a process: what it binds, what it refuses, how it ends and with which status."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from daemon.errors import ConfigError
from daemon.main.run import ConfigFile, opened, switched
from daemon.processes.leftovers import FOLDER
from daemon.surfaces.table import chosen
from tests.fakes_upstream import ECHO_SERVER
from tests.unit.config.reading import config_of
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent.parent
RUN = "import sys; from daemon.main.run import main; sys.exit(main(sys.argv[1:]))"
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


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status and everything on stderr."""
    out, err = process.communicate(timeout=PATIENCE)
    assert out == ""
    return process.returncode, err


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


def test_a_faulty_configuration_is_told_whole_and_touches_nothing(place: Place) -> None:
    servers = {"git": {"comand": "x"}, "web": {"url": "ftp://x"}}
    config = place.config({"mcpServers": servers, "lazy": "yes"})
    with place.daemon(config) as process:
        status, err = ended(process)
    assert status == 78
    for trail in ("$.mcpServers.git.comand", "$.mcpServers.web", "$.lazy"):
        assert trail in err
    assert "command" in err
    assert not place.front.parent.exists()


@pytest.mark.parametrize("text", ["{", ""])
def test_a_file_that_is_no_configuration_is_status_78(place: Place, text: str) -> None:
    with place.daemon(place.config(text) if text else place.home / "missing.json") as process:
        status, err = ended(process)
    assert status == 78
    assert err.startswith("mcpd: ")
    assert "Traceback" not in err


def test_the_sockets_are_there_and_answer_by_the_time_it_says_ready(place: Place) -> None:
    with place.daemon(place.config()) as process:
        assert place.told() == "READY=1\nSTATUS=serving"
        for path in (place.front, place.control):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ping(place.front) == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
        daemon = status_of(place.control)["daemon"]
        assert (daemon["pid"], daemon["socket"]) == (process.pid, str(place.front))
        process.terminate()
        status, err = ended(process)
    assert status == 0
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
        status, _ = ended(second)
    assert status == 0
    assert not list((state / FOLDER).iterdir())


def test_where_nothing_can_be_written_down_it_serves_and_says_so(place: Place) -> None:
    (place.home / "file").write_text("")
    with place.daemon(place.config(), "--state-dir", str(place.home / "file" / "state")) as process:
        assert place.told().startswith("READY=1")
        assert "file/state: Not a directory" in str(status_of(place.control)["daemon"]["unrecorded"])
        process.terminate()
        status, err = ended(process)
    assert status == 0
    assert "cannot record started servers, which would outlive kill -9" in err


def test_a_directory_that_others_can_write_is_status_69(place: Place) -> None:
    place.front.parent.mkdir()
    place.front.parent.chmod(0o777)
    with place.daemon(place.config()) as process:
        status, err = ended(process)
    assert status == 69
    assert "writable by others" in err


def test_the_format_of_the_log_can_be_chosen_and_sigint_ends_it_like_sigterm(place: Place) -> None:
    with place.daemon(place.config(), "--log-format", "json") as process:
        place.told()
        process.send_signal(signal.SIGINT)
        status, err = ended(process)
    assert status == 0
    assert all(json.loads(line)["time"] for line in err.splitlines())


PROFILES = {
    "default": {"surface": "search", "lazy": False, "deferredLoading": True},
    "other": {"surface": "load"},
}


@pytest.mark.parametrize(
    ("lazy", "names"),
    [
        (None, {"default": "full", "other": "full"}),
        (False, {"default": "full", "other": "full"}),
        (True, {"default": "browse", "other": "load"}),
    ],
)
def test_the_switch_of_the_command_line_counts_more_than_the_configurations(
    lazy: bool | None, names: dict[str, str]
) -> None:
    config = switched(config_of({"lazy": False, "profiles": PROFILES}), lazy=lazy)
    assert {name: chosen(config, profile) for name, profile in config.profiles.items()} == names
    assert switched(config_of({}), lazy=None) == config_of({})
    assert chosen(switched(config_of({}), lazy=False), config.profiles["other"]) == "full"


TOKEN = "0123456789abcdef-of-ci"


@pytest.mark.parametrize(
    ("configured", "option", "address"),
    [
        (None, None, None),
        (None, "", "127.0.0.1:7337"),
        (None, "localhost:8000", "localhost:8000"),
        ({"address": "127.0.0.1:9000"}, None, "127.0.0.1:9000"),
        ({"address": "127.0.0.1:9000", "tokens": TOKEN}, "", "127.0.0.1:9000"),
        ({"address": "127.0.0.1:9000", "tokens": TOKEN}, "[::1]:1", "[::1]:1"),
        ({"tokens": TOKEN, "trustedProxies": ["10.0.0.1"]}, "0.0.0.0:80", "0.0.0.0:80"),
    ],
)
def test_the_command_line_opens_http_and_what_is_configured_of_it_stays(
    configured: dict[str, object] | None, option: str | None, address: str | None
) -> None:
    config = config_of({"listen": {"http": configured}})
    http = opened(config, option).listen.http
    assert (http and http.address) == address
    if http is not None:
        assert http.tokens == (configured or {}).get("tokens")


@pytest.mark.parametrize("address", ["0.0.0.0:7337", "nonsense", "example.org:80"])
def test_an_address_on_the_command_line_is_held_to_the_same_rules(sockets: Path, address: str) -> None:
    path = sockets / "mcpd.json"
    path.write_text('{"listen": {"http": {"hosts": ["box"]}}}')
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


def test_what_cannot_be_read_is_not_tried_again_until_it_is_another(sockets: Path) -> None:
    path = sockets / "mcpd.json"
    path.write_text("{")
    file = ConfigFile(path)
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
        status, err = ended(process)
    assert status == 0, err
    assert [state.partition("=")[0] for state in told] in (
        ["READY", "RELOADING", "READY"],
        ["RELOADING", "READY", "READY"],
    )
