"""Another user makes the directory of the sockets first: he gets nothing, and nobody hears him."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.harness import MCPD, ROOT
from tests.security.unprivileged import DROP, PATHS, USER, interpreter
from tests.waiting import WAIT, eventually

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
    return subprocess.run(
        [*DROP, interpreter(), *MCPD[1:], *words],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/", "PYTHONPATH": PATHS, **named},
        input=f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"password":"{SECRET}"}}}}\n',
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
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
