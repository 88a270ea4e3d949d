"""The seccomp filter of sandboxed servers: refuses system calls that no server needs.

Arguments are compared by their low halves: the kernel takes them as 32-bit numbers, so bits in the high half
hide nothing.
"""

import errno
import functools
import struct
from collections.abc import Sequence
from importlib.resources import files

_CLONE3, _NEWEST = 435, 469
"""clone3, with flags in memory where no filter sees them, and the newest call of Linux 6.18; alike on both."""

_CLONE, _IOCTL, _SOCKET, _SOCKETPAIR, _PERSONALITY = range(5)
_JUDGED = ((56, 220), (16, 29), (41, 198), (53, 199), (135, 92))
"""Numbers of the calls that are judged by an argument."""

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH of each `os.uname().machine`, in the order of the columns of numbers."""

_NEW_NAMESPACES = 0x7E02_0000
"""CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID and _NEWNET."""

_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type into a terminal, as if its user did."""

_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK. Others, such as AF_VSOCK, leave the network namespace."""

_PERSONALITIES = (0, 0xFFFF_FFFF)
"""Linux, and the question for the present one."""

_KILL, _ERRNO, _ALLOW = 0x8000_0000, 0x0005_0000, 0x7FFF_0000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`."""


@functools.cache
def filter_for(machine: str) -> bytes | None:
    """Return the filter for `bwrap --seccomp`; None for an `os.uname().machine` without a table of calls."""
    if machine not in ARCHITECTURES:
        return None
    column = list(ARCHITECTURES).index(machine)
    refused = (files("daemon.sandbox") / "refused_calls.txt").read_text(encoding="ascii")
    calls = [each.split()[1 + column] for each in refused.split(",")]
    judged = [numbers[column] for numbers in _JUDGED]
    return b"".join(
        (
            # Another architecture has other numbers. Its program could not even exit if all calls were refused.
            _load(_ARCHITECTURE),
            _instruction(_EQUAL, ARCHITECTURES[machine], skip_if_true=1),
            _answer(_KILL),
            _load(_NUMBER),
            # x32 numbers are above this as well. Callers fall back as on an older kernel.
            _refusal(_AT_LEAST, _NEWEST + 1, errno.ENOSYS),
            _refusal(_EQUAL, _CLONE3, errno.ENOSYS),
            *(_refusal(_EQUAL, int(number), errno.EPERM) for number in calls if number != "-"),
            _block(judged[_CLONE], 0, _refusal(_ANY_BIT, _NEW_NAMESPACES, errno.EPERM)),
            _block(judged[_IOCTL], 1, *(_refusal(_EQUAL, each, errno.EPERM) for each in _TERMINAL_INPUT)),
            _only(judged[_SOCKET], _FAMILIES, errno.EAFNOSUPPORT),
            _only(judged[_SOCKETPAIR], _FAMILIES, errno.EAFNOSUPPORT),
            _only(judged[_PERSONALITY], _PERSONALITIES, errno.EPERM),
            _answer(_ALLOW),
        )
    )


def _only(number: int, allowed: Sequence[int], refusal: int) -> bytes:
    tests = (_instruction(_EQUAL, each, skip_if_false=1) + _answer(_ALLOW) for each in allowed)
    return _block(number, 0, *tests, _answer(_ERRNO | refusal))


def _block(number: int, argument: int, *tests: bytes) -> bytes:
    """Judge a call by an argument; one that no test answers is allowed."""
    judgement = b"".join((_load(_ARGUMENTS + 8 * argument), *tests, _answer(_ALLOW)))
    return _instruction(_EQUAL, number, skip_if_false=len(judgement) // 8) + judgement


def _refusal(comparison: int, value: int, refusal: int) -> bytes:
    return _instruction(comparison, value, skip_if_false=1) + _answer(_ERRNO | refusal)


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, offset)


def _answer(action: int) -> bytes:
    return _instruction(_RETURN, action)


def _instruction(code: int, value: int, *, skip_if_true: int = 0, skip_if_false: int = 0) -> bytes:
    """Pack a `struct sock_filter`: a jump is a byte, and one that is longer raises `struct.error`."""
    return struct.pack("<HBBI", code, skip_if_true, skip_if_false, value)
