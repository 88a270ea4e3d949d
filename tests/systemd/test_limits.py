"""A server that takes all it can get, and what its neighbours notice. Needs the kernel's controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.systemd.machine import PROGRAM, ended, hierarchy_of, scripted, told, watched
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.systemd.machine import Service

TASKS = 60
FORKS = 2000
"""At which the bomb itself stops: where the limit does not hold, the machine shall."""

BOMB = f"""
import os, time
for _ in range({FORKS}):
    try:
        if os.fork() == 0:
            time.sleep(600)
    except OSError:
        time.sleep(0.01)
time.sleep(600)
"""

MEGABYTES = 300
"""The limit of the whole service, whose daemon needs a quarter of it."""

HOG = f"""
import time
held = []
for _ in range(2 * {MEGABYTES}):
    held.append(bytearray(b"x" * 1048576))
time.sleep(600)
"""


def wild(program: str) -> dict[str, object]:
    """The entry of a server that is none."""
    return {"command": PROGRAM[0], "args": [*PROGRAM[1:], "-c", program]}


if hierarchy_of("pids") is not None:

    def test_a_fork_bomb_fills_the_units_tasks_and_its_neighbour_is_served(stopped: Service) -> None:
        stopped.begin({"one": scripted()}, f"TasksMax={TASKS}")
        main = stopped.pid
        # Later than its neighbour, which could not be started beside it.
        stopped.configure({"one": scripted(), "bomb": wild(BOMB)})
        stopped.ctl("reload", "mcpd.service")
        eventually(lambda: int(stopped.show("TasksCurrent")) >= TASKS, stopped.said)
        with stopped.client() as client:
            assert not client.run("one", "echo", text="still here").get("isError")
        assert int(stopped.show("TasksCurrent")) <= TASKS
        bombs = stopped.children() - {stopped.servers()["one"]["pid"]}
        with watched(bombs) as held:
            stopped.ask("switch", name="bomb", off=True)
            ended(held)
        assert stopped.pid == main
        with stopped.client() as client:
            assert not client.run("one", "echo", text="still here").get("isError")
        told(f"fork bomb under TasksMax={TASKS}: {len(bombs)} processes of it, ended with their server")

else:
    told("*** NOT TESTED: TasksMax. The machine's kernel gives this container no `pids` controller.")


if hierarchy_of("memory") is not None:

    def test_a_server_that_eats_all_memory_dies_alone(stopped: Service) -> None:
        stopped.configure({"one": scripted(), "hog": wild(HOG)}, f"MemoryMax={MEGABYTES}M", "MemorySwapMax=0")
        stopped.ctl("restart", "mcpd.service")
        main = stopped.pid
        neighbour = stopped.ready("one")["one"]["pid"]
        eventually(lambda: "SIGKILL" in str(stopped.servers()["hog"]), stopped.said)
        with stopped.client() as client:
            assert not client.run("one", "echo", text="still here").get("isError")
        assert (stopped.pid, stopped.servers()["one"]["pid"]) == (main, neighbour)
        assert stopped.show("ActiveState") == "active"
        told(f"a server that eats all of MemoryMax={MEGABYTES}M: it alone is killed, the daemon serves on")

else:
    told("*** NOT TESTED: OOMPolicy. The machine's kernel gives this container no `memory` controller.")
