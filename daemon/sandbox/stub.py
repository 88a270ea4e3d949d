"""Makes a network namespace whose only way out is mcpd's proxy, hands the socket out, and becomes the program.

`python -I -S stub.py FD -- PROGRAM ARGUMENTS...`: FD is a unix socket to the daemon, which gets the listening
socket, or the text of a failure. It stands alone, and imports modules in C where it can: `socket`, `signal` and
`pathlib` take longer to import than Python to start.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import fcntl
import os
import sys

if sys.version_info < (3, 12):
    import ctypes

PORT = 3128
"""The proxy's port on 127.0.0.1, inside the namespace alone: the usual one of proxies."""

_BACKLOG = 64
"""Connections that the kernel keeps until the daemon accepts them."""

_NEW_USER_AND_NETWORK = 0x10000000 | 0x40000000
"""CLONE_NEWUSER and CLONE_NEWNET."""

_SET_FLAGS, _UP, _SOL_SOCKET, _SCM_RIGHTS = 0x8914, 1, 1, 1
"""SIOCSIFFLAGS, IFF_UP and the kernel's numbers for passing descriptors."""


def main(arguments: list[str]) -> int:
    """Hand the listening socket over, then become the program; returns only if one of these fails."""
    descriptor, _, program, *_ = arguments
    channel = _socket.socket(fileno=int(descriptor))
    os.set_inheritable(channel.fileno(), False)  # the program must not have it
    try:
        environment = _environment()
        _separate()
        listening = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        _bring_up(listening.fileno())
        listening.bind(("127.0.0.1", PORT))
        listening.listen(_BACKLOG)
        passed = listening.fileno().to_bytes(4, sys.byteorder)
        channel.sendmsg([b"\0"], [(_SOL_SOCKET, _SCM_RIGHTS, passed)])
    except OSError as error:
        channel.send(str(error).encode(errors="replace"))
        return 1
    listening.close()
    channel.close()
    return _become(program, arguments[2:], environment)


def _environment() -> dict[bytes, bytes]:
    """The environment as it was given: Python adds LC_CTYPE to its own where the locale is C."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        return dict(each.split(b"=", 1) for each in file.read().split(b"\0") if b"=" in each)


def _separate() -> None:
    """Enter a user namespace with the same user and group, and a network namespace."""
    user, group = os.geteuid(), os.getegid()
    if sys.version_info >= (3, 12):
        os.unshare(_NEW_USER_AND_NETWORK)
    elif ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER_AND_NETWORK):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "unshare")
    files = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in files.items():
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(text)


def _bring_up(descriptor: int) -> None:
    """Bring the loopback interface up."""
    request = b"lo".ljust(16, b"\0") + _UP.to_bytes(2, sys.byteorder)
    fcntl.ioctl(descriptor, _SET_FLAGS, request.ljust(40, b"\0"))


def _become(program: str, command: list[str], environment: dict[bytes, bytes]) -> int:
    """Execute the program with the signals that Python ignores as they were."""
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execvpe(program, command, environment)  # noqa: S606 - the program of the configuration
    except OSError as error:
        sys.stderr.write(f"{program}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
