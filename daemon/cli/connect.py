"""`mcpd connect`: the bridge between an MCP client's stdin and stdout and the daemon's socket.

One poll loop moves bytes both ways and looks at none of them. Each direction has a buffer with a bound: over
it, the source is not read, so that a slow reader slows its writer down instead of growing this process. No
descriptor is ever written to when that could block: the socket is non-blocking, and stdout, whose flags are
shared with other processes and therefore not ours to change, gets at most PIPE_BUF bytes per readiness,
which poll(2) promises to take. So a client and a daemon that both write before they read cannot deadlock.

Standard library only, `_socket` instead of `socket` (6 ms of enums and selectors), and argparse only when there
are arguments: this is started for every window of every agent.
"""

from __future__ import annotations

import _socket
import os
import select
import signal
import sys

READ_BYTES = 256 * 1024
"""Read at once: the largest size that still gains, and what a unix socket holds by default."""

BUFFERED_BYTES = 256 * 1024
"""A source is not read while this much waits for its sink. With the last read that makes at most 512 KiB."""

MAX_KEY = 200
"""Characters of a session's key, as in `catalog.remembered`, which this module cannot afford to import."""

_STDIN, _STDOUT = 0, 1
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def main(argv: list[str]) -> int:
    """Bridge until one side ends.

    Returns:
        0 when the client or the daemon has ended, or on SIGINT or SIGTERM; 1: nobody listens; 2: usage.
    """
    wanted, hello = _parse(argv) if argv else (None, {})
    if (session := os.environ.get("MCPD_SESSION")) and "session" not in hello:
        if not _is_key(session):
            print(f"mcpd connect: MCPD_SESSION: {_no_key(session)}", file=sys.stderr)
            return 2
        hello["session"] = session
    path = wanted or _default_socket()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    _occupy_standard_descriptors()
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        link.connect(path)
    except OSError as error:
        from daemon.cli.unreachable import CLIENTS, explain  # noqa: PLC0415 - only a failure pays for it

        print(f"mcpd connect: {explain(path, error, CLIENTS)}", file=sys.stderr)
        return 1
    link.setblocking(False)
    bridge = Bridge(link, _hello(hello) if hello else b"")
    if bridge.run():
        return 0
    if bridge.heard:
        print("mcpd connect: the daemon closed the connection.", file=sys.stderr)
        return 0
    print(
        "mcpd connect: the daemon closed the connection before it said anything: it may not accept this user"
        " (listen.uids), or its configuration may be faulty. See `mcpd check` and the daemon's log.",
        file=sys.stderr,
    )
    return 1


class Bridge:
    """Moves bytes between stdin and stdout and a connected, non-blocking socket."""

    def __init__(self, link: _socket.socket, first: bytes = b"") -> None:
        """Attach to `link`; `first` is sent before anything from stdin."""
        self.heard = False
        """Whether the daemon has said anything."""
        self._link = link
        self._up = bytearray(first)
        self._down = bytearray()
        self._stdin_open = True
        self._link_open = True
        self._by_daemon = False
        self._poll = select.poll()
        self._masks: dict[int, int | None] = {}

    def run(self) -> bool:
        """Move bytes until the daemon has closed and everything it said is written, or the client is gone.

        Returns:
            False if it was the daemon that ended a conversation which the client had not.
        """
        serve = {_STDIN: self._on_stdin, _STDOUT: self._on_stdout, self._link.fileno(): self._on_link}
        while self._link_open or self._down:
            self._watch()
            for descriptor, events in self._poll.poll():
                serve[descriptor](events)
        return not self._by_daemon

    def _watch(self) -> None:
        """Ask poll for what can be used now.

        A source that must wait is not registered at all: poll reports a hangup unasked, and would spin on it.
        """
        reads_stdin = self._link_open and self._stdin_open and len(self._up) < BUFFERED_BYTES
        reads_link = self._link_open and len(self._down) < BUFFERED_BYTES
        link = (select.POLLIN if reads_link else 0) | (select.POLLOUT if self._up else 0)
        self._register(_STDIN, select.POLLIN if reads_stdin else None)
        self._register(self._link.fileno(), link or None)
        # Always: that is how we learn that nobody reads our stdout any more.
        self._register(_STDOUT, select.POLLOUT if self._down else 0)

    def _register(self, descriptor: int, mask: int | None) -> None:
        if self._masks.get(descriptor) == mask:
            return
        self._masks[descriptor] = mask
        if mask is None:
            self._poll.unregister(descriptor)
        else:
            self._poll.register(descriptor, mask)

    def _on_stdin(self, events: int) -> None:
        data = _read(_STDIN)
        if data is None:
            return
        if not data:
            self._stdin_open = False
        self._up += data
        self._send()

    def _on_link(self, events: int) -> None:
        if self._up:
            self._send()
        if events & (select.POLLIN | _GONE) and len(self._down) < BUFFERED_BYTES:
            data = _read(self._link.fileno())
            if data is None:
                return
            if not data:
                self._link_open = False
                self._by_daemon = self._stdin_open
            self.heard |= bool(data)
            self._down += data

    def _send(self) -> None:
        """Give the daemon what it takes now; after the client's last byte, tell it that there is no more."""
        try:
            while self._up:
                del self._up[: self._link.send(self._up)]
            if not self._stdin_open:
                self._link.shutdown(_socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            # It does not read any more, but what it has said before is still to be delivered.
            self._up.clear()

    def _on_stdout(self, events: int) -> None:
        try:
            if not events & _GONE:
                del self._down[: os.write(_STDOUT, self._down[: select.PIPE_BUF])]
                return
        except BlockingIOError:
            return  # somebody else made our stdout non-blocking, or filled it first
        except OSError:
            pass
        # The client is gone: there is nobody to tell.
        self._down.clear()
        self._link_open = False


def _read(descriptor: int) -> bytes | None:
    """What can be read now; empty at the end, which a broken connection is too; None: nothing yet after all."""
    try:
        return os.read(descriptor, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _end(_number: int, _frame: object) -> None:
    """Clients end their servers with a signal: that is no failure. A second signal finds us ending already."""
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(0)


def _occupy_standard_descriptors() -> None:
    """Open a closed stdin or stdout on /dev/null: else the socket would become descriptor 0 or 1."""
    for descriptor in (_STDIN, _STDOUT):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _is_key(text: str) -> bool:
    """Whether a session can be named so: what no terminal can show (`str.isprintable`) is a mistake."""
    return 0 < len(text) <= MAX_KEY and text.isprintable()


def _no_key(text: str) -> str:
    return (
        f"a session's key is 1 to {MAX_KEY} printable characters; this one has {len(text)}: {text[:40]!a}."
        " Take a name that stays the same, such as the path of the project."
    )


def _default_socket() -> str:
    # Here, because it brings pathlib (7 ms) and `--socket` does without.
    from daemon.paths import client_socket  # noqa: PLC0415

    return str(client_socket(os.environ))


def _hello(params: dict[str, object]) -> bytes:
    """The line that tells the daemon what this client's configuration asks for, before the client speaks."""
    import json  # noqa: PLC0415 - most clients ask for nothing and do not pay 6 ms for it

    from daemon import __version__  # noqa: PLC0415

    message = {"jsonrpc": "2.0", "method": "mcpd/hello", "params": {**params, "version": __version__}}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _key(text: str) -> str:
    """A session's key for argparse."""
    if _is_key(text):
        return text
    import argparse  # noqa: PLC0415 - see the module's docstring

    raise argparse.ArgumentTypeError(_no_key(text))


def _parse(argv: list[str]) -> tuple[str | None, dict[str, object]]:
    """The socket, if one is named, and the params of the hello line: only what is given."""
    import argparse  # noqa: PLC0415 - see the module's docstring

    from daemon.cli.options import parser  # noqa: PLC0415

    options = parser(
        "connect",
        "Bridge an MCP client that speaks over stdin and stdout to the running daemon.",
        examples=(
            'in an MCP client\'s configuration: {"command": "mcpd", "args": ["connect"]}',
            "mcpd connect --profile reader",
            'mcpd connect --session "$PWD"',
        ),
        exits={
            0: "the client or the daemon has ended",
            1: "the daemon cannot be reached, or turned us away",
            2: "usage",
        },
    )
    options.add_argument(
        "--socket",
        metavar="P",
        help="the daemon's socket (default: $MCPD_SOCKET, else mcpd.sock in"
        " $XDG_RUNTIME_DIR/mcpd, or the system's)",
    )
    options.add_argument("--profile", metavar="N", help="the profile to use (default: `default`)")
    options.add_argument(
        "--surface",
        metavar="N",
        help="which tools the client sees: category, browse, search, load or full"
        " (default: what the profile says)",
    )
    options.add_argument(
        "--session",
        metavar="KEY",
        type=_key,
        help="a name under which mcpd remembers what this client has loaded, also after a restart; clients that"
        " give the same one share it (default: $MCPD_SESSION, else nothing is remembered)",
    )
    options.add_argument(
        "--lazy",
        action=argparse.BooleanOptionalAction,
        help="show tools on demand (on the surface browse, unless another is named), or all of them at once",
    )
    given = vars(options.parse_args(argv))
    wanted: str | None = given.pop("socket")
    return wanted, {key: value for key, value in given.items() if value is not None}
