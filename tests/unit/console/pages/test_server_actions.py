"""What is done to a server on its page, and what is said about it."""

from __future__ import annotations

import pytest

from daemon.authorization.login_runs import LoginRefused
from daemon.console.pages.server_pages import SERVER_ACTIONS
from daemon.errors import UnknownServer
from daemon.operators.base import Refused
from tests.unit.console.pages.drawing import viewer_of
from tests.unit.operators.running import raw, running
from tests.unit.operators.stage import OperatorStage

ACTS = {each.path.rpartition("/")[2]: each.act for each in SERVER_ACTIONS}


async def test_a_server_is_switched_off_and_on() -> None:
    async with running() as daemon:
        viewer = viewer_of(daemon.context, server="git")
        told = await ACTS["disable"](viewer, {})
        assert told == "git is switched off."
        told = await ACTS["enable"](viewer, {})
        assert told == "git was switched on and is ready."


async def test_what_a_refresh_has_brought_is_said() -> None:
    async with running() as daemon:
        git = daemon.servers["git"]
        git.lists = (raw("log"), raw("blame"))
        told = await ACTS["refresh"](viewer_of(daemon.context, server="git"), {})
        assert told == "git has listed 2 tools: 1 came, 2 went."
        git.problem = "it does not answer"
        told = await ACTS["refresh"](viewer_of(daemon.context, server="git"), {})
        assert told == "git: it does not answer."


async def test_a_restart_waits_for_its_outcome() -> None:
    async with running() as daemon:
        told = await ACTS["restart"](viewer_of(daemon.context, server="git"), {})
        assert told == "git was restarted and is ready."


@pytest.mark.parametrize("act", ["restart", "refresh", "disable", "login", "logout"])
async def test_a_server_that_is_not_there_is_refused(act: str) -> None:
    with pytest.raises(UnknownServer, match="alhpa"):
        await ACTS[act](viewer_of(OperatorStage().context(), server="alhpa"), {})


async def test_an_answer_without_a_login_is_refused() -> None:
    with pytest.raises((Refused, LoginRefused), match="no login is under way"):
        await ACTS["login-answer"](viewer_of(OperatorStage().context(), server="alpha"), {"url": "http://x"})
