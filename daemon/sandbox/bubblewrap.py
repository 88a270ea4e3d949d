"""The mounts of a policy, the seccomp filter, and the arguments of bubblewrap (bwrap(1)).

In mode home, the home directory is a new one that shows parts of the real one, so a secret created while the
server runs is not visible. bubblewrap would read the whole mount table for each of the hundreds of mounts; so
where a stub is used, the stub makes them all, in its own namespace. Blocks: it reads directories.

The filter compares the low halves of arguments: the kernel takes them as 32-bit numbers, so bits in the high
half hide nothing.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from itertools import chain

from daemon.config.sandbox_keys import SandboxMode
from daemon.sandbox import stub
from daemon.sandbox.policy import Access, Policy, above, is_within, table

# ruff: noqa: PTH112 - pathlib takes 7 ms

_CLONE3, _NEWEST = 435, 469
"""clone3, whose flags are in memory, where no filter sees them, and the newest call of Linux 6.18."""

_CLONE, _IOCTL, _SOCKET, _SOCKETPAIR, _PERSONALITY = range(5)
_JUDGED = ((56, 220), (16, 29), (41, 198), (53, 199), (135, 92))
"""The numbers of calls that the filter judges by an argument."""

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH for each `os.uname().machine`, in the order of the columns of numbers."""

_NEW_NAMESPACES = 0x7E02_0000
"""CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID and _NEWNET."""

_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type into a terminal as if its user did."""

_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK. Others, such as AF_VSOCK, leave the network namespace."""

_PERSONALITIES = (0, 0xFFFF_FFFF)
"""The personality Linux, and the value that asks for the current one."""

_KILL, _ERRNO, _ALLOW = 0x8000_0000, 0x0005_0000, 0x7FFF_0000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`."""


@cache
def filter_for(machine: str) -> bytes | None:
    """The filter for `bwrap --seccomp`; None for an `os.uname().machine` without a table of calls."""
    if machine not in ARCHITECTURES:
        return None
    column = list(ARCHITECTURES).index(machine)
    refused = (files("daemon.sandbox") / "refused_calls.txt").read_text(encoding="ascii")
    calls = [each.split()[1 + column] for each in refused.split(",")]
    judged = [numbers[column] for numbers in _JUDGED]
    return b"".join(
        (
            # Another architecture has other numbers. Its program could not even exit if all calls were refused.
            _instruction(_LOAD, _ARCHITECTURE),
            _instruction(_EQUAL, ARCHITECTURES[machine], skip_if_true=1),
            _answer(_KILL),
            _instruction(_LOAD, _NUMBER),
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
    judgement = b"".join((_instruction(_LOAD, _ARGUMENTS + 8 * argument), *tests, _answer(_ALLOW)))
    return _instruction(_EQUAL, number, skip_if_false=len(judgement) // 8) + judgement


def _refusal(comparison: int, value: int, refusal: int) -> bytes:
    return _instruction(comparison, value, skip_if_false=1) + _answer(_ERRNO | refusal)


def _answer(action: int) -> bytes:
    return _instruction(_RETURN, action)


def _instruction(code: int, value: int, *, skip_if_true: int = 0, skip_if_false: int = 0) -> bytes:
    """Pack a `struct sock_filter`; raises `struct.error` if a jump does not fit into a byte."""
    return struct.pack("<HBBI", code, skip_if_true, skip_if_false, value)


MAX_ENTRIES = 4000
"""Most entries shown of the home directory, and of each directory opened in it, as mounts use memory."""

_BASE = (
    *(f"--unshare-{each}" for each in ("user", "ipc", "pid", "uts", "cgroup")),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)
"""Arguments of every sandbox."""

_PROC = ("--proc", "/proc", "--ro-bind-try", "/proc/sys", "/proc/sys")
"""Makes /proc/sys read-only: root may write there, and one setting names a program that the kernel runs."""

Mount = tuple[str, str, str]
"""A step: a key of `_OPTIONS`, or for the stub `device`, `terminals`, `show`, `close`; a source; a place."""

_OPTIONS = {
    "read": ("--ro-bind",),
    "write": ("--bind",),
    "link": ("--symlink",),
    "dir": ("--dir",),
    "own": ("--size", str(stub.TEMPORARY_BYTES), "--tmpfs"),
    # Closed by its mode: making a mount read-only takes another look at the table of mounts.
    "empty": ("--perms", "0555", "--tmpfs"),
}


def stub_steps(steps: Iterable[Sequence[str]]) -> bytes:
    """The stub's steps, with the devices that `bwrap --dev` would make."""
    devices = (each.split(" ") for each in table()["devices"])
    return os.fsencode("\0".join(chain(*devices, *steps)))


def arguments(steps: Sequence[Mount] | None = None) -> list[str]:
    """Arguments for bubblewrap: to use the file system that the stub has made, or else to take these steps."""
    if steps is None:
        return [*_BASE, "--dev-bind", "/", "/", *_PROC]
    words = [*_BASE, "--unshare-net", "--ro-bind", "/", "/", "--dev", "/dev", *_PROC]
    for what, source, place in steps:
        words += [*_OPTIONS[what], *filter(None, (source,)), place]
    return words


def mounts(policy: Policy) -> list[Mount]:
    """The steps that build the server's file system from a readable view of everything."""
    home, is_view = policy.home, policy.mode is SandboxMode.HOME
    emptied = [each for each in table()["empty"] if os.path.realpath(each) == each != home]
    emptied = [each for each in emptied if os.path.isdir(each)]
    covers = {**dict.fromkeys((*emptied, home), True), **dict.fromkeys(policy.own, True)}
    known = {path: access for path, access in policy.places.items() if access or path in policy.present}
    covers |= {path: access is Access.HIDDEN for path, access in known.items()}
    bare = {path for path, access in known.items() if not access and path != home and _is_bare(path, covers)}
    places = {path: access for path, access in known.items() if access or path in bare}
    in_order = sorted({*places, *policy.own}, key=lambda each: (each.count("/"), each))
    around = {each for each in above(home) if is_view or not places.get(each)}
    steps: list[Mount] = [("own" if each in table()["temporary"] else "empty", "", each) for each in emptied]
    steps.append(("own", "", "/dev/shm"))  # noqa: S108 - a directory of the server's own
    steps += [("read", each, each) for each in table()["kept"] if os.path.isdir(each)]
    steps += [_step(policy, path) for path in in_order if path in around]
    steps.append(("own", "", home))
    if is_view and home not in policy.places:
        special = {*policy.places, *policy.own}
        steps += _shown(home, special, {each for path in special for each in above(path)})
    elif not is_view:
        steps.append(("dir", "", f"{home}/.cache"))
    steps += [_step(policy, path) for path in in_order if path not in around]
    links = policy.links.items()
    steps += [("link", target, link) for link, target in links if not (is_view and is_within(link, home))]
    return [*steps, ("close", "", home)] if is_view and not policy.places.get(home) else steps


def _step(policy: Policy, path: str) -> Mount:
    if path in policy.own:
        return "write", policy.own[path], path
    access = policy.places[path]
    if access is Access.HIDDEN:
        return ("empty", "", path) if os.path.isdir(path) else ("read", "/dev/null", path)
    # A link among the user's tools is shown as the directory that it leads to.
    return "write" if access is Access.WRITE else "read", os.path.realpath(path), path


def _is_bare(path: str, covers: Mapping[str, bool]) -> bool:
    """Whether a hidden place needs a mask, which takes time: nothing covers it, and it is readable."""
    if next((covers[each] for each in above(path) if each in covers), False):
        return False
    with suppress(OSError):
        is_open = os.lstat(path).st_uid == os.geteuid() or os.access(path, os.R_OK) or os.access(path, os.X_OK)
        return is_open and os.path.realpath(path) == path
    return False


def _shown(directory: str, special: set[str], opened: set[str]) -> Iterator[Mount]:
    """Steps for a directory's entries: opened ones are created, others shown, special ones left out."""
    names = list[str]()
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda each: each.name)[:MAX_ENTRIES]
    except OSError:
        return
    for each in entries:
        if each.path in special:
            continue
        if each.is_symlink():
            yield "link", os.readlink(each.path), each.path  # noqa: PTH115
        elif each.is_dir() and each.path in opened:
            yield "dir", "", each.path
            yield from _shown(each.path, special, opened)
        elif each.is_dir() or each.is_file():
            names.append(each.name)
    yield "show", "/".join(names), directory
