"""A start in a sandbox: what the daemon prepares before it, gets from the stub, and reads after a failure."""

from __future__ import annotations

import atexit
import fcntl
import os
import platform
import shutil
import socket
import subprocess
import termios
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import msgspec
import trio

from daemon.config.config_model import Server
from daemon.config.hosts import ANY, HostRules
from daemon.config.sandbox_keys import SandboxMode, SandboxRules
from daemon.errors import CannotStart, ConnectionLost
from daemon.kit.later import later
from daemon.processes import marks
from daemon.processes.children import SHORTAGES, not_found
from daemon.sandbox import bubblewrap, egress, policy
from daemon.sandbox.policy import DaemonPlaces

if TYPE_CHECKING:
    from daemon.sandbox import learning, watching
else:  # Most daemons never watch a server.
    learning, watching = later("daemon.sandbox.learning"), later("daemon.sandbox.watching")

T = TypeVar("T")

PROGRAMS = {"bwrap": "bubblewrap (bwrap)", "nsenter": "nsenter (of util-linux)"}
"""The program that makes sandboxes, and the one that enters what the stub has made."""

DATA = "MCPD_DATA_DIR"
"""The variable that names the server's own directory inside."""

_FAILED = 1
"""The exit status of bubblewrap and of the stub that cannot make a sandbox."""

STATUS_BYTES = 4096
"""Bytes of bubblewrap's reports: two lines of JSON."""


class Lesson:
    """A server that runs without its sandbox, but watched; `rules` are those that it learns for."""

    def __init__(self, server: Server, rules: SandboxRules) -> None:
        self.rules, self.before = rules, server.written.confined
        self.enough = trio.Event()
        self.policies: list[policy.Policy] = []
        self.egress = egress.Egress(server.name, HostRules(allowed=(ANY,)), lambda *_refused: None)
        self._watching = watching.FileWatch(platform.machine())

    def begin(self, listener: int) -> None:
        """Watch a tree of processes until it has ended."""
        Thread(target=self._watching.watch, args=(listener,), name="watching", daemon=True).start()

    def prepare(
        self, server: Server, env: Mapping[str, str], around: DaemonPlaces, held: ExitStack, given: ExitStack
    ) -> SandboxedStart:
        """Prepare a start without a sandbox, but watched, and with the proxy as its network."""
        path = env.get("PATH", os.defpath)
        made = policy.resolve(server, self.rules, around, path)
        self.policies.append(made)
        os.makedirs(made.data, mode=0o700, exist_ok=True)  # noqa: PTH103
        inside = {**env, DATA: made.data, **egress.proxy_environment(HostRules(allowed=(ANY,)))}
        ours, theirs = socket.socketpair()
        held.enter_context(ours)
        given.callback(theirs.close)
        passed = theirs.fileno(), in_memory("stub", bubblewrap.compiled_stub(), given)
        watched = watching.watched_calls(platform.machine()).hex()
        words = [*egress.stub_command(*passed, watched, policy.command_of(server, around, path)), *server.args]
        return SandboxedStart(words=words, env=inside, passed=passed, given=given, lesson=self, channel=ours)

    def learned(self, registries: Iterable[str]) -> learning.Learned | None:
        """The entry for what was seen so far; None if nothing has started yet. Blocks."""
        if not self.policies:
            return None
        hosts = {host: each.count for host, each in self.egress.allowed.hosts.items()}
        refused = {host: str(each.reason) for host, each in self.egress.refused.hosts.items()}
        seen = attrs.evolve(self._watching.seen(), hosts=hosts, refused=refused)
        # Instances differ in their workspaces and data.
        places = {path: access for each in self.policies for path, access in each.places.items()}
        own = {inside: outside for each in self.policies for inside, outside in each.own.items()}
        allowed_to_all = msgspec.structs.replace(self.policies[-1], places=places, own=own)
        return learning.learned(seen, allowed_to_all, registries, self.before)


@attrs.frozen(kw_only=True)
class SandboxedStart:
    """A prepared start: the command line, and what belongs to it."""

    words: list[str] = attrs.field(repr=False)
    env: Mapping[str, str] = attrs.field(repr=False)
    passed: Sequence[int]
    """Descriptors for the child."""
    given: ExitStack
    """Closes our copies of `passed`, once the child has started."""
    listening: socket.socket | None = None
    """The socket on which programs reach the proxy; None without a network, and for a lesson."""
    status: int | None = None
    """Bubblewrap reports here that the program runs, and its exit."""
    lesson: Lesson | None = None
    channel: socket.socket | None = None
    """The stub of a lesson sends its sockets here, before it becomes the program."""

    async def listener(self) -> trio.SocketListener | None:
        """The socket for the proxy of the started sandbox; None if it has no network.

        Raises `CannotStart` if a lesson's stub failed: the child then ends by itself.
        """
        listening = self.listening
        if self.lesson is not None and self.channel is not None:
            _, (made, watched) = await trio.to_thread.run_sync(egress.received, self.channel)
            self.lesson.begin(watched)
            listening = socket.socket(fileno=made)
        return None if listening is None else trio.SocketListener(trio.socket.from_stdlib_socket(listening))

    def failure(self, status: int, said: str) -> CannotStart | None:
        """The error if bubblewrap ended before the program ran; `said` is its last line on stderr. Ask once."""
        if self.status is None or status < 0:  # bubblewrap itself can be killed, too
            return None
        with suppress(BlockingIOError):
            reported = os.read(self.status, STATUS_BYTES)
            if b'"exit-code"' in reported or (reported and status != _FAILED):
                return None
        return policy.unmade(said.removeprefix("bwrap: ") or "bubblewrap has ended")


@asynccontextmanager
async def prepared(
    server: Server, env: Mapping[str, str], around: DaemonPlaces, lesson: Lesson | None = None
) -> AsyncIterator[SandboxedStart]:
    """Prepare the start of a confined server, or of one that is learned; on exit, close what belonged to it.

    Raises CannotStart: no such command, or no sandbox (`sandbox-unavailable`); ConnectionLost: short of a
    resource.
    """
    with ExitStack() as held, ExitStack() as given:
        prepare = lesson.prepare if lesson else _prepare
        yield await _in_thread(server, prepare, server, env, around, held, given)


async def _in_thread(server: Server, function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a thread, and raise the errors of a start for those of the system."""
    try:
        return await trio.to_thread.run_sync(function, *arguments)
    except OSError as error:
        if error.errno is None:
            raise not_found(server.command or "", server.cwd) from None
        if error.errno in SHORTAGES:
            raise ConnectionLost(f"no sandbox can be made: {error}", SHORTAGES[error.errno]) from None
        raise policy.unmade(str(error)) from None


def _prepare(
    server: Server, env: Mapping[str, str], around: DaemonPlaces, held: ExitStack, given: ExitStack
) -> SandboxedStart:
    rules, path = server.confined, env.get("PATH", os.defpath)
    assert rules is not None
    (bwrap, nsenter), code = requirements()
    command = policy.command_of(server, around, path)
    has_network = rules.mode is SandboxMode.HOME or bool(rules.host_rules.allowed)
    stub = Stub(given) if has_network else None  # which leaves for its namespaces meanwhile
    made = policy.resolve(server, rules, around, path)
    for directory in made.own.values():
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib takes 7 ms
    # The stub and bubblewrap are no part of the sandbox: they must load no library that the server has made.
    loading = {name: value for name, value in env.items() if name.startswith(("LD_", "GLIBC_"))}
    inside = {name: value for name, value in env.items() if name not in loading} | {DATA: made.data}
    status, reports = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    held.callback(os.close, status)
    given.callback(os.close, reports)
    filtering = in_memory("filter", code, given)
    passed, enter, listening, steps = [filtering, reports], list[str](), None, bubblewrap.mounts(made)
    options = bubblewrap.arguments(steps if stub is None else None)
    if stub is not None:
        entering, listening = stub.namespaces(steps)
        enter = [nsenter, *entering]
        held.enter_context(listening)
        passed.append(stub.channel.fileno())
        options += ["--block-fd", str(stub.channel.fileno())]
        inside |= egress.proxy_environment(rules.host_rules)
    options += ["--seccomp", str(filtering), "--json-status-fd", str(reports), "--chdir", made.cwd]
    options += [word for name, value in loading.items() for word in ("--setenv", name, value)]
    passed.append(listed := in_memory("arguments", ended(options), given))
    words = [*enter, bwrap, "--args", str(listed), "--", command, *server.args]
    return SandboxedStart(
        words=words, env=inside, passed=passed, given=given, listening=listening, status=status
    )


_turn = Lock()
_forker: list[tuple[subprocess.Popen[bytes], socket.socket]] = []
"""The process that forks this daemon's stubs, with its channel; it ends with the channel."""


class Stub:
    """A forked stub, which makes the namespaces of one start; blocks."""

    def __init__(self, held: ExitStack) -> None:
        """Fork it; raises `OSError`. It ends at the latest when `held` is closed."""
        self.channel, theirs = socket.socketpair()
        held.enter_context(self.channel)
        self._file = in_memory("steps", b"", held)
        with theirs, _turn:
            if not _forker or _forker[0][0].poll() is not None:
                _end_forker()
                _forker.append(_begun())
            self._by = _forker[0]
            socket.send_fds(self._by[1], [b"\0"], [self._file, theirs.fileno()])

    def namespaces(self, steps: Sequence[bubblewrap.Mount]) -> tuple[list[str], socket.socket]:
        """The words behind `nsenter` that enter the namespaces, and the proxy's socket; raises as `received`.

        The stub ends once the channel is closed, by bubblewrap (`--block-fd`) and by the daemon.
        """
        os.pwrite(self._file, bubblewrap.stub_steps(steps), 0)
        try:
            pid, (listening,) = egress.received(self.channel)
        except CannotStart as error:
            with _turn:
                if error.reason.data["problem"] == egress.SILENT and self._by in _forker and _hangs():
                    _end_forker()  # the next start has another one
            raise
        words = ["--target", str(pid), "--user", "--mount", "--net", "--preserve-credentials"]
        return words, socket.socket(fileno=listening)


def _hangs() -> bool:
    """Whether the forker has not taken what was sent; other starts need one that is only slow."""
    return any(any(fcntl.ioctl(channel, termios.TIOCOUTQ, bytes(4))) for _, channel in _forker)


def _begun() -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    marks.started(mark := marks.new(), marks.ELSEWHERE)
    try:
        with theirs, ExitStack() as held:
            passed = theirs.fileno(), in_memory("stub", bubblewrap.compiled_stub(), held)
            words, silent = egress.stub_command(*passed), subprocess.DEVNULL
            options: Any = {"stdin": silent, "stdout": silent, "stderr": silent, "start_new_session": True}
            process = subprocess.Popen(words, pass_fds=passed, env={}, cwd="/", **options)
        marks.helpers.add(process.pid)
    finally:
        marks.forget(mark)
    return process, ours


@atexit.register
def _end_forker() -> None:
    while _forker:
        process, channel = _forker.pop()
        channel.close()
        process.kill()
        process.wait()
        marks.helpers.discard(process.pid)


def requirements(path: str | None = None) -> tuple[list[str], bytes]:
    """The programs of sandboxes, searched in `path` or the daemon's own, and the filter; raises CannotStart."""
    programs = [shutil.which(each, path=path) for each in PROGRAMS]
    for name, program in zip(PROGRAMS, programs, strict=True):
        if program is None:
            raise policy.unavailable(f"{PROGRAMS[name]} is not installed", problem=name)
    code = bubblewrap.filter_for(platform.machine())
    if code is None:
        raise policy.unavailable(f"mcpd has no filter for {platform.machine()}", problem="machine")
    return [*filter(None, programs)], code


def ended(texts: Iterable[str]) -> bytes:
    """Texts, each ended by a NUL."""
    return os.fsencode("\0".join([*texts, ""]))


def in_memory(name: str, content: bytes, held: ExitStack) -> int:
    """A file in memory with a content, read from its beginning."""
    descriptor = os.memfd_create(name)
    held.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
