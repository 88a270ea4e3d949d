"""Ways out of a sandbox, tried by a hostile server that a real daemon has confined: none leads anywhere.

`ways_out.py` is the server. Each way is tried by three confined ones: `home`, `strict`, and `listed`, which may
write a workspace and speak to two hosts. Where that is harmless, one that nothing confines then tries it, too,
and shows that the way would lead somewhere.
"""

import contextlib
import ctypes
import http.server
import json
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.e2e.harness import free_port, scripted, started
from tests.faults.stage import is_alive
from tests.pages import Page, at_work
from tests.security.unprivileged import DROP, USER, Unprivileged, interpreter
from tests.unit.cases import rows_of
from tests.waiting import eventually

SOURCE = (Path(__file__).parent / "ways_out.py").read_text(encoding="utf-8")
CANARY = "canary-7c1d55e0"
MARKER = "marker-of-a-sibling"
WRITTEN = "written-by-a-server"
CONFINED = ("home", "strict", "listed")
FREE = "off"

SECRETS = tuple(rows_of(Path(__file__), "secrets"))
"""Files below the home directory that are none of a server's business."""

LATE = tuple(rows_of(Path(__file__), "late"))
"""Such files that appear only when the servers are running already."""

REPLACED = tuple(rows_of(Path(__file__), "replaced"))
"""Files that an editor then writes as another file under the same name."""

PLACES = tuple(rows_of(Path(__file__), "places"))
"""Places outside where the user may write, and a server may not."""

FORBIDDEN = tuple(rows_of(Path(__file__), "forbidden"))
"""Places where only root may write."""

SOCKETS = tuple(rows_of(Path(__file__), "sockets"))

OURS = {"mcpd.sock", "control.sock"}
"""Sockets of the daemon's, at which it turns servers away itself."""

ADDRESSES = tuple(rows_of(Path(__file__), "addresses"))
"""The host itself, as a proxy may be told of it."""

PRIVATE = tuple(rows_of(Path(__file__), "private"))
"""Addresses that no name has been asked for: private, of metadata, and even a public one."""

REQUESTS = dict(rows_of(Path(__file__), "requests"))
"""Requests to the proxy that read otherwise to one reader than to another."""

World = dict[str, Any]


@attrs.frozen(kw_only=True)
class Case:
    """A way out with what it needs to know, whose texts may name things of the world in braces."""

    way: str
    name: str = ""
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    modes: tuple[str, ...] = CONFINED
    control: str | None = FREE
    """The server that gets somewhere by it; None where that would do harm, or need root."""
    outside: Callable[[World], object] | None = None
    """What it has achieved, as seen from outside, where it cannot tell itself."""

    def told(self, world: World) -> World:
        """The arguments of the tool."""
        filled = {
            name: value.format_map(world) if isinstance(value, str) else value
            for name, value in self.arguments.items()
        }
        told = {**world, "way": self.way, **filled}
        return {**told, "port": int(told["port"])}


def at(way: str, *paths: str, **more: Any) -> list[Case]:
    """A case of a way for each path."""
    return [Case(way=way, name=path, arguments={"path": path}, **more) for path in paths]


def writing(way: str, *paths: str, **more: Any) -> list[Case]:
    """A case of a way for each path where something would be found afterwards."""
    return [
        Case(way=way, name=path, arguments={"path": path}, outside=_written(path), **more) for path in paths
    ]


def _written(path: str) -> Callable[[World], object]:
    def look(world: World) -> object:
        place = Path(path.format_map(world))
        if place.is_file() and WRITTEN in place.read_text():
            place.write_text(place.read_text().replace(WRITTEN, ""))
            return True
        return False

    return look


def spoilt(world: World) -> object:
    """Whether the file that servers are to leave alone is not as it was."""
    place = Path(world["home"]) / "notes"
    found = place.lstat() if os.path.lexists(place) else None
    whole = found is not None and (found.st_mode & 0o777, found.st_mtime) == (0o600, 1_000_000_000)
    return not whole or "user.mcpd" in os.listxattr(place) or place.read_text() != CANARY


def dead(world: World) -> object:
    """Which of those that are none of the server's business no longer live."""
    return [name for name in ("daemon", "sibling", "victim") if not is_alive(world[name])]


def reachable(world: World) -> object:
    """Whether something listens where the host's programs connect."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", world["free"]), 5):
        return True
    return False


OUTSIDE = {"spoilt": spoilt, "dead": dead, "reachable": reachable}


def row(way: str, *, outside: str | None = None, **members: Any) -> Case:
    """A case of a row of the table."""
    path = members.get("arguments", {}).get("path", "")
    seen = _written(path) if outside == "written" else OUTSIDE.get(outside or "")
    return Case(
        way=way, outside=seen, **{"name": path, **members, "modes": tuple(members.get("modes", CONFINED))}
    )


def connecting(host: str, **more: Any) -> Case:
    """A case in which the proxy is asked for a host by this name."""
    asked = f"CONNECT {host}:{{port}} HTTP/1.1\r\nHost: {host}:{{port}}\r\n\r\n"
    return Case(way="proxied", name=host, arguments={"bytes": asked}, **more)


CASES = [
    *at("read", *(f"{{home}}/{path}" for path in (*SECRETS, *LATE))),
    *(row(**each) for each in rows_of(Path(__file__), "ways")),
    *writing("write", *PLACES),
    *writing("write", *FORBIDDEN, control=None),
    *at("unix_socket", *SOCKETS),
    *(connecting(address, control=None) for address in ADDRESSES),
    *(
        Case(way="proxied", name=name, arguments={"bytes": request}, control=None)
        for name, request in REQUESTS.items()
    ),
    *(
        connecting(host, modes=("home", "strict"), control="listed" if host == "localhost" else None)
        for host in ("localhost", "LOCALHOST.", "ip6-localhost", socket.gethostname())
    ),
    *(
        Case(way="refused_at_once", name=host, arguments={"host": host}, modes=("home", "listed"), control=None)
        for host in PRIVATE
    ),
]


class HostPage(Page):
    """What listens on the host: its secret is for those who ask for another host than localhost."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer, or lead to an address."""
        port = self.connection.getsockname()[1]
        named = self.headers.get_all("Host") or [""]
        page = CANARY if any(not name.startswith("localhost") for name in named) else "a page"
        self.send_response(302 if self.path == "/redirect" else 200)
        if self.path == "/redirect":
            self.send_header("Location", f"http://127.0.0.1:{port}/")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page.encode())

    do_POST = do_TRACE = do_GET


class Echo(socketserver.BaseRequestHandler):
    """A UDP service of the host's."""

    def handle(self) -> None:
        """Send back what came."""
        data, link = self.request
        link.sendto(data, self.client_address)


class Pages6(http.server.ThreadingHTTPServer):
    """The same pages over IPv6."""

    address_family = socket.AF_INET6


@contextlib.contextmanager
def services() -> Iterator[World]:
    """Services of the host's on loopback: HTTP over IPv4 and IPv6, UDP; their ports."""
    servers: dict[str, socketserver.UDPServer | socketserver.TCPServer] = {
        "port": http.server.ThreadingHTTPServer(("127.0.0.1", 0), HostPage),
        "port6": Pages6(("::1", 0), HostPage),
        "udp": socketserver.UDPServer(("127.0.0.1", 0), Echo),
    }
    with contextlib.ExitStack() as stack:
        for server in servers.values():
            stack.enter_context(at_work(server))
        yield {name: server.socket.getsockname()[1] for name, server in servers.items()}


@contextlib.contextmanager
def kept_in_memory() -> Iterator[World]:
    """System V shared memory and a message queue that every program of the host may use, by their key."""
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    key = int.from_bytes(os.urandom(3)) + 1
    memory, queue = libc.shmget(key, 64, 0o1666), libc.msgget(key, 0o1666)
    assert memory >= 0
    assert queue >= 0
    address = libc.shmat(memory, None, 0)
    ctypes.memmove(address, CANARY.encode(), len(CANARY))
    try:
        yield {"key": key}
    finally:
        libc.shmdt(ctypes.c_void_p(address))
        libc.shmctl(memory, 0, None)
        libc.msgctl(queue, 0, None)


def put(path: Path, text: str = CANARY) -> None:
    """Write a file of the user's as editors do: under another name, which is then changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    spare = path.with_name(f"{path.name}.new")
    spare.write_text(text)
    spare.chmod(0o600)
    spare.replace(path)
    _give(path)


def _give(path: Path) -> None:
    """Give the user what is the tests', with the directories above it that are."""
    for each in (path, *path.parents):
        if os.lstat(each).st_uid == USER or each in {Path("/run"), Path("/tmp"), Path("/")}:
            break
        os.chown(each, USER, USER, follow_symlinks=False)


def furnish(world: World) -> None:
    """Make the home, workspace and temporary directory of a user, before the daemon starts."""
    home, workspace, tmp = (Path(world[name]) for name in ("home", "workspace", "tmp"))
    directory = Path(world["directory"])
    for each in (*(home / path for path in SECRETS), tmp / "secret", workspace / "private" / "secret"):
        put(each)
    put(directory / "state" / "mcpd" / "secret")
    put(directory / "elsewhere" / "file")
    put(home / "notes")
    furnish_project(world)
    os.utime(home / "notes", (1_000_000_000, 1_000_000_000))
    (home / ".local").mkdir(exist_ok=True)
    (workspace / "link").symlink_to(home / ".ssh" / "id_ed25519")
    (workspace / "out").symlink_to(home / ".local")
    for each in (home / ".local", workspace / "link", workspace / "out"):
        _give(each)


def furnish_project(world: World) -> None:
    """Make a project with a virtual environment, all of which a server may write."""
    project = Path(world["project"])
    for each in ("read/data/file", "written/data/file", ".venv/pyvenv.cfg", ".venv/lib/source.py"):
        put(project / each)
    source, program, python = (
        project / ".venv" / each for each in ("lib/source.py", "bin/hostile", "bin/python")
    )
    put(source, SOURCE)
    put(program, f"#!/bin/sh\nexec {interpreter()} -I -S {source}\n")
    program.chmod(0o700)
    if not python.is_symlink():
        python.symlink_to(interpreter())
        _give(python)


def entries(world: World) -> dict[str, Any]:
    """The hostile servers, and the one next to them."""
    workspace = world["workspace"]
    files = {"allowWrite": [workspace], "denyRead": [f"{workspace}/private"]}
    rules = {"filesystem": files, "network": {"allowedDomains": ["localhost", "allowed.invalid"]}}
    hostile = {"command": sys.executable, "args": ["-I", "-S", "-c", SOURCE]}
    words: dict[str, Any] = {"home": "home", "strict": "strict", "listed": rules, FREE: "off"}
    servers = {name: {**hostile, "sandbox": word} for name, word in words.items()}
    project = world["project"]
    files = {"allowRead": [f"{project}/read/data"], "allowWrite": [f"{project}/written/data"]}
    program = {"command": f"{project}/.venv/bin/hostile", "cwd": project}
    servers["linking"] = {**program, "sandbox": {"filesystem": files}}
    servers["owning"] = {**hostile, "sandbox": {"filesystem": {"allowWrite": [world["directory"]]}}}
    servers["large"] = {**hostile, "sandbox": "home", "limits": {"memoryBytes": 100 << 20}}
    servers["sibling"] = {**scripted(name=MARKER), "env": {"TOKEN": CANARY}, "sandbox": "home"}
    return servers


@contextlib.contextmanager
def listening(world: World) -> Iterator[None]:
    """The sockets of a desktop session, at which everybody is let in."""
    with contextlib.ExitStack() as stack:
        for path in SOCKETS:
            name = path.format_map(world)
            if Path(name).name in OURS:
                continue
            link = stack.enter_context(socket.socket(socket.AF_UNIX))
            if not name.startswith("@"):
                Path(name).parent.mkdir(parents=True, exist_ok=True)
            link.bind(name.replace("@", "\0"))
            link.listen(100)
            if not name.startswith("@"):
                _give(Path(name))
        yield


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A daemon with confined servers, in a home with everything that is worth having, on a busy host."""
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="mcpd-", dir="/run" if DROP else None))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        tmp = Path(tempfile.mkdtemp(prefix="mcpd-", dir="/tmp"))
        stack.callback(shutil.rmtree, tmp, ignore_errors=True)
        found: World = {
            "directory": str(directory),
            "home": str(directory / "home"),
            "workspace": str(directory / "home" / "work"),
            "project": str(directory / "home" / "project"),
            "tmp": str(tmp),
            "free": free_port(),
            "canary": CANARY,
            "marker": MARKER,
            "written": WRITTEN,
            **stack.enter_context(services()),
            **stack.enter_context(kept_in_memory()),
        }
        for each in (directory, tmp):
            os.chown(each, USER, USER)
        furnish(found)
        environ = {"HOME": found["home"], "DAEMONS_OWN": CANARY}
        daemon = Unprivileged(directory, {"mcpServers": entries(found)}, environ)
        stack.enter_context(listening(found))
        with (tmp / "secret").open() as opened:
            variables = {**os.environ, "TOKEN": CANARY}
            victim = subprocess.Popen([*DROP, "sleep", "600"], stdin=opened, env=variables)
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        stack.enter_context(started(daemon))
        servers = daemon.ready(*CONFINED, FREE, "linking", "large", "sibling")
        # What appears only now, and what an editor writes only now.
        for path in (*LATE, *REPLACED):
            put(Path(found["home"]) / path)
        put(directory / "mcpd" / "secret")
        pids = {"daemon": daemon.ask("status")["daemon"]["pid"], "victim": victim.pid}
        yield {**found, **pids, "sibling": servers["sibling"]["pid"], "it": daemon}
        for place in ("/dev/shm", "/var/tmp", "/tmp"):
            Path(place, f"mcpd-{CANARY}").unlink(missing_ok=True)


def attempt(world: World, server: str, told: World) -> dict[str, str]:
    """Let a server try a way."""
    daemon: Unprivileged = world["it"]
    arguments = {name: value for name, value in told.items() if name != "it"}
    answer = daemon.ask("call", server=server, tool="attempt", arguments=arguments)
    found: dict[str, str] = json.loads(answer["content"][0]["text"])
    return found


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.way} {case.name}".strip()) for case in CASES])
def test_a_way_out_leads_nowhere(world: World, case: Case) -> None:
    told = case.told(world)
    for mode in case.modes:
        found = attempt(world, mode, told)
        achieved = case.outside(world) if case.outside else found["achieved"]
        assert not achieved, (mode, found)
    if case.control:
        found = attempt(world, case.control, told)
        assert case.outside(world) if case.outside else found["achieved"], found


def test_a_confined_server_does_what_it_may(world: World) -> None:
    """A sandbox in which nothing works would hold every attack off."""
    plain, system = Path(world["workspace"]) / "plain", "/usr/bin/env"
    put(plain)
    for server, place, canary, may in (
        ("home", str(plain), CANARY, True),
        ("listed", str(plain), CANARY, True),
        ("strict", str(plain), CANARY, False),
        ("home", system, "", True),
        ("strict", system, "", True),
    ):
        found = attempt(world, server, {**world, "way": "read", "path": place, "canary": canary})
        assert bool(found["achieved"]) == may, (server, place, found)
    allowed = plain.with_name("allowed")
    attempt(world, "listed", {**world, "way": "write", "path": str(allowed)})
    assert allowed.read_text() == WRITTEN


@pytest.mark.parametrize("place", ["read/data", "written/data", ".venv/bin/python"])
def test_a_link_that_the_server_puts_where_the_next_start_looks_opens_nothing(world: World, place: str) -> None:
    """Within what it may write, it may replace what the entry names, and what the daemon looks at itself."""
    daemon: Unprivileged = world["it"]
    project = Path(world["project"])
    key = f"{world['home']}/.ssh/id_ed25519"
    target = f"{world['home']}/.ssh/of/python" if place.startswith(".venv") else f"{world['home']}/.ssh"
    told = {**world, "path": str(project / place), "target": target}
    assert attempt(world, "linking", {**told, "way": "relink"})["achieved"]
    daemon.outcome("restart", "linking")
    if daemon.ask("status")["servers"]["linking"]["state"] == "ready":
        found = attempt(world, "linking", {**world, "way": "read", "path": key})
        assert not found["achieved"], found
        attempt(world, "linking", {**world, "way": "write", "path": f"{world['home']}/.ssh/authorized_keys"})
    assert not _written(f"{world['home']}/.ssh/authorized_keys")(world)
    (project / place).unlink()
    furnish_project(world)
    daemon.outcome("restart", "linking")
    daemon.ready("linking")


def test_a_server_that_could_write_the_daemons_configuration_does_not_start(world: World) -> None:
    """A mount over the file would be gone as soon as the daemon or an editor writes the file anew."""
    daemon: Unprivileged = world["it"]
    status = daemon.ask("status")["servers"]["owning"]
    assert status["state"] != "ready"
    assert f"which holds {world['directory']}/" in json.dumps(status)


def staying(mark: str) -> list[int]:
    """Processes whose command line begins with a mark."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(mark.encode()):
                found.append(int(entry.name))
    return found


def test_a_server_that_is_switched_off_leaves_none_of_many_processes(world: World) -> None:
    daemon: Unprivileged = world["it"]
    mark = f"mark-{os.getpid()}-off"
    for mode in CONFINED:
        attempt(world, mode, {**world, "way": "stay", "count": 8, "mark": mark})
    eventually(lambda: len(staying(mark)) == 8 * len(CONFINED))
    for mode in CONFINED:
        daemon.ask("switch", name=mode, off=True)
    eventually(lambda: not staying(mark), daemon.said)
    for mode in CONFINED:
        daemon.ask("switch", name=mode, off=False)
    daemon.ready(*CONFINED)


def test_a_server_that_forks_without_end_does_not_stop_its_neighbours(world: World) -> None:
    daemon: Unprivileged = world["it"]
    found = attempt(world, "home", {**world, "way": "fork_bomb", "count": 300})
    assert found["achieved"], found
    assert attempt(world, "strict", {**world, "way": "read", "path": "/usr/bin/env", "canary": ""})["achieved"]
    daemon.ask("switch", name="home", off=True)
    assert not dead(world)
    daemon.ask("switch", name="home", off=False)
    daemon.ready("home")


def test_a_server_that_takes_too_much_memory_is_ended_and_no_other(world: World) -> None:
    daemon: Unprivileged = world["it"]
    with contextlib.suppress(KeyError, ValueError):
        attempt(world, "large", {**world, "way": "swell", "megabytes": 200})
    eventually(lambda: daemon.ask("status")["servers"]["large"]["restarts"], daemon.said)
    assert not dead(world)
    assert attempt(world, "home", {**world, "way": "read", "path": "/usr/bin/env", "canary": ""})["achieved"]


def test_with_a_daemon_that_is_killed_its_confined_servers_end(world: World) -> None:
    """The last one: the daemon is gone."""
    daemon: Unprivileged = world["it"]
    mark = f"mark-{os.getpid()}-killed"
    for mode in CONFINED:
        attempt(world, mode, {**world, "way": "stay", "count": 3, "mark": mark})
    eventually(lambda: len(staying(mark)) == 3 * len(CONFINED))
    daemon.stop(signal.SIGKILL)
    try:
        eventually(lambda: not staying(mark))
    finally:
        daemon.start()
