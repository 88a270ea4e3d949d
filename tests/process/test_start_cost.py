"""What a daemon never needed is not loaded, even after it has served a client: HTTP, the console, commands."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.harness import Daemon, free_port, own_directory, scripted, started
from tests.waiting import eventually

TELLING = """
import os, signal, sys
def tell(*_):
    with open(path + ".new", "w") as file:
        file.write(" ".join(sys.modules))
    os.rename(path + ".new", path)
path = sys.argv.pop(1)
from daemon.main import lifetime
lifetime.load_due = int
signal.signal(signal.SIGUSR2, tell)
from daemon.cli import main
main()
"""
"""`mcpd` that writes down what it has loaded whenever it is asked to, and loads nothing ahead."""
OF_HTTP = (
    "h11",
    "httptools",
    "wsproto",
    "trio_websocket",
    "daemon.clients.doors.http",
    "daemon.clients.doors.websocket",
)
OF_CONSOLE = ("starlette", "jinja2", "markupsafe", "daemon.console.")
"""What only a daemon has loaded whose console somebody has asked for."""


class Telling(Daemon):
    """A daemon that tells what it has loaded."""

    def __init__(self, directory: Path, config: Mapping[str, Any]) -> None:
        super().__init__(directory, config, {})
        self.forked = False
        self.told = directory / "modules"

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", TELLING, str(self.told), *words]

    def modules(self) -> set[str]:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGUSR2)
        return set(eventually(lambda: self.told.exists() and self.told.read_text(), self.said).split())


OF_OPERATORS = ("daemon.actors.control", "daemon.operators.command_table")
"""What only a daemon has loaded that an operator has asked something; it takes 15 ms of a start."""


def loaded(listen: Mapping[str, Any]) -> set[str]:
    """What a daemon has loaded that was started and has served a client."""
    daemon = Telling(own_directory(), {"mcpServers": {"s": scripted(tools=["echo"])}, "listen": dict(listen)})
    with started(daemon), daemon.client() as client:
        daemon.ready()
        assert client.get("s", "echo")
        client.run("s", "echo")
        return daemon.modules()


def test_without_http_not_one_module_of_it_is_loaded() -> None:
    without = loaded({})
    assert sorted(name for name in without if name.startswith(OF_HTTP)) == []
    http = {"address": f"127.0.0.1:{free_port()}", "tokens": "mcpd_" + 43 * "0"}
    more = loaded({"http": http}) - without
    assert {"httptools", "daemon.clients.doors.http.door"} <= more
    assert sorted(name for name in without | more if name.startswith(OF_CONSOLE)) == []
    # Nor does HTTP itself need what is for TLS and WebSockets, before somebody has them.
    assert not {"ssl", "wsproto", "trio_websocket"} & more


def test_until_an_operator_asks_no_command_of_theirs_is_loaded() -> None:
    daemon = Telling(own_directory(), {"mcpServers": {"s": scripted(tools=["echo"])}})
    with started(daemon), daemon.client() as client:
        assert client.get("s", "echo")
        client.run("s", "echo")
        assert sorted({*OF_OPERATORS} & daemon.modules()) == []
