"""`mcpd connect`: the bridge between an MCP client's stdin and stdout and the daemon's socket.

This module only starts it. `daemon.bridge` moves the bytes, and goes on when the daemon is restarted or killed:
a client keeps its stdio and need not know.

Standard library only, `_socket` instead of `socket` (6 ms of enums and selectors), and argparse only when there
are arguments: this is started for every window of every agent.
"""

from __future__ import annotations

import os
import signal
import sys

from daemon import __version__
from daemon.bridge.loop import Bridge

MAX_KEY = 200
"""Longest session key, in characters, as in `catalog.remembered`, which this module cannot afford to import."""

ANONYMOUS_BYTES = 16
"""Number of random bytes that serve as the session's key when none is given, for as long as this bridge
runs."""

_STDIN, _STDOUT = 0, 1


def main(argv: list[str]) -> int:
    """Bridge until the client ends, from one daemon to the next.

    Returns:
        0 when the client has ended, or on SIGINT or SIGTERM; 1: it was not answered, because no daemon accepted
        it; 2: usage.
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
    failure = Bridge(path, _hello(hello)).run()
    if failure:
        print(f"mcpd connect: the client was not answered: {failure}", file=sys.stderr)
        return 1
    return 0


def _end(_number: int, _frame: object) -> None:
    """Exit with 0: clients end their servers with a signal. A second signal changes nothing."""
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(0)


def _occupy_standard_descriptors() -> None:
    """Open a closed stdin or stdout on /dev/null; otherwise the socket would become descriptor 0 or 1."""
    for descriptor in (_STDIN, _STDOUT):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _is_key(text: str) -> bool:
    """Whether a text can be a session's key: one that no terminal can show (`str.isprintable`) is a mistake."""
    return 0 < len(text) <= MAX_KEY and text.isprintable()


def _no_key(text: str) -> str:
    return (
        f"a session's key is 1 to {MAX_KEY} printable characters; this one has {len(text)}: {text[:40]!a}."
        " Take a name that stays the same, such as the path of the project."
    )


def _default_socket() -> str:
    # Here, because it imports pathlib (7 ms), which `--socket` does without.
    from daemon.host.paths import client_socket  # noqa: PLC0415

    return str(client_socket(os.environ))


def _hello(params: dict[str, object]) -> bytes:
    """The line that tells the daemon what this client's configuration asks for, before the client speaks.

    It is sent even if that is nothing: the daemon accepts only the first hello, which must not be the client's.
    Every daemon gets the same one, so that what a client without a key has loaded outlives the daemon.
    """
    said = b'"version":"%b"' % __version__.encode()
    if "session" not in params:
        said += b',"anonymous":"%b"' % os.urandom(ANONYMOUS_BYTES).hex().encode()
    if params:
        import json  # noqa: PLC0415 - most clients ask for nothing and do not pay 6 ms for it

        said = json.dumps(params, separators=(",", ":"))[1:-1].encode() + b"," + said
    return b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{%b}}\n' % said


def _key(text: str) -> str:
    """A session's key, for argparse."""
    if _is_key(text):
        return text
    import argparse  # noqa: PLC0415 - see the module's docstring

    raise argparse.ArgumentTypeError(_no_key(text))


def _parse(argv: list[str]) -> tuple[str | None, dict[str, object]]:
    """The socket, if one is named, and the params of the hello line: only those that are given."""
    import argparse  # noqa: PLC0415 - see the module's docstring

    from daemon.cli.options import parser  # noqa: PLC0415

    options = parser(
        "connect",
        "Bridge an MCP client that speaks over stdin and stdout to the daemon. While none runs yet, the client"
        " is shown one tool, mcpd_status, that waits for the daemon and says what to do.",
        examples=(
            'in an MCP client\'s configuration: {"command": "mcpd", "args": ["connect"]}',
            "mcpd connect --profile reader",
            'mcpd connect --session "$PWD"',
        ),
        exits={
            0: "the client has ended",
            1: "the client ended before it was answered, or the daemon refuses this user",
        },
        asks=False,
    )
    options.add_argument("--profile", metavar="N", help="the profile to use (default: `default`)")
    options.add_argument(
        "--surface",
        metavar="N",
        help="which tools the client sees: category, browse, search, load, full, or auto for what fits it"
        " (default: what the profile says)",
    )
    options.add_argument(
        "--session",
        metavar="KEY",
        type=_key,
        help="a name under which mcpd remembers what this client has loaded, also after a restart; clients that"
        " give the same one share it (default: $MCPD_SESSION, else it is remembered as long as this runs)",
    )
    options.add_argument(
        "--lazy",
        action=argparse.BooleanOptionalAction,
        help="show tools on demand (on the surface browse, unless another is named), or all of them at once",
    )
    given = vars(options.parse_args(argv))
    wanted: str | None = given.pop("socket")
    return wanted, {key: value for key, value in given.items() if value is not None}
