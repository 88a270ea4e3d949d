"""Programs in real sandboxes: what they find, how they end, and what prevents a start."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from daemon.config.config_model import Instance, Server
from daemon.config.sandbox_keys import SandboxMode, SandboxWish, sandbox_in_force
from daemon.errors import CannotStart, ConnectionLost
from daemon.processes.children import ChildProcess, Children
from daemon.sandbox import bubblewrap, egress, launch
from daemon.sandbox.launch import SandboxedStart, Sandboxes
from daemon.sandbox.policy import DaemonPlaces, contents_of
from daemon.supervision.backoff import Ending
from daemon.supervision.lifecycle import ENDED, ending_of

PATIENCE = 30.0

SANDBOXES: dict[Path, Sandboxes] = {}
"""Those of a daemon, by its home directory."""

LOOK = """
import json, os, socket, sys
def read(path):
    try:
        return sorted(os.listdir(path)) if os.path.isdir(path) else open(path).read()
    except OSError as error:
        return error.strerror
def write(path):
    try:
        open(path, "w").close()
        return "written"
    except OSError as error:
        return error.strerror
home = os.environ["HOME"]
held = [each for each in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{each}")]
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({
    "fds": sorted(held), "pid": os.getpid(), "caps": status["CapBnd"], "privileges": status["NoNewPrivs"],
    "seccomp": status["Seccomp"], "key": read(home + "/.ssh/id"), "home": read(home), "tmp": read("/tmp"),
    "write": {each: write(os.path.expanduser(each)) for each in
              ("~/x", "~/.npm/x", "/tmp/x", "/usr/x", os.environ["MCPD_DATA_DIR"] + "/x")},
    "kernel": os.access("/proc/sys/kernel/core_pattern", os.W_OK),
    "interfaces": [name for _, name in socket.if_nameindex()], "proxy": os.environ.get("HTTPS_PROXY"),
}))
"""


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Path]:
    made = tmp_path.resolve() / "home"  # noqa: ASYNC240 - a test may wait
    (made / ".ssh").mkdir(parents=True)
    (made / ".ssh" / "id").write_text("secret")
    (made / "notes").mkdir()
    async with Sandboxes(Children(), DaemonPlaces(environ=environment(made))).serving() as SANDBOXES[made]:
        yield made


def server_of(*words: str, wish: SandboxWish) -> Server:
    return Server(name="s", command=words[0], args=words[1:], confined=sandbox_in_force(wish))


class Run:
    """A started program, and its whole output."""

    def __init__(self, children: Children, start: SandboxedStart, child: ChildProcess) -> None:
        self.children, self.start, self.child = children, start, child

    async def output(self) -> bytes:
        read = b""
        while chunk := await self.line():
            read += chunk
        return read

    async def line(self) -> bytes:
        await trio.lowlevel.wait_readable(self.child.stdout)
        return os.read(self.child.stdout, 65536)


async def forked(home: Path, start: SandboxedStart) -> Run:
    (program, *words), children = start.words, Children()
    with start.given:
        child = await children.start(program, words, start.env, str(home), passed=start.passed)
    return Run(children, start, child)


async def begun(home: Path, start: SandboxedStart) -> Run:
    run = await forked(home, start)
    if (listener := await start.listener()) is not None:
        await listener.aclose()
    return run


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


def sandboxed(server: Server, home: Path, **env: str) -> AbstractAsyncContextManager[SandboxedStart]:
    return SANDBOXES[home].prepared(server, environment(home) | env)


@asynccontextmanager
async def running(
    home: Path, *words: str, wish: SandboxWish, instance: Instance | None = None, **env: str
) -> AsyncIterator[Run]:
    server = attrs.evolve(server_of(*words, wish=wish), instance=instance)
    with trio.fail_after(PATIENCE):
        async with sandboxed(server, home, **env) as start:
            yield await begun(home, start)


async def look(home: Path, wish: SandboxWish) -> dict[str, Any]:
    async with running(home, sys.executable, "-c", LOOK, wish=wish) as run:
        found: dict[str, Any] = json.loads(await run.output())
        assert await run.child.process.wait() == 0
        assert run.start.failure(0, "") is None
        return found


async def test_a_program_at_home_finds_no_secret_no_capability_and_no_descriptor(home: Path) -> None:
    found = await look(home, SandboxMode.HOME)
    assert found["fds"] == ["0", "1", "2"]
    assert (found["caps"], found["privileges"], found["seccomp"]) == ("0" * 16, "1", "2")
    assert not found["kernel"]
    assert found["key"] == "No such file or directory"
    assert ".ssh" not in found["home"]
    assert "notes" in found["home"]
    written = {path for path, result in found["write"].items() if result == "written"}
    data = str(home / ".local/share/mcpd/servers/s/data/x")
    assert written == {"~/.npm/x", "/tmp/x", data}
    assert found["interfaces"] == ["lo"]
    assert found["proxy"] == "http://127.0.0.1:3128"
    assert not (home / ".npm").exists()
    assert os.path.isfile(data)  # noqa: ASYNC240, PTH113 - a test may wait


KEEP = """
import os
for each in ("/tmp", os.environ["MCPD_DATA_DIR"]):
    print("mine" in os.listdir(each))
    open(each + "/mine", "w").close()
"""


@pytest.mark.parametrize("mode", [SandboxMode.HOME, SandboxMode.STRICT])
async def test_each_instance_has_its_own_tmp_and_its_own_data(home: Path, mode: SandboxMode) -> None:
    found, work = [], home.parent / "work"
    work.mkdir()
    for label, workspace in (("s#1", None), ("s#2", None), (f"s@{work}", str(work)), ("s#1", None)):
        instance = Instance(label=label, workspace=workspace)
        async with running(home, sys.executable, "-c", KEEP, wish=mode, instance=instance) as run:
            found.append((await run.output()).decode().split("\n")[:2])
            await run.child.process.wait()
    assert found == [["False", "False"]] * 3 + [["False", "True"]]


async def test_an_instances_empty_data_stay_while_its_next_run_has_them(home: Path) -> None:
    server = attrs.evolve(server_of("true", wish=SandboxMode.STRICT), instance=Instance(label="s#1"))
    async with AsyncExitStack() as former:
        await former.enter_async_context(sandboxed(server, home))
        async with sandboxed(server, home) as start:
            await former.aclose()
            data = start.env["MCPD_DATA_DIR"]
            assert os.path.isdir(data)  # noqa: ASYNC240, PTH112 - a test may wait
        assert not os.path.isdir(data)  # noqa: ASYNC240, PTH112 - as above


async def test_a_program_in_strict_mode_finds_an_empty_home_and_no_network(home: Path) -> None:
    found = await look(home, SandboxMode.STRICT)
    assert "notes" not in found["home"]
    assert not found["kernel"]
    assert found["proxy"] is None
    assert found["write"]["/usr/x"] == "Read-only file system"
    assert not (home / "x").exists()


@pytest.mark.parametrize("mode", [SandboxMode.HOME, SandboxMode.STRICT])
async def test_a_directory_of_tools_takes_a_lock_and_a_new_tool_next_to_the_user_s_own(
    home: Path, mode: SandboxMode
) -> None:
    """As uvx does at each start."""
    tools = home / ".local/share/uv/tools"
    tool, python = tools / "tool" / "run", tools / "3.12.1"
    tool.parent.mkdir(parents=True)
    (python / "bin").mkdir(parents=True)
    (tools / "3.12").symlink_to(python)
    tool.write_text("#!/bin/sh\necho run\n")
    tool.chmod(0o755)
    words = f"touch {home}/.cache/a; cd {tools} && ls -d 3.* && touch .lock && mkdir -p new && ./tool/run"
    for _ in range(2):
        async with running(home, "sh", "-c", f"{words}; touch tool/x || ls {home}/.cache/a", wish=mode) as run:
            assert (await run.output()).decode() == f"3.12\n3.12.1\nrun\n{home}/.cache/a\n"
            assert await run.child.process.wait() == 0
    assert sorted(each.name for each in tools.iterdir()) == ["3.12", "3.12.1", "tool"]


@pytest.mark.parametrize(
    ("place", "target"), [(".cache/ms-playwright", "/usr/bin"), (".local+share+uv+tools/file", "planted")]
)
async def test_a_link_where_something_is_to_be_shown_prevents_the_start(
    home: Path, place: str, target: str
) -> None:
    """A server could leave one in a directory of its own, and have a program of the system covered."""
    server = server_of("true", wish=SandboxMode.HOME)
    link = home / ".local/share/mcpd/servers/s/caches" / contents_of(server) / place
    link.parent.mkdir(parents=True)
    for tool in (".local/share/uv/tools/file", ".cache/ms-playwright/chromium"):
        (home / tool).parent.mkdir(parents=True)
        (home / tool).write_text("")
    link.symlink_to(home / target)
    error = await failure(server, home)
    assert "Not a directory" in str(error) or "symbolic links" in str(error)
    assert not (home / "planted").exists()


@pytest.mark.parametrize("mode", [SandboxMode.HOME, SandboxMode.STRICT])
async def test_a_program_finds_the_same_devices_and_may_open_terminals(home: Path, mode: SandboxMode) -> None:
    program = "import os; print(os.ttyname(os.openpty()[1]), *sorted(os.listdir('/dev')))"
    async with running(home, sys.executable, "-c", program, wish=mode) as run:
        names = "core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
        assert (await run.output()).decode() == f"/dev/pts/0 {names}\n"
        assert await run.child.process.wait() == 0


def stubs_of(process: ChildProcess) -> list[str]:
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


async def test_a_start_that_is_given_up_leaves_no_stub(home: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with sandboxed(server_of("true", wish=SandboxMode.HOME), home) as start:
            assert start.stub
            assert stubs_of(start.stub.forker) == [start.words[2]]
            start.given.close()
            while stubs_of(start.stub.forker):
                await trio.lowlevel.checkpoint()


async def forker_of(sandboxes: Sandboxes) -> ChildProcess:
    with ExitStack() as held:
        return (await sandboxes.fork(held)).forker


async def gone(process: ChildProcess) -> None:
    while os.path.exists(f"/proc/{process.pid}"):  # noqa: ASYNC240, PTH110 - a zombie is there, too
        await trio.lowlevel.checkpoint()


async def test_a_forker_starts_with_the_first_stub_and_ends_with_its_daemon(home: Path) -> None:
    await look(home, SandboxMode.STRICT)
    assert SANDBOXES[home]._forker is None
    with trio.fail_after(PATIENCE):
        async with Sandboxes(Children(), DaemonPlaces()).serving() as sandboxes:
            forker = await forker_of(sandboxes)
        await gone(forker)


async def test_a_forker_that_was_killed_leaves_no_zombie_and_is_replaced(home: Path) -> None:
    with trio.fail_after(PATIENCE):
        forker = await forker_of(SANDBOXES[home])
        forker.signal_group(signal.SIGKILL)
        await gone(forker)
        assert (await look(home, SandboxMode.HOME))["fds"] == ["0", "1", "2"]


async def test_a_forker_that_is_killed_with_a_stub_to_fork_prevents_one_start(home: Path) -> None:
    with trio.fail_after(PATIENCE), ExitStack() as held:
        forker = await forker_of(SANDBOXES[home])
        forker.signal_group(signal.SIGSTOP)
        stub = await SANDBOXES[home].fork(held)
        forker.signal_group(signal.SIGKILL)
        with pytest.raises(CannotStart) as raised:
            await trio.to_thread.run_sync(stub.namespaces, ())
        assert ending_of(raised.value.reason) is Ending.CRASHED
        await gone(forker)
        assert (await look(home, SandboxMode.HOME))["fds"] == ["0", "1", "2"]


async def test_a_stub_that_is_killed_before_its_namespaces_are_entered_prevents_one_start(home: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with sandboxed(server_of("true", wish=SandboxMode.HOME), home) as start:
            assert start.stub
            start.stub.forker.signal_group(signal.SIGKILL)
            await gone(start.stub.forker)
            status = await (await forked(home, start)).child.process.wait()
            error = start.failure(status, "nsenter: cannot open /proc/1/ns/user")
            assert ending_of(error.reason if error else ENDED) is Ending.CRASHED


async def test_a_forker_that_hangs_prevents_one_start_and_is_replaced(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(PATIENCE):
        forker = await forker_of(SANDBOXES[home])
        forker.signal_group(signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(egress, "STUB_SECONDS", 0.1)
            error = await failure(server_of("true", wish=SandboxMode.HOME), home)
        assert (error.reason.data["problem"], ending_of(error.reason)) == (egress.SILENT, Ending.CRASHED)
        assert await forker.process.wait() == -signal.SIGKILL
        assert (await look(home, SandboxMode.HOME))["fds"] == ["0", "1", "2"]


async def test_a_forker_stays_where_only_a_stub_says_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "STUB_SECONDS", 0.1)
    silent, theirs = socket.socketpair()
    with trio.fail_after(PATIENCE), silent, theirs, ExitStack() as held:
        stub = await SANDBOXES[home].fork(held)
        while not stubs_of(stub.forker):
            await trio.lowlevel.checkpoint()
        with pytest.raises(CannotStart, match="not ready"):
            await trio.to_thread.run_sync(stub._replace(channel=silent).namespaces, ())
        assert await forker_of(SANDBOXES[home]) is stub.forker


async def test_a_mask_that_cannot_be_made_prevents_the_start_and_an_entry_that_is_gone_does_not(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = bubblewrap.mounts
    step = ("show", "gone", str(home))
    monkeypatch.setattr(bubblewrap, "mounts", lambda made: [*mounts(made)[:-1], step])
    async with running(home, "echo", "ran", wish=SandboxMode.HOME) as run:
        assert (await run.output(), await run.child.process.wait()) == (b"ran\n", 0)
    step = ("read", "/dev/null", "/usr/gone")
    assert "system: '/usr/gone'" in str(await failure(server_of("true", wish=SandboxMode.HOME), home))


async def test_sigterm_reaches_the_program_inside(home: Path) -> None:
    """Bubblewrap itself has no grace: at its end the kernel kills all that is inside."""
    program = """
import os, signal, sys
signal.signal(15, lambda *_: (os.write(1, b"bye\\n"), sys.exit()))
os.write(1, b"up\\n")
while True:
    signal.pause()
"""
    async with running(home, sys.executable, "-c", program, wish=SandboxMode.STRICT) as run:
        assert await run.line() == b"up\n"
        os.close(run.child.stdin)
        await run.children.stop(run.child, eof=0.0, term=20.0)
        assert await run.output() == b"bye\n"


async def test_variables_of_the_loader_count_inside_alone(home: Path) -> None:
    """The stub and bubblewrap are not confined: they must load no library that the server has made."""
    async with running(
        home, "sh", "-c", "echo $LD_LIBRARY_PATH", wish=SandboxMode.HOME, LD_LIBRARY_PATH="/made"
    ) as run:
        assert "LD_LIBRARY_PATH" not in run.start.env
        assert await run.output() == b"/made\n"
        await run.child.process.wait()


async def failure(server: Server, home: Path) -> CannotStart:
    with pytest.raises(CannotStart) as caught:
        async with sandboxed(server, home):
            pass
    return caught.value


@pytest.mark.parametrize("mode", [SandboxMode.HOME, SandboxMode.STRICT])
async def test_a_program_behind_links_starts_where_the_mode_hides_them(home: Path, mode: SandboxMode) -> None:
    """As `uv tool install` and fnm leave them."""
    tool, shims = home / ".local/share/uv/tools/tool", home / ".local/bin"
    (tool / "bin").mkdir(parents=True)
    (tool / "bin" / "run").write_text("#!/bin/sh\necho run\n")
    (tool / "bin" / "run").chmod(0o755)
    (tool / "bin" / "also").symlink_to("run")
    shims.mkdir(parents=True)
    (shims / "run").symlink_to("../share/uv/tools/tool/bin/run")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as shells:
        (Path(shells) / "1").symlink_to(tool)
        for command in (shims / "run", Path(shells) / "1/bin/run", Path(shells) / "1/bin/also"):
            async with running(home, str(command), wish=mode) as run:
                assert await run.output() == b"run\n"
                assert await run.child.process.wait() == 0


async def test_a_missing_command_is_named_as_without_a_sandbox(home: Path) -> None:
    error = await failure(server_of("no-such-program", wish=SandboxMode.HOME), home)
    assert error.reason.cause == "command-not-found"


async def test_without_bubblewrap_nothing_starts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PROGRAMS", {"no-such-bwrap": "bubblewrap", "nsenter": "nsenter"})
    error = await failure(server_of("sh", wish=SandboxMode.HOME), home)
    assert (error.reason.cause, error.reason.data["problem"]) == ("sandbox-unavailable", "no-such-bwrap")


async def test_a_shortage_of_files_is_no_fault_of_the_sandbox(home: Path) -> None:
    def prepare(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    lesson: Any = SimpleNamespace(prepare=prepare)
    with pytest.raises(ConnectionLost, match="Too many open files") as lost:
        async with SANDBOXES[home].prepared(server_of("true", wish=SandboxMode.HOME), {}, lesson):
            pass
    assert lost.value.reason.cause == "out-of-files"


async def test_a_sandbox_that_bubblewrap_cannot_make_is_told_from_a_program_that_fails(home: Path) -> None:
    async with running(home, "false", wish=SandboxMode.STRICT) as run:
        assert await run.child.process.wait() == 1
        assert run.start.failure(1, "bwrap: x") is run.start.failure(-9, "") is None
    with trio.fail_after(PATIENCE):
        async with sandboxed(server_of("false", wish=SandboxMode.STRICT), home) as start:
            start.words[start.words.index("--") : start.words.index("--")] = ["--bind", "/no/such", "/tmp/x"]
            run = await forked(home, start)
            assert await run.child.process.wait() == 1
            error = start.failure(1, "bwrap: Can't find source path /no/such: No such file or directory")
            assert error is not None
            assert error.reason.data["problem"] == "setup"


async def test_a_bubblewrap_that_the_sandbox_hides_makes_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bwrap = shutil.which("bwrap")
    assert bwrap
    (home.parent / "bwrap").symlink_to(bwrap)
    environ = environment(home) | {"PATH": f"{home.parent}:{os.environ['PATH']}"}
    monkeypatch.setattr(SANDBOXES[home], "_around", DaemonPlaces(environ=environ))
    async with running(home, "true", wish=SandboxMode.HOME) as run:
        error = run.start.failure(await run.child.process.wait(), "nsenter: failed to execute bwrap")
        assert error is not None
        assert error.reason.data["error"] == "nsenter: failed to execute bwrap"
