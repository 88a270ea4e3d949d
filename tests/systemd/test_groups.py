"""The control groups that the units delegate: a leaf for each server, its limits, its end, its memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.systemd.machine import HIERARCHIES, UNIT, ended, greet, scripted, told, watched
from tests.systemd.test_limits import wild
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.systemd.machine import Service

TREE = [
    {"kind": "plain", "ignore_term": True},
    {"kind": "setsid", "ignore_term": True},
    {"kind": "daemon", "ignore_term": True, "keep_stdout": True},
]
LIMITS = {"memoryBytes": "64MiB", "cpu": 0.5, "pids": 40}
HELD = {"memory": ("memory.max", str(64 << 20)), "cpu": ("cpu.max", "50000 100000"), "pids": ("pids.max", "40")}

LEAK = """
import time
held = [bytearray(b"x" * 1048576) for _ in range(256)]
time.sleep(600)
"""
"""Where no kernel holds it, the machine shall not be out of memory before mcpd has looked twice."""

BOMB = """
import os, time
for _ in range(200):
    try:
        if os.fork() == 0:
            time.sleep(600)
    except OSError:
        break
time.sleep(600)
"""


def group(service: Service) -> Path:
    """The unit's own group, in the hierarchy of cgroup v2."""
    name = service.show("ControlGroup").lstrip("/")
    return next(found for root in HIERARCHIES if ((found := root / name) / "cgroup.subtree_control").exists())


def controllers(service: Service) -> set[str]:
    """Those that the kernel has given to the unit: none where cgroup v1 holds them."""
    return set((group(service) / "cgroup.controllers").read_text().split()) & HELD.keys()


def leaves(service: Service) -> dict[str, Path]:
    """The leaf of each server, by its name."""
    return {path.name.rpartition("-")[0]: path for path in group(service).glob("*-*") if path.is_dir()}


def members(leaf: Path) -> set[int]:
    """The processes in it."""
    return {int(pid) for pid in (leaf / "cgroup.procs").read_text().split()}


def test_each_server_has_a_leaf_with_all_that_it_started_and_the_daemon_one_of_its_own(
    stopped: Service,
) -> None:
    stopped.begin({"tree": scripted(spawn=TREE), "two": scripted()})
    found = leaves(stopped)
    assert found.keys() == {"tree", "two"}
    assert len(members(found["tree"])) == 1 + len(TREE)
    assert members(found["two"]) == {stopped.servers()["two"]["pid"]}
    assert members(group(stopped)) == set()
    assert stopped.pid in members(group(stopped) / "daemon")
    enabled = set((group(stopped) / "cgroup.subtree_control").read_text().split())
    assert enabled >= controllers(stopped)
    there = sorted(controllers(stopped)) or "none, as cgroup v1 has them"
    told(f"control groups: a leaf each; controllers in them: {there}")


def test_a_leaf_ends_with_its_server_and_takes_along_what_ignores_everything(stopped: Service) -> None:
    stubborn = scripted(spawn=TREE, ignore=["term", "eof"])
    stopped.begin({"stubborn": stubborn, "two": scripted()})
    leaf = leaves(stopped)["stubborn"]
    with watched(members(leaf)) as held:
        stopped.ask("switch", name="stubborn", off=True)
        ended(held)
    eventually(lambda: not leaf.exists(), stopped.said)
    assert leaves(stopped).keys() == {"two"}


def test_after_a_kill_of_the_daemon_no_old_leaf_is_left_and_the_next_has_its_own(stopped: Service) -> None:
    stopped.begin({"tree": scripted(spawn=TREE, ignore=["term", "eof"])})
    old, main = leaves(stopped)["tree"], stopped.pid
    with watched(members(old)) as held:
        os.kill(main, signal.SIGKILL)
        ended(held)
    with stopped.client() as client:
        greet(client)
    stopped.ready()
    assert not old.exists()
    assert members(leaves(stopped)["tree"])
    # systemd could enter the group again, in which the first daemon had enabled controllers.
    assert stopped.show("ActiveState", UNIT) == "active"


def test_limits_are_in_the_leaf_where_the_kernel_gives_controllers_and_else_the_log_says_so(
    stopped: Service,
) -> None:
    stopped.begin({"one": {**scripted(), "limits": LIMITS}})
    there, leaf = controllers(stopped), leaves(stopped)["one"]
    for name, (file, value) in HELD.items():
        assert not there or name in there
        assert name not in there or (leaf / file).read_text().strip() == value
    assert ("limits.cpu and limits.pids not enforced" in stopped.said()) is not bool(there)


def test_a_server_that_outgrows_its_memory_ends_with_that_cause_and_the_numbers(stopped: Service) -> None:
    stopped.begin({"one": scripted()})
    stopped.configure({"one": scripted(), "leak": {**wild(LEAK), "limits": LIMITS}})
    stopped.ctl("reload", UNIT)
    by = "the kernel killed it" if "memory" in controllers(stopped) else "mcpd ended it"
    eventually(lambda: by in str(stopped.servers()["leak"]["reason"]), stopped.said)
    seen = stopped.servers()["leak"]
    assert (seen["cause"], seen["causeData"]["limit"]) == ("memory-ceiling", 64 << 20)
    with stopped.client() as client:
        assert not client.run("one", "echo", text="still here").get("isError")
    told(f"a leak beyond limits.memoryBytes of 64 MiB: {seen['reason']}")


def test_a_fork_bomb_stays_within_its_own_limit(stopped: Service) -> None:
    stopped.begin({"one": scripted()})
    bounded = "pids" in controllers(stopped)
    stopped.configure({"one": scripted(), "forker": {**wild(BOMB), "limits": LIMITS}})
    stopped.ctl("reload", UNIT)
    most = LIMITS["pids"] if bounded else 201
    eventually(
        lambda: "forker" in leaves(stopped) and len(members(leaves(stopped)["forker"])) == most, stopped.said
    )
    with watched(members(leaves(stopped)["forker"])) as held:
        stopped.ask("switch", name="forker", off=True)
        ended(held)
    told(f"a fork bomb under limits.pids=40: {len(held)} processes")
