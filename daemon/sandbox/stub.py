"""Makes a network namespace whose only way out is mcpd's proxy, hands the socket out, and becomes the program.

`python -I -S stub.py FD MOUNTS -- PROGRAM ARGUMENTS...`: FD is a unix socket to the daemon, which gets the
listening socket, or the text of a failure; the file MOUNTS has the steps of a home directory
(`bubblewrap.home_view`). In place of `--` may stand a filter in hexadecimal (`watching.watched_calls`), whose
listener the daemon gets as well. It stands alone, and imports modules in C where it can: `socket`, `signal` and
`pathlib` take longer to import than Python to start.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import ctypes
import fcntl
import os
import sys

PORT = 3128
"""The proxy's port on 127.0.0.1, inside the namespace alone: the usual one of proxies."""

_BACKLOG = 64
"""Connections that the kernel keeps until the daemon accepts them."""

_NAMESPACES = 0x10000000 | 0x40000000 | 0x00020000
"""CLONE_NEWUSER, CLONE_NEWNET and CLONE_NEWNS."""

_SET_FLAGS, _UP, _SOL_SOCKET, _SCM_RIGHTS = 0x8914, 1, 1, 1
"""SIOCSIFFLAGS, IFF_UP and the kernel's numbers for passing descriptors."""


_PRIVATE, _BIND, _UNBINDABLE = 0x44000, 0x5000, 0x20000
"""MS_PRIVATE and MS_BIND, each with MS_REC; MS_UNBINDABLE."""

_READ_ONLY, _NOTHING_ODD = 1, 2 | 4
"""MOUNT_ATTR_RDONLY; _NOSUID with _NODEV: alike for mount(2) and mount_setattr(2)."""

_MOUNT_SETATTR, _AT_FDCWD, _RECURSIVELY = 442, -100, 0x8000
"""The call's number, alike on all machines, and its flags."""


_SECCOMP, _NO_NEW_PRIVILEGES = {"x86_64": 317, "aarch64": 277}, 38
"""seccomp(2) by machine, and PR_SET_NO_NEW_PRIVS."""

_LISTENER, _KILLABLE = 1 << 3, 1 << 5
"""SECCOMP_FILTER_FLAG_NEW_LISTENER, and _WAIT_KILLABLE_RECV."""


_libc: list[object] = []
"""The C library, once it is loaded."""


def main(arguments: list[str]) -> int:
    """Hand the listening socket over, then become the program; returns only if one of these fails."""
    descriptor, mounts, watched, program, *_ = arguments
    channel = _socket.socket(fileno=int(descriptor))
    try:
        environment = _environment()
        _separate()
        with open(int(mounts), "rb") as file:  # noqa: PTH123
            staging, *fields = file.read().split(b"\0")
        if fields:
            _mount(staging, fields)
        listening = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        _bring_up(listening.fileno())
        listening.bind(("127.0.0.1", PORT))
        listening.listen(_BACKLOG)
        passed = listening.fileno().to_bytes(4, sys.byteorder)
        if watched != "--":
            passed += _watched(bytes.fromhex(watched)).to_bytes(4, sys.byteorder)
        channel.sendmsg([b"\0"], [(_SOL_SOCKET, _SCM_RIGHTS, passed)])
    except OSError as error:
        channel.send(str(error).encode(errors="replace"))
        return 1
    listening.close()
    channel.close()
    return _become(program, arguments[3:], environment)


def _environment() -> dict[bytes, bytes]:
    """The environment as it was given: Python adds LC_CTYPE to its own where the locale is C."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        return dict(each.split(b"=", 1) for each in file.read().split(b"\0") if b"=" in each)


def _separate() -> None:
    """Enter a user namespace with the same user and group, and namespaces of its networks and mounts."""
    user, group = os.geteuid(), os.getegid()
    _system("unshare", _NAMESPACES)
    files = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in files.items():
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(text)


def _system(call: str, *arguments: object) -> None:
    if not _libc:
        _libc.append(ctypes.CDLL(None, use_errno=True))
    if getattr(_libc[0], call)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call)


def _mount(staging: bytes, fields: list[bytes]) -> None:
    """Fill a new file system at `staging` by steps of three fields each."""
    _system("mount", b"none", b"/", None, _PRIVATE, None)
    cover = os.path.dirname(staging)  # noqa: PTH120
    for place in (cover, staging):
        os.makedirs(place, exist_ok=True)  # noqa: PTH103
        _system("mount", b"tmpfs", place, b"tmpfs", _NOTHING_ODD, b"mode=0755")
    # Otherwise bubblewrap copies the whole view once more with the directory / (measured: half of its time).
    _system("mount", b"none", cover, None, _UNBINDABLE, None)
    for what, source, place in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
        if what == b"dir":
            os.makedirs(place, exist_ok=True)  # noqa: PTH103
        elif what == b"file":
            os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
            os.close(os.open(place, os.O_CREAT | os.O_NOFOLLOW | os.O_RDONLY, 0o600))
        elif what == b"link":
            os.symlink(source, place)  # noqa: PTH211
        elif what == b"hide":
            kind = (b"tmpfs", b"tmpfs", 0) if source == b"dir" else (b"/dev/null", None, _BIND)
            _system("mount", kind[0], place, kind[1], kind[2], None)
            _restrict(place, _READ_ONLY)
        else:
            try:
                _bind(source, place)
            except OSError:
                if what == b"write":
                    raise
                continue  # it went, or its file system is closed to us: it is not shown
            _restrict(place, _READ_ONLY if what == b"read" else 0)
    _restrict(staging, _READ_ONLY, deep=False)


def _bind(source: bytes, place: bytes) -> None:
    """Show a file or directory at a place; neither may be a link, or behind one, by now."""
    held = list[int]()
    try:
        for path in (source, place):
            held.append(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
            if os.readlink(b"/proc/self/fd/%d" % held[-1]) != path:  # noqa: PTH115
                raise OSError(f"{os.fsdecode(path)} has become another file")
        _system("mount", *(b"/proc/self/fd/%d" % each for each in held), None, _BIND, None)
    finally:
        for each in held:
            os.close(each)


def _restrict(place: bytes, flags: int, *, deep: bool = True) -> None:
    """Restrict a mount and those below it: mount_setattr(2), of Linux 5.12."""
    attributes = (flags | _NOTHING_ODD).to_bytes(8, sys.byteorder).ljust(32, b"\0")
    _system("syscall", _MOUNT_SETATTR, _AT_FDCWD, place, _RECURSIVELY if deep else 0, attributes, 32)


def _watched(code: bytes) -> int:
    """Have the filter's calls wait for the daemon, from now on; returns the listener (seccomp(2))."""
    _system("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    kept = ctypes.create_string_buffer(code)
    # A `struct sock_fprog`.
    program = b"".join(each.to_bytes(8, sys.byteorder) for each in (len(code) // 8, ctypes.addressof(kept)))
    call = _SECCOMP[os.uname().machine]
    # A signal that a program handles would otherwise send its call again and again: Linux 5.19 has a flag.
    for flags in (_LISTENER | _KILLABLE, _LISTENER):
        listener = ctypes.CDLL(None, use_errno=True).syscall(call, 1, flags, program)
        if listener >= 0:
            return int(listener)
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "seccomp")


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
