"""Control groups, in a directory that looks like theirs: what is found, written, read and removed."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from loguru import logger

from daemon.causes import Cause
from daemon.config.config_model import Server
from daemon.config.tuning import ServerLimits
from daemon.errors import ConnectionLost
from daemon.processes import cgroups, leftovers, marks
from daemon.processes.cgroups import Delegation, Leaf, claim, find, leaf_of, void
from daemon.processes.children import Children
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.upstreams.transports.stdio import open_connection
from daemon.wire.outbox import Outbox
from tests.unit.cases import cases
from tests.unit.processes.dying import DyingDaemon
from tests.unit.upstreams.transports.listening import Listener

MIB = 1 << 20
ALL = "cpu memory pids"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mount with the group of a unit, which systemd has delegated."""
    unit = tmp_path / "system.slice" / "mcpd.service"
    unit.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids")
    (unit / "cgroup.controllers").write_text(ALL)
    (unit / "cgroup.subtree_control").write_text(ALL)
    # What is above the mount is no group, whatever it says; and what was delegated once is not now.
    given = {unit: b"1", tmp_path.parent: b"1", tmp_path / "system.slice": b"0"}
    monkeypatch.setattr(os, "getxattr", lambda path, _name: given.get(path) or _no_attribute())
    return tmp_path


def _no_attribute() -> bytes:
    raise OSError("no such attribute")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    cgroups._leaves.clear()
    cgroups._spent.clear()


def found(tree: Path, group: str, unit: str = "") -> Delegation | None:
    said = tree / "said"
    said.write_text(f"4:memory:/elsewhere\n0::{group}\n")
    return find(unit, said, (tree / "absent", tree))


def delegation(tree: Path) -> Delegation:
    here = found(tree, "/system.slice/mcpd.service")
    assert here is not None
    return here


def said_by(act: Callable[[], object]) -> list[str]:
    lines: list[str] = []
    listener = logger.add(lambda line: lines.append(str(line)), format="{message}", level="WARNING")
    try:
        act()
    finally:
        logger.remove(listener)
    return lines


# --- what is found -------------------------------------------------------------------------------------------


def test_a_group_that_systemd_has_delegated_is_ours_and_the_daemon_gets_a_leaf(tree: Path) -> None:
    unit = tree / "system.slice" / "mcpd.service"
    assert found(tree, "/system.slice/mcpd.service") == Delegation(unit, unit / "daemon")


def test_a_subgroup_that_systemd_has_put_the_daemon_into_stays_its_own(tree: Path) -> None:
    unit = tree / "system.slice" / "mcpd.service"
    assert found(tree, "/system.slice/mcpd.service/supervisor") == Delegation(unit, unit / "supervisor")


@pytest.mark.parametrize("part", ["", "/daemon"])
def test_a_group_of_a_user_is_ours_if_its_unit_says_so_and_no_other(tree: Path, part: str) -> None:
    unit = tree / "app.slice" / "mcpd.service"
    assert found(tree, f"/app.slice/mcpd.service{part}", "mcpd.service") == Delegation(unit, unit / "daemon")
    assert found(tree, f"/app.slice/mcpd.service{part}") is None
    assert found(tree, f"/app.slice/terminal.scope{part}", "mcpd.service") is None


@cases("group")
def test_a_group_without_delegation_or_of_another_unit_is_nobodys_to_take(tree: Path, group: str) -> None:
    assert found(tree, group) is None


def test_there_is_none_without_cgroup_v2_or_without_a_process(tree: Path) -> None:
    said = tree / "said"
    said.write_text("4:memory:/system.slice/mcpd.service\n")
    assert find("", said, (tree,)) is None
    assert find("", tree / "nobody", (tree,)) is None
    said.write_text("0::/system.slice/mcpd.service\n")
    assert find("", said, (tree / "absent",)) is None


def test_the_daemon_moves_into_its_leaf_before_it_enables_each_controller_alone(tree: Path) -> None:
    here = delegation(tree)
    written: list[tuple[str, str]] = []

    def note(path: Path, text: str) -> int:
        written.append((path.name, text))
        if text == "+cpu":
            raise OSError("busy")
        return len(text)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "write_text", note)
        assert claim(here) == here
    assert written[0] == ("cgroup.procs", str(os.getpid()))
    controls = {("cgroup.subtree_control", f"+{name}") for name in ALL.split()}
    assert set(written[1:]) == controls
    assert here.own.is_dir()


def test_a_tree_that_cannot_be_written_is_not_used_and_the_log_says_why(tree: Path) -> None:
    here = delegation(tree)
    here.own.write_text("a file in its place")
    claimed: list[object] = []
    lines = said_by(lambda: claimed.append(claim(here)))
    assert claimed == [None]
    assert "servers get none" in lines[0]
    assert claim(None) is None


# --- a leaf --------------------------------------------------------------------------------------------------


def test_a_leaf_is_named_by_server_and_mark_and_has_the_limits(tree: Path) -> None:
    limits = ServerLimits(memory_bytes=100 * MIB, cpu=1.5, pids=40)
    here = delegation(tree)
    here.own.mkdir()
    leaf = here.leaf(0xABC, "git@work/../x", limits)
    assert leaf is not None
    # A move of the daemon to where it is: the child's move, soon after, need not wait.
    assert (here.own / "cgroup.procs").read_text() == str(os.getpid())
    assert leaf.path.name == "git_work____x-abc"
    files = {path.name: path.read_text() for path in leaf.path.iterdir()}
    assert files == {
        "memory.max": str(100 * MIB),
        "memory.high": str(98 * MIB),
        "memory.oom.group": "1",
        "memory.swap.max": "0",
        "cpu.max": "150000 100000",
        "pids.max": "40",
    }
    assert leaf_of(0xABC) is leaf
    assert leaf.ceiling == 100 * MIB


def test_a_limit_whose_controller_is_missing_is_not_written_and_is_void(tree: Path) -> None:
    here = delegation(tree)
    (here.root / "cgroup.subtree_control").write_text("pids")
    limits = ServerLimits(memory_bytes=100 * MIB, cpu=0.001, pids=40)
    leaf = here.leaf(1, "s", limits)
    assert leaf is not None
    assert [path.name for path in leaf.path.iterdir()] == ["pids.max"]
    assert leaf.ceiling is None
    assert void(limits, here) == ["limits.cpu"]
    assert void(limits, None) == ["limits.cpu", "limits.pids"]
    assert void(ServerLimits(), None) == void(None, None) == []


def test_a_sliver_of_a_cpu_is_the_least_that_the_kernel_takes(tree: Path) -> None:
    leaf = delegation(tree).leaf(1, "s", ServerLimits(cpu=0.001))
    assert leaf is not None
    assert (leaf.path / "cpu.max").read_text() == "1000 100000"


def test_a_leaf_that_cannot_be_made_costs_its_limits_and_no_start(tree: Path) -> None:
    here = delegation(tree)
    (here.root / "s-1").mkdir()
    lines = said_by(lambda: here.leaf(1, "s", None))
    assert "no control group for server s" in lines[0]
    assert leaf_of(1) is None


def made(tree: Path, **files: str) -> Leaf:
    """A leaf with a ceiling and these files, in which _ stands for a dot."""
    leaf = delegation(tree).leaf(7, "s", ServerLimits(memory_bytes=100 * MIB))
    assert leaf is not None
    for name, content in files.items():
        (leaf.path / name.replace("_", ".")).write_text(content)
    return leaf


def test_its_memory_is_what_it_uses_without_cache_that_is_given_back_first(tree: Path) -> None:
    leaf = made(tree, memory_current="5000\n", memory_stat="anon 1000\ninactive_file 2000\nactive_file 2000\n")
    assert leaf.memory() == 3000


def test_its_memory_is_unknown_without_the_controller_and_its_cpu_is_known_all_the_same(tree: Path) -> None:
    leaf = made(tree, cpu_stat="usage_usec 2500000\nuser_usec 1\n")
    assert leaf.memory() is None
    assert leaf.cpu() == 2.5


@cases("events", "outgrown")
def test_it_is_outgrown_if_the_kernel_killed_in_it_for_its_own_ceiling(
    tree: Path, events: str, outgrown: bool
) -> None:
    leaf = made(tree, memory_events=events, memory_peak=f"{99 * MIB}\n")
    assert leaf.outgrown() == ((99 * MIB, 100 * MIB) if outgrown else None)
    (leaf.path / "memory.peak").unlink()
    assert leaf.outgrown() == ((100 * MIB, 100 * MIB) if outgrown else None)


def test_its_processes_are_also_those_in_groups_that_the_server_made(tree: Path) -> None:
    leaf = made(tree, cgroup_procs="11\n12\n")
    (leaf.path / "inner").mkdir()
    (leaf.path / "inner" / "cgroup.procs").write_text("13\n")
    assert sorted(leaf.pids()) == [11, 12, 13]


# --- its end -------------------------------------------------------------------------------------------------


class Kernel:
    """Removes directories as cgroupfs does: whatever files they have, but not with groups in them."""

    def __init__(self) -> None:
        self.killed: list[str] = []

    def rmdir(self, path: Path) -> None:
        if any(each.is_dir() for each in path.iterdir()):
            raise OSError(16, "Device or resource busy")
        kill = path / "cgroup.kill"
        if kill.exists():
            self.killed.append(path.name)
        for each in path.iterdir():
            each.unlink()
        os.rmdir(path)  # noqa: PTH106 - the method is replaced


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(Path, "rmdir", lambda path: made.rmdir(path))  # noqa: PLW0108 - bound to the class
    return made


def test_its_end_kills_the_tree_and_removes_it_with_groups_inside(tree: Path, kernel: Kernel) -> None:
    leaf = made(tree)
    (leaf.path / "a" / "b").mkdir(parents=True)
    leaf.end()
    assert kernel.killed == ["s-7"]
    assert not leaf.path.exists()
    assert leaf_of(7) is None
    leaf.end()


def test_the_cpu_of_a_server_is_that_of_all_its_runs_and_instances(tree: Path, kernel: Kernel) -> None:
    here = delegation(tree)
    for mark, label in ((1, "s#1"), (2, "s#2"), (3, "other")):
        leaf = here.leaf(mark, label, None)
        assert leaf is not None
        (leaf.path / "cpu.stat").write_text(f"usage_usec {mark}000000\n")
        if mark != 2:
            leaf.end()
            leaf.end()
    assert cgroups.cpu_by_server() == {"s": 3, "other": 3}


def test_the_leaves_of_a_dead_daemon_end_and_others_stay(tree: Path, kernel: Kernel) -> None:
    here, bits = delegation(tree), marks.COUNT_BITS
    dead, alive = (5 << bits) | 3, (6 << bits) | 3
    for mark in (dead, dead + 1, alive):
        assert here.leaf(mark, "s", None)
    (here.root / "daemon").mkdir()
    (here.root / f"f-{dead + 2:x}").write_text("a file")
    here.end_dead(5, bits)
    assert sorted(kernel.killed) == [f"s-{dead:x}", f"s-{dead + 1:x}"]
    left = {path.name for path in here.root.iterdir() if path.is_dir()}
    assert left == {"daemon", f"s-{alive:x}"}


@pytest.mark.process
def test_the_record_of_a_killed_daemon_says_which_leaves_to_end(
    tree: Path, kernel: Kernel, tmp_path: Path
) -> None:
    here, state = delegation(tree), tmp_path / "state"
    with DyingDaemon(state, {"a": ["polite", "marked"]}) as daemon:
        (record,) = (state / leftovers.FOLDER).iterdir()
        series = int(record.stem, 16)
        assert here.leaf(series << marks.COUNT_BITS | 1, "a", None)
        leftovers.end_and_log(state, here)
        assert kernel.killed == []
        daemon.kill()
        leftovers.end_and_log(state, here)
    assert kernel.killed == [f"a-{series << marks.COUNT_BITS | 1:x}"]


# --- with real children --------------------------------------------------------------------------------------

FORKS = """
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
print("forked", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
async def test_a_child_joins_its_leaf_and_what_it_forked_before_is_fetched(
    tree: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = delegation(tree)
    moved: list[int] = []
    own = here.own
    own.mkdir()

    def move(folder: Path, pid: int) -> None:
        """As the kernel does: a process is in one group."""
        moved.append(pid)
        left = {int(each) for each in re.findall("[0-9]+", (own / "cgroup.procs").read_text())} - {pid}
        (own / "cgroup.procs").write_text("\n".join(map(str, left)))

    monkeypatch.setattr(cgroups, "_move", move)
    children = Children(None, here)
    with trio.fail_after(30):
        (own / "cgroup.procs").write_text("")
        child = await children.start(sys.executable, ["-S", "-E", "-c", FORKS], {}, None, server="s")
        link = trio.lowlevel.FdStream(child.stdout)
        assert await link.receive_some() == b"forked\n"
        assert moved == [os.getpid(), child.pid]
        moved.clear()
        tree_of_it = (await trio.to_thread.run_sync(marks.find)).trees[child.mark]
        assert len(tree_of_it) == 4
        (own / "cgroup.procs").write_text("\n".join(map(str, [os.getpid(), os.getppid(), *tree_of_it])))
        assert child.leaf is not None
        await trio.to_thread.run_sync(child.leaf.take, child.pid)
        assert sorted(set(moved)) == sorted(tree_of_it)
        await trio.lowlevel.FdStream(child.stdin).aclose()
        await children.stop(child, eof=0, term=0)
        await link.aclose()
        await trio.lowlevel.FdStream(child.stderr).aclose()
    assert kernel.killed == [child.leaf.path.name]
    assert leaf_of(child.mark) is None


@pytest.mark.process
async def test_measures_of_a_child_come_from_its_leaf_and_its_end_has_the_leafs_reason(
    tree: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, numbers = delegation(tree), {"memory.current": "5000", "cpu.stat": "usage_usec 9000000"}
    events = "max 3\noom 1\noom_kill 2\n"
    limits = ServerLimits(memory_bytes=MIB)
    server = Server(name="s", command=sys.executable, args=("-S", "-E", "-c", FORKS), limits=limits)
    context = OpenContext(server=server, events=Listener(), outbox=Outbox(), children=Children(None, here))
    with trio.fail_after(30):
        async with open_connection(context) as connection:
            child = connection._child
            assert child.leaf is not None
            for name, text in {**numbers, "memory.events": events, "memory.peak": str(MIB)}.items():
                (child.leaf.path / name).write_text(text)
            marks.started(helper := marks.new(), marks.ELSEWHERE)
            with monkeypatch.context() as patch:
                patch.setattr(marks, "find", None)  # of which no process needs a walk through /proc
                assert marks.memory_by_mark() == {child.mark: 5000}
            marks.forget(helper)
            assert marks.efforts([child.mark])[child.mark].cpu == 9
            os.kill(child.pid, signal.SIGKILL)
            with pytest.raises(ConnectionLost) as lost:
                await connection.run()
    assert (lost.value.reason.cause, lost.value.reason.data) == (
        Cause.MEMORY_CEILING,
        {"used": MIB, "limit": MIB},
    )
    assert "used 1 MiB of memory, its limit (limits.memoryBytes): the kernel killed it" in str(lost.value)
    assert kernel.killed == [child.leaf.path.name]


@pytest.mark.process
async def test_a_start_that_fails_leaves_no_leaf(tree: Path, kernel: Kernel) -> None:
    here = delegation(tree)
    children = Children(None, here)
    with pytest.raises(Exception, match="command not found"):
        await children.start("/no/such/program", [], {}, None, server="s")
    assert [path.name for path in here.root.iterdir() if path.is_dir()] == []
    assert len(kernel.killed) == 1


@pytest.mark.process
async def test_limits_that_nothing_enforces_are_told_once_a_server() -> None:
    children, lines = Children(), list[str]()
    listener = logger.add(lambda line: lines.append(str(line)), format="{message}", level="WARNING")
    for name in ("one", "one", "two"):
        with pytest.raises(Exception, match="command not found"):
            await children.start("/no/such/program", [], {}, None, server=name, limits=ServerLimits(pids=9))
    logger.remove(listener)
    assert len(lines) == 2
    assert all("limits.pids not enforced" in line and "Delegate=" in line for line in lines)
