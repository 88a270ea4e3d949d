"""`mcpd run`: the daemon in the foreground.

Order matters. A faulty configuration is found before anything is touched (exit 78, EX_CONFIG, which the units
do not restart). The sockets are bound before anything heavy is imported, so that clients which start together
with us wait in the backlog instead of being refused.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from daemon import __version__, paths
from daemon.config.model import DEFAULT_PROFILE
from daemon.config.parse import load, secrets
from daemon.errors import ConfigError, DaemonRunning
from daemon.notify import Notifier, listen_fds, watchdog_seconds
from daemon.sockets import bind, unbind
from daemon.surfaces.table import LAZY, SURFACES

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Iterator

    from daemon.config.model import Config

EX_CONFIG = 78
"""The configuration is at fault (sysexits.h)."""
EX_UNAVAILABLE = 69
"""A socket could not be bound, or another daemon serves it."""
EX_SOFTWARE = 70
"""A fault of our own."""


def main(argv: list[str]) -> int:
    """Run the daemon.

    Returns:
        0 after SIGTERM or SIGINT; 78: faulty configuration; 69: socket taken or not bindable; 70: our fault.
    """
    options = _parser().parse_args(argv)
    stop = _Stop()
    path = options.config or paths.config_file(os.environ)
    try:
        config = switched(load(path, os.environ, SURFACES), lazy=options.lazy)
        with _sockets(options.socket, config) as (front, control, front_path, control_path):
            return _serve(config, path, options, stop, front, control, front_path, control_path)
    except ConfigError as error:
        print(f"mcpd: {error}", file=sys.stderr)
        _turn_away(listen_fds(os.environ).values())
        return EX_CONFIG
    except (DaemonRunning, OSError) as error:
        print(f"mcpd: {error}", file=sys.stderr)
        return EX_UNAVAILABLE
    finally:
        stop.ignore()


class _Stop:
    """Takes SIGTERM and SIGINT from the first moment to the last: before trio receives them, and after.

    Their default would kill us half-way through starting or ending, and leave the socket file behind.
    """

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def asked(self) -> bool:
        """Whether one came."""
        return self._asked

    def ignore(self) -> None:
        """All is done: not even the interpreter's own end, which restores defaults, is to be cut short."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def _note(self, _number: int, _frame: object) -> None:
        self._asked = True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mcpd run",
        description="Run the daemon in the foreground: supervise the configured MCP servers and serve clients.",
        epilog="example:\n  mcpd run --config ~/.config/mcpd/mcpd.json\n\nexit status: 0 stopped by a signal,"
        " 78 faulty configuration, 69 socket not available, 70 a fault of mcpd's own",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, metavar="F", help="configuration (default: see mcpd check)")
    parser.add_argument("--socket", type=Path, metavar="P", help="where clients connect")
    parser.add_argument("--state-dir", type=Path, metavar="D", help="where state is kept")
    parser.add_argument(
        "--lazy",
        action=argparse.BooleanOptionalAction,
        help=f"show tools on demand, on the surface {LAZY} unless a profile says otherwise; or all of them at"
        " once, whatever the profiles say (default: what the configuration says)",
    )
    parser.add_argument("--log-format", choices=("text", "journal", "json"), help="default: fits the place")
    parser.add_argument("--log-level", default="INFO", metavar="L", type=str.upper, choices=LEVELS)
    return parser


def switched(config: Config, *, lazy: bool | None) -> Config:
    """The configuration with `--lazy` or `--no-lazy`, which count more than what it says; None leaves it."""
    if lazy is None:
        return config
    if not lazy:
        return attrs.evolve(config, lazy=False)
    default = attrs.evolve(config.profiles[DEFAULT_PROFILE], lazy=True, surface=LAZY, deferred_loading=None)
    return attrs.evolve(config, lazy=True, profiles={**config.profiles, DEFAULT_PROFILE: default})


LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR")


def _turn_away(listeners: Iterable[socket.socket]) -> None:
    """Hang up on clients that wait in systemd's socket: it would start us again for each of them at once."""
    for listener in listeners:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()
        listener.close()


@contextlib.contextmanager
def _sockets(wanted: Path | None, config: Config) -> Iterator[tuple[socket.socket, socket.socket, Path, Path]]:
    """Both listening sockets and their paths: systemd's where it made them, our own otherwise."""
    inherited = listen_fds(os.environ)
    runtime = paths.runtime_dir(os.environ)
    listen = config.listen
    front_path = wanted or Path(listen.socket or os.environ.get("MCPD_SOCKET") or runtime / paths.FRONT)
    beside = wanted.with_name(paths.CONTROL) if wanted else runtime / paths.CONTROL
    control_path = Path(listen.control_socket or os.environ.get("MCPD_CONTROL") or beside)
    with contextlib.ExitStack() as stack:
        bound: list[tuple[socket.socket, Path]] = []
        for name, path in (("front", front_path), ("control", control_path)):
            listener = inherited.get(name)
            if listener is None:
                listener = bind(path)
                stack.callback(unbind, listener, path)
            else:
                path = Path(listener.getsockname())  # noqa: PLW2901 - systemd chose another one
                stack.callback(listener.close)
            bound.append((listener, path))
        (front, front_path), (control, control_path) = bound
        yield front, control, front_path, control_path


def _serve(
    config: Config,
    path: Path,
    options: argparse.Namespace,
    stop: _Stop,
    front: socket.socket,
    control: socket.socket,
    front_path: Path,
    control_path: Path,
) -> int:
    # Imported here, after the sockets are bound: trio, loguru and tenacity take 0.2 s.
    import trio  # noqa: PLC0415
    from loguru import logger  # noqa: PLC0415

    from daemon import logs, tree  # noqa: PLC0415
    from daemon.redact import Redactor  # noqa: PLC0415
    from daemon.report import DaemonFacts  # noqa: PLC0415

    redact = Redactor(secrets(config))
    style = options.log_format or ("journal" if os.environ.get("JOURNAL_STREAM") else "text")
    writer = logs.configure(style, options.log_level, redact)
    facts = DaemonFacts(
        version=__version__,
        pid=os.getpid(),
        started_at=time.time(),
        socket=str(front_path),
        control_socket=str(control_path),
        config=str(path),
    )
    around = tree.Surroundings(
        front=front,
        control=control,
        facts=facts,
        redact=redact,
        notify=Notifier(os.environ),
        watchdog=watchdog_seconds(os.environ),
        stop_asked=stop.asked,
    )
    try:
        trio.run(tree.run, config, around)
    except Exception:  # noqa: BLE001 - the last boundary: log it whole, end with a status that is restarted
        logger.exception("a core actor failed: mcpd ends")
        return EX_SOFTWARE
    finally:
        writer.close()
    return 0
