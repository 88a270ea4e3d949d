"""Starts the daemon in the background unless one is running, by systemd or `launch`, and stops it.

A window that was connected to an earlier daemon starts a new one only if the earlier one has failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import attrs
import msgspec

from daemon.errors import ConfigError, McpdError
from daemon.host import paths
from daemon.host.paths import distrust
from daemon.host.private_files import own_file, try_to_take
from daemon.host.sockets import private_directory
from daemon.processes import proc
from daemon.setup.running.systemctl import (
    HTTP_SOCKET,
    SCOPES,
    SERVICE,
    SHOW_JOURNAL,
    SOCKET,
    Systemctl,
    SystemdRefused,
    installed,
)

if TYPE_CHECKING:
    from daemon.config.config_model import Config


EX_FAULT, EX_CONFIG = 1, 78

EX_NOT_FOR_WINDOW = 77
"""Exit status if the configuration forbids windows to start a daemon (EX_NOPERM)."""

SHOW_LOG = "mcpd logs --daemon"

LOOK_SECONDS = 0.05
"""Seconds between two polls of a lock."""

CONNECT_SECONDS = 2.0
"""Seconds for a local connection, which the kernel accepts at once."""


class NotStarted(McpdError):
    """No daemon is running; the text gives the reason and the remedy, `status` is an exit status."""

    def __init__(self, text: str, status: int = EX_FAULT) -> None:
        super().__init__(text)
        self.status = status


class NotForWindow(NotStarted):
    """A window may not start a daemon; if the text is empty, the window uses its own words."""


class RunningDaemon(msgspec.Struct, frozen=True, kw_only=True):
    """A running daemon."""

    how: str
    """`systemd` or `detached` for a daemon that was started; `other` for one that was running."""
    started: bool
    pid: int | None
    """The daemon's pid; None if it cannot be seen from here."""
    socket: str
    log: str = SHOW_LOG


def found(front: Path) -> RunningDaemon | None:
    """The daemon that serves a socket; None if there is none. Raises NotStarted."""
    pid = None
    try:
        with _connected(front):
            pid = listener(paths.control_beside(front))
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except BlockingIOError:
        pass  # Its queue is full, so somebody serves it.
    except OSError as error:
        raise NotStarted(f"cannot reach {front}: {error.strerror or error}") from None
    return RunningDaemon(how="other", started=False, pid=pid, socket=str(front))


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[socket.socket]:
    """A connection to a socket. Raises NotStarted if the listener is not trusted, and OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(CONNECT_SECONDS)
        link.connect(str(path))
        if reason := distrust(link, str(path)):
            raise NotStarted(reason)
        yield link


def listener(path: Path) -> int | None:
    """The trusted process that listens on a socket; None if there is none."""
    return who_listens(path)[0]


def who_listens(path: Path) -> tuple[int | None, str]:
    """The trusted listener's pid, or the reason for distrust; (None, "") without a listener."""
    try:
        with _connected(path) as link:
            # pid, uid, gid (unix(7), SO_PEERCRED); 0 in another namespace of processes.
            raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except NotStarted as distrusted:
        return None, str(distrusted)
    except OSError:
        return None, ""
    return int.from_bytes(raw[:4], sys.byteorder) or None, ""


def holder(front: Path) -> int | None:
    """The daemon that holds a socket's lock, even while it starts or stops."""
    return proc.lock_holder(front.with_name(front.name + ".lock"))


def pause(deadline: float, why: str) -> None:
    """Sleep until the next poll. Raises NotStarted with the text `why` once the deadline has passed."""
    if time.monotonic() >= deadline:
        raise NotStarted(why)
    time.sleep(LOOK_SECONDS)


ACTIVE = frozenset({"active", "activating", "reloading"})
"""States of a unit that is running or listening."""


class NotStopped(McpdError):
    """A daemon is still running; the text gives the reason and the remedy."""


def stop(environ: Mapping[str, str], control: Path, seconds: float) -> int | None:
    """End the daemon and wait; returns its pid (0: systemd's; None: none was running). Raises NotStopped."""
    pid, distrusted = who_listens(control)
    if distrusted:
        raise NotStopped(distrusted)
    for scope in SCOPES:
        manager = installed(environ, scope)
        if manager is not None and _is_of(manager, pid):
            try:
                manager.tell("stop", SOCKET, *([HTTP_SOCKET] if manager.show(HTTP_SOCKET) else []), SERVICE)
            except SystemdRefused as error:
                raise NotStopped(f"the {scope}'s systemd did not stop it: {error}") from None
            return 0
    if pid is None:
        return None
    end(pid, seconds)
    return pid


def _is_of(manager: Systemctl, pid: int | None) -> bool:
    """Whether this service manager runs the daemon, or holds a socket that would start one."""
    if pid is None:
        # No `mcpd stop` means the system's, unless that is what runs.
        states = (manager.show(unit).get("ActiveState") for unit in (SERVICE, SOCKET))
        return manager.scope == "user" and not ACTIVE.isdisjoint(states)
    return manager.pid() == pid


def end(pid: int, seconds: float) -> None:
    """End a daemon and wait. Raises NotStopped if it still runs or belongs to another user."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        ended, _, _ = select.select([pidfd], [], [], seconds)
    except PermissionError:
        raise NotStopped(
            f"pid {pid} belongs to another user: the system's daemon is stopped with `sudo systemctl stop"
            f" {SOCKET} {SERVICE}`"
        ) from None
    finally:
        os.close(pidfd)
    if not ended:
        raise NotStopped(f"pid {pid} has not ended within {seconds:g} s; `kill -9 {pid}` ends it at once")


LAST_WORDS = 64 * 1024
"""Bytes of stderr before the log is open; a faulty configuration takes a few hundred."""

READY_BYTES = 4096
"""Bytes of the longest message to a service manager."""

NOT_HANDED_ON = frozenset(
    {
        *("MCPD_SESSION", "MCPD_WORKSPACE", "MCPD_NO_START"),
        *("PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES"),
        *("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"),
        *("JOURNAL_STREAM", "INVOCATION_ID", "MANAGERPID", "SYSTEMD_EXEC_PID", "MAINPID"),
    }
)
"""Variables of a window, terminal or unit that the daemon must not inherit."""


def launch(front: Path, run: Callable[[], int], environ: Mapping[str, str], deadline: float) -> int:
    """Fork the daemon (a new interpreter takes 0.1 s); return its pid once it serves. Raises NotStarted."""
    with _readiness(front.with_name(front.name + ".ready")) as ready:
        reading, stderr = os.pipe()
        if (pid := os.fork()) == 0:
            # The daemon removes loguru's own handler, which takes 8 ms to make.
            extra = {"NOTIFY_SOCKET": ready.getsockname(), "LOGURU_AUTOINIT": "0"}
            _be_daemon(run, {**handed_on(environ), **extra}, stderr)
        os.close(stderr)
        _wait_ready(pid, reading, ready, deadline)
    return pid


def _be_daemon(run: Callable[[], int], environ: Mapping[str, str], stderr: int) -> NoReturn:
    status = EX_FAULT
    try:
        os.setsid()
        os.umask(0o077)
        # Not the directory of the caller: it may be removed, or unmounted.
        os.chdir(paths.home(environ))
        null = os.open(os.devnull, os.O_RDWR)
        for target, source in enumerate((null, null, stderr)):
            os.dup2(source, target)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(environ)
        proc.show_as("start", "run")
        status = run()
    except BaseException:  # noqa: BLE001 - the last boundary: the waiting caller gets the error
        traceback.print_exc()
    finally:
        # What stands below on the stack is the parent's to close and to remove.
        os._exit(status)


def handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a daemon that this process starts."""
    return {name: value for name, value in environ.items() if name not in NOT_HANDED_ON}


@contextlib.contextmanager
def _readiness(path: Path) -> Iterator[socket.socket]:
    """A socket on which the daemon reports that it is ready (sd_notify(3))."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as ready:
        old = os.umask(0o177)
        try:
            ready.bind(str(path))
        finally:
            os.umask(old)
        try:
            yield ready
        finally:
            path.unlink(missing_ok=True)


def _wait_ready(pid: int, stderr: int, ready: socket.socket, deadline: float) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        watched, output = {ready.fileno(), stderr}, b""
        while seen := select.select(watched, [], [], max(0.0, deadline - time.monotonic()))[0]:
            if ready.fileno() in seen:
                if b"READY=1" in ready.recv(READY_BYTES).split(b"\n"):
                    return
            elif pidfd in seen:
                raise _ended(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output)
            elif chunk := os.read(stderr, LAST_WORDS):
                output = (output + chunk)[-LAST_WORDS:]
            else:
                # It has a log now, or has ended.
                watched = {ready.fileno(), pidfd}
    finally:
        os.close(pidfd)
        os.close(stderr)
    raise NotStarted(f"the daemon (pid {pid}) does not serve yet, and is still starting: `{SHOW_LOG}`")


def _ended(returned: int, output: bytes) -> NotStarted:
    text = output.decode(errors="replace").strip().removeprefix("mcpd: ")
    if returned == EX_NOT_FOR_WINDOW:
        return NotForWindow(text)
    if returned == EX_CONFIG and text:
        return NotStarted(text, EX_CONFIG)
    text = f"the daemon ended with status {returned} before it served: {text or f'see `{SHOW_LOG}`'}"
    return NotStarted(text, EX_CONFIG if returned == EX_CONFIG else EX_FAULT)


RECORD_BYTES = 256 * 1024
"""Bytes of the record of a failure: more than mcpd writes."""


@contextlib.contextmanager
def turn(front: Path, deadline: float, *, shared: bool) -> Iterator[Callable[[McpdError], None]]:
    """Wait for the lock to start a daemon. Yields a function that records a failure. Raises NotStarted."""
    began = time.time()
    lock = own_file(front.with_name(front.name + ".start"))
    try:
        while not try_to_take(lock):
            pause(deadline, "another start of the daemon has not ended: `mcpd status` says whether it runs")
        if shared and (failed := _failure_since(lock, began)):
            raise failed
        yield lambda error: _record(lock, error)
    finally:
        os.close(lock)


def _record(lock: int, error: McpdError) -> None:
    status = error.status if isinstance(error, NotStarted) else EX_CONFIG
    raw = json.dumps({"at": time.time(), "status": status, "text": str(error)}).encode()
    os.ftruncate(lock, 0)
    os.pwrite(lock, raw, 0)


def _failure_since(lock: int, began: float) -> NotStarted | None:
    try:
        record = json.loads(os.pread(lock, RECORD_BYTES, 0) or b"{}")
        return NotStarted(record["text"], record["status"]) if record.get("at", 0) >= began else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


@attrs.frozen(kw_only=True)
class StartRequest:
    """A request to start a daemon, and who makes it."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    run: Callable[[list[str]], int]
    """Runs the daemon in this process, as `mcpd run` with these arguments."""
    read: Callable[[], Config]
    """Reads the daemon's configuration. Raises ConfigError."""
    config: Path | None = None
    socket: Path | None = None
    """The socket and `state_dir` as absolute paths; None if the user has not named one."""
    state_dir: Path | None = None
    seconds: float = 30.0
    window: str = ""
    """For a bridge, `new` or `known` (it was connected before); empty for a person."""

    @property
    def front(self) -> Path:
        """The socket for clients."""
        return self.socket or paths.client_socket(self.environ)

    def manager(self) -> Systemctl | None:
        """The systemd that starts this daemon; None if there is none, or if paths mean another daemon."""
        named = self.config or self.socket or self.state_dir or self.environ.get("MCPD_CONFIG")
        return None if named else installed(self.environ)


def start(request: StartRequest) -> RunningDaemon:
    """Start a daemon unless one is running; wait until it serves. Raises NotStarted, ConfigError, OSError."""
    front = request.front
    if (running := _served(request)) is not None:
        return running
    if front in paths.SYSTEM[paths.FRONT]:
        raise NotStarted(
            f"nobody listens on {front}, which is the system's: `sudo systemctl start mcpd.socket` starts its"
            " daemon, or name a socket of your own with --socket P"
        )
    private_directory(front.parent)
    deadline = time.monotonic() + request.seconds
    with turn(front, deadline, shared=bool(request.window)) as record:
        # The one that had the turn before may have started it.
        if (running := _served(request)) is not None:
            return running
        try:
            return _started(request, deadline)
        except NotForWindow:
            raise
        except McpdError as error:
            record(error)
            raise


def _served(request: StartRequest) -> RunningDaemon | None:
    """The daemon that is running; None if only systemd holds the socket."""
    running = found(request.front)
    return None if running is not None and running.pid is None and request.manager() is not None else running


def _started(request: StartRequest, deadline: float) -> RunningDaemon:
    front = request.front
    manager = request.manager()
    if request.window == "known":
        if manager is not None:
            raise NotForWindow("systemd was told to stop it, or could not start it: see `mcpd service status`")
        _has_failed(front, deadline)
    if manager is not None:
        return _by_systemd(manager, request)
    serves = front
    if not request.window:
        listen = request.read().listen
        serves, _ = paths.served_sockets(request.environ, request.socket, listen.socket, listen.control_socket)
        if serves != front and (running := found(serves)) is not None:
            return running
    while (pid := holder(serves)) is not None:
        # It is ending, or has just been started by hand.
        if (running := found(serves)) is not None:
            return running
        pause(deadline, f"pid {pid} has held {serves} for too long: it neither serves nor ends")
    # The daemon itself reads the configuration for a window: to read it here first takes 0.15 s, of the second
    # that some clients wait for their tools.
    options = ["--detached", *_options(request), *(["--window", str(front)] if request.window else [])]
    pid = launch(serves, partial(request.run, options), request.environ, deadline)
    return RunningDaemon(how="detached", started=True, pid=pid, socket=str(serves))


def _options(request: StartRequest) -> list[str]:
    config = request.config or request.environ.get("MCPD_CONFIG")
    named = {"--config": config, "--socket": request.socket, "--state-dir": request.state_dir}
    return [word for option, path in named.items() if path for word in (option, str(Path(path).absolute()))]


def _has_failed(front: Path, deadline: float) -> None:
    """Wait until no daemon holds the socket, and check that the last one failed. Raises NotForWindow."""
    while holder(front) is not None:
        pause(deadline, "the daemon is still ending; see `mcpd logs --daemon`")
    if not os.path.lexists(front):
        raise NotForWindow(
            "the daemon was stopped; `mcpd start` starts it again, and so does a newly opened client"
        )


def _autostart(request: StartRequest) -> bool:
    try:
        return request.read().autostart
    except ConfigError:
        # Its variables may be systemd's alone: whether it is faulty is for the daemon to say.
        return True


def _by_systemd(manager: Systemctl, request: StartRequest) -> RunningDaemon:
    """Start the units; refuse a window if the configuration says so."""
    if request.window and not _autostart(request):
        raise NotForWindow("")
    try:
        manager.tell("start", SOCKET, SERVICE)
    except SystemdRefused as error:
        if manager.show(SERVICE).get("ExecMainStatus") == str(EX_CONFIG):
            request.read()
            raise NotStarted(f"the configuration is faulty: `{SHOW_JOURNAL}`", EX_CONFIG) from None
        raise NotStarted(f"systemd could not start it: {error} (`{SHOW_JOURNAL}`)") from None
    return RunningDaemon(how="systemd", started=True, pid=manager.pid(), socket=str(request.front))
