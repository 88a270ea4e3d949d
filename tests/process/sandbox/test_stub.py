"""The stub in real namespaces: it hands its socket out, and its program has the proxy as its only network."""

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from daemon.config.hosts import HostRefusal, HostRules
from daemon.errors import CannotStart
from daemon.sandbox import stub
from daemon.sandbox.egress import Egress, proxy_environment, received, stub_command
from tests.security.unprivileged import DROP, USER, interpreter
from tests.waiting import WAIT, background, beside

API = "api.internal"
BWRAP = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/", "--dev", "/dev"]
BWRAP += ["--proc", "/proc", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--"]
NO_NAMESPACES = ["bwrap", "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--"]

TELL = """
import json, os, socket, sys
def reach(place):
    try:
        socket.create_connection(place, 5).close()
    except OSError as error:
        return os.strerror(error.errno)
    return "reached"
print(json.dumps({
    "user": [os.getuid(), os.getgid()], "arguments": sys.argv[2:], "descriptors": os.listdir("/proc/self/fd"),
    "interfaces": [name for _, name in socket.if_nameindex()], "proxy": reach(("127.0.0.1", 3128)),
    "world": reach(("192.0.2.1", 80)), "daemon": reach(("127.0.0.1", int(sys.argv[1]))),
}))
"""

FETCH = """
import sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=20).read().decode().strip())
    except OSError as error:
        print(error, getattr(error, "read", bytes)().decode().strip())
"""

FAIL = """
import sys
from daemon.sandbox import stub
def fail(*_):
    raise PermissionError(1, "Operation not permitted")
setattr(stub, sys.argv[1], fail)
sys.exit(stub.main(sys.argv[2:]))
"""


@attrs.frozen
class Ran:
    """What a program under the stub has said, and what its proxy has refused."""

    output: str
    errors: str
    status: int
    refusals: list[tuple[str, int, HostRefusal | None]]


async def run(
    *words: str, drop: list[str], before: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> Ran:
    """Run a program under the stub, next to a proxy that allows one host."""
    refusals: list[tuple[str, int, HostRefusal | None]] = []

    def names(host: str, port: int, **_: Any) -> list[Any]:
        assert host == API
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    rules = HostRules([API])
    proxy = Egress(
        "github", rules, lambda seen: refusals.append((seen.host, seen.port, seen.reason)), getaddrinfo=names
    )
    daemons, stubs = socket.socketpair()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, trio.fail_after(WAIT):
        with stubs:
            command = stub_command(stubs.fileno(), "--")
            begin = [interpreter() if drop else sys.executable, *command[1:]]
            process = await trio.lowlevel.open_process(
                [*drop, *before, *begin, shutil.which(words[0]) or words[0], *words[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=[stubs.fileno()],
                env=(os.environ if env is None else env) | proxy_environment(rules),
            )
        try:
            with daemons:
                _, (made,) = await trio.to_thread.run_sync(received, daemons)
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(socket.socket(fileno=made)))
            async with background() as nursery:
                await nursery.start(proxy.serve, listener)
                status = await process.wait()
        finally:
            process.kill()
            await process.wait()
        out.seek(0)
        err.seek(0)
        return Ran(out.read().decode(), err.read().decode(), status, refusals)


as_anybody = pytest.mark.parametrize("drop", [[], DROP], ids=["as it is", "as an ordinary user"])


@as_anybody
@pytest.mark.parametrize("inside", [[], BWRAP], ids=["alone", "under bubblewrap"])
async def test_a_program_reaches_the_proxy_and_nothing_else(drop: list[str], inside: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as daemon:
        port = str(daemon.getsockname()[1])
        python = interpreter() if drop else sys.executable
        ran = await run(*inside, python, "-I", "-S", "-c", TELL, port, "--", "ä", drop=drop)
    assert ran.status == 0, ran.errors
    user = USER if drop else os.getuid()
    found = json.loads(ran.output)
    assert sorted(found.pop("descriptors")) == ["0", "1", "2", "3"]
    assert found == {
        "user": [user, user if drop else os.getgid()],
        "arguments": ["--", "ä"],
        "interfaces": ["lo"],
        "proxy": "reached",
        "world": "Network is unreachable",
        "daemon": "Connection refused",
    }


@as_anybody
async def test_signals_and_the_environment_are_as_they_were_given(drop: list[str]) -> None:
    env = {"PATH": os.environ["PATH"], "ODD": "a=b\nc", "EMPTY": ""}
    ran = await run("sh", "-c", "grep SigIgn /proc/self/status; env -0", drop=drop, env=env)
    ignored, _, told = ran.output.partition("\n")
    assert int(ignored.split()[1], 16) & (1 << 12 | 1 << 24) == 0
    found = dict(each.split("=", 1) for each in told.rstrip("\0").split("\0"))
    assert {name: found[name] for name in env} == env
    assert "LC_CTYPE" not in found


@as_anybody
async def test_a_real_client_gets_through_to_what_is_allowed_only(drop: list[str]) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(1 << 16)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    urls = [f"http://{API}:{port}/", f"http://no.example:{port}/", "https://no.example/"]
    python = interpreter() if drop else sys.executable
    async with beside(trio.serve_listeners, serve, listeners):
        ran = await run(*BWRAP, python, "-c", FETCH, *urls, drop=drop)
    allowed, plain, tunnel = ran.output.splitlines()
    refusal = (
        "mcpd's sandbox of github does not allow no.example. To allow it: mcpd allow-host github no.example"
    )
    assert allowed == "fine"
    assert plain == f"HTTP Error 403: {refusal} {refusal}"
    assert refusal in tunnel
    assert ran.refusals == [
        ("no.example", port, HostRefusal.NOT_ALLOWED),
        ("no.example", 443, HostRefusal.NOT_ALLOWED),
    ]


@as_anybody
async def test_no_namespace_is_told_and_the_program_never_starts(drop: list[str], sockets: Path) -> None:
    made = sockets / "made"
    with pytest.raises(CannotStart, match=r"No space left on device: 'unshare'"):
        await run("touch", str(made), drop=drop, before=tuple(NO_NAMESPACES))
    assert not made.exists()


async def test_a_missing_program_ends_as_in_a_shell() -> None:
    ran = await run("/no/such/program", drop=[])
    assert (ran.status, ran.errors) == (127, "/no/such/program: No such file or directory\n")
    ran = await run("/", drop=[])
    assert (ran.status, ran.errors) == (126, "/: Permission denied\n")


@pytest.mark.parametrize("step", ["_separate", "_bring_up"])
def test_a_failed_step_is_told_and_the_program_never_starts(step: str) -> None:
    daemons, stubs = socket.socketpair()
    with daemons, stubs:
        words = [sys.executable, "-c", FAIL, step, str(stubs.fileno()), "--", "echo", "started"]
        done = subprocess.run(words, pass_fds=[stubs.fileno()], capture_output=True, timeout=WAIT, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
        assert daemons.recv(4096) == b"[Errno 1] Operation not permitted"


CROWDED = """
import errno, sys
from daemon.sandbox import stub
def refuse():
    raise BlockingIOError(errno.EAGAIN, "no process is left")
stub.os.fork = refuse
sys.exit(stub.main(sys.argv[1:]))
"""


def test_a_machine_without_a_process_left_is_told_for_each_start_and_the_forker_stays() -> None:
    daemons, forkers = socket.socketpair()
    with daemons, tempfile.TemporaryFile() as file:
        words = [sys.executable, "-c", CROWDED, str(forkers.fileno())]
        forker = subprocess.Popen(words, pass_fds=[forkers.fileno()])
        forkers.close()
        for _ in range(2):
            ours, theirs = socket.socketpair()
            with ours:
                with theirs:
                    socket.send_fds(daemons, [b"\0"], [file.fileno(), theirs.fileno()])
                with pytest.raises(BlockingIOError):
                    received(ours)
    assert forker.wait(WAIT) == 0


@pytest.mark.parametrize("refused", [False, True])
def test_no_link_is_followed_where_a_unit_refuses_openat2_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").touch()
    (tmp_path / "link").symlink_to("directory")
    if refused:

        def refuse(*_call: object) -> int:
            raise OSError(errno.ENOSYS, "Function not implemented")

        monkeypatch.setattr(stub, "_system", refuse)
    path = os.fsencode(tmp_path)
    found = stub._open(path + b"/directory/file")
    assert os.path.samestat(os.fstat(found), (tmp_path / "directory" / "file").stat())
    for place in (b"/link", b"/link/file"):
        with pytest.raises(OSError, match=re.escape(os.strerror(errno.ELOOP))):
            stub._open(path + place)
    with pytest.raises(FileNotFoundError):
        stub._open(path + b"/directory/nothing")
