"""`mcpd connect` as it is started: its options, what it says to a daemon, what it says when there is none."""

from __future__ import annotations

import contextlib
import errno
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
from daemon.cli.connect import MAX_KEY
from tests.process.bridge.bridged import bridged, receive_all, receive_line
from tests.unit.cli.daemons import environment, listen, mcpd
from tests.waiting import PATIENCE


@pytest.mark.parametrize(
    ("words", "params"),
    [
        (("--profile", "review"), {"profile": "review"}),
        (("--surface=load", "--session", "k"), {"surface": "load", "session": "k"}),
        (("--lazy",), {"lazy": True}),
        (("--server", "git", "--server=time", "--profile", "p"), {"servers": ["git", "time"], "profile": "p"}),
        (("--no-lazy", "--profile", "ä"), {"profile": "ä", "lazy": False}),
        ((), {}),
    ],
)
def test_options_are_told_to_the_daemon_before_anything_else(
    sockets: Path, words: tuple[str, ...], params: dict[str, object]
) -> None:
    with bridged(sockets, *words) as ends:
        ends.to_bridge.write(b"first\n")
        ends.to_bridge.close()
        rest = receive_all(ends.daemon)
    said = json.loads(ends.hello)
    assert ("anonymous" in said["params"]) is ("session" not in params)
    said["params"].pop("anonymous", None)
    assert said["params"].pop("directory") == str(Path.cwd())
    assert said == {
        "jsonrpc": "2.0",
        "method": "mcpd/hello",
        "params": {**params, "version": __version__, "holds": True},
    }
    # The handshake may wait for servers, so that the bridge asks first whether a daemon is there.
    assert rest == (PING if "servers" in params else b"") + b"first\n"


@pytest.mark.parametrize(("words", "session"), [((), "env"), (("--session", "option"), "option")])
def test_the_session_may_come_from_the_environment(sockets: Path, words: tuple[str, ...], session: str) -> None:
    with bridged(sockets, *words, MCPD_SESSION="env") as ends:
        ends.to_bridge.close()
        assert json.loads(ends.hello)["params"]["session"] == session


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("/srv/a b/ä", "/srv/a b/ä"),
        ("src/../lib", "{here}/src/../lib"),
        (".", "{here}/."),
        ("~/src", "{home}/src"),
    ],
)
@pytest.mark.parametrize("where", ["option", "environment", "both"])
def test_a_workspace_is_told_as_an_absolute_path(sockets: Path, named: str, told: str, where: str) -> None:
    words = ("--workspace", named) if where != "environment" else ()
    more: Any = {"option": {}, "environment": {"MCPD_WORKSPACE": named}, "both": {"MCPD_WORKSPACE": "/else"}}[
        where
    ]
    with bridged(sockets, *words, HOME="/home/me", **more) as ends:
        ends.to_bridge.close()
        said = json.loads(ends.hello)["params"]
    assert said["workspace"] == told.format(here=str(Path.cwd()), home="/home/me")
    assert "directory" not in said


@pytest.mark.parametrize("name", ["plain", "ä 世界", 'a "quoted" \\ one', "new\nline"])
def test_the_bridge_tells_where_it_was_started(sockets: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    hello = _told_in(tmp_path / name, sockets)
    assert json.loads(hello)["params"]["directory"] == str(tmp_path / name)


def test_a_directory_that_cannot_be_told_is_left_out(sockets: Path, tmp_path: Path) -> None:
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    strange.mkdir()
    assert "directory" not in json.loads(_told_in(strange, sockets))["params"]


def _told_in(directory: Path, sockets: Path) -> bytes:
    """The hello of a bridge that was started in a directory."""
    with contextlib.chdir(directory), bridged(sockets) as ends:
        ends.to_bridge.close()
        return ends.hello


@pytest.mark.parametrize("named", ["", "\udcff"])
def test_a_workspace_that_cannot_be_told_is_a_usage_error(named: str) -> None:
    ran = mcpd("connect", "--workspace", named)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--workspace" in ran.stderr


LONGEST = "ä" * loaded.MAX_KEY

BAD_KEYS = [
    "x" * (loaded.MAX_KEY + 1),
    "a\tb",
    "line\nbreak",
    "\x1b[31m",
    "\u202egnp",
    "zero\u200bwidth",
    "\udcff",
]


@pytest.mark.parametrize("key", ["k", "/home/me/a project", "ä 世界", LONGEST])
@pytest.mark.parametrize("where", ["option", "environment"])
def test_a_key_is_any_short_printable_text(sockets: Path, key: str, where: str) -> None:
    words, more = (("--session", key), {}) if where == "option" else ((), {"MCPD_SESSION": key})
    with bridged(sockets, *words, **more) as ends:
        ends.to_bridge.close()
        assert json.loads(ends.hello)["params"]["session"] == key


def test_servers_as_themselves_have_no_surface() -> None:
    ran = mcpd("connect", "--server", "git", "--surface", "full")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "leave out one of them" in ran.stderr


@pytest.mark.parametrize("key", BAD_KEYS)
@pytest.mark.parametrize("where", ["option", "environment"])
def test_a_key_that_nobody_could_read_is_a_usage_error(key: str, where: str) -> None:
    ran = mcpd("connect", "--session", key) if where == "option" else mcpd("connect", MCPD_SESSION=key)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "1 to 200 printable characters" in ran.stderr
    assert ("--session" if where == "option" else "MCPD_SESSION") in ran.stderr
    assert all(line.isprintable() for line in ran.stderr.splitlines())


def test_an_empty_key_is_a_usage_error_and_an_empty_variable_is_none(sockets: Path) -> None:
    assert mcpd("connect", "--session=").returncode == 2
    with bridged(sockets, MCPD_SESSION="") as ends:
        ends.to_bridge.close()
        assert json.loads(ends.hello)["params"].keys() == {"version", "holds", "anonymous", "directory"}


@pytest.mark.parametrize("words", [(), ("--profile", "reader")])
def test_each_bridge_makes_a_key_up_that_the_daemon_takes(sockets: Path, words: tuple[str, ...]) -> None:
    made = []
    for name in ("one", "other"):
        with bridged(sockets / name, *words) as ends:
            ends.to_bridge.close()
            made.append(json.loads(ends.hello)["params"]["anonymous"])
    assert made[0] != made[1]
    assert all(loaded.anonymous_key(each) for each in made)


def test_the_bridge_and_the_daemon_agree_on_how_long_a_key_may_be() -> None:
    assert MAX_KEY == loaded.MAX_KEY


def test_no_socket_says_what_was_tried_and_what_to_do(sockets: Path) -> None:
    path = sockets / "mcpd" / "mcpd.sock"
    # Named, so that a daemon that the system runs is not found instead.
    ran = mcpd("connect", MCPD_SOCKET=str(path))
    assert (ran.returncode, ran.stdout) == (0, "")
    for part in (str(path), "ENOENT", "mcpd run", "--socket"):
        assert part in ran.stderr


def test_a_socket_that_was_left_behind_is_told_from_a_missing_one(sockets: Path) -> None:
    path = sockets / "left.sock"
    listen(path).close()
    ran = mcpd("connect", "--socket", str(path))
    assert ran.returncode == 0
    assert os.strerror(errno.ECONNREFUSED) not in ran.stderr
    assert "nobody listens on it (ECONNREFUSED)" in ran.stderr


def test_a_client_that_ends_before_it_was_answered_is_told_why(sockets: Path) -> None:
    path = sockets / "none.sock"
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
