"""Who gets in: the mode of the socket, the group, and the list of users in the configuration."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from tests.systemd.machine import CONTROL, FRONT, LISTED, MEMBER, OTHER, STATE, Bridge, greet, knock, scripted
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.systemd.machine import Service

KILLS = 2

CALL = {
    "name": "call-category-tool",
    "arguments": {"category": "one", "name": "effect", "args": {"then": {"never": True}}},
}
"""Leaves one line in a file, and is never answered."""


def executed(effects: Path, times: int) -> bool:
    """Whether a call was executed so many times."""
    return effects.exists() and effects.read_text().count("\n") >= times


def test_a_member_of_the_group_whom_the_configuration_lists_is_served(service: Service) -> None:
    assert json.loads(knock(LISTED, FRONT))["result"] == {}


def test_another_user_cannot_even_connect(service: Service) -> None:
    assert knock(OTHER, FRONT) == "PermissionError"


def test_a_member_who_is_not_listed_is_hung_up_on_unheard_and_told_of_once(service: Service) -> None:
    assert knock(MEMBER, FRONT) in {"", "ConnectionResetError", "BrokenPipeError"}
    service.heard(f"refused a connection of uid {MEMBER}")
    # A second one, so that what the first one left in the log is complete.
    knock(MEMBER, FRONT)
    said = service.heard(f"refused a connection of uid {MEMBER}")
    lines = [line for line in said.splitlines() if f"uid {MEMBER} " in line]
    pids = {line.partition("(pid ")[2].partition(")")[0] for line in lines}
    assert len(lines) == len(pids)
    assert all("listen.uids" in line for line in lines)
    assert "[session=" not in said


def test_nobody_but_root_reaches_the_control_socket(service: Service) -> None:
    assert [knock(uid, CONTROL) for uid in (LISTED, MEMBER, OTHER)] == ["PermissionError"] * 3
    assert service.ask("status")["daemon"]["pid"] == service.pid


def test_a_listed_user_works_through_a_bridge_that_outlives_kills_of_the_daemon(stopped: Service) -> None:
    stopped.begin({"one": scripted(effects="/var/lib/mcpd/effects")})
    effects = STATE / "effects"
    effects.unlink(missing_ok=True)
    with Bridge(LISTED) as client:
        greet(client)
        for kills in range(1, KILLS + 1):
            hung = client.ask_later("tools/call", CALL)
            eventually(partial(executed, effects, kills), stopped.said)
            stopped.ctl("kill", "--kill-whom=main", "--signal=KILL", "mcpd.service")
            lost = client.answer_to(hung)["result"]["structuredContent"]
            assert lost["error"]["code"] == "UpstreamLost"
            assert not client.run("one", "echo", text="again").get("isError")
    assert executed(effects, KILLS)
    assert not executed(effects, KILLS + 1)
