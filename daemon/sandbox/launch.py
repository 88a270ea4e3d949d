"""Prepares a start in a sandbox, receives the stub's descriptors, explains a failure, and tries a sandbox."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import signal
import socket
import termios
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple, Self

import attrs
import msgspec
import trio

from daemon.config.config_model import Server
from daemon.config.hosts import ANY
from daemon.config.sandbox_keys import SandboxMode, SandboxNetwork, SandboxRules, sandbox_in_force
from daemon.errors import CannotStart, ConnectionLost
from daemon.kit.later import later
from daemon.processes.children import SHORTAGES, ChildProcess, Children, not_found
from daemon.sandbox import bubblewrap, egress, policy
from daemon.sandbox.policy import DaemonPlaces

if TYPE_CHECKING:
    from daemon.sandbox import learning, watching
else:  # Most daemons never watch a server.
    learning, watching = later("daemon.sandbox.learning"), later("daemon.sandbox.watching")

PROGRAMS = {"bwrap": "bubblewrap (bwrap)", "nsenter": "nsenter (of util-linux)"}
"""The programs that make sandboxes, and enter namespaces that the stub has made."""

DATA = "MCPD_DATA_DIR"
"""The variable that names the server's own directory, inside the sandbox."""

_FAILED = 1
"""The exit status of bubblewrap and of the stub if they cannot make a sandbox."""

STATUS_BYTES = 4096
"""Most bytes of bubblewrap's reports, which are two lines of JSON."""

PROBE_SECONDS = 5.0
"""Seconds for a trial: it takes 25 ms, or seconds on a swapping machine."""

END_SECONDS = 0.5
"""Seconds for the process that forks stubs to end by itself, which takes milliseconds."""


class Lesson:
    """A server that runs watched, without its sandbox, to find the rules that it needs in a mode."""

    def __init__(self, server: Server, mode: SandboxMode) -> None:
        # With every host: a server's caches are its own, also those that it has not used yet.
        self.rules = SandboxRules(mode=mode, network=SandboxNetwork(allowed_domains=(ANY,)))
        self.before = server.written.confined
        self.enough = trio.Event()
        self.policies: list[policy.Policy] = []
        self.named = set[str]()
        self.egress = egress.Egress(server.name, self.rules.host_rules, lambda *_refused: None)
        self.watching = watching.FileWatch(platform.machine())

    def prepare(
        self, server: Server, env: Mapping[str, str], around: DaemonPlaces, held: ExitStack, given: ExitStack
    ) -> SandboxedStart:
        """Prepare a start that is watched, without a sandbox, and has the proxy as its network."""
        path = env.get("PATH", os.defpath)
        made = policy.resolve(server, self.rules, around, path)
        self.policies.append(made)
        values = (each.rpartition("=")[2] for each in (*server.args, *server.env.values()))
        found = (each for each in values if each.startswith("/") and os.path.exists(each))  # noqa: PTH110
        self.named.update(map(os.path.realpath, found))
        os.makedirs(made.data, mode=0o700, exist_ok=True)  # noqa: PTH103
        inside = {**env, DATA: made.data, **egress.proxy_environment(self.rules.host_rules)}
        ours, theirs = socket.socketpair()
        held.enter_context(ours)
        given.callback(theirs.close)
        watched = watching.watched_calls(platform.machine()).hex()
        words = [*egress.stub_command(theirs.fileno(), watched, made.command), *server.args]
        passed = [theirs.fileno()]
        return SandboxedStart(words=words, env=inside, passed=passed, given=given, lesson=self, channel=ours)

    def learned(self, registries: Iterable[str]) -> learning.Learned | None:
        """The entry for everything seen so far; None if nothing has started yet. Blocks."""
        if not self.policies:
            return None
        hosts = {host: each.count for host, each in self.egress.allowed.hosts.items()}
        refused = {host: str(each.reason) for host, each in self.egress.refused.hosts.items()}
        seen = attrs.evolve(self.watching.seen(), hosts=hosts, refused=refused, named=self.named)
        # Instances differ in their workspaces and data.
        places = {path: access for each in self.policies for path, access in each.places.items()}
        own = {inside: outside for each in self.policies for inside, outside in each.own.items()}
        allowed_to_all = msgspec.structs.replace(self.policies[-1], places=places, own=own)
        return learning.learned(seen, allowed_to_all, registries, self.before)


@attrs.frozen(kw_only=True)
class SandboxedStart:
    """A prepared start: the command line, and the descriptors and sockets that it uses."""

    words: list[str] = attrs.field(repr=False)
    env: Mapping[str, str] = attrs.field(repr=False)
    passed: Sequence[int]
    """Descriptors for the child."""
    given: ExitStack
    """Closes mcpd's copies of `passed` once the child has started."""
    listening: socket.socket | None = None
    """The socket on which programs reach the proxy; None without a network, and for a lesson."""
    status: int | None = None
    """Bubblewrap reports here that the program runs, and its exit."""
    stub: Stub | None = None
    """The stub that makes the start's network; None without a network, and for a lesson."""
    lesson: Lesson | None = None
    channel: socket.socket | None = None
    """The socket on which a lesson's stub sends its sockets before it becomes the program."""

    async def listener(self) -> trio.SocketListener | None:
        """The proxy's socket in the sandbox; None without a network. Raises CannotStart: a stub failed."""
        listening = self.listening
        if self.lesson is not None and self.channel is not None:
            _, (made, watched) = await trio.to_thread.run_sync(egress.received, self.channel)
            Thread(target=self.lesson.watching.watch, args=(watched,), name="watching", daemon=True).start()
            listening = socket.socket(fileno=made)
        return None if listening is None else trio.SocketListener(trio.socket.from_stdlib_socket(listening))

    def failure(self, status: int, last_line: str) -> CannotStart | None:
        """The error if bubblewrap ended before the program ran, with its last line on stderr. Call once."""
        if self.status is None or status < 0:  # bubblewrap itself can be killed, too
            return None
        with suppress(BlockingIOError):
            reported = os.read(self.status, STATUS_BYTES)
            if b'"exit-code"' in reported or (reported and status != _FAILED):
                return None
        if self.stub and self.stub.forker.process.returncode is not None:
            return policy.unavailable("its maker ended early", problem=egress.ENDED)
        return policy.unmade(last_line.removeprefix("bwrap: ") or "bubblewrap has ended")


class Sandboxes:
    """Prepares starts in sandboxes; one process, from the first start on, forks the stubs of them all."""

    def __init__(self, children: Children, around: DaemonPlaces) -> None:
        self._children, self._around, self._turn = children, around, trio.Lock()
        self._nursery: trio.Nursery
        self._forker: tuple[ChildProcess, socket.socket] | None = None
        self._data: list[str] = []  # the data of each run of an instance: the one before may still end

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Have the process start when it is needed; on exit, end it."""
        async with trio.open_nursery() as self._nursery:
            yield self
            self._nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def prepared(
        self, server: Server, env: Mapping[str, str], lesson: Lesson | None = None
    ) -> AsyncIterator[SandboxedStart]:
        """Prepare the start of a server that is confined or learned; on exit, close what belonged to it.

        Raises CannotStart: no such command, or no sandbox (`sandbox-unavailable`); ConnectionLost: short of a
        resource.
        """
        prepare = lesson.prepare if lesson else self._prepare
        with ExitStack() as held, ExitStack() as given:
            try:
                start = await trio.to_thread.run_sync(prepare, server, env, self._around, held, given)
            except OSError as error:
                if error.errno is None:
                    raise not_found(server.command or "", server.cwd) from None
                if error.errno in SHORTAGES:
                    raise ConnectionLost(f"no sandbox can be made: {error}", SHORTAGES[error.errno]) from None
                raise policy.unmade(str(error)) from None
            yield start

    async def fork(self, held: ExitStack) -> Stub:
        """Fork a stub, which ends with `held` at the latest; raises `OSError`, and as `Children.start`."""
        channel, theirs = socket.socketpair()
        held.enter_context(channel)
        with theirs:
            file = in_memory("steps", b"", held)
            async with self._turn:
                forker = self._forker or await self._nursery.start(self._run_forker)
            with suppress(OSError):  # of a killed forker the stub counts as one that has ended
                socket.send_fds(forker[1], [b"\0"], [file, theirs.fileno()])
        return Stub(channel, file, *forker)

    async def _run_forker(self, task_status: trio.TaskStatus[tuple[ChildProcess, socket.socket]]) -> None:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                program, *words = egress.stub_command(theirs.fileno())
                child = await self._children.start(program, words, {}, "/", passed=[theirs.fileno()])
            for pipe in (child.stdin, child.stdout, child.stderr):
                os.close(pipe)
            ours.settimeout(0.0)  # one that hangs must not hold up the loop
            self._forker = child, ours
            task_status.started(self._forker)
            try:
                await child.process.wait()
            finally:
                self._forker = None
                ours.close()
                await self._children.stop(child, eof=END_SECONDS, term=0.0)

    def _prepare(
        self, server: Server, env: Mapping[str, str], around: DaemonPlaces, held: ExitStack, given: ExitStack
    ) -> SandboxedStart:
        rules, path = server.confined, env.get("PATH", os.defpath)
        assert rules is not None
        (bwrap, nsenter), code = _requirements(around.environ.get("PATH"))
        has_network = rules.mode is SandboxMode.HOME or bool(rules.host_rules.allowed)
        # The stub leaves for its namespaces meanwhile.
        stub = trio.from_thread.run(self.fork, given) if has_network else None
        made = policy.resolve(server, rules, around, path)
        if server.instance:
            trio.from_thread.run_sync(self._data.append, made.data)  # `_leave` may be between look and removal
            held.callback(self._leave, made.data)
        for directory in made.own.values():
            os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib takes 7 ms
        # The stub and bubblewrap are no part of the sandbox: they must load no library of the server's.
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
        words = [*enter, bwrap, "--args", str(listed), "--", made.command, *server.args]
        return SandboxedStart(
            words=words, env=inside, passed=passed, given=given, listening=listening, status=status, stub=stub
        )

    def _leave(self, data: str) -> None:
        self._data.remove(data)
        if data not in self._data:
            with suppress(OSError):  # it is not empty
                os.rmdir(data)  # noqa: PTH106 - as above


class Stub(NamedTuple):
    """A forked stub, which makes the namespaces of one start."""

    channel: socket.socket
    file: int
    forker: ChildProcess
    asked: socket.socket

    def namespaces(self, steps: Sequence[bubblewrap.Mount]) -> tuple[list[str], socket.socket]:
        """The arguments for `nsenter` to enter the namespaces, and the proxy's socket; raises as `received`.

        The stub ends once the channel is closed, by bubblewrap (`--block-fd`) and by the daemon. Blocks.
        """
        os.pwrite(self.file, bubblewrap.stub_steps(steps), 0)
        try:
            pid, (listening,) = egress.received(self.channel)
        except CannotStart as error:
            is_silent = error.reason.data["problem"] == egress.SILENT and self.asked.fileno() >= 0
            if is_silent and any(fcntl.ioctl(self.asked, termios.TIOCOUTQ, bytes(4))):
                self.forker.signal_group(signal.SIGKILL)  # it hangs: other starts need one that is only slow
            raise
        words = ["--target", str(pid), "--user", "--mount", "--net", "--preserve-credentials"]
        return words, socket.socket(fileno=listening)


def trial(environ: Mapping[str, str]) -> CannotStart | None:
    """The error of a server's sandbox on this machine, by a trial; None where sandboxes work. Blocks."""
    try:
        with TemporaryDirectory() as home:
            return trio.run(_tried, {"HOME": home, "PATH": environ.get("PATH", os.defpath)})
    except OSError as error:  # a full disk, for one
        return policy.unmade(str(error))


async def _tried(environ: Mapping[str, str]) -> CannotStart | None:
    server = Server(name="trial", command="true", confined=sandbox_in_force(SandboxMode.HOME))
    async with Sandboxes(Children(), DaemonPlaces(environ=environ)).serving() as sandboxes:
        try:
            async with sandboxes.prepared(server, environ) as start:
                with trio.move_on_after(PROBE_SECONDS):
                    ran = await trio.run_process(
                        start.words, env=start.env, pass_fds=start.passed, capture_stderr=True, check=False
                    )
                    last = ran.stderr.decode(errors="replace").strip().rpartition("\n")[2]
                    return start.failure(ran.returncode, last)
                return policy.unmade(f"bubblewrap did not make a sandbox within {PROBE_SECONDS:g} seconds")
        except (CannotStart, ConnectionLost) as error:
            return error if isinstance(error, CannotStart) else policy.unmade(str(error))


def _requirements(path: str | None) -> tuple[list[str], bytes]:
    """The programs of sandboxes, searched in `path`, and the seccomp filter; raises CannotStart."""
    programs = {name: shutil.which(name, path=path) for name in PROGRAMS}
    if missing := [name for name, program in programs.items() if program is None]:
        raise policy.unavailable(f"{PROGRAMS[missing[0]]} is not installed", problem=missing[0])
    if (code := bubblewrap.filter_for(platform.machine())) is None:
        raise policy.unavailable(f"mcpd has no filter for {platform.machine()}", problem="machine")
    return [*filter(None, programs.values())], code


def ended(texts: Iterable[str]) -> bytes:
    """The texts, each followed by a NUL."""
    return os.fsencode("\0".join([*texts, ""]))


def in_memory(name: str, content: bytes, held: ExitStack) -> int:
    """A file in memory with a content, read from its beginning."""
    held.callback(os.close, descriptor := os.memfd_create(name))
    os.pwrite(descriptor, content, 0)
    return descriptor
