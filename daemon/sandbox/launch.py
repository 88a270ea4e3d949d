"""A start in a sandbox: what the daemon prepares before it, gets from the stub, and reads after a failure."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio

from daemon.config.config_model import Server
from daemon.config.hosts import ANY, HostRules
from daemon.config.sandbox_keys import SandboxMode, SandboxRules
from daemon.errors import CannotStart, ConnectionLost
from daemon.kit.later import later
from daemon.processes.children import SHORTAGES, not_found
from daemon.sandbox import bubblewrap, egress, policy, seccomp

if TYPE_CHECKING:
    from daemon.sandbox import learning, watching
else:  # Most daemons never watch a server.
    learning, watching = later("daemon.sandbox.learning"), later("daemon.sandbox.watching")

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

    def learned(self, registries: Iterable[str]) -> learning.Learned | None:
        """The entry for what was seen so far; None if nothing has started yet. Blocks."""
        if not self.policies:
            return None
        allowed, refused = self.egress.allowed.hosts, self.egress.refused.hosts
        seen = attrs.evolve(
            self._watching.seen(),
            hosts={host: each.count for host, each in allowed.items()},
            refused={host: str(each.reason) for host, each in refused.items()},
        )
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
    passed: tuple[int, ...]
    """Descriptors for the child."""
    given: ExitStack
    """Closes our copies of `passed`, once the child has started."""
    channel: socket.socket | None
    """The stub's way to hand over its listening socket."""
    status: int | None
    """Bubblewrap reports here that the program runs, and its exit."""
    lesson: Lesson | None = None

    async def listener(self) -> trio.SocketListener | None:
        """The socket on which the sandbox's programs reach the proxy; raises CannotStart if the stub failed."""
        if self.channel is None:
            return None
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
    server: Server, env: Mapping[str, str], around: policy.DaemonPlaces, lesson: Lesson | None = None
) -> AsyncIterator[SandboxedStart]:
    """Prepare the start of a confined server, or of one that is learned; on exit, close what belonged to it.

    Raises:
        CannotStart: no such command; or there is no sandbox, or not this one (`sandbox-unavailable`).
        ConnectionLost: the system is short of a resource.
    """
    with ExitStack() as held, ExitStack() as given:
        try:
            prepare = _prepare if lesson is None else partial(_prepare_open, lesson)
            start = await trio.to_thread.run_sync(prepare, server, env, around, held, given)
        except OSError as error:
            if error.errno is None:
                raise not_found(server.command or "", server.cwd) from None
            if error.errno in SHORTAGES:
                raise ConnectionLost(f"no sandbox can be made: {error}", SHORTAGES[error.errno]) from None
            raise policy.unmade(str(error)) from None
        yield start


def _prepare(
    server: Server, env: Mapping[str, str], around: policy.DaemonPlaces, held: ExitStack, given: ExitStack
) -> SandboxedStart:
    rules = server.confined
    assert rules is not None
    program, code = requirements()
    made = policy.resolve(server, rules, around, env.get("PATH", os.defpath))
    for directory in (made.staging, *made.own.values()):
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib takes 7 ms
    status, reports = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    held.callback(os.close, status)
    given.callback(os.close, reports)
    has_network = rules.mode is SandboxMode.HOME or bool(made.hosts.allowed)
    filtering = in_memory("filter", code, given)
    options = bubblewrap.arguments(made, has_network=has_network, filter_fd=filtering, status_fd=reports)
    # The stub and bubblewrap are no part of the sandbox: they must load no library that the server has made.
    loading = {name: value for name, value in env.items() if name.startswith(("LD_", "GLIBC_"))}
    options += [word for name, value in loading.items() for word in ("--setenv", name, value)]
    listed = in_memory("arguments", ended(options), given)
    words = [program, "--args", str(listed), "--", made.command, *server.args]
    passed: tuple[int, ...] = (filtering, listed, reports)
    channel = None
    inside = {name: value for name, value in env.items() if name not in loading}
    inside[DATA] = made.data
    if has_network:
        channel, theirs = socket.socketpair()
        held.enter_context(channel)
        steps = bubblewrap.home_view(made) if rules.mode is SandboxMode.HOME else []
        fields = [made.staging, *(field for step in steps for field in step)] if steps else []
        mounts = in_memory("mounts", ended(fields), given)
        words = [*egress.stub_command(theirs.fileno(), mounts), *words]
        passed = (*passed, theirs.fileno(), mounts)
        given.callback(theirs.close)
        inside |= egress.proxy_environment(made.hosts)
    return SandboxedStart(words=words, env=inside, passed=passed, given=given, channel=channel, status=status)


def _prepare_open(
    lesson: Lesson,
    server: Server,
    env: Mapping[str, str],
    around: policy.DaemonPlaces,
    held: ExitStack,
    given: ExitStack,
) -> SandboxedStart:
    """Prepare a start without a sandbox, but watched, and with the proxy as its network."""
    made = policy.resolve(server, lesson.rules, around, env.get("PATH", os.defpath))
    lesson.policies.append(made)
    os.makedirs(made.data, mode=0o700, exist_ok=True)  # noqa: PTH103
    channel, theirs = socket.socketpair()
    held.enter_context(channel)
    given.callback(theirs.close)
    mounts = in_memory("mounts", b"", given)
    stub = egress.stub_command(theirs.fileno(), mounts, watching.watched_calls(platform.machine()))
    return SandboxedStart(
        words=[*stub, made.command, *server.args],
        env={**env, DATA: made.data, **egress.proxy_environment(HostRules(allowed=(ANY,)))},
        passed=(theirs.fileno(), mounts),
        given=given,
        channel=channel,
        status=None,
        lesson=lesson,
    )


def requirements(path: str | None = None) -> tuple[str, bytes]:
    """The program bwrap, searched in `path` or the daemon's own, and the filter; raises CannotStart."""
    program, code = shutil.which(PROGRAM, path=path), seccomp.filter_for(platform.machine())
    if program is None:
        raise policy.unavailable("bubblewrap (bwrap) is not installed", problem="bwrap")
    if code is None:
        raise policy.unavailable(f"mcpd has no filter for {platform.machine()}", problem="machine")
    return program, code


def ended(texts: Iterable[str]) -> bytes:
    """Texts, each ended by a NUL."""
    return b"".join(os.fsencode(each) + b"\0" for each in texts)


def in_memory(name: str, content: bytes, held: ExitStack) -> int:
    """A file in memory with a content, read from its beginning."""
    descriptor = os.memfd_create(name)
    held.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
