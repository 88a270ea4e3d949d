"""Makes a file system, and a network whose only way out is mcpd's proxy; sends the daemon the proxy's socket.

`python -I -S /proc/self/fd/FILE FD FILE`: FILE contains this module, FD is a unix socket to the daemon. For
each start the daemon sends a file and a socket. The file has the steps that change the file system
(`bubblewrap.stub_steps`), and is complete once a byte arrives through the socket. To the socket the stub sends
the listening socket or a failure's text. Given a hexadecimal filter (`watching.watched_calls`) or `--`, and a
program, the stub becomes the program in the network, and FD gets the filter's listener. It imports only C:
`os`, `ctypes`, `socket` and `signal` take longer to import than Python to start.
"""

import _ctypes
import _signal  # type: ignore[import-not-found]
import _socket
import posix
import sys

PORT = 3128
"""The proxy's port on 127.0.0.1, inside the namespace only: the usual port of proxies."""

TEMPORARY_BYTES = 1024 * 1024 * 1024
"""Most bytes of each file system in memory: a browser needs 100 MB; the default is half the memory."""

_BACKLOG = 64
"""Most connections that the kernel queues until the daemon accepts them."""

_NAMESPACES = 0x10000000 | 0x40000000 | 0x00020000
"""CLONE_NEWUSER, CLONE_NEWNET and CLONE_NEWNS."""

_SET_FLAGS, _UP, _SOL_SOCKET, _SCM_RIGHTS = 0x8914, 1, 1, 1
"""SIOCSIFFLAGS, IFF_UP and the kernel's numbers for passing descriptors."""

_PRIVATE, _BIND = 0x44000, 0x5000
"""MS_PRIVATE and MS_BIND, each with MS_REC."""

_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8
"""MOUNT_ATTR_RDONLY, _NOSUID, _NODEV and _NOEXEC: the same for mount(2) and mount_setattr(2)."""

_READABLE = _READ_ONLY | _NO_SETUID | _NO_DEVICES
_FLAGS = {b"read": _READABLE, b"write": _NO_SETUID | _NO_DEVICES, b"device": _NO_SETUID}
"""Steps that show one file or directory, each with its flags."""

_SYSTEMS = {
    b"empty": (b"tmpfs", _NO_SETUID | _NO_DEVICES, b"mode=0555"),
    b"own": (b"tmpfs", _NO_SETUID | _NO_DEVICES, b"mode=0755,size=%d" % TEMPORARY_BYTES),
    b"terminals": (b"devpts", _NO_SETUID | _NO_PROGRAMS, b"newinstance,ptmxmode=0666,mode=620"),
}
"""Steps that mount a new file system: its type, flags and options."""

_OPEN_TREE, _MOVE_MOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 437, 442
"""System calls of Linux 5.2, 5.6 and 5.12, whose numbers are the same on all machines."""

_HERE, _OF_DESCRIPTOR, _RECURSIVELY, _MOVE = -100, 0x1000, 0x8000, 0x44
"""AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE; MOVE_MOUNT_F_EMPTY_PATH with _T_EMPTY_PATH."""

_COPY = 0x80001 | _RECURSIVELY | _OF_DESCRIPTOR | 0x100
"""OPEN_TREE_CLONE and _CLOEXEC, AT_SYMLINK_NOFOLLOW."""

_WITHOUT_LINKS = b"".join(each.to_bytes(8, sys.byteorder) for each in (0o12000000, 0, 4))
"""`struct open_how` with O_PATH and O_CLOEXEC, and RESOLVE_NO_SYMLINKS."""

_TYPE, _DIRECTORY, _LINK = 0o170000, 0o040000, 0o120000
"""S_IFMT, S_IFDIR and S_IFLNK."""

_ENOSYS, _ELOOP = 38, 40

_PATH = posix.O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC

_SECCOMP, _NO_NEW_PRIVILEGES = {"x86_64": 317, "aarch64": 277}, 38
"""seccomp(2) by machine, and PR_SET_NO_NEW_PRIVS."""

_LISTENER, _KILLABLE = 1 << 3, 1 << 5
"""SECCOMP_FILTER_FLAG_NEW_LISTENER, and _WAIT_KILLABLE_RECV."""


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO


class _Pointer(_ctypes._SimpleCData):  # type: ignore[type-arg]  # noqa: SLF001 - as `ctypes.c_char_p`
    _type_ = "z"


class _Descriptor(int):
    def __del__(self) -> None:
        posix.close(self)


_LIBRARY = _ctypes.dlopen(None, 2)  # type: ignore[arg-type]
"""The C library, with RTLD_NOW."""


def main(arguments: list[str]) -> int:
    """Fork for each start, or become a program; returns when the daemon ends, or after a failure."""
    descriptor, file, *command = arguments
    posix.close(int(file))
    channel = _socket.socket(fileno=int(descriptor))
    return _become(channel, *command) if command else _serve(channel)


def _serve(channel: _socket.socket) -> int:
    """Fork for each start, as a new interpreter would take 10 ms."""
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    while (asked := channel.recvmsg(1, 64))[0]:
        for _, _, passed in asked[1]:
            file, own = (int.from_bytes(each, sys.byteorder) for each in (passed[:4], passed[4:]))
            try:
                forked = posix.fork()
            except OSError as error:  # which later starts may be spared
                forked = posix.write(own, b"\0-%d" % (error.errno or 0))
            if forked == 0:
                channel.close()
                return _hold(_socket.socket(fileno=own), file)
            posix.close(file)
            posix.close(own)
    return 0


def _hold(channel: _socket.socket, file: int) -> int:
    """Make the namespaces for a start, and keep them until bubblewrap has entered them."""
    try:
        listening = _network()
        if not channel.recv(1):
            return 1  # the daemon has given this start up
        with open(file, "rb") as opened:
            _mount(*opened.read().split(b"\0"))
        _hand_over(channel, listening.fileno())
    except OSError as error:
        channel.send(str(error).encode(errors="replace"))
        return 1
    channel.send(b"\0")  # lets bubblewrap go on (`--block-fd`), which then hangs up
    channel.recv(1)
    return 0


def _hand_over(channel: _socket.socket, *descriptors: int) -> None:
    passed = b"".join(each.to_bytes(4, sys.byteorder) for each in descriptors)
    channel.sendmsg([b"\0%d" % posix.getpid()], [(_SOL_SOCKET, _SCM_RIGHTS, passed)])


def _network() -> _socket.socket:
    """Enter new namespaces with a separate network; returns the proxy's socket there."""
    _separate()
    listening = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    _bring_up(listening.fileno())
    listening.bind(("127.0.0.1", PORT))
    listening.listen(_BACKLOG)
    return listening


def _environment() -> dict[bytes, bytes]:
    """The environment as it was passed: in the C locale Python adds LC_CTYPE to its own copy."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        return dict(each.split(b"=", 1) for each in file.read().split(b"\0") if b"=" in each)


def _separate() -> None:
    user, group = posix.geteuid(), posix.getegid()
    _system("unshare", _NAMESPACES)
    files = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in files.items():
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(text)


def _system(call: str, *arguments: object) -> int:
    result: int = _Function(_ctypes.dlsym(_LIBRARY, call))(*arguments)
    if result < 0:
        number = _ctypes.get_errno()
        raise OSError(number, posix.strerror(number), call)
    return result


def _mount(*fields: bytes) -> None:
    """Change the file system by steps of three fields each; everything else becomes read-only."""
    steps = [*zip(fields[::3], fields[1::3], fields[2::3], strict=False)]
    place = b"/"
    try:
        _system("mount", b"none", place, None, _PRIVATE, None)
        shown = list[tuple[_Descriptor, int] | None]()
        for what, source, place in steps:
            shown.append(_shown(what, source, place))  # before anything is covered
        _restrict(_open(place := b"/"), _READABLE, _RECURSIVELY)
        # Where no /proc can be written, the kernel makes bubblewrap none either.
        _restrict(_open(place := b"/proc"), 0, 0, without=_READ_ONLY)
        for (what, source, place), each in zip(steps, shown, strict=True):
            _take(what, source, place, each)
    except OSError as error:
        error.filename = place.decode(errors="replace")
        raise


def _shown(what: bytes, source: bytes, place: bytes) -> tuple[_Descriptor, int] | None:
    """The unattached mount of a step, or the directory whose entries it shows; each with its file type."""
    if what == b"show":
        return _open(place), _DIRECTORY
    if what not in _FLAGS:
        return None
    tree, type_ = _copy(_open(source), b"")
    _restrict(tree, _FLAGS[what], _RECURSIVELY)
    return tree, type_


def _take(what: bytes, source: bytes, place: bytes, shown: tuple[_Descriptor, int] | None) -> None:
    if what in _SYSTEMS:
        at, (kind, flags, options) = _place(place), _SYSTEMS[what]
        _system("mount", kind, b"/proc/self/fd/%d" % at, kind, flags, options)
    elif what == b"dir":
        _place(place)
    elif what == b"link":
        holder, _, name = place.rpartition(b"/")
        posix.symlink(source, name, dir_fd=_place(holder))
    elif what == b"close":
        _restrict(_open(place), _READABLE, 0)
    elif what == b"show":
        assert shown
        theirs, ours = shown[0], _open(place)
        for name in source.split(b"/"):
            try:
                tree, type_ = _copy(theirs, name)
                _make(ours, name, type_)
                _system("syscall", _MOVE_MOUNT, tree, b"", ours, name, _MOVE)
            except OSError:
                continue  # it went, or its file system is closed to us
    else:
        assert shown
        tree, type_ = shown
        _system("syscall", _MOVE_MOUNT, tree, b"", _place(place, type_), b"", _MOVE)


def _copy(directory: int, path: bytes) -> tuple[_Descriptor, int]:
    """Make an unattached mount of a file or directory; returns it with the file type."""
    tree = _Descriptor(_system("syscall", _OPEN_TREE, directory, path, _COPY))
    return tree, posix.fstat(tree).st_mode & _TYPE


def _place(path: bytes, type_: int = _DIRECTORY) -> _Descriptor:
    try:
        return _open(path)
    except FileNotFoundError:
        holder, _, name = path.rpartition(b"/")
        _make(_place(holder), name, type_)
        return _open(path)


def _make(directory: int, name: bytes, type_: int) -> None:
    if type_ == _DIRECTORY:
        posix.mkdir(name, 0o755, dir_fd=directory)
    else:
        posix.mknod(name, dir_fd=directory)


def _open(path: bytes) -> _Descriptor:
    """Open a file or directory, but no link and nothing behind a link."""
    try:
        return _Descriptor(_system("syscall", _OPENAT2, _HERE, path, _WITHOUT_LINKS, len(_WITHOUT_LINKS)))
    except OSError as error:
        if error.errno != _ENOSYS:
            raise
    # RestrictSUIDSGID= of systemd refuses openat2(2), whose flags a filter cannot see.
    found = _Descriptor(posix.open("/", _PATH))
    for name in filter(None, path.split(b"/")):
        found = _Descriptor(posix.open(name, _PATH, dir_fd=found))
        if posix.fstat(found).st_mode & _TYPE == _LINK:
            raise OSError(_ELOOP, posix.strerror(_ELOOP))
    return found


def _restrict(mount: int, flags: int, how: int, without: int = 0) -> None:
    attributes = b"".join(each.to_bytes(8, sys.byteorder) for each in (flags, without, 0, 0))
    _system("syscall", _MOUNT_SETATTR, mount, b"", _OF_DESCRIPTOR | how, attributes, len(attributes))


def _watched(code: bytes) -> int:
    """Make the filter's calls wait for the daemon from now on; returns the listener (seccomp(2))."""
    _system("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    kept = _Pointer(code)
    program = (len(code) // 8).to_bytes(8, sys.byteorder) + bytes(kept)  # a `struct sock_fprog`
    call = _SECCOMP[posix.uname().machine]
    # A signal that a program handles would otherwise send its call again and again: Linux 5.19 has a flag.
    try:
        return _system("syscall", call, 1, _LISTENER | _KILLABLE, program)
    except OSError:
        return _system("syscall", call, 1, _LISTENER, program)


def _bring_up(descriptor: int) -> None:
    request = b"lo".ljust(16, b"\0") + _UP.to_bytes(2, sys.byteorder)
    _system("ioctl", descriptor, _SET_FLAGS, request.ljust(40, b"\0"))


def _become(channel: _socket.socket, watched: str, program: str, *arguments: str) -> int:
    """Execute a program with the proxy as its network, and with the default for signals that Python ignores."""
    try:
        environment, listening = _environment(), _network()
        filters = () if watched == "--" else (_watched(bytes.fromhex(watched)),)
        _hand_over(channel, listening.fileno(), *filters)
    except OSError as error:
        channel.send(str(error).encode(errors="replace"))
        return 1
    channel.close()
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    try:
        posix.execve(program, (program, *arguments), environment)
    except OSError as error:
        sys.stderr.write(f"{program}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
