"""Makes a file system, and a network whose only way out is mcpd's proxy; sends the daemon the proxy's socket.

`python -I -S stub.py FD`: FD is a unix socket to the daemon. For each start the daemon sends a file and a
socket. The file has the steps that change the file system (`bubblewrap.stub_steps`), and is complete once a
byte arrives through the socket. To the socket the stub sends the listening socket or a failure's text. Given a
hexadecimal filter (`watching.watched_calls`) or `--`, and a program, the stub becomes the program in the
network, and FD gets the filter's listener. It imports the standard library alone.
"""

import ctypes
import errno
import fcntl
import os
import signal
import socket
import stat
import sys

PORT = 3128
"""The proxy's port on 127.0.0.1, inside the namespace only: the usual port of proxies."""

TEMPORARY_BYTES = 1024 * 1024 * 1024
"""Most bytes of each file system in memory: a browser needs 100 MB; the default is half the memory."""

_BACKLOG = 64
"""Most connections that the kernel queues until the daemon accepts them."""

_NAMESPACES = 0x10000000 | 0x40000000 | 0x00020000
"""CLONE_NEWUSER, CLONE_NEWNET and CLONE_NEWNS."""

_SET_FLAGS, _UP = 0x8914, 1
"""SIOCSIFFLAGS and IFF_UP."""

_PRIVATE = 0x44000
"""MS_PRIVATE with MS_REC."""

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

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

_SECCOMP, _NO_NEW_PRIVILEGES = {"x86_64": 317, "aarch64": 277}, 38
"""seccomp(2) by machine, and PR_SET_NO_NEW_PRIVS."""

_LISTENER, _KILLABLE = 1 << 3, 1 << 5
"""SECCOMP_FILTER_FLAG_NEW_LISTENER, and _WAIT_KILLABLE_RECV."""

_LIBRARY = ctypes.CDLL(None, use_errno=True)


class _Descriptor(int):
    def __del__(self) -> None:
        os.close(self)


def main(arguments: list[str]) -> int:
    """Fork for each start, or become a program; returns when the daemon ends, or after a failure."""
    descriptor, *command = arguments
    channel = socket.socket(fileno=int(descriptor))
    return _become(channel, *command) if command else _serve(channel)


def _serve(channel: socket.socket) -> int:
    """Fork for each start: a new interpreter would take 10 ms."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while (asked := socket.recv_fds(channel, 1, 2))[0]:
        file, own = asked[1]
        try:
            forked = os.fork()
        except OSError as error:  # which later starts may be spared
            forked = os.write(own, b"\0-%d" % (error.errno or 0))
        if forked == 0:
            channel.close()
            return _hold(socket.socket(fileno=own), file)
        os.close(file)
        os.close(own)
    return 0


def _hold(channel: socket.socket, file: int) -> int:
    """Make the namespaces for a start, and keep them until bubblewrap has entered them."""
    try:
        listening = _network()
        if not channel.recv(1):
            return 1  # the daemon has given this start up
        with open(file, "rb") as opened:
            _mount(*opened.read().split(b"\0"))
        socket.send_fds(channel, [b"\0%d" % os.getpid()], [listening.fileno()])
    except OSError as error:
        channel.send(str(error).encode(errors="replace"))
        return 1
    channel.send(b"\0")  # lets bubblewrap go on (`--block-fd`), which then hangs up
    channel.recv(1)
    return 0


def _network() -> socket.socket:
    """Enter new namespaces with a separate network; returns the proxy's socket there."""
    _separate()
    _bring_up()
    return socket.create_server(("127.0.0.1", PORT), backlog=_BACKLOG)


def _environment() -> dict[bytes, bytes]:
    """The environment as it was passed: in the C locale Python adds LC_CTYPE to its own copy."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        return dict(each.split(b"=", 1) for each in file.read().split(b"\0") if b"=" in each)


def _separate() -> None:
    user, group = os.geteuid(), os.getegid()
    _system("unshare", _NAMESPACES)
    files = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in files.items():
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(text)


def _system(call: str, *arguments: object) -> int:
    result: int = _LIBRARY[call](*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call)
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
        return _open(place), stat.S_IFDIR
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
        os.symlink(source, name, dir_fd=_place(holder))
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
    return tree, stat.S_IFMT(os.fstat(tree).st_mode)


def _place(path: bytes, type_: int = stat.S_IFDIR) -> _Descriptor:
    try:
        return _open(path)
    except FileNotFoundError:
        holder, _, name = path.rpartition(b"/")
        _make(_place(holder), name, type_)
        return _open(path)


def _make(directory: int, name: bytes, type_: int) -> None:
    if type_ == stat.S_IFDIR:
        os.mkdir(name, 0o755, dir_fd=directory)
    else:
        os.mknod(name, dir_fd=directory)


def _open(path: bytes) -> _Descriptor:
    """Open a file or directory, but no link and nothing behind a link."""
    try:
        return _Descriptor(_system("syscall", _OPENAT2, _HERE, path, _WITHOUT_LINKS, len(_WITHOUT_LINKS)))
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    # RestrictSUIDSGID= of systemd refuses openat2(2), whose flags a filter cannot see.
    found = _Descriptor(os.open("/", _PATH))
    for name in filter(None, path.split(b"/")):
        found = _Descriptor(os.open(name, _PATH, dir_fd=found))
        if stat.S_ISLNK(os.fstat(found).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return found


def _restrict(mount: int, flags: int, how: int, without: int = 0) -> None:
    attributes = b"".join(each.to_bytes(8, sys.byteorder) for each in (flags, without, 0, 0))
    _system("syscall", _MOUNT_SETATTR, mount, b"", _OF_DESCRIPTOR | how, attributes, len(attributes))


def _watched(code: bytes) -> int:
    """Make the filter's calls wait for the daemon from now on; returns the listener (seccomp(2))."""
    _system("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    kept = ctypes.create_string_buffer(code)
    # A `struct sock_fprog`.
    program = b"".join(each.to_bytes(8, sys.byteorder) for each in (len(code) // 8, ctypes.addressof(kept)))
    call = _SECCOMP[os.uname().machine]
    # A signal that a program handles would otherwise send its call again and again: Linux 5.19 has a flag.
    try:
        return _system("syscall", call, 1, _LISTENER | _KILLABLE, program)
    except OSError:
        return _system("syscall", call, 1, _LISTENER, program)


def _bring_up() -> None:
    request = b"lo".ljust(16, b"\0") + _UP.to_bytes(2, sys.byteorder)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, request.ljust(40, b"\0"))


def _become(channel: socket.socket, watched: str, program: str, *arguments: str) -> int:
    """Execute a program with the proxy as its network, and with the default for signals that Python ignores."""
    try:
        environment, listening = _environment(), _network()
        filters = () if watched == "--" else (_watched(bytes.fromhex(watched)),)
        socket.send_fds(channel, [b"\0%d" % os.getpid()], [listening.fileno(), *filters])
    except OSError as error:
        channel.send(str(error).encode(errors="replace"))
        return 1
    channel.close()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, (program, *arguments), environment)  # noqa: S606 - a shell would change the words
    except OSError as error:
        sys.stderr.write(f"{program}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
