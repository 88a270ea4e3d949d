"""`mcpd run`: the daemon in the foreground.

The order matters: a faulty configuration is found before anything changes (exit 78, after which systemd does
not restart), and sockets are bound before large imports, so that early clients wait in the backlog.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import msgspec

from daemon import program, version
from daemon.config.config_files import files_of
from daemon.config.config_model import Config, LoginPlace, State
from daemon.config.expand import ENV_FILE
from daemon.config.jsonc import ROOT
from daemon.config.listen import DEFAULT_PROFILE, HttpListen, Listen, wrong_address
from daemon.config.parse import load
from daemon.config.redaction import Redactors
from daemon.config.state_url import resolve
from daemon.config.validate import listen_faults
from daemon.errors import ConfigError, CoreFailed, DaemonRunning, Fault
from daemon.host import paths
from daemon.host.logs import LOG, LogFile
from daemon.host.notify import Notifier, Signals, listen_fds, watchdog_seconds
from daemon.host.sockets import bind, private_directory, unbind
from daemon.kit.later import later
from daemon.setup.running.starting import EX_CONFIG, EX_NOT_FOR_WINDOW
from daemon.state.sqlite import hold
from daemon.surfaces.table import LAZY, SURFACES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from daemon.authorization.logins import ServerLogins
    from daemon.checks.advice import warnings
    from daemon.config.state_url import StateUrl
    from daemon.operators.base import DaemonFacts
    from daemon.processes.leftovers import Starts
else:
    warnings = later("daemon.checks.advice", "warnings")


FRONT, CONTROL, HTTP = NAMES = ("front", "control", "http")
"""FileDescriptorNames of the sockets that systemd may pass."""


def turn_away(listeners: Iterable[socket.socket]) -> None:
    """Disconnect clients that wait in systemd's sockets, which would start the daemon for each of them."""
    for listener in listeners:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()
        listener.close()


class Listeners(msgspec.Struct, frozen=True):
    """The listening sockets and their paths."""

    front: socket.socket
    """The socket for clients."""
    control: socket.socket
    """The socket for operators."""
    front_path: Path
    control_path: Path
    http: socket.socket | None = None
    tls: ssl.SSLContext | None = None
    """The certificate for `http`."""


def held_address(inherited: Mapping[str, socket.socket]) -> str | None:
    """The address of systemd's socket for HTTP. Raises ConfigError for an unsuitable or unknown socket."""
    for name in sorted(inherited.keys() - set(NAMES)):
        which = f"a second socket for {name.split()[0]!r}" if name.split()[0] in NAMES else f"a socket {name!r}"
        message = f"systemd passed {which}: mcpd takes only {', '.join(NAMES)}, with one ListenStream= each"
        raise ConfigError("systemd", [Fault(path="FileDescriptorName", message=message)])
    if HTTP not in inherited:
        return None
    from daemon.clients.doors.http.binding import adopt  # noqa: PLC0415 - only a daemon that serves HTTP needs it

    return adopt(inherited[HTTP])


@contextlib.contextmanager
def opened_listeners(
    wanted: Path | None, config: Config, inherited: Mapping[str, socket.socket]
) -> Iterator[Listeners]:
    """The listening sockets, until the end of the block. Raises DaemonRunning or OSError."""
    listen = config.listen
    front_path, control_path = paths.served_sockets(os.environ, wanted, listen.socket, listen.control_socket)
    with contextlib.ExitStack() as stack:
        bound: list[tuple[socket.socket, Path]] = []
        for name, path in ((FRONT, front_path), (CONTROL, control_path)):
            listener = inherited.get(name)
            if listener is None:
                listener = bind(path)
                stack.push(_released(listener, path))
            else:
                path = Path(listener.getsockname())  # noqa: PLW2901 - systemd chose another one
                stack.callback(listener.close)
            bound.append((listener, path))
        (front, front_path), (control, control_path) = bound
        http = inherited.get(HTTP)
        if http is None and listen.http is not None:
            from daemon.clients.doors.http.binding import bind_http  # noqa: PLC0415 - see `held_address`

            http = bind_http(listen.http.address)
        if http is not None:
            stack.callback(http.close)
        yield Listeners(front, control, front_path, control_path, http, _certificate(config))


def _released(listener: socket.socket, path: Path) -> Callable[[object, object, object], None]:
    """Closes a socket, and removes its file unless the daemon failed: a file left behind tells bridges so."""

    def release(_kind: object, error: object, _traceback: object) -> None:
        if isinstance(error, CoreFailed):
            listener.close()
        else:
            unbind(listener, path)

    return release


def _certificate(config: Config) -> ssl.SSLContext | None:
    """The certificate for HTTP, if any. Raises OSError, whose text names the file and the reason."""
    if config.listen.http is None or config.listen.http.tls is None:
        return None
    from daemon.clients.doors.tls import tls_context  # noqa: PLC0415 - see `held_address`

    return tls_context(config.listen.http.tls)


BY_OPTION, BY_UNIT = "mcpd run --http", "mcpd-http.socket, at"
"""The source of the HTTP address, if it is not the configuration."""

EX_UNAVAILABLE = 69
"""Exit status: a socket could not be bound, or another daemon serves it."""
EX_SOFTWARE = 70
"""Exit status: a bug in mcpd."""


def run(options: argparse.Namespace) -> int:
    """Run the daemon; returns 0, or 78 (configuration), 69 (socket in use or not bindable), 70 (a bug)."""
    options.socket = options.socket and Path(options.socket)
    options.log_level = (options.log_level or "info").upper()
    signals = Signals()
    notify = Notifier(os.environ)
    inherited = listen_fds(os.environ, notify.handed_over)
    try:
        held = held_address(inherited)
        file = ConfigFile(
            options.config or paths.config_file(os.environ),
            lazy=options.lazy,
            http=options.http if held is None else held,
            opener=BY_OPTION if held is None else BY_UNIT,
        )
        config = file.read()
        if options.for_lock:
            # Another daemon may serve these addresses, and keep its state there.
            config = attrs.evolve(
                config, listen=Listen(), state=State(), summaries=None, idle=None, watch=False
            )
        if options.window and (refusal := _not_for_window(options, config)) is not None:
            print(refusal, file=sys.stderr)
            return EX_NOT_FOR_WINDOW
        place = resolve(config.state.url, options.state_dir or paths.state_dir(os.environ))
        with opened_listeners(options.socket, config, inherited) as doors, _alone(place):
            _serve(config, doors, place, file, options, signals, notify)
            return 0
    except ConfigError as error:
        print(f"mcpd: {error}", file=sys.stderr)
        turn_away(inherited.values())
        return EX_CONFIG
    except CoreFailed:
        return EX_SOFTWARE
    except (DaemonRunning, OSError) as error:
        print(f"mcpd: {error}", file=sys.stderr)
        return EX_UNAVAILABLE
    finally:
        signals.ignore()


class ConfigFile:
    """The configuration file, with overrides from the command line."""

    def __init__(
        self, path: Path, *, lazy: bool | None = None, http: str | None = None, opener: str = BY_OPTION
    ) -> None:
        """`http` overrides `listen.http` (empty: its address, or the default); `opener` names the source."""
        self.path = path
        self.redact = Redactors()
        """Redacts the secrets of every configuration read so far."""
        self.seen: tuple[object, object] | None = None
        """The result of `look` just before the last read."""
        self._lazy = lazy
        self._http = http
        self._opener = opener

    def look(self) -> tuple[object, object] | None:
        """Identities of the file with its profiles, and of the file of variables; None if a file is missing."""
        found: dict[bool, list[object]] = {False: [], True: []}
        try:
            for path in (self.path, *files_of(self.path)):
                now = path.stat()
                found[path.name == ENV_FILE].append((now.st_mtime_ns, now.st_size, now.st_ino))
        except OSError:
            return None
        return tuple(found[False]), tuple(found[True])

    def read(self) -> Config:
        """The current configuration. Raises ConfigError with all faults."""
        # Before the read, so that a concurrent write counts as a change.
        self.seen = self.look()
        config = switched(load(self.path, os.environ, SURFACES), lazy=self._lazy)
        # Before the refusal, so that faults are redacted.
        self.redact.learn(config)
        return opened(config, self._http, self._opener)


def _not_for_window(options: argparse.Namespace, config: Config) -> str | None:
    """Why not to serve a client (empty: the client has its own words for it); None: serve it."""
    if not config.autostart:
        return ""
    listen = config.listen
    serves, _ = paths.served_sockets(os.environ, options.socket, listen.socket, listen.control_socket)
    if serves == options.window:
        return None
    return (
        f"`listen.socket` of the configuration is {serves}, but this client connects to {options.window}: name"
        " the right socket with --socket P or $MCPD_SOCKET"
    )


def switched(config: Config, *, lazy: bool | None) -> Config:
    """The configuration, overridden by `--lazy` or `--no-lazy`."""
    if lazy is None:
        return config
    if not lazy:
        return attrs.evolve(config, lazy=False)
    default = attrs.evolve(config.profiles[DEFAULT_PROFILE], lazy=True, surface=LAZY, deferred_loading=None)
    return attrs.evolve(config, lazy=True, profiles={**config.profiles, DEFAULT_PROFILE: default})


def opened(config: Config, address: str | None, opener: str = BY_OPTION) -> Config:
    """The configuration with `address` for HTTP. Raises ConfigError if this address needs more keys."""
    if address is None:
        return config
    http = config.listen.http or HttpListen()
    http = attrs.evolve(http, address=address or http.address)
    opening = attrs.evolve(config, listen=attrs.evolve(config.listen, http=http))
    faults = list(listen_faults(opening))
    if problem := wrong_address(http.address):
        faults = [Fault(path=f"{ROOT}.listen.http.address", message=problem)]
    if faults:
        raise ConfigError(f"{opener} {address}".strip(), faults)
    return opening


@contextlib.contextmanager
def _alone(place: StateUrl) -> Iterator[None]:
    """Lock the state file, if possible. Raises DaemonRunning if another daemon has the lock."""
    with contextlib.ExitStack() as stack:
        if place.path is not None:
            with contextlib.suppress(OSError):
                stack.enter_context(hold(place.path))
        yield


def _serve(
    config: Config,
    doors: Listeners,
    place: StateUrl,
    file: ConfigFile,
    options: argparse.Namespace,
    signals: Signals,
    notify: Notifier,
) -> None:
    """Serve until a signal. Raises CoreFailed after a bug, which is logged; OSError for the log file."""
    # After binding the sockets: trio, loguru and tenacity take 0.2 s to import.
    import trio  # noqa: PLC0415
    from loguru import logger  # noqa: PLC0415

    from daemon.authorization.login_runs import LoginRuns  # noqa: PLC0415
    from daemon.host import logs  # noqa: PLC0415
    from daemon.main import lifetime  # noqa: PLC0415
    from daemon.processes import cgroups, own  # noqa: PLC0415
    from daemon.processes.children import Children  # noqa: PLC0415
    from daemon.tree.core import Surroundings  # noqa: PLC0415

    state, log = _state_and_log(options)
    kept = _kept_logins(config, state, file)
    writer = logs.configure(_style(options), options.log_level, file.redact, LogFile(log) if log else None)
    own.take_charge(os.environ, options.for_lock or 0)
    try:
        with _written_down(state) as (begun, unrecorded):
            children = Children(begun, cgroups.claim(cgroups.find(os.environ.get("MCPD_DELEGATED", ""))))
            around = Surroundings(
                front=doors.front,
                control=doors.control,
                http=doors.http,
                tls=doors.tls,
                facts=_facts(doors, file, state, unrecorded, log=str(log or "")),
                redact=file.redact,
                notify=notify,
                tell_event=writer.tell_event,
                watchdog=watchdog_seconds(os.environ),
                place=place,
                file=file,
                unattended=options.detached,
                logins=LoginRuns(kept, state, children),
                children=children,
            )
            trio.run(lifetime.run, config, around, signals.listen)
    except Exception as error:
        # The last boundary: log the traceback, and exit with a status that systemd restarts.
        logger.exception("a core actor failed: mcpd ends")
        raise CoreFailed from error
    finally:
        writer.close()


def _state_and_log(options: argparse.Namespace) -> tuple[Path, Path | None]:
    state = (options.state_dir or paths.state_dir(os.environ)).absolute()
    return state, state / LOG if options.detached else None


def _style(options: argparse.Namespace) -> str:
    if options.log_format or options.detached:
        return options.log_format or "dated"
    return "journal" if os.environ.get("JOURNAL_STREAM") else "text"


def _kept_logins(config: Config, state: Path, file: ConfigFile) -> ServerLogins:
    """The store of logins. Raises ConfigError if it is the Secret Service and the package is missing."""
    from daemon.authorization.logins import ServerLogins, logins_in  # noqa: PLC0415 - see `_serve`

    try:
        kept = logins_in(state, secret_service=config.state.logins is LoginPlace.KEYRING)
    except ImportError:
        message = "this needs an extra: pip install 'mcpd-supervisor[secret-service]'"
        raise ConfigError(str(file.path), [Fault(path="$.state.logins", message=message)]) from None
    return ServerLogins(kept, file.redact.hide_login)


def _facts(doors: Listeners, file: ConfigFile, state: Path, unrecorded: str, log: str) -> DaemonFacts:
    from daemon.operators.base import DaemonFacts  # noqa: PLC0415 - see `_serve`

    started = program()
    return DaemonFacts(
        version=version(),
        pid=os.getpid(),
        started_at=time.time(),
        socket=str(doors.front_path),
        control_socket=str(doors.control_path),
        config=str(file.path),
        directory=str(Path.cwd()),
        state=str(state),
        log=log,
        unrecorded=unrecorded,
        environ=dict(os.environ),
        replaced=lambda: program() != started,
        warnings=warnings,
    )


@contextlib.contextmanager
def _written_down(state: Path) -> Iterator[tuple[Starts | None, str]]:
    """The record of started processes, or why there is none; the daemon serves in either case."""
    from loguru import logger  # noqa: PLC0415

    from daemon.processes import leftovers  # noqa: PLC0415 - see `_serve`

    try:
        private_directory(state)
        begun = leftovers.Starts.begin(state)
    except OSError as error:
        why = f"{error.filename or state}: {error.strerror or error}"
        logger.warning("cannot record started servers: they would outlive a kill -9 of mcpd: {}", why)
        yield None, why
        return
    try:
        yield begun, ""
    finally:
        begun.end(keep=leftovers.any_alive())
