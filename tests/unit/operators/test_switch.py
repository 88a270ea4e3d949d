"""What is switched off or on: each switch counts, and says what one might not expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from daemon.errors import InvalidArguments, UnknownServer, UnknownTool
from daemon.facts import Switched
from daemon.operators.base import OUTCOME_SECONDS, Refused
from daemon.operators.switch import unexpected
from tests.fakes_upstream import Stage
from tests.unit.operators.running import raw, running

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_a_switch_that_is_not_on_disk_is_obeyed_and_that_is_said() -> None:
    async with running() as here:
        here.archive.degrade("the disk is full")
        told = await here.switch("git", off=True)
        assert (told["off"], told["state"]) == (True, "disabled")
        assert told["note"] == "it is lost if mcpd ends now: the disk is full"
        assert (await here.switch("git", off=True))["note"] == told["note"], "said again: still so"


async def test_a_server_is_switched_off_and_on_and_its_child_follows() -> None:
    async with running() as here:
        told = await here.switch("git", off=True)
        assert told == {
            "server": "git",
            "tool": None,
            "kind": None,
            "name": None,
            "off": True,
            "already": False,
            "note": "",
            "state": "disabled",
            "reason": "switched off by an operator",
        }
        assert here.switched == {("git", "")}
        told = await here.switch("git", off=False)
        assert (told["already"], told["state"]) == (False, "ready")
        assert not here.switched


@pytest.mark.parametrize("name", ["git/log", "mcp__git__log"])
async def test_a_tool_is_switched_off_and_on_in_every_spelling(name: str) -> None:
    async with running() as here:
        await here.switch(name, off=True)
        assert here.switched == {("git", "log")}
        assert (await here.switch("git/log", off=False))["already"] is False
        assert not here.switched


async def test_a_name_is_split_at_its_first_slash() -> None:
    async with running() as here:
        await here.switch("git/a/b", off=True)
        assert here.switched == {("git", "a/b")}


@pytest.mark.parametrize("off", [True, False])
@pytest.mark.parametrize("name", ["git", "git/log"])
async def test_what_is_so_already_is_said_and_no_fault(name: str, off: bool) -> None:
    async with running() as here:
        if off:
            await here.switch(name, off=True)
        assert (await here.switch(name, off=off))["already"] is True


async def test_many_switches_at_once_are_all_obeyed() -> None:
    """Each is a whole set: two that knew nothing of one another would be one."""
    async with running() as here:
        here.list("time", *(raw(f"t{number}") for number in range(20)))
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(lambda n: here.switch(f"time/t{n}", off=True), number)
        assert len(here.switched) == 20


async def test_a_switch_does_not_undo_another_that_is_not_read_yet() -> None:
    async with running() as here:
        here.registry.tell(Switched(off=frozenset({("time", "now")})))
        await here.switch("git/log", off=True)
        assert here.switched == {("time", "now"), ("git", "log")}


@pytest.mark.parametrize(
    ("name", "error", "hint"),
    [
        ("gti", UnknownServer, "Did you mean git"),
        ("zzzzzz", UnknownServer, "There are: git, time, off."),
        ("gti/log", UnknownServer, "Did you mean git"),
        ("git/lgo", UnknownTool, "Did you mean log"),
        ("git/zzzzzz", UnknownTool, "There are: log, push, a/b."),
        ("git/", InvalidArguments, "names no tool"),
        ("git/a\nb", InvalidArguments, "names no tool"),
        ("git/" + "x" * 200, InvalidArguments, "names no tool"),
        ("", UnknownServer, "There are"),
        ("/log", UnknownServer, "There are"),
        ("mcp__gti__log", UnknownServer, "Did you mean git"),
    ],
)
@pytest.mark.parametrize("off", [True, False])
async def test_a_name_that_is_none_is_told_with_the_closest(
    name: str, error: type[Exception], hint: str, off: bool
) -> None:
    async with running() as here:
        with pytest.raises(error, match=hint):
            await here.switch(name, off=off)
        assert not here.switched


async def test_a_tool_may_be_switched_off_before_its_server_has_listed_any() -> None:
    async with running() as here:
        told = await here.switch("time/now", off=True)
        assert "not known yet" in str(told["note"])
        here.list("time", raw("now"))
        await here.registry.settle()
        assert ("time", "now") in here.registry.catalog.value.off


@pytest.mark.parametrize(
    ("name", "hint"),
    [("off", r'"enabled": true at \$\.mcpServers\.off in /etc/mcpd\.json'), ("git/push", "overrides")],
)
async def test_what_the_configuration_switches_off_no_command_switches_on(name: str, hint: str) -> None:
    async with running() as here:
        with pytest.raises(Refused, match=hint):
            await here.switch(name, off=False)


async def test_a_switch_of_what_the_configuration_switches_off_is_kept_and_says_so() -> None:
    async with running() as here:
        told = await here.switch("off", off=True)
        assert "the configuration switches server off off, too" in str(told["note"])
        assert here.switched == {("off", "")}
        told = await here.switch("off", off=False)
        assert "the configuration switches server off off, too" in str(told["note"])
        assert not here.switched


async def test_a_tool_of_a_server_that_is_off_stays_off_and_that_is_said() -> None:
    async with running() as here:
        await here.switch("git/log", off=True)
        await here.switch("git", off=True)
        assert "its server is switched off" in str((await here.switch("git/log", off=False))["note"])


async def test_a_switch_of_a_server_that_is_gone_can_be_taken_back() -> None:
    async with running() as here:
        here.registry.tell(Switched(off=frozenset({("gone", ""), ("gone", "tool")})))
        await here.registry.settle()
        told = await here.switch("gone", off=False)
        assert (told["already"], told["state"]) == (False, "")
        assert "not in the configuration" in str(told["note"])
        await here.switch("gone/tool", off=False)
        assert not here.switched


async def test_an_answer_does_not_wait_for_ever_for_a_server_that_does_not_stop(
    autojump_clock: MockClock,
) -> None:
    async with running(following=False) as here:
        began = trio.current_time()
        told = await here.switch("git", off=True)
        assert trio.current_time() - began == pytest.approx(OUTCOME_SECONDS)
        assert told["state"] == "ready"


def test_a_switch_that_does_all_that_one_expects_needs_no_note() -> None:
    catalog = Stage().catalog.value
    assert [unexpected(catalog, ("alpha", "echo"), off=off) for off in (True, False)] == ["", ""]
