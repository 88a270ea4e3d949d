"""`mcpd connect`: starts the bridge between an MCP client's stdin and stdout and the daemon's socket.

It starts for every window of every agent. Therefore it uses only the standard library, argparse only with
arguments, and `_socket` instead of `socket` (which takes 6 ms for enums and selectors).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from daemon import __version__
from daemon.bridge.loop import Bridge
from daemon.host.paths import FRONT, client_socket, is_utf8, runtime_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

MAX_KEY = 200
"""Characters of a session key, as in `catalog.loaded`; importing that module would take too long."""

ANONYMOUS_BYTES = 16
"""Random bytes of the session key that this bridge uses if the user names none."""

_STDIN, _STDOUT = 0, 1


def main(argv: list[str]) -> int:
    """Run the bridge until the client ends. Returns 0, 1 if no daemon accepted it, or 2 for wrong usage."""
    wanted, hello = _parse(argv) if argv else (None, {})
    for member, variable, fault in (
        ("session", "MCPD_SESSION", _fault_of_key),
        ("workspace", "MCPD_WORKSPACE", _fault_of_directory),
    ):
        if (value := os.environ.get(variable)) and member not in hello:
            if problem := fault(value):
                print(f"mcpd connect: {variable}: {problem}", file=sys.stderr)
                return 2
            hello[member] = value
    _place(hello)
    path = wanted or _default_socket()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    _occupy_standard_descriptors()
    starts = not hello.pop("no_start", False) and not os.environ.get("MCPD_NO_START")
    failure = Bridge(path, _hello(hello), lambda: starts and _is_usual(path)).run()
    if failure:
        print(f"mcpd connect: the client was not answered: {failure}", file=sys.stderr)
        return 1
    return 0


def _end(_number: int, _frame: object) -> None:
    """Exit with 0 on a signal, since clients end their servers that way; ignore further signals."""
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


def _fault_of_key(text: str) -> str:
    """The fault of a session key; unprintable characters (`str.isprintable`) are faults."""
    if 0 < len(text) <= MAX_KEY and text.isprintable():
        return ""
    return (
        f"a session's key is 1 to {MAX_KEY} printable characters; this one has {len(text)}: {text[:40]!a}."
        " Take a name that stays the same, such as the path of the project."
    )


def _default_socket() -> str:
    return str(client_socket(os.environ))


def _is_usual(path: str) -> bool:
    """Whether a daemon started here would serve this socket, which may be another user's or container's."""
    return path == str(runtime_dir(os.environ) / FRONT)


def _hello(params: dict[str, object]) -> bytes:
    """The hello with this client's options. It is sent even without options: a later hello would not count."""
    members = b'"version":"%b","holds":true' % __version__.encode()
    if "session" not in params:
        members += b',"anonymous":"%b"' % os.urandom(ANONYMOUS_BYTES).hex().encode()
    if params.keys() == {"directory"} and _is_plain(here := str(params["directory"])):
        members += b',"directory":"%b"' % here.encode()
    elif params:
        import json  # noqa: PLC0415 - 6 ms, which most clients save

        members = json.dumps(params, separators=(",", ":"))[1:-1].encode() + b"," + members
    return b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{%b}}\n' % members


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and '"' not in text and "\\" not in text


def _fault_of_directory(text: str) -> str:
    if not text:
        return "the name of the directory is empty; leave the option out for the working directory"
    return "" if is_utf8(text) else "it is not UTF-8, and messages cannot hold it"


def _place(hello: dict[str, object]) -> None:
    """Put the client's directory into the hello: the chosen one made absolute, or the working directory."""
    try:
        here = os.getcwd()  # noqa: PTH109 - a string is wanted
    except OSError:
        # The directory was removed.
        here = ""
    named = hello.get("workspace")
    if isinstance(named, str):
        # `..` stays: its target depends on links, which the daemon follows.
        hello["workspace"] = os.path.join(here, os.path.expanduser(named))  # noqa: PTH111, PTH118
    elif here and is_utf8(here):
        hello["directory"] = here


def _checked(fault: Callable[[str], str], text: str) -> str:
    if not (problem := fault(text)):
        return text
    import argparse  # noqa: PLC0415 - see the module's docstring

    raise argparse.ArgumentTypeError(problem)


def _parse(argv: list[str]) -> tuple[str | None, dict[str, object]]:
    options = make_parser()
    given = vars(options.parse_args(argv))
    if given["servers"] and given["surface"]:
        text = "--server and --surface exclude each other: leave out one of them"
        options.error(text)
    wanted: str | None = given.pop("socket")
    return wanted, {key: value for key, value in given.items() if value is not None}


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    import argparse  # noqa: PLC0415 - see the module's docstring

    from daemon.cli.options import CommandParser  # noqa: PLC0415 - likewise

    options = CommandParser("connect", asks=False)
    options.add_argument("--profile", metavar="N")
    options.add_argument("--surface", metavar="N")
    options.add_argument("--server", metavar="NAME", action="append", dest="servers")
    options.add_argument("--without", metavar="NAME", action="append")
    options.add_argument("--session", metavar="KEY", type=lambda text: _checked(_fault_of_key, text))
    options.add_argument("--workspace", metavar="DIR", type=lambda text: _checked(_fault_of_directory, text))
    options.add_argument("--no-start", action="store_true", default=None)
    options.add_argument("--lazy", action=argparse.BooleanOptionalAction)
    return options
