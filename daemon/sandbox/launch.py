"""A start in a sandbox: what the daemon prepares before it, gets from the stub, and reads after a failure."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

import attrs
import msgspec
import trio

from daemon.config.config_model import Server
from daemon.config.hosts import ANY, HostRules
from daemon.config.sandbox_keys import SandboxMode, SandboxRules
from daemon.errors import CannotStart, ConnectionLost
from daemon.kit.later import later
from daemon.processes.children import SHORTAGES, not_found
from daemon.sandbox import bubblewrap, egress, policy
from daemon.sandbox.policy import DaemonPlaces

if TYPE_CHECKING:
    from daemon.sandbox import learning, watching
else:  # Most daemons never watch a server.
    learning, watching = later("daemon.sandbox.learning"), later("daemon.sandbox.watching")

T = TypeVar("T")

PROGRAM = "bwrap"

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
        channel, passed = _for_stub(files := held.enter_context(ExitStack()), given)
        stub = egress.stub_command(*passed, watching.watched_calls(platform.machine()))
        words = [*stub, policy.command_of(server, around, path), *server.args]
        prepared = SandboxedStart(words=words, env=inside, passed=passed, given=given, files=files)
        return attrs.evolve(prepared, channel=channel, lesson=self)

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
    files: ExitStack
    """Closes what is completed while the child is loaded, and the channel."""
    channel: socket.socket | None = None
    """The stub waits here until it may begin, and hands its listening socket over."""
    finish: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    """Completes the sandbox, while the stub is loaded, which takes as long."""
    status: int | None = None
    """Bubblewrap reports here that the program runs, and its exit."""
    lesson: Lesson | None = None

    async def listener(self) -> trio.SocketListener | None:
        """Let the stub begin; returns the socket on which the sandbox's programs reach the proxy.

        Raises `CannotStart` if there is no such sandbox, or the stub failed: the child then ends by itself.
        """
        if self.channel is None:
            return None
        with self.files:
            await self.finish()
            return await egress.listener_from(self.channel, self.lesson.begin if self.lesson else None)

    def failure(self, status: int, said: str) -> CannotStart | None:
        """The error if bubblewrap ended before the program ran; `said` is its last line on stderr. Ask once."""
        if self.status is None or status != _FAILED:  # bubblewrap itself can be killed, too
            return None
        with suppress(BlockingIOError):
            if b'"exit-code"' in os.read(self.status, STATUS_BYTES):
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
    program, code = requirements()
    command = policy.command_of(server, around, path)
    status, reports = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    held.callback(os.close, status)
    given.callback(os.close, reports)
    files = held.enter_context(ExitStack())
    filtering, listed = in_memory("filter", code, given), in_memory("arguments", b"", files)
    # The stub and bubblewrap are no part of the sandbox: they must load no library that the server has made.
    loading = {name: value for name, value in env.items() if name.startswith(("LD_", "GLIBC_"))}
    inside = {name: value for name, value in env.items() if name not in loading}
    inside[DATA] = around.directories_of(server)[1]
    words = [program, "--args", str(listed), "--", command, *server.args]
    passed = [filtering, listed, reports]
    channel, stub = None, 0
    if rules.mode is SandboxMode.HOME or rules.host_rules.allowed:
        channel, of_stub = _for_stub(files, given)
        words = [*egress.stub_command(*of_stub), *words]
        passed, stub = [*passed, *of_stub], of_stub[1]
        inside |= egress.proxy_environment(rules.host_rules)

    def finish() -> None:
        made = policy.resolve(server, rules, around, path)
        for directory in made.own.values():
            os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib takes 7 ms
        steps = bubblewrap.mounts(made)
        options = bubblewrap.arguments(None if stub else steps)
        options += ["--seccomp", str(filtering), "--json-status-fd", str(reports), "--chdir", made.cwd]
        options += [word for name, value in loading.items() for word in ("--setenv", name, value)]
        if stub:
            os.pwrite(stub, bubblewrap.stub_steps(steps), len(bubblewrap.compiled_stub()))
        os.pwrite(listed, ended(options), 0)

    start = SandboxedStart(words=words, env=inside, passed=passed, given=given, files=files, status=status)
    if channel is None:
        finish()
        given.callback(files.close)
        return start
    return attrs.evolve(start, channel=channel, finish=partial(_in_thread, server, finish))


def _for_stub(files: ExitStack, given: ExitStack) -> tuple[socket.socket, tuple[int, int]]:
    ours, theirs = socket.socketpair()
    files.enter_context(ours)
    given.callback(theirs.close)
    return ours, (theirs.fileno(), in_memory("stub", bubblewrap.compiled_stub(), files))


def requirements(path: str | None = None) -> tuple[str, bytes]:
    """The program bwrap, searched in `path` or the daemon's own, and the filter; raises CannotStart."""
    program, code = shutil.which(PROGRAM, path=path), bubblewrap.filter_for(platform.machine())
    if program is None:
        raise policy.unavailable("bubblewrap (bwrap) is not installed", problem="bwrap")
    if code is None:
        raise policy.unavailable(f"mcpd has no filter for {platform.machine()}", problem="machine")
    return program, code


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
