"""`mcpd connect` as it is started: its options, what it says to a daemon, what it says when there is none."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon import __version__
from daemon.bridge.conversation import PING
from daemon.catalog import loaded
from tests.process.bridge.bridged import bridged, receive_all, receive_line
from tests.unit.cases import cases
from tests.unit.cli.daemons import environment, listen, mcpd
from tests.waiting import PATIENCE


@cases("words", "environ", "told")
def test_what_was_chosen_is_told_to_the_daemon_before_anything_else(
    sockets: Path, words: str, environ: dict[str, str], told: dict[str, Any]
) -> None:
    with bridged(sockets, *words.split(), HOME="/home/me", **environ) as ends:
        ends.to_bridge.write(b"first\n")
        ends.to_bridge.close()
        rest = receive_all(ends.daemon)
    said = json.loads(ends.hello)
    params = said.pop("params")
    assert said == {"jsonrpc": "2.0", "method": "mcpd/hello"}
    if "session" not in told:
        assert loaded.anonymous_key(params.pop("anonymous"))
    if "workspace" in told:
        told = {"workspace": told["workspace"].format(here=Path.cwd())}
    else:
        assert params.pop("directory") == str(Path.cwd())
    assert params == {**told, "version": __version__, "holds": True}
    # The handshake may wait for servers, so that the bridge asks first whether a daemon is there.
    assert rest == (PING if "servers" in told else b"") + b"first\n"


@pytest.mark.parametrize(
    ("name", "told"), [(b'a "quoted" \\ \nline \xc3\xa4', True), (b"\xff", False)], ids=["odd", "no text"]
)
def test_the_bridge_tells_where_it_was_started_unless_that_cannot_be_told(
    sockets: Path, tmp_path: Path, name: bytes, told: bool
) -> None:
    directory = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    directory.mkdir()
    with contextlib.chdir(directory), bridged(sockets) as ends:
        ends.to_bridge.close()
    assert json.loads(ends.hello)["params"].get("directory") == (str(directory) if told else None)


BAD_KEYS = ["", "x" * (loaded.MAX_KEY + 1), "a\tb", "line\nbreak", "\x1b[31m", "\u202egnp", "zero\u200bwidth"]
KEY = "1 to 200 printable characters"


@pytest.mark.parametrize(
    ("words", "environ", "told"),
    [
        *((["--session", key], {}, ("--session", KEY)) for key in BAD_KEYS[::2]),
        *(([], {"MCPD_SESSION": key}, ("MCPD_SESSION", KEY)) for key in (*BAD_KEYS[1::2], "\udcff")),
        *((["--workspace", named], {}, ("--workspace",)) for named in ("", "\udcff")),
        (["--server", "git", "--surface", "full"], {}, ("leave out one of them",)),
    ],
)
def test_what_cannot_be_told_to_the_daemon_is_a_usage_error(
    words: list[str], environ: dict[str, str], told: tuple[str, ...]
) -> None:
    ran = mcpd("connect", *words, **environ)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert all(part in ran.stderr for part in told)
    assert all(line.isprintable() for line in ran.stderr.splitlines())


def test_each_bridge_makes_a_key_up_that_the_daemon_takes(sockets: Path) -> None:
    made = []
    for name in ("one", "other"):
        with bridged(sockets / name) as ends:
            ends.to_bridge.close()
            made.append(json.loads(ends.hello)["params"]["anonymous"])
    assert made[0] != made[1]
    assert all(loaded.anonymous_key(each) for each in made)


def test_no_socket_says_what_was_tried_and_what_to_do_and_is_told_from_one_that_was_left_behind(
    sockets: Path,
) -> None:
    path = sockets / "mcpd" / "mcpd.sock"
    # Named, so that a daemon that the system runs is not found instead.
    ran = mcpd("connect", MCPD_SOCKET=str(path))
    assert (ran.returncode, ran.stdout) == (0, "")
    for part in (str(path), "ENOENT", "mcpd run", "--socket"):
        assert part in ran.stderr
    listen(path).close()
    ran = mcpd("connect", "--socket", str(path))
    assert ran.returncode == 0
    assert "nobody listens on it (ECONNREFUSED)" in ran.stderr
    # A client that ends before it was answered is told why.
    ran = mcpd("connect", "--socket", str(path), said='{"jsonrpc":"2.0","id":1,"method":"tools/call"}\n')
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "the client was not answered: cannot reach the daemon" in ran.stderr


def test_a_closed_stdin_is_an_end_and_does_not_become_the_socket(sockets: Path) -> None:
    path = sockets / "mcpd.sock"
    with (
        listen(path) as listener,
        subprocess.Popen(
            ["/bin/sh", "-c", f'exec "{sys.executable}" -m daemon connect --socket "{path}" <&-'],
            env=environment(),
            stdout=subprocess.PIPE,
        ) as child,
    ):
        daemon, _ = listener.accept()
        with daemon:
            daemon.settimeout(PATIENCE)
            assert b"mcpd/hello" in receive_line(daemon)
            assert daemon.recv(1) == b""
            daemon.sendall(b"bye\n")
        assert child.communicate(timeout=PATIENCE)[0] == b"bye\n"
        assert child.returncode == 0
