"""Watches which files a tree of processes uses, without root: seccomp's user notification (seccomp_unotify(2)).

Each watched call waits for `watch`, which reads the path from the caller's memory and refuses no call.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from ipaddress import ip_address
from typing import NamedTuple

from daemon.sandbox.bubblewrap import ARCHITECTURES
from daemon.sandbox.learning import Observations, Use

# ruff: noqa: PTH115, PTH118, PTH120, PTH112 - pathlib takes ten times as long, for thousands of paths

MAX_PATHS = 20_000
"""Most paths kept, in about 4 MiB; beyond them, one line stands for all files of a directory."""

MAX_ADDRESSES = 256
"""Most addresses kept: a single one shows that a server bypasses the proxy."""

_TAKE, _ANSWER = 0xC050_2100, 0xC018_2101
"""SECCOMP_IOCTL_NOTIF_RECV and _SEND."""

_CALL, _GO_ON = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
"""`struct seccomp_notif` and `struct seccomp_notif_resp`."""

_HERE, _INT = 0xFFFF_FF9C, 0xFFFF_FFFF
"""AT_FDCWD, and a mask for the half of a register that contains an int."""

_CONTINUE, _ALLOW, _NOTIFY = 1, 0x7FFF_0000, 0x7FC0_0000
_LOAD, _EQUAL, _RETURN, _NUMBER, _ARCHITECTURE = 0x20, 0x15, 0x06, 0, 4
_PATH_BYTES, _ADDRESS_BYTES, _DNS = 4096, 128, 53
_KERNEL = ("/proc/", "/dev/", "/sys/")
_WRITING = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_RDWR
_USES = {"write": Use.WRITE, "make": Use.WRITE | Use.DIRECTORY, "read": Use.READ, "see": Use.SEE}
_OF_SOCKETS = {"connect": Use.CONNECT, "bind": Use.WRITE}
_FAMILIES = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}
"""Offset and size of the address in `struct sockaddr_in` and `sockaddr_in6`."""


class _Look(NamedTuple):
    """The positions of a call's arguments that give a path and its use; negative if a call has none."""

    directory: int
    path: int
    use: str
    flags: int


def looks_of(machine: str) -> dict[int, list[_Look]]:
    """The arguments to look at in each watched call of a machine, by the call's number; raises `ValueError`."""
    column, found = 1 + list(ARCHITECTURES).index(machine), dict[int, list[_Look]]()
    for row in tomllib.loads((files("daemon.sandbox") / "watched.toml").read_text(encoding="utf-8"))["calls"]:
        found.setdefault(row[column], []).append(_Look(*row[3:]))
    found.pop(-1, None)
    return found


def watched_calls(machine: str) -> bytes:
    """The filter that the stub installs, which makes watched calls wait for `watch`; raises `ValueError`."""
    numbers = sorted(looks_of(machine))
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 0, len(numbers) + 1, ARCHITECTURES[machine]),
        (_LOAD, 0, 0, _NUMBER),
        *((_EQUAL, len(numbers) - at, 0, each) for at, each in enumerate(numbers)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NOTIFY),
    ]
    return b"".join(struct.pack("<HBBI", *each) for each in steps)


class FileWatch:
    """Collects the files and addresses that a watched tree of processes uses."""

    def __init__(self, machine: str, most: int = MAX_PATHS) -> None:
        self._looks = looks_of(machine)
        self._most = most
        self._paths = dict[str, Use]()
        self._addresses = dict[str, int]()
        self._missed = 0

    def seen(self) -> Observations:
        """Everything seen so far. Blocks: checks whether the paths still exist."""
        paths = self._paths.copy()
        for path in paths:
            if not os.path.lexists(path):
                paths[path] |= Use.GONE
        return Observations(paths=paths, addresses=self._addresses.copy(), missed=self._missed)

    def watch(self, listener: int) -> None:
        """Handle every watched call until the last process has ended; closes the listener. Blocks."""
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        try:
            while waiting.poll()[0][1] & select.POLLIN:
                # Its process may be killed meanwhile, or a signal interrupt the call, which then comes again.
                with suppress(FileNotFoundError, InterruptedError):
                    self._next(listener)
        finally:
            os.close(listener)

    def _next(self, listener: int) -> None:
        call = bytearray(_CALL.size)
        fcntl.ioctl(listener, _TAKE, call)
        number, pid, _, name, _, _, *arguments = _CALL.unpack(call)
        try:
            for look in self._looks.get(name, ()):
                self._see(pid, look, arguments)
        except (OSError, ValueError, OverflowError):
            self._missed += 1
        finally:
            fcntl.ioctl(listener, _ANSWER, _GO_ON.pack(number, 0, 0, _CONTINUE))

    def _see(self, pid: int, look: _Look, arguments: Sequence[int]) -> None:
        """Note one path or address of a call; raises `OSError` if it cannot be read."""
        given = arguments[look.flags]
        if use := _OF_SOCKETS.get(look.use):
            self._addressed(pid, _memory(pid, arguments[look.path], min(given, _ADDRESS_BYTES)), use)
            return
        path = _memory(pid, arguments[look.path], _PATH_BYTES).partition(b"\0")[0]
        if not path:
            return  # the call is about a descriptor
        if look.use == "openat2":
            given = int.from_bytes(_memory(pid, given, 8), sys.byteorder)
        holder = _HERE if look.directory < 0 else arguments[look.directory] & _INT
        holding = b"cwd" if holder == _HERE else b"fd/%d" % holder
        self._used(_whole(pid, path, holding), _use(look.use, given))

    def _used(self, path: str, use: Use) -> None:
        """Note a path that exists or may be created; no other path is needed."""
        if path.startswith(_KERNEL) or "/__pycache__" in path:
            return
        real = os.path.realpath(path)
        real.encode()  # no configuration can have a name that is not UTF-8: it counts as missed
        there = os.path.lexists(real)
        if use is _USES["make"] and there:
            use = Use.SEE
        may_write = os.access(real if there else os.path.dirname(real), os.W_OK)
        if may_write if Use.WRITE in use else there:
            use |= Use.DIRECTORY if os.path.isdir(real) else Use(0)
            self._paths[real] = self._paths.get(real, Use(0)) | use
        if len(self._paths) > self._most:
            self._paths = folded(self._paths)

    def _addressed(self, pid: int, address: bytes, use: Use) -> None:
        """Note a socket's file, or an address outside: a server that connects directly ignores proxies."""
        family = int.from_bytes(address[:2], sys.byteorder)
        # One without a name, or with an abstract name, has no file.
        if family == socket.AF_UNIX and (path := address[2:].partition(b"\0")[0]):
            self._used(_whole(pid, path), use)
        if family not in _FAMILIES or use is not Use.CONNECT:
            return
        start, size = _FAMILIES[socket.AddressFamily(family)]
        host, port = ip_address(address[start : start + size]), int.from_bytes(address[2:4])
        if not host.is_loopback and port != _DNS and len(self._addresses) < MAX_ADDRESSES:
            self._addresses[f"{host}:{port}"] = self._addresses.get(f"{host}:{port}", 0) + 1


def folded(paths: Mapping[str, Use]) -> dict[str, Use]:
    """Replaces the files and directories in each directory by one line for that directory."""
    found = dict[str, Use]()
    for path, use in paths.items():
        holder = os.path.dirname(path)
        found[holder] = found.get(holder, Use(0)) | use | Use.DIRECTORY
    return found


def _whole(pid: int, path: bytes, holding: bytes = b"cwd") -> str:
    """A path of a process, whose link `holding` leads to the directory where relative paths begin."""
    base = b"/" if path.startswith(b"/") else os.readlink(b"/proc/%d/%b" % (pid, holding))
    return os.fsdecode(os.path.join(base, path))


def _memory(pid: int, place: int, size: int) -> bytes:
    """Bytes of a process's memory; fewer if its last page ends before."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:  # noqa: PTH123
        return os.pread(file.fileno(), size, place)


def _use(word: str, flags: int) -> Use:
    if not word.startswith("open"):
        return _USES[word]
    if flags & _WRITING:
        return Use.WRITE
    return Use.SEE if flags & os.O_PATH else Use.READ
