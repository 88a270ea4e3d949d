"""`mcpd ui`: a link, the end of all sessions, and why there is none."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from daemon.operators.base import Refused
from daemon.operators.token_commands import UiParams, ui
from tests.fakes_upstream import Stage
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import operator_context

if TYPE_CHECKING:
    from daemon.operators.base import ConsoleAccess, OperatorContext


@attrs.define
class FakeConsole:
    """Lets people in as it is told to."""

    error: OSError | None = None

    async def link(self, *, may_change: bool) -> str:
        """Says for whom."""
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return f"link {may_change}"

    def end_all(self) -> int:
        """There were three."""
        return 3


def context(console: ConsoleAccess, listen: Any = None) -> OperatorContext:
    return operator_context(Stage(config_of({"listen": listen or {}})), console=lambda: console)


@pytest.mark.parametrize("listen", [{}, {"http": {}}])
async def test_a_link_is_made_for_who_may_change_or_only_look(listen: dict[str, Any]) -> None:
    here = context(FakeConsole(), listen)
    assert await ui(here, UiParams()) == {"link": "link True"}
    assert await ui(here, UiParams(read_only=True)) == {"link": "link False"}


async def test_all_sessions_are_ended() -> None:
    assert await ui(context(FakeConsole()), UiParams(end=True)) == {"ended": 3}


async def test_a_console_that_is_switched_off_says_so() -> None:
    with pytest.raises(Refused, match='"console": false'):
        await ui(context(FakeConsole(), {"http": {"console": False}}), UiParams())


async def test_a_console_that_cannot_be_served_says_why() -> None:
    with pytest.raises(Refused, match="Too many open files"):
        await ui(context(FakeConsole(OSError(errno.EMFILE, "Too many open files"))), UiParams())
