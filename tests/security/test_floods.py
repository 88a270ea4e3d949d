"""What a server or a client can make the daemon write and pass on has a bound, whatever they say."""

import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from daemon.catalog.listing import MAX_DEFINITION_BYTES
from daemon.counting.measures import LOG_BURST_BYTES, LOG_BYTES_PER_SECOND
from tests.e2e.harness import MCPD, ROOT, Daemon, changeable, own_directory, running, scripted, serving, started
from tests.scripted_server import tool
from tests.security.unprivileged import DROP, PATHS, USER, interpreter
from tests.waiting import WAIT, eventually, run_to_end

FLOOD = """
line=$(head -c 8000 /dev/zero | tr '\\0' e)
for round in $(seq 40); do
    for number in $(seq 60); do echo "$line"; done
    sleep 0.1
done >&2
echo the last line >&2
"""
"""20 MB of stderr within four seconds or more."""
SOFT_FILES, FILES = 1024, 160
"""Descriptors of a shell, and of the daemon: 40 are its own, 64 are kept, and the rest is for clients."""
SLACK = 256 * 1024
"""Bytes of log that may be about everything else."""


def flooding() -> dict[str, Any]:
    """A server that floods its stderr beside its work."""
    server = scripted(tools=["echo"])
    command = shlex.join([server["command"], *server["args"]])
    return {**server, "command": "/bin/sh", "args": ["-c", f"({FLOOD}) & exec {command}"]}


def test_a_server_that_floods_its_stderr_gets_its_share_of_the_log_and_no_more() -> None:
    began = time.monotonic()
    with serving({"mcpServers": {"loud": flooding()}}) as daemon:
        eventually(lambda: "the last line" in daemon.run("logs", "loud"), daemon.said)
        seconds = time.monotonic() - began
        log = daemon.said()
    assert len(log) < LOG_BURST_BYTES + seconds * LOG_BYTES_PER_SECOND + SLACK
    assert "writes more stderr than mcpd logs: the rest is left out for now" in log


def test_a_client_that_makes_up_long_names_of_tools_does_not_fill_the_log() -> None:
    with serving({"mcpServers": {"quiet": scripted(tools=["echo"])}}) as daemon:
        with daemon.client() as client:
            for number in range(100):
                client.ask("tools/call", {"name": f"{number} {'x' * 20_000}", "arguments": {}})
                client.ask(
                    "tools/call",
                    {"name": "call-category-tool", "arguments": {"category": "y" * 20_000, "name": "echo"}},
                )
        eventually(lambda: daemon.said().count(" call ") >= 200, daemon.said)
        assert len(daemon.said()) < SLACK


def test_a_definition_that_is_too_long_is_not_shown_and_the_operator_learns_why() -> None:
    with serving({"mcpServers": {"wordy": changeable("echo")}}) as daemon:
        daemon.changes("wordy", tool("long", description="x" * MAX_DEFINITION_BYTES), "short")
        with daemon.client() as client:
            answer = client.call("get-category-tools", {"category": "wordy"})["structuredContent"]
        assert sorted(answer["tools"]) == ["announce", "set_tools", "short"]
        assert "the limit is 262144" in daemon.status()["servers"]["wordy"]["quarantined"]["long"]


def test_clients_that_take_all_descriptors_leave_some_to_operators_and_restarts_and_keep_nobody_out() -> None:
    with ExitStack() as stack:
        daemon = Daemon(own_directory(), {"mcpServers": {"one": scripted(tools=["echo"])}}, {})
        daemon.forked = False
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT_FILES, before[1]))
        try:
            stack.enter_context(started(daemon))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert daemon.process is not None
        child = daemon.ready()["one"]["pid"]
        assert resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)[0] == before[1]
        assert resource.prlimit(child, resource.RLIMIT_NOFILE)[0] == SOFT_FILES
        here = stack.enter_context(daemon.client())
        assert not here.run("one", "echo")["isError"]
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        hoard = stack.enter_context(ExitStack())
        for _ in range(FILES):  # the last of them wait in the backlog
            client = hoard.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            client.connect(str(daemon.socket))
        eventually(lambda: "is kept for operators and servers" in daemon.said(), daemon.said)
        assert not here.run("one", "echo")["isError"]
        os.kill(child, signal.SIGKILL)
        eventually(lambda: daemon.status()["servers"]["one"]["pid"] not in {None, child}, daemon.said)
        assert "one" in daemon.run("status")
        eventually(lambda: not here.run("one", "echo")["isError"], daemon.said)
        hoard.close()
        with daemon.client() as late:
            assert late.ask("ping")["result"] == {}


def test_a_first_list_over_the_limit_is_the_servers_fault() -> None:
    long = [tool(f"tool_{number}", description="x" * 1000) for number in range(100)]
    server = {**scripted(tools=long), "limits": {"messageBytes": 64 * 1024}}
    with running({"mcpServers": {"wordy": server}}) as daemon:

        def known() -> dict[str, Any]:
            found: dict[str, Any] = daemon.ask("status")["servers"]["wordy"]
            return found if found["cause"] else {}

        found = eventually(known, daemon.said)
        assert (found["state"], found["cause"]) == ("degraded", "message-too-large")
        assert "internal error in mcpd" not in daemon.said()


# --- another user makes the directory of the sockets first ---------------------------------------------------


IMPOSTOR = USER + 1 if DROP else USER
"""Who makes the directory; without root's rights only ourselves, whom we trust."""
PLACE = Path(f"/tmp/mcpd-{USER}") if DROP else Path(f"/tmp/mcpd-test-{os.getpid()}")
LISTEN = """
import os, socket, sys, threading
place = sys.argv[1]
os.mkdir(place, 0o755)
def serve(name):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(place, name))
        os.chmod(os.path.join(place, name), 0o777)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            heard = connection.recv(65536)
            with open(os.path.join(place, "heard"), "ab") as note:
                note.write(heard or b"-")
            connection.close()
for name in ("mcpd.sock", "control.sock"):
    threading.Thread(target=serve, args=(name,)).start()
"""
SECRET = "correct-horse-battery"


@contextmanager
def impostor() -> Iterator[Path]:
    """What he hears, if anybody connects; "-" for who connects and says nothing."""
    words = ["setpriv", f"--reuid={IMPOSTOR}", f"--regid={IMPOSTOR}", "--clear-groups"] if DROP else []
    process = subprocess.Popen([*words, interpreter(), "-c", LISTEN, str(PLACE)], cwd="/")
    try:
        eventually((PLACE / "control.sock").exists)
        yield PLACE / "heard"
    finally:
        process.kill()
        process.wait(WAIT)
        shutil.rmtree(PLACE, ignore_errors=True)


def mcpd(*words: str) -> subprocess.CompletedProcess[str]:
    """A command of ours, without a runtime directory in its environment."""
    named = (
        {} if DROP else {"MCPD_SOCKET": str(PLACE / "mcpd.sock"), "MCPD_CONTROL": str(PLACE / "control.sock")}
    )
    return run_to_end(
        [*DROP, interpreter(), *MCPD[1:], *words],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/", "PYTHONPATH": PATHS, **named},
        input=f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"password":"{SECRET}"}}}}\n',
    )


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("connect",), 1),
        (("connect", "--socket", str(PLACE / "mcpd.sock")), 1),
        (("call", "db/query", f"password={SECRET}"), 3),
        (("status",), 3),
        (("status", "--control", str(PLACE / "control.sock")), 3),
    ],
)
def test_whoever_made_the_directory_first_gets_nothing(words: tuple[str, ...], status: int) -> None:
    with impostor() as heard:
        done = mcpd(*words)
        assert "Traceback" not in done.stderr
        assert done.returncode == status, done.stderr
        assert not done.stdout
        if DROP:
            assert f"uid {IMPOSTOR} listens on {PLACE}" in done.stderr
            assert SECRET not in (heard.read_text() if heard.exists() else "")
        else:
            assert eventually(heard.exists), "who is ourselves is spoken to"


def test_the_doctor_says_who_is_there() -> None:
    with impostor():
        said = mcpd("doctor").stdout
    assert not DROP or f"belongs to another user (uid {IMPOSTOR})" in said


def test_a_real_socket_tells_who_listens() -> None:
    """What a client relies on: the kernel says who called listen(2), before anything is accepted."""
    with impostor(), socket.socket(socket.AF_UNIX) as link:
        link.connect(str(PLACE / "mcpd.sock"))
        raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        assert int.from_bytes(raw[4:8], sys.byteorder) == IMPOSTOR
